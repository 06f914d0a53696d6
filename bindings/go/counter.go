package topdeck

import (
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Counter is monotonic: the sum of all additions, modulo 2^64.
type Counter struct{ registered }

// NewCounter registers a counter, or finds the one with the same name, labels and unit.
func NewCounter(what Description) *Counter {
	return &Counter{register(&series{Description: what, kind: kindCounter})}
}

// Add adds n.
func (c *Counter) Add(n uint64) { addCell(c.small, n) }

// UpDownCounter is the sum of all additions and subtractions.
type UpDownCounter struct{ registered }

// NewUpDownCounter registers an up-down counter, or finds it.
func NewUpDownCounter(what Description) *UpDownCounter {
	return &UpDownCounter{register(&series{Description: what, kind: kindUpDown})}
}

// Add adds n, which may be negative.
func (c *UpDownCounter) Add(n int64) { addCell(c.small, uint64(n)) }

func addCell(small uintptr, n uint64) {
	lane := ownLane(pin())
	if small < lane.end.Load() {
		addOwned(lane.cell(small), n)
		unpin()
		return
	}
	unpin()
	addCellSlow(small, n)
}

// attemptsMax bounds the attempts to record in the lane of a P: between two of them the goroutine
// may move to another P, whose lane has no space yet.
const attemptsMax = 4

//go:noinline
func addCellSlow(small uintptr, n uint64) {
	if small >= smallBytes {
		return
	}
	for range attemptsMax {
		p := pin()
		if lane := ownLane(p); small < lane.end.Load() {
			addOwned(lane.cell(small), n)
			unpin()
			return
		}
		unpin()
		if prepareLane(p) != nil {
			break
		}
	}
	if lane := sharedLane(small); lane != nil {
		atomic.AddUint64(lane.cell(small), n)
	}
}

// Gauge is an integer; the last write wins.
type Gauge struct{ registered }

// NewGauge registers an integer gauge, or finds it.
func NewGauge(what Description) *Gauge {
	return &Gauge{register(&series{Description: what, kind: kindGauge})}
}

// Set sets the value.
func (g *Gauge) Set(value int64) { setShared(g.small, uint64(value)) }

// FloatGauge is a floating-point number; the last write wins.
type FloatGauge struct{ registered }

// NewFloatGauge registers a floating-point gauge, or finds it.
func NewFloatGauge(what Description) *FloatGauge {
	return &FloatGauge{register(&series{Description: what, kind: kindFloatGauge})}
}

// Set sets the value.
func (g *FloatGauge) Set(value float64) { setShared(g.small, math.Float64bits(value)) }

// setShared sets a cell of lane 0, which has space for all that is registered.
func setShared(small uintptr, word uint64) {
	if small < lanes[0].end.Load() {
		atomic.StoreUint64(lanes[0].cell(small), word)
	}
}

// Text is a text of up to 240 bytes: a version, a state, the name of a leader.
type Text struct{ registered }

// NewText registers a text, or finds it.
func NewText(what Description) *Text {
	return &Text{register(&series{Description: what, kind: kindText})}
}

// A writer fills the inactive buffer.
const textWriting = 1 << 63

// Set sets the text, truncated to 240 bytes at a character. It returns whether all of it fit.
func (t *Text) Set(text string) bool {
	if t.small >= lanes[0].end.Load() {
		return false
	}
	end := min(len(text), textMax)
	for end < len(text) && end > 0 && text[end]&0xc0 == 0x80 {
		end--
	}
	current := lanes[0].cell(t.small)
	word := atomic.LoadUint64(current) &^ textWriting
	for !atomic.CompareAndSwapUint64(current, word, word|textWriting) {
		runtime.Gosched()
		word = atomic.LoadUint64(current) &^ textWriting
	}
	next := (word + 1) &^ textWriting
	buffer := t.small + textBuffer0
	if next&1 == 1 {
		buffer = t.small + textBuffer1
	}
	atomic.StoreUint64(lanes[0].cell(buffer), uint64(end))
	for number, part := range toWords(text[:end]) {
		atomic.StoreUint64(lanes[0].cell(buffer+8+uintptr(number)*8), part)
	}
	atomic.StoreUint64(current, next)
	return end == len(text)
}

// Heartbeat has a number of beats and the time of the last one.
type Heartbeat struct{ registered }

// NewHeartbeat registers a heartbeat, or finds it; everyNS is its intended period in nanoseconds, 0
// if it has none.
func NewHeartbeat(what Description, everyNS uint64) *Heartbeat {
	return &Heartbeat{register(
		&series{Description: what, kind: kindHeartbeat, parameter: everyNS})}
}

// Beat records a beat.
func (h *Heartbeat) Beat() {
	if h.small < lanes[0].end.Load() {
		atomic.StoreUint64(lanes[0].cell(h.small+8), now())
		atomic.AddUint64(lanes[0].cell(h.small), 1)
	}
}

func cellAt(base unsafe.Pointer, offset uintptr) *uint64 {
	return (*uint64)(unsafe.Add(base, offset))
}
