//! Published state of rules, alerts and silences: what HTTP, status and metrics read.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use journal::WallClock;
use notify::{ActiveSilences, RoutingTree, SilenceSet};
use query::LabelSet;
use rules::{
    Alert, AlertState, EvaluatedGroup, EvaluatedRule, GroupDefaults, ProblemSeverity, RuleHealth,
    RuleProblem, RuleThreshold,
};
use tokio::sync::watch;

use crate::alert_history::AlertHistory;
use crate::alert_notification::alert_severity;
use crate::alert_selection::rule_alert_labels;
use crate::received_alerts::{ReceivedAlert, ReceivedAlerts};
use crate::settings::AlertTables;
use crate::silence_store::SilenceStore;
use crate::site_clearances::SiteClearances;

/// Severity from which an alert needs nobody: that of `info` and `none` in Prometheus' mixins.
const QUIET_SEVERITY_MIN: u8 = 4;

/// A group after its last evaluation.
#[derive(Clone, Debug)]
pub(crate) struct GroupReport {
    pub(crate) group: EvaluatedGroup,
    /// Duration of the last evaluation; zero before the first one.
    pub(crate) duration: Duration,
    /// Duration of the queries of each rule.
    pub(crate) rule_durations: Vec<Duration>,
    /// Threshold of a distribution that each rule contains.
    pub(crate) thresholds: RuleThresholds,
}

/// Threshold of a distribution that each rule of a group names, found once.
#[derive(Clone, Debug)]
pub(crate) struct RuleThresholds(Arc<Vec<Option<RuleThreshold>>>);

impl RuleThresholds {
    pub(crate) fn of(group: &EvaluatedGroup) -> RuleThresholds {
        let of = |rule: &EvaluatedRule| RuleThreshold::of_rule(rule.rule());
        RuleThresholds(Arc::new(group.rules().iter().map(of).collect()))
    }

    /// That of a rule by its position.
    pub(crate) fn get(&self, index: usize) -> Option<&RuleThreshold> {
        self.0.get(index)?.as_ref()
    }
}

/// Where alerts go.
#[derive(Debug, Default)]
pub(crate) struct RouteContext {
    pub(crate) tree: RoutingTree,
    /// Names of contacts, rotations and escalations.
    pub(crate) receivers: Vec<String>,
    /// URL under which users reach this node; empty if it is not set.
    pub(crate) external_url: String,
}

impl RouteContext {
    pub(crate) fn new(settings: &AlertTables) -> RouteContext {
        let notify = &settings.notify;
        let contacts = notify.contacts.iter().map(|contact| &contact.name);
        let rotations = notify.rotations.iter().map(|rotation| &rotation.name);
        let escalations = notify.escalations.iter().map(|escalation| &escalation.name);
        RouteContext {
            tree: notify.routing.clone(),
            receivers: contacts.chain(rotations).chain(escalations).cloned().collect(),
            external_url: settings.templates().external_url,
        }
    }
}

/// Everything published at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct PublishedState {
    /// Groups in the order of the files.
    pub(crate) groups: Vec<Arc<GroupReport>>,
    pub(crate) problems: Vec<RuleProblem>,
    /// Number of times that the rules were replaced.
    pub(crate) rules_version: u64,
    /// Warnings of rules that select nothing.
    pub(crate) unmatched_warnings: Arc<Vec<RuleProblem>>,
    /// Values for groups that do not set them.
    pub(crate) defaults: GroupDefaults,
    /// Whether the node has no store, so that nothing is evaluated.
    pub(crate) is_agent: bool,
    pub(crate) routes: Arc<RouteContext>,
    pub(crate) silences: SilenceSet,
    /// Alerts from outside.
    pub(crate) received: Vec<Arc<ReceivedAlert>>,
    /// Those that were made at this site, for a standby.
    pub(crate) clearances: Arc<SiteClearances>,
    /// When it was read.
    pub(crate) now_ns: i64,
}

/// An active alert with its place.
#[derive(Clone, Copy)]
pub(crate) struct ActiveAlert<'a> {
    pub(crate) report: &'a GroupReport,
    pub(crate) rule: &'a EvaluatedRule,
    pub(crate) labels: &'a LabelSet,
    pub(crate) alert: &'a Alert,
}

/// Color of the status light.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusLight {
    /// Nothing to do.
    Green,
    /// Number of pending, acknowledged and unknown alerts, and of rules that fail or
    /// cannot be read.
    Amber(usize),
    /// Number of firing alerts that nobody has acknowledged.
    Red(usize),
}

impl fmt::Display for StatusLight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusLight::Green => f.write_str("green"),
            StatusLight::Amber(count) => write!(f, "amber {count}"),
            StatusLight::Red(count) => write!(f, "red {count}"),
        }
    }
}

