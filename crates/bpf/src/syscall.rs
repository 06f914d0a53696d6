//! The `bpf(2)` system call, uprobe events of `perf_event_open(2)`, and the memory of array maps.
//!
//! Five commands: create a map, load a program, attach it to a tracepoint or an iterator, start an
//! iteration. Descriptors are owned: the kernel detaches and unloads what is dropped, also when the
//! process is killed. The value of a map is accessed as read-only atomics and never as bytes,
//! because the kernel writes to it at any time. Source: kernel, include/uapi/linux/bpf.h
//! (`union bpf_attr`); bpf(2), perf_event_open(2).
#![allow(unsafe_code, reason = "bpf(2) has no safe form; each use carries its argument")]

use std::ffi::CStr;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::instruction::Instruction;

const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const LINK_CREATE: libc::c_int = 28;
const ITER_CREATE: libc::c_int = 33;
/// The map's value can be mapped into a process (Linux 5.5).
const MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_KPROBE: u32 = 2;
const PROG_TYPE_TRACING: u32 = 26;

/// Type of a program; the number is that of its attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ProgramKind {
    /// Runs when a process reaches an instruction, and gets its registers.
    Uprobe = 0,
    /// Runs at a tracepoint and gets the arguments as typed pointers (`BPF_TRACE_RAW_TP`).
    Tracepoint = 23,
    /// Runs for each object when the iterator is read (`BPF_TRACE_ITER`).
    Iterator = 28,
}

/// Type of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    /// One value, which can be mapped.
    Array = 2,
    /// Values by key; a full map drops those that were not used for longest.
    LruHash = 9,
    /// Records in the order in which they were reserved (Linux 5.8).
    RingBuffer = 27,
}

/// Sizes of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapSize {
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) entries: u32,
}

/// Version 0 of `struct perf_event_attr`, and the fields up to `config2`.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttributes {
    event_type: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
}
/// `PERF_ATTR_SIZE_VER1`.
const _: () = assert!(size_of::<PerfEventAttributes>() == 72);

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_ENABLE: libc::Ioctl = 0x2400;
const PERF_EVENT_IOC_SET_BPF: libc::Ioctl = 0x4004_2408;

/// Bytes of a map word.
const WORD: usize = size_of::<AtomicU64>();
/// Bytes of a name, including the terminating zero.
const NAME_BYTES: usize = 16;
/// Largest verifier log in bytes.
const LOG_BYTES: usize = 256 << 10;
/// The kernel requires a GPL-compatible license for reads through typed pointers.
const LICENSE: &[u8] = b"Dual BSD/GPL\0";

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; NAME_BYTES],
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; NAME_BYTES],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
    attach_prog_fd: u32,
    core_relo_cnt: u32,
}

