//go:build !linux || !(amd64 || arm64 || riscv64 || loong64 || ppc64le || mips64le)

package topdeck

import (
	"errors"
	"sync"
	"unsafe"
)

// file does not exist on this platform.
type file struct {
	path      string
	mutex     sync.Mutex
	registry  registry
	lanesUsed int
}

func createFile() (*file, error) {
	return nil, errors.New("cannot create the metrics file: shared-memory metrics need Linux on a " +
		"64-bit little-endian machine")
}

func (f *file) openLane(int) (unsafe.Pointer, error)     { return nil, nil }
func (f *file) reserve(uintptr, uintptr) error           { return nil }
func (f *file) reserveSmall(int, uintptr) error          { return nil }
func (f *file) reserveLarge(int, uintptr, uintptr) error { return nil }
func (f *file) store(uintptr, uint64)                    {}
func (f *file) addToHeader(uintptr, uint64)              {}
func (f *file) markLaneOwned(int)                        {}
func (f *file) markSharedLaneUsed()                      {}
func (f *file) markExited()                              {}
