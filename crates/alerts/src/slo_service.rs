//! Budgets of all SLOs, computed every minute by a thread, and reports on request. While a budget
//! is not known, as right after a start, all are computed more often.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use intake::{Intake, Meter, MetricSnapshot, SnapshotValue};
use journal::WallClock;
use query::{QueryContext, Settings, StoreSource};
use rules::slo::{BudgetStatus, EventReader, ReportRange, Slo, SloError, SloReport, SloSummary};
use store::Store;

use crate::silence_store::SilenceStore;
use crate::slo_maintenance::CorrectedSlo;

/// Time between two computations.
const INTERVAL: Duration = Duration::from_secs(60);
/// Time after the first one, if a budget is not known; it doubles up to [`INTERVAL`].
const UNKNOWN_INTERVAL: Duration = Duration::from_secs(1);

/// An SLO with its last result.
#[derive(Clone)]
pub(crate) struct SloStatus {
    pub(crate) slo: Arc<Slo>,
    /// `None` before the first computation.
    pub(crate) result: Option<Arc<Result<SloSummary, SloError>>>,
    /// Time of the last computation.
    pub(crate) computed_ns: Option<i64>,
}

#[derive(Default)]
struct ServiceState {
    slos: Vec<SloStatus>,
    /// Number of changes of the settings.
    changes: u64,
    is_stopping: bool,
}

/// Budgets of all SLOs. Clones share them.
#[derive(Clone)]
pub(crate) struct SloService {
    clock: WallClock,
    /// `None` on an agent.
    store: Option<Arc<Store>>,
    silences: Arc<SilenceStore>,
    state: Arc<(Mutex<ServiceState>, Condvar)>,
}

impl fmt::Debug for SloService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SloService").field("slos", &self.lock().slos.len()).finish_non_exhaustive()
    }
}

impl SloService {
    pub(crate) fn new(intake: &Intake, silences: Arc<SilenceStore>) -> SloService {
        let service = SloService {
            clock: intake.clock(),
            store: intake.write_target().store().cloned(),
            silences,
            state: Arc::default(),
        };
        service.register_metrics(intake.meter());
        service
    }

