package topdeck

import (
	"syscall"
	"unsafe"
)

// readMonotonic reads CLOCK_MONOTONIC by a system call: package syscall has no function for it.
func readMonotonic() uint64 {
	const clockMonotonic = 1
	var at syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic,
		uintptr(unsafe.Pointer(&at)), 0)
	if errno != 0 {
		return 0
	}
	return uint64(at.Nano())
}
