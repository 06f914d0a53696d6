//! The role `wire`: tables `[wire]` and `[wire_ends]` of the settings, and its status.
//!
//! A capture that cannot start does not stop the node: the reason is a log line and in the status,
//! and the next reload tries again.

use std::sync::{Arc, Mutex, PoisonError};

use intake::{Meter, MetricSnapshot, SnapshotValue};
use role::json::Json;
use role::settings::{Document, Problems, SettingsCheck};
use role::{BoxError, Role, RoleContext, StatusSection, WriteRoute, WriteRouteSpec, run_blocking};

use crate::capture_rights::with_capture_rights;
use crate::capture_status::CaptureStatus;
use crate::capture_thread::WireCapture;
use crate::end_queue::EndQueue;
use crate::end_receiver::{EndReceiver, EndStore, REPORT};
use crate::end_reporter::EndReporter;
use crate::settings::{CaptureSettings, WireTables};

/// Wire role.
#[derive(Debug)]
pub struct WireRole {
    settings: WireTables,
    host: String,
    capture: Option<WireCapture>,
    /// Of the capture, running or not; `None` if none is configured.
    status: Option<CaptureStatus>,
    /// As `status`, for the gauge.
    measured: Arc<Mutex<Option<CaptureStatus>>>,
    line: Option<String>,
    ends: WireEnds,
}

/// The comparison of both ends.
#[derive(Debug)]
struct WireEnds {
    receiver: EndReceiver,
    store: Option<EndStore>,
    reporter: Option<EndReporter>,
    line: Option<String>,
    /// Whether they could not start.
    has_failed: bool,
}

impl Role for WireRole {
    const NAME: &'static str = "wire";
    const KEYS: &'static [&'static str] = &["wire", "wire_ends"];
    const WRITE_ROUTES: &'static [&'static WriteRouteSpec] = &[&REPORT];

    type Settings = WireTables;

    fn read(document: &Document<'_>) -> Result<WireTables, Problems> {
        document.read(Self::KEYS)
    }

    fn validate_settings(settings: &WireTables, check: &mut SettingsCheck<'_>) {
        settings.check(check);
    }

    /// The operations of an interval are in memory.
    fn buffers_in_memory(settings: &WireTables) -> bool {
        settings.is_enabled() || settings.receives_ends()
    }

    fn start(settings: &WireTables, context: &RoleContext) -> Result<WireRole, BoxError> {
        let mut role = WireRole {
            settings: settings.clone(),
            host: context.host.clone(),
            capture: None,
            status: None,
            measured: Arc::default(),
            line: None,
            ends: WireEnds::new(),
        };
        register_gauge(context.intake.meter(), &role.measured);
        role.start_capture(context);
        Ok(role)
    }

    async fn reload(
        &mut self,
        settings: &WireTables,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        let is_same = self.settings == *settings && self.host == context.host;
        let has_tls_error = self.status.as_ref().is_some_and(CaptureStatus::has_tls_error);
        let has_failed = settings.is_enabled() && self.capture.is_none() || self.ends.has_failed;
        if is_same && !has_failed {
            let mut lines = if has_tls_error { self.open_tls(context) } else { Vec::new() };
            lines.extend(self.ends.renew(settings));
            return Ok(lines);
        }
        let mut lines = Vec::new();
        let had_ends = self.ends.line.is_some();
        if let Err(error) = self.stop_all().await {
            lines.push(format!("wire: {error}"));
        }
        self.settings = settings.clone();
        self.host = context.host.clone();
        self.start_capture(context);
        let stopped = || "wire: the capture has stopped".to_owned();
        lines.push(self.line.clone().unwrap_or_else(stopped));
        let stopped = had_ends.then(|| "wire: both ends are no longer compared".to_owned());
        lines.extend(self.ends.line.clone().or(stopped));
        Ok(lines)
    }

    async fn stop(mut self) -> Result<(), BoxError> {
        self.stop_all().await
    }

    fn log_lines(&self) -> Vec<String> {
        self.line.iter().chain(&self.ends.line).cloned().collect()
    }

    fn write_routes(&self) -> Vec<WriteRoute> {
        vec![self.ends.receiver.route()]
    }

    fn status(&self) -> Vec<StatusSection> {
        let status = self.status.clone();
        let read = move || status.as_ref().map_or(Json::Null, CaptureStatus::json);
        vec![StatusSection::new("wire", read)]
    }
}

impl WireRole {
    /// Attaches the probes at TLS libraries again. The packets are captured meanwhile.
    fn open_tls(&self, context: &RoleContext) -> Vec<String> {
        let settings = self.settings.settings(&self.host);
        let (Some(capture), Ok(Some(settings))) = (&self.capture, settings) else {
            return Vec::new();
        };
        vec![match capture.open_tls(&settings, &context.intake) {
            Ok(()) => "wire: looking for TLS libraries again".to_owned(),
            Err(error) => format!("wire: {error}"),
        }]
    }

    /// Starts the capture that the settings describe.
    fn start_capture(&mut self, context: &RoleContext) {
        (self.status, self.line) = (None, None);
        let queue = self.ends.start(&self.settings, context);
        self.try_start(context, queue);
        if self.capture.is_none() {
            self.ends.end_reports();
        }
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = self.status.clone();
    }

