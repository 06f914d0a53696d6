//! Acknowledgements of the primary site, which a standby makes its own: an alert that somebody
//! works on is not escalated by the other site.
//!
//! The primary lists all of them in each response. At the standby the name of the person ends with
//! ` at URL`, which says where it was acknowledged, and also tells the standby after a restart
//! which of its acknowledgements the primary may take back.

use std::collections::BTreeMap;

use notify::AlertLabels;
use rules::{AlertAcknowledgement, AlertState};

use crate::alert_board::BoardState;
use crate::alert_selection::{alert_labels, fingerprint};

/// Maximum number of acknowledgements of a response: the newest ones.
const ACKNOWLEDGEMENTS_MAX: usize = 1_000;
/// Maximum size of their texts in bytes.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// Acknowledgement of an alert at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteAcknowledgement {
    /// Of the labels of the alert.
    pub(crate) fingerprint: String,
    pub(crate) acknowledgement: AlertAcknowledgement,
}

/// Acknowledgements of this site for a standby, the newest first. Those of its own primary are left
/// out: two sites that each have the other as primary would tell each other forever.
pub(crate) fn site_acknowledgements(
    state: &BoardState,
    primary_url: Option<&str>,
) -> Vec<SiteAcknowledgement> {
    let own = state.active_alerts().filter(|active| active.alert.state != AlertState::Inactive);
    let own = own.filter_map(|active| {
        let acknowledgement = active.alert.acknowledgement.as_ref()?;
        Some((acknowledgement, alert_labels(active.labels)))
    });
    let received = state.firing_received().filter_map(|alert| {
        let acknowledgement = alert.acknowledgement.as_ref()?;
        Some((acknowledgement, alert.labels.clone()))
    });
    let is_meant = |acknowledgement: &AlertAcknowledgement| {
        acknowledgement.until_ns > state.now_ns
            && primary_url.is_none_or(|url| !acknowledgement.by.ends_with(&suffix(url)))
    };
    let mut found: Vec<SiteAcknowledgement> = own
        .chain(received)
        .filter(|(acknowledgement, _)| is_meant(acknowledgement))
        .map(|(acknowledgement, labels)| SiteAcknowledgement {
            fingerprint: fingerprint(&labels),
            acknowledgement: acknowledgement.clone(),
        })
        .collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.acknowledgement.at_ns));
    found.truncate(ACKNOWLEDGEMENTS_MAX);
    let mut text_bytes = 0;
    found.retain(|one| {
        text_bytes += one.acknowledgement.by.len() + one.acknowledgement.note.len();
        text_bytes <= TEXT_BYTES_MAX
    });
    found
}

/// All acknowledgements of the primary site.
#[derive(Clone, Debug)]
pub(crate) struct PrimaryAcknowledgements {
    /// End of the names of those who acknowledged there.
    suffix: String,
    by_fingerprint: BTreeMap<String, AlertAcknowledgement>,
}

/// What becomes of the acknowledgement of an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AcknowledgementChange {
    Set(AlertAcknowledgement),
    Remove,
}

impl AcknowledgementChange {
    /// The new acknowledgement.
    pub(crate) fn acknowledgement(&self) -> Option<&AlertAcknowledgement> {
        match self {
            AcknowledgementChange::Set(new) => Some(new),
            AcknowledgementChange::Remove => None,
        }
    }
}

impl PrimaryAcknowledgements {
    /// Those of the site with this URL.
    pub(crate) fn new(url: &str, all: Vec<SiteAcknowledgement>) -> PrimaryAcknowledgements {
        let suffix = suffix(url);
        let marked = |one: SiteAcknowledgement| {
            let SiteAcknowledgement { fingerprint, mut acknowledgement } = one;
            acknowledgement.by.push_str(&suffix);
            (fingerprint, acknowledgement)
        };
        let by_fingerprint = all.into_iter().map(marked).collect();
        PrimaryAcknowledgements { suffix, by_fingerprint }
    }

