//! Live capture: a packet socket with a ring of blocks that the kernel fills (`TPACKET_V3`). The
//! only file of this crate with `unsafe`.
//!
//! A block belongs to the kernel or to this process, as its status says; the kernel does not write
//! to a block of the process until it is returned. It passes a block on when it is full, or
//! [`RETIRE_MS`] after its first packet. If no block is free, packets are dropped and counted. The
//! time of a packet is that of the kernel, in nanoseconds. The socket is of type `SOCK_DGRAM`: the
//! kernel removes the header of the link layer, so all interfaces look alike.
//!
//! Opening requires `CAP_NET_RAW`, reading requires nothing. Sources: packet(7),
//! Documentation/networking/packet_mmap.rst of Linux.
#![allow(unsafe_code, reason = "packet sockets have no safe form; each use carries its argument")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{netdevice, sockopt};

use crate::capture_file::CapturedPacket;
use crate::capture_filter::{FilterInstruction, PORTS_MAX, port_filter, reject_filter};
use crate::ring_block::{self, STATUS_OFFSET};

/// Size of a block. A packet is not divided between blocks; those of BIG TCP have 512 KiB.
const BLOCK_BYTES: usize = 1 << 20;
/// Blocks of a ring unless set: 64 MiB, a burst of half a second at 1 Gbit/s.
pub const RING_BLOCKS: usize = 64;
/// Time after which a block that is not full is passed on.
const RETIRE_MS: u32 = 20;
/// Name of the interface on which each packet appears twice.
const LOOPBACK: &str = "lo";

/// What is captured.
#[derive(Clone, Debug)]
pub struct RingSettings {
    /// Name of the network interface; `None` for all.
    pub interface: Option<String>,
    /// Ports whose packets are captured.
    pub ports: Vec<u16>,
    /// Size of the ring in blocks of 1 MiB.
    pub blocks: usize,
}

/// Failures of opening or reading a capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The process may not capture packets.
    #[error(
        "cannot capture packets: {0}; run as root, or grant CAP_NET_RAW to the binary (setcap \
         cap_net_raw+ep FILE)"
    )]
    Permission(io::Error),
    /// The interface does not exist.
    #[error("cannot capture on interface {name}: {cause}; `ip link` lists the interfaces")]
    Interface {
        /// Its name.
        name: String,
        /// Failure of the look-up.
        cause: io::Error,
    },
    /// The kernel cannot divide the packets of the interface among several rings.
    #[error(
        "cannot divide packets among threads: {0}; this requires Linux 4.12 or later, and in many \
         versions an interface that is up; or capture with one thread"
    )]
    Fanout(io::Error),
    /// More ports than a filter can have.
    #[error("ports limit ({PORTS_MAX}) exceeded ({found}); name fewer services")]
    Ports {
        /// Number of ports.
        found: usize,
    },
    /// A system call failed.
    #[error("cannot {action}: {cause}")]
    System {
        /// What failed.
        action: &'static str,
        /// Its failure.
        cause: io::Error,
    },
}

/// Counts of the kernel for a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStatistics {
    /// Packets that passed the filter, with dropped ones.
    pub packets: u64,
    /// Packets that were dropped because no block was free.
    pub drops: u64,
    /// How often the ring was full.
    pub freezes: u64,
}

/// A running capture.
pub struct PacketRing {
    socket: OwnedFd,
    memory: NonNull<u8>,
    blocks: usize,
    /// Index of the block that is passed on next.
    current: usize,
    statistics: RingStatistics,
    /// Blocks with positions outside of them; the kernel does not write such blocks.
    damaged_blocks: u64,
}

// SAFETY: the memory is a mapping of the process, which no other value refers to; nothing in it is
// bound to a thread.
unsafe impl Send for PacketRing {}

impl PacketRing {
    /// Starts a capture.
    pub fn open(settings: &RingSettings) -> Result<PacketRing, CaptureError> {
        let (ring, filter) = PacketRing::create(settings)?;
        ring.set_filter(filter)?;
        ring.bind(settings)?;
        Ok(ring)
    }

