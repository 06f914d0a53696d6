//! Whether the settings were read again: for status, metrics and the status of Prometheus.

use std::sync::{Arc, Mutex, PoisonError};

use intake::Intake;

use crate::json::Json::{self, Integer, Null, Object, Text};

/// The last reload of the settings.
#[derive(Clone, Debug)]
pub(crate) struct ConfigReload {
    /// Start, or the last reload that succeeded.
    pub(crate) succeeded_at_ns: i64,
    /// Why the last reload failed.
    pub(crate) error: Option<String>,
}

/// The same, shared with the metrics.
#[derive(Clone, Debug)]
pub(crate) struct SharedConfigReload(Arc<Mutex<ConfigReload>>);

impl SharedConfigReload {
    /// Settings that were read at the start; registers the metrics.
    pub(crate) fn new(intake: &Intake) -> SharedConfigReload {
        let first = ConfigReload { succeeded_at_ns: intake.now(), error: None };
        let shared = SharedConfigReload(Arc::new(Mutex::new(first)));
        let of = shared.clone();
        intake.meter().gauge(
            "topdeck_config_last_reload_successful",
            "Whether the last reload of the settings (SIGHUP) succeeded: 1 or 0",
            &[],
            move || f64::from(u8::from(of.get().error.is_none())),
        );
        let of = shared.clone();
        intake.meter().gauge(
            "topdeck_config_last_reload_success_timestamp_seconds",
            "Time of the last reload of the settings that succeeded, or of the start",
            &[],
            move || of.get().succeeded_at_ns as f64 / 1e9,
        );
        shared
    }

    pub(crate) fn set(&self, now_ns: i64, outcome: Result<(), String>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) => *last = ConfigReload { succeeded_at_ns: now_ns, error: None },
            Err(error) => last.error = Some(error),
        }
    }

    pub(crate) fn get(&self) -> ConfigReload {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Field `config` of the status.
    pub(crate) fn json(&self) -> Json {
        let ConfigReload { succeeded_at_ns, error } = self.get();
        Object(vec![
            ("loaded_ns", Integer(succeeded_at_ns.into())),
            ("error", error.map_or(Null, Text)),
        ])
    }
}
