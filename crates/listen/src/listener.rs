//! A listener's life: sockets, threads, and their end.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use intake::Intake;
use rustix::event::{EventfdFlags, eventfd};
use socket2::{Domain, Protocol as Ip, Type};

use crate::address::Address;
use crate::collector::{AtFull, Collector, Common};
use crate::counters::Counters;
use crate::datagrams::{Datagrams, Socket, set_receive_buffer};
use crate::error::{Error, Result};
use crate::flusher::{Bell, Flusher};
use crate::kernel::Drops;
use crate::random::Random;
use crate::settings::{Limits, Settings};
use crate::streams::Streams;
use crate::troubles::Troubles;
use crate::unix;

/// Connections that the kernel keeps until they are taken.
const BACKLOG: i32 = 1024;

/// What a thread that reads sockets works with.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub(crate) common: Arc<Common>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) collector: Arc<Mutex<Collector>>,
    pub(crate) bell: Arc<Bell>,
    /// Can be read when it is to stop.
    pub(crate) stop: Arc<OwnedFd>,
    pub(crate) is_stopping: Arc<AtomicBool>,
}

/// Listens, on threads of its own, until it is stopped or dropped.
#[derive(Debug)]
pub struct Listener {
    addresses: Vec<Address>,
    common: Arc<Common>,
    bell: Arc<Bell>,
    stop: Arc<OwnedFd>,
    is_stopping: Arc<AtomicBool>,
    readers: Vec<JoinHandle<()>>,
    flusher: Option<JoinHandle<()>>,
    files: Vec<unix::File>,
}

/// Sockets that are open, before there are threads.
#[derive(Default)]
struct Sockets {
    datagrams: Vec<(Socket, Address)>,
    doors: Vec<TcpListener>,
    addresses: Vec<Address>,
    files: Vec<unix::File>,
}

