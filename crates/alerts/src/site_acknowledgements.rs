//! Acknowledgements of the primary site, which a standby takes over: an alert that somebody works
//! on is not escalated by the other site.
//!
//! The primary lists all that were made there in each response. At the standby each has the URL of
//! the primary as its origin, beside what was acknowledged at the standby itself, which the primary
//! cannot take back.

use std::collections::BTreeMap;
use std::path::Path;

use notify::AlertLabels;
use query::LabelSet;
use rules::{
    AcknowledgementChange, AlertAcknowledgement, AlertAcknowledgements, AlertState, EvaluatedGroup,
};

use crate::alert_board::BoardState;
use crate::alert_selection::{alert_labels, fingerprint};

/// Maximum number of acknowledgements of a response: the newest ones.
const ACKNOWLEDGEMENTS_MAX: usize = 1_000;
/// Maximum size of their texts in bytes.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// What an alert is of, at both sites. Other alerts may have the same labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AlertPlace {
    /// Name of the rule file: its directory may be another one at each site. Empty for an alert
    /// from another program, as the group.
    pub(crate) file: String,
    pub(crate) group: String,
    /// Of the labels of the alert.
    pub(crate) fingerprint: String,
}

impl AlertPlace {
    /// That of an alert of a rule.
    pub(crate) fn of_rule(group: &EvaluatedGroup, labels: &LabelSet) -> AlertPlace {
        let name = Path::new(group.file()).file_name();
        AlertPlace {
            file: name.map_or_else(|| group.file().into(), |name| name.to_string_lossy().into()),
            group: group.name().to_owned(),
            fingerprint: fingerprint(&alert_labels(labels)),
        }
    }

    /// That of an alert from another program.
    pub(crate) fn of_received(labels: &AlertLabels) -> AlertPlace {
        AlertPlace { fingerprint: fingerprint(labels), ..AlertPlace::default() }
    }
}

/// Acknowledgement of an alert that was made at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteAcknowledgement {
    pub(crate) place: AlertPlace,
    pub(crate) at_ns: i64,
    pub(crate) until_ns: i64,
    pub(crate) by: String,
    pub(crate) note: String,
}

impl SiteAcknowledgement {
    fn new(place: AlertPlace, made: &AlertAcknowledgement) -> SiteAcknowledgement {
        let AlertAcknowledgement { at_ns, until_ns, by, note, .. } = made.clone();
        SiteAcknowledgement { place, at_ns, until_ns, by, note }
    }

    fn text_bytes(&self) -> usize {
        let AlertPlace { file, group, .. } = &self.place;
        [file, group, &self.by, &self.note].into_iter().map(String::len).sum()
    }
}

/// Acknowledgements that were made at this site, for a standby, the newest first. Those of its own
/// primary are left out: two sites that each have the other as primary would tell each other
/// forever.
pub(crate) fn site_acknowledgements(state: &BoardState) -> Vec<SiteAcknowledgement> {
    let own = state.active_alerts().filter(|active| active.alert.state != AlertState::Inactive);
    let own = own.filter_map(|active| {
        let made = active.alert.acknowledgements.own()?;
        Some(SiteAcknowledgement::new(
            AlertPlace::of_rule(&active.report.group, active.labels),
            made,
        ))
    });
    let received = state.firing_received().filter_map(|alert| {
        let made = alert.acknowledgements.own()?;
        Some(SiteAcknowledgement::new(AlertPlace::of_received(&alert.labels), made))
    });
    let mut found: Vec<SiteAcknowledgement> =
        own.chain(received).filter(|one| one.until_ns > state.now_ns).collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.at_ns));
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
    by_place: BTreeMap<AlertPlace, AlertAcknowledgement>,
}

