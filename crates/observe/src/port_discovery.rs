//! Detection of ports while packets are captured: rules from the thread that looks at the sockets
//! of this host to the threads that capture.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use intake::{Intake, LogLevel};
use wire::{PortDetector, ServiceRule};

use crate::capture_status::CaptureStatus;

/// The latest rules. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct LatestRules(Arc<LatestRulesState>);

#[derive(Default)]
struct LatestRulesState {
    /// Number of the rules; 0 for those of the start.
    version: AtomicU64,
    rules: Mutex<Vec<ServiceRule>>,
}

impl fmt::Debug for LatestRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatestRules").field("version", &self.0.version).finish_non_exhaustive()
    }
}

impl LatestRules {
    fn set(&self, rules: Vec<ServiceRule>) {
        let mut latest = self.0.rules.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = rules;
        // Relaxed: the lock publishes the rules.
        self.0.version.fetch_add(1, Ordering::Relaxed);
    }

    /// The rules, if they are others than those of the version `seen`, which is updated.
    pub(crate) fn take_newer(&self, seen: &mut u64) -> Option<Vec<ServiceRule>> {
        if self.0.version.load(Ordering::Relaxed) == *seen {
            return None;
        }
        let latest = self.0.rules.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = self.0.version.load(Ordering::Relaxed);
        Some(latest.clone())
    }
}

/// What the thread that looks at the sockets needs.
pub(crate) struct PortDiscovery {
    pub(crate) detector: PortDetector,
    pub(crate) period: Duration,
    pub(crate) latest_rules: LatestRules,
    pub(crate) status: CaptureStatus,
    pub(crate) intake: Arc<Intake>,
}

impl PortDiscovery {
    /// Looks at the sockets until `stop` is set and the thread is unparked.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        loop {
            // It may end early, which does no harm.
            thread::park_timeout(self.period);
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let is_changed = self.detector.detect();
            let services = self.detector.services();
            self.status.set_ports(services.clone());
            if is_changed {
                (self.intake.settings().log)(LogLevel::Info, &format!("wire: {services}"));
                self.latest_rules.set(self.detector.rules().to_vec());
            }
        }
    }
}
