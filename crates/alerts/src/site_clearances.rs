//! Clearances: alerts that somebody ended by hand (ITU-T X.733: manual clear) at the primary site
//! end at a standby, too, so that it does not send them when the primary falls silent. A site is
//! one of two servers that evaluate the same rules.
//!
//! The primary lists the clearances of the last 15 minutes in each response, with its time: clocks
//! may differ. A standby makes each one once, since an alert that begins anew is another one.

use std::collections::BTreeMap;

use rules::{AlertAcknowledgement, AlertClearance, AlertState, EvaluatedGroup};

use crate::alert_place::{AlertPlace, cut_text};
use crate::received_alerts::ReceivedAlert;

/// How long they are listed: as long as a resolved alert is kept, which has its clearance after a
/// restart.
const LISTED_NS: i64 = rules::RESOLVED_RETENTION_NS;
/// Maximum number of clearances of a response: the newest ones.
const CLEARANCES_MAX: usize = 1_000;
/// Maximum size of their texts in bytes.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// Clearance of an alert that was made at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteClearance {
    pub(crate) place: AlertPlace,
    pub(crate) at_ns: i64,
    pub(crate) by: String,
    pub(crate) note: String,
}

impl SiteClearance {
    pub(crate) fn new(place: AlertPlace, made: &AlertClearance) -> SiteClearance {
        let AlertClearance { at_ns, by, note, .. } = made.clone();
        SiteClearance { place, at_ns, by, note }
    }

    fn text_bytes(&self) -> usize {
        let AlertPlace { file, group, .. } = &self.place;
        [file, group, &self.by, &self.note].into_iter().map(String::len).sum()
    }
}

/// Clearances that were made at this site, the newest first. Those of its own primary are left out:
/// two sites that each have the other as primary would tell each other forever.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteClearances(Vec<SiteClearance>);

impl SiteClearances {
    /// Those of stored alerts of rules.
    pub(crate) fn of_group(group: &EvaluatedGroup) -> Vec<SiteClearance> {
        let alerts = group.rules().iter().flat_map(|rule| rule.alerts().alerts());
        let ended = alerts.filter(|(_, alert)| alert.state == AlertState::Inactive);
        let found = ended.filter_map(|(labels, alert)| {
            let made = AlertClearance::of(&alert.annotations, alert.resolved_at_ns?)?;
            let place = || AlertPlace::of_rule(group, labels);
            made.origin.is_none().then(|| SiteClearance::new(place(), &made))
        });
        found.collect()
    }

    /// That of a stored alert from another program.
    pub(crate) fn of_received(alert: &ReceivedAlert) -> Option<SiteClearance> {
        let made = AlertClearance::of(&alert.annotations, alert.ends_ns)?;
        let place = || AlertPlace::of_received(&alert.labels);
        (!alert.is_firing && made.origin.is_none()).then(|| SiteClearance::new(place(), &made))
    }

    /// Adds clearances; of an alert, the newest one counts.
    pub(crate) fn add(&mut self, new: impl IntoIterator<Item = SiteClearance>, now_ns: i64) {
        let known = std::mem::take(&mut self.0);
        let mut by_place: BTreeMap<AlertPlace, SiteClearance> = BTreeMap::new();
        for one in known.into_iter().rev().chain(new) {
            by_place.insert(one.place.clone(), one);
        }
        self.0 = by_place.into_values().filter(|one| is_listed(one, now_ns)).collect();
        model::sort::by_key(&mut self.0, |one| std::cmp::Reverse(one.at_ns));
        self.0.truncate(CLEARANCES_MAX);
        let mut text_bytes = 0;
        self.0.retain(|one| {
            text_bytes += one.text_bytes();
            text_bytes <= TEXT_BYTES_MAX
        });
    }

    /// Those of the last 15 minutes.
    pub(crate) fn listed(&self, now_ns: i64) -> Vec<SiteClearance> {
        self.0.iter().filter(|one| is_listed(one, now_ns)).cloned().collect()
    }
}

