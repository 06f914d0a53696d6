//! A thread that captures: reads packets until it is stopped, and then those that were captured
//! before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use intake::{Intake, LogLevel};
use wire::{CaptureError, ServiceRule};

use crate::capture_status::CaptureStatus;
use crate::interval_observer::IntervalObserver;
use crate::packet_source::PacketSource;
use crate::port_discovery::LatestRules;

/// Longest delay until a stop, or the end of an interval without packets, is noticed.
const WAIT: Duration = Duration::from_millis(100);
/// Time without packets after which the ring has passed on all that was captured before a stop:
/// three times the delay of the ring.
const DRAIN_WAIT: Duration = Duration::from_millis(60);
/// Longest time for reading what was captured before a stop: after a step of the clock, packets
/// under load may take long to reach its time.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay after an error, so that one that repeats does not use a CPU.
const ERROR_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct CaptureWorker {
    pub(crate) intake: Arc<Intake>,
    pub(crate) source: Box<dyn PacketSource>,
    pub(crate) observer: IntervalObserver,
    pub(crate) status: CaptureStatus,
    /// Rules of ports that were detected, and the version that is in use.
    pub(crate) rules: LatestRules,
    pub(crate) rules_version: u64,
    pub(crate) has_capabilities: bool,
    pub(crate) has_started: bool,
}

impl CaptureWorker {
    /// Captures until `stop` is set. Runs again after a panic.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        self.give_up_capabilities();
        if std::mem::replace(&mut self.has_started, true) {
            self.observer.restart(self.intake.now());
        }
        while !stop.load(Ordering::Relaxed) {
            self.intake.supervisor().failpoint("wire packets");
            self.take_rules();
            match self.read(WAIT) {
                Ok(true) => self.observer.follow_clock(self.intake.now()),
                Ok(false) => self.observer.end_idle_interval(self.intake.now()),
                Err(error) => self.note_error(&error, stop),
            }
        }
        self.finish();
    }

    /// Reads what was captured before the stop, and ends the last interval.
    fn finish(&mut self) {
        let stopped_at = self.intake.now();
        self.observer.follow_clock(stopped_at);
        let began = Instant::now();
        while self.read(DRAIN_WAIT).unwrap_or(false)
            && !self.observer.has_reached(stopped_at)
            && began.elapsed() < DRAIN_TIMEOUT
        {}
        self.observer.end_last_interval(stopped_at);
    }

    fn read(&mut self, timeout: Duration) -> Result<bool, CaptureError> {
        let observer = &mut self.observer;
        let packets = self.source.read(timeout, &mut |packet| observer.read(packet));
        // Also if the packets of an interface cannot be read: the plaintext does not come from it.
        let mut has_events = false;
        let lost = self.source.read_tls(&mut |event| {
            has_events = true;
            observer.read_tls(event);
        });
        lost.into_iter().for_each(|lost| observer.set_lost_tls_events(lost));
        observer.report_requests();
        let has_packets = packets?;
        if has_packets {
            observer.set_ring(self.source.statistics()?);
        }
        Ok(has_packets || has_events)
    }

    /// Observes the ports that were detected since the last call.
    fn take_rules(&mut self) {
        let Some(rules) = self.rules.take_newer(&mut self.rules_version) else { return };
        let ports = ServiceRule::ports(&rules);
        self.observer.set_rules(rules);
        if let Err(error) = self.source.set_ports(&ports) {
            let text = error.to_string();
            (self.intake.settings().log)(LogLevel::Warn, &format!("wire: {text}"));
            self.status.set_error(text);
        }
    }

    /// Nothing that packets contain can use them. Capturing needs none once it has started.
    fn give_up_capabilities(&mut self) {
        if std::mem::replace(&mut self.has_capabilities, false)
            && let Err(error) = wire::give_up_capabilities()
        {
            let line = format!("wire: cannot give up capabilities: {error}");
            (self.intake.settings().log)(LogLevel::Warn, &line);
        }
    }

    fn note_error(&mut self, error: &CaptureError, stop: &AtomicBool) {
        let text = error.to_string();
        (self.intake.settings().log)(LogLevel::Warn, &format!("wire: {text}"));
        self.status.set_error(text);
        self.observer.end_idle_interval(self.intake.now());
        let mut remaining = ERROR_DELAY;
        while !remaining.is_zero() && !stop.load(Ordering::Relaxed) {
            let delay = WAIT.min(remaining);
            std::thread::sleep(delay);
            remaining -= delay;
        }
    }
}
