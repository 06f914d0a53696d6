//! Maintenance windows that are taken out of the budgets of SLOs: those of silences that say so,
//! and whose matchers match the alerts of the SLO.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use notify::{AlertLabels, Silence, SilenceSet};
use rules::slo::{Correction, Slo};

/// Maximum number of windows that are taken out of a budget: each is a query or two.
const WINDOWS_MAX: usize = 1_000;
/// Ranges of silences after which those that overlap are united, so that few are in memory. In the
/// longest period, of 400 days, no more are left: each has a minute, and so has each pause.
const RANGES_MAX: usize = 400_000;
/// Name of the alerts of SLOs that silences match.
const ALERT_NAME: &str = "SloBudgetBurn";

/// An SLO with the maintenance windows of a range as corrections.
#[derive(Clone, Debug)]
pub(crate) struct CorrectedSlo {
    pub(crate) slo: Slo,
    /// Windows that are too many: the earliest ones, which count as any other time.
    pub(crate) left_out: usize,
}

impl CorrectedSlo {
    /// The windows of these silences in a range.
    pub(crate) fn new(slo: &Slo, silences: &SilenceSet, range: &Range<i64>) -> CorrectedSlo {
        let labels = alert_labels(slo);
        let correcting = silences.as_slice().iter();
        let correcting = correcting.filter(|one| one.corrects_slos() && one.matches(&labels));
        let correcting: Vec<&Silence> = correcting.collect();
        let mut windows: Vec<Window> = Vec::new();
        for (silence, found) in correcting.iter().enumerate() {
            let ranges = found.active_ranges(range).into_iter();
            windows.extend(ranges.map(|range| Window { range, silence, has_others: false }));
            if windows.len() > RANGES_MAX {
                windows = united(windows);
            }
        }
        let mut windows = united(windows);
        let left_out = windows.len().saturating_sub(WINDOWS_MAX);
        let mut slo = slo.clone();
        // Windows of a silence share their reason.
        let mut reasons: BTreeMap<(usize, bool), Arc<str>> = BTreeMap::new();
        for Window { range, silence, has_others } in windows.drain(left_out..) {
            let reason = reasons
                .entry((silence, has_others))
                .or_insert_with(|| reason(correcting[silence], has_others).into());
            slo.corrections.push(Correction {
                start_ns: range.start,
                end_ns: range.end,
                reason: Arc::clone(reason),
            });
        }
        CorrectedSlo { slo, left_out }
    }

    /// What a user should know.
    pub(crate) fn warning(&self) -> Option<String> {
        let left_out = self.left_out;
        (left_out > 0).then(|| {
            let what = "the earliest ones count in the budget";
            let found = WINDOWS_MAX + left_out;
            format!("limit of {WINDOWS_MAX} maintenance windows exceeded ({found}); {what}")
        })
    }
}

/// Labels that all alerts of an SLO have.
fn alert_labels(slo: &Slo) -> AlertLabels {
    let mut labels: AlertLabels = slo.labels.clone();
    labels.insert("alertname".to_owned(), ALERT_NAME.to_owned());
    labels.insert("slo".to_owned(), slo.name.clone());
    labels
}

/// Time that is taken out of a budget.
struct Window {
    range: Range<i64>,
    /// Index of the silence that begins it.
    silence: usize,
    /// Whether it is one of other silences, too.
    has_others: bool,
}

/// Windows by time; those that overlap, or follow each other, are one.
fn united(mut windows: Vec<Window>) -> Vec<Window> {
    model::sort::by_key(&mut windows, |window| (window.range.start, window.silence));
    let mut all: Vec<Window> = Vec::new();
    for window in windows {
        match all.last_mut().filter(|last| window.range.start <= last.range.end) {
            Some(last) => {
                last.range.end = last.range.end.max(window.range.end);
                last.has_others |= window.has_others || window.silence != last.silence;
            }
            None => all.push(window),
        }
    }
    all
}

fn reason(silence: &Silence, has_others: bool) -> String {
    let comment = if silence.comment.is_empty() { &silence.id } else { &silence.comment };
    let others = if has_others { ", and others" } else { "" };
    format!("maintenance: {comment} ({}){others}", silence.created_by)
}