fn is_listed(one: &SiteClearance, now_ns: i64) -> bool {
    now_ns.saturating_sub(one.at_ns) <= LISTED_NS
}

/// Clearances of the primary site, with times by the clock of this one; none without a primary
/// site.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrimaryClearances {
    by_place: BTreeMap<AlertPlace, PrimaryClearance>,
}

#[derive(Clone, Debug)]
struct PrimaryClearance {
    clearance: AlertClearance,
    /// By the clock of the primary, which tells clearances of an alert apart.
    told_ns: i64,
}

impl PrimaryClearances {
    /// Those of the site with this URL, whose response has its own time and arrived at a time of
    /// this site: an alert that began here just before the clearance is not taken for a later one.
    /// Texts have the limits of those that are made here.
    pub(crate) fn new(
        url: &str,
        all: Vec<SiteClearance>,
        site_ns: i64,
        answered_ns: i64,
    ) -> PrimaryClearances {
        let mut by_place: BTreeMap<AlertPlace, PrimaryClearance> = BTreeMap::new();
        for one in all.into_iter().take(CLEARANCES_MAX) {
            let SiteClearance { place, at_ns: told_ns, by, note } = one;
            if by_place.get(&place).is_some_and(|known| known.told_ns >= told_ns) {
                continue;
            }
            // The clock of the primary may have been set back since.
            let age_ns = site_ns.saturating_sub(told_ns).max(0);
            let clearance = AlertClearance {
                at_ns: answered_ns.saturating_sub(age_ns),
                by: cut_text(by, AlertAcknowledgement::BY_BYTES_MAX),
                note: cut_text(note, AlertAcknowledgement::NOTE_BYTES_MAX),
                origin: Some(url.trim_end_matches('/').to_owned()),
            };
            by_place.insert(place, PrimaryClearance { clearance, told_ns });
        }
        PrimaryClearances { by_place }
    }

    /// The one of an alert that began at a time of this site; an alert that began later is another
    /// one.
    pub(crate) fn of_alert(
        &self,
        place: impl FnOnce() -> AlertPlace,
        began_ns: i64,
    ) -> Option<&AlertClearance> {
        if self.by_place.is_empty() {
            return None;
        }
        let told = self.by_place.get(&place())?;
        (began_ns <= told.clearance.at_ns).then_some(&told.clearance)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }
}

/// Clearances of the primary site that were made here.
#[derive(Debug, Default)]
pub(crate) struct MirroredClearances(BTreeMap<AlertPlace, i64>);

impl MirroredClearances {
    /// Those that are not made yet.
    pub(crate) fn due(&self, told: &PrimaryClearances) -> PrimaryClearances {
        let is_due = |place: &AlertPlace, told: &PrimaryClearance| {
            // One that is earlier is another one, too: the clock of the primary was set back.
            self.0.get(place).is_none_or(|made_ns| *made_ns != told.told_ns)
        };
        let due = told.by_place.iter().filter(|(place, told)| is_due(place, told));
        let due = due.map(|(place, told)| (place.clone(), told.clone()));
        PrimaryClearances { by_place: model::sort::map(due) }
    }