    /// Starts a capture that is divided among `rings` rings (`PACKET_FANOUT_HASH`): the packets of
    /// both directions of a connection are in one of them, by a hash of addresses and ports that is
    /// the same in both directions. Requires Linux 4.12: its `PACKET_FANOUT_FLAG_UNIQUEID` gives a
    /// group a number that no other process uses.
    pub fn open_group(
        settings: &RingSettings,
        rings: usize,
    ) -> Result<Vec<PacketRing>, CaptureError> {
        if rings <= 1 {
            return Ok(vec![PacketRing::open(settings)?]);
        }
        let create = |_| PacketRing::create(settings);
        let created: Vec<_> = (0..rings).map(create).collect::<Result<_, _>>()?;
        let mut group = None;
        for (ring, _) in &created {
            // A ring that is not in the group yet would have the packets of all.
            ring.set_filter(reject_filter())?;
            ring.bind(settings)?;
            group = Some(ring.join_group(group)?);
        }
        let start = |(ring, filter): (PacketRing, Vec<FilterInstruction>)| {
            ring.set_filter(filter)?;
            Ok(ring)
        };
        created.into_iter().map(start).collect()
    }

    /// A ring that has no packets yet, and the filter of its ports.
    fn create(
        settings: &RingSettings,
    ) -> Result<(PacketRing, Vec<FilterInstruction>), CaptureError> {
        check_ports(&settings.ports)?;
        // Protocol 0: nothing is received before `bind`.
        // SAFETY: the call has no pointers.
        let descriptor =
            unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            let cause = io::Error::last_os_error();
            return Err(match cause.kind() {
                io::ErrorKind::PermissionDenied => CaptureError::Permission(cause),
                _ => CaptureError::System { action: "open a packet socket", cause },
            });
        }
        // SAFETY: the descriptor was just created and belongs to nothing else.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let filter = filter_of_ports(&socket, &settings.ports)?;
        let blocks = settings.blocks.max(2);
        let memory = map_ring(&socket, blocks)
            .map_err(|cause| CaptureError::System { action: "create the packet ring", cause })?;
        let statistics = RingStatistics::default();
        let ring = PacketRing { socket, memory, blocks, current: 0, statistics, damaged_blocks: 0 };
        Ok((ring, filter))
    }

    /// Captures the packets of these ports from now on.
    pub fn set_ports(&self, ports: &[u16]) -> Result<(), CaptureError> {
        self.set_filter(filter_of_ports(&self.socket, ports)?)
    }

    fn set_filter(&self, filter: Vec<FilterInstruction>) -> Result<(), CaptureError> {
        set_filter(&self.socket, filter)
            .map_err(|cause| CaptureError::System { action: "set the packet filter", cause })
    }

    fn bind(&self, settings: &RingSettings) -> Result<(), CaptureError> {
        let index = |name: &str| interface_index(&self.socket, name);
        let interface = settings.interface.as_deref().map_or(Ok(0), index)?;
        bind(&self.socket, interface)
            .map_err(|cause| CaptureError::System { action: "bind the packet socket", cause })
    }

    /// Joins the group with this number, or a new one. Returns its number.
    fn join_group(&self, group: Option<u16>) -> Result<u16, CaptureError> {
        let new = libc::PACKET_FANOUT_FLAG_UNIQUEID;
        let kind = libc::PACKET_FANOUT_HASH | if group.is_none() { new } else { 0 };
        let value: libc::c_uint = u32::from(group.unwrap_or(0)) | kind << 16;
        set_option(&self.socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &value)
            .map_err(fanout_error)?;
        let mut joined: libc::c_uint = 0;
        get_option(&self.socket, libc::PACKET_FANOUT, &mut joined).map_err(fanout_error)?;
        Ok(joined as u16)
    }

    /// Calls `each` with the packets of the next block, after waiting for it for at most `timeout`.
    /// Returns whether there was a block.
    pub fn read(
        &mut self,
        timeout: Duration,
        each: &mut dyn FnMut(&CapturedPacket<'_>),
    ) -> Result<bool, CaptureError> {
        if !self.is_ready() {
            PacketRing::wait_any(slice::from_ref(self), timeout)?;
            if !self.is_ready() {
                return Ok(false);
            }
        }
        let block = ReadyBlock(self);
        let is_whole = ring_block::read_packets(block.bytes(), each);
        block.0.damaged_blocks += u64::from(!is_whole);
        Ok(true)
    }

    /// Waits for at most `timeout` until one of the rings has a block. An error of a ring, such as
    /// an interface that went down, is returned once: the capture goes on when the interface
    /// is up again.
    pub fn wait_any(rings: &[PacketRing], timeout: Duration) -> Result<(), CaptureError> {
        if rings.iter().any(PacketRing::is_ready) {
            return Ok(());
        }
        let failure = |cause| CaptureError::System { action: "wait for packets", cause };
        let events = PollFlags::IN | PollFlags::ERR;
        let mut sockets: Vec<PollFd<'_>> =
            rings.iter().map(|ring| PollFd::new(&ring.socket, events)).collect();
        let timeout = Timespec::try_from(timeout)
            .map_err(|_| failure(io::Error::from(io::ErrorKind::InvalidInput)))?;
        match poll(&mut sockets, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failure(error.into())),
        }
        let has_error: Vec<bool> =
            sockets.iter().map(|socket| socket.revents().contains(PollFlags::ERR)).collect();
        // Without this, `poll` would report the same error again at once.
        let failed = rings.iter().zip(has_error).filter(|(_, has_error)| *has_error);
        failed.map(|(ring, _)| ring.take_error()).fold(Ok(()), Result::and)
    }

    /// Counts since the start of the capture.
    pub fn statistics(&mut self) -> Result<RingStatistics, CaptureError> {
        let mut found = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        get_option(&self.socket, libc::PACKET_STATISTICS, &mut found).map_err(|cause| {
            CaptureError::System { action: "read the counts of the capture", cause }
        })?;
        // The kernel starts again from 0 with each call.
        self.statistics.packets += u64::from(found.tp_packets);
        self.statistics.drops += u64::from(found.tp_drops);
        self.statistics.freezes += u64::from(found.tp_freeze_q_cnt);
        Ok(self.statistics)
    }

    /// Start of the current block.
    fn block(&self) -> NonNull<u8> {
        assert!(self.current < self.blocks, "BUG: block {} of {}", self.current, self.blocks);
        // SAFETY: the mapping has `blocks` blocks of `BLOCK_BYTES`, and the index is below.
        unsafe { self.memory.add(self.current * BLOCK_BYTES) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the status is inside the block, which is aligned to a page, at a multiple of 4,
        // and lives as long as `self`. Kernel and process access it as a whole.
        unsafe { AtomicU32::from_ptr(self.block().add(STATUS_OFFSET).cast().as_ptr()) }
    }

    fn is_ready(&self) -> bool {
        // Pairs with the kernel's write barrier between the packets and the status.
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn give_back(&mut self) {
        // Reads of the packets are complete before the kernel sees the status.
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.current = (self.current + 1) % self.blocks;
    }

    /// The error of the socket since the last call: the interface went down.
    fn take_error(&self) -> Result<(), CaptureError> {
        let failure = |cause: rustix::io::Errno| CaptureError::System {
            action: "capture packets",
            cause: cause.into(),
        };
        sockopt::socket_error(&self.socket).map_err(failure)?.map_err(failure)
    }
}

/// The current block of a ring, which is ready. It is given back on drop, also by a panic of the
/// reader: otherwise the reader would get the same packet again and again.
struct ReadyBlock<'a>(&'a mut PacketRing);

