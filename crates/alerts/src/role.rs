//! The role: tables of the settings, its thread, the notifier, status and routes.

use std::sync::Arc;
use std::thread::JoinHandle;

use disk::OsDisk;
use intake::{LogLevel, Meter};
use journal::wall_clock;
use notify::{LogLimits, NotifierOptions};
use role::json::Json::{Bool, List, Object, Text};
use role::json::integer;
use role::settings::{Document, Problems, SettingsCheck, SettingsCount};
use role::{BoxError, NodeMode, Role, RoleContext, Route, RouteSpec, StatusSection, run_blocking};
use rules::{AlertState, EvaluatedGroup};

use crate::alert_board::AlertBoard;
use crate::error::AlertsError;
use crate::notifier_handle::NotifierHandle;
use crate::rule_loader::RuleSet;
use crate::rule_worker::{RuleWorker, WorkerParts};
use crate::settings::AlertTables;
use crate::state_file::StateFile;
use crate::worker_control::{ReloadedRules, WorkerControl};
use crate::{alert_list, notifier_status, prometheus_api};

/// Name of the directory of deliveries in the data directory.
const DELIVERIES_NAME: &str = "notifications";

/// Evaluation of rules, and notification of contacts.
#[derive(Debug)]
pub struct AlertsRole {
    board: AlertBoard,
    control: Arc<WorkerControl>,
    notifier: NotifierHandle,
    /// `None` on an agent.
    thread: Option<JoinHandle<()>>,
    lines: Vec<String>,
}

impl Role for AlertsRole {
    const NAME: &'static str = "alerts";
    const KEYS: &'static [&'static str] = &[
        "alerts",
        "contact",
        "route",
        "inhibit",
        "time_interval",
        "rotation",
        "escalation",
        "alertmanager_config",
    ];
    const ROUTES: &'static [&'static RouteSpec] =
        &[&alert_list::ALERTS, &alert_list::LIGHT, &prometheus_api::RULES, &prometheus_api::ALERTS];

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
        if mode == Some(NodeMode::Agent) && !settings.notify.contacts.is_empty() {
            return Err(AlertsError::AgentContacts.into());
        }
        let rules = RuleSet::load(settings)?;
        match mode {
            None => Ok(rules.check()?),
            Some(_) => Ok(()),
        }
    }

    fn summary(settings: &AlertTables) -> Vec<SettingsCount> {
        // A file that cannot be read is reported by `validate_files`.
        let count = RuleSet::load(settings).map_or(0, |rules| rules.rule_count());
        let contacts = settings.notify.contacts.len();
        vec![
            SettingsCount { count, one: "rule", many: "rules" },
            SettingsCount { count: contacts, one: "contact", many: "contacts" },
        ]
    }

    fn start(settings: &AlertTables, context: &RoleContext) -> Result<AlertsRole, BoxError> {
        let intake = &context.intake;
        // Milliseconds: another revision than before the restart.
        let board = AlertBoard::new(u64::try_from(intake.now() / 1_000_000).unwrap_or(0));
        register_metrics(intake.meter(), &board);
        let control = Arc::new(WorkerControl::default());
        let notifier = NotifierHandle::default();
        notifier_status::register_metrics(intake.meter(), &notifier);
        let Some(store) = intake.write_target().store() else {
            board.update(|state| state.is_agent = true);
            return Ok(AlertsRole { board, control, notifier, thread: None, lines: Vec::new() });
        };
        let rules = RuleSet::load(settings)?;
        let mut lines = problem_lines(&rules);
        lines.extend_from_slice(&settings.notify.unused);
        let states = StateFile::new(&context.data);
        let snapshots = states.read().unwrap_or_else(|error| {
            let kept = states.set_aside();
            let kept =
                kept.map_or_else(String::new, |path| format!(", kept as {}", path.display()));
            let what = format!("{error}{kept}; all alerts begin anew");
            (context.log)(LogLevel::Error, &what);
            lines.push(what);
            Vec::new()
        });
        notifier.apply(settings.notify.clone(), notifier_options(settings, context))?;
        let parts = WorkerParts {
            intake: Arc::clone(intake),
            store: Arc::clone(store),
            states,
            board: board.clone(),
            control: Arc::clone(&control),
            notifier: notifier.clone(),
            log: Arc::clone(&context.log),
        };
        let loaded = ReloadedRules { settings: settings.clone(), rules };
        let mut worker = RuleWorker::new(parts, loaded, snapshots);
        let supervised = intake.supervisor().thread("alerts");
        let own = Arc::clone(&control);
        let run = move || {
            let _ = supervised.run(
                || own.is_stopping(),
                || {
                    supervised.failpoint();
                    worker.run();
                },
            );
        };
        let thread = std::thread::Builder::new().name("alerts".to_owned()).spawn(run);
        let thread = Some(thread.map_err(AlertsError::Thread)?);
        Ok(AlertsRole { board, control, notifier, thread, lines })
    }

    async fn reload(
        &mut self,
        settings: &AlertTables,
        context: &RoleContext,
    ) -> Result<Vec<String>, BoxError> {
        if self.thread.is_none() {
            return Ok(Vec::new());
        }
        // Files may have changed under the same names.
        let rules = RuleSet::load(settings)?;
        let mut lines = problem_lines(&rules);
        if rules.rule_count() > 0 {
            lines.push(format!("{} rules loaded", rules.rule_count()));
        }
        lines.extend_from_slice(&settings.notify.unused);
        let (notifier, notify) = (self.notifier.clone(), settings.notify.clone());
        let options = notifier_options(settings, context);
        // It waits for messages under way.
        run_blocking(move || notifier.apply(notify, options)).await??;
        self.control.reload(ReloadedRules { settings: settings.clone(), rules });
        Ok(lines)
    }

    async fn stop(self) -> Result<(), BoxError> {
        self.control.stop();
        let (thread, notifier) = (self.thread, self.notifier);
        run_blocking(move || {
            // The supervisor has reported a panic.
            let _ = thread.map(JoinHandle::join);
            notifier.stop();
        })
        .await
    }

    fn log_lines(&self) -> Vec<String> {
        self.lines.clone()
    }

    fn status(&self) -> Vec<StatusSection> {
        let board = self.board.clone();
        let notifier = self.notifier.clone();
        let notifications = move || notifier_status::status_json(notifier.status().as_ref());
        vec![
            StatusSection::new("alerts", move || status_json(&board)),
            StatusSection::new("notifications", notifications),
        ]
    }

    fn routes(&self) -> Vec<Route> {
        let board = || self.board.clone();
        let (list, waiting, light, rules, alerts) = (board(), board(), board(), board(), board());
        vec![
            Route::new(&alert_list::ALERTS, move |query| alert_list::alerts(&list, query))
                .with_wait(move |query| alert_list::wait(&waiting, query)),
            Route::new(&alert_list::LIGHT, move |_| Ok(alert_list::light(&light.read()))),
            Route::new(&prometheus_api::RULES, move |query| {
                prometheus_api::rules(&rules.read(), query)
            }),
            Route::new(&prometheus_api::ALERTS, move |_| {
                Ok(prometheus_api::alerts(&alerts.read()))
            }),
        ]
    }
}

