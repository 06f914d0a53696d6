//! Acknowledgements of the primary site, which a standby takes over: an alert that somebody works
//! on is not escalated by the other site.
//!
//! The primary lists all that were made there in each response. At the standby each has the URL of
//! the primary as its origin, beside what was acknowledged at the standby itself, which the primary
//! cannot take back.

use std::collections::BTreeMap;

use rules::{AcknowledgementChange, AlertAcknowledgement, AlertAcknowledgements, AlertState};

use crate::alert_place::{AlertPlace, cut_text};
use crate::published_alerts::PublishedState;

/// Maximum number of acknowledgements of a response: the newest ones.
const ACKNOWLEDGEMENTS_MAX: usize = 1_000;
/// Maximum size of their texts in bytes.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// An expiry that is bounded by the clock of this site moves with the time. It is stored again when
/// it has moved by this.
pub(crate) const EXPIRY_STEP_NS: u64 = 60 * 1_000_000_000;

/// Acknowledgement of an alert that was made at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteAcknowledgement {
    pub(crate) place: AlertPlace,
    pub(crate) at_ns: i64,
    pub(crate) until_ns: i64,
    pub(crate) by: String,
    pub(crate) note: String,
    /// Worst severity of the alert while it is acknowledged, of an own rule.
    pub(crate) severity: Option<u8>,
}

impl SiteAcknowledgement {
    fn new(
        place: AlertPlace,
        made: &AlertAcknowledgement,
        severity: Option<u8>,
    ) -> SiteAcknowledgement {
        let AlertAcknowledgement { at_ns, until_ns, by, note, .. } = made.clone();
        SiteAcknowledgement { place, at_ns, until_ns, by, note, severity }
    }

    fn text_bytes(&self) -> usize {
        let AlertPlace { file, group, .. } = &self.place;
        [file, group, &self.by, &self.note].into_iter().map(String::len).sum()
    }
}

/// Acknowledgements that were made at this site, for a standby, the newest first. Those of its own
/// primary are left out: two sites that each have the other as primary would tell each other
/// forever.
pub(crate) fn site_acknowledgements(state: &PublishedState) -> Vec<SiteAcknowledgement> {
    let own = state.active_alerts().filter(|active| active.alert.state != AlertState::Inactive);
    let own = own.filter_map(|active| {
        let made = active.alert.acknowledgements.own()?;
        Some(SiteAcknowledgement::new(
            AlertPlace::of_rule(&active.report.group, active.labels),
            made,
            active.alert.acknowledged_severity,
        ))
    });
    let received = state.firing_received().filter_map(|alert| {
        let made = alert.acknowledgements.own()?;
        Some(SiteAcknowledgement::new(AlertPlace::of_received(&alert.labels), made, None))
    });
    let mut found: Vec<SiteAcknowledgement> =
        own.chain(received).filter(|one| one.until_ns > state.now_ns).collect();
    model::sort::by_key(&mut found, |one| std::cmp::Reverse(one.at_ns));
    found.truncate(ACKNOWLEDGEMENTS_MAX);
    let mut text_bytes = 0;
    found.retain(|one| {
        text_bytes += one.text_bytes();
        text_bytes <= TEXT_BYTES_MAX
    });
    found
}

/// All acknowledgements of the primary site; none without a primary site.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrimaryAcknowledgements {
    by_place: BTreeMap<AlertPlace, PrimaryAcknowledgement>,
}

#[derive(Clone, Debug)]
struct PrimaryAcknowledgement {
    made: AlertAcknowledgement,
    /// Worst severity of the alert at the primary while it is acknowledged.
    severity: Option<u8>,
}

impl PrimaryAcknowledgements {
    /// Those of the site with this URL, within the limits of those that are made here. Of several
    /// rules of a group that have alerts with the same labels, the one that ends last counts.
    pub(crate) fn new(url: &str, all: Vec<SiteAcknowledgement>) -> PrimaryAcknowledgements {
        let mut by_place: BTreeMap<AlertPlace, PrimaryAcknowledgement> = BTreeMap::new();
        let valid = all.into_iter().filter(|one| one.at_ns < one.until_ns);
        for one in valid.take(ACKNOWLEDGEMENTS_MAX) {
            let SiteAcknowledgement { place, at_ns, until_ns, by, note, severity } = one;
            let by = cut_text(by, AlertAcknowledgement::BY_BYTES_MAX);
            let note = cut_text(note, AlertAcknowledgement::NOTE_BYTES_MAX);
            let origin = Some(url.trim_end_matches('/').to_owned());
            let made = AlertAcknowledgement { at_ns, until_ns, by, note, origin };
            if by_place.get(&place).is_none_or(|known| known.made.until_ns < until_ns) {
                by_place.insert(place, PrimaryAcknowledgement { made, severity });
            }
        }
        PrimaryAcknowledgements { by_place }
    }

