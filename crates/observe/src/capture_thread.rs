//! A running capture: the threads that capture and the thread that writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use intake::{Intake, LogLevel};
use wire::{LeftOutLibraries, TlsProbes};

use crate::capture_rights::with_capture_rights;
use crate::capture_status::CaptureStatus;
use crate::capture_worker::CaptureWorker;
use crate::error::Error;
use crate::interval_clock::IntervalClock;
use crate::interval_composer::IntervalComposer;
use crate::interval_merger::IntervalMerger;
use crate::interval_observer::IntervalObserver;
use crate::interval_queue::IntervalQueue;
use crate::interval_writer::IntervalWriter;
use crate::packet_source::{InterfaceRings, PacketSource, TlsProbeMailbox};
use crate::port_discovery::{LatestRules, PortDiscovery};
use crate::settings::CaptureSettings;
use crate::supervised_spawn::spawn;

/// Name of the producer and of its key encoding.
const PRODUCER: &str = "wire";

/// A running capture. Stops on drop.
#[derive(Debug)]
pub struct WireCapture {
    stop: Arc<AtomicBool>,
    queue: IntervalQueue,
    merger: IntervalMerger,
    status: CaptureStatus,
    tls: TlsProbeMailbox,
    rules: LatestRules,
    /// Looks at the listening sockets of this host; `None` if ports are not detected.
    port_discovery: Option<JoinHandle<Option<()>>>,
    captures: Vec<JoinHandle<Option<()>>>,
    writer: Option<JoinHandle<Option<intake::Result<()>>>>,
}

impl WireCapture {
    /// Starts to capture the packets of the interfaces. TLS libraries are read as soon as they are
    /// found; if they cannot be read, the reason is in the log and in the status.
    pub(crate) fn start(
        settings: &CaptureSettings,
        intake: &Arc<Intake>,
    ) -> Result<WireCapture, Error> {
        let of_rings = settings.clone();
        let mut rings = with_capture_rights(move || InterfaceRings::open(&of_rings))?;
        let tls = TlsProbeMailbox::default();
        // The sessions of all libraries are in the records of one ring, so one thread reads them.
        if let Some(rings) = rings.first_mut() {
            rings.set_probe_mailbox(tls.clone());
        }
        let rings = rings.into_iter();
        let sources = rings.map(|rings| Box::new(rings) as Box<dyn PacketSource>).collect();
        let mut capture = WireCapture::start_threads(settings, intake, sources, true)?;
        capture.tls = tls;
        let (discovery, stop) =
            (capture.port_discovery(settings, intake), Arc::clone(&capture.stop));
        // It has the rights of the thread that starts it, to see the processes of other users.
        capture.port_discovery = discovery
            .map(|discovery| with_capture_rights(|| start_discovery(discovery, stop)))
            .transpose()?;
        capture.open_tls(settings, intake)?;
        Ok(capture)
    }

    /// Attaches the probes that the settings name, in a thread of its own: it reads the files of
    /// all programs, and waits for file systems. The packets do not wait for it, and no stop.
    pub(crate) fn open_tls(
        &self,
        settings: &CaptureSettings,
        intake: &Arc<Intake>,
    ) -> Result<(), Error> {
        if settings.tls.is_empty() {
            return Ok(());
        }
        self.status.set_tls(Ok(Vec::new()), LeftOutLibraries::default());
        let (targets, log) = (settings.tls.clone(), Arc::clone(intake));
        let (status, mailbox) = (self.status.clone(), self.tls.clone());
        let stop = Arc::clone(&self.stop);
        let open = move || match TlsProbes::open(&targets) {
            Ok(probes) => {
                for left_out in &probes.left_out().files {
                    let line = format!("wire: TLS is not read at {left_out}");
                    (log.settings().log)(LogLevel::Warn, &line);
                }
                status.set_tls(Ok(probes.files().to_vec()), probes.left_out().clone());
                mailbox.put(probes);
            }
            Err(error) => {
                let error = error.to_string();
                (log.settings().log)(LogLevel::Warn, &format!("wire: {error}"));
                status.set_tls(Err(error), LeftOutLibraries::default());
            }
        };
        let supervised = intake.supervisor().thread("wire tls");
        let start =
            move || spawn("wire tls", supervised, move || stop.load(Ordering::Relaxed), open);
        // It has the rights of the thread that starts it, and ends by itself.
        let _ = with_capture_rights(start)?;
        Ok(())
    }

