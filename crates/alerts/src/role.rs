//! The role: tables of the settings, its thread, the notifier, status and routes.

use std::sync::Arc;
use std::thread::JoinHandle;

use disk::OsDisk;
use intake::{LogFn, LogLevel, Meter};
use notify::{PictureLinks, SilenceState};
use role::json::Json::{self, Bool, Integer, List, Object, Text};
use role::json::integer;
use role::settings::{Document, Problems, SettingsCheck, SettingsCount};
use role::{
    BoxError, MetricThreshold, NodeMode, Role, RoleContext, Route, RouteError, RouteEvents,
    RouteQuery, RouteSpec, StatusSection, WriteRequest, WriteRoute, WriteRouteSpec, run_blocking,
};
use rules::slo::Indicator;
use rules::{AlertState, EvaluatedGroup, ProblemSeverity};
use store::Store;
use tokio::sync::watch;

use crate::alert_history::AlertHistory;
use crate::arrival_index::ArrivalIndex;
use crate::arrival_reader::{open_journal, read_arrivals};
use crate::delivery_api::SiteChanges;
use crate::error::AlertsError;
use crate::inventory_store::InventoryStore;
use crate::notifier_handle::{NotifierHandle, notifier_options, picture_links};
use crate::published_alerts::{PublishedAlerts, PublishedState};
use crate::received_alerts::ReceivedAlerts;
use crate::role_thread::spawn;
use crate::rule_loader::{self, RuleSet};
use crate::rule_worker::{RuleWorker, WorkerParts};
use crate::series_change_alerts::SeriesChangeAlerts;
use crate::series_watcher::{SeriesWatcher, WatchControl, WatcherDependencies};
use crate::settings::AlertTables;
use crate::silence_store::SilenceStore;
use crate::slo_service::{SloService, SloStatus};
use crate::standby::{StandbyControl, StandbySite};
use crate::state_file::StateFile;
use crate::unmatched_rules::UnmatchedRules;
use crate::worker_control::{ReloadedRules, WorkerControl};
use crate::{
    acknowledgement_api, alert_events, alert_list, alertmanager_api, alertmanager_silences,
    clearance_api, contact_api, delivery_api, history_api, notifier_status, picture_api,
    prometheus_api, silence_api, slo_api,
};

/// What changes of alerts are told on an agent.
const AGENT_ERROR: &str = "an agent has no alerts; send the request to the remote";

/// Evaluation of rules, and notification of contacts.
#[derive(Debug)]
pub struct AlertsRole {
    published: PublishedAlerts,
    control: Arc<WorkerControl>,
    notifier: NotifierHandle,
    slos: SloService,
    watch: Arc<WatchControl>,
    standby: StandbyControl,
    pictures: PictureLinks,
    /// None on an agent.
    threads: Vec<JoinHandle<()>>,
    lines: Vec<String>,
}

impl AlertsRole {
    fn spawn_threads(
        &mut self,
        mut worker: RuleWorker,
        mut watcher: SeriesWatcher,
        unmatched: UnmatchedRules,
        arrivals: ArrivalIndex,
        context: &RoleContext,
    ) -> Result<(), AlertsError> {
        let control = || Arc::clone(&self.control);
        let (rules_stopping, arrivals_stopping, search_stopping) =
            (control(), control(), control());
        let arrival_reader = arrival_reader(context, arrivals, &self.control);
        let (service, slos_stopping) = (self.slos.clone(), self.slos.clone());
        let watch_stopping = Arc::clone(&self.watch);
        let standby_stopping = self.standby.clone();
        let standby_site = StandbySite {
            control: self.standby.clone(),
            notifier: self.notifier.clone(),
            worker: control(),
            clock: context.intake.clock(),
            log: Arc::clone(&context.log),
        };
        let started = [
            spawn("alerts", context, move || rules_stopping.is_stopping(), move || worker.run()),
            spawn(
                "alerts-arrivals",
                context,
                move || arrivals_stopping.is_stopping(),
                arrival_reader,
            ),
            spawn("slos", context, move || slos_stopping.is_stopping(), move || service.run()),
            spawn("changes", context, move || watch_stopping.is_stopping(), move || watcher.run()),
            spawn(
                "unmatched-rules",
                context,
                move || search_stopping.is_stopping(),
                move || unmatched.run(),
            ),
            spawn(
                "alerts-standby",
                context,
                move || standby_stopping.is_stopping(),
                move || standby_site.run(),
            ),
        ];
        for thread in started {
            self.threads.push(thread?);
        }
        Ok(())
    }