impl ReadyBlock<'_> {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the block is inside the mapping (`block`), and belongs to this process until
        // `give_back`: `is_ready` saw its status with acquire ordering before the only creation of
        // this value. The kernel does not write to it in between. The ring is borrowed exclusively,
        // and the slice borrows this value, so `drop` returns the block after its last use.
        unsafe { slice::from_raw_parts(self.0.block().as_ptr(), BLOCK_BYTES) }
    }
}

impl Drop for ReadyBlock<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was created with this size, and no reference to it outlives `self`.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.blocks * BLOCK_BYTES) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Older kernels reject the second ring of a group: they take the flag of the first one, which they
/// do not know, for a property of the group.
fn fanout_error(cause: io::Error) -> CaptureError {
    match cause.raw_os_error() {
        Some(libc::EINVAL) => CaptureError::Fanout(cause),
        _ => CaptureError::System { action: "divide packets among threads", cause },
    }
}

fn interface_index(socket: &OwnedFd, name: &str) -> Result<u32, CaptureError> {
    netdevice::name_to_index(socket, name)
        .map_err(|cause| CaptureError::Interface { name: name.to_owned(), cause: cause.into() })
}

fn check_ports(ports: &[u16]) -> Result<(), CaptureError> {
    match ports.len() > PORTS_MAX {
        true => Err(CaptureError::Ports { found: ports.len() }),
        false => Ok(()),
    }
}

fn filter_of_ports(
    socket: &OwnedFd,
    ports: &[u16],
) -> Result<Vec<FilterInstruction>, CaptureError> {
    check_ports(ports)?;
    // A host without loopback interface has no packet with its number.
    let loopback = interface_index(socket, LOOPBACK).unwrap_or(u32::MAX);
    Ok(port_filter(ports, loopback))
}

