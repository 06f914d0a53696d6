//! Silences: alerts that match are not sent for a time. A silence that recurs is a maintenance
//! window.
//!
//! A silenced alert is evaluated as any other. Its groups send it once the silence has ended, if it
//! still fires. Times are nanoseconds since the Unix epoch.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::routing::{AlertLabels, AlertMatcher, Recurrence};

/// Maximum number of matchers of a silence.
const MATCHERS_MAX: usize = 100;
/// Maximum number of recurrences of a silence.
const RECURRENCES_MAX: usize = 20;
/// Longest author in bytes.
const AUTHOR_BYTES_MAX: usize = 256;
/// Longest comment in bytes.
const COMMENT_BYTES_MAX: usize = 4 << 10;
/// Maximum size of all annotations in bytes.
const ANNOTATION_BYTES_MAX: usize = 16 << 10;

/// Annotation with the value `true`: the time is taken out of the budgets of SLOs.
pub const SLO_CORRECTION_ANNOTATION: &str = "topdeck_slo_correction";

/// State of a silence, as of Alertmanager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SilenceState {
    /// It silences.
    Active,
    /// It will silence: it has not begun, or recurs later.
    Pending,
    /// It has ended.
    Expired,
}

impl SilenceState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            SilenceState::Active => "active",
            SilenceState::Pending => "pending",
            SilenceState::Expired => "expired",
        }
    }
}

/// A silence.
#[derive(Clone, Debug)]
pub struct Silence {
    /// UUID.
    pub id: String,
    /// All match an alert.
    pub matchers: Vec<AlertMatcher>,
    /// Begin.
    pub starts_ns: i64,
    /// End.
    pub ends_ns: i64,
    /// The only times in which it silences; all, if there are none.
    pub recurrences: Vec<Recurrence>,
    /// Author.
    pub created_by: String,
    /// Reason.
    pub comment: String,
    /// Further texts of its author.
    pub annotations: BTreeMap<String, String>,
    /// Time of the last change.
    pub updated_ns: i64,
}

/// A silence is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SilenceError {
    /// It would silence everything.
    #[error(
        "cannot create silence: all matchers match alerts without these labels, so it would \
         silence every alert; add a matcher such as severity=\"page\""
    )]
    MatchesAll,
    /// The times are in the wrong order.
    #[error("cannot create silence: the start is not before the end; set a later end")]
    Times,
    /// The end is in the past.
    #[error("cannot create silence: the end is in the past; set a later end")]
    Past,
    /// A limit.
    #[error("cannot create silence: limit of {limit} {what} exceeded ({found}); shorten it")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// Limit.
        limit: usize,
        /// Number found.
        found: usize,
    },
}

impl Silence {
    /// Checks a new silence.
    pub fn check(&self, now_ns: i64) -> Result<(), SilenceError> {
        let annotations = self.annotations.iter();
        let annotation_bytes = annotations.map(|(name, value)| name.len() + value.len()).sum();
        let limits = [
            ("matchers", MATCHERS_MAX, self.matchers.len()),
            ("time intervals", RECURRENCES_MAX, self.recurrences.len()),
            ("bytes of the author", AUTHOR_BYTES_MAX, self.created_by.len()),
            ("bytes of the comment", COMMENT_BYTES_MAX, self.comment.len()),
            ("bytes of annotations", ANNOTATION_BYTES_MAX, annotation_bytes),
        ];
        if let Some(&(what, limit, found)) = limits.iter().find(|(_, limit, found)| found > limit) {
            return Err(SilenceError::Limit { what, limit, found });
        }
        if self.matchers.iter().all(AlertMatcher::matches_empty) {
            return Err(SilenceError::MatchesAll);
        }
        if self.starts_ns >= self.ends_ns {
            return Err(SilenceError::Times);
        }
        if self.ends_ns <= now_ns {
            return Err(SilenceError::Past);
        }
        Ok(())
    }

