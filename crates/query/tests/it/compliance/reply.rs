//! Normalised results of both systems and their differences.
//!
//! As in Prometheus' compliance tests, numbers may differ by 10⁻⁵, NaN equals NaN, and series may
//! be in any order. Errors are equal whatever their text; warnings and infos are compared by text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use query::{FloatHistogram, QueryResult, QueryWarningKind, ResultData, StepValue as Own, Stream};
use serde_json::Value as Json;

/// Maximum difference of numbers, relative to the smaller one.
const FRACTION: f64 = 1e-5;

/// Result of a query.
#[derive(Debug)]
pub(crate) enum ComplianceReply {
    Failed(String),
    Data(ReplyData),
}

/// Series by labels, each with values by time in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct ReplyData {
    series: BTreeMap<ReplyLabels, Vec<(i64, ReplyValue)>>,
    warnings: BTreeSet<String>,
}

type ReplyLabels = BTreeMap<String, String>;

#[derive(Debug)]
enum ReplyValue {
    Number(f64),
    Histogram { count: f64, sum: f64, buckets: Vec<ReplyBucket> },
}

/// Prometheus' code for bound inclusion; lower bound, upper bound, count.
type ReplyBucket = (u64, f64, f64, f64);

impl ComplianceReply {
    /// Reply from our result of a range query.
    pub(crate) fn from_result(answer: query::Result<QueryResult>) -> ComplianceReply {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return ComplianceReply::Failed(error.to_string()),
        };
        let mut given = ReplyData::default();
        given.warnings.extend(
            [QueryWarningKind::Warning, QueryWarningKind::Info].into_iter().flat_map(|kind| {
                answer
                    .warnings
                    .of_kind(kind)
                    .map(|(message, _)| message.to_owned())
                    .collect::<Vec<_>>()
            }),
        );
        let times = |at: usize| answer.steps.time(at) / 1_000_000;
        match answer.data {
            ResultData::Scalar(numbers) => {
                let points = numbers.into_iter().enumerate();
                let points = points.map(|(at, number)| (times(at), ReplyValue::Number(number)));
                given.series.insert(ReplyLabels::new(), points.collect());
            }
            ResultData::Matrix(streams) | ResultData::Vector(streams) => {
                for Stream { labels, points, .. } in streams {
                    let labels = labels.iter().map(|(name, value)| (name.into(), value.into()));
                    let points = points.into_iter().enumerate();
                    let points =
                        points.filter_map(|(at, value)| Some((times(at), to_reply_value(&value?))));
                    given.series.insert(labels.collect(), points.collect());
                }
            }
            ResultData::Text(_) | ResultData::RawSamples(_) => {
                return ComplianceReply::Failed(
                    "neither a scalar nor a vector at each step".to_owned(),
                );
            }
        }
        ComplianceReply::Data(given)
    }

    /// Reply from Prometheus' JSON.
    pub(crate) fn from_json(body: &[u8]) -> ComplianceReply {
        let json: Json = serde_json::from_slice(body).expect("Prometheus answers in JSON");
        if json["status"] != "success" {
            return ComplianceReply::Failed(json["error"].as_str().unwrap_or("unknown").to_owned());
        }
        let mut given = ReplyData::default();
        for kind in ["warnings", "infos"] {
            let notes = list(&json[kind]).iter().filter_map(Json::as_str);
            given.warnings.extend(notes.map(|note| without_position(note).to_owned()));
        }
        for series in list(&json["data"]["result"]) {
            let labels = series["metric"].as_object().into_iter().flatten();
            let labels =
                labels.map(|(name, value)| (name.clone(), value.as_str().unwrap_or("").to_owned()));
            let mut points: Vec<(i64, ReplyValue)> = Vec::new();
            points.extend(
                list(&series["values"])
                    .iter()
                    .map(|point| (millis(&point[0]), ReplyValue::Number(number(&point[1])))),
            );
            points.extend(
                list(&series["histograms"])
                    .iter()
                    .map(|point| (millis(&point[0]), histogram(&point[1]))),
            );
            points.sort_by_key(|point| point.0);
            given.series.insert(labels.collect(), points);
        }
        ComplianceReply::Data(given)
    }

    /// Whether the query failed.
    pub(crate) fn is_failed(&self) -> bool {
        matches!(self, ComplianceReply::Failed(_))
    }

    /// Whether the result is empty.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, ComplianceReply::Data(given) if given.series.is_empty())
    }

    /// First difference from another reply; `None` if they agree.
    pub(crate) fn difference(&self, other: &ComplianceReply) -> Option<String> {
        match (self, other) {
            (ComplianceReply::Failed(_), ComplianceReply::Failed(_)) => None,
            (ComplianceReply::Failed(why), ComplianceReply::Data(_)) => {
                Some(format!("it is to fail: {why}"))
            }
            (ComplianceReply::Data(_), ComplianceReply::Failed(why)) => {
                Some(format!("it fails: {why}"))
            }
            (ComplianceReply::Data(expected), ComplianceReply::Data(found)) => {
                expected.difference(found)
            }
        }
    }
}

