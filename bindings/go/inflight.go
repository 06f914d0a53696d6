package topdeck

import "sync/atomic"

// InFlight is a table of operations that have started and not ended. Each lane has 16,384 slots; an
// operation without a slot is counted too.
type InFlight struct{ registered }

// NewInFlight registers a table, or finds it; tags are the names of up to four tags of an
// operation.
func NewInFlight(what Description, tags ...string) *InFlight {
	return &InFlight{register(&series{Description: what, kind: kindInFlight, tags: tags})}
}

// Tag is the interned value of a tag: a number that refers to a text. Zero has no text.
type Tag uint32

// NewTag interns a text. Each distinct text takes space in the file for good: use it for a device
// or a route, not for a request id. Without a file, and without space, it is zero.
func NewTag(text string) Tag {
	f, err := open()
	if err != nil {
		return 0
	}
	if len(text) > stringMax {
		text = text[:stringMax]
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	at, err := f.intern(text)
	if err != nil {
		return 0
	}
	return Tag(at)
}

// Operation is in flight until End.
type Operation struct {
	started bool
	small   uintptr
	lane    *laneView
	slot    uintptr
	index   uint64
}

// Slots are reserved in pages; this many are probed before more space is reserved.
const (
	slotsPerPage = page / slotBytes
	probesMax    = 64
)

// Begin starts an operation now; number is chosen by the program (of a request, of a block), and
// tags are values in the order of the registered names. It must be ended, by any goroutine.
func (f *InFlight) Begin(number uint64, tags ...Tag) Operation {
	if f.small >= smallBytes {
		return Operation{}
	}
	lane, laneNumber := f.start()
	if lane == nil {
		// The start was not counted, so the end must not be.
		return Operation{}
	}
	slot, index, ok := f.claim(lane, laneNumber)
	if !ok {
		atomic.AddUint64(lane.cell(f.small+flightUntracked), 1)
		return Operation{started: true, small: f.small}
	}
	var words [tagsMax / 2]uint64
	for at, tag := range tags[:min(len(tags), tagsMax)] {
		words[at/2] |= uint64(tag) << (32 * (at % 2))
	}
	atomic.StoreUint64(lane.cell(slot+8), number)
	atomic.StoreUint64(lane.cell(slot+slotTags), words[0])
	atomic.StoreUint64(lane.cell(slot+slotTags+8), words[1])
	atomic.StoreUint64(lane.cell(slot+slotStart), max(now(), filling+1))
	return Operation{true, f.small, lane, slot, index}
}

// start counts a start and returns the lane whose slots are to be used. The goroutine may move to
// another P afterwards: a slot is claimed with an atomic instruction, and so are the counts of
// operations without one.
func (f *InFlight) start() (lane *laneView, number int) {
	for range attemptsMax {
		p := pin()
		if lane := ownLane(p); f.small < lane.end.Load() {
			addOwned(lane.cell(f.small+flightStarted), 1)
			unpin()
			return lane, p + 1
		}
		unpin()
		if prepareLane(p) != nil {
			break
		}
	}
	lane = sharedLane(f.small)
	if lane != nil {
		atomic.AddUint64(lane.cell(f.small+flightStarted), 1)
	}
	return lane, 0
}

// claim finds a free slot and returns its offset and index.
func (f *InFlight) claim(lane *laneView, number int) (slot uintptr, index uint64, ok bool) {
	slots := min(atomic.LoadUint64(lane.cell(f.small+flightSlots)), slotsMax)
	hint := min(atomic.LoadUint64(lane.cell(f.small+flightHint)), slots)
	near := min(hint+probesMax, slots)
	index, ok = f.claimIn(lane, hint, near)
	if !ok && slots < slotsMax {
		reserved := reserveCells(number, f.large+uintptr(slots)*slotBytes, page, func() {
			raise(lane.cell(f.small+flightSlots), slots+slotsPerPage)
		})
		if reserved {
			index, ok = f.claimIn(lane, slots, slots+slotsPerPage)
		}
	}
	if !ok {
		index, ok = f.claimIn(lane, near, slots)
	}
	if !ok {
		index, ok = f.claimIn(lane, 0, hint)
	}
	if ok {
		atomic.StoreUint64(lane.cell(f.small+flightHint), index+1)
	}
	return f.large + uintptr(index)*slotBytes, index, ok
}

func (f *InFlight) claimIn(lane *laneView, from, to uint64) (uint64, bool) {
	for index := from; index < to; index++ {
		start := lane.cell(f.large + uintptr(index)*slotBytes)
		if atomic.LoadUint64(start) == 0 && atomic.CompareAndSwapUint64(start, 0, filling) {
			return index, true
		}
	}
	return 0, false
}

// End ends the operation; only the first call does. The zero value ends nothing.
func (o *Operation) End() {
	if !o.started {
		return
	}
	if o.lane != nil {
		atomic.StoreUint64(o.lane.cell(o.slot), 0)
		atomic.StoreUint64(o.lane.cell(o.small+flightHint), o.index)
	}
	// Counted in the lane of the P that ends it.
	addCell(o.small+flightEnded, 1)
	*o = Operation{}
}
