//! The thread that evaluates all groups, one after the other.
//!
//! An iteration: evaluate a copy of the group, store the states, submit notifications, append the
//! samples, publish. The states are durable before anything that follows from them leaves the node.
//! Ends of alerts are durable at the notifier before the next evaluation, which may forget them.
//! Between groups it makes the changes that requests and time demand.

mod acknowledgement;
mod alert_ends;
mod arrivals;
mod due_changes;
mod history_writer;
mod mirroring;
mod submission;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use intake::{EventCounter, Intake, LogFn, LogLevel};
use query::{LabelSet, Settings};
use rules::{
    Alert, EvaluatedGroup, EvaluatedRule, FilePosition, GroupDefaults, GroupSnapshot,
    IterationInputs, IterationResult, RuleGroup, RuleHealth, RuleProblem,
};
use store::Store;

use crate::alert_evidence::{EvidenceBudgets, UserLabels};
use crate::alert_history::AlertHistory;
use crate::arrival_index::ArrivalIndex;
use crate::group_metrics::GroupMetrics;
use crate::notifier_handle::NotifierHandle;
use crate::published_alerts::{
    GroupReport, PublishedAlerts, RouteContext, RuleThresholds, state_hash,
};
use crate::received_alerts::ReceivedAlerts;
use crate::sample_writer::SampleWriter;
use crate::settings::AlertTables;
use crate::silence_store::SilenceStore;
use crate::site_clearances::{MirroredClearances, SiteClearances};
use crate::state_file::StateFile;
use crate::store_evaluator::StoreEvaluator;
use crate::submitted_alerts::SubmittedAlerts;
use crate::submitted_received_alerts::SubmittedReceivedAlerts;
use crate::worker_control::{ReloadedRules, WorkerControl};
use alert_ends::SubmittedEnds;
use arrivals::ArrivalSchedule;
use history_writer::HistoryWriter;

/// Longest wait: the wall clock may be set.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// States that changed only by the time of their last evaluation are stored this often. After a
/// kill, `for` and `keep_firing_for` continue from the stored time.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// Group with its schedule.
struct ScheduledGroup {
    group: EvaluatedGroup,
    next_ns: i64,
    metrics: GroupMetrics,
    thresholds: RuleThresholds,
}

/// Evaluates rules.
pub(crate) struct RuleWorker {
    intake: Arc<Intake>,
    store: Arc<Store>,
    settings: AlertTables,
    /// Labels whose values are users, of the SLOs.
    user_labels: UserLabels,
    groups: Vec<ScheduledGroup>,
    /// States of groups that are gone, whose series are to be marked stale.
    retired: Vec<EvaluatedGroup>,
    writer: SampleWriter,
    states: StateFile,
    saved_at: Option<Instant>,
    save_error: Option<String>,
    dropped: EventCounter,
    published: PublishedAlerts,
    control: Arc<WorkerControl>,
    notifier: NotifierHandle,
    submitted: SubmittedAlerts,
    /// Time that may be spent on the evidence of notifications: impact and picture.
    evidence_budgets: EvidenceBudgets,
    submit_error: Option<String>,
    resolved_notifications: SubmittedEnds,
    received: Arc<ReceivedAlerts>,
    received_saved_at: Option<Instant>,
    received_error: Option<String>,
    submitted_received_alerts: SubmittedReceivedAlerts,
    /// Version of the alerts from outside that the notifier knows.
    submitted_version: Option<u64>,
    /// Whether the acknowledgements of a former primary site are removed.
    has_forgotten_primary: bool,
    /// Alerts that were ended by hand at the primary site.
    mirrored_clearances: MirroredClearances,
    history_writer: HistoryWriter,
    silences: Arc<SilenceStore>,
    /// Ids of those that were active when the worker last looked.
    active_silences: Vec<String>,
    /// Which rules read the series of which rows have arrived in the store.
    arrivals: ArrivalIndex,
    arrival_times: ArrivalSchedule,
    log: LogFn,
}

/// What a worker needs from the node.
pub(crate) struct WorkerParts {
    pub(crate) intake: Arc<Intake>,
    pub(crate) store: Arc<Store>,
    pub(crate) states: StateFile,
    pub(crate) published: PublishedAlerts,
    pub(crate) control: Arc<WorkerControl>,
    pub(crate) notifier: NotifierHandle,
    pub(crate) received: Arc<ReceivedAlerts>,
    pub(crate) silences: Arc<SilenceStore>,
    pub(crate) history: Arc<AlertHistory>,
    pub(crate) arrivals: ArrivalIndex,
    pub(crate) log: LogFn,
}