#[cfg(test)]
mod tests {
    use notify::{AlertMatcher, Recurrence, SLO_CORRECTION_ANNOTATION};
    use rules::slo::SloDraft;

    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn slo() -> Slo {
        let text = |text: &str| Some(text.to_owned());
        let draft = SloDraft {
            name: "checkout".to_owned(),
            selector: text("latency"),
            threshold: text("250ms"),
            objective: text("99%"),
            labels: [("team".to_owned(), "shop".to_owned())].into(),
            ..SloDraft::default()
        };
        draft.check().expect("a valid SLO")
    }

    fn silence(matcher: &str, hours: Range<i64>, corrects: bool) -> Silence {
        let annotation = (SLO_CORRECTION_ANNOTATION.to_owned(), "true".to_owned());
        Silence {
            id: "0b2f".to_owned(),
            matchers: vec![AlertMatcher::parse(matcher).expect("a matcher")],
            starts_ns: hours.start * HOUR,
            ends_ns: hours.end * HOUR,
            recurrences: Vec::new(),
            created_by: "ann".to_owned(),
            comment: "a move".to_owned(),
            annotations: if corrects { [annotation].into() } else { Default::default() },
            updated_ns: 0,
        }
    }

    fn windows(silences: Vec<Silence>, hours: Range<i64>) -> Vec<(i64, i64, String)> {
        let range = hours.start * HOUR..hours.end * HOUR;
        let corrected = CorrectedSlo::new(&slo(), &SilenceSet::new(silences), &range);
        assert_eq!(corrected.warning(), None);
        let windows = corrected.slo.corrections.into_iter();
        windows.map(|it| (it.start_ns / HOUR, it.end_ns / HOUR, it.reason.to_string())).collect()
    }

    #[test]
    fn windows_of_silences_that_say_so_and_match_are_taken_out() {
        let move_of = |start: i64, end: i64| (start, end, "maintenance: a move (ann)".to_owned());
        let silences = vec![
            silence("slo=checkout", 10..12, true),
            silence("team=shop", 20..200, true),
            silence("slo=checkout", 5..6, false),
            silence("slo=search", 7..8, true),
            silence("host=db1", 8..9, true),
        ];
        assert_eq!(windows(silences, 0..100), [move_of(10, 12), move_of(20, 100)]);
        // It may be over.
        let silences = vec![silence("slo=checkout", 10..12, true)];
        assert_eq!(windows(silences.clone(), 11..1000), [move_of(11, 12)]);
        assert_eq!(windows(silences, 12..1000), []);
    }

    #[test]
    fn windows_that_overlap_are_one() {
        let nightly = |start: &str, end: &str| {
            let mut nightly = silence("slo=checkout", 0..24 * 2_000, true);
            let times = serde_json::json!({"times": [{"start_time": start, "end_time": end}]});
            nightly.recurrences.push(Recurrence::from_json(times).expect("an interval"));
            nightly
        };
        let other = Silence { comment: "a copy".to_owned(), ..nightly("04:00", "05:00") };
        // Too many, if each counted.
        let silences = vec![
            nightly("02:00", "03:00"),
            nightly("02:00", "04:00"),
            other,
            silence("slo=checkout", 24 * 900 + 4..24 * 900 + 10, true),
        ];
        let found = windows(silences, 0..24 * 900 + 12);
        assert_eq!(found.len(), 901);
        let united = |day: i64, end: i64| {
            let reason = "maintenance: a move (ann), and others".to_owned();
            (24 * day + 2, 24 * day + end, reason)
        };
        assert_eq!((&found[0], &found[900]), (&united(0, 5), &united(900, 10)));
        let alone = windows(vec![nightly("02:00", "03:00")], 0..24);
        assert_eq!(alone, [(2, 3, "maintenance: a move (ann)".to_owned())]);
    }

    #[test]
    fn windows_that_are_too_many_are_told() {
        let mut nightly = silence("slo=checkout", 0..24 * 2_000, true);
        let times = serde_json::json!({"times": [{"start_time": "02:00", "end_time": "03:00"}]});
        nightly.recurrences.push(Recurrence::from_json(times).expect("an interval"));
        let silences = SilenceSet::new(vec![nightly]);
        let range = 0..24 * 1_100 * HOUR;
        let corrected = CorrectedSlo::new(&slo(), &silences, &range);
        assert_eq!(corrected.slo.corrections.len(), 1_000);
        assert_eq!(corrected.slo.corrections[0].start_ns, (24 * 100 + 2) * HOUR);
        assert_eq!(
            corrected.warning().as_deref(),
            Some(
                "limit of 1000 maintenance windows exceeded (1100); the earliest ones count in the \
                 budget"
            )
        );
    }
}