    /// The change of an alert of this site; `None` if there is none. An acknowledgement that was
    /// made here stays, unless the one of the primary ends later.
    pub(crate) fn change(
        &self,
        labels: impl FnOnce() -> AlertLabels,
        known: Option<&AlertAcknowledgement>,
        now_ns: i64,
    ) -> Option<AcknowledgementChange> {
        let is_of_primary = known.is_some_and(|known| known.by.ends_with(&self.suffix));
        if self.by_fingerprint.is_empty() && !is_of_primary {
            return None;
        }
        // The clock of the primary may be behind.
        let found = self.by_fingerprint.get(&fingerprint(&labels()));
        let found = found.filter(|found| found.until_ns > now_ns);
        let Some(found) = found else {
            return is_of_primary.then_some(AcknowledgementChange::Remove);
        };
        let is_known = known.is_some_and(|known| match is_of_primary {
            true => {
                (&known.by, &known.note, known.until_ns) == (&found.by, &found.note, found.until_ns)
            }
            false => known.until_ns >= found.until_ns,
        });
        (!is_known).then(|| AcknowledgementChange::Set(found.clone()))
    }
}

fn suffix(url: &str) -> String {
    format!(" at {}", url.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://north:7717/";

    fn acknowledgement(by: &str, until_ns: i64) -> AlertAcknowledgement {
        AlertAcknowledgement { at_ns: 5, until_ns, by: by.to_owned(), note: "n".to_owned() }
    }

    fn labels() -> AlertLabels {
        [("alertname".to_owned(), "Down".to_owned())].into()
    }

    fn primary(until_ns: Option<i64>) -> PrimaryAcknowledgements {
        let one = |until_ns| SiteAcknowledgement {
            fingerprint: fingerprint(&labels()),
            acknowledgement: acknowledgement("ann", until_ns),
        };
        PrimaryAcknowledgements::new(URL, until_ns.map(one).into_iter().collect())
    }

    /// Change of an alert with an acknowledgement: by whom it is then, and until when.
    #[track_caller]
    fn check(
        primary: &PrimaryAcknowledgements,
        known: Option<(&str, i64)>,
        expected: Option<Option<(&str, i64)>>,
    ) {
        let known = known.map(|(by, until_ns)| acknowledgement(by, until_ns));
        let found = primary.change(labels, known.as_ref(), 100);
        let found = found
            .as_ref()
            .map(|change| change.acknowledgement().map(|new| (new.by.as_str(), new.until_ns)));
        assert_eq!(found, expected);
    }

    const MIRRORED: &str = "ann at http://north:7717";

    #[test]
    fn an_alert_has_the_acknowledgement_of_the_primary() {
        check(&primary(Some(200)), None, Some(Some((MIRRORED, 200))));
        check(&primary(Some(200)), Some((MIRRORED, 200)), None);
        check(&primary(Some(300)), Some((MIRRORED, 200)), Some(Some((MIRRORED, 300))));
        check(&primary(Some(150)), Some((MIRRORED, 200)), Some(Some((MIRRORED, 150))));
        check(&primary(None), Some((MIRRORED, 200)), Some(None));
        check(&primary(None), None, None);
        // It is over by the clock of this site.
        check(&primary(Some(100)), None, None);
        check(&primary(Some(100)), Some((MIRRORED, 100)), Some(None));
    }

    #[test]
    fn an_acknowledgement_of_this_site_stays() {
        check(&primary(None), Some(("bob", 200)), None);
        check(&primary(Some(200)), Some(("bob", 200)), None);
        check(&primary(Some(201)), Some(("bob", 200)), Some(Some((MIRRORED, 201))));
        // Of another primary, or of a person with such a name.
        check(&primary(None), Some(("ann at http://south:7717", 200)), None);
    }

    #[test]
    fn another_alert_has_none() {
        let other = || [("alertname".to_owned(), "Up".to_owned())].into();
        assert_eq!(primary(Some(200)).change(other, None, 100), None);
    }
}