    fn series_watcher(&self, store: &Arc<Store>, context: &RoleContext) -> SeriesWatcher {
        let (published, control) = (self.published.clone(), Arc::clone(&self.control));
        let on_change = Box::new(move || {
            control.wake();
            published.advance_revision();
        });
        SeriesWatcher::new(WatcherDependencies {
            intake: Arc::clone(&context.intake),
            store: Arc::clone(store),
            control: Arc::clone(&self.watch),
            file: InventoryStore::new(Arc::new(OsDisk), &context.data),
            alerts: SeriesChangeAlerts { received: self.published.shared_received(), on_change },
            log: Arc::clone(&context.log),
        })
    }

    /// Asks all threads to end.
    fn stop_threads(&self) {
        self.control.stop();
        self.slos.stop();
        self.watch.stop();
        self.standby.stop();
    }
}

impl Role for AlertsRole {
    const NAME: &'static str = "alerts";
    const KEYS: &'static [&'static str] = &[
        "alerts",
        "slo",
        "contact",
        "route",
        "inhibit",
        "time_interval",
        "rotation",
        "escalation",
        "alertmanager_config",
    ];
    const ROUTES: &'static [&'static RouteSpec] = &[
        &alert_list::ALERTS,
        &history_api::HISTORY,
        &alert_list::LIGHT,
        &prometheus_api::RULES,
        &prometheus_api::ALERTS,
        &silence_api::SILENCES,
        &alertmanager_api::ALERTS,
        &alertmanager_api::GROUPS,
        &alertmanager_api::RECEIVERS,
        &alertmanager_api::STATUS,
        &alertmanager_silences::SILENCES,
        &alertmanager_silences::SILENCE,
        &slo_api::SLOS,
        &slo_api::SLO,
        &contact_api::CONTACTS,
        &delivery_api::DELIVERIES,
        &picture_api::PICTURE,
    ];
    const WRITE_ROUTES: &'static [&'static WriteRouteSpec] = &[
        &acknowledgement_api::ACKNOWLEDGE,
        &acknowledgement_api::UNACKNOWLEDGE,
        &clearance_api::CLEAR,
        &silence_api::CREATE_SILENCE,
        &silence_api::EXPIRE_SILENCE,
        &alertmanager_api::POST_ALERTS,
        &alertmanager_silences::POST_SILENCE,
        &alertmanager_silences::DELETE_SILENCE,
    ];

    type Settings = AlertTables;

    fn read(document: &Document<'_>) -> Result<AlertTables, Problems> {
        AlertTables::read(document)
    }

    fn validate_settings(settings: &AlertTables, check: &mut SettingsCheck<'_>) {
        settings.check(check);
    }

    /// A node starts in spite of errors in rules: it evaluates the others. `topdeck check-config`,
    /// which gives no mode, reports them.
    fn validate_files(settings: &AlertTables, mode: Option<NodeMode>) -> Result<(), BoxError> {
        if mode == Some(NodeMode::Agent) && settings.patterns().next().is_some() {
            return Err(AlertsError::Agent.into());
        }
        if mode == Some(NodeMode::Agent) && settings.has_slos() {
            return Err(AlertsError::AgentSlos.into());
        }
        if mode == Some(NodeMode::Agent) && !settings.notify.contacts.is_empty() {
            return Err(AlertsError::AgentContacts.into());
        }
        settings.primary()?;
        let rules = RuleSet::load(settings)?;
        match mode {
            None => Ok(rules.check()?),
            Some(_) => Ok(()),
        }
    }

    fn summary(settings: &AlertTables) -> Vec<SettingsCount> {
        // A file that cannot be read is reported by `validate_files`.
        let rules = RuleSet::load(settings).unwrap_or_default();
        let count = |count, one, many| SettingsCount { count, one, many };
        vec![
            count(rules.file_rule_count(), "rule", "rules"),
            count(rules.slos.len(), "SLO", "SLOs"),
            count(settings.notify.contacts.len(), "contact", "contacts"),
        ]
    }

    fn warnings(settings: &AlertTables) -> Vec<String> {
        rule_loader::warnings(settings)
    }

    fn start(settings: &AlertTables, context: &RoleContext) -> Result<AlertsRole, BoxError> {
        let intake = &context.intake;
        let control = Arc::new(WorkerControl::default());
        let notifier = NotifierHandle::default();
        let mut lines = Vec::new();
        let published = open_published(context, &control, &notifier, &mut lines);
        register_metrics(intake.meter(), &published);
        notifier_status::register_metrics(intake.meter(), &notifier);
        let slos = SloService::new(intake, published.shared_silences());
        let watch = Arc::new(WatchControl::default());
        watch.register_metrics(intake.meter());
        let standby = StandbyControl::new(settings.primary()?);
        let (pictures, threads) = (picture_links(settings, context), Vec::new());
        let mut role = AlertsRole {
            published,
            control,
            notifier,
            slos,
            watch,
            standby,
            pictures,
            threads,
            lines,
        };
        let Some(store) = intake.write_target().store() else {
            role.published.update(|state| state.is_agent = true);
            return Ok(role);
        };
        let rules = RuleSet::load(settings)?;
        log_problems(&rules, &context.log);
        role.lines.extend_from_slice(&settings.notify.unused);
        let states = StateFile::new(&context.data);
        let snapshots = states.read().unwrap_or_else(|error| {
            let kept = states.set_aside();
            let kept =
                kept.map_or_else(String::new, |path| format!(", kept as {}", path.display()));
            let what = format!("{error}{kept}; all alerts begin anew");
            (context.log)(LogLevel::Error, &what);
            role.lines.push(what);
            Vec::new()
        });
        role.notifier.apply(settings.notify.clone(), notifier_options(settings, context))?;
        let arrivals = ArrivalIndex::new(Arc::clone(&role.control));
        let parts = WorkerParts {
            intake: Arc::clone(intake),
            store: Arc::clone(store),
            states,
            published: role.published.clone(),
            control: Arc::clone(&role.control),
            notifier: role.notifier.clone(),
            received: role.published.shared_received(),
            silences: role.published.shared_silences(),
            history: role.published.shared_history(),
            arrivals: arrivals.clone(),
            log: Arc::clone(&context.log),
        };
        role.slos.set(rules.slos.clone());
        let loaded = ReloadedRules { settings: settings.clone(), rules };
        let worker = RuleWorker::new(parts, loaded, snapshots);
        role.watch.severity.set(settings.series_change_severity());
        let watcher = role.series_watcher(store, context);
        let log = &context.log;
        let unmatched =
            UnmatchedRules::new(intake, store, &role.published, &role.slos, &role.control, log);
        match role.spawn_threads(worker, watcher, unmatched, arrivals, context) {
            Ok(()) => Ok(role),
            Err(error) => {
                role.stop_threads();
                Err(error.into())
            }
        }
    }

    async fn reload(
        &mut self,
        settings: &AlertTables,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        if self.threads.is_empty() {
            return Ok(Vec::new());
        }
        // Files may have changed under the same names.
        let rules = RuleSet::load(settings)?;
        log_problems(&rules, &context.log);
        let mut lines = Vec::new();
        if rules.rule_count() > 0 {
            lines.push(format!("{} rules loaded", rules.rule_count()));
        }
        lines.extend_from_slice(&settings.notify.unused);
        let (notifier, notify) = (self.notifier.clone(), settings.notify.clone());
        let options = notifier_options(settings, context);
        let primary = settings.primary()?;
        // It waits for messages under way.
        run_blocking(move || notifier.apply(notify, options)).await??;
        self.standby.set(primary);
        self.slos.set(rules.slos.clone());
        self.watch.severity.set(settings.series_change_severity());
        self.control.reload(ReloadedRules { settings: settings.clone(), rules });
        Ok(lines)
    }

    async fn stop(self) -> Result<(), BoxError> {
        self.stop_threads();
        let (threads, notifier) = (self.threads, self.notifier);
        let stop = move || {
            for thread in threads {
                // The supervisor has reported a panic.
                let _ = thread.join();
            }
            notifier.stop();
        };
        Ok(run_blocking(stop).await?)
    }

    fn log_lines(&self) -> Vec<String> {
        self.lines.clone()
    }

    fn status(&self) -> Vec<StatusSection> {
        let published = self.published.clone();
        let notifier = self.notifier.clone();
        let standby = self.standby.clone();
        let notifications =
            move || notifier_status::status_json(notifier.status().as_ref(), standby.status_json());
        vec![
            StatusSection::new("alerts", move || status_json(&published)),
            StatusSection::new("notifications", notifications),
        ]
    }

    fn thresholds(&self) -> Vec<MetricThreshold> {
        let of = |status: SloStatus| {
            let Indicator::Threshold { threshold, .. } = &status.slo.indicator else { return None };
            let (metric, labels) = status.slo.judged_metric()?;
            let (limit, slo) = (threshold.clone(), status.slo.name.clone());
            let user_label = status.slo.user_label.clone();
            let bad_share = status.slo.objective.budget();
            Some(MetricThreshold { metric, labels, limit, bad_share, slo, user_label })
        };
        self.slos.all().into_iter().filter_map(of).collect()
    }

    fn routes(&self) -> Vec<Route> {
        let published = || self.published.clone();
        let (list, waiting, light, rules, alerts) =
            (published(), published(), published(), published(), published());
        let (silences, silence) = (published(), published());
        let (events, following, history) = (published(), published(), published());
        let started_ns = self.published.now_ns();
        let of_state =
            |spec, answer: fn(&PublishedState, &RouteQuery) -> Result<Json, RouteError>| {
                let published = self.published.clone();
                Route::new(spec, move |query| answer(&published.read(), query))
            };
        let (notifier, told) = (self.notifier.clone(), self.notifier.clone());
        let (changed, pictured, pictures) = (published(), published(), self.pictures.clone());
        let (slos, slo) = ((self.slos.clone(), published()), (self.slos.clone(), published()));
        vec![
            Route::new(&alert_list::ALERTS, move |query| alert_list::alerts(&list, query))
                .with_wait(move |query| alert_list::wait(&waiting, query))
                .with_events(RouteEvents::new(
                    move |query, after| alert_events::events(&events, query, after),
                    move |revision| following.changed_since(revision),
                )),
            Route::new(&history_api::HISTORY, move |query| history_api::history(&history, query)),
            Route::new(&alert_list::LIGHT, move |_| Ok(alert_list::light(&light.read()))),
            Route::new(&prometheus_api::RULES, move |query| {
                prometheus_api::rules(&rules.read(), query)
            }),
            Route::new(&prometheus_api::ALERTS, move |_| {
                Ok(prometheus_api::alerts(&alerts.read()))
            }),
            Route::new(&silence_api::SILENCES, move |query| silence_api::list(&silences, query)),
            of_state(&alertmanager_api::ALERTS, alertmanager_api::alerts),
            of_state(&alertmanager_api::GROUPS, alertmanager_api::groups),
            of_state(&alertmanager_api::RECEIVERS, |state, _| {
                Ok(alertmanager_api::receivers(state))
            }),
            Route::new(&alertmanager_api::STATUS, move |_| {
                Ok(alertmanager_api::status(started_ns))
            }),
            of_state(&alertmanager_silences::SILENCES, alertmanager_silences::silences),
            Route::new(&alertmanager_silences::SILENCE, move |query| {
                alertmanager_silences::silence(&silence, query)
            }),
            Route::new(&slo_api::SLOS, move |_| Ok(slo_api::slos(&slos.0, &slos.1))),
            Route::with_context(&slo_api::SLO, move |query, context| {
                slo_api::slo(&slo.0, &slo.1, query, context)
            }),
            Route::new(&contact_api::CONTACTS, move |_| {
                Ok(contact_api::contacts(told.status().as_ref()))
            }),
            Route::new(&delivery_api::DELIVERIES, move |query| {
                let changes = || SiteChanges::of_site(&changed.read());
                delivery_api::deliveries(&notifier, changes, started_ns, query)
            }),
            Route::of_pictures(&picture_api::PICTURE, move |query| {
                picture_api::picture(&pictures, pictured.now_ns(), query)
            }),
        ]
    }

    fn write_routes(&self) -> Vec<WriteRoute> {
        let route = |spec, change: WriteFn| {
            let (published, control) = (self.published.clone(), Arc::clone(&self.control));
            let is_agent = self.threads.is_empty();
            WriteRoute::new(spec, move |request| match is_agent {
                true => Err(RouteError::NotFound(AGENT_ERROR.to_owned())),
                false => change(&published, &control, request),
            })
        };
        vec![
            route(&acknowledgement_api::ACKNOWLEDGE, |published, control, request| {
                acknowledgement_api::acknowledge(control, request, published.now_ns())
            }),
            route(&acknowledgement_api::UNACKNOWLEDGE, |_, control, request| {
                acknowledgement_api::unacknowledge(control, request)
            }),
            route(&clearance_api::CLEAR, |published, control, request| {
                clearance_api::clear(control, request, published.now_ns())
            }),
            route(&silence_api::CREATE_SILENCE, |published, _, request| {
                silence_api::create(published.silence_store(), request, published.now_ns())
            }),
            route(&silence_api::EXPIRE_SILENCE, |published, _, request| {
                silence_api::expire(published.silence_store(), request, published.now_ns())
            }),
            route(&alertmanager_api::POST_ALERTS, alertmanager_api::post_alerts),
            route(&alertmanager_silences::POST_SILENCE, |published, _, request| {
                alertmanager_silences::post_silence(
                    published.silence_store(),
                    request,
                    published.now_ns(),
                )
            }),
            route(&alertmanager_silences::DELETE_SILENCE, |published, _, request| {
                alertmanager_silences::delete_silence(
                    published.silence_store(),
                    request,
                    published.now_ns(),
                )
            }),
        ]
    }
}