    /// State at a time.
    pub fn state(&self, now_ns: i64) -> SilenceState {
        let recurs = |recurrence: &Recurrence| recurrence.contains(now_ns);
        if now_ns >= self.ends_ns {
            SilenceState::Expired
        } else if now_ns < self.starts_ns
            || !self.recurrences.is_empty() && !self.recurrences.iter().any(recurs)
        {
            SilenceState::Pending
        } else {
            SilenceState::Active
        }
    }

    /// Whether its time is taken out of the budgets of the SLOs that it matches.
    pub fn corrects_slos(&self) -> bool {
        self.annotations.get(SLO_CORRECTION_ANNOTATION).is_some_and(|text| text == "true")
    }

    /// Times of a range (start inclusive, end exclusive) in which it silences, in their order.
    pub fn active_ranges(&self, range: &Range<i64>) -> Vec<Range<i64>> {
        let (start_ns, end_ns) = (self.starts_ns.max(range.start), self.ends_ns.min(range.end));
        if start_ns >= end_ns {
            return Vec::new();
        }
        if self.recurrences.is_empty() {
            return Vec::from([Range { start: start_ns, end: end_ns }]);
        }
        let all = start_ns..end_ns;
        let mut found: Vec<Range<i64>> =
            self.recurrences.iter().flat_map(|one| one.ranges_within(&all)).collect();
        model::sort::by_key(&mut found, |range| range.start);
        let mut active: Vec<Range<i64>> = Vec::new();
        for range in found {
            match active.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => active.push(range),
            }
        }
        active
    }

    /// Whether an alert with these labels matches.
    pub fn matches(&self, labels: &AlertLabels) -> bool {
        self.matchers.iter().all(|matcher| matcher.matches(labels))
    }
}

/// All silences. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SilenceSet(Arc<Vec<Silence>>);

impl SilenceSet {
    /// These silences.
    pub fn new(silences: Vec<Silence>) -> SilenceSet {
        SilenceSet(Arc::new(silences))
    }

    /// All silences.
    pub fn as_slice(&self) -> &[Silence] {
        &self.0
    }

    /// Those that silence at a time.
    pub fn active(&self, now_ns: i64) -> ActiveSilences<'_> {
        let active = self.0.iter().filter(|one| one.state(now_ns) == SilenceState::Active);
        ActiveSilences(active.collect())
    }
}

/// Silences that are active at one time.
#[derive(Clone, Debug)]
pub struct ActiveSilences<'a>(Vec<&'a Silence>);