impl RuleWorker {
    /// Worker with the stored states.
    pub(crate) fn new(
        parts: WorkerParts,
        loaded: ReloadedRules,
        snapshots: Vec<GroupSnapshot>,
    ) -> RuleWorker {
        let WorkerParts { intake, store, states, published, control, notifier, .. } = parts;
        let WorkerParts { received, silences, history, arrivals, log, .. } = parts;
        let dropped = intake.meter().counter(
            "topdeck_rule_samples_dropped_total",
            "Samples of rules that were not stored",
            &[],
        );
        let mut worker = RuleWorker {
            writer: SampleWriter::new(Arc::clone(&intake)),
            history_writer: HistoryWriter::new(history, intake.meter()),
            settings: loaded.settings,
            user_labels: UserLabels::of(&loaded.rules.slos),
            groups: Vec::new(),
            retired: Vec::new(),
            saved_at: None,
            save_error: None,
            intake,
            store,
            states,
            dropped,
            published,
            control,
            notifier,
            submitted: SubmittedAlerts::default(),
            evidence_budgets: EvidenceBudgets::new(Instant::now()),
            submit_error: None,
            resolved_notifications: SubmittedEnds::default(),
            received,
            received_saved_at: None,
            received_error: None,
            submitted_received_alerts: SubmittedReceivedAlerts::default(),
            submitted_version: None,
            has_forgotten_primary: false,
            mirrored_clearances: MirroredClearances::default(),
            silences,
            active_silences: Vec::new(),
            arrivals,
            arrival_times: ArrivalSchedule::new(Instant::now()),
            log,
        };
        let mut by_key: HashMap<(String, String), GroupSnapshot> = snapshots
            .into_iter()
            .map(|snapshot| ((snapshot.file.clone(), snapshot.name.clone()), snapshot))
            .collect();
        for mut group in loaded.rules.groups() {
            if let Some(snapshot) = by_key.remove(&key(&group)) {
                group.restore(snapshot);
            }
            worker.schedule(group);
        }
        for ((file, name), snapshot) in by_key {
            let mut group = empty_group(file, name);
            group.restore(snapshot);
            worker.retired.push(group);
        }
        worker.mark_states_recorded();
        worker.list_stored_clearances();
        worker.publish_all(loaded.rules.problems().cloned().collect());
        worker.reset_arrivals();
        worker
    }

    /// Evaluates until stopped.
    pub(crate) fn run(&mut self) {
        self.submit_all();
        while !self.control.is_stopping() {
            self.retire_groups();
            self.apply_due_changes();
            let wait = self.time_to_next().into_iter().chain(self.time_to_change()).min();
            let reloaded = self.control.wait(wait);
            self.handle_requests();
            match reloaded {
                Some(reloaded) => self.apply(reloaded),
                None if self.control.is_stopping() => break,
                None => {
                    self.evaluate_due();
                    self.evaluate_arrived();
                }
            }
        }
        // Their clients wait; since the stop there are no new ones.
        self.handle_requests();
        self.save_states();
        self.save_received_states();
    }

    /// A standby may not have heard of the clearances before a restart.
    fn list_stored_clearances(&self) {
        let own = self.groups.iter().flat_map(|one| SiteClearances::of_group(&one.group));
        let received = self.received.alerts();
        let received = received.iter().filter_map(|alert| SiteClearances::of_received(alert));
        let (found, now_ns) = (own.chain(received), self.intake.now());
        self.published.update(|state| Arc::make_mut(&mut state.clearances).add(found, now_ns));
    }

    fn schedule(&mut self, group: EvaluatedGroup) {
        let next_ns =
            group.scheduled_time_before(self.intake.now()).saturating_add(group.interval_ns());
        let metrics = GroupMetrics::new(self.intake.meter(), &group);
        let thresholds = RuleThresholds::of(&group);
        self.groups.push(ScheduledGroup { group, next_ns, metrics, thresholds });
    }

    /// Time until the next evaluation; `None` without groups.
    fn time_to_next(&mut self) -> Option<Duration> {
        let now_ns = self.intake.now();
        for scheduled in &mut self.groups {
            // The clock was set back.
            let interval_ns = scheduled.group.interval_ns();
            if scheduled.next_ns.saturating_sub(now_ns) > interval_ns {
                let scheduled_ns = scheduled.group.scheduled_time_before(now_ns);
                scheduled.next_ns = scheduled_ns.saturating_add(interval_ns);
            }
        }
        let next_ns = self.groups.iter().map(|scheduled| scheduled.next_ns).min()?;
        let wait_ns = next_ns.saturating_sub(now_ns).max(0).unsigned_abs();
        let wait = Duration::from_nanos(wait_ns).min(WAIT_MAX);
        Some(self.time_to_arrivals().map_or(wait, |arrivals| arrivals.min(wait)))
    }