    /// As a capture of interfaces, with a thread for the packets of each source.
    pub fn start_with_sources(
        settings: &CaptureSettings,
        intake: &Arc<Intake>,
        sources: Vec<Box<dyn PacketSource>>,
    ) -> Result<WireCapture, Error> {
        let settings = settings.clone().with_detected_ports();
        let mut capture = WireCapture::start_threads(&settings, intake, sources, false)?;
        let (discovery, stop) =
            (capture.port_discovery(&settings, intake), Arc::clone(&capture.stop));
        capture.port_discovery =
            discovery.map(|discovery| start_discovery(discovery, stop)).transpose()?;
        Ok(capture)
    }

    fn port_discovery(
        &self,
        settings: &CaptureSettings,
        intake: &Arc<Intake>,
    ) -> Option<PortDiscovery> {
        let detection = settings.detection.clone()?;
        Some(PortDiscovery {
            detector: detection.detector,
            period: detection.period,
            latest_rules: self.rules.clone(),
            status: self.status.clone(),
            intake: Arc::clone(intake),
        })
    }

    fn start_threads(
        settings: &CaptureSettings,
        intake: &Arc<Intake>,
        sources: Vec<Box<dyn PacketSource>>,
        has_capabilities: bool,
    ) -> Result<WireCapture, Error> {
        let (queue, stop) = (IntervalQueue::default(), Arc::new(AtomicBool::new(false)));
        let status = CaptureStatus::new(&settings.interfaces);
        if let Some(detection) = &settings.detection {
            status.set_ports(detection.detector.services().clone());
        }
        let (now, shards) = (intake.now(), sources.len());
        let composer = IntervalComposer::new(settings, now, queue.clone(), status.clone());
        let merger = IntervalMerger::new(settings, shards, composer);
        let mut writer = IntervalWriter::new(intake, PRODUCER, &settings.host, queue.clone());
        let closed = queue.clone();
        let writer = spawn(
            "wire writer",
            intake.supervisor().thread("wire writer"),
            move || closed.is_closed(),
            move || writer.run(),
        )?;
        let (captures, writer) = (Vec::new(), Some(writer));
        let (tls, rules) = (TlsProbeMailbox::default(), LatestRules::default());
        let port_discovery = None;
        let mut capture = WireCapture {
            stop,
            queue,
            merger,
            status,
            tls,
            rules,
            port_discovery,
            captures,
            writer,
        };
        for (shard, source) in sources.into_iter().enumerate() {
            let clock = IntervalClock::new(intake.settings().interval, now);
            let merger = capture.merger.clone();
            let mut worker = CaptureWorker {
                intake: Arc::clone(intake),
                source,
                observer: IntervalObserver::new(settings.clone(), shard, clock, merger),
                status: capture.status(),
                rules: capture.rules.clone(),
                rules_version: 0,
                has_capabilities,
                has_started: false,
            };
            let (stop, is_set) = (Arc::clone(&capture.stop), Arc::clone(&capture.stop));
            let started = spawn(
                "wire",
                intake.supervisor().thread("wire"),
                move || is_set.load(Ordering::Relaxed),
                move || worker.run(&stop),
            );
            capture.captures.push(started?);
        }
        Ok(capture)
    }

    pub(crate) fn status(&self) -> CaptureStatus {
        self.status.clone()
    }

    /// Stops: reads the packets that were captured so far, writes the last interval, waits until it
    /// is durable, and ends the threads. If the journal has no space for some seconds, the interval
    /// is lost and an error is returned; so too if the thread that writes panics at its end.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end_threads()
    }

    fn end_threads(&mut self) -> Result<(), Error> {
        // Relaxed: the flag publishes no other data.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(discovery) = self.port_discovery.take() {
            discovery.thread().unpark();
            let _ = discovery.join();
        }
        for capture in self.captures.drain(..) {
            // The supervisor reports panics.
            let _ = capture.join();
        }
        // The threads have done so, unless one panicked at its end.
        if !self.queue.is_closed() {
            self.merger.finish_all();
        }
        match self.writer.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(Some(outcome))) => Ok(outcome?),
            Some(Ok(None) | Err(_)) => Err(Error::WriterPanic),
        }
    }
}

fn start_discovery(
    mut discovery: PortDiscovery,
    stop: Arc<AtomicBool>,
) -> Result<JoinHandle<Option<()>>, Error> {
    let supervised = discovery.intake.supervisor().thread("wire ports");
    let is_set = Arc::clone(&stop);
    let is_stopping = move || is_set.load(Ordering::Relaxed);
    spawn("wire ports", supervised, is_stopping, move || discovery.run(&stop))
}

impl Drop for WireCapture {
    fn drop(&mut self) {
        // `stop` returns the error to callers that need it.
        let _ = self.end_threads();
    }
}
