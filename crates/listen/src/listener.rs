//! Listener: sockets, threads, shutdown.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use intake::Intake;
use role::json::{Json, integer};
use rustix::event::{EventfdFlags, eventfd};
use socket2::{Domain, Protocol as Ip, Type};

use crate::datagram_reader::{DatagramReader, DatagramSocket, set_receive_buffer};
use crate::drop_counts::ListenerCounters;
use crate::error::{Error, Result};
use crate::interval_flusher::{FlushSignal, IntervalFlusher};
use crate::line_format::SocketAddresses;
use crate::listen_address::ListenAddress;
use crate::metric_aggregator::{ListenerShared, MetricAggregator, OverflowPolicy};
use crate::recent_errors::RecentErrors;
use crate::sampling_rng::SamplingRng;
use crate::settings::{Limits, Settings};
use crate::socket_drops::SocketDrops;
use crate::socket_file;
use crate::stream_reader::StreamReader;

/// TCP accept backlog.
const BACKLOG: i32 = 1024;

/// Context of a socket reader thread.
#[derive(Clone, Debug)]
pub(crate) struct SocketReaderContext {
    pub(crate) shared: Arc<ListenerShared>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) aggregator: Arc<Mutex<MetricAggregator>>,
    pub(crate) flush_signal: Arc<FlushSignal>,
    /// Becomes readable on stop.
    pub(crate) stop: Arc<OwnedFd>,
    pub(crate) is_stopping: Arc<AtomicBool>,
}

/// Listener with threads of its own; stops on drop.
#[derive(Debug)]
pub struct Listener {
    addresses: Vec<ListenAddress>,
    shared: Arc<ListenerShared>,
    flush_signal: Arc<FlushSignal>,
    stop: Arc<OwnedFd>,
    is_stopping: Arc<AtomicBool>,
    readers: Vec<JoinHandle<()>>,
    flusher: Option<JoinHandle<()>>,
    socket_files: Vec<socket_file::SocketFile>,
}

/// Open sockets before the threads start.
#[derive(Default)]
struct Sockets {
    datagrams: Vec<(DatagramSocket, ListenAddress)>,
    tcp_listeners: Vec<TcpListener>,
    addresses: Vec<ListenAddress>,
    socket_files: Vec<socket_file::SocketFile>,
}