    /// Stops the capture, then what reports its last requests, then what stores them. Returns the
    /// first error.
    async fn stop_all(&mut self) -> Result<(), BoxError> {
        let capture = self.capture.take();
        let (reporter, store) = (self.ends.reporter.take(), self.ends.store.take());
        let stop = move || {
            let of_capture = capture.map_or(Ok(()), WireCapture::stop);
            reporter.into_iter().for_each(EndReporter::stop);
            let of_store = store.map_or(Ok(()), EndStore::stop);
            of_capture.and(of_store)
        };
        Ok(run_blocking(stop).await??)
    }

    fn try_start(&mut self, context: &RoleContext, end_queue: Option<EndQueue>) {
        let settings = match self.settings.settings(&self.host) {
            Ok(Some(settings)) => settings,
            Ok(None) => return,
            // The check of the settings reports the same.
            Err(what) => return self.fail(&[], format!("[wire]: {what}")),
        };
        let settings = CaptureSettings { end_queue, ..settings };
        // With the rights to see the processes of other users.
        let settings = with_capture_rights(move || settings.with_detected_ports());
        match WireCapture::start(&settings, &context.intake) {
            Ok(capture) => {
                let interfaces = match settings.interfaces.is_empty() {
                    true => "all interfaces".to_owned(),
                    false => settings.interfaces.join(", "),
                };
                let ports = settings.ports().len();
                let status = capture.status();
                let detected = status.ports().map(|found| format!("; {found}")).unwrap_or_default();
                let line = format!("wire: capturing {ports} ports of {interfaces}{detected}");
                (self.line, self.status) = (Some(line), Some(status));
                self.capture = Some(capture);
            }
            Err(error) => self.fail(&settings.interfaces, error.to_string()),
        }
    }

    fn fail(&mut self, interfaces: &[String], error: String) {
        self.line = Some(format!("wire: {error}"));
        self.status = Some(CaptureStatus::failed(interfaces, error));
    }
}

impl WireEnds {
    fn new() -> WireEnds {
        WireEnds {
            receiver: EndReceiver::new(),
            store: None,
            reporter: None,
            line: None,
            has_failed: false,
        }
    }

    /// Starts what the settings describe. Returns where the capture hands over its requests.
    fn start(&mut self, settings: &WireTables, context: &RoleContext) -> Option<EndQueue> {
        (self.line, self.has_failed) = (None, false);
        self.try_start(settings, context).unwrap_or_else(|error| {
            (self.line, self.has_failed) = (Some(format!("wire: {error}")), true);
            None
        })
    }

    /// Nothing is captured that could be reported.
    fn end_reports(&mut self) {
        if let Some(reporter) = self.reporter.take() {
            reporter.stop();
            self.line = self.store.as_ref().map(|_| COMPARES_OTHERS.to_owned());
        }
    }

    /// Reads the token and the certificates of the reports again. Returns a log line if there are
    /// any.
    fn renew(&mut self, settings: &WireTables) -> Option<String> {
        let reporter = self.reporter.as_mut()?;
        let renewed = settings.ends().and_then(|ends| match ends {
            Some(ends) => Ok(reporter.renew(&ends)?),
            None => Ok(false),
        });
        match renewed {
            Ok(false) => None,
            Ok(true) => Some("wire: reporting with the token and certificates of now".to_owned()),
            Err(error) => Some(format!("wire: {error}")),
        }
    }

    fn try_start(
        &mut self,
        settings: &WireTables,
        context: &RoleContext,
    ) -> Result<Option<EndQueue>, BoxError> {
        let Some(ends) = settings.ends()? else { return Ok(None) };
        let (host, intake) = (&context.host, &context.intake);
        if ends.receives {
            self.store = Some(EndStore::start(&self.receiver, host, intake)?);
        }
        if !settings.is_enabled() {
            self.line = Some(COMPARES_OTHERS.to_owned());
            return Ok(None);
        }
        let queue = EndQueue::default();
        let reporter = EndReporter::start(&ends, queue.clone(), &self.receiver, host, intake)?;
        self.reporter = Some(reporter);
        self.line = Some(match &ends.target {
            None => "wire: comparing both ends".to_owned(),
            Some(target) => format!("wire: reporting requests to {}", target.url),
        });
        Ok(Some(queue))
    }
}

const COMPARES_OTHERS: &str = "wire: comparing both ends of other nodes";

/// The gauge exists only while a capture is configured.
fn register_gauge(meter: &Meter, measured: &Arc<Mutex<Option<CaptureStatus>>>) {
    let measured = Arc::clone(measured);
    meter.register_collector(move |all| {
        let status = measured.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(status) = status else { return };
        all.push(MetricSnapshot {
            name: "topdeck_wire_capturing",
            help: "1 if the packets of [wire] are captured, 0 if the capture could not start",
            labels: Vec::new(),
            value: SnapshotValue::Gauge(f64::from(u8::from(status.is_capturing()))),
        });
    });
}