impl ReplyData {
    fn difference(&self, other: &ReplyData) -> Option<String> {
        let mut said = String::new();
        for (labels, expected) in &self.series {
            match other.series.get(labels) {
                None => drop(write!(said, "\n    missing {labels:?}")),
                Some(found) => {
                    if let Some(difference) = points_difference(expected, found) {
                        let _ = write!(said, "\n    {labels:?}: {difference}");
                    }
                }
            }
        }
        for labels in other.series.keys().filter(|labels| !self.series.contains_key(*labels)) {
            let _ = write!(said, "\n    not expected {labels:?}");
        }
        if self.warnings != other.warnings {
            let _ = write!(said, "\n    notes {:?}, not {:?}", other.warnings, self.warnings);
        }
        (!said.is_empty()).then_some(said)
    }
}

fn points_difference(
    expected: &[(i64, ReplyValue)],
    found: &[(i64, ReplyValue)],
) -> Option<String> {
    let times =
        |points: &[(i64, ReplyValue)]| points.iter().map(|point| point.0).collect::<Vec<_>>();
    if times(expected) != times(found) {
        return Some(format!("{} values, not {}, or others", found.len(), expected.len()));
    }
    let pairs = expected.iter().zip(found);
    let differ: Vec<_> = pairs.filter(|(one, other)| !is_same(&one.1, &other.1)).collect();
    let ((time, expected), (_, found)) = differ.first()?;
    Some(format!("{} differ; at {time} ms {found:?}, not {expected:?}", differ.len()))
}

fn is_same(a: &ReplyValue, b: &ReplyValue) -> bool {
    match (a, b) {
        (ReplyValue::Number(a), ReplyValue::Number(b)) => is_near(*a, *b),
        (
            ReplyValue::Histogram { count, sum, buckets },
            ReplyValue::Histogram { count: count_b, sum: sum_b, buckets: buckets_b },
        ) => {
            let is_same_bucket = |(a, b): (&ReplyBucket, &ReplyBucket)| {
                a.0 == b.0 && is_near(a.1, b.1) && is_near(a.2, b.2) && is_near(a.3, b.3)
            };
            is_near(*count, *count_b)
                && is_near(*sum, *sum_b)
                && buckets.len() == buckets_b.len()
                && buckets.iter().zip(buckets_b).all(is_same_bucket)
        }
        _ => false,
    }
}

fn is_near(a: f64, b: f64) -> bool {
    // The difference of two infinities is infinite, which is not within a fraction of either.
    let is_close = || (a - b).abs() <= FRACTION * a.abs().min(b.abs());
    a == b || a.is_nan() && b.is_nan() || a.is_finite() && b.is_finite() && is_close()
}

fn to_reply_value(value: &Own) -> ReplyValue {
    match (value.number(), value.histogram()) {
        (Some(number), _) => ReplyValue::Number(number),
        (None, Some(histogram)) => to_reply_histogram(&histogram),
        (None, None) => panic!("BUG: neither a number nor a histogram"),
    }
}