impl PublishedState {
    /// Pending and firing alerts.
    pub(crate) fn active_alerts(&self) -> impl Iterator<Item = ActiveAlert<'_>> {
        self.groups.iter().flat_map(|report| {
            report.group.rules().iter().flat_map(|rule| {
                let alerts = rule.alerts().alerts();
                let active = alerts.filter(|(_, alert)| alert.state != AlertState::Inactive);
                active.map(|(labels, alert)| ActiveAlert { report, rule, labels, alert })
            })
        })
    }

    /// Alerts from outside that fire.
    pub(crate) fn firing_received(&self) -> impl Iterator<Item = &ReceivedAlert> {
        let firing =
            move |alert: &&Arc<ReceivedAlert>| alert.is_firing && alert.ends_ns > self.now_ns;
        self.received.iter().filter(firing).map(|alert| &**alert)
    }

    /// All rules.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &EvaluatedRule> {
        self.groups.iter().flat_map(|report| report.group.rules())
    }

    /// Rules whose last evaluation failed.
    pub(crate) fn failing_rules(&self) -> usize {
        self.rules().filter(|rule| matches!(rule.health(), RuleHealth::Err(_))).count()
    }

    /// Status light.
    pub(crate) fn light(&self) -> StatusLight {
        let is_error = |problem: &&RuleProblem| problem.severity == ProblemSeverity::Error;
        let unusable = self.problems.iter().filter(is_error).count();
        let (mut red, mut amber) = (0, self.failing_rules() + unusable);
        let silences = self.silences.active(self.now_ns);
        let own = self.active_alerts().map(|ActiveAlert { labels, alert, .. }| {
            let is_red = alert.state == AlertState::Firing
                && alert.acknowledgements.current().is_none()
                && !alert.is_unknown();
            let severity = alert_severity(alert.severity(), labels.get("severity"));
            let is_quiet = severity >= QUIET_SEVERITY_MIN;
            (is_red, is_quiet || is_silenced(&silences, labels, alert))
        });
        let received = self.firing_received().map(|alert| {
            let label = alert.labels.get("severity").map_or("", String::as_str);
            let is_quiet = alert_severity(None, label) >= QUIET_SEVERITY_MIN;
            let is_silenced = silences.is_silenced(&alert.labels);
            (alert.acknowledgements.current().is_none(), is_quiet || is_silenced)
        });
        for (is_red, _) in own.chain(received).filter(|(_, is_quiet)| !is_quiet) {
            if is_red { red += 1 } else { amber += 1 }
        }
        match (red, amber) {
            (0, 0) => StatusLight::Green,
            (0, amber) => StatusLight::Amber(amber),
            (red, _) => StatusLight::Red(red),
        }
    }
}

/// Whether an alert of a rule is silenced.
fn is_silenced(silences: &ActiveSilences<'_>, labels: &LabelSet, alert: &Alert) -> bool {
    // Without silences no labels are copied.
    silences.ids().next().is_some() && silences.is_silenced(&rule_alert_labels(labels, alert))
}

/// Hash of everything that a restart must not lose and that a client waits for.
pub(crate) fn state_hash(group: &EvaluatedGroup) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (index, rule) in group.rules().iter().enumerate() {
        (index, matches!(rule.health(), RuleHealth::Err(_))).hash(&mut hasher);
        for (labels, alert) in rule.alerts().alerts() {
            labels.hash(&mut hasher);
            alert.state.text().hash(&mut hasher);
            let times = (alert.active_at_ns, alert.fired_at_ns, alert.keep_firing_since_ns);
            times.hash(&mut hasher);
            (alert.unknown_since_ns, alert.transition, alert.is_held).hash(&mut hasher);
            alert.acknowledgements.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Published state: one writer, many readers. Clones share it.
#[derive(Clone)]
pub(crate) struct PublishedAlerts {
    state: Arc<Mutex<PublishedState>>,
    revision: watch::Sender<u64>,
    silences: Arc<SilenceStore>,
    received: Arc<ReceivedAlerts>,
    history: Arc<AlertHistory>,
    clock: WallClock,
}

impl fmt::Debug for PublishedAlerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishedAlerts").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl PublishedAlerts {
    /// Published state that begins with a revision. It differs from those before a restart, so that
    /// a client that waits for a change sees one.
    pub(crate) fn new(
        revision: watch::Sender<u64>,
        silences: Arc<SilenceStore>,
        received: Arc<ReceivedAlerts>,
        history: Arc<AlertHistory>,
        clock: WallClock,
    ) -> PublishedAlerts {
        PublishedAlerts { state: Arc::default(), revision, silences, received, history, clock }
    }

    /// Current state.
    pub(crate) fn read(&self) -> PublishedState {
        let state = self.lock().clone();
        let (silences, received) = (self.silences.snapshot(), self.received.alerts());
        PublishedState { silences, received, now_ns: (self.clock)(), ..state }
    }

    /// Where alerts go.
    pub(crate) fn routes(&self) -> Arc<RouteContext> {
        self.lock().routes.clone()
    }

    /// Current time.
    pub(crate) fn now_ns(&self) -> i64 {
        (self.clock)()
    }

    /// Silences.
    pub(crate) fn silence_store(&self) -> &SilenceStore {
        &self.silences
    }

    /// Silences, for another owner.
    pub(crate) fn shared_silences(&self) -> Arc<SilenceStore> {
        Arc::clone(&self.silences)
    }

    /// Alerts from outside, for another owner.
    pub(crate) fn shared_received(&self) -> Arc<ReceivedAlerts> {
        Arc::clone(&self.received)
    }

    /// Alerts from outside.
    pub(crate) fn received_alerts(&self) -> &ReceivedAlerts {
        &self.received
    }

    /// History of alerts.
    pub(crate) fn history(&self) -> &AlertHistory {
        &self.history
    }

    /// History of alerts, for another owner.
    pub(crate) fn shared_history(&self) -> Arc<AlertHistory> {
        Arc::clone(&self.history)
    }

    /// Changes the state.
    pub(crate) fn update(&self, change: impl FnOnce(&mut PublishedState)) {
        change(&mut self.lock());
    }

    /// Alerts changed: who waits for that looks again.
    pub(crate) fn advance_revision(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Number that changes with each change of alerts.
    pub(crate) fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// Waits until the revision is another one.
    pub(crate) fn changed_since(&self, revision: u64) -> impl Future<Output = ()> + use<> {
        let mut revisions = self.revision.subscribe();
        async move {
            // An error: the role has stopped.
            let _ = revisions.wait_for(|current| *current != revision).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, PublishedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
