//! Live capture: a table per interval on a terminal, until the time is over or a signal comes.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use client::{print_message, print_stdout};
use inspect::capture::{self, CaptureSummary, TlsSummary};
use render::terminal::Terminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use wire::{
    ConnectionTracker, DETECTION_PERIOD, PacketRing, PortDetector, RingSettings, ServiceRule,
    TlsProbes,
};

use super::Options;

/// Maximum delay until a signal or the end of the interval is noticed.
const WAIT: Duration = Duration::from_millis(100);
/// The same with probes at TLS libraries, whose events do not end the wait.
const WAIT_TLS: Duration = Duration::from_millis(20);
/// Time after which the ring has passed on all that was captured before a stop: three times the
/// delay of the ring.
const DRAIN_WAIT: Duration = Duration::from_millis(60);
/// Clears the screen and puts the cursor at its start.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Captures packets and passes them to the tracker. A failure ends the capture; the packets before
/// it count.
pub(crate) fn capture(
    options: &Options,
    rules: &[ServiceRule],
    mut detector: Option<PortDetector>,
    tracker: &mut ConnectionTracker,
) -> Result<(CaptureSummary, Option<anyhow::Error>)> {
    let ports = ServiceRule::ports(rules);
    let interface = options.interface.clone();
    let blocks = usize::try_from(options.ring)?;
    let mut ring = PacketRing::open(&RingSettings { interface, ports, blocks })?;
    let mut probes = match options.tls.is_empty() {
        true => None,
        false => Some(TlsProbes::open(&options.tls)?),
    };
    for left_out in probes.iter().flat_map(|probes| &probes.left_out().files) {
        print_message(format_args!("TLS is not read at {left_out}"));
    }
    let wait = if probes.is_some() { WAIT_TLS } else { WAIT };
    // Of this thread, the only one.
    wire::give_up_capabilities().context("cannot give up capabilities")?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_stopped))
            .context("cannot handle signals")?;
    }
    let screen = io::stdout().is_terminal().then(|| Terminal::new(options.ascii));
    let start = Instant::now();
    let mut interval_start = start;
    let mut detected_at = start;
    let mut failure = None;
    while failure.is_none()
        && !is_stopped.load(Ordering::Relaxed)
        && options.duration.is_none_or(|duration| start.elapsed() < duration)
    {
        failure = ring.read(wait, &mut |packet| tracker.read(packet)).err().map(Into::into);
        if let Some(probes) = &mut probes {
            probes.read(&mut |event| tracker.read_tls(event));
        }
        if let Some(detector) = &mut detector
            && detected_at.elapsed() >= DETECTION_PERIOD
        {
            detected_at = Instant::now();
            if detector.detect() {
                tracker.set_rules(detector.rules().to_vec());
                ring.set_ports(&ServiceRule::ports(detector.rules()))?;
            }
        }
        let elapsed = interval_start.elapsed();
        if let Some(terminal) = screen.as_ref().filter(|_| elapsed >= options.interval) {
            interval_start = Instant::now();
            let drops = ring.statistics()?.drops;
            let table = capture::live_table(tracker, elapsed.as_secs_f64(), terminal);
            let drops =
                if drops == 0 { String::new() } else { format!("  {drops} packets dropped\n") };
            print_stdout(format!("{CLEAR}{table}{drops}").as_bytes())?;
        }
    }
    drain(&mut ring, blocks, tracker);
    let tls = probes.map(|mut probes| {
        probes.read(&mut |event| tracker.read_tls(event));
        let (files, left_out) = (probes.files().to_vec(), probes.left_out().clone());
        TlsSummary { files, left_out, lost_events: probes.lost_events() }
    });
    if screen.is_some() {
        print_stdout(CLEAR.as_bytes())?;
    }
    let summary = CaptureSummary {
        source: options.interface.clone().unwrap_or_else(|| "all interfaces".to_owned()),
        is_truncated: false,
        has_port_filter: true,
        reported_drops: ring.statistics()?.drops,
        tls,
        key_log: None,
    };
    Ok((summary, failure))
}

/// Reads what was captured before the stop: the kernel passes a block on when it is full or after a
/// delay. Under load, packets after the stop follow without an end: `blocks` are all that the ring
/// has.
fn drain(ring: &mut PacketRing, blocks: usize, tracker: &mut ConnectionTracker) {
    let end = Instant::now() + DRAIN_WAIT;
    let mut blocks_left = blocks;
    while blocks_left > 0 {
        let left = end.saturating_duration_since(Instant::now());
        let has_block = ring.read(left, &mut |packet| tracker.read(packet)).unwrap_or(false);
        if left.is_zero() {
            blocks_left = if has_block { blocks_left - 1 } else { 0 };
        }
    }
}