/// Handles a request that changes something.
type WriteFn = fn(&PublishedAlerts, &WorkerControl, &WriteRequest) -> Result<Json, RouteError>;

/// Published state with the stored silences and alerts from outside; damage is logged.
fn open_published(
    context: &RoleContext,
    control: &Arc<WorkerControl>,
    notifier: &NotifierHandle,
    lines: &mut Vec<String>,
) -> PublishedAlerts {
    let clock = context.intake.clock();
    let now_ns = clock();
    // Milliseconds: another revision than before the restart.
    let revision = watch::Sender::new(u64::try_from(now_ns / 1_000_000).unwrap_or(0));
    let (changes, woken, told) = (revision.clone(), Arc::clone(control), notifier.clone());
    let on_change = move |silences| {
        told.set_silences(silences);
        changes.send_modify(|revision| *revision += 1);
        woken.wake();
    };
    let (silences, problem) = SilenceStore::open(Arc::new(OsDisk), &context.data, on_change);
    notifier.set_silences(silences.snapshot());
    let (received, other) = ReceivedAlerts::open(Arc::new(OsDisk), &context.data, now_ns);
    let (history, third) = AlertHistory::open(Arc::new(OsDisk), &context.data);
    for what in problem.into_iter().chain(other).chain(third) {
        (context.log)(LogLevel::Error, &what);
        lines.push(what);
    }
    PublishedAlerts::new(revision, Arc::new(silences), Arc::new(received), Arc::new(history), clock)
}

