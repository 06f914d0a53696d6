//! Table `[[slo]]` of the settings.

use std::collections::BTreeMap;
use std::fmt;

use role::settings::{SettingsCheck, TableRef};
use rules::slo::{CorrectionDraft, Slo, SloDraft};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// Name of the table.
const TABLE: &str = "slo";
/// Maximum number of SLOs: each has a few queries a minute.
const SLOS_MAX: usize = 1_000;

/// `[[slo]]`: a service level objective.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SloTable {
    name: String,
    description: String,
    selector: Option<String>,
    threshold: Option<ScalarText>,
    good: Option<String>,
    bad: Option<String>,
    total: Option<String>,
    objective: Option<ScalarText>,
    period: Option<String>,
    zone: Option<String>,
    users: Option<f64>,
    user_label: Option<String>,
    labels: BTreeMap<String, String>,
    alert_windows: Option<Vec<String>>,
    affected_max: Option<u64>,
    correction: Vec<CorrectionTable>,
}

/// `[[slo.correction]]`: time that does not count.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
struct CorrectionTable {
    from: String,
    to: String,
    reason: String,
}

/// Text, or a number as it is written.
#[derive(Clone, Debug, Default, PartialEq)]
struct ScalarText(String);

impl<'de> Deserialize<'de> for ScalarText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ScalarText, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = ScalarText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a text such as \"99.9%\" or \"250ms\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ScalarText, E> {
        Ok(ScalarText(text.to_owned()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<ScalarText, E> {
        Ok(ScalarText(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<ScalarText, E> {
        Ok(ScalarText(number.to_string()))
    }
}

impl SloTable {
    fn draft(&self) -> SloDraft {
        let scalar = |text: &Option<ScalarText>| text.as_ref().map(|text| text.0.clone());
        let correction = |table: &CorrectionTable| CorrectionDraft {
            from: table.from.clone(),
            to: table.to.clone(),
            reason: table.reason.clone(),
        };
        SloDraft {
            name: self.name.clone(),
            description: self.description.clone(),
            selector: self.selector.clone(),
            threshold: scalar(&self.threshold),
            good: self.good.clone(),
            bad: self.bad.clone(),
            total: self.total.clone(),
            objective: scalar(&self.objective),
            period: self.period.clone(),
            zone: self.zone.clone(),
            users: self.users,
            user_label: self.user_label.clone(),
            labels: self.labels.clone(),
            alert_windows: self.alert_windows.clone(),
            affected_max: self.affected_max,
            corrections: self.correction.iter().map(correction).collect(),
        }
    }
}

/// SLOs of the tables. Those with problems are left out: the settings are refused anyway.
pub(crate) fn slos(tables: &[SloTable]) -> Vec<Slo> {
    tables.iter().filter_map(|table| table.draft().check().ok()).collect()
}

/// Reports the problems of the tables.
pub(crate) fn check(tables: &[SloTable], check: &mut SettingsCheck<'_>) {
    check.names(TABLE, tables.iter().map(|table| table.name.as_str()));
    if tables.len() > SLOS_MAX {
        let found = tables.len();
        let what = format!("limit of {SLOS_MAX} [[slo]] exceeded ({found})");
        check.problem(TableRef::nth(TABLE, SLOS_MAX), "name", what);
    }
    for (index, table) in tables.iter().enumerate() {
        // An absent name is reported with the names.
        let problems = table.draft().check().err().unwrap_or_default();
        for problem in problems.into_iter().filter(|problem| problem.key != "name") {
            check.problem(TableRef::nth(TABLE, index), problem.key, problem.what);
        }
    }
}
