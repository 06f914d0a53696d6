//! `topdeck wire`: operations of other programs, measured from captured packets.

mod both_ends;
mod live;

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use client::{print_message, print_stdout};
use inspect::capture::{self, CaptureSummary};
use protocol::PROTOCOLS;
use protocol::fingerprint::RouteTemplates;
use protocol::observer::ObservedProtocol;
use render::terminal::Terminal;
use wire::{
    CaptureFile, CaptureMemory, CapturedPacket, ConnectionTracker, KeyLog, PortDetector,
    ServiceRule, TLS_RING_BYTES, TlsTarget, TrackerSettings, WaitRules,
};

use crate::time;

/// Bytes read from a file at once.
const READ_BYTES: usize = 1 << 20;
/// Open connections that are followed.
const CONNECTIONS_MAX: usize = 65_536;
/// A connection without a packet for an hour is forgotten.
const IDLE_TIMEOUT_NS: u64 = 3_600_000_000_000;
/// Servers with statistics of their own.
const SERVERS_MAX: usize = 1_024;
/// Statements of a service with histograms of their own: about 10 kB each.
const STATEMENTS_MAX: usize = 1_000;
/// Bytes of the texts of requests in flight that are told at once.
const IN_FLIGHT_BYTES_MAX: usize = 2 << 20;

/// Latencies of the operations of other programs, from their packets
///
/// Captures the packets of this host, or reads a capture file (pcap or pcapng, as tcpdump and
/// Wireshark write them), follows the TCP connections, and shows the latency of each statement,
/// route and command, from the time stamps of the packets. The programs are neither changed nor
/// interrupted. Nothing is guessed: each request is measured, or counted as not measured with the
/// reason, or in flight at the end. Literal values of statements are not shown.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Read a capture file instead of capturing; - for standard input
    #[arg(long, value_name = "FILE")]
    read: Option<PathBuf>,

    /// Compare capture files of the same connections: one of the client's host, and one of the
    /// server's host
    #[arg(long, value_names = ["CLIENT_FILE", "SERVER_FILE"], num_args = 2)]
    #[arg(conflicts_with_all = ["read", "interface", "duration", "interval", "ring"])]
    #[arg(conflicts_with_all = ["tls", "statements"])]
    both_ends: Option<Vec<PathBuf>>,

    /// Capture on this network interface instead of all
    #[arg(long, value_name = "NAME", conflicts_with = "read")]
    interface: Option<String>,

    /// Stop after this time; otherwise at Ctrl-C
    #[arg(long, value_name = "DURATION", conflicts_with = "read", value_parser = positive)]
    duration: Option<Duration>,

    /// Interval of the table on a terminal, 100ms to 1m
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    #[arg(conflicts_with = "read")]
    interval: Duration,

    /// Memory of the ring between the kernel and topdeck in MiB, 2 to 1024
    #[arg(long, value_name = "MIB", default_value_t = wire::RING_BLOCKS as u64)]
    #[arg(conflicts_with = "read", value_parser = clap::value_parser!(u64).range(2..=1024))]
    ring: u64,

    /// A service beside the default ports: [NAME=][ADDRESS:]PORT/PROTOCOL; may be repeated
    #[arg(long, value_name = "SERVICE", value_parser = ServiceRule::parse)]
    service: Vec<ServiceRule>,

    /// Only the services of --service, not the default ports of all protocols
    #[arg(long, requires = "service")]
    only: bool,

    /// Also observe the ports on which programs of this host listen, if the program or the number
    /// of the port is known; what is not decoded is listed
    #[arg(long, conflicts_with_all = ["read", "only", "both_ends"])]
    detect_ports: bool,

    /// Read TLS at the library (OpenSSL, BoringSSL): auto for the programs that run now, a process,
    /// or the file of a library or executable; may be repeated
    #[arg(long, value_name = "auto|PID|FILE", conflicts_with = "read")]
    #[arg(value_parser = TlsTarget::parse)]
    tls: Vec<TlsTarget>,

    /// Decrypt the TLS sessions of the file with the secrets of this key log, which an end has
    /// written (SSLKEYLOGFILE): TLS 1.3, and 1.2 with AES-GCM or ChaCha20
    #[arg(long, value_name = "FILE", requires = "read")]
    key_log: Option<PathBuf>,

    /// A template of paths of HTTP, such as /users/{name}/orders or /users/*/orders: {name} and *
    /// are any one segment, {name*} at the end any number of them; may be repeated, the first one
    /// that matches counts
    #[arg(long, value_name = "TEMPLATE", value_parser = route)]
    route: Vec<String>,

    /// Operations that wait by design: verb and statement as in the output, such as GET
    /// /poll/{n}; may be repeated
    #[arg(long, value_name = "VERB STATEMENT", value_parser = wait)]
    wait: Vec<String>,

    /// Statements shown per service
    #[arg(long, value_name = "N", default_value_t = 20)]
    statements: usize,

    /// Print JSON, with all statements and their distributions
    #[arg(long)]
    json: bool,

    /// Only ASCII characters
    #[arg(long)]
    ascii: bool,
}