    /// Uses other SLOs. Those that are as before keep their result until the next one.
    pub(crate) fn set(&self, slos: Vec<Slo>) {
        let mut state = self.lock();
        let before = std::mem::take(&mut state.slos);
        let status = |slo: Slo| {
            let held = before.iter().find(|held| *held.slo == slo);
            held.cloned().unwrap_or_else(|| SloStatus {
                slo: Arc::new(slo),
                result: None,
                computed_ns: None,
            })
        };
        state.slos = slos.into_iter().map(status).collect();
        state.changes += 1;
        self.state.1.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
        self.state.1.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// All SLOs in the order of the settings.
    pub(crate) fn all(&self) -> Vec<SloStatus> {
        self.lock().slos.clone()
    }

    /// Whether the last computation of an SLO found events.
    pub(crate) fn has_events(&self, name: &str) -> bool {
        let state = self.lock();
        let status = state.slos.iter().find(|status| status.slo.name == name);
        let summary = status.and_then(SloStatus::summary);
        summary.is_some_and(|summary| summary.attained.is_some())
    }

    /// Current time.
    pub(crate) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// Computes the budgets until stopped.
    pub(crate) fn run(&self) {
        let (mut seen, mut unknown_wait) = (0, UNKNOWN_INTERVAL);
        while !self.is_stopping() {
            let slos = {
                let state = self.lock();
                if state.changes > seen {
                    (seen, unknown_wait) = (state.changes, UNKNOWN_INTERVAL);
                }
                state.slos.iter().map(|status| Arc::clone(&status.slo)).collect::<Vec<_>>()
            };
            for slo in slos {
                if self.is_stopping() {
                    return;
                }
                self.compute(&slo);
            }
            let mut wait = INTERVAL;
            match self.all().iter().all(SloStatus::is_known) {
                true => unknown_wait = UNKNOWN_INTERVAL,
                false => {
                    wait = unknown_wait;
                    unknown_wait = INTERVAL.min(2 * wait);
                }
            }
            let is_idle = |state: &mut ServiceState| !state.is_stopping && state.changes == seen;
            let waited = self.state.1.wait_timeout_while(self.lock(), wait, is_idle);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn compute(&self, slo: &Arc<Slo>) {
        let now_ns = (self.clock)();
        let corrected = self.corrected(slo, now_ns, now_ns);
        let result = self.read(&|| false, |reader| reader.summary(&corrected.slo, now_ns));
        // Cancelled reads say nothing about the data.
        let mut state = self.lock();
        if state.is_stopping {
            return;
        }
        let status = state.slos.iter_mut().find(|status| Arc::ptr_eq(&status.slo, slo));
        if let Some(status) = status {
            status.result = Some(Arc::new(result));
            status.computed_ns = Some(now_ns);
        }
    }

    /// An SLO with the maintenance windows that are taken out of its budget, from the begin of the
    /// period of a time to another time.
    pub(crate) fn corrected(&self, slo: &Slo, from_ns: i64, to_ns: i64) -> CorrectedSlo {
        let start_ns = slo.period.until(from_ns).start.min(from_ns);
        CorrectedSlo::new(slo, &self.silences.snapshot(), &(start_ns..to_ns))
    }

    /// Budget of an SLO with its history.
    pub(crate) fn report(
        &self,
        slo: &Slo,
        range: ReportRange,
        context: &dyn QueryContext,
    ) -> Result<SloReport, SloError> {
        self.read(context, |reader| reader.report(slo, range))
    }

    fn read<T>(
        &self,
        request: &dyn QueryContext,
        work: impl FnOnce(&EventReader<'_>) -> Result<T, SloError>,
    ) -> Result<T, SloError> {
        let store = self.store.as_ref();
        let store = store.ok_or_else(|| SloError::Store("an agent stores no data".to_owned()))?;
        let view = store.view().map_err(|error| SloError::Store(error.to_string()))?;
        let context = ServiceContext { service: self, request };
        let source = StoreSource::new(&view).with_context(&context);
        let settings = Settings::default();
        work(&EventReader { source: &source, settings: &settings, context: &context })
    }

    fn register_metrics(&self, meter: &Meter) {
        let state = Arc::clone(&self.state);
        meter.register_collector(move |all| {
            let slos = state.0.lock().unwrap_or_else(PoisonError::into_inner).slos.clone();
            for status in &slos {
                status.add_metrics(all);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, ServiceState> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Context of a request, which ends with the service, too.
struct ServiceContext<'a> {
    service: &'a SloService,
    request: &'a dyn QueryContext,
}

impl QueryContext for ServiceContext<'_> {
    fn is_cancelled(&self) -> bool {
        self.service.is_stopping() || self.request.is_cancelled()
    }

    fn reserve_memory(&self, bytes: u64) -> query::Result<()> {
        self.request.reserve_memory(bytes)
    }

    fn release_memory(&self, bytes: u64) {
        self.request.release_memory(bytes);
    }
}

impl SloStatus {
    /// The last budget, if it could be computed.
    pub(crate) fn summary(&self) -> Option<&SloSummary> {
        self.result.as_deref().and_then(|result| result.as_ref().ok())
    }

    /// Whether the budget is known: there were events, and they could be read.
    fn is_known(&self) -> bool {
        self.summary().is_some_and(|summary| summary.state != BudgetStatus::Unknown)
    }

    /// A budget that is unknown has no metric.
    fn add_metrics(&self, all: &mut Vec<MetricSnapshot>) {
        let mut add = |name, help, value: f64| {
            let labels = vec![("slo".to_owned(), self.slo.name.clone())];
            all.push(MetricSnapshot { name, help, labels, value: SnapshotValue::Gauge(value) });
        };
        let objective = self.slo.objective.share();
        add("topdeck_slo_objective_ratio", "Share of events that shall be good", objective);
        let Some(summary) = self.summary() else { return };
        let (help, bad) = ("Bad events of the current period", summary.events.bad.estimate);
        add("topdeck_slo_bad_events", help, bad);
        add("topdeck_slo_events", "Events of the current period", summary.events.total);
        let help = "Time of known gaps in the current period, in seconds";
        add("topdeck_slo_missing_seconds", help, summary.missing_ns as f64 / 1e9);
        if let Some(remaining) = summary.remaining {
            let help = "Share of the error budget that is left; negative if it is overspent";
            add("topdeck_slo_budget_remaining_ratio", help, remaining.estimate);
        }
    }
}