    /// All that the primary lists are made.
    pub(crate) fn set(&mut self, told: &PrimaryClearances) {
        let made = told.by_place.iter().map(|(place, told)| (place.clone(), told.told_ns));
        self.0 = model::sort::map(made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert_place::EXAMPLE_URL as URL;

    const SECOND: i64 = 1_000_000_000;
    const MINUTE: i64 = 60 * SECOND;

    fn cleared(group: &str, at_ns: i64) -> SiteClearance {
        let (by, note) = ("ann".to_owned(), "gone".to_owned());
        SiteClearance { place: AlertPlace::example(group), at_ns, by, note }
    }

    fn times(of: &SiteClearances, now_ns: i64) -> Vec<(String, i64)> {
        of.listed(now_ns).into_iter().map(|one| (one.place.group, one.at_ns)).collect()
    }

    #[test]
    fn a_site_lists_the_newest_clearance_of_an_alert_for_15_minutes() {
        let mut made = SiteClearances::default();
        made.add([cleared("g", 0), cleared("h", 1)], 1);
        made.add([cleared("g", MINUTE)], MINUTE);
        assert_eq!(times(&made, MINUTE), [("g".to_owned(), MINUTE), ("h".to_owned(), 1)]);
        assert_eq!(times(&made, 15 * MINUTE + 2), [("g".to_owned(), MINUTE)]);
        assert_eq!(times(&made, 17 * MINUTE), []);
        made.add([cleared("i", 17 * MINUTE)], 17 * MINUTE);
        assert_eq!(made.0.len(), 1, "it forgets");
    }

    #[test]
    fn a_list_of_clearances_is_bounded() {
        let mut made = SiteClearances::default();
        made.add((0..2_000).map(|number| cleared(&format!("g{number}"), number)), 2_000);
        let listed = times(&made, 2_000);
        assert_eq!((listed.len(), listed[0].1), (CLEARANCES_MAX, 1_999));
        let long = SiteClearance { note: "n".repeat(100 << 10), ..cleared("long", 0) };
        let mut made = SiteClearances::default();
        for number in 0..5 {
            let place = AlertPlace::example(&format!("g{number}"));
            made.add([SiteClearance { place, at_ns: number, ..long.clone() }], 5);
        }
        assert_eq!(times(&made, 5).len(), 2);
        let told = PrimaryClearances::new(URL, vec![long], 0, 0);
        let found = told.of_alert(|| AlertPlace::example("long"), 0).expect("one");
        assert_eq!(found.note.len(), AlertAcknowledgement::NOTE_BYTES_MAX);
    }

    /// Whether an alert that began here at a time is cleared, by the list of a primary whose clock
    /// is `ahead_ns` ahead, which cleared it 10 s ago.
    #[track_caller]
    fn check(began_ns: i64, ahead_ns: i64, expected: bool) {
        let now_ns = 100 * MINUTE;
        let told = cleared("g", now_ns + ahead_ns - 10 * SECOND);
        let told = PrimaryClearances::new(URL, vec![told], now_ns + ahead_ns, now_ns);
        let found = told.of_alert(|| AlertPlace::example("g"), began_ns);
        assert_eq!(found.is_some(), expected, "began {began_ns}, ahead {ahead_ns}");
        if let Some(found) = found {
            assert_eq!(found.at_ns, now_ns - 10 * SECOND);
            assert_eq!(found.author(), "ann at http://north:7717");
        }
        assert!(told.of_alert(|| AlertPlace::example("other"), began_ns).is_none());
    }

    #[test]
    fn an_alert_that_began_before_the_clearance_is_cleared_whatever_the_clocks_are() {
        for ahead_ns in [0, 60 * MINUTE, -60 * MINUTE, i64::MAX, i64::MIN] {
            let is_extreme = ahead_ns.unsigned_abs() > 1 << 60;
            if is_extreme {
                let told = PrimaryClearances::new(URL, vec![cleared("g", ahead_ns)], 0, 5);
                assert!(told.of_alert(|| AlertPlace::example("g"), i64::MIN).is_some());
                continue;
            }
            check(99 * MINUTE, ahead_ns, true);
            check(100 * MINUTE - 10 * SECOND, ahead_ns, true);
            check(100 * MINUTE - 9 * SECOND, ahead_ns, false);
        }
    }

    #[test]
    fn a_clearance_is_made_once_and_another_one_of_the_same_alert_again() {
        let mut made = MirroredClearances::default();
        let list = |at_ns: i64| PrimaryClearances::new(URL, vec![cleared("g", at_ns)], at_ns, 50);
        // The clock of the primary is set back.
        for (at_ns, is_due) in [(5, true), (5, false), (6, true), (6, false), (2, true), (2, false)]
        {
            assert_eq!(!made.due(&list(at_ns)).is_empty(), is_due, "{at_ns}");
            made.set(&list(at_ns));
        }
        made.set(&PrimaryClearances::default());
        assert!(made.0.is_empty(), "what the primary no longer lists is forgotten");
    }
}
