//! A search as JSON: `docs/formats/load-search.md`, checked by a test.

use crate::{InvalidReason, UpperBound};
use render::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use render::json::{integer, number};

use crate::report::run_document::{calibration, invalid_reasons, latency_json, settings_fields};
use crate::report::search_report::{SearchReport, purpose};

/// Version of the format.
const VERSION: u64 = 2;

/// The search as a document.
pub fn to_json(report: &SearchReport) -> Json {
    let SearchReport { search, result, .. } = report;
    let text = |text: &str| Text(text.to_owned());
    let mut all = vec![("format", text("topdeck load search")), ("version", integer(VERSION))];
    all.extend(settings_fields(&report.plan));
    let requirements = report.requirements.iter().map(|one| text(&one.expression));
    let trials = result.trials.iter().map(|trial| {
        let of = &trial.measurement;
        Object(vec![
            ("rate", number(trial.rate)),
            ("duration_ns", integer(trial.duration_ns)),
            ("purpose", text(purpose(trial))),
            ("passed", Bool(trial.is_passed)),
            ("generator_limited", Bool(trial.is_generator_limited)),
            ("failed_requests", integer(of.failed_requests)),
            ("unknown_outcome_share", number(of.unknown_outcome_share)),
            (
                "invalid_reasons",
                List(of.invalid_reasons.iter().map(InvalidReason::kind).map(text).collect()),
            ),
            ("response", latency_json(&of.response)),
            ("service", latency_json(&of.service)),
        ])
    });
    all.extend([
        ("calibration", report.calibration.as_ref().map_or(Null, calibration)),
        ("start_unix_ns", Integer(report.start_unix_ns.into())),
        ("duration_ns", integer(report.duration_ns)),
        ("valid", Bool(report.is_valid())),
        ("invalid_reasons", invalid_reasons(&report.invalid_reasons)),
        ("requirements", List(requirements.collect())),
        ("first_rate", number(search.first_rate)),
        ("max_rate", number(search.max_rate)),
        ("tolerance", number(search.tolerance)),
        (
            "sustained",
            result.sustained.map_or(Null, |rate| {
                let (lower, upper) = rate.confidence();
                Object(vec![
                    ("rate", number(rate.rate)),
                    ("passed_runs", integer(rate.passed_runs.into())),
                    ("runs", integer(rate.runs.into())),
                    ("confidence_lower", number(lower)),
                    ("confidence_upper", number(upper)),
                ])
            }),
        ),
        ("upper_bound", upper_bound(result.upper_bound)),
        (
            "knee",
            Object(vec![
                ("lower_rate", result.knee.lower_rate.map_or(Null, number)),
                ("upper_bound", upper_bound(result.knee.upper_bound)),
            ]),
        ),
        ("summary", text(&result.to_string())),
        ("trials", List(trials.collect())),
    ]);
    Object(all)
}

fn upper_bound(of: UpperBound) -> Json {
    let (limit, rate) = match of {
        UpperBound::TargetFailed(rate) => ("target", Some(rate)),
        UpperBound::GeneratorLimited(rate) => ("generator", Some(rate)),
        UpperBound::Untested => return Null,
    };
    Object(vec![("limited_by", Text(limit.to_owned())), ("rate", rate.map_or(Null, number))])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use crate::{CapacitySearch, LatencyLimit, TrialMeasurement};
    use hist::Histogram;

    use super::*;
    use crate::report::stored_run::tests::{paths, report};

    const PAGE: &str = include_str!("../../../../docs/formats/load-search.md");

    /// A search of a target with a capacity of 1,000 requests per second.
    fn search_report() -> SearchReport {
        let report = report();
        let requirements = vec!["p99<20ms".parse().unwrap()];
        let limits = requirements.iter().map(|one| LatencyLimit::try_from(one).unwrap()).collect();
        let search = CapacitySearch { requirements: limits, ..CapacitySearch::default() };
        let found: Result<_, (Infallible, _)> = search.run(&mut |trial| {
            let ms = if trial.rate > 1_000.0 { 50 } else { 1 };
            let times = |ms: u64| {
                let mut times = Histogram::default();
                (0..100).for_each(|_| times.record(ms as f64 * 1e6));
                times
            };
            let invalid_reasons = report.run.invalid_reasons.clone();
            Ok(TrialMeasurement {
                response: times(ms),
                service: times(1),
                invalid_reasons,
                ..TrialMeasurement::default()
            })
        });
        SearchReport {
            plan: report.plan,
            calibration: report.calibration,
            requirements,
            search,
            result: found.unwrap(),
            invalid_reasons: report.run.invalid_reasons,
            start_unix_ns: report.run.start_unix_ns,
            duration_ns: 90_000_000_000,
        }
    }

    #[test]
    fn documentation_names_every_field() {
        let text = to_json(&search_report()).to_string();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!((950.0..=1_000.0).contains(&json["sustained"]["rate"].as_f64().unwrap()), "{text}");
        let mut found = BTreeSet::new();
        paths(&json, "", &mut found);
        let (fields, _) = PAGE.split_once("## Version 1").unwrap();
        let rows = fields.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let documented: BTreeSet<String> = rows.map(|(path, _)| path.to_owned()).collect();
        assert_eq!(documented, found);
    }
}
