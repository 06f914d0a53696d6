//! A run is written, read back the same, and as the page says. The golden file is read for ever.

use std::collections::BTreeMap;

use hist::Recorder;
use load::{
    Calibration, Compared, Doubt, Failure, Request, Requests, Run, Schedule, Sessions, Settings,
    Spacing, Tally, Target,
};

use super::*;
use crate::load::document;
use crate::load::machine::Machine;
use crate::load::plan::Plan;
use crate::load::push::Pushed;
use crate::load::report::{Judged, Report};

const PAGE: &str = include_str!("../../../../../docs/formats/load-run.md");
const MS: u64 = 1_000_000;

fn histogram(times_ms: impl Iterator<Item = u64>) -> Histogram {
    let mut recorder = Recorder::new();
    times_ms.for_each(|ms| recorder.record(ms * MS));
    recorder.snapshot()
}

/// A run that is told of in all of its parts.
pub(crate) fn report() -> Report {
    let response = histogram(1..=99);
    let mut tally = Tally {
        intended: 104,
        completed: 97,
        unfinished: 2,
        missed: 3,
        response: response.clone(),
        service: histogram(1..=97),
        send_lag: histogram((1..=99).map(|n| n % 3)),
        own_lag: histogram((1..=99).map(|n| n % 2)),
        failure: histogram([60, 61].into_iter()),
        in_flight_max: 12,
        connected_max: 16,
        waited: 1,
        opened: 16,
        cpu_ns: 50 * MS,
        ..Tally::default()
    };
    tally.failed[Failure::Reset as usize] = 2;
    let by_second = BTreeMap::from([(0, histogram(1..=50)), (2, histogram(51..=99))]);
    let mut words: [Option<String>; Failure::ALL.len()] = Default::default();
    words[Failure::Reset as usize] = Some("Connection reset by peer (os error 104)".to_owned());
    let doubt = Doubt::Stalled { times: 1, total_ns: 30 * MS, missed: 3, seen_late: 0 };
    let run = Run {
        tally,
        by_second,
        by_request: vec![
            ("/".to_owned(), histogram(1..=50)),
            ("/cart".to_owned(), histogram(51..=99)),
        ],
        began_unix_ns: 1_794_225_600_000_000_000,
        length_ns: 2_010 * MS,
        is_interrupted: false,
        stalls: vec![(1_000 * MS, 1_030 * MS)],
        words,
        files: load::Files { needed: 10_064, limit: Some(20_000), limit_max: None },
        doubts: vec![doubt],
    };
    let machine = Machine {
        version: "0.0.0".to_owned(),
        kernel: "Linux 6.1".to_owned(),
        processor: "a processor".to_owned(),
        processors: 2,
    };
    let settings = Settings {
        target: Target::parse("http://localhost:8080/").unwrap().0,
        tls: Default::default(),
        schedule: Schedule::constant(50.0, 2_000 * MS, Spacing::Even),
        requests: Requests::one(Request::default()),
        seed: 7,
        threads: 1,
        processors: 2,
        connections: 16,
        connections_max: 10_000,
        timeout_ns: 60_000 * MS,
        drain_ns: 5_000 * MS,
        give_up: Default::default(),
    };
    let plan = Plan {
        settings,
        target: "http://me:…@localhost:8080/".to_owned(),
        protocol: "http".to_owned(),
        schedule: "50/s at even distances for 2 s".to_owned(),
        machine,
    };
    let calibration = Calibration {
        clock_mode: clock::Mode::Counter,
        clock_reason: None,
        clock_error_ns: 100,
        clock_disruptions: 0,
        rate_max: 113_137.5,
        processors: 2,
        freeze: vec![Compared { what: "p99", found_ns: 151e6, truth_ns: 150e6, allowed_ns: 4e6 }],
        attempts: 1,
        is_steady: true,
    };
    let judged = ["p50<60ms", "p99<1s", "failed<1%"];
    Report {
        plan,
        calibration: Some(calibration),
        judged: judged.map(|text| Judged::of(&text.parse().unwrap(), &run)).into(),
        services: BTreeMap::from([(0, histogram(1..=50)), (1, histogram(51..=97))]),
        sessions: Some(Sessions { clicks: 5, requests_per_click: 40 }),
        pushed: Some(Pushed {
            to: "http://127.0.0.1:7717/".to_owned(),
            run: "a".to_owned(),
            seconds: 3,
            delivered: 2,
            dropped: 0,
            trouble: Some("no connection".to_owned()),
        }),
        run,
    }
}

