//! The role `wire`: table `[wire]` of the settings, and its status.
//!
//! A capture that cannot start does not stop the node: the reason is a log line and in the status,
//! and the next reload tries again.

use std::sync::{Arc, Mutex, PoisonError};

use intake::{Meter, MetricSnapshot, SnapshotValue};
use role::json::Json;
use role::settings::{Document, Problems, SettingsCheck};
use role::{BoxError, Role, RoleContext, StatusSection, run_blocking};

use crate::capture_status::CaptureStatus;
use crate::capture_thread::WireCapture;
use crate::settings::WireTables;

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
}

impl Role for WireRole {
    const NAME: &'static str = "wire";
    const KEYS: &'static [&'static str] = &["wire"];

    type Settings = WireTables;

    fn read(document: &Document<'_>) -> Result<WireTables, Problems> {
        document.read(Self::KEYS)
    }

    fn validate_settings(settings: &WireTables, check: &mut SettingsCheck<'_>) {
        settings.check(check);
    }

    /// The operations of an interval are in memory.
    fn buffers_in_memory(settings: &WireTables) -> bool {
        settings.is_enabled()
    }

    fn start(settings: &WireTables, context: &RoleContext) -> Result<WireRole, BoxError> {
        let mut role = WireRole {
            settings: settings.clone(),
            host: context.host.clone(),
            capture: None,
            status: None,
            measured: Arc::default(),
            line: None,
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
        let has_failed = settings.is_enabled() && self.capture.is_none();
        if is_same && !has_failed {
            return Ok(if has_tls_error { self.open_tls(context) } else { Vec::new() });
        }
        let mut lines = Vec::new();
        if let Some(capture) = self.capture.take()
            && let Err(error) = run_blocking(move || capture.stop()).await?
        {
            lines.push(format!("wire: {error}"));
        }
        self.settings = settings.clone();
        self.host = context.host.clone();
        self.start_capture(context);
        let stopped = || "wire: the capture has stopped".to_owned();
        lines.push(self.line.clone().unwrap_or_else(stopped));
        Ok(lines)
    }

    async fn stop(self) -> Result<(), BoxError> {
        let Some(capture) = self.capture else { return Ok(()) };
        Ok(run_blocking(move || capture.stop()).await??)
    }

    fn log_lines(&self) -> Vec<String> {
        self.line.iter().cloned().collect()
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
        self.try_start(context);
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = self.status.clone();
    }

    fn try_start(&mut self, context: &RoleContext) {
        let settings = match self.settings.settings(&self.host) {
            Ok(Some(settings)) => settings,
            Ok(None) => return,
            // The check of the settings reports the same.
            Err(what) => return self.fail(&[], format!("[wire]: {what}")),
        };
        match WireCapture::start(&settings, &context.intake) {
            Ok(capture) => {
                let interfaces = match settings.interfaces.is_empty() {
                    true => "all interfaces".to_owned(),
                    false => settings.interfaces.join(", "),
                };
                let ports = settings.ports().len();
                self.line = Some(format!("wire: capturing {ports} ports of {interfaces}"));
                self.status = Some(capture.status());
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
