//! The thread that looks for rules whose selectors had no data in the last day.

use std::sync::Arc;
use std::time::{Duration, Instant};

use intake::{Intake, LogFn, LogLevel};
use query::{Settings, StoreSource};
use rules::slo::SLO_ALERT_FILE;
use rules::{
    ProblemSeverity, RuleProblem, SourceEvaluator, UnmatchedSelector, unmatched_selectors,
};
use store::Store;

use crate::published_alerts::{PublishedAlerts, PublishedState};
use crate::rule_loader::rule_promql_options;
use crate::slo_service::SloService;
use crate::worker_control::WorkerControl;

/// What counts as the last day.
const RANGE_NS: i64 = 86_400 * 1_000_000_000;
/// How often the thread looks whether something is to be done.
const POLL: Duration = Duration::from_secs(1);
/// Time between two searches: short while a rule is without data, which may arrive at any time.
const INTERVAL: Duration = Duration::from_secs(600);
const INTERVAL_UNMATCHED: Duration = Duration::from_secs(10);
/// Time between two searches, in durations of the first: they take at most a twentieth of a CPU.
const PAUSE_FACTOR: u32 = 20;
/// Longest time for one rule.
const RULE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of warnings; there are as many if each rule has a misspelt name.
const WARNINGS_MAX: usize = 1000;

/// Looks for rules that select nothing.
pub(crate) struct UnmatchedRules {
    intake: Arc<Intake>,
    store: Arc<Store>,
    published: PublishedAlerts,
    slos: SloService,
    control: Arc<WorkerControl>,
    log: LogFn,
}

impl UnmatchedRules {
    pub(crate) fn new(
        intake: &Arc<Intake>,
        store: &Arc<Store>,
        published: &PublishedAlerts,
        slos: &SloService,
        control: &Arc<WorkerControl>,
        log: &LogFn,
    ) -> UnmatchedRules {
        UnmatchedRules {
            intake: Arc::clone(intake),
            store: Arc::clone(store),
            published: published.clone(),
            slos: slos.clone(),
            control: Arc::clone(control),
            log: Arc::clone(log),
        }
    }

    /// Searches until stopped: after the rules were replaced, and from time to time.
    pub(crate) fn run(&self) {
        let mut searched: Option<(u64, Instant)> = None;
        while !self.control.is_stopping() {
            let version = self.published.read().rules_version;
            let is_due =
                searched.is_none_or(|(seen, until)| seen != version || Instant::now() >= until);
            if is_due {
                let began = Instant::now();
                let pause = match self.search() {
                    Ok(0) => INTERVAL,
                    Ok(_) => INTERVAL_UNMATCHED,
                    Err(error) => {
                        let what = format!("cannot look for rules without data: {error}");
                        (self.log)(LogLevel::Warn, &what);
                        INTERVAL
                    }
                };
                let pause = pause.max(began.elapsed() * PAUSE_FACTOR);
                searched = Some((version, Instant::now() + pause));
            }
            self.control.wait_stopping(POLL);
        }
    }

    /// Looks at all rules of files. Returns the number of warnings.
    fn search(&self) -> store::Result<usize> {
        let view = self.store.view()?;
        let state = self.published.read();
        let now_ns = self.intake.now();
        let range = now_ns.saturating_sub(RANGE_NS)..now_ns;
        let settings = Settings::default();
        let mut warnings = Vec::new();
        let groups = state.groups.iter().map(|report| &report.group);
        for group in groups {
            // All rules of an SLO have its selectors.
            let is_slo = group.file() == SLO_ALERT_FILE;
            // There may be no bad event yet.
            if is_slo && self.slos.has_events(group.name()) {
                continue;
            }
            let rules = group.rules().iter().map(|rule| rule.rule());
            for rule in rules.take(if is_slo { 1 } else { usize::MAX }) {
                if self.control.is_stopping() || warnings.len() >= WARNINGS_MAX {
                    break;
                }
                let began = Instant::now();
                let is_over = || began.elapsed() > RULE_TIMEOUT || self.control.is_stopping();
                let source = StoreSource::new(&view).with_context(&is_over);
                let evaluator = SourceEvaluator {
                    source: &source,
                    settings: &settings,
                    options: rule_promql_options(),
                    context: &is_over,
                };
                // The health of the rule has the cause of a query that fails.
                let unmatched = unmatched_selectors(rule, &evaluator, &range).unwrap_or_default();
                let subject = match is_slo {
                    true => slo_subject(group.name()),
                    false => format!("rule {:?}", rule.name),
                };
                warnings.extend(unmatched.into_iter().map(|unmatched| RuleProblem {
                    file: group.file().to_owned(),
                    position: rule.position,
                    severity: ProblemSeverity::Warning,
                    message: warning(&subject, unmatched),
                }));
            }
        }
        let count = warnings.len();
        let is_changed = *state.unmatched_warnings != warnings;
        self.published.update(|current| {
            // Other rules were loaded in between.
            if current.rules_version == state.rules_version {
                current.unmatched_warnings = Arc::new(warnings);
            }
        });
        if is_changed {
            self.published.advance_revision();
        }
        Ok(count)
    }
}

fn warning(subject: &str, UnmatchedSelector { selector, hint }: UnmatchedSelector) -> String {
    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
    format!("{subject}{MATCHES_NOTHING}: no data in the last day for {selector}{hint}")
}

const MATCHES_NOTHING: &str = " matches nothing";

fn slo_subject(name: &str) -> String {
    format!("SLO {name:?}")
}

/// Warning of an SLO whose selectors had no data.
pub(crate) fn slo_warning(state: &PublishedState, slo: &str) -> Option<String> {
    let start = slo_subject(slo) + MATCHES_NOTHING;
    let warnings = state.unmatched_warnings.iter();
    let own = warnings.filter(|it| it.file == SLO_ALERT_FILE && it.message.starts_with(&start));
    let texts: Vec<&str> = own.map(|it| it.message.as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}