fn to_reply_histogram(histogram: &FloatHistogram) -> ReplyValue {
    let buckets = histogram.buckets().filter(|bucket| bucket.count != 0.0);
    let buckets = buckets.map(|bucket| {
        let bounds = match (bucket.lower_inclusive, bucket.upper_inclusive) {
            (false, true) => 0,
            (true, false) => 1,
            (false, false) => 2,
            (true, true) => 3,
        };
        (bounds, bucket.lower, bucket.upper, bucket.count)
    });
    ReplyValue::Histogram { count: histogram.count, sum: histogram.sum, buckets: buckets.collect() }
}

fn histogram(json: &Json) -> ReplyValue {
    let bucket = |json: &Json| {
        let bounds = json[0].as_u64().expect("bounds are a whole number");
        (bounds, number(&json[1]), number(&json[2]), number(&json[3]))
    };
    ReplyValue::Histogram {
        count: number(&json["count"]),
        sum: number(&json["sum"]),
        buckets: list(&json["buckets"]).iter().map(bucket).collect(),
    }
}

fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}

fn number(json: &Json) -> f64 {
    let number = json.as_str().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("{json} is no number"))
}

fn millis(json: &Json) -> i64 {
    (json.as_f64().expect("a time is a number") * 1e3).round() as i64
}

/// Prometheus appends the position to annotations: ` (1:5)`.
fn without_position(note: &str) -> &str {
    let place = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || ":)".contains(c));
    match note.rsplit_once(" (") {
        Some((text, rest)) if place(rest) => text,
        _ => note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[
        {"metric":{"a":"b"},"values":[[1.5,"1"],[2.5,"NaN"],[3.5,"+Inf"]]}]}}"#;
    const HISTOGRAMS: &str = r#"{"status":"success","warnings":["odd (1:5)"],"data":{"resultType":"matrix","result":[
        {"metric":{},"histograms":[[1,{"count":"3","sum":"4.5","buckets":[[0,"0.5","1","1"],[0,"1","2","2"]]}]]}]}}"#;

    #[track_caller]
    fn check(one: &str, other: &str, expected: Option<&str>) {
        let [one, other] = [one, other].map(|body| ComplianceReply::from_json(body.as_bytes()));
        let difference = one.difference(&other);
        assert_eq!(difference.as_deref().map(str::trim_start), expected);
    }

    #[test]
    fn equal_replies_have_no_difference() {
        check(NUMBERS, NUMBERS, None);
        check(NUMBERS, &NUMBERS.replace("\"1\"", "\"1.000001\""), None);
        check(HISTOGRAMS, HISTOGRAMS, None);
        check(HISTOGRAMS, &HISTOGRAMS.replace("1:5", "2:7"), None);
        let failed = r#"{"status":"error","error":"no"}"#;
        check(failed, &failed.replace("no", "never"), None);
    }

    #[test]
    fn differences_are_seen() {
        let series = "{\"a\": \"b\"}: 1 differ; at";
        let of = |other: &str| format!("{series} {other}");
        let found = of("1500 ms Number(1.0001), not Number(1.0)");
        check(NUMBERS, &NUMBERS.replace("\"1\"", "\"1.0001\""), Some(&found));
        let found = of("2500 ms Number(0.0), not Number(NaN)");
        check(NUMBERS, &NUMBERS.replace("NaN", "0"), Some(&found));
        let found = of("3500 ms Number(-inf), not Number(inf)");
        check(NUMBERS, &NUMBERS.replace("+Inf", "-Inf"), Some(&found));
        let fewer = "{\"a\": \"b\"}: 2 values, not 3, or others";
        check(NUMBERS, &NUMBERS.replace("[1.5,\"1\"],", ""), Some(fewer));
        check(
            HISTOGRAMS,
            &HISTOGRAMS.replace("odd (1:5)", "even"),
            Some("notes {\"even\"}, not {\"odd\"}"),
        );
        let failed = r#"{"status":"error","error":"no"}"#;
        check(failed, NUMBERS, Some("it is to fail: no"));
        check(NUMBERS, failed, Some("it fails: no"));
    }

    #[test]
    fn buckets_are_compared() {
        let [one, other] = [HISTOGRAMS, &HISTOGRAMS.replace("[0,\"1\"", "[3,\"1\"")];
        let [one, other] = [one, other].map(|body| ComplianceReply::from_json(body.as_bytes()));
        assert!(one.difference(&other).is_some_and(|said| said.contains("1 differ")));
    }
}
