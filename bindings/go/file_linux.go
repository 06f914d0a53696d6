//go:build linux && (amd64 || arm64 || riscv64 || loong64 || ppc64le || mips64le)

package topdeck

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// file is the metrics file of this process. Its space is reserved before it is accessed: an access
// to a page without space would raise SIGBUS.
type file struct {
	path string
	fd   int
	head []byte
	base unsafe.Pointer

	// The lock guards everything below.
	mutex    sync.Mutex
	registry registry
	// Reserved bytes of small cells, by lane.
	smallReserved [lanesMax]uintptr
	lanesUsed     int
}

// Magic number of tmpfs.
const tmpfsMagic = 0x01021994

func metricsDir(uid int) (string, error) {
	switch value := os.Getenv("TOPDECK_SHM"); value {
	case "off":
		return "", errors.New("shared-memory metrics are disabled (TOPDECK_SHM=off)")
	case "":
	default:
		return value, nil
	}
	prepared := fmt.Sprintf("/run/topdeck/%d", uid)
	var stat syscall.Stat_t
	if syscall.Lstat(prepared, &stat) == nil && stat.Mode&syscall.S_IFMT == syscall.S_IFDIR &&
		int(stat.Uid) == uid {
		return prepared, nil
	}
	return fmt.Sprintf("/dev/shm/topdeck-%d", uid), nil
}

// openDir opens the directory of the metrics files of this user, which must be on tmpfs and not
// writable by others.
func openDir() (path string, fd int, err error) {
	uid := syscall.Geteuid()
	path, err = metricsDir(uid)
	if err != nil {
		return "", -1, err
	}
	if err := syscall.Mkdir(path, 0o755); err != nil && err != syscall.EEXIST {
		return "", -1, fmt.Errorf("cannot create directory %s: %w", path, err)
	}
	flags := syscall.O_DIRECTORY | syscall.O_NOFOLLOW | syscall.O_CLOEXEC
	fd, err = syscall.Open(path, flags, 0)
	if err != nil {
		return "", -1, fmt.Errorf("cannot open directory %s: %w", path, err)
	}
	if err := checkDir(path, fd, uid); err != nil {
		syscall.Close(fd)
		return "", -1, err
	}
	return path, fd, nil
}

func checkDir(path string, fd, uid int) error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("cannot inspect %s: %w", path, err)
	}
	isOpen := stat.Mode&0o022 != 0 && stat.Mode&syscall.S_ISVTX == 0
	if int(stat.Uid) != uid || isOpen {
		return fmt.Errorf("cannot use %s: owner %d, mode %o, expected owner %d and no write access "+
			"for others; remove it or set TOPDECK_SHM", path, stat.Uid, stat.Mode&0o7777, uid)
	}
	var system syscall.Statfs_t
	if err := syscall.Fstatfs(fd, &system); err != nil {
		return fmt.Errorf("cannot inspect %s: %w", path, err)
	}
	if int64(system.Type) != tmpfsMagic {
		return fmt.Errorf("cannot use %s: not on tmpfs, metrics could block on a disk; set "+
			"TOPDECK_SHM to a directory on tmpfs", path)
	}
	return nil
}

// createFile creates the file of this process under a temporary name and renames it when it is
// readable.
func createFile() (*file, error) {
	dir, dirFD, err := openDir()
	if err != nil {
		return nil, err
	}
	defer syscall.Close(dirFD)
	removeExpired(dir)
	identity := ownIdentity()
	created := now()
	name := fmt.Sprintf("%d-%x.tdk", identity.pid, created)
	path := filepath.Join(dir, name)
	flags := syscall.O_CREAT | syscall.O_EXCL | syscall.O_RDWR | syscall.O_NOFOLLOW |
		syscall.O_CLOEXEC
	fd, err := syscall.Openat(dirFD, "."+name, flags, 0o640)
	if err != nil {
		return nil, fmt.Errorf("cannot create %s: %w", path, err)
	}
	f := &file{path: path, fd: fd, registry: newRegistry()}
	err = f.fill(identity, created)
	if err == nil {
		err = syscall.Renameat(dirFD, "."+name, dirFD, name)
	}
	if err != nil {
		// An incomplete file is useless and may have filled the file system.
		_ = os.Remove(filepath.Join(dir, "."+name))
		syscall.Close(fd)
		return nil, err
	}
	return f, nil
}