    fn evaluate_due(&mut self) {
        for at in 0..self.groups.len() {
            if self.control.is_stopping() {
                return;
            }
            let now_ns = self.intake.now();
            if self.groups[at].next_ns <= now_ns {
                self.handle_requests();
                let time_ns = self.groups[at].group.scheduled_time_before(now_ns);
                // First, so that neither an error nor a panic repeats at once.
                let interval_ns = self.groups[at].group.interval_ns();
                self.groups[at].next_ns = time_ns.saturating_add(interval_ns);
                self.evaluate(at, time_ns, None);
            }
        }
    }

    /// Evaluates a group: all of its rules, or those whose rows arrived. `None` if it could not.
    fn evaluate(
        &mut self,
        at: usize,
        time_ns: i64,
        arrived: Option<&BTreeSet<usize>>,
    ) -> Option<Arc<GroupReport>> {
        self.await_resolved_notifications();
        let before = &self.groups[at].group;
        let mut group = before.clone();
        let began = Instant::now();
        let evaluated = self.evaluate_group(&mut group, time_ns, arrived);
        let (result, durations) = evaluated?;
        // Its queries were cancelled: errors say nothing about the data.
        if self.control.is_stopping() {
            return None;
        }
        let duration = began.elapsed();
        let has_changed = state_hash(before) != state_hash(&group);
        log_changes(&self.log, before, &group);
        for warning in &result.warnings {
            let (file, name) = (group.file(), group.name());
            (self.log)(LogLevel::Warn, &format!("rule group {name:?} of {file}: {warning}"));
        }
        if has_other_selectors(before, &group) {
            self.arrivals.mark_outdated();
        }
        let scheduled = &mut self.groups[at];
        match arrived {
            None => scheduled.metrics.record(&group, result.missed_iterations, duration),
            Some(rules) => scheduled.metrics.record_arrival(rules.len(), duration),
        }
        scheduled.group = group.clone();
        if has_changed {
            self.append_group_history(at);
        }
        if has_changed || self.saved_at.is_none_or(|at| at.elapsed() >= SAVE_INTERVAL) {
            self.save_states();
        }
        self.enqueue_notifications(at);
        self.write(&group, &result);
        let rule_durations = group
            .rules()
            .iter()
            .map(|rule| durations.get(&rule.rule().expression).copied().unwrap_or_default())
            .collect();
        let thresholds = self.groups[at].thresholds.clone();
        let report = Arc::new(GroupReport { group, duration, rule_durations, thresholds });
        self.published.update(|state| state.groups[at] = Arc::clone(&report));
        if has_changed {
            self.published.advance_revision();
        }
        Some(report)
    }

    /// Evaluates a group over the store as it is now. `None` if the store cannot be read.
    fn evaluate_group(
        &self,
        group: &mut EvaluatedGroup,
        time_ns: i64,
        arrived: Option<&BTreeSet<usize>>,
    ) -> Option<(IterationResult, HashMap<String, Duration>)> {
        let view = match self.store.view() {
            Ok(view) => view,
            Err(error) => {
                (self.log)(LogLevel::Error, &format!("cannot evaluate rules: {error}"));
                return None;
            }
        };
        let settings = Settings::default();
        let evaluator = StoreEvaluator {
            view: &view,
            settings: &settings,
            control: &self.control,
            durations: RefCell::default(),
        };
        let inputs = IterationInputs {
            evaluator: &evaluator,
            templates: &self.settings.templates(),
            resend_delay_ns: self.settings.resend_delay_ns(),
        };
        let result = match arrived {
            None => group.evaluate(time_ns, &inputs),
            Some(rules) => group.evaluate_arrived(time_ns, &inputs, rules),
        };
        Some((result, evaluator.durations.into_inner()))
    }

    fn write(&self, group: &EvaluatedGroup, result: &IterationResult) {
        let outcome = self.writer.write(&result.writes);
        self.dropped.add(outcome.dropped);
        if let Some(cause) = outcome.cause {
            let (dropped, name, file) = (outcome.dropped, group.name(), group.file());
            let what = format!("cannot store {dropped} samples of rule group {name:?} of {file}");
            (self.log)(LogLevel::Warn, &format!("{what}: {cause}"));
        }
    }

    /// Stores the states of all groups. A failure is logged when its cause changes.
    fn save_states(&mut self) {
        let groups = self.groups.iter().map(|scheduled| &scheduled.group).chain(&self.retired);
        let snapshots: Vec<GroupSnapshot> = groups.map(EvaluatedGroup::snapshot).collect();
        let error = self.states.write(&snapshots).err().map(|error| error.to_string());
        self.saved_at = Some(Instant::now());
        if let Some(error) = error.as_ref().filter(|error| self.save_error.as_ref() != Some(error))
        {
            (self.log)(LogLevel::Error, error);
        }
        self.save_error = error;
    }