fn set_filter(socket: &OwnedFd, filter: Vec<FilterInstruction>) -> io::Result<()> {
    let mut program: Vec<libc::sock_filter> = filter
        .into_iter()
        .map(|found| libc::sock_filter {
            code: found.code,
            jt: found.if_true,
            jf: found.if_false,
            k: found.operand,
        })
        .collect();
    let program =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    // `program.filter` points to the vector, which lives until the end of the function.
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn map_ring(socket: &OwnedFd, blocks: usize) -> io::Result<NonNull<u8>> {
    let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
    set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
    let request = libc::tpacket_req3 {
        tp_block_size: BLOCK_BYTES as libc::c_uint,
        tp_block_nr: blocks as libc::c_uint,
        // The size of a frame is only checked; blocks hold packets of any size.
        tp_frame_size: BLOCK_BYTES as libc::c_uint,
        tp_frame_nr: blocks as libc::c_uint,
        tp_retire_blk_tov: RETIRE_MS,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let memory = unsafe {
        mmap(ptr::null_mut(), blocks * BLOCK_BYTES, protection, MapFlags::SHARED, socket, 0)
    }?;
    NonNull::new(memory.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn bind(socket: &OwnedFd, interface: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address is a `sockaddr_ll` of the size that is passed.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            ptr::from_ref(&address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option of a packet socket. `T` consists of integers: all bytes are valid values.
fn get_option<T>(socket: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut size = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` and `size` are valid for writes, and `size` is the size of `value`. Callers
    // pass the type that the option has.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            ptr::from_mut(value).cast(),
            &mut size,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_option<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of its size. Callers pass the type that the option has;
    // the pointer inside a filter program is valid during the call (`set_filter`).
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Positions of the number of packets and of the first packet in a block.
    const PACKET_COUNT: usize = 12;
    const FIRST_PACKET: usize = 16;

    /// A ring whose first block is ready and has one empty packet; its memory is not the kernel's.
    fn ring() -> PacketRing {
        let (blocks, protection) = (2, ProtFlags::READ | ProtFlags::WRITE);
        let bytes = blocks * BLOCK_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let memory = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
        };
        let ring = PacketRing {
            socket: File::open("/dev/null").unwrap().into(),
            memory: NonNull::new(memory.unwrap().cast()).unwrap(),
            blocks,
            current: 0,
            statistics: RingStatistics::default(),
            damaged_blocks: 0,
        };
        for (at, value) in [(PACKET_COUNT, 1), (FIRST_PACKET, 48)] {
            // SAFETY: the word is inside the block, aligned, and no reference to it exists.
            unsafe { ring.block().add(at).cast::<u32>().write(value) };
        }
        ring.status().store(libc::TP_STATUS_USER, Ordering::Release);
        ring
    }

    #[test]
    fn a_block_is_given_back_although_its_reader_panics() {
        let mut ring = ring();
        assert!(ring.is_ready());
        let read = AssertUnwindSafe(|| ring.read(Duration::ZERO, &mut |_| panic!("a bad packet")));
        assert!(catch_unwind(read).is_err());
        assert_eq!((ring.current, ring.is_ready()), (1, false));
        ring.current = 0;
        assert_eq!(ring.status().load(Ordering::Acquire), libc::TP_STATUS_KERNEL);
    }

    #[test]
    fn the_version_of_the_kernel_is_named_as_the_cause_of_a_rejected_group() {
        let text = |errno| fanout_error(io::Error::from_raw_os_error(errno)).to_string();
        let rejected = text(libc::EINVAL);
        assert!(rejected.starts_with("cannot divide packets among threads: "), "{rejected}");
        assert!(rejected.contains("; this requires Linux 4.12 or later"), "{rejected}");
        assert!(!text(libc::ENOMEM).contains("Linux"), "{}", text(libc::ENOMEM));
        let page = include_str!("../../../docs/wire.md");
        assert!(page.contains("(`PACKET_FANOUT_HASH`; Linux 4.12 and later)"));
    }

    #[test]
    fn a_block_is_read_once() {
        let (mut ring, mut packets) = (ring(), 0);
        assert!(ring.read(Duration::ZERO, &mut |_| packets += 1).unwrap());
        assert_eq!((packets, ring.current, ring.damaged_blocks), (1, 1, 0));
    }
}
