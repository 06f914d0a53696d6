//! Datagrams: a thread for each socket.
//!
//! Datagrams are taken one by one until there are no more, and only then does the thread sleep; under load that is
//! one system call a datagram. Where they come often it sleeps a moment longer, so that several have come when it
//! wakes: to be woken by each costs its sender more than to send it. Of UDP the kernel drops what does not fit its buffer, and says how many
//! (`kernel.rs`). A sender on a Unix socket waits, or is told that there is no room (EAGAIN): nothing is dropped.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::address::Address;
use crate::collector::Collector;
use crate::kernel::Drops;
use crate::listener::Room;

/// Bytes of a datagram that are read. UDP has at most 65,507; what a Unix datagram has beyond is cut off.
const BYTES_MAX: usize = 256 << 10;
/// Datagrams between two looks at the clock.
const BURST: usize = 64;
/// How long what has come is still read when it is to stop, should more and more come.
const STOP_MAX: Duration = Duration::from_secs(1);
/// How long to wait after an error that is none of a datagram's.
const AFTER_ERROR: Duration = Duration::from_millis(10);
/// Who woke up less than that ago naps before the next look, where the buffer holds what comes meanwhile: a million
/// datagrams a second take some 3 MiB of it in four milliseconds, as long as a nap may last on a busy machine.
const OFTEN: Duration = Duration::from_millis(1);
const NAP: Duration = Duration::from_micros(250);
/// Bytes of a buffer that is large enough for naps.
const NAP_BYTES: usize = 4 << 20;
/// How often the kernel is asked what it dropped, under load.
const DROPS_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl Socket {
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Udp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, From)> {
        match self {
            Socket::Udp(socket) => {
                socket.recv_from(buffer).map(|(length, from)| (length, From::Udp(from)))
            }
            // Who sends has no name there, as a rule.
            Socket::Unix(socket) => socket.recv(buffer).map(|length| (length, From::Unix)),
        }
    }
}

enum From {
    Udp(SocketAddr),
    Unix,
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            From::Udp(address) => write!(f, "udp {address}"),
            From::Unix => f.write_str("unix datagram"),
        }
    }
}

/// Asks for a receive buffer, and says how many bytes there are: beyond `net.core.rmem_max` only for who may.
pub(crate) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
    use rustix::net::sockopt;
    let bytes = bytes.min(i32::MAX as usize / 2);
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    // The kernel doubles it, for its own books (socket(7)).
    Ok(sockopt::socket_recv_buffer_size(socket)? / 2)
}

fn locked(collector: &Mutex<Collector>) -> MutexGuard<'_, Collector> {
    collector.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Datagrams {
    pub(crate) socket: Socket,
    pub(crate) address: Address,
    pub(crate) drops: Option<Drops>,
    /// Bytes that the kernel keeps until they are read.
    pub(crate) buffer_bytes: usize,
    pub(crate) room: Room,
}

impl Datagrams {
    /// Until it is to stop.
    pub(crate) fn run(&mut self) {
        let mut buffer = vec![0; BYTES_MAX];
        let mut asked = Instant::now();
        let mut woke = asked;
        // On a Unix socket a sender waits when there are more than a few datagrams.
        let may_nap = matches!(self.socket, Socket::Udp(_)) && self.buffer_bytes >= NAP_BYTES;
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
                PollFd::new(&*self.room.stop, PollFlags::IN),
            ];
            if poll(&mut fds, None).is_err() {
                std::thread::sleep(AFTER_ERROR);
            }
            if may_nap && woke.elapsed() < OFTEN {
                std::thread::sleep(NAP);
            }
            woke = Instant::now();
            let stopping = self.room.is_stopping.load(Ordering::Acquire);
            let until = Instant::now() + if stopping { STOP_MAX } else { DROPS_EVERY };
            while self.burst(&mut buffer) && Instant::now() < until {}
            if stopping || asked.elapsed() >= DROPS_EVERY {
                asked = Instant::now();
                self.ask_for_drops();
            }
            if stopping {
                return;
            }
        }
    }

    /// Whether there may be more.
    fn burst(&self, buffer: &mut [u8]) -> bool {
        let mut collector = locked(&self.room.collector);
        collector.turn(self.room.intake.now());
        let mut more = true;
        for _ in 0..BURST {
            match self.socket.receive(buffer) {
                Ok((length, from)) => take(&mut collector, &buffer[..length], &from),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    more = false;
                    if error.kind() != io::ErrorKind::WouldBlock {
                        let message = format!("{}: {error}", self.address);
                        self.room.common.troubles.push(message);
                        std::thread::sleep(AFTER_ERROR);
                    }
                    break;
                }
            }
        }
        if collector.is_pressed() {
            self.room.bell.press();
        }
        more
    }

    fn ask_for_drops(&mut self) {
        let Some(drops) = &mut self.drops else { return };
        match drops.more() {
            Ok(0) => {}
            Ok(n) => {
                let mut collector = locked(&self.room.collector);
                collector.turn(self.room.intake.now());
                collector.kernel_lost(n);
            }
            Err(error) => {
                self.drops = None;
                let message =
                    format!("{}: the kernel no longer says what it drops: {error}", self.address);
                self.room.common.troubles.push(message);
            }
        }
    }
}

fn take(collector: &mut Collector, datagram: &[u8], from: &From) {
    if datagram.len() < BYTES_MAX {
        return collector.packet(datagram, from);
    }
    // Its end may be missing: the last line is not what was sent.
    let end = datagram.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    collector.packet(&datagram[..end], from);
    collector.refuse_line(&format!("expected a datagram of less than {BYTES_MAX} bytes"), from);
}