    /// Marks the series of groups that are gone stale.
    fn retire_groups(&mut self) {
        for mut group in std::mem::take(&mut self.retired) {
            let time_ns = self.intake.now();
            if let Some((result, _)) = self.evaluate_group(&mut group, time_ns, None) {
                self.write(&group, &result);
            }
        }
    }

    /// Uses other rules. Groups of the same file and name keep their states.
    fn apply(&mut self, reloaded: ReloadedRules) {
        self.await_resolved_notifications();
        self.settings = reloaded.settings;
        self.has_forgotten_primary = false;
        self.user_labels = UserLabels::of(&reloaded.rules.slos);
        let before = std::mem::take(&mut self.groups).into_iter();
        let before = before.map(|scheduled| (key(&scheduled.group), scheduled.group));
        let mut before = model::sort::map(before);
        for mut group in reloaded.rules.groups() {
            if let Some(before) = before.remove(&key(&group)) {
                group.reload(&before);
            }
            self.schedule(group);
        }
        for ((file, name), before) in before {
            let mut group = empty_group(file, name);
            group.reload(&before);
            self.retired.push(group);
        }
        self.record_all();
        self.publish_all(reloaded.rules.problems().cloned().collect());
        self.reset_arrivals();
        self.save_states();
        self.submit_all();
    }

    /// Publishes a group that changed without an evaluation.
    fn publish_snapshot(&self, at: usize) {
        let group = self.groups[at].group.clone();
        self.published.update(|state| {
            let before = GroupReport::clone(&state.groups[at]);
            state.groups[at] = Arc::new(GroupReport { group, ..before });
        });
    }

    fn publish_all(&self, problems: Vec<RuleProblem>) {
        let report = |scheduled: &ScheduledGroup| {
            Arc::new(GroupReport {
                group: scheduled.group.clone(),
                duration: Duration::ZERO,
                rule_durations: Vec::new(),
                thresholds: scheduled.thresholds.clone(),
            })
        };
        let groups = self.groups.iter().map(report).collect();
        let defaults = self.settings.group_defaults();
        self.published.update(|state| {
            state.defaults = defaults;
            state.groups = groups;
            state.problems = problems;
            state.rules_version += 1;
            state.unmatched_warnings = Arc::default();
            state.routes = Arc::new(RouteContext::new(&self.settings));
        });
        self.published.advance_revision();
    }
}

/// Whether a rule is known to read other series than before.
fn has_other_selectors(before: &EvaluatedGroup, after: &EvaluatedGroup) -> bool {
    let mut rules = before.rules().iter().zip(after.rules());
    rules.any(|(before, after)| !after.has_same_selectors(before))
}

fn key(group: &EvaluatedGroup) -> (String, String) {
    (group.file().to_owned(), group.name().to_owned())
}

/// Group without rules: all series of its state become stale.
fn empty_group(file: String, name: String) -> EvaluatedGroup {
    let group = RuleGroup {
        file,
        name,
        position: FilePosition { line: 1, column: 1 },
        interval_ns: None,
        query_offset_ns: None,
        limit: 0,
        rules: Vec::new(),
    };
    EvaluatedGroup::new(group, &GroupDefaults::default())
}

/// Logs each change of state: `alert Down{instance="a"}: pending -> firing, value 0`.
fn log_changes(log: &LogFn, before: &EvaluatedGroup, after: &EvaluatedGroup) {
    for (old, new) in before.rules().iter().zip(after.rules()) {
        let states = |rule: &EvaluatedRule| -> BTreeMap<LabelSet, (String, f64)> {
            let alerts = rule.alerts().alerts();
            model::sort::map(
                alerts.map(|(labels, alert)| (labels.clone(), (state_text(alert), alert.value))),
            )
        };
        let (old_states, new_states) = (states(old), states(new));
        let inactive = ("inactive".to_owned(), 0.0);
        let gone = old_states.keys().filter(|labels| !new_states.contains_key(*labels));
        for labels in new_states.keys().chain(gone) {
            let (old_state, _) = old_states.get(labels).unwrap_or(&inactive);
            let (new_state, value) = new_states.get(labels).unwrap_or(&inactive);
            if old_state != new_state {
                let line = format!("alert {labels}: {old_state} -> {new_state}, value {value}");
                log(LogLevel::Info, &line);
            }
        }
        if let (RuleHealth::Err(cause), is_new) = (new.health(), old.health() != new.health())
            && is_new
        {
            let (name, file, at) = (&new.rule().name, after.file(), new.rule().position);
            log(LogLevel::Warn, &format!("cannot evaluate rule {name:?} at {file}:{at}: {cause}"));
        }
    }
}

fn state_text(alert: &Alert) -> String {
    let state = alert.state.text();
    if alert.is_unknown() { format!("{state} (unknown)") } else { state.to_owned() }
}
