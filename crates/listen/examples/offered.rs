//! Benchmark: timings per second through one socket, and dropped timings. A sender in the same
//! process sends at full speed for some seconds.
//!
//! `cargo run --release -p topdeck-listen --example offered [SECONDS]`

use std::error::Error;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Disk, OsDisk};
use intake::{Intake, WriteTarget};
use journal::Journal;
use rustix::time::{ClockId, clock_gettime};

use listen::{AnyLineFormat, ListenAddress, Listener, Settings, SocketAddresses, Statsd};

/// Number of series.
const SERIES: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    println!(
        "socket  timings/datagram  offered/s  taken/s   dropped  CPU ns/timing: receiver  sender  \
         sent = taken + dropped"
    );
    for is_unix in [true, false] {
        for timings in [10, 1] {
            run(is_unix, timings, Duration::from_secs(seconds))?;
        }
    }
    Ok(())
}

fn run(is_unix: bool, timings: usize, time: Duration) -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("topdeck-offered-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let intake = intake(&dir.join("journal"))?;
    let path = dir.join("socket");
    let sockets = SocketAddresses {
        udp: if is_unix { vec![] } else { vec!["127.0.0.1:0".parse()?] },
        unix: is_unix.then(|| path.clone()),
        ..SocketAddresses::default()
    };
    let format = AnyLineFormat::new(Statsd::default());
    let settings = Settings { sockets, ..Settings::new(format) };
    let listener = Listener::start(settings, Arc::clone(&intake))?;
    let address = listener.addresses()[0].clone();
    let began = Instant::now();
    let all = cpu(ClockId::ProcessCPUTime);
    let sent = std::thread::spawn(move || send(&address, timings, time)).join();
    let (sent, sender) = sent.map_err(|_| "the sender panicked")??;
    let sending = began.elapsed().as_secs_f64();
    listener.stop();
    let taking = began.elapsed().as_secs_f64();
    let receiver = cpu(ClockId::ProcessCPUTime) - all - sender;
    let count = |outcome: &str| {
        let about = "values received, by outcome; datagrams for socket_buffer_full";
        let labels = [("source", "statsd"), ("outcome", outcome)];
        intake.meter().counter("topdeck_listen_values_total", about, &labels).get()
    };
    let (accepted, dropped) = (count("accepted"), count("socket_buffer_full") * timings as u64);
    println!(
        "{:6}  {timings:16}  {:9.0}  {:9.0}  {dropped:7}  {:24.0}  {:6.0}  {}",
        if is_unix { "unix" } else { "udp" },
        sent as f64 / sending,
        accepted as f64 / taking,
        receiver / accepted as f64,
        sender / sent as f64,
        sent == accepted + dropped,
    );
    intake.stop();
    drop(intake);
    Ok(std::fs::remove_dir_all(&dir)?)
}

fn intake(dir: &Path) -> Result<Arc<Intake>, Box<dyn Error>> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    Journal::create(&*disk, dir, 1, 0, &journal::Settings::default())?;
    let journal = Journal::open(disk, dir, &journal::Options::default())?;
    let settings = intake::Settings { interval: Duration::from_secs(1), ..Default::default() };
    Ok(Arc::new(Intake::new(WriteTarget::Journal(Arc::new(journal)), settings)?))
}

/// CPU time in nanoseconds.
fn cpu(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Sends for a duration; returns the number of timings sent and the sender's CPU time.
fn send(address: &ListenAddress, timings: usize, time: Duration) -> std::io::Result<(u64, f64)> {
    let line = |n: usize| {
        let (series, value) = (n % SERIES, 1.0 + (n * 7919 % 100_000) as f64 / 100.0);
        format!("http.request.duration:{value}|ms|#endpoint:/api/{series},method:GET")
    };
    let lines: Vec<String> = (0..10_000).map(line).collect();
    let datagrams: Vec<String> = lines.chunks(timings).map(|chunk| chunk.join("\n")).collect();
    let (udp, unix);
    let send: &dyn Fn(&[u8]) -> std::io::Result<usize> = match address {
        ListenAddress::Unix(path) => {
            unix = UnixDatagram::unbound()?;
            unix.connect(path)?;
            &|bytes| unix.send(bytes)
        }
        ListenAddress::Udp(to) => {
            udp = UdpSocket::bind("127.0.0.1:0")?;
            udp.connect(to)?;
            &|bytes| udp.send(bytes)
        }
        _ => return Err(std::io::ErrorKind::Unsupported.into()),
    };
    let (began, used, mut sent) = (Instant::now(), cpu(ClockId::ThreadCPUTime), 0);
    while began.elapsed() < time {
        for datagram in datagrams.iter().take(1000) {
            send(datagram.as_bytes())?;
            sent += timings as u64;
        }
    }
    Ok((sent, cpu(ClockId::ThreadCPUTime) - used))
}