/// Notes which series got rows. After an error of the journal rules are evaluated on schedule only,
/// and the log says so.
fn arrival_reader(
    context: &RoleContext,
    arrivals: ArrivalIndex,
    control: &Arc<WorkerControl>,
) -> impl FnMut() + Send + 'static {
    let (intake, log) = (Arc::clone(&context.intake), Arc::clone(&context.log));
    let control = Arc::clone(control);
    // Before any source starts. An error is reported by the thread, which tries again.
    let mut first = open_journal(&intake).ok();
    move || {
        if let Err(error) = read_arrivals(first.take(), &intake, &arrivals, &control) {
            let what = "cannot read the journal; own rules are evaluated on schedule only";
            log(LogLevel::Error, &format!("{what}: {error}"));
        }
    }
}

fn log_problems(rules: &RuleSet, log: &LogFn) {
    for problem in rules.problems() {
        let level = match problem.severity {
            ProblemSeverity::Error => LogLevel::Error,
            ProblemSeverity::Warning => LogLevel::Warn,
        };
        log(level, &problem.to_string());
    }
}

fn register_metrics(meter: &Meter, published: &PublishedAlerts) {
    for wanted in [AlertState::Pending, AlertState::Firing] {
        let published = published.clone();
        let labels = [("alertstate", wanted.text())];
        meter.gauge("topdeck_alerts", "Pending and firing alerts", &labels, move || {
            let state = published.read();
            let own = state.active_alerts().filter(|active| active.alert.state == wanted).count();
            let received = state.firing_received().filter(|_| wanted == AlertState::Firing);
            (own + received.count()) as f64
        });
    }
    for wanted in [SilenceState::Active, SilenceState::Pending, SilenceState::Expired] {
        let published = published.clone();
        let labels = [("state", wanted.name())];
        meter.gauge("topdeck_silences", "Silences", &labels, move || {
            let state = published.read();
            let silences = state.silences.as_slice().iter();
            silences.filter(|silence| silence.state(state.now_ns) == wanted).count() as f64
        });
    }
}

