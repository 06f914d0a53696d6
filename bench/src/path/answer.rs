//! Answers of servers in one form, and their comparison: times of different answers say nothing.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

/// Group (endpoint or statistic) and time of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AnswerKey {
    group: String,
    time_s: i64,
}

impl AnswerKey {
    pub(crate) fn new(group: &str, time_s: i64) -> AnswerKey {
        AnswerKey { group: group.to_owned(), time_s }
    }

    fn with_group(&self, group: &str) -> AnswerKey {
        AnswerKey::new(group, self.time_s)
    }
}

/// Values of an answer; of a histogram its count.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AnswerValues(pub(crate) BTreeMap<AnswerKey, f64>);

/// Lowest and highest right value.
pub(crate) type AnswerBounds = BTreeMap<AnswerKey, (f64, f64)>;

/// The bounds of one group, without its name, from a time on.
pub(crate) fn of_group(bounds: AnswerBounds, group: &str, from_s: i64) -> AnswerBounds {
    let is_asked = |key: &AnswerKey| key.group == group && key.time_s >= from_s;
    let found = bounds.into_iter().filter(|(key, _)| is_asked(key));
    found.map(|(key, pair)| (key.with_group(""), pair)).collect()
}

/// Names a part of the bounds as a group.
pub(crate) fn grouped(bounds: AnswerBounds, group: &str) -> AnswerBounds {
    bounds.into_iter().map(|(key, pair)| (key.with_group(group), pair)).collect()
}

/// Prometheus' own tests accept this relative error (`promqltest`, defaultEpsilon).
const TOLERANCE: f64 = 1e-6;

impl AnswerValues {
    /// Values of a response of `query` or `query_range`.
    pub(crate) fn parse(body: &[u8]) -> Result<AnswerValues> {
        let answer: Value = serde_json::from_slice(body).context("a response that is no JSON")?;
        let all = answer["data"]["result"].as_array().context("a response without a result")?;
        let mut values = BTreeMap::new();
        for series in all {
            let metric = &series["metric"];
            // Cumulative buckets: the last one is the count.
            if metric["le"].as_str().is_some_and(|bound| bound != "+Inf") {
                continue;
            }
            let group = ["endpoint", "statistic"].iter().find_map(|name| metric[name].as_str());
            let many = ["values", "histograms"].iter().filter_map(|name| series[name].as_array());
            let one = ["value", "histogram"].iter().map(|name| &series[name]);
            for pair in many.flatten().chain(one) {
                let Some(time) = pair[0].as_f64() else { continue };
                let text = pair[1].as_str().or_else(|| pair[1]["count"].as_str());
                let value: f64 = text.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
                let key = AnswerKey::new(group.unwrap_or_default(), time as i64);
                *values.entry(key).or_insert(0.0) += value;
            }
        }
        Ok(AnswerValues(values))
    }

    /// Bounds for another server that must answer the same.
    pub(crate) fn bounds(&self) -> AnswerBounds {
        self.0.iter().map(|(key, &value)| (key.clone(), (value, value))).collect()
    }

    /// The values of the only group, without its name.
    pub(crate) fn without_group(self) -> AnswerValues {
        AnswerValues(self.0.into_iter().map(|(key, value)| (key.with_group(""), value)).collect())
    }

    /// The values at every `step_s` seconds from a time on.
    pub(crate) fn every(&self, step_s: i64, from_s: i64) -> AnswerValues {
        let is_kept = |key: &AnswerKey| (key.time_s - from_s) % step_s == 0;
        let kept = self.0.iter().filter(|(key, _)| is_kept(key));
        AnswerValues(kept.map(|(key, &value)| (key.clone(), value)).collect())
    }

