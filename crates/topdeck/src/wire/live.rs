//! Live capture: a table per interval on a terminal, until the time is over or a signal comes.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use render::terminal::Terminal;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use wire::{ConnectionTracker, PacketRing, RingSettings, ServiceRule};

use super::{CaptureSummary, Options, report_text};
use crate::output::print_stdout;

/// Maximum delay until a signal or the end of the interval is noticed.
const WAIT: Duration = Duration::from_millis(100);
/// Clears the screen and puts the cursor at its start.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Captures packets and passes them to the tracker.
pub(crate) fn capture(
    options: &Options,
    rules: &[ServiceRule],
    tracker: &mut ConnectionTracker,
) -> Result<CaptureSummary> {
    let mut ports: Vec<u16> = rules.iter().map(|rule| rule.port).collect();
    ports.sort_unstable();
    ports.dedup();
    let interface = options.interface.clone();
    let blocks = usize::try_from(options.ring)?;
    let mut ring = PacketRing::open(&RingSettings { interface, ports, blocks })?;
    drop_capabilities()?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_stopped))
            .context("cannot handle signals")?;
    }
    let screen = io::stdout().is_terminal().then(|| Terminal::new(options.ascii));
    let start = Instant::now();
    let mut interval_start = start;
    while !is_stopped.load(Ordering::Relaxed)
        && options.duration.is_none_or(|duration| start.elapsed() < duration)
    {
        ring.read(WAIT, &mut |packet| tracker.read(packet))?;
        let elapsed = interval_start.elapsed();
        if let Some(terminal) = screen.as_ref().filter(|_| elapsed >= options.interval) {
            interval_start = Instant::now();
            let drops = ring.statistics()?.drops;
            let table = report_text::live_table(tracker, elapsed.as_secs_f64(), terminal);
            let drops =
                if drops == 0 { String::new() } else { format!("  {drops} packets dropped\n") };
            print_stdout(format!("{CLEAR}{table}{drops}").as_bytes())?;
        }
    }
    // What the kernel has passed on by now.
    while ring.read(Duration::ZERO, &mut |packet| tracker.read(packet))? {}
    if screen.is_some() {
        print_stdout(CLEAR.as_bytes())?;
    }
    Ok(CaptureSummary {
        source: options.interface.clone().unwrap_or_else(|| "all interfaces".to_owned()),
        is_truncated: false,
        reported_drops: ring.statistics()?.drops,
    })
}

/// Gives up all capabilities of this thread, the only one: capturing needs none once it has
/// started.
fn drop_capabilities() -> Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).context("cannot give up capabilities")
}