fn status_json(published: &PublishedAlerts) -> role::json::Json {
    let state = published.read();
    let count = |wanted| {
        let matching = state.active_alerts().filter(|active| active.alert.state == wanted);
        integer(matching.count() as u64)
    };
    let groups = || state.groups.iter().map(|report| &report.group);
    let problems = state.problems.iter().map(|problem| Text(problem.to_string())).collect();
    Object(vec![
        ("is_evaluating", Bool(!state.is_agent)),
        ("evaluation_interval_ns", Integer(state.defaults.interval_ns.into())),
        ("query_offset_ns", Integer(state.defaults.query_offset_ns.into())),
        ("groups", integer(state.groups.len() as u64)),
        ("rules", integer(state.rules().count() as u64)),
        ("failing_rules", integer(state.failing_rules() as u64)),
        ("missed_iterations", integer(groups().map(EvaluatedGroup::missed_iterations).sum())),
        ("pending", count(AlertState::Pending)),
        ("firing", count(AlertState::Firing)),
        ("received", integer(state.firing_received().count() as u64)),
        ("active_silences", integer(state.silences.active(state.now_ns).ids().count() as u64)),
        ("light", Text(state.light().to_string())),
        ("problems", List(problems)),
        ("unmatched", alert_list::unmatched_warnings_json(&state)),
    ])
}
