package topdeck

import (
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"
)

// Histogram keeps the distribution of integers, relative error at most 1.08 %; count, sum, minimum
// and maximum are exact. Times are nanoseconds.
type Histogram struct{ registered }

// NewHistogram registers a histogram, or finds it.
func NewHistogram(what Description) *Histogram {
	return &Histogram{register(&series{Description: what, kind: kindHistogram})}
}

// Record records a value.
func (h *Histogram) Record(value uint64) {
	lane := ownLane(pin())
	if h.small < lane.end.Load() && value != 0 {
		base := unsafe.Pointer(lane.base.Load())
		cells := unsafe.Add(base, h.small)
		bucket := bucketOf(value)
		// The last bucket, the only one of its group, belongs to the first group.
		touched := atomic.LoadUint64(cellAt(cells, histTouched))
		if touched>>(bucket>>scale&63)&1 != 0 {
			// In this order: a reader reads the bucket first and `begun` last.
			addOwned(cellAt(cells, histBegun), 1)
			recordOwned(cells, value)
			addOwned(cellAt(base, h.large+bucket*8), 1)
			unpin()
			return
		}
	}
	unpin()
	h.recordSlow(value)
}

// recordOwned updates sum and extremes.
func recordOwned(cells unsafe.Pointer, value uint64) {
	sum := *cellAt(cells, histSumLow) + value
	storeOwned(cellAt(cells, histSumLow), sum)
	if sum < value {
		addOwned(cellAt(cells, histSumHigh), 1)
	}
	if value > *cellAt(cells, histMax) {
		storeOwned(cellAt(cells, histMax), value)
	}
	if ^value > *cellAt(cells, histNotMin) {
		storeOwned(cellAt(cells, histNotMin), ^value)
	}
}

//go:noinline
func (h *Histogram) recordSlow(value uint64) {
	if h.small >= smallBytes {
		return
	}
	for range attemptsMax {
		p := pin()
		lane := ownLane(p)
		if h.small >= lane.end.Load() {
			unpin()
			if prepareLane(p) != nil {
				break
			}
			continue
		}
		base := unsafe.Pointer(lane.base.Load())
		cells := unsafe.Add(base, h.small)
		cell, bit := h.cellOf(lane, value)
		if atomic.LoadUint64(cellAt(cells, histTouched))&bit == bit {
			addOwned(cellAt(cells, histBegun), 1)
			recordOwned(cells, value)
			addOwned(cell, 1)
			unpin()
			return
		}
		unpin()
		if !h.reserveGroup(p+1, bit) {
			return
		}
	}
	h.recordShared(value)
}

// cellOf returns the cell that counts a value, and the bit of its group; none for 0.
func (h *Histogram) cellOf(lane *laneView, value uint64) (*uint64, uint64) {
	if value == 0 {
		return lane.cell(h.small + histZero), 0
	}
	bucket := bucketOf(value)
	return lane.cell(h.large + bucket*8), 1 << (bucket >> scale & 63)
}

func (h *Histogram) reserveGroup(lane int, bit uint64) bool {
	group := uintptr(bits.TrailingZeros64(bit))
	touch := func() {
		touched := lanes[lane].cell(h.small + histTouched)
		atomic.StoreUint64(touched, atomic.LoadUint64(touched)|bit)
	}
	done := func() {}
	if group > 0 {
		done = touch
	}
	// The first group includes the last bucket.
	return reserveCells(lane, h.large+group*bucketGroup*8, bucketGroup*8, done) &&
		(group > 0 || reserveCells(lane, h.large+64*bucketGroup*8, 8, touch))
}

// recordShared records in lane 0, with atomic instructions.
func (h *Histogram) recordShared(value uint64) {
	lane := sharedLane(h.small)
	if lane == nil {
		return
	}
	cell, bit := h.cellOf(lane, value)
	isReserved := atomic.LoadUint64(lane.cell(h.small+histTouched))&bit == bit
	if !isReserved && !h.reserveGroup(0, bit) {
		return
	}
	atomic.AddUint64(lane.cell(h.small+histBegun), 1)
	if atomic.AddUint64(lane.cell(h.small+histSumLow), value) < value {
		atomic.AddUint64(lane.cell(h.small+histSumHigh), 1)
	}
	raise(lane.cell(h.small+histMax), value)
	raise(lane.cell(h.small+histNotMin), ^value)
	atomic.AddUint64(cell, 1)
}

func raise(cell *uint64, value uint64) {
	for {
		current := atomic.LoadUint64(cell)
		if value <= current || atomic.CompareAndSwapUint64(cell, current, value) {
			return
		}
	}
}

// RecordDuration records nanoseconds; a negative duration is recorded as 0.
func (h *Histogram) RecordDuration(d time.Duration) { h.Record(uint64(max(d, 0))) }

// Timer measures a duration.
type Timer struct {
	histogram *Histogram
	since     time.Time
}

// Start starts a timer.
func (h *Histogram) Start() Timer { return Timer{h, time.Now()} }

// Stop records the time since the start and returns it.
func (t Timer) Stop() time.Duration {
	took := time.Since(t.since)
	t.histogram.RecordDuration(took)
	return took
}
