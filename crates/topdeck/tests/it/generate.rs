//! `topdeck gen`: its output is read back and matches its expected statistics.

use serde_json::Value;

use crate::test_dir::TestDir;
use crate::{TextRun, counts, hist_with_stdin, topdeck};

#[track_caller]
fn generate(line: &str) -> TextRun {
    let arguments: Vec<&str> = ["gen"].into_iter().chain(line.split_whitespace()).collect();
    let run = topdeck(&arguments, b"");
    assert_eq!((run.stderr.as_str(), run.status), ("", 0));
    run
}

fn report(input: &str, line: &str) -> Value {
    let run = hist_with_stdin(line, input.as_bytes());
    assert_eq!(run.stderr, "");
    serde_json::from_str(&run.stdout).expect("JSON")
}

#[test]
fn frames_round_trip_exactly() {
    let dir = TestDir::new();
    let (out, truth) = (dir.path().join("b.frames"), dir.path().join("b.csv"));
    let line = "http --series 45 --minutes 8";
    generate(&format!("{line} --out {} --expected {}", out.display(), truth.display()));
    let frames = std::fs::read_to_string(&out).unwrap();
    assert_eq!(frames, generate(line).stdout);

    let document = report(&frames, "--json --above 12.3ms -");
    let group = &document["groups"][0];
    let truth = std::fs::read_to_string(&truth).unwrap();
    let rows: Vec<Vec<&str>> = truth.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..4], ["start_s", "length_s", "count", "at_or_below_12.3ms"]);
    // Two windows, and the total.
    assert_eq!(rows.len(), 4);
    let total = |column: usize| rows[3][column].parse::<u64>().unwrap();
    assert_eq!((total(0), total(1)), (1_794_700_800, 480));
    assert_eq!(group["count"], total(2));
    assert_eq!(group["sum"]["lower"].as_f64(), Some(total(4) as f64));
    assert_eq!(group["sum"]["upper"].as_f64(), Some(total(4) as f64));
    assert_eq!(group["min"]["estimate"].as_f64(), Some(total(5) as f64));
    assert_eq!(group["max"]["estimate"].as_f64(), Some(total(6) as f64));
    let above = &group["above"][0]["count"];
    let (lower, upper) = (above["lower"].as_u64().unwrap(), above["upper"].as_u64().unwrap());
    assert!((lower..=upper).contains(&(total(2) - total(3))), "{above}");
}

#[test]
fn series_have_their_labels() {
    let frames = generate("http --series 41 --minutes 2").stdout;
    let run = hist_with_stdin("--by host -", frames.as_bytes());
    assert_eq!(counts(&run).len(), 2, "{}", run.stdout);
    assert_eq!(counts(&hist_with_stdin("--by series -", frames.as_bytes())).len(), 41);
}

#[test]
fn httptrap_keeps_counts() {
    let (line, all) = ("disk --minutes 5 --seed 9", "--json -");
    let frames = report(&generate(line).stdout, all);
    let httptrap = report(&generate(&format!("{line} --format httptrap")).stdout, all);
    let [frames, httptrap] = [&frames, &httptrap].map(|document| &document["groups"][0]);
    assert!(frames["count"].as_u64().is_some_and(|count| count > 100_000));
    assert_eq!(frames["count"], httptrap["count"]);
}

#[test]
fn invalid_arguments_are_rejected() {
    for line in ["c", "a --series 0", "b --minutes 99999999999", "a --format hlog"] {
        let arguments: Vec<&str> = ["gen"].into_iter().chain(line.split_whitespace()).collect();
        assert_eq!(topdeck(&arguments, b"").status, 2, "{line}");
    }
    let run = topdeck(&["gen", "disk", "--minutes", "1", "--out", "/nowhere/at/all"], b"");
    assert_eq!(run.status, 1);
    assert!(run.stderr.starts_with("topdeck: cannot write /nowhere/at/all: "), "{}", run.stderr);
}
