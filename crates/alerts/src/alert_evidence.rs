//! Evidence of an alert for its notification: how many it affected, and a picture.
//!
//! It is read when a state is submitted, within a time that all notifications of a second share:
//! what is not read by then is left out, and no notification waits for it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use notify::{AlertImpact, Picture};
use query::StoreSource;
use rules::slo::{SLO_ALERT_FILE, Slo};
use rules::{AffectedRule, AffectedSeries, Alert, EvaluatedGroup, LabelMap};
use store::{ReadView, Store};

use crate::alert_picture::alert_picture;
use crate::read_time_budget::ReadTimeBudget;
use crate::worker_control::WorkerControl;

/// Time to read impacts in a second: a fifth of the time of the worker.
const IMPACT_TIME_MAX: Duration = Duration::from_millis(200);
/// Time for pictures.
const PICTURE_TIME_MAX: Duration = Duration::from_millis(100);

/// Labels that tell users apart, of the SLOs that name one.
#[derive(Debug, Default)]
pub(crate) struct UserLabels(Vec<SloUserLabel>);

#[derive(Debug)]
struct SloUserLabel {
    slo: String,
    /// Metric and labels of the series whose values it judges.
    judged: Option<(String, LabelMap)>,
    label: String,
}

impl UserLabels {
    /// Those of some SLOs.
    pub(crate) fn of(slos: &[Slo]) -> UserLabels {
        let label = |slo: &Slo| {
            let label = slo.user_label.clone()?;
            Some(SloUserLabel { slo: slo.name.clone(), judged: slo.judged_metric(), label })
        };
        UserLabels(slos.iter().filter_map(label).collect())
    }

    /// That of an SLO.
    fn of_slo(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|of| of.slo == name).map(|of| &of.label[..])
    }

    /// As in the overview: that of the SLO with most labels whose series include those that
    /// `is_within` a metric and labels.
    fn of_series(&self, is_within: impl Fn(&str, &LabelMap) -> bool) -> Option<&str> {
        let judged = self.0.iter().filter_map(|of| Some((of.judged.as_ref()?, &of.label[..])));
        let included = judged.filter(|((metric, labels), _)| is_within(metric, labels));
        included.max_by_key(|((_, labels), _)| labels.len()).map(|(_, label)| label)
    }
}

/// What is read of an alert.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlertEvidence {
    pub(crate) impact: AlertImpact,
    pub(crate) picture: Option<Picture>,
}

/// Time that the worker spends on evidence, of all groups together.
#[derive(Debug)]
pub(crate) struct EvidenceBudgets {
    impact: ReadTimeBudget,
    picture: ReadTimeBudget,
}

impl EvidenceBudgets {
    pub(crate) fn new(now: Instant) -> EvidenceBudgets {
        EvidenceBudgets {
            impact: ReadTimeBudget::new(IMPACT_TIME_MAX, now),
            picture: ReadTimeBudget::new(PICTURE_TIME_MAX, now),
        }
    }
}

/// What an [`EvidenceReader`] needs of the worker.
#[derive(Clone, Copy)]
pub(crate) struct EvidenceSources<'a> {
    pub(crate) store: &'a Store,
    pub(crate) control: &'a WorkerControl,
    pub(crate) user_labels: &'a UserLabels,
    pub(crate) now_ns: i64,
    /// Whether a contact shows pictures.
    pub(crate) draws_pictures: bool,
}

/// Reads the evidence of the notifications of a group.
pub(crate) struct EvidenceReader<'a> {
    sources: EvidenceSources<'a>,
    budgets: &'a mut EvidenceBudgets,
    group: &'a EvaluatedGroup,
    /// By position of the rule.
    rules: BTreeMap<usize, AffectedRule<'a>>,
    view: Option<Option<ReadView>>,
}