    /// The change of an alert of this site, which has a severity if it is one of an own rule;
    /// `None` if there is none.
    pub(crate) fn change(
        &self,
        place: impl FnOnce() -> AlertPlace,
        known: &AlertAcknowledgements,
        severity: Option<u8>,
        now_ns: i64,
    ) -> Option<AcknowledgementChange> {
        if self.by_place.is_empty() && known.of_primary().is_none() {
            return None;
        }
        let told = self.by_place.get(&place());
        // The alert is or was worse here, and the primary does not see that yet.
        let is_worse = |told: &PrimaryAcknowledgement| {
            known.has_ended(told.made.at_ns)
                || severity.zip(told.severity).is_some_and(|(here, there)| here < there)
        };
        if told.is_some_and(is_worse) {
            return None;
        }
        let (known, told) = (known.of_primary(), told.map(|told| &told.made));
        let found = told.map(|told| bounded(told, now_ns)).filter(|found| found.until_ns > now_ns);
        let (Some(told), Some(found)) = (told, found) else {
            return known.map(|_| AcknowledgementChange::RemoveOfPrimary);
        };
        let is_known = known.is_some_and(|known| {
            let moved_ns = known.until_ns.abs_diff(found.until_ns);
            let has_expiry =
                moved_ns == 0 || (found.until_ns < told.until_ns && moved_ns < EXPIRY_STEP_NS);
            // The time of the first one stays if only the expiry moves.
            let (at_ns, until_ns) = (found.at_ns, found.until_ns);
            has_expiry && AlertAcknowledgement { at_ns, until_ns, ..known.clone() } == found
        });
        (!is_known).then_some(AcknowledgementChange::Set(found))
    }
}