#[repr(C)]
#[derive(Default)]
struct RawTracepointOpen {
    name: u64,
    prog_fd: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct IterCreate {
    link_fd: u32,
    flags: u32,
}

/// Calls `bpf(2)`. Attributes are structs of integers without padding.
///
/// # Safety
///
/// Every pointer in the attributes must be null or valid for the length given beside it, for the
/// whole call.
unsafe fn bpf<A>(command: libc::c_int, attributes: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `size_of::<A>()` bytes of `attributes`, which are borrowed for the
    // call; the caller guarantees that the pointers in them are valid.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attributes), size_of::<A>()) };
    match RawFd::try_from(fd) {
        // SAFETY: all five commands return a new descriptor without another owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn name_bytes(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    for (to, from) in bytes[..NAME_BYTES - 1].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    bytes
}

/// Creates a map whose values are all zero.
pub(crate) fn create_map(name: &str, kind: MapKind, size: MapSize) -> io::Result<OwnedFd> {
    let mut attributes = MapCreate {
        map_type: kind as u32,
        key_size: size.key_bytes,
        value_size: size.value_bytes,
        max_entries: size.entries,
        map_flags: if kind == MapKind::Array { MMAPABLE } else { 0 },
        map_name: name_bytes(name),
        ..MapCreate::default()
    };
    // SAFETY: there are no pointers in the attributes.
    unsafe { bpf(MAP_CREATE, &mut attributes) }
}

/// Loads a program for the tracepoint or iterator with that BTF id, 0 for a uprobe. The error
/// contains the verifier log.
pub(crate) fn load(
    name: &str,
    code: &[Instruction],
    kind: ProgramKind,
    target: u32,
) -> Result<OwnedFd, (io::Error, String)> {
    let attempt = |log: &mut [u8]| {
        let mut attributes = ProgLoad {
            prog_type: match kind {
                ProgramKind::Uprobe => PROG_TYPE_KPROBE,
                ProgramKind::Tracepoint | ProgramKind::Iterator => PROG_TYPE_TRACING,
            },
            insn_cnt: code.len() as u32,
            insns: code.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_buf: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            prog_name: name_bytes(name),
            expected_attach_type: kind as u32,
            attach_btf_id: target,
            ..ProgLoad::default()
        };
        // SAFETY: `insns` points to `insn_cnt` instructions of `code`, `license` to a
        // zero-terminated string, `log_buf` is null or points to `log_size` bytes of `log`; all are
        // borrowed for the call.
        unsafe { bpf(PROG_LOAD, &mut attributes) }
    };
    attempt(&mut []).map_err(|error| {
        let mut log = vec![0; LOG_BYTES];
        // The second attempt requests the verifier log; it does no harm if that attempt succeeds.
        let _ = attempt(&mut log);
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        (error, String::from_utf8_lossy(&log[..end]).into_owned())
    })
}

/// Attaches a program to its tracepoint until the link is dropped.
pub(crate) fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    let prog_fd = program.as_raw_fd() as u32;
    let mut attributes = RawTracepointOpen { name: 0, prog_fd, reserved: 0 };
    // SAFETY: the name is null: the program was loaded for its tracepoint.
    unsafe { bpf(RAW_TRACEPOINT_OPEN, &mut attributes) }
}

/// Attaches a program to its iterator until the link is dropped. The program runs only when the
/// iterator is read.
pub(crate) fn link(program: &OwnedFd) -> io::Result<OwnedFd> {
    let prog_fd = program.as_raw_fd() as u32;
    let attach_type = ProgramKind::Iterator as u32;
    let mut attributes = LinkCreate { prog_fd, target_fd: 0, attach_type, flags: 0 };
    // SAFETY: there are no pointers in the attributes.
    unsafe { bpf(LINK_CREATE, &mut attributes) }
}

/// Starts an iteration: reads of the descriptor return what the program writes for each object.
pub(crate) fn iterate(link: &OwnedFd) -> io::Result<OwnedFd> {
    let mut attributes = IterCreate { link_fd: link.as_raw_fd() as u32, flags: 0 };
    // SAFETY: there are no pointers in the attributes.
    unsafe { bpf(ITER_CREATE, &mut attributes) }
}

/// Creates an event for each run of the instruction at an offset of a file, or for each return of
/// the function that starts there, by any process; `kind` and `config` are those of the kernel.
/// Runs `program` for each of them until the descriptor is dropped.
pub(crate) fn attach_uprobe(
    kind: u32,
    config: u64,
    path: &CStr,
    offset: u64,
    program: &OwnedFd,
) -> io::Result<OwnedFd> {
    let attributes = PerfEventAttributes {
        event_type: kind,
        size: size_of::<PerfEventAttributes>() as u32,
        config,
        config1: path.as_ptr() as u64,
        config2: offset,
        ..PerfEventAttributes::default()
    };
    // All processes, on one CPU: the program runs on every CPU, the event is only its owner.
    let (process, cpu, group): (libc::pid_t, libc::c_int, libc::c_int) = (-1, 0, -1);
    // SAFETY: the kernel reads `size` bytes of the attributes and the zero-terminated path; both
    // are borrowed for the call.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            ptr::from_ref(&attributes),
            process,
            cpu,
            group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let event = match RawFd::try_from(event) {
        // SAFETY: the call returned a new descriptor without another owner.
        Ok(event) if event >= 0 => unsafe { OwnedFd::from_raw_fd(event) },
        _ => return Err(io::Error::last_os_error()),
    };
    for (request, argument) in
        [(PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()), (PERF_EVENT_IOC_ENABLE, 0)]
    {
        // SAFETY: the argument of both requests is a number, not a pointer.
        if unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(event)
}

/// Mapped words of a map's value, accessed by `Deref`. The kernel adds to them; this process only
/// loads them.
#[derive(Debug)]
pub struct MapCells {
    base: NonNull<AtomicU64>,
    /// Words before the range, mapped because a mapping starts at a page.
    leading_words: usize,
    words: usize,
}

// SAFETY: all access is atomic, which any thread may do; the mapping lives as long as `self`.
unsafe impl Send for MapCells {}
// SAFETY: as above.
unsafe impl Sync for MapCells {}

impl MapCells {
    /// Maps words of the value of a map that [`create_map`] made.
    pub(crate) fn map(map: &OwnedFd, range: Range<usize>) -> io::Result<MapCells> {
        let before = range.start % (rustix::param::page_size() / WORD);
        let (start, words) = (range.start - before, before + range.len());
        let (offset, bytes) = ((WORD * start) as u64, WORD * words);
        // SAFETY: a new mapping at an address chosen by the kernel does not affect existing memory.
        // The kernel refuses a mapping longer than the map's value, rounded up to pages.
        let base = unsafe {
            mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, map, offset)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(MapCells { base, leading_words: before, words })
    }
}

impl Deref for MapCells {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: in `map` the kernel accepted a mapping of `words` words, aligned to a page, which
        // only `drop` unmaps. The words are only loaded, relaxed, which read-only memory permits
        // for words (std::sync::atomic, "Atomic accesses to read-only memory"): no code of this
        // crate stores to `Cells`, and a store would fault, not corrupt.
        let words = unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) };
        &words[self.leading_words..]
    }
}

impl Drop for MapCells {
    fn drop(&mut self) {
        // SAFETY: `self` owns the mapping and nothing borrows from it any more. munmap cannot fail
        // for such a mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), WORD * self.words) };
    }
}
