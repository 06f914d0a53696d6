package topdeck

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// laneView is what a record needs of a lane: its address and the end of its usable small cells.
type laneView struct {
	base atomic.Pointer[byte]
	end  atomic.Uintptr
}

// lanes has the lane 0, which is shared, and one for each P: lane p + 1 of P p.
var lanes [lanesMax]laneView

// beyond has no cells: for a P without a lane.
var beyond laneView

// ownLane returns the lane of a P.
func ownLane(p int) *laneView {
	if uint(p) < lanesMax-1 {
		return &lanes[p+1]
	}
	return &beyond
}

func (v *laneView) cell(offset uintptr) *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(v.base.Load()), offset))
}

// opened is the file of this process, or nil.
var opened atomic.Pointer[file]

var opening struct {
	sync.Mutex
	err     error
	retryAt time.Time
}

// After a failure the next attempt to create the file follows ten seconds later.
const retryAfter = 10 * time.Second

// open returns the file of this process, which is created if there is none.
func open() (*file, error) {
	if f := opened.Load(); f != nil {
		return f, nil
	}
	opening.Lock()
	defer opening.Unlock()
	if f := opened.Load(); f != nil {
		return f, nil
	}
	if opening.err != nil && time.Now().Before(opening.retryAt) {
		return nil, opening.err
	}
	f, err := createFile()
	if err != nil {
		opening.err, opening.retryAt = err, time.Now().Add(retryAfter)
		return nil, err
	}
	opened.Store(f)
	return f, nil
}

// Path returns the path of the metrics file of this process, which is created if there is none; or
// why there is none.
func Path() (string, error) {
	f, err := open()
	if err != nil {
		return "", err
	}
	return f.path, nil
}

// Close marks the process as exited by itself; call it at the end of main. Without it a process
// that has ended counts as terminated, as after a crash. Metrics may be recorded after it.
func Close() {
	if f := opened.Load(); f != nil {
		f.markExited()
	}
}

var errNoRoom = errors.New("no lane has space")

// fullMark is the time until which no record requests space, because the file system was full: it
// is requested once a second, not by each record.
type fullMark struct{ until atomic.Uint64 }

// Lanes may not fit while cells of lane 0 still do.
var lanesFull, cellsFull fullMark

func (m *fullMark) isSet() bool {
	until := m.until.Load()
	return until != 0 && now() < until
}

// note returns the error, after which the mark is set for a second.
func (m *fullMark) note(err error) error {
	if err != nil {
		m.until.Store(now() + uint64(time.Second))
	}
	return err
}

// prepareLane makes the small cells of a P's lane usable up to all that are registered. It returns
// an error if the record must go to the shared lane.
func prepareLane(p int) error {
	f := opened.Load()
	if f == nil || uint(p) >= lanesMax-1 || lanesFull.isSet() {
		return errNoRoom
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	isNew := lanes[p+1].base.Load() == nil
	if _, err := f.openLane(p + 1); err != nil {
		return lanesFull.note(err)
	}
	if isNew {
		f.markLaneOwned(p + 1)
	}
	return lanesFull.note(f.reserveSmall(p+1, f.registry.smallUsed))
}

// reserveCells reserves large cells of a lane and calls done, with the lock of the file; a failure
// is counted as a lost value.
func reserveCells(lane int, offset, bytes uintptr, done func()) bool {
	f := opened.Load()
	if f == nil {
		return false
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if cellsFull.isSet() || cellsFull.note(f.reserveLarge(lane, offset, bytes)) != nil {
		f.addToHeader(headerLostValues, 1)
		return false
	}
	done()
	return true
}

// sharedLane returns lane 0 for a counter, or nil.
func sharedLane(small uintptr) *laneView {
	f := opened.Load()
	if f == nil || small >= lanes[0].end.Load() {
		return nil
	}
	f.markSharedLaneUsed()
	return &lanes[0]
}

// register finds or adds a series.
func register(s *series) registered {
	if err := s.check(); err != nil {
		return registered{unregistered, err}
	}
	f, err := open()
	if err != nil {
		return registered{unregistered, err}
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	cells, err := f.findOrAdd(s)
	return registered{cells, err}
}