impl PrimaryAcknowledgements {
    /// Those of the site with this URL. Of several rules of a group that have alerts with the same
    /// labels, the one that ends last counts.
    pub(crate) fn new(url: &str, all: Vec<SiteAcknowledgement>) -> PrimaryAcknowledgements {
        let mut by_place: BTreeMap<AlertPlace, AlertAcknowledgement> = BTreeMap::new();
        for SiteAcknowledgement { place, at_ns, until_ns, by, note } in all {
            let origin = Some(url.trim_end_matches('/').to_owned());
            let made = AlertAcknowledgement { at_ns, until_ns, by, note, origin };
            if by_place.get(&place).is_none_or(|known| known.until_ns < until_ns) {
                by_place.insert(place, made);
            }
        }
        PrimaryAcknowledgements { by_place }
    }

    /// The change of an alert of this site; `None` if there is none.
    pub(crate) fn change(
        &self,
        place: impl FnOnce() -> AlertPlace,
        known: &AlertAcknowledgements,
        now_ns: i64,
    ) -> Option<AcknowledgementChange> {
        let known = known.of_primary();
        if self.by_place.is_empty() && known.is_none() {
            return None;
        }
        // The clock of the primary may be behind.
        let found = self.by_place.get(&place()).filter(|found| found.until_ns > now_ns);
        let Some(found) = found else {
            return known.map(|_| AcknowledgementChange::RemoveOfPrimary);
        };
        // The time of the first one stays if only the expiry moves.
        let is_known = known.is_some_and(|known| {
            AlertAcknowledgement { at_ns: found.at_ns, ..known.clone() } == *found
        });
        (!is_known).then(|| AcknowledgementChange::Set(found.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://north:7717/";

    fn place(group: &str) -> AlertPlace {
        AlertPlace {
            file: "rules.yaml".to_owned(),
            group: group.to_owned(),
            fingerprint: "00ff".to_owned(),
        }
    }

    /// Acknowledgements of groups, by their expiry.
    fn primary(groups: &[(&str, i64)]) -> PrimaryAcknowledgements {
        let one = |(group, until_ns): &(&str, i64)| SiteAcknowledgement {
            place: place(group),
            at_ns: 5,
            until_ns: *until_ns,
            by: "ann".to_owned(),
            note: "n".to_owned(),
        };
        PrimaryAcknowledgements::new(URL, groups.iter().map(one).collect())
    }

    /// What an alert of the group `g` becomes, by who acknowledged it until when, here and at the
    /// primary, after the list of the primary.
    #[track_caller]
    fn check(
        primary: &PrimaryAcknowledgements,
        alert: &mut AlertAcknowledgements,
        expected: [Option<i64>; 2],
    ) {
        if let Some(change) = primary.change(|| place("g"), alert, 100) {
            alert.apply(&change);
        }
        let found = [alert.own(), alert.of_primary()].map(|one| one.map(|one| one.until_ns));
        assert_eq!(found, expected);
        assert_eq!(primary.change(|| place("g"), alert, 100), None, "once");
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

    #[test]
    fn the_directory_of_a_rule_file_may_be_another_one() {
        let group = |file: &str| {
            let text = "groups:\n- name: g\n  rules:\n  - alert: Down\n    expr: up == 0\n";
            let parsed = rules::parse_rule_file(file, text, &query::promql::Options::default());
            let group = parsed.groups.into_iter().next().expect("a group");
            EvaluatedGroup::new(group, &rules::GroupDefaults::default())
        };
        let labels = LabelSet::new([("alertname".to_owned(), "Down".to_owned())]);
        let place = |file: &str| AlertPlace::of_rule(&group(file), &labels);
        assert_eq!(place("/etc/topdeck/rules.yaml"), place("/srv/rules.yaml"));
        assert_ne!(place("/etc/topdeck/rules.yaml"), place("/etc/topdeck/more.yaml"));
        let received = AlertPlace::of_received(&alert_labels(&labels));
        assert_eq!(received.fingerprint, place("rules.yaml").fingerprint);
        assert_ne!(received, place("rules.yaml"));
    }
}