#[test]
fn it_is_read_back_as_it_was() {
    let report = report();
    let text = document::of(&report).to_string();
    let read = Recorded::parse(&text).unwrap();
    assert_eq!((read.intended, read.completed, read.failed, read.unfinished), (104, 97, 2, 2));
    assert_eq!(
        read.seconds[0],
        [&report.run.by_second[&0], &report.services[&0]].map(Clone::clone)
    );
    let counts: Vec<[u64; 2]> =
        read.seconds.iter().map(|both| both.each_ref().map(Histogram::count)).collect();
    assert_eq!(counts, [[50, 50], [0, 47], [49, 0]]);
    assert_eq!(read.doubts.len(), 1);
}

#[test]
fn the_golden_file_is_what_is_written() {
    let golden = expect_test::expect_file!["../../../../../testdata/load/run.json"];
    golden.assert_eq(&format!("{}\n", document::of(&report())));
}

/// Every field by its path, as the page names it: `times.response.frame` is `times.NAME.frame` there.
#[test]
fn the_page_names_every_field() {
    let json: serde_json::Value =
        serde_json::from_str(&document::of(&report()).to_string()).unwrap();
    let mut found = std::collections::BTreeSet::new();
    paths(&json, "", &mut found);
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let told: std::collections::BTreeSet<String> = rows.map(|(path, _)| path.to_owned()).collect();
    assert_eq!(told, found);
}

/// Reasons are names in the document; the page lists them.
#[test]
fn the_page_names_every_reason_of_failure() {
    let row = PAGE.lines().find(|line| line.starts_with("| `account.failed.NAME`")).unwrap();
    let (_, names) = row.split_once("by the reason: ").unwrap();
    let told: Vec<&str> = names.trim_end_matches(" |").split(", ").collect();
    let all: Vec<String> = Failure::ALL.iter().map(|one| format!("`{}`", one.key())).collect();
    assert_eq!(told, all);
    assert!(all.iter().all(|name| !name.contains(' ')));
}

/// JSON has no number for what was never answered.
#[test]
fn a_requirement_that_nothing_can_meet_has_no_numbers() {
    let mut report = report();
    report.run.tally.failed[Failure::Reset as usize] = 50;
    report.judged = vec![Judged::of(&"p99<1s".parse().unwrap(), &report.run)];
    let json: serde_json::Value = serde_json::from_str(&document::of(&report).to_string()).unwrap();
    let one = &json["requirements"][0];
    assert_eq!(one["verdict"], "missed");
    let nothing = serde_json::json!({"lower": null, "estimate": null, "upper": null});
    assert_eq!(one["found"], nothing);
}

pub(crate) fn paths(
    json: &serde_json::Value,
    before: &str,
    found: &mut std::collections::BTreeSet<String>,
) {
    // Objects whose keys are names, and statistics, which are alike everywhere.
    const NAMED: [&str; 3] = ["account.failed", "first_failures", "times"];
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
fn what_is_no_run_is_told() {
    let said = |text: &str| format!("{:#}", Recorded::parse(text).unwrap_err());
    assert!(said("{}").contains("topdeck load --json"));
    assert!(said("[1").contains("topdeck load --json"));
    assert!(said("{\"format\":\"x\",\"version\":1}").contains("its format is \"x\""));
    let text = document::of(&report()).to_string();
    assert!(said(&text.replace("\"version\": 1", "\"version\": 2")).contains("its version is 2"));
    let frame = text.split("\"frame\": \"").nth(1).unwrap().split('"').next().unwrap();
    let broken = text.replacen(frame, "AAAA", 1);
    assert!(said(&broken).contains("times.response"), "{}", said(&broken));
    // The frame of the last second.
    let (before, after) = text.rsplit_once("\"response\": \"").unwrap();
    let less = format!("{before}\"lost\": \"{after}");
    assert!(said(&less).contains("has 99 values, but its seconds have 50"), "{}", said(&less));
}

/// Whatever is changed in it, it is read and its times are as many as it says, or it is told what is wrong.
#[test]
fn any_change_is_read_or_told() {
    let text = document::of(&report()).to_string();
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
        let changed = String::from_utf8(bytes).unwrap();
        if let Ok(run) = Recorded::parse(&changed) {
            let counts = run.seconds.iter().map(|[response, _]| response.count());
            assert_eq!(counts.sum::<u64>(), 99, "{changed}");
            read += 1;
        }
    }
    assert!((1..1_000).contains(&read), "{read}");
}