impl Listener {
    /// Opens all sockets, or none, and begins to take what comes.
    pub fn start(settings: Settings, intake: Arc<Intake>) -> Result<Listener> {
        let (protocol, limits) = (settings.protocol, settings.limits);
        let sockets = Sockets::open(&settings)?;
        let common = Arc::new(Common {
            protocol,
            limits,
            interval: i64::try_from(intake.settings().interval.as_nanos())
                .unwrap_or(i64::MAX)
                .max(1),
            counters: Counters::new(
                intake.meter(),
                intake.producer(protocol.name()),
                protocol.name(),
            ),
            troubles: Troubles::default(),
            members: Default::default(),
            is_stuck: AtomicBool::new(false),
            supervisor: intake.supervisor().clone(),
        });
        let mut listener = Listener {
            addresses: sockets.addresses,
            common,
            bell: Arc::default(),
            stop: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?),
            is_stopping: Arc::default(),
            readers: Vec::new(),
            flusher: None,
            files: sockets.files,
        };
        // What fails from here on drops the listener, which stops what runs.
        let mut collectors = Vec::new();
        for (socket, address) in sockets.datagrams {
            let room = listener.room(&intake, AtFull::Lose, &mut collectors);
            let buffer_bytes = listener.size(&socket, &address, &limits, &intake);
            let drops = listener.drops(&socket, &address);
            let mut datagrams = Datagrams { socket, address, drops, buffer_bytes, room };
            listener.readers.push(listener.spawn("datagrams", move || datagrams.run())?);
        }
        if !sockets.doors.is_empty() {
            let room = listener.room(&intake, AtFull::Wait, &mut collectors);
            let mut streams = Streams::new(sockets.doors, room);
            listener.readers.push(listener.spawn("streams", move || streams.run())?);
        }
        let mut flusher = Flusher::new(Arc::clone(&listener.common), intake, collectors);
        let bell = Arc::clone(&listener.bell);
        listener.flusher = Some(listener.spawn("flusher", move || flusher.run(&bell))?);
        Ok(listener)
    }

    /// Starts a thread that is run again after a panic.
    fn spawn(&self, name: &str, mut run: impl FnMut() + Send + 'static) -> Result<JoinHandle<()>> {
        let is_stopping = Arc::clone(&self.is_stopping);
        let supervised =
            self.common.supervisor.thread(format!("{} {name}", self.common.protocol.name()));
        let work = move || {
            let run = || {
                supervised.fault_point();
                run();
            };
            let _ = supervised.run(|| is_stopping.load(Ordering::Acquire), run);
        };
        Ok(std::thread::Builder::new().name(name.to_owned()).spawn(work)?)
    }

    fn room(
        &self,
        intake: &Arc<Intake>,
        at_full: AtFull,
        collectors: &mut Vec<Arc<Mutex<Collector>>>,
    ) -> Room {
        let common = Arc::clone(&self.common);
        let collector = Collector::new(common, at_full, intake.now(), Random::new());
        let collector = Arc::new(Mutex::new(collector));
        collectors.push(Arc::clone(&collector));
        Room {
            common: Arc::clone(&self.common),
            intake: Arc::clone(intake),
            collector,
            bell: Arc::clone(&self.bell),
            stop: Arc::clone(&self.stop),
            is_stopping: Arc::clone(&self.is_stopping),
        }
    }

    /// Sizes a socket's buffer, and says how large it is. It is not needed to listen.
    fn size(&self, socket: &Socket, address: &Address, limits: &Limits, intake: &Intake) -> usize {
        let (wanted, troubles) = (limits.receive_buffer_bytes, &self.common.troubles);
        let bytes = set_receive_buffer(socket.as_fd(), wanted).unwrap_or_else(|error| {
            troubles.push(format!("{address}: the receive buffer cannot be set: {error}"));
            0
        });
        if (1..wanted).contains(&bytes) {
            troubles.push(format!(
                "{address}: the receive buffer has {bytes} bytes, not {wanted}; raise net.core.rmem_max"
            ));
        }
        intake.meter().gauge(
            "topdeck_listen_receive_buffer_bytes",
            "bytes of datagrams that the kernel keeps until they are read",
            &[("source", self.common.protocol.name()), ("address", &address.to_string())],
            move || bytes as f64,
        );
        bytes
    }

    /// What counts the datagrams that the kernel drops, of UDP.
    fn drops(&self, socket: &Socket, address: &Address) -> Option<Drops> {
        let Socket::Udp(socket) = socket else { return None };
        let drops = Drops::of(socket).map_err(|error| {
            let message = format!("{address}: what the kernel drops is not known: {error}");
            self.common.troubles.push(message);
        });
        drops.ok()
    }

    /// Where it is listened, with the ports that the system chose.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The last messages, the oldest first: lines that could not be read, with their sender; series that were
    /// refused; what the system did not give.
    pub fn troubles(&self) -> Vec<String> {
        self.common.troubles.list()
    }

    /// Reads what has come, hands it on, and ends. Takes some seconds at the most.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        // A counter that is not read stays above zero: all who poll it see it.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        for thread in self.readers.drain(..) {
            // A panic is told by the supervisor.
            let _ = thread.join();
        }
        self.files.clear();
        self.bell.stop();
        if let Some(flusher) = self.flusher.take() {
            let _ = flusher.join();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end();
    }
}

impl Sockets {
    fn open(settings: &Settings) -> Result<Sockets> {
        let mut sockets = Sockets::default();
        for &address in &settings.udp {
            let socket = udp_socket(address)
                .map_err(|source| Error::Bind { address: Address::Udp(address), source })?;
            let address = Address::Udp(socket.local_addr()?);
            sockets.addresses.push(address.clone());
            sockets.datagrams.push((Socket::Udp(socket), address));
        }
        for &address in &settings.tcp {
            let door = tcp_listener(address)
                .map_err(|source| Error::Bind { address: Address::Tcp(address), source })?;
            sockets.addresses.push(Address::Tcp(door.local_addr()?));
            sockets.doors.push(door);
        }
        if let Some(path) = &settings.unix {
            let (socket, file) = unix::datagram(path)?;
            socket.set_nonblocking(true)?;
            let address = Address::Unix(path.clone());
            sockets.addresses.push(address.clone());
            sockets.datagrams.push((Socket::Unix(socket), address));
            sockets.files.push(file);
        }
        if sockets.addresses.is_empty() {
            return Err(Error::NoAddress);
        }
        Ok(sockets)
    }
}

/// An address of version 6 is of that alone, so that both versions can be listened on side by side.
fn socket(address: SocketAddr, kind: Type, ip: Ip) -> std::io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::for_address(address), kind, Some(ip))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn udp_socket(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = socket(address, Type::DGRAM, Ip::UDP)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn tcp_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = socket(address, Type::STREAM, Ip::TCP)?;
    // Connections of before that are being closed do not keep the port.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