impl Listener {
    /// Opens all sockets or none, and starts the threads.
    pub fn start(settings: Settings, intake: Arc<Intake>) -> Result<Listener> {
        let limits = settings.limits;
        let sockets = Sockets::open(&settings.sockets)?;
        let common = Arc::new(ListenerShared {
            limits,
            interval: i64::try_from(intake.settings().interval.as_nanos())
                .unwrap_or(i64::MAX)
                .max(1),
            counters: ListenerCounters::new(
                intake.meter(),
                intake.volatile_producer(settings.format.name()),
                settings.format.name(),
            ),
            recent_errors: RecentErrors::new(
                settings.format.name(),
                Arc::clone(&intake.settings().log),
            ),
            set_hasher: Default::default(),
            is_blocked: AtomicBool::new(false),
            supervisor: intake.supervisor().clone(),
            format: settings.format,
        });
        let mut listener = Listener {
            addresses: sockets.addresses,
            shared: common,
            flush_signal: Arc::default(),
            stop: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?),
            is_stopping: Arc::default(),
            readers: Vec::new(),
            flusher: None,
            socket_files: sockets.socket_files,
        };
        // On an error below, the listener is dropped, which stops the threads that run.
        let mut aggregators = Vec::new();
        for (socket, address) in sockets.datagrams {
            let context = listener.reader_context(&intake, OverflowPolicy::Drop, &mut aggregators);
            let buffer_bytes = listener.set_buffer_size(&socket, &address, &limits, &intake);
            let drops = listener.socket_drops(&socket, &address);
            let mut datagrams = DatagramReader { socket, address, drops, buffer_bytes, context };
            listener.readers.push(listener.spawn("datagrams", move || datagrams.run())?);
        }
        if !sockets.tcp_listeners.is_empty() {
            let context =
                listener.reader_context(&intake, OverflowPolicy::Backpressure, &mut aggregators);
            let mut streams = StreamReader::new(sockets.tcp_listeners, context);
            listener.readers.push(listener.spawn("streams", move || streams.run())?);
        }
        let mut flusher = IntervalFlusher::new(Arc::clone(&listener.shared), intake, aggregators);
        let flush_signal = Arc::clone(&listener.flush_signal);
        listener.flusher = Some(listener.spawn("flusher", move || flusher.run(&flush_signal))?);
        Ok(listener)
    }

    /// Starts a thread that is restarted after a panic.
    fn spawn(&self, name: &str, mut run: impl FnMut() + Send + 'static) -> Result<JoinHandle<()>> {
        let is_stopping = Arc::clone(&self.is_stopping);
        let supervised =
            self.shared.supervisor.thread(format!("{} {name}", self.shared.format.name()));
        let work = move || {
            let run = || {
                supervised.failpoint();
                run();
            };
            let _ = supervised.run(|| is_stopping.load(Ordering::Acquire), run);
        };
        Ok(std::thread::Builder::new().name(name.to_owned()).spawn(work)?)
    }

    fn reader_context(
        &self,
        intake: &Arc<Intake>,
        at_full: OverflowPolicy,
        aggregators: &mut Vec<Arc<Mutex<MetricAggregator>>>,
    ) -> SocketReaderContext {
        let common = Arc::clone(&self.shared);
        let aggregator = MetricAggregator::new(common, at_full, intake.now(), SamplingRng::new());
        let aggregator = Arc::new(Mutex::new(aggregator));
        aggregators.push(Arc::clone(&aggregator));
        SocketReaderContext {
            shared: Arc::clone(&self.shared),
            intake: Arc::clone(intake),
            aggregator,
            flush_signal: Arc::clone(&self.flush_signal),
            stop: Arc::clone(&self.stop),
            is_stopping: Arc::clone(&self.is_stopping),
        }
    }

    /// Sets a socket's receive buffer and exports its size. A failure is reported but does not stop
    /// the listener.
    fn set_buffer_size(
        &self,
        socket: &DatagramSocket,
        address: &ListenAddress,
        limits: &Limits,
        intake: &Intake,
    ) -> usize {
        let (requested, errors) = (limits.receive_buffer_bytes, &self.shared.recent_errors);
        let bytes = set_receive_buffer(socket.as_fd(), requested).unwrap_or_else(|error| {
            errors.push(format!("{address}: cannot set the receive buffer: {error}"));
            0
        });
        if (1..requested).contains(&bytes) {
            errors.push(format!(
                "{address}: the receive buffer is {bytes} bytes, not {requested}; raise \
                 net.core.rmem_max"
            ));
        }
        intake.meter().gauge(
            "topdeck_listen_receive_buffer_bytes",
            "size of the kernel's receive buffer for datagrams, in bytes",
            &[("source", self.shared.format.name()), ("address", &address.to_string())],
            move || bytes as f64,
        );
        bytes
    }

    /// Kernel drop counter of a UDP socket.
    fn socket_drops(
        &self,
        socket: &DatagramSocket,
        address: &ListenAddress,
    ) -> Option<SocketDrops> {
        let DatagramSocket::Udp(socket) = socket else { return None };
        let drops = SocketDrops::for_socket(socket).map_err(|error| {
            let message = format!("{address}: cannot read the kernel's drop counter: {error}");
            self.shared.recent_errors.push(message);
        });
        drops.ok()
    }

    /// Listen addresses, with ports assigned by the system.
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Recent messages, oldest first: unreadable lines with their sender, rejected series, system
    /// errors.
    pub fn recent_errors(&self) -> Vec<String> {
        self.shared.recent_errors.list()
    }

    /// Reads the listener's part of the status.
    pub fn status(&self) -> impl Fn() -> Json + Send + Sync + use<> {
        let (shared, addresses) = (Arc::clone(&self.shared), self.addresses.clone());
        move || {
            let addresses = addresses.iter().map(|it| Json::Text(it.to_string())).collect();
            let errors = shared.recent_errors.list().into_iter().map(Json::Text).collect();
            Json::Object(vec![
                ("format", Json::Text(shared.format.name().to_owned())),
                ("addresses", Json::List(addresses)),
                ("rejected_lines", integer(shared.counters.lines_rejected.get())),
                ("recent_errors", Json::List(errors)),
            ])
        }
    }

    /// Drains the sockets, flushes and stops. Takes at most some seconds.
    pub fn stop(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        // The eventfd is never read, so all threads that poll it see it.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        for thread in self.readers.drain(..) {
            // The supervisor reports panics.
            let _ = thread.join();
        }
        self.socket_files.clear();
        self.flush_signal.stop();
        if let Some(flusher) = self.flusher.take() {
            let _ = flusher.join();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Sockets {
    fn open(addresses: &SocketAddresses) -> Result<Sockets> {
        let mut sockets = Sockets::default();
        for &address in &addresses.udp {
            let socket = udp_socket(address)
                .map_err(|source| Error::Bind { address: ListenAddress::Udp(address), source })?;
            let address = ListenAddress::Udp(socket.local_addr()?);
            sockets.addresses.push(address.clone());
            sockets.datagrams.push((DatagramSocket::Udp(socket), address));
        }
        for &address in &addresses.tcp {
            let listener = tcp_listener(address)
                .map_err(|source| Error::Bind { address: ListenAddress::Tcp(address), source })?;
            sockets.addresses.push(ListenAddress::Tcp(listener.local_addr()?));
            sockets.tcp_listeners.push(listener);
        }
        if let Some(path) = &addresses.unix {
            let (socket, file) = socket_file::bind_datagram(path)?;
            socket.set_nonblocking(true)?;
            let address = ListenAddress::Unix(path.clone());
            sockets.addresses.push(address.clone());
            sockets.datagrams.push((DatagramSocket::Unix(socket), address));
            sockets.socket_files.push(file);
        }
        if sockets.addresses.is_empty() {
            return Err(Error::NoAddress);
        }
        Ok(sockets)
    }
}

/// An IPv6 socket accepts IPv6 only, so that both versions can use one port.
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
    // Connections in TIME_WAIT must not block the port.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