func (f *file) fill(identity identity, created uint64) error {
	if err := f.extend(lanesOffset); err != nil {
		return err
	}
	if err := f.reserve(0, registryOffset); err != nil {
		return err
	}
	head, err := syscall.Mmap(f.fd, 0, lanesOffset, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("cannot map %s: %w", f.path, err)
	}
	f.head, f.base = head, unsafe.Pointer(&head[0])
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return fmt.Errorf("cannot read random bytes: %w", err)
	}
	words := map[uintptr]uint64{
		headerMagic:            magic,
		headerVersion:          version,
		headerID:               binary.LittleEndian.Uint64(id[:8]),
		headerID + 1:           binary.LittleEndian.Uint64(id[8:]),
		headerBoot:             identity.boot[0],
		headerBoot + 1:         identity.boot[1],
		headerPID:              uint64(identity.pid),
		headerPIDNamespace:     identity.pidNamespace,
		headerStartTicks:       identity.startTicks,
		headerUID:              uint64(syscall.Geteuid()),
		headerCreated:          created,
		headerCreatedUnix:      uint64(time.Now().UnixNano()),
		headerRegistry:         registryOffset,
		headerRegistryCapacity: entriesMax,
		headerStrings:          stringsOffset,
		headerStringsCapacity:  stringsBytes,
		headerLanes:            lanesOffset,
		headerLaneStride:       laneStride,
		headerLaneCapacity:     lanesMax,
		headerSmallCapacity:    smallBytes,
	}
	for word, value := range words {
		f.store(word*8, value)
	}
	if _, err := f.openLane(0); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	command := strings.ToValidUTF8(strings.Join(os.Args, " "), "\ufffd")
	if len(command) > stringMax {
		command = strings.ToValidUTF8(command[:stringMax], "")
	}
	for word, text := range map[uintptr]string{
		headerProgram: filepath.Base(program), headerCommand: command,
	} {
		at, err := f.intern(text)
		if err != nil {
			return err
		}
		f.store(word*8, at)
	}
	f.store(headerState*8, stateLive)
	return nil
}

// openLane extends the file and maps the lane, once; it returns the address.
func (f *file) openLane(lane int) (unsafe.Pointer, error) {
	view := &lanes[lane]
	if base := view.base.Load(); base != nil {
		return unsafe.Pointer(base), nil
	}
	if lane >= f.lanesUsed {
		if err := f.extend(lanesOffset + int64(lane+1)*laneStride); err != nil {
			return nil, err
		}
	}
	memory, err := syscall.Mmap(f.fd, lanesOffset+int64(lane)*laneStride, laneStride,
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("cannot map %s: %w", f.path, err)
	}
	base := &memory[0]
	view.base.Store(base)
	f.lanesUsed = max(f.lanesUsed, lane+1)
	f.store(headerLanesUsed*8, uint64(f.lanesUsed))
	return unsafe.Pointer(base), nil
}

// reserveSmall reserves space for the small cells of a lane up to an end.
func (f *file) reserveSmall(lane int, end uintptr) error {
	end = (end + page - 1) &^ (page - 1)
	if start := f.smallReserved[lane]; end > start {
		offset := lanesOffset + uintptr(lane)*laneStride + start
		if err := f.reserve(offset, end-start); err != nil {
			return err
		}
		f.smallReserved[lane] = end
		f.store(headerBytes+uintptr(lane)*laneBytes, uint64(end))
	}
	// Records may write now: a goroutine that sees the end sees the base.
	lanes[lane].end.Store(f.smallReserved[lane])
	return nil
}

// reserveLarge reserves space for large cells.
func (f *file) reserveLarge(lane int, offset, bytes uintptr) error {
	start := offset &^ (page - 1)
	end := min((offset+bytes+page-1)&^(page-1), laneStride)
	return f.reserve(lanesOffset+uintptr(lane)*laneStride+start, end-start)
}

// extend makes the file longer, which takes no memory. Beyond the limit of the file size the kernel
// would kill the process (SIGXFSZ).
func (f *file) extend(bytes int64) error {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
	if err == nil && limit.Cur < uint64(bytes) {
		return fmt.Errorf("cannot extend %s to %d bytes: file size limit (%d) reached; raise it "+
			"(ulimit -f)", f.path, bytes, limit.Cur)
	}
	if err := syscall.Ftruncate(f.fd, bytes); err != nil {
		return fmt.Errorf("cannot extend %s: %w", f.path, err)
	}
	return nil
}

// reserve makes the file system allocate space now.
func (f *file) reserve(offset, bytes uintptr) error {
	for {
		switch err := syscall.Fallocate(f.fd, 0, int64(offset), int64(bytes)); err {
		case nil:
			return nil
		case syscall.EINTR:
		default:
			return fmt.Errorf("cannot reserve %d bytes in %s: %w; free space or enlarge the file "+
				"system", bytes, f.path, err)
		}
	}
}

func (f *file) cell(offset uintptr) *uint64 { return (*uint64)(unsafe.Add(f.base, offset)) }

func (f *file) store(offset uintptr, value uint64) { atomic.StoreUint64(f.cell(offset), value) }

func (f *file) addToHeader(word uintptr, n uint64) { atomic.AddUint64(f.cell(word*8), n) }

// markLaneOwned writes the owner of a lane, which is a P: the id of the process stands for it.
func (f *file) markLaneOwned(lane int) {
	f.store(headerBytes+uintptr(lane)*laneBytes+8, uint64(syscall.Getpid()))
}

// markSharedLaneUsed tells readers that lane 0 has counters.
func (f *file) markSharedLaneUsed() { f.store(headerBytes+16, 1) }

func (f *file) markExited() {
	f.store(headerEnded*8, now())
	f.store(headerState*8, stateExited)
}