const AFTER: &str = "\
Times: p50 to max are from the first byte of a request to the last byte of its response. Waits
(BLPOP, long polls) are apart from all other operations. Capturing requires root or CAP_NET_RAW,
and --tls requires root or CAP_BPF and CAP_PERFMON (a process or auto: CAP_CHECKPOINT_RESTORE too);
they are given up when the capture has started.

Examples:
  topdeck wire
  topdeck wire --interface lo --duration 10s --service orders=5433/postgres
  tcpdump -i any -w shop.pcap 'tcp port 5432'
  topdeck wire --read shop.pcap
  topdeck wire --read web.pcap --key-log keys.txt --service 443/http
  topdeck wire --both-ends client.pcap server.pcap
  topdeck wire --read shop.pcap --service orders=10.0.0.5:5433/postgres --only
  topdeck wire --service 8080/http --route '/users/{name}/orders'
  topdeck wire --tls auto --service 443/http
  topdeck wire --detect-ports
  zcat old.pcap.gz | topdeck wire --read - --json

Exit status:
  0  success
  1  the file could not be read whole, or there was no packet of a known service
  2  usage error";

const INTERVALS_NS: std::ops::RangeInclusive<i64> = 100_000_000..=60_000_000_000;

fn interval(text: &str) -> Result<Duration, String> {
    let ns = time::parse_duration(text)?;
    if !INTERVALS_NS.contains(&ns) {
        return Err("expected 100ms to 1m".to_owned());
    }
    Ok(Duration::from_nanos(ns.unsigned_abs()))
}

fn route(text: &str) -> Result<String, String> {
    RouteTemplates::new(vec![text.to_owned()]).map(|_| text.to_owned())
}

fn wait(text: &str) -> Result<String, String> {
    WaitRules::new(vec![text.to_owned()]).map(|_| text.to_owned())
}

/// Memory of the rings of a live capture.
fn ring_bytes(options: &Options) -> usize {
    let is_live = options.read.is_none() && options.both_ends.is_none();
    let of_packets = if is_live { (options.ring as usize) << 20 } else { 0 };
    of_packets + if options.tls.is_empty() { 0 } else { TLS_RING_BYTES }
}