fn notifier_options(settings: &AlertTables, context: &RoleContext) -> NotifierOptions {
    NotifierOptions {
        disk: Arc::new(OsDisk),
        dir: context.data.join(DELIVERIES_NAME),
        folder: settings.folder.clone(),
        clock: wall_clock(),
        supervisor: context.intake.supervisor().clone(),
        log: Arc::clone(&context.log),
        tls: Default::default(),
        limits: LogLimits::default(),
    }
}

fn problem_lines(rules: &RuleSet) -> Vec<String> {
    rules.problems().map(ToString::to_string).collect()
}

fn register_metrics(meter: &Meter, board: &AlertBoard) {
    for wanted in [AlertState::Pending, AlertState::Firing] {
        let board = board.clone();
        let labels = [("alertstate", wanted.text())];
        meter.gauge("topdeck_alerts", "Pending and firing alerts", &labels, move || {
            let state = board.read();
            state.active_alerts().filter(|active| active.alert.state == wanted).count() as f64
        });
    }
}

fn status_json(board: &AlertBoard) -> role::json::Json {
    let state = board.read();
    let count = |wanted| {
        let matching = state.active_alerts().filter(|active| active.alert.state == wanted);
        integer(matching.count() as u64)
    };
    let groups = || state.groups.iter().map(|report| &report.group);
    let problems = state.problems.iter().map(|problem| Text(problem.to_string())).collect();
    Object(vec![
        ("is_evaluating", Bool(!state.is_agent)),
        ("groups", integer(state.groups.len() as u64)),
        ("rules", integer(state.rules().count() as u64)),
        ("failing_rules", integer(state.failing_rules() as u64)),
        ("missed_iterations", integer(groups().map(EvaluatedGroup::missed_iterations).sum())),
        ("pending", count(AlertState::Pending)),
        ("firing", count(AlertState::Firing)),
        ("light", Text(state.light().to_string())),
        ("problems", List(problems)),
    ])
}