impl<'a> ActiveSilences<'a> {
    /// Ids of all of them.
    pub fn ids(&self) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(|silence| silence.id.as_str())
    }

    /// Ids of those that silence an alert.
    pub fn silencing(&self, labels: &AlertLabels) -> impl Iterator<Item = &'a str> {
        let found = self.0.iter().filter(move |silence| silence.matches(labels));
        found.map(|silence| silence.id.as_str())
    }

    /// Whether a silence of an alert recurs.
    pub fn is_in_maintenance(&self, labels: &AlertLabels) -> bool {
        let mut windows = self.0.iter().filter(|silence| !silence.recurrences.is_empty());
        windows.any(|silence| silence.matches(labels))
    }

    /// Whether an alert is silenced.
    pub fn is_silenced(&self, labels: &AlertLabels) -> bool {
        self.0.iter().any(|silence| silence.matches(labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn silence(matchers: &[&str]) -> Silence {
        Silence {
            id: "a".to_owned(),
            matchers: matchers.iter().map(|text| AlertMatcher::parse(text).unwrap()).collect(),
            starts_ns: HOUR,
            ends_ns: 3 * HOUR,
            recurrences: Vec::new(),
            created_by: "ann".to_owned(),
            comment: String::new(),
            annotations: BTreeMap::new(),
            updated_ns: 0,
        }
    }

    #[test]
    fn a_silence_begins_and_ends() {
        let mut silence = silence(&["job=a"]);
        let states = |silence: &Silence| [0, 1, 2, 3].map(|hour| silence.state(hour * HOUR));
        use SilenceState::{Active, Expired, Pending};
        assert_eq!(states(&silence), [Pending, Active, Active, Expired]);
        let from_two = serde_json::json!({"times": [{"start_time": "02:00", "end_time": "02:30"}]});
        silence.recurrences.push(Recurrence::from_json(from_two).unwrap());
        assert_eq!(states(&silence), [Pending, Pending, Active, Expired]);
    }

    #[test]
    fn the_times_of_a_window_are_those_in_which_it_is_active() {
        let ranges = |silence: &Silence, range: Range<i64>| -> Vec<(i64, i64)> {
            let range = range.start * HOUR / 60..range.end * HOUR / 60;
            let found = silence.active_ranges(&range);
            found.iter().map(|it| (it.start * 60 / HOUR, it.end * 60 / HOUR)).collect()
        };
        // From 01:00 to 03:00, in minutes.
        let mut window = silence(&["job=a"]);
        assert_eq!(ranges(&window, 0..600), [(60, 180)]);
        assert_eq!(ranges(&window, 90..100), [(90, 100)]);
        assert_eq!(ranges(&window, 0..60), []);
        assert_eq!(ranges(&window, 180..600), []);
        let times = serde_json::json!({"times": [{"start_time": "02:00", "end_time": "02:30"}]});
        window.recurrences.push(Recurrence::from_json(times).unwrap());
        window.ends_ns = i64::MAX;
        assert_eq!(ranges(&window, 0..3000), [(120, 150), (1560, 1590)]);
        assert_eq!(ranges(&window, 130..1570), [(130, 150), (1560, 1570)]);
        // Another one that follows it, and does not begin with a quarter.
        let more = serde_json::json!({"times": [{"start_time": "02:30", "end_time": "02:37"}]});
        window.recurrences.push(Recurrence::from_json(more).unwrap());
        assert_eq!(ranges(&window, 0..1440), [(120, 157)]);
        // It may end with the last time that there is.
        window.recurrences.clear();
        let last = window.active_ranges(&(i64::MAX - 5..i64::MAX));
        assert_eq!(last, [Range { start: i64::MAX - 5, end: i64::MAX }]);
    }

    #[test]
    fn a_silence_of_everything_is_rejected() {
        let check = |matchers: &[&str]| silence(matchers).check(0);
        assert_eq!(check(&["job=a", "zone!=b"]), Ok(()));
        assert_eq!(check(&["zone!=b"]), Err(SilenceError::MatchesAll));
        assert_eq!(check(&["zone=~\".*\""]), Err(SilenceError::MatchesAll));
        assert_eq!(check(&[]), Err(SilenceError::MatchesAll));
        assert_eq!(silence(&["job=a"]).check(3 * HOUR), Err(SilenceError::Past));
        let late = Silence { starts_ns: 3 * HOUR, ..silence(&["job=a"]) };
        assert_eq!(late.check(0), Err(SilenceError::Times));
        let long = Silence { comment: "x".repeat(5000), ..silence(&["job=a"]) };
        assert!(
            long.check(0).unwrap_err().to_string().contains("limit of 4096 bytes of the comment")
        );
    }

    #[test]
    fn all_matchers_match_a_silenced_alert() {
        let set = SilenceSet::new(vec![silence(&["job=a", "zone=~\"x|y\""])]);
        let labels = |zone: &str| -> AlertLabels {
            [("job", "a"), ("zone", zone)].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
        };
        assert!(set.active(HOUR).is_silenced(&labels("x")));
        assert!(!set.active(HOUR).is_silenced(&labels("z")));
        assert!(!set.active(0).is_silenced(&labels("x")));
        assert_eq!(set.active(HOUR).silencing(&labels("y")).collect::<Vec<_>>(), ["a"]);
        assert!(!set.active(HOUR).is_in_maintenance(&labels("x")));
        let mut window = silence(&["zone=y"]);
        window.recurrences.push(Recurrence::from_json(serde_json::json!({})).unwrap());
        let set = SilenceSet::new(vec![silence(&["job=a"]), window]);
        assert_eq!(
            ["x", "y"].map(|zone| set.active(HOUR).is_in_maintenance(&labels(zone))),
            [false, true]
        );
    }
}
