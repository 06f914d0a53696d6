package topdeck

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Retention of files of processes that have ended: long enough for a collector that scrapes each
// second after a regular exit, a day after a crash, and at most 64 files of 64 MiB in all.
const (
	retentionExited     = time.Minute
	retentionTerminated = 24 * time.Hour
	retentionFiles      = 64
	retentionBytes      = 64 << 20
	// Creating a file takes less time than this.
	unfinishedAfter = time.Minute
)

type endedFile struct {
	path   string
	since  uint64
	exited bool
	bytes  int64
}

// removeExpired removes files of processes that have ended beyond the limits.
func removeExpired(dir string) {
	if strings.HasPrefix(dir, "/proc") {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	own := ownIdentity()
	// If /proc does not show this process, no process is known to have ended.
	if own.startTicks == 0 || own.boot == [2]uint64{} {
		return
	}
	var ended []endedFile
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if filepath.Ext(path) != ".tdk" {
			continue
		}
		if strings.HasPrefix(entry.Name(), ".") {
			info, err := entry.Info()
			if err == nil && time.Since(info.ModTime()) > unfinishedAfter {
				_ = os.Remove(path)
			}
			continue
		}
		if file, ok := readEnded(path, own); ok {
			ended = append(ended, file)
		}
	}
	// Latest first.
	sort.Slice(ended, func(a, b int) bool { return ended[a].since > ended[b].since })
	files, bytes, at := 0, int64(0), now()
	for _, file := range ended {
		limit := retentionTerminated
		if file.exited {
			limit = retentionExited
		}
		isOld := at > file.since && time.Duration(at-file.since) > limit
		if isOld || files >= retentionFiles || bytes+file.bytes > retentionBytes {
			_ = os.Remove(file.path)
			continue
		}
		files++
		bytes += file.bytes
	}
}

// readEnded returns since when the process of a file has ended. The time of a crash is written to
// the file, which has no other writer any more.
func readEnded(path string, own identity) (endedFile, bool) {
	flags := os.O_RDWR | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return endedFile{}, false
	}
	defer file.Close()
	info, err := file.Stat()
	var bytes [headerWords * 8]byte
	if err != nil || !info.Mode().IsRegular() {
		return endedFile{}, false
	}
	if _, err := file.ReadAt(bytes[:], 0); err != nil {
		return endedFile{}, false
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(bytes[at*8:]) }
	if word(headerMagic) != magic || word(headerVersion) != version ||
		[2]uint64{word(headerBoot), word(headerBoot + 1)} != own.boot ||
		word(headerPIDNamespace) != own.pidNamespace {
		return endedFile{}, false
	}
	found := endedFile{path: path, since: word(headerEnded), bytes: info.Size()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		found.bytes = stat.Blocks * 512
	}
	if word(headerState) == stateExited {
		found.exited = true
		return found, true
	}
	found.exited = word(headerState) == stateReplaced
	pid := strconv.FormatUint(word(headerPID), 10)
	if !found.exited && !hasEnded(pid, word(headerStartTicks)) {
		return endedFile{}, false
	}
	if found.since == 0 {
		found.since = now()
		_, _ = file.WriteAt(binary.LittleEndian.AppendUint64(nil, found.since), headerEnded*8)
	}
	return found, true
}

// hasEnded tells whether no process with this PID and start time runs; false if that is unknown,
// as with another time namespace or without access.
func hasEnded(pid string, ticks uint64) bool {
	if _, err := os.Stat("/proc/" + pid); err != nil {
		return os.IsNotExist(err)
	}
	found := startTicks(pid)
	if found == ticks {
		return false
	}
	other, errOther := os.Readlink("/proc/" + pid + "/ns/time")
	own, errOwn := os.Readlink("/proc/self/ns/time")
	return found == 0 || (errOther == nil && errOwn == nil && other == own)
}
