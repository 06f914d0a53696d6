//! What an alert is of, at each of two sites, and texts of the other site about it.

use std::path::Path;

use notify::AlertLabels;
use query::LabelSet;
use rules::EvaluatedGroup;

use crate::alert_selection::{alert_labels, fingerprint};

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

/// The first bytes of a text.
pub(crate) fn cut_text(mut text: String, max: usize) -> String {
    text.truncate(text.floor_char_boundary(max));
    text
}

/// URL of a primary site.
#[cfg(test)]
pub(crate) const EXAMPLE_URL: &str = "http://north:7717/";

#[cfg(test)]
impl AlertPlace {
    /// That of an alert of a group.
    pub(crate) fn example(group: &str) -> AlertPlace {
        AlertPlace {
            file: "rules.yaml".to_owned(),
            group: group.to_owned(),
            fingerprint: "00ff".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_group::test_group;

    #[test]
    fn the_directory_of_a_rule_file_may_be_another_one() {
        let text = "groups:\n- name: g\n  rules:\n  - alert: Down\n    expr: up == 0\n";
        let group = |file: &str| test_group(file, text);
        let labels = LabelSet::new([("alertname".to_owned(), "Down".to_owned())]);
        let place = |file: &str| AlertPlace::of_rule(&group(file), &labels);
        assert_eq!(place("/etc/topdeck/rules.yaml"), place("/srv/rules.yaml"));
        assert_ne!(place("/etc/topdeck/rules.yaml"), place("/etc/topdeck/more.yaml"));
        let received = AlertPlace::of_received(&alert_labels(&labels));
        assert_eq!(received.fingerprint, place("rules.yaml").fingerprint);
        assert_ne!(received, place("rules.yaml"));
    }
}
