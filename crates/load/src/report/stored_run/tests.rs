//! Round trip of a run, and its documentation. Readers must accept the golden files forever.

use std::collections::BTreeMap;

use crate::{
    ArrivalProcess, Calibration, CalibrationCheck, Failure, InvalidReason, RequestTemplate,
    Requests, RunResult, Schedule, Sessions, Settings, Tally, Target,
};
use hist::Recorder;

use super::*;
use crate::report::machine_info::MachineInfo;
use crate::report::push_sink::PushSummary;
use crate::report::run_document;
use crate::report::run_plan::RunPlan;
use crate::report::run_report::{RequirementResult, RunReport};

const PAGE: &str = include_str!("../../../../../docs/formats/load-run.md");
const MS: u64 = 1_000_000;

fn histogram(times_ms: impl Iterator<Item = u64>) -> Histogram {
    let mut recorder = Recorder::new();
    times_ms.for_each(|ms| recorder.record(ms * MS));
    recorder.snapshot()
}

/// A run with all parts.
pub fn report() -> RunReport {
    let response = histogram(1..=99);
    let mut tally = Tally {
        scheduled: 104,
        completed: 97,
        unfinished: 2,
        not_sent: 3,
        response: response.clone(),
        service: histogram(1..=97),
        queue_time: histogram((1..=99).map(|n| n % 3)),
        generator_lag: histogram((1..=99).map(|n| n % 2)),
        failure: histogram([60, 61].into_iter()),
        in_flight_peak: 12,
        connections_peak: 16,
        queued_requests: 1,
        connections_opened: 16,
        cpu_ns: 50 * MS,
        ..Tally::default()
    };
    tally.failed[Failure::Reset as usize] = 2;
    let per_second = BTreeMap::from([(0, histogram(1..=50)), (2, histogram(51..=99))]);
    let mut first_errors: [Option<String>; Failure::ALL.len()] = Default::default();
    first_errors[Failure::Reset as usize] =
        Some("Connection reset by peer (os error 104)".to_owned());
    let reason = InvalidReason::GeneratorStalled {
        times: 1,
        total_ns: 30 * MS,
        not_sent: 3,
        observed_late: 0,
    };
    let run = RunResult {
        tally,
        per_second,
        per_request: vec![
            ("/".to_owned(), histogram(1..=50)),
            ("/cart".to_owned(), histogram(51..=99)),
        ],
        start_unix_ns: 1_794_225_600_000_000_000,
        duration_ns: 2_010 * MS,
        is_interrupted: false,
        stalls: vec![(1_000 * MS, 1_030 * MS)],
        first_errors,
        files: crate::FileLimits { required: 10_064, soft_limit: Some(20_000), hard_limit: None },
        invalid_reasons: vec![reason],
    };
    let machine = MachineInfo {
        version: "0.0.0".to_owned(),
        kernel: "Linux 6.1".to_owned(),
        cpu_model: "a CPU".to_owned(),
        cpus: 2,
    };
    let settings = Settings {
        target: Some(Target::parse("http://localhost:8080/").unwrap().0),
        tls: Default::default(),
        schedule: Schedule::constant(50.0, 2_000 * MS, ArrivalProcess::Constant),
        requests: Requests::single(RequestTemplate::default()),
        seed: 7,
        threads: 1,
        processors: 2,
        connections: 16,
        max_connections: 10_000,
        timeout_ns: 60_000 * MS,
        grace_period_ns: 5_000 * MS,
        abort: Default::default(),
    };
    let plan = RunPlan {
        settings,
        target: "http://me:…@localhost:8080/".to_owned(),
        protocol: "http".to_owned(),
        schedule: "50/s evenly spaced for 2 s".to_owned(),
        machine,
    };
    let calibration = Calibration {
        clock_mode: clock::ClockMode::Counter,
        clock_reason: None,
        clock_error_ns: 100,
        clock_discontinuities: 0,
        max_rate: 113_137.5,
        processors: 2,
        checks: vec![CalibrationCheck {
            statistic: "p99",
            measured_ns: 151e6,
            expected_ns: 150e6,
            tolerance_ns: 4e6,
        }],
        attempts: 1,
        is_stable: true,
    };
    let requirements = ["p50<60ms", "p99<1s", "failed<1%"];
    RunReport {
        plan,
        calibration: Some(calibration),
        requirements: requirements
            .map(|text| RequirementResult::new(&text.parse().unwrap(), &run))
            .into(),
        services: BTreeMap::from([(0, histogram(1..=50)), (1, histogram(51..=97))]),
        sessions: Some(Sessions { page_views: 5, requests_per_page: 40 }),
        push: Some(PushSummary {
            url: "http://127.0.0.1:7717/".to_owned(),
            run: "a".to_owned(),
            seconds: 3,
            delivered: 2,
            has_validity: false,
            dropped: 0,
            last_error: Some("no connection".to_owned()),
        }),
        run,
    }
}

#[test]
fn stored_run_is_read_back_unchanged() {
    let report = report();
    let text = run_document::to_json(&report).to_string();
    let read = StoredRun::parse(&text).unwrap();
    assert_eq!((read.scheduled, read.completed, read.failed, read.unfinished), (104, 97, 2, 2));
    assert_eq!(
        read.seconds[0],
        [&report.run.per_second[&0], &report.services[&0]].map(Clone::clone)
    );
    let counts: Vec<[u64; 2]> =
        read.seconds.iter().map(|both| both.each_ref().map(Histogram::count)).collect();
    assert_eq!(counts, [[50, 50], [0, 47], [49, 0]]);
    assert_eq!(read.invalid_reasons.len(), 1);
}

