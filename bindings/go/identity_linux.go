package topdeck

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// identity of a process across reuse of PIDs, namespaces and boots. Fields that /proc does not
// provide are 0.
type identity struct {
	boot         [2]uint64
	pid          int
	pidNamespace uint64
	startTicks   uint64
}

func ownIdentity() identity {
	own := identity{pid: os.Getpid(), startTicks: startTicks("self")}
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	digits := strings.ReplaceAll(strings.TrimSpace(string(text)), "-", "")
	if len(digits) == 32 {
		own.boot[1], _ = strconv.ParseUint(digits[:16], 16, 64)
		own.boot[0], _ = strconv.ParseUint(digits[16:], 16, 64)
	}
	var stat syscall.Stat_t
	if syscall.Stat("/proc/self/ns/pid", &stat) == nil {
		own.pidNamespace = stat.Ino
	}
	return own
}

// startTicks returns the start time of a process, field 22 of its stat; 0 if it does not run. A
// zombie does not run.
func startTicks(process string) uint64 {
	stat, err := os.ReadFile("/proc/" + process + "/stat")
	if err != nil {
		return 0
	}
	// The name is in parentheses and may contain any bytes.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 || (fields[0] == "Z" && fields[17] == "1") {
		return 0
	}
	ticks, _ := strconv.ParseUint(fields[19], 10, 64)
	return ticks
}

// epoch is one instant as Go knows it and as CLOCK_MONOTONIC.
var epoch, epochMonotonic = func() (time.Time, uint64) {
	before := time.Now()
	monotonic := readMonotonic()
	// Half of the time that reading it took.
	return before.Add(time.Since(before) / 2), monotonic
}()

// now returns nanoseconds of CLOCK_MONOTONIC, without a system call.
func now() uint64 { return epochMonotonic + uint64(time.Since(epoch)) }