/// By the clock of this site, an acknowledgement ends at most as long from now as it was made for:
/// a primary whose clock is ahead may die, and then nobody takes it back. The clock may also be
/// behind, so that it is over.
fn bounded(told: &AlertAcknowledgement, now_ns: i64) -> AlertAcknowledgement {
    let length_ns = told.until_ns.saturating_sub(told.at_ns);
    let length_ns = length_ns.min(AlertAcknowledgement::LENGTH_NS_MAX);
    let until_ns = told.until_ns.min(now_ns.saturating_add(length_ns));
    AlertAcknowledgement { until_ns, ..told.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert_place::EXAMPLE_URL as URL;

    /// Acknowledgement of the alert of a group.
    fn made(group: &str, at_ns: i64, until_ns: i64) -> SiteAcknowledgement {
        let (by, note) = ("ann".to_owned(), "n".to_owned());
        let place = AlertPlace::example(group);
        SiteAcknowledgement { place, at_ns, until_ns, by, note, severity: None }
    }

    /// Acknowledgements of groups, by their expiry.
    fn primary(groups: &[(&str, i64)]) -> PrimaryAcknowledgements {
        let all = groups.iter().map(|(group, until_ns)| made(group, 5, *until_ns));
        PrimaryAcknowledgements::new(URL, all.collect())
    }

    /// What an alert of the group `g` becomes, by who acknowledged it until when, here and at the
    /// primary, after the list of the primary.
    #[track_caller]
    fn check(
        primary: &PrimaryAcknowledgements,
        alert: &mut AlertAcknowledgements,
        expected: [Option<i64>; 2],
    ) {
        if let Some(change) = primary.change(|| AlertPlace::example("g"), alert, None, 100) {
            alert.apply(&change);
        }
        let found = [alert.own(), alert.of_primary()].map(|one| one.map(|one| one.until_ns));
        assert_eq!(found, expected);
        assert_eq!(primary.change(|| AlertPlace::example("g"), alert, None, 100), None, "once");
    }

    fn bob() -> AlertAcknowledgements {
        let mut made = AlertAcknowledgements::default();
        made.apply(&AcknowledgementChange::Set(AlertAcknowledgement {
            at_ns: 5,
            until_ns: 200,
            by: "bob".to_owned(),
            note: String::new(),
            origin: None,
        }));
        made
    }

    #[test]
    fn an_alert_has_the_acknowledgement_of_the_primary() {
        let mut alert = AlertAcknowledgements::default();
        check(&primary(&[]), &mut alert, [None, None]);
        for until_ns in [200, 300, 150] {
            check(&primary(&[("g", until_ns)]), &mut alert, [None, Some(until_ns)]);
        }
        let author = alert.current().map(AlertAcknowledgement::author);
        assert_eq!(author.as_deref(), Some("ann at http://north:7717"));
        // It is over by the clock of this site.
        check(&primary(&[("g", 100)]), &mut alert, [None, None]);
        check(&primary(&[("g", 101)]), &mut alert, [None, Some(101)]);
        check(&primary(&[]), &mut alert, [None, None]);
    }

    /// The primary evaluates the rule later than this site.
    #[test]
    fn an_acknowledgement_that_ended_because_the_alert_is_worse_does_not_return() {
        let mut alert = AlertAcknowledgements::default();
        check(&primary(&[("g", 200)]), &mut alert, [None, Some(200)]);
        alert.end();
        for until_ns in [200, 300] {
            check(&primary(&[("g", until_ns)]), &mut alert, [None, None]);
        }
        check(&primary(&[]), &mut alert, [None, None]);
        // Somebody acknowledges the worse state.
        let later = PrimaryAcknowledgements::new(URL, vec![made("g", 6, 200)]);
        check(&later, &mut alert, [None, Some(200)]);
    }

    /// It becomes worse here before this site hears of the acknowledgement.
    #[test]
    fn an_acknowledgement_of_a_lesser_severity_is_not_that_of_a_worse_alert() {
        let list = |severity: Option<u8>| {
            let one = SiteAcknowledgement { severity, ..made("g", 5, 200) };
            PrimaryAcknowledgements::new(URL, vec![one])
        };
        let is_taken = |told: Option<u8>, here: Option<u8>| {
            let known = AlertAcknowledgements::default();
            list(told).change(|| AlertPlace::example("g"), &known, here, 100).is_some()
        };
        assert!(!is_taken(Some(3), Some(1)));
        for (told, here) in [(Some(3), Some(3)), (Some(1), Some(3)), (Some(3), None), (None, None)]
        {
            assert!(is_taken(told, here), "{told:?} {here:?}");
        }
        // A primary of an earlier version.
        assert!(is_taken(None, Some(1)));
    }

    #[test]
    fn an_acknowledgement_of_this_site_stays() {
        let mut alert = bob();
        check(&primary(&[]), &mut alert, [Some(200), None]);
        for until_ns in [150, 300] {
            check(&primary(&[("g", until_ns)]), &mut alert, [Some(200), Some(until_ns)]);
        }
        // It is taken back at the primary.
        check(&primary(&[]), &mut alert, [Some(200), None]);
    }

    #[test]
    fn the_list_of_another_primary_replaces_that_of_a_former_one() {
        let mut alert = AlertAcknowledgements::default();
        check(&primary(&[("g", 200)]), &mut alert, [None, Some(200)]);
        let south = PrimaryAcknowledgements::new("http://south:7717", Vec::new());
        check(&south, &mut alert, [None, None]);
        check(&primary(&[("g", 200)]), &mut alert, [None, Some(200)]);
        check(&PrimaryAcknowledgements::default(), &mut alert, [None, None]);
    }

    /// The clock of the primary is a day ahead.
    #[test]
    fn an_acknowledgement_lasts_as_long_as_it_was_made_for_by_the_clock_of_this_site() {
        const SECOND: i64 = 1_000_000_000;
        const HOUR: i64 = 3600 * SECOND;
        let list = |at_ns: i64, until_ns: i64| {
            PrimaryAcknowledgements::new(URL, vec![made("g", at_ns, until_ns)])
        };
        let mut alert = AlertAcknowledgements::default();
        let mut until = |list: &PrimaryAcknowledgements, now_ns: i64| {
            if let Some(change) = list.change(|| AlertPlace::example("g"), &alert, None, now_ns) {
                alert.apply(&change);
            }
            alert.of_primary().map(|one| one.until_ns)
        };
        let ahead = list(24 * HOUR, 25 * HOUR);
        assert_eq!(until(&ahead, 0), Some(HOUR));
        // It is not stored each second.
        assert_eq!(until(&ahead, 59 * SECOND), Some(HOUR));
        assert_eq!(until(&ahead, 60 * SECOND), Some(HOUR + 60 * SECOND));
        assert_eq!(until(&ahead, 24 * HOUR), Some(25 * HOUR));
        assert_eq!(until(&ahead, 25 * HOUR - 1), Some(25 * HOUR));
        assert_eq!(until(&ahead, 25 * HOUR), None);
        // The greatest times.
        let forever = list(i64::MIN, i64::MAX);
        assert_eq!(until(&forever, 0), Some(31 * 24 * HOUR));
        assert_eq!(until(&list(5, 5), 0), None);
        assert_eq!(until(&list(i64::MAX, i64::MIN), 0), None);
    }

    #[test]
    fn an_acknowledgement_of_the_primary_has_the_limits_of_those_of_this_site() {
        let long = SiteAcknowledgement {
            by: "é".repeat(1 << 20),
            note: "n".repeat(1 << 20),
            ..made("g", 5, 200)
        };
        let found = PrimaryAcknowledgements::new(URL, vec![long]);
        let found = found.by_place.into_values().next().expect("one").made;
        // A character is not cut.
        assert_eq!((found.by.as_str(), found.note.len()), ("é".repeat(128).as_str(), 4096));
        let short = |number: usize| made(&format!("g{number}"), 5, 200);
        let many = PrimaryAcknowledgements::new(URL, (0..2_000).map(short).collect());
        assert_eq!(many.by_place.len(), ACKNOWLEDGEMENTS_MAX);
    }

    /// The one of the other group began later at the primary, so that nobody works on it.
    #[test]
    fn an_alert_of_another_group_with_the_same_labels_is_not_acknowledged() {
        check(&primary(&[("other", 200)]), &mut AlertAcknowledgements::default(), [None, None]);
    }

    #[test]
    fn of_two_rules_of_a_group_with_the_same_labels_the_later_end_counts() {
        for groups in [[("g", 200), ("g", 300)], [("g", 300), ("g", 200)]] {
            let mut alert = AlertAcknowledgements::default();
            check(&primary(&groups), &mut alert, [None, Some(300)]);
        }
    }
}
