//! Datagram reader, one thread per socket.
//!
//! Datagrams are taken one by one until there are no more, and only then does the thread sleep;
//! under load that is one system call a datagram. Where they come often it sleeps a moment longer,
//! so that several have come when it wakes: to be woken by each costs its sender more than to send
//! it. Of UDP the kernel drops what does not fit its buffer, and says how many (`kernel.rs`). A
//! sender on a Unix socket waits, or is told that there is no room (EAGAIN): nothing is dropped.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::listen_address::ListenAddress;
use crate::listener::SocketReaderContext;
use crate::metric_aggregator::MetricAggregator;
use crate::socket_drops::SocketDrops;

/// Bytes of a datagram that are read. UDP has at most 65,507; what a Unix datagram has beyond is
/// cut off.
const BYTES_MAX: usize = 256 << 10;
/// Datagrams between two looks at the clock.
const BURST: usize = 64;
/// How long what has come is still read when it is to stop, should more and more come.
const STOP_MAX: Duration = Duration::from_secs(1);
/// How long to wait after an error that is none of a datagram's.
const ERROR_PAUSE: Duration = Duration::from_millis(10);
/// Who woke up less than that ago naps before the next look, where the buffer holds what comes
/// meanwhile: a million datagrams a second take some 3 MiB of it in four milliseconds, as long as a
/// nap may last on a busy machine.
const BUSY_INTERVAL: Duration = Duration::from_millis(1);
const COALESCE_PAUSE: Duration = Duration::from_micros(250);
/// Bytes of a buffer that is large enough for naps.
const COALESCE_BUFFER_BYTES: usize = 4 << 20;
/// How often the kernel is asked what it dropped, under load.
const DROPS_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum DatagramSocket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl DatagramSocket {
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            DatagramSocket::Udp(socket) => socket.as_fd(),
            DatagramSocket::Unix(socket) => socket.as_fd(),
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, DatagramPeer)> {
        match self {
            DatagramSocket::Udp(socket) => {
                socket.recv_from(buffer).map(|(length, from)| (length, DatagramPeer::Udp(from)))
            }
            // Who sends has no name there, as a rule.
            DatagramSocket::Unix(socket) => {
                socket.recv(buffer).map(|length| (length, DatagramPeer::Unix))
            }
        }
    }
}

enum DatagramPeer {
    Udp(SocketAddr),
    Unix,
}

impl fmt::Display for DatagramPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatagramPeer::Udp(address) => write!(f, "udp {address}"),
            DatagramPeer::Unix => f.write_str("unix datagram"),
        }
    }
}

/// Asks for a receive buffer, and says how many bytes there are: beyond `net.core.rmem_max` only
/// for who may.
pub(crate) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
    use rustix::net::sockopt;
    let bytes = bytes.min(i32::MAX as usize / 2);
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    // The kernel doubles it, for its own books (socket(7)).
    Ok(sockopt::socket_recv_buffer_size(socket)? / 2)
}

fn lock(collector: &Mutex<MetricAggregator>) -> MutexGuard<'_, MetricAggregator> {
    collector.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct DatagramReader {
    pub(crate) socket: DatagramSocket,
    pub(crate) address: ListenAddress,
    pub(crate) drops: Option<SocketDrops>,
    /// Bytes that the kernel keeps until they are read.
    pub(crate) buffer_bytes: usize,
    pub(crate) context: SocketReaderContext,
}

impl DatagramReader {
    /// Until it is to stop.
    pub(crate) fn run(&mut self) {
        let mut buffer = vec![0; BYTES_MAX];
        let mut asked = Instant::now();
        let mut woke = asked;
        // On a Unix socket a sender waits when there are more than a few datagrams.
        let may_nap = matches!(self.socket, DatagramSocket::Udp(_))
            && self.buffer_bytes >= COALESCE_BUFFER_BYTES;
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
                PollFd::new(&*self.context.stop, PollFlags::IN),
            ];
            if poll(&mut fds, None).is_err() {
                std::thread::sleep(ERROR_PAUSE);
            }
            if may_nap && woke.elapsed() < BUSY_INTERVAL {
                std::thread::sleep(COALESCE_PAUSE);
            }
            woke = Instant::now();
            let stopping = self.context.is_stopping.load(Ordering::Acquire);
            let until = Instant::now() + if stopping { STOP_MAX } else { DROPS_INTERVAL };
            while self.read_burst(&mut buffer) && Instant::now() < until {}
            if stopping || asked.elapsed() >= DROPS_INTERVAL {
                asked = Instant::now();
                self.update_drops();
            }
            if stopping {
                return;
            }
        }
    }

    /// Whether there may be more.
    fn read_burst(&self, buffer: &mut [u8]) -> bool {
        let mut collector = lock(&self.context.aggregator);
        collector.set_now(self.context.intake.now());
        let mut more = true;
        for _ in 0..BURST {
            match self.socket.receive(buffer) {
                Ok((length, from)) => aggregate_datagram(&mut collector, &buffer[..length], &from),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    more = false;
                    if error.kind() != io::ErrorKind::WouldBlock {
                        let message = format!("{}: {error}", self.address);
                        self.context.shared.recent_errors.push(message);
                        std::thread::sleep(ERROR_PAUSE);
                    }
                    break;
                }
            }
        }
        if collector.is_near_limit() {
            self.context.flush_signal.request_flush();
        }
        more
    }

    fn update_drops(&mut self) {
        let Some(drops) = &mut self.drops else { return };
        match drops.take_new() {
            Ok(0) => {}
            Ok(n) => {
                let mut collector = lock(&self.context.aggregator);
                collector.set_now(self.context.intake.now());
                collector.record_kernel_drops(n);
            }
            Err(error) => {
                self.drops = None;
                let message =
                    format!("{}: the kernel no longer says what it drops: {error}", self.address);
                self.context.shared.recent_errors.push(message);
            }
        }
    }
}

fn aggregate_datagram(collector: &mut MetricAggregator, datagram: &[u8], from: &DatagramPeer) {
    if datagram.len() < BYTES_MAX {
        return collector.add_packet(datagram, from);
    }
    // Its end may be missing: the last line is not what was sent.
    let end = datagram.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    collector.add_packet(&datagram[..end], from);
    collector.reject_line(&format!("expected a datagram of less than {BYTES_MAX} bytes"), from);
}
