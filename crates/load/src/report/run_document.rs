//! A run as JSON: `docs/formats/load-run.md`, checked by a test.
//!
//! Fields are only ever added; a change of meaning or name is a new `version`. `stored_run.rs`
//! reads it.

use crate::{Calibration, Failure, InvalidReason, RequirementOutcome, Tally};
use codecs::frame_text;
use hist::Histogram;
use hist::codec::frame::{FrameUnit, SeriesMeta, Temporality};
use render::json::Json::{self, Bool, Integer, List, Map, Null, Object, Text};
use render::json::statistics::{bracket, fields, statistic};
use render::json::{integer, number};

use crate::report::run_plan::RunPlan;
use crate::report::run_report::{RequirementResult, RunReport};
use crate::report::statistics::{QUANTILES, quantile_or_max, times};
use crate::report::{sessions, statistics};

/// Name of the format.
pub(crate) const FORMAT: &str = "topdeck load run";
pub(crate) const VERSION: u64 = 2;

/// The run as a document.
pub fn to_json(report: &RunReport) -> Json {
    let run = &report.run;
    let text = |text: &str| Text(text.to_owned());
    let mut all = vec![("format", text(FORMAT)), ("version", integer(VERSION))];
    all.extend(settings_fields(&report.plan));
    all.extend([
        ("calibration", report.calibration.as_ref().map_or(Null, calibration)),
        ("start_unix_ns", Integer(run.start_unix_ns.into())),
        ("duration_ns", integer(run.duration_ns)),
        ("interrupted", Bool(run.is_interrupted)),
        ("valid", Bool(run.invalid_reasons.is_empty())),
        ("invalid_reasons", invalid_reasons(&run.invalid_reasons)),
        (
            "stalls",
            List(
                run.stalls
                    .iter()
                    .map(|(from, to)| {
                        Object(vec![("from_ns", integer(*from)), ("to_ns", integer(*to))])
                    })
                    .collect(),
            ),
        ),
        ("counts", counts_json(&run.tally)),
        (
            "first_errors",
            Map(statistics::first_errors(run)
                .into_iter()
                .map(|(failure, detail)| (failure.key(), text(detail)))
                .collect()),
        ),
        ("in_flight_peak", integer(run.tally.in_flight_peak)),
        ("connections_peak", integer(run.tally.connections_peak)),
        ("files", files(&run.files)),
        ("queued_requests", integer(run.tally.queued_requests)),
        ("connections_opened", integer(run.tally.connections_opened)),
        ("cpu_ns", integer(run.tally.cpu_ns)),
        (
            "times",
            Map(times(&run.tally)
                .into_iter()
                .map(|(name, of, _)| (name.replace(' ', "_"), latency_json(of)))
                .collect()),
        ),
        ("requests", List(run.per_request.iter().map(|(name, of)| request(name, of)).collect())),
        ("seconds", seconds(report)),
        ("requirements", List(report.requirements.iter().map(requirement).collect())),
        ("sessions", report.sessions.map_or(Null, |of| session(of, &run.tally.response))),
        (
            "push",
            report.push.as_ref().map_or(Null, |push| {
                Object(vec![
                    ("url", text(&push.url)),
                    ("run", text(&push.run)),
                    ("seconds", integer(push.seconds)),
                    ("delivered", integer(push.delivered)),
                    ("dropped", integer(push.dropped)),
                ])
            }),
        ),
    ]);
    Object(all)
}

/// Target, settings and machine.
pub(crate) fn settings_fields(plan: &RunPlan) -> Vec<(&'static str, Json)> {
    let text = |text: &str| Text(text.to_owned());
    let (settings, machine) = (&plan.settings, &plan.machine);
    vec![
        ("target", text(&plan.target)),
        ("protocol", text(&plan.protocol)),
        ("verified", plan.is_verified().map_or(Null, Bool)),
        ("schedule", text(&plan.schedule)),
        ("seed", integer(settings.seed)),
        ("threads", integer(settings.threads as u64)),
        ("connections", integer(settings.connections as u64)),
        ("max_connections", integer(settings.max_connections as u64)),
        ("timeout_ns", integer(settings.timeout_ns)),
        ("grace_period_ns", integer(settings.grace_period_ns)),
        (
            "machine",
            Object(vec![
                ("topdeck", text(&machine.version)),
                ("kernel", text(&machine.kernel)),
                ("cpu_model", text(&machine.cpu_model)),
                ("cpus", integer(machine.cpus as u64)),
            ]),
        ),
    ]
}

pub(crate) fn invalid_reasons(reasons: &[InvalidReason]) -> Json {
    let reasons = reasons.iter().map(|reason| {
        let (kind, text) = (reason.kind().to_owned(), reason.to_string());
        Object(vec![("kind", Text(kind)), ("text", Text(text))])
    });
    List(reasons.collect())
}