impl<'a> EvidenceReader<'a> {
    pub(crate) fn new(
        sources: EvidenceSources<'a>,
        budgets: &'a mut EvidenceBudgets,
        group: &'a EvaluatedGroup,
    ) -> EvidenceReader<'a> {
        EvidenceReader { sources, budgets, group, rules: BTreeMap::new(), view: None }
    }

    /// What an alert of the rule at a position affected so far, and its picture.
    pub(crate) fn evidence(&mut self, rule: usize, alert: &Alert) -> AlertEvidence {
        let Some(series) = self.series(rule, alert) else { return AlertEvidence::default() };
        let impact = self.impact(&series).unwrap_or_default();
        let picture = if self.sources.draws_pictures { self.picture(&series) } else { None };
        AlertEvidence { impact, picture }
    }

    fn series(&mut self, rule: usize, alert: &Alert) -> Option<AffectedSeries> {
        let affected = match self.rules.entry(rule) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(AffectedRule::of(self.group.rules().get(rule)?.rule()))
            }
        };
        affected.series(alert)
    }

    fn impact(&mut self, series: &AffectedSeries) -> Option<AlertImpact> {
        let EvidenceSources { user_labels, now_ns, .. } = self.sources;
        let user_label = match self.group.file() == SLO_ALERT_FILE {
            true => user_labels.of_slo(self.group.name()),
            false => user_labels.of_series(|metric, labels| series.is_within(metric, labels)),
        };
        let began = Instant::now();
        let left = self.budgets.impact.left(began);
        let found = self.read(began, left, |source| series.count(source, now_ns, user_label).ok());
        self.budgets.impact.spend(began.elapsed());
        found.map(|counts| AlertImpact { requests: counts.requests, users: counts.users })
    }

    fn picture(&mut self, series: &AffectedSeries) -> Option<Picture> {
        let now_ns = self.sources.now_ns;
        let began = Instant::now();
        let left = self.budgets.picture.left(began);
        let found = self.read(began, left, |source| alert_picture(series, source, now_ns));
        self.budgets.picture.spend(began.elapsed());
        found
    }

    /// Reads within the time that is left. An error is logged by nobody: the evaluation, which
    /// reads the same series, has it.
    fn read<T>(
        &mut self,
        began: Instant,
        left: Duration,
        read: impl FnOnce(&StoreSource<'_>) -> Option<T>,
    ) -> Option<T> {
        if left.is_zero() {
            return None;
        }
        let EvidenceSources { store, control, .. } = self.sources;
        let is_cancelled = || began.elapsed() >= left || control.is_stopping();
        let view = self.view.get_or_insert_with(|| store.view().ok());
        read(&StoreSource::new(view.as_ref()?).with_context(&is_cancelled))
    }
}

#[cfg(test)]
mod tests {
    use rules::slo::SloDraft;

    use super::*;

    fn slo(name: &str, selector: &str, user_label: Option<&str>) -> Slo {
        let text = |text: &str| Some(text.to_owned());
        let draft = SloDraft {
            name: name.to_owned(),
            selector: text(selector),
            threshold: text("250ms"),
            objective: text("99%"),
            period: text("30d"),
            user_label: user_label.map(str::to_owned),
            ..SloDraft::default()
        };
        draft.check().expect("a valid SLO")
    }

    #[test]
    fn users_of_an_alert_are_told_apart_by_the_label_of_the_slo_of_its_series() {
        let labels = UserLabels::of(&[
            slo("all", "latency", Some("account")),
            slo("pay", "latency{service=\"pay\"}", Some("customer")),
            slo("cart", "latency{service=\"cart\"}", None),
            slo("some", "latency{service=~\"p.*\"}", Some("person")),
        ]);
        assert_eq!((labels.of_slo("pay"), labels.of_slo("cart")), (Some("customer"), None));
        let of = |service: &str| {
            let service = LabelMap::from([("service".to_owned(), service.to_owned())]);
            labels.of_series(|metric, required| {
                metric == "latency"
                    && required.iter().all(|label| service.get(label.0) == Some(label.1))
            })
        };
        assert_eq!((of("pay"), of("cart")), (Some("customer"), Some("account")));
        assert_eq!(labels.of_series(|metric, _| metric == "other"), None);
    }
}