fn positive(text: &str) -> Result<Duration, String> {
    let ns = time::parse_duration(text)?;
    if ns <= 0 {
        return Err("expected more than 0".to_owned());
    }
    Ok(Duration::from_nanos(ns.unsigned_abs()))
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let routes = RouteTemplates::new(options.route.clone()).map_err(anyhow::Error::msg)?;
    let defaults: Vec<&'static ObservedProtocol> =
        PROTOCOLS.iter().filter(|_| !options.only).collect();
    let mut detector = options
        .detect_ports
        .then(|| PortDetector::new(Path::new("/proc"), options.service.clone(), defaults.clone()));
    let rules = match &mut detector {
        None => ServiceRule::with_default_ports(options.service.clone(), &defaults),
        Some(detector) => {
            detector.detect();
            print_message(format_args!("{}", detector.services()));
            detector.rules().to_vec()
        }
    };
    let memory = CaptureMemory::beside_rings(ring_bytes(options));
    let settings = TrackerSettings {
        rules: rules.clone(),
        connections_max: CONNECTIONS_MAX,
        idle_timeout_ns: IDLE_TIMEOUT_NS,
        reorder_bytes_max: memory.reorder_bytes_max,
        observer_bytes_max: memory.observer_bytes_max,
        servers_max: SERVERS_MAX,
        statements_max: STATEMENTS_MAX,
        statement_bytes_max: memory.statement_bytes_max,
        cache_bytes_max: memory.cache_bytes_max,
        in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
        peers: None,
        routes,
        waits: WaitRules::new(options.wait.clone()).map_err(anyhow::Error::msg)?,
    };
    if let Some(paths) = &options.both_ends {
        return both_ends::run(paths, &settings, options);
    }
    let mut tracker = ConnectionTracker::new(settings);
    let keys = options.key_log.as_deref().map(read_key_log).transpose()?;
    keys.iter().for_each(|keys| tracker.decrypt(keys));
    let (mut summary, failure) = match &options.read {
        Some(path) => read_file(path, &mut |packet| tracker.read(packet))?,
        None => live::capture(options, &rules, detector, &mut tracker)?,
    };
    summary.key_log = keys.map(|keys| keys.counts());
    let has_services = !tracker.services().is_empty();
    if options.json {
        let json = capture::capture_json(&tracker, &summary);
        print_stdout(format!("{json}\n").as_bytes())?;
    } else {
        let terminal = Terminal::new(options.ascii);
        let text = capture::capture_text(&tracker, &summary, options.statements, &terminal);
        print_stdout(text.as_bytes())?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    if !has_services {
        bail!("{}", capture::no_service_message(&tracker, &summary));
    }
    Ok(ExitCode::SUCCESS)
}

fn read_key_log(path: &Path) -> Result<Arc<KeyLog>> {
    let failure = || format!("cannot read the key log {}", path.display());
    let text = fs::read_to_string(path).with_context(failure)?;
    let keys = KeyLog::parse(&text).map_err(anyhow::Error::msg).with_context(failure)?;
    Ok(Arc::new(keys))
}

/// Reads a file. If it ends inside a packet, a message says so.
fn read_file(
    path: &Path,
    each: &mut dyn FnMut(&CapturedPacket<'_>),
) -> Result<(CaptureSummary, Option<anyhow::Error>)> {
    let (summary, failure) = read_packets(path, u64::MAX, each)?;
    if summary.is_truncated {
        let source = &summary.source;
        print_message(format_args!("{source} ends inside a packet: the capture was interrupted"));
    }
    Ok((summary, failure))
}

/// Reads up to `packets_max` packets. Damage ends the file; the packets before it count.
fn read_packets(
    path: &Path,
    packets_max: u64,
    each: &mut dyn FnMut(&CapturedPacket<'_>),
) -> Result<(CaptureSummary, Option<anyhow::Error>)> {
    let (source, input): (String, Box<dyn Read>) = if path == Path::new("-") {
        ("standard input".to_owned(), Box::new(io::stdin().lock()))
    } else {
        let open = || format!("cannot open {}", path.display());
        (path.display().to_string(), Box::new(File::open(path).with_context(open)?))
    };
    let input = BufReader::with_capacity(READ_BYTES, input);
    let mut file = CaptureFile::new(input).with_context(|| source.clone())?;
    let mut failure = None;
    for _ in 0..packets_max {
        match file.next_packet() {
            Ok(Some(packet)) => each(&packet),
            Ok(None) => break,
            Err(error) => {
                failure = Some(anyhow::Error::new(error).context(source.clone()));
                break;
            }
        }
    }
    let summary = CaptureSummary {
        is_truncated: file.is_truncated(),
        has_port_filter: false,
        reported_drops: file.reported_drops(),
        tls: None,
        key_log: None,
        source,
    };
    Ok((summary, failure))
}
