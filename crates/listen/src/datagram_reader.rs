//! Datagram reader, one thread per socket.
//!
//! The thread reads datagrams until the socket is empty and then blocks: under load one system call
//! per datagram. At a high rate the thread naps before it reads again, so that several datagrams
//! are queued at each wake-up: a wake-up per datagram would cost the sender more than the send
//! itself. On UDP, the kernel drops datagrams that do not fit the receive buffer and reports the
//! number (`socket_drops.rs`). On a Unix socket, the sender blocks or gets EAGAIN; nothing is
//! dropped.

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

/// Read size. A UDP datagram has at most 65,507 bytes; a longer Unix datagram is truncated.
const BYTES_MAX: usize = 256 << 10;
/// Datagrams between two readings of the clock.
const BURST: usize = 64;
/// Longest time that a stopping reader drains the socket.
const STOP_MAX: Duration = Duration::from_secs(1);
/// Delay after a socket error that does not concern a single datagram.
const ERROR_PAUSE: Duration = Duration::from_millis(10);
/// The thread naps if it woke up less than this long ago and the buffer is large enough for the
/// datagrams of a nap: a million datagrams per second fill about 3 MiB in four milliseconds, the
/// longest nap on a busy machine.
const BUSY_INTERVAL: Duration = Duration::from_millis(1);
const COALESCE_PAUSE: Duration = Duration::from_micros(250);
/// Smallest receive buffer for naps.
const COALESCE_BUFFER_BYTES: usize = 4 << 20;
/// Interval between readings of the kernel's drop counter under load.
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
            // Senders on Unix sockets usually have no address.
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

/// Sets the receive buffer and returns its size. Only a privileged process can exceed
/// `net.core.rmem_max`.
pub(crate) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
    use rustix::net::sockopt;
    let bytes = bytes.min(i32::MAX as usize / 2);
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    // The kernel doubles the size for its own bookkeeping (socket(7)).
    Ok(sockopt::socket_recv_buffer_size(socket)? / 2)
}

fn lock(aggregator: &Mutex<MetricAggregator>) -> MutexGuard<'_, MetricAggregator> {
    aggregator.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct DatagramReader {
    pub(crate) socket: DatagramSocket,
    pub(crate) address: ListenAddress,
    pub(crate) drops: Option<SocketDrops>,
    /// Size of the receive buffer in bytes.
    pub(crate) buffer_bytes: usize,
    pub(crate) context: SocketReaderContext,
}

impl DatagramReader {
    /// Runs until stopped.
    pub(crate) fn run(&mut self) {
        let mut buffer = vec![0; BYTES_MAX];
        let mut last_poll = Instant::now();
        let mut woke = last_poll;
        // On a Unix socket, the sender blocks after a few queued datagrams.
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
            if stopping || last_poll.elapsed() >= DROPS_INTERVAL {
                last_poll = Instant::now();
                self.update_drops();
            }
            if stopping {
                return;
            }
        }
    }

    /// Whether more datagrams may be queued.
    fn read_burst(&self, buffer: &mut [u8]) -> bool {
        let mut aggregator = lock(&self.context.aggregator);
        aggregator.set_now(self.context.intake.now());
        let mut more = true;
        for _ in 0..BURST {
            match self.socket.receive(buffer) {
                Ok((length, from)) => aggregate_datagram(&mut aggregator, &buffer[..length], &from),
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
        if aggregator.is_near_limit() {
            self.context.flush_signal.request_flush();
        }
        more
    }

    fn update_drops(&mut self) {
        let Some(drops) = &mut self.drops else { return };
        match drops.take_new() {
            Ok(0) => {}
            Ok(n) => {
                let mut aggregator = lock(&self.context.aggregator);
                aggregator.set_now(self.context.intake.now());
                aggregator.record_kernel_drops(n);
            }
            Err(error) => {
                self.drops = None;
                let message =
                    format!("{}: cannot read the kernel's drop counter: {error}", self.address);
                self.context.shared.recent_errors.push(message);
            }
        }
    }
}

fn aggregate_datagram(aggregator: &mut MetricAggregator, datagram: &[u8], from: &DatagramPeer) {
    if datagram.len() < BYTES_MAX {
        return aggregator.add_packet(datagram, from);
    }
    // The datagram may be truncated, so its last line may be incomplete.
    let end = datagram.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    aggregator.add_packet(&datagram[..end], from);
    aggregator.reject_line(&format!("expected a datagram of less than {BYTES_MAX} bytes"), from);
}
