//! A run as JSON: `docs/formats/load-run.md`, to which a test holds it.
//!
//! Fields are only ever added; a change of meaning is another `version`. `recorded.rs` reads it back.

use api::document::{bracket, fields, statistic};
use api::json::Json::{self, Bool, Integer, List, Map, Null, Object, Text};
use api::json::{integer, number};
use hist::Histogram;
use hist::codec::frame::{self, Meaning, Temporality, Unit};
use load::{Calibration, Doubt, Failure, Tally, Verdict};

use crate::load::plan::Plan;
use crate::load::report::{Judged, Report};
use crate::load::statistics::{SHARES, at, times};
use crate::load::{sessions, statistics};

/// What the document calls itself.
pub(crate) const FORMAT: &str = "topdeck load run";
pub(crate) const VERSION: u64 = 1;

pub(crate) fn of(report: &Report) -> Json {
    let run = &report.run;
    let text = |text: &str| Text(text.to_owned());
    let mut all = vec![("format", text(FORMAT)), ("version", integer(VERSION))];
    all.extend(planned(&report.plan));
    all.extend([
        ("calibration", report.calibration.as_ref().map_or(Null, calibration)),
        ("began_unix_ns", Integer(run.began_unix_ns.into())),
        ("length_ns", integer(run.length_ns)),
        ("interrupted", Bool(run.is_interrupted)),
        ("trusted", Bool(run.doubts.is_empty())),
        ("doubts", doubts(&run.doubts)),
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
        ("account", account(&run.tally)),
        (
            "first_failures",
            Map(statistics::first_failures(run)
                .into_iter()
                .map(|(failure, words)| (failure.key(), text(words)))
                .collect()),
        ),
        ("in_flight_max", integer(run.tally.in_flight_max)),
        ("connected_max", integer(run.tally.connected_max)),
        ("files", files(&run.files)),
        ("waited", integer(run.tally.waited)),
        ("opened", integer(run.tally.opened)),
        ("cpu_ns", integer(run.tally.cpu_ns)),
        (
            "times",
            Map(times(&run.tally)
                .into_iter()
                .map(|(name, of, _)| (name.replace(' ', "_"), time(of)))
                .collect()),
        ),
        ("requests", List(run.by_request.iter().map(|(name, of)| request(name, of)).collect())),
        ("seconds", seconds(report)),
        ("requirements", List(report.judged.iter().map(judged).collect())),
        ("sessions", report.sessions.map_or(Null, |of| session(of, &run.tally.response))),
        (
            "pushed",
            report.pushed.as_ref().map_or(Null, |pushed| {
                Object(vec![
                    ("to", text(&pushed.to)),
                    ("run", text(&pushed.run)),
                    ("seconds", integer(pushed.seconds)),
                    ("delivered", integer(pushed.delivered)),
                    ("dropped", integer(pushed.dropped)),
                ])
            }),
        ),
    ]);
    Object(all)
}

/// What ran.
pub(crate) fn planned(plan: &Plan) -> Vec<(&'static str, Json)> {
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
        ("connections_max", integer(settings.connections_max as u64)),
        ("timeout_ns", integer(settings.timeout_ns)),
        ("drain_ns", integer(settings.drain_ns)),
        (
            "machine",
            Object(vec![
                ("topdeck", text(&machine.version)),
                ("kernel", text(&machine.kernel)),
                ("processor", text(&machine.processor)),
                ("processors", integer(machine.processors as u64)),
            ]),
        ),
    ]
}

pub(crate) fn doubts(doubts: &[Doubt]) -> Json {
    let told = doubts.iter().map(|doubt| {
        let (kind, text) = (doubt.kind().to_owned(), doubt.to_string());
        Object(vec![("kind", Text(kind)), ("text", Text(text))])
    });
    List(told.collect())
}

pub(crate) fn calibration(found: &Calibration) -> Json {
    let compared = found.freeze.iter().map(|one| {
        Object(vec![
            ("what", Text(one.what.to_owned())),
            ("found_ns", number(one.found_ns)),
            ("truth_ns", number(one.truth_ns)),
            ("allowed_ns", number(one.allowed_ns)),
        ])
    });
    Object(vec![
        ("clock_mode", Text(found.clock_mode.name().to_owned())),
        ("clock_reason", found.clock_reason.clone().map_or(Null, Text)),
        ("clock_error_ns", integer(found.clock_error_ns)),
        ("clock_disruptions", integer(found.clock_disruptions)),
        ("rate_max", number(found.rate_max)),
        ("freeze", List(compared.collect())),
        ("attempts", integer(found.attempts.into())),
        ("steady", Bool(found.is_steady)),
    ])
}

fn account(tally: &Tally) -> Json {
    let failed = Failure::ALL.iter().zip(tally.failed);
    Object(vec![
        ("intended", integer(tally.intended)),
        ("completed", integer(tally.completed)),
        ("failed", Map(failed.map(|(why, n)| (why.key(), integer(n))).collect())),
        ("unfinished", integer(tally.unfinished)),
        ("missed", integer(tally.missed)),
        ("seen_late", integer(tally.seen_late)),
    ])
}

fn files(files: &load::Files) -> Json {
    Object(vec![
        ("needed", integer(files.needed)),
        ("limit", files.limit.map_or(Null, integer)),
        ("limit_max", files.limit_max.map_or(Null, integer)),
    ])
}

fn frame_of(of: &Histogram) -> Json {
    let meaning = Meaning { unit: Unit::Nanoseconds, temporality: Temporality::Delta };
    Text(frame::encode_base64(of, meaning))
}

/// Statistics in nanoseconds for those who only read them, and all of it.
pub(crate) fn time(of: &Histogram) -> Json {
    let quantiles = SHARES.iter().filter(|share| **share < 1.0).filter_map(|&share| {
        let mut all = vec![("q", number(share))];
        all.extend(fields(at(of, share)?));
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
    let Json::Object(mut all) = time(of) else { return Null };
    all.insert(0, ("name", Text(name.to_owned())));
    Object(all)
}

fn seconds(report: &Report) -> Json {
    let (responses, services) = (&report.run.by_second, &report.services);
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

fn judged(one: &Judged) -> Json {
    let verdict = match one.verdict {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::Unclear => "unclear",
    };
    Object(vec![
        ("requirement", Text(one.requirement.written.clone())),
        ("verdict", Text(verdict.to_owned())),
        ("found", one.found.map_or(Null, bracket)),
    ])
}

fn session(of: load::Sessions, times: &Histogram) -> Json {
    let met = sessions::SHARES
        .iter()
        .map(|&q| Object(vec![("q", number(q)), ("share_that_meets_more", number(of.above(q)))]));
    let seen = sessions::USERS.iter().map(|&share| {
        let q = of.percentile(share);
        Object(vec![
            ("share", number(share)),
            ("q", number(q)),
            ("response", statistic(statistics::at(times, q))),
        ])
    });
    Object(vec![
        ("clicks", integer(of.clicks.into())),
        ("requests_per_click", integer(of.requests_per_click.into())),
        ("percentiles", List(met.collect())),
        ("users", List(seen.collect())),
    ])
}
