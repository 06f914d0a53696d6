//! How many requests and users an alert affected, for its notification.
//!
//! The numbers are read when a state is submitted, within a time that all notifications of a second
//! share: what is not read by then is unknown, and no notification waits for it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use notify::AlertImpact;
use query::StoreSource;
use rules::slo::{SLO_ALERT_FILE, Slo};
use rules::{AffectedRule, Alert, EvaluatedGroup};
use store::{ReadView, Store};

use crate::worker_control::WorkerControl;

/// Time for numbers in an interval: a fifth of that of the worker.
const READ_TIME_MAX: Duration = Duration::from_millis(200);
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Labels that tell users apart, by the name of the SLO.
pub(crate) type UserLabels = BTreeMap<String, String>;

/// The labels of the SLOs that have one.
pub(crate) fn user_labels(slos: &[Slo]) -> UserLabels {
    let label = |slo: &Slo| Some((slo.name.clone(), slo.user_label.clone()?));
    slos.iter().filter_map(label).collect()
}

/// Time that the worker spends on numbers, of all groups together.
#[derive(Debug)]
pub(crate) struct ImpactTime {
    interval_began: Instant,
    /// Of this interval.
    spent: Duration,
}

impl ImpactTime {
    pub(crate) fn new(now: Instant) -> ImpactTime {
        ImpactTime { interval_began: now, spent: Duration::ZERO }
    }

    /// Time that is left.
    fn left(&mut self, now: Instant) -> Duration {
        if now.saturating_duration_since(self.interval_began) >= READ_INTERVAL {
            *self = ImpactTime::new(now);
        }
        READ_TIME_MAX.saturating_sub(self.spent)
    }

    fn spend(&mut self, time: Duration) {
        self.spent = self.spent.saturating_add(time);
    }
}

/// What an [`ImpactReader`] needs of the worker.
#[derive(Clone, Copy)]
pub(crate) struct ImpactSources<'a> {
    pub(crate) store: &'a Store,
    pub(crate) control: &'a WorkerControl,
    pub(crate) user_labels: &'a UserLabels,
    pub(crate) now_ns: i64,
}

/// Reads the numbers of the notifications of a group.
pub(crate) struct ImpactReader<'a> {
    sources: ImpactSources<'a>,
    time: &'a mut ImpactTime,
    group: &'a EvaluatedGroup,
    /// By position of the rule.
    rules: BTreeMap<usize, AffectedRule<'a>>,
    view: Option<Option<ReadView>>,
}

impl<'a> ImpactReader<'a> {
    pub(crate) fn new(
        sources: ImpactSources<'a>,
        time: &'a mut ImpactTime,
        group: &'a EvaluatedGroup,
    ) -> ImpactReader<'a> {
        ImpactReader { sources, time, group, rules: BTreeMap::new(), view: None }
    }

    /// What an alert of the rule at a position affected so far.
    pub(crate) fn impact(&mut self, rule: usize, alert: &Alert) -> AlertImpact {
        let began = Instant::now();
        let left = self.time.left(began);
        if left.is_zero() {
            return AlertImpact::default();
        }
        let found = self.read(rule, alert, (began, left)).unwrap_or_default();
        self.time.spend(began.elapsed());
        found
    }

    /// An error is logged by nobody: the evaluation, which reads the same series, has it.
    fn read(
        &mut self,
        rule: usize,
        alert: &Alert,
        (began, left): (Instant, Duration),
    ) -> Option<AlertImpact> {
        let ImpactSources { store, control, user_labels, now_ns } = self.sources;
        let affected = match self.rules.entry(rule) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(AffectedRule::of(self.group.rules().get(rule)?.rule()))
            }
        };
        let series = affected.series(alert)?;
        let is_cancelled = || began.elapsed() >= left || control.is_stopping();
        let view = self.view.get_or_insert_with(|| store.view().ok());
        let source = StoreSource::new(view.as_ref()?).with_context(&is_cancelled);
        let is_slo = self.group.file() == SLO_ALERT_FILE;
        let user_label = user_labels.get(self.group.name()).filter(|_| is_slo);
        let found = series.count(&source, now_ns, user_label.map(String::as_str));
        let counts = found.ok()?;
        Some(AlertImpact { requests: counts.requests, users: counts.users })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that is left for each of several groups that need a time for their numbers, by when
    /// they begin.
    #[track_caller]
    fn check(groups_ms: &[(u64, u64)], expected_ms: &[u64]) {
        let start = Instant::now();
        let mut time = ImpactTime::new(start);
        let left = groups_ms.iter().map(|(begin, need)| {
            let left = time.left(start + Duration::from_millis(*begin));
            time.spend(Duration::from_millis(*need).min(left));
            u64::try_from(left.as_millis()).expect("milliseconds")
        });
        assert_eq!(left.collect::<Vec<_>>(), expected_ms);
    }

    #[test]
    fn all_groups_of_a_second_share_the_time() {
        check(&[(0, 150), (150, 150), (200, 150), (900, 150)], &[200, 50, 0, 0]);
        // The next second.
        check(&[(0, 300), (999, 300), (1_000, 50), (1_050, 300)], &[200, 0, 200, 150]);
        // Nothing is saved up.
        check(&[(0, 0), (10_000, 300), (10_500, 1)], &[200, 200, 0]);
    }
}