    /// Compares with what is right.
    pub(crate) fn check(&self, bounds: &AnswerBounds) -> AnswerCheck {
        let mut check = AnswerCheck::default();
        for (key, &(lower, upper)) in bounds {
            check.compared += 1;
            match self.0.get(key) {
                None => check.missing += 1,
                Some(&value) => check.add(value, lower, upper),
            }
        }
        check.surplus = self.0.keys().filter(|key| !bounds.contains_key(key)).count();
        check
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AnswerCheck {
    compared: usize,
    missing: usize,
    surplus: usize,
    different: usize,
    /// Largest relative distance from the bounds.
    worst: f64,
}

impl AnswerCheck {
    fn add(&mut self, value: f64, lower: f64, upper: f64) {
        if lower.is_nan() && value.is_nan() {
            return;
        }
        let distance = match (value < lower, value > upper) {
            (true, _) => (lower - value) / lower.abs().max(f64::MIN_POSITIVE),
            (_, true) => (value - upper) / upper.abs().max(f64::MIN_POSITIVE),
            // Also NaN where a number was expected.
            _ if value >= lower => 0.0,
            _ => f64::INFINITY,
        };
        if distance > TOLERANCE {
            self.different += 1;
            self.worst = self.worst.max(distance);
        }
    }

    /// Adds the result of another comparison.
    pub(crate) fn merge(&mut self, other: &AnswerCheck) {
        self.compared += other.compared;
        self.missing += other.missing;
        self.surplus += other.surplus;
        self.different += other.different;
        self.worst = self.worst.max(other.worst);
    }

    /// Whether nothing was compared.
    pub(crate) fn is_empty(&self) -> bool {
        self.compared == 0
    }

    pub(crate) fn is_equal(&self) -> bool {
        self.missing + self.surplus + self.different == 0 && self.compared > 0
    }

    /// Text of a table cell.
    pub(crate) fn cell(&self) -> String {
        if self.is_equal() {
            return format!("right, {} values", self.compared);
        }
        let mut parts = Vec::new();
        if self.different > 0 {
            let worst = match self.worst * 100.0 {
                percent if percent < 0.01 => format!("{percent:.0e}"),
                percent => crate::report::number(percent),
            };
            parts.push(format!("{} differ, by up to {worst} %", self.different));
        }
        if self.missing > 0 {
            parts.push(format!("{} missing", self.missing));
        }
        if self.surplus > 0 {
            parts.push(format!("{} surplus", self.surplus));
        }
        format!("of {} values {}", self.compared, parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(json: &str) -> AnswerValues {
        let body = format!(r#"{{"status":"success","data":{{"result":[{json}]}}}}"#);
        AnswerValues::parse(body.as_bytes()).unwrap()
    }

    #[test]
    fn histograms_classic_and_vmrange_buckets_give_the_same_counts() {
        let native = r#"{"metric":{},"histograms":[[60,{"count":"5","sum":"1"}]]}"#;
        let classic = r#"{"metric":{"le":"1"},"values":[[60,"3"]]},
                         {"metric":{"le":"+Inf"},"values":[[60,"5"]]}"#;
        let vmrange = r#"{"metric":{"vmrange":"0...1"},"values":[[60,"3"]]},
                         {"metric":{"vmrange":"1...2"},"values":[[60,"2"]]}"#;
        let expected = [(AnswerKey::new("", 60), 5.0)].into();
        for json in [native, classic, vmrange] {
            assert_eq!(answer(json).0, expected, "{json}");
        }
    }

    #[test]
    fn a_wrong_a_missing_and_a_surplus_value_are_named() {
        let bounds: AnswerBounds =
            [60, 120, 180].map(|time| (AnswerKey::new("", time), (1.0, 2.0))).into();
        let right = answer(r#"{"metric":{},"values":[[60,"1"],[120,"2"],[180,"1.5"]]}"#);
        assert!(right.check(&bounds).is_equal());
        let wrong = answer(r#"{"metric":{},"values":[[60,"3"],[120,"1"],[240,"1"]]}"#);
        let cell = wrong.check(&bounds).cell();
        assert_eq!(cell, "of 3 values 1 differ, by up to 50.0 %, 1 missing, 1 surplus");
        let nan = answer(r#"{"metric":{},"values":[[60,"NaN"],[120,"1"],[180,"1"]]}"#);
        assert!(!nan.check(&bounds).is_equal());
    }
}