pub(crate) fn calibration(found: &Calibration) -> Json {
    let checks = found.checks.iter().map(|one| {
        Object(vec![
            ("statistic", Text(one.statistic.to_owned())),
            ("measured_ns", number(one.measured_ns)),
            ("expected_ns", number(one.expected_ns)),
            ("tolerance_ns", number(one.tolerance_ns)),
        ])
    });
    Object(vec![
        ("clock_mode", Text(found.clock_mode.name().to_owned())),
        ("clock_reason", found.clock_reason.clone().map_or(Null, Text)),
        ("clock_error_ns", integer(found.clock_error_ns)),
        ("clock_discontinuities", integer(found.clock_discontinuities)),
        ("max_rate", number(found.max_rate)),
        ("coordinated_omission", List(checks.collect())),
        ("attempts", integer(found.attempts.into())),
        ("stable", Bool(found.is_stable)),
    ])
}

fn counts_json(tally: &Tally) -> Json {
    let failed = Failure::ALL.iter().zip(tally.failed);
    Object(vec![
        ("scheduled", integer(tally.scheduled)),
        ("completed", integer(tally.completed)),
        ("failed", Map(failed.map(|(reason, n)| (reason.key(), integer(n))).collect())),
        ("unfinished", integer(tally.unfinished)),
        ("not_sent", integer(tally.not_sent)),
        ("observed_late", integer(tally.observed_late)),
    ])
}

fn files(files: &crate::FileLimits) -> Json {
    Object(vec![
        ("needed", integer(files.required)),
        ("soft_limit", files.soft_limit.map_or(Null, integer)),
        ("hard_limit", files.hard_limit.map_or(Null, integer)),
    ])
}

fn frame_of(of: &Histogram) -> Json {
    let meaning = SeriesMeta { unit: FrameUnit::Nanoseconds, temporality: Temporality::Delta };
    Text(frame_text::encode(of, meaning))
}

/// Statistics in nanoseconds, and the complete histogram.
pub(crate) fn latency_json(of: &Histogram) -> Json {
    let quantiles = QUANTILES.iter().filter(|q| **q < 1.0).filter_map(|&q| {
        let mut all = vec![("q", number(q))];
        all.extend(fields(quantile_or_max(of, q)?));
        Some(Object(all))
    });
    Object(vec![
        ("count", integer(of.count())),
        ("mean", statistic(of.mean())),
        ("max", statistic(of.max())),
        ("quantiles", List(quantiles.collect())),
        ("frame", frame_of(of)),
    ])
}

fn request(name: &str, of: &Histogram) -> Json {
    let Json::Object(mut all) = latency_json(of) else { return Null };
    all.insert(0, ("name", Text(name.to_owned())));
    Object(all)
}

fn seconds(report: &RunReport) -> Json {
    let (responses, services) = (&report.run.per_second, &report.services);
    let last = responses.keys().chain(services.keys()).max().map_or(0, |last| last + 1);
    let both = (0..last).filter_map(|second| {
        let frame = |of: Option<&Histogram>| of.map_or(Null, frame_of);
        let (response, service) = (responses.get(&second), services.get(&second));
        (response.is_some() || service.is_some()).then(|| {
            Object(vec![
                ("second", integer(second)),
                ("response", frame(response)),
                ("service", frame(service)),
            ])
        })
    });
    List(both.collect())
}

fn requirement(result: &RequirementResult) -> Json {
    let outcome = match result.outcome {
        RequirementOutcome::Pass => "pass",
        RequirementOutcome::Fail => "fail",
        RequirementOutcome::Inconclusive => "inconclusive",
    };
    Object(vec![
        ("requirement", Text(result.requirement.expression.clone())),
        ("outcome", Text(outcome.to_owned())),
        ("measured", result.measured.map_or(Null, bracket)),
    ])
}

fn session(of: crate::Sessions, times: &Histogram) -> Json {
    let percentiles = sessions::QUANTILES.iter().map(|&q| {
        Object(vec![("q", number(q)), ("share_of_sessions_above", number(of.share_above(q)))])
    });
    let slowest = sessions::SESSION_SHARES.iter().map(|&share| {
        let q = of.percentile(share);
        Object(vec![
            ("share", number(share)),
            ("q", number(q)),
            ("response", statistic(statistics::quantile_or_max(times, q))),
        ])
    });
    Object(vec![
        ("page_views", integer(of.page_views.into())),
        ("requests_per_page", integer(of.requests_per_page.into())),
        ("percentiles", List(percentiles.collect())),
        ("slowest_responses", List(slowest.collect())),
    ])
}