#[test]
fn golden_file_is_current() {
    let golden = expect_test::expect_file!["../../../../../testdata/load/run.json"];
    golden.assert_eq(&format!("{}\n", run_document::to_json(&report())));
}

#[test]
fn version_1_is_read() {
    let run = StoredRun::parse(include_str!("../../../../../testdata/load/run-v1.json")).unwrap();
    assert_eq!((run.scheduled, run.completed, run.failed, run.unfinished), (104, 97, 2, 2));
    assert_eq!((run.invalid_reasons.len(), run.start_unix_ns), (1, 1_794_225_600_000_000_000));
    let counts = run.seconds.iter().map(|both| both.each_ref().map(Histogram::count));
    assert_eq!(counts.collect::<Vec<_>>(), [[50, 50], [0, 47], [49, 0]]);
}

/// Every field by its path, as in the documentation: `times.response.frame` is `times.NAME.frame`.
#[test]
fn documentation_names_every_field() {
    let json: serde_json::Value =
        serde_json::from_str(&run_document::to_json(&report()).to_string()).unwrap();
    let mut found = std::collections::BTreeSet::new();
    paths(&json, "", &mut found);
    let (fields, _) = PAGE.split_once("## Version 1").unwrap();
    let rows = fields.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let documented: std::collections::BTreeSet<String> =
        rows.map(|(path, _)| path.to_owned()).collect();
    assert_eq!(documented, found);
}

/// Failure kinds are names in the document; the documentation lists them.
#[test]
fn documentation_names_every_failure() {
    let row = PAGE.lines().find(|line| line.starts_with("| `counts.failed.NAME`")).unwrap();
    let (_, names) = row.split_once("by reason: ").unwrap();
    let documented: Vec<&str> = names.trim_end_matches(" |").split(", ").collect();
    let all: Vec<String> = Failure::ALL.iter().map(|one| format!("`{}`", one.key())).collect();
    assert_eq!(documented, all);
    assert!(all.iter().all(|name| !name.contains(' ')));
}

/// JSON has no number for requests that were never answered.
#[test]
fn unreachable_requirement_has_no_numbers() {
    let mut report = report();
    report.run.tally.failed[Failure::Reset as usize] = 50;
    report.requirements = vec![RequirementResult::new(&"p99<1s".parse().unwrap(), &report.run)];
    let json: serde_json::Value =
        serde_json::from_str(&run_document::to_json(&report).to_string()).unwrap();
    let one = &json["requirements"][0];
    assert_eq!(one["outcome"], "fail");
    let nothing = serde_json::json!({"lower": null, "estimate": null, "upper": null});
    assert_eq!(one["measured"], nothing);
}

pub(crate) fn paths(
    json: &serde_json::Value,
    before: &str,
    found: &mut std::collections::BTreeSet<String>,
) {
    // Objects with arbitrary keys. Statistics are the same everywhere.
    const NAMED: [&str; 3] = ["counts.failed", "first_errors", "times"];
    match json {
        serde_json::Value::Object(fields)
            if !fields.contains_key("estimate") || fields.contains_key("q") =>
        {
            for (name, value) in fields {
                let name = if NAMED.contains(&before) { "NAME" } else { name };
                let path =
                    if before.is_empty() { name.to_owned() } else { format!("{before}.{name}") };
                paths(value, &path, found);
            }
        }
        serde_json::Value::Array(all) => {
            all.iter().for_each(|one| paths(one, &format!("{before}[]"), found));
        }
        _ => {
            found.insert(before.to_owned());
        }
    }
}

#[test]
fn other_documents_are_rejected() {
    let error_for = |text: &str| format!("{:#}", StoredRun::parse(text).unwrap_err());
    assert!(error_for("{}").contains("topdeck load --json"));
    assert!(error_for("[1").contains("topdeck load --json"));
    assert!(error_for("{\"format\":\"x\",\"version\":1}").contains("format is \"x\""));
    let text = run_document::to_json(&report()).to_string();
    assert!(
        error_for(&text.replace("\"version\": 2", "\"version\": 3"))
            .contains("version 3 is not supported")
    );
    let frame = text.split("\"frame\": \"").nth(1).unwrap().split('"').next().unwrap();
    let broken = text.replacen(frame, "AAAA", 1);
    assert!(error_for(&broken).contains("times.response"), "{}", error_for(&broken));
    // The frame of the last second.
    let (before, after) = text.rsplit_once("\"response\": \"").unwrap();
    let less = format!("{before}\"lost\": \"{after}");
    assert!(
        error_for(&less).contains("has 99 values, but its seconds have 50"),
        "{}",
        error_for(&less)
    );
}

/// A modified document is read with the correct number of times, or rejected.
#[test]
fn modified_documents_are_read_or_rejected() {
    let text = run_document::to_json(&report()).to_string();
    let (mut random, mut read) = (1u64, 0);
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % limit
    };
    for round in 0..1_000 {
        let mut bytes = text.clone().into_bytes();
        let at = below(bytes.len());
        match round % 3 {
            0 => bytes[at] = b"0123456789-.e\",:[]{}nA="[below(23)],
            1 => drop(bytes.drain(at..(at + below(40)).min(text.len()))),
            _ => bytes.insert(at, b'0' + below(10) as u8),
        }
        // A file that is not text is rejected when it is read.
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        if let Ok(run) = StoredRun::parse(&changed) {
            let counts = run.seconds.iter().map(|[response, _]| response.count());
            assert_eq!(counts.sum::<u64>(), 99, "{changed}");
            read += 1;
        }
    }
    assert!((1..1_000).contains(&read), "{read}");
}
