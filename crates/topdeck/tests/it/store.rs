//! `topdeck store`, `import`, `heatmap` and `cardinality` as used from a shell.

use std::fs;
use std::process::Command;

use expect_test::{Expect, expect};
use serde_json::Value;

use crate::test_dir::TestDir;
use crate::{TextRun, root};

/// Runs a command in a directory; arguments are separated by spaces, `'…'` is one argument.
#[track_caller]
pub(crate) fn run(dir: &TestDir, line: &str) -> TextRun {
    let output = Command::new("/bin/sh")
        .args(["-c", &format!("topdeck {line}")])
        .current_dir(dir.path())
        .env_clear()
        .env("LC_ALL", "C.UTF-8")
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", {
                let binary = std::path::Path::new(env!("CARGO_BIN_EXE_topdeck"));
                binary.parent().expect("it is in a directory").display()
            }),
        )
        .output()
        .expect("there is a shell");
    TextRun {
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        status: output.status.code().expect("no signal"),
    }
}

#[track_caller]
pub(crate) fn run_ok(dir: &TestDir, line: &str) -> String {
    let run = run(dir, line);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{line}: {}", run.stdout);
    run.stdout
}

#[track_caller]
pub(crate) fn check(dir: &TestDir, line: &str, expected: Expect) {
    expected.assert_eq(&run(dir, line).all());
}

/// Directory with a log of a minute, and a store `s` with one disk for an hour.
fn store_dir() -> TestDir {
    let dir = TestDir::new();
    for (name, file) in [("hiccup", "jHiccup-2.0.7S.logV2"), ("tagged", "tagged-Log.logV2")] {
        let from = root().join(format!("testdata/hist/hdr/{file}.hlog"));
        fs::copy(from, dir.path().join(format!("{name}.hlog"))).expect("the log is there");
    }
    run_ok(&dir, "store create s");
    dir
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn count_values(dir: &TestDir, store: &str, selector: &str) -> u64 {
    let document = json(&run_ok(dir, &format!("heatmap {store} '{selector}' --json")));
    let columns = document["columns"].as_array().unwrap();
    columns.iter().map(|column| column["count"].as_u64().unwrap()).sum()
}

#[test]
fn duplicate_import_counts_once() {
    let dir = store_dir();
    run_ok(&dir, "import s --metric hiccup hiccup.hlog");
    let again = run_ok(&dir, "import s --metric hiccup hiccup.hlog");
    assert!(again.contains("already in the store"), "{again}");
    fs::copy(dir.path().join("hiccup.hlog"), dir.path().join("other.hlog")).unwrap();
    let renamed = json(&run_ok(&dir, "import s --metric hiccup other.hlog --json"));
    assert_eq!(renamed["files"][0]["duplicate_batches"], renamed["files"][0]["batches"]);
    assert_eq!(count_values(&dir, "s", "hiccup"), 48_761);
    // Another label makes another import.
    run_ok(&dir, "import s --metric hiccup --label host=a hiccup.hlog");
    assert_eq!(count_values(&dir, "s", "hiccup"), 2 * 48_761);
    run_ok(&dir, "import s --metric hiccup --label host=a hiccup.hlog");
    assert_eq!(count_values(&dir, "s", "hiccup"), 2 * 48_761);
}

/// 2,000 values were 4,000.
#[test]
fn the_same_file_imported_twice_with_start_now_counts_once() {
    let dir = TestDir::new();
    fs::write(dir.path().join("numbers.txt"), "1\n2\n3\n").unwrap();
    // Imports are recorded in the home directory.
    let line = "--version > /dev/null; export HOME=$PWD; topdeck import s --create --metric took \
                --unit ms --start now numbers.txt";
    run_ok(&dir, line);
    let again = run(&dir, line);
    assert_eq!(again.status, 1, "{}", again.stderr);
    let expected =
        "topdeck: cannot import numbers.txt: the same content was imported with --start ";
    assert!(again.stderr.starts_with(expected), "{}", again.stderr);
    // What the message says works.
    let start = again.stderr.split("import it with --start ").nth(1).unwrap();
    let start = start.split(',').next().unwrap();
    let known = run_ok(&dir, &line.replace("--start now", &format!("--start {start}")));
    assert_eq!(known, "numbers.txt: already in the store; nothing is counted twice\n");
    assert_eq!(count_values(&dir, "s", "took"), 3);
    run_ok(&dir, &line.replace("--metric", "--as-new --metric"));
    assert_eq!(count_values(&dir, "s", "took"), 6);
}

#[test]
fn ddsketches_are_imported() {
    let dir = store_dir();
    let sketches = root().join("testdata/cli/ddsketch.txt");
    fs::copy(sketches, dir.path().join("took.txt")).expect("the sketches are there");
    run_ok(&dir, "import s --metric took --unit ms --start 2026-11-09T12:00:00Z took.txt");
    assert_eq!(count_values(&dir, "s", "took"), 305);
}

#[test]
fn export_round_trips() {
    let dir = store_dir();
    run_ok(&dir, "gen http --series 6 --minutes 45 --out b.frames");
    run_ok(&dir, "import s b.frames");
    run_ok(&dir, "import s --metric pause tagged.hlog");
    let readings = concat!(
        r#"{"metric":"jobs","labels":{"q":"a"},"unit":"jobs","start_ns":5,"end_ns":7,"kind":"count","number":0.1}"#,
        "\n",
        r#"{"metric":"jobs","labels":{"q":"a"},"start_ns":5,"end_ns":7,"kind":"cumulative-count","number":3.0}"#,
        "\n",
        r#"{"metric":"depth","labels":{},"start_ns":7,"end_ns":7,"kind":"gauge","number":-2.5}"#,
        "\n",
        r#"{"metric":"version","labels":{},"start_ns":7,"end_ns":7,"kind":"text","text":"1.2 \"x\""}"#,
        "\n"
    );
    fs::write(dir.path().join("readings.frames"), readings).unwrap();
    run_ok(&dir, "import s readings.frames");
    let out = run_ok(&dir, "store export s '*'");
    assert!(out.contains(r#""kind":"text","text":"1.2 \"x\"""#), "{out}");
    run_ok(&dir, "store export s '*' | topdeck import t --create -");
    assert_eq!(run_ok(&dir, "store export t '*'"), out, "every byte of every row");
    // The lines of gen are exported unchanged except for their order.
    let written = fs::read_to_string(dir.path().join("b.frames")).unwrap();
    let out: std::collections::BTreeSet<&str> = out.lines().collect();
    written.lines().for_each(|line| assert!(out.contains(line), "{line}"));
}

#[test]
fn missing_metadata_is_reported() {
    let dir = store_dir();
    fs::write(dir.path().join("numbers.txt"), "12\n15\n480\n").unwrap();
    check(
        &dir,
        "import s hiccup.hlog numbers.txt; topdeck import s --metric took numbers.txt",
        expect![[r#"
            --- stderr
            topdeck: hiccup.hlog: no metric name; set it with --metric, such as --metric latency
            topdeck: numbers.txt: no metric name and no timestamps; set them with --metric and --start, such as --metric latency --start 2026-11-09T12:00:00Z
            topdeck: numbers.txt: no timestamps; set the time with --start, such as --start 2026-11-09T12:00:00Z: imported again with the same time, the file adds nothing
            --- exit status 1
        "#]],
    );
    let text = fs::read_to_string(dir.path().join("hiccup.hlog")).unwrap();
    let without: String = text
        .lines()
        .filter(|line| !line.contains("StartTime:"))
        .map(|l| format!("{l}\n"))
        .collect();
    fs::write(dir.path().join("since.hlog"), without).unwrap();
    check(
        &dir,
        "import s --metric a since.hlog",
        expect![[r#"
        --- stderr
        topdeck: since.hlog: times are relative to the start of the log; set it with --start, such as --start 2026-11-09T12:00:00Z
        --- exit status 1
    "#]],
    );
    check(
        &dir,
        "import s --metric a --start 2026-11-09T12:00:00Z since.hlog",
        expect![[r#"
        --- stdout
        since.hlog: 62 histograms with 48,761 values in 1 series, 2026-11-09 12:00:00.127Z to 2026-11-09 12:01:02.131Z
        --- exit status 0
    "#]],
    );
    check(
        &dir,
        "import s nothing.hlog",
        expect![[r#"
        --- stderr
        topdeck: cannot read nothing.hlog: No such file or directory (os error 2)
        --- exit status 1
    "#]],
    );
    check(
        &dir,
        "import none hiccup.hlog",
        expect![[r#"
            --- stderr
            topdeck: cannot open store none: not found; create it with `topdeck store create none`
            --- exit status 1
        "#]],
    );
    // A user gave the data directory of a server.
    fs::create_dir(dir.path().join("data")).unwrap();
    run_ok(&dir, "store create data/store");
    check(
        &dir,
        "query data up",
        expect![[r#"
            --- stderr
            topdeck: cannot open store data: not found; did you mean data/store?
            --- exit status 1
        "#]],
    );
}

#[test]
fn damaged_file_is_imported_only_with_keep_going() {
    let dir = store_dir();
    let mut text = fs::read_to_string(dir.path().join("hiccup.hlog")).unwrap();
    text.push_str("1,2,3,HISTFAAAoops\n");
    fs::write(dir.path().join("bad.hlog"), text).unwrap();
    check(
        &dir,
        "import s --metric hiccup bad.hlog",
        expect![[r#"
        --- stderr
        topdeck: bad.hlog: line 67: expected an interval of a log, found histogram: at byte 8: the input ends inside zlib stream
        topdeck: bad.hlog: nothing imported; repair the file, or import the readable part with --keep-going
        --- exit status 1
    "#]],
    );
    check(
        &dir,
        "heatmap s hiccup",
        expect![[r#"
        --- stderr
        topdeck: s: the store is empty; import data with `topdeck import`
        --- exit status 1
    "#]],
    );
    check(
        &dir,
        "import s --metric hiccup --keep-going bad.hlog",
        expect![[r#"
        --- stdout
        bad.hlog: 62 histograms with 48,761 values in 1 series, 2015-09-09 15:24:39.601Z to 2015-09-09 15:25:41.605Z
        --- stderr
        topdeck: bad.hlog: line 67: expected an interval of a log, found histogram: at byte 8: the input ends inside zlib stream
        topdeck: bad.hlog: importing the readable part
        --- exit status 1
    "#]],
    );
    assert_eq!(count_values(&dir, "s", "hiccup"), 48_761);
}

#[test]
fn heatmap_errors_have_a_reason() {
    let dir = store_dir();
    check(
        &dir,
        "heatmap s latency",
        expect![[r#"
        --- stderr
        topdeck: s: the store is empty; import data with `topdeck import`
        --- exit status 1
    "#]],
    );
    run_ok(&dir, "import s --metric hiccup hiccup.hlog");
    check(
        &dir,
        "heatmap s latency",
        expect![[r#"
        --- stderr
        topdeck: s: latency matches no series; available: hiccup
        --- exit status 1
    "#]],
    );
    check(
        &dir,
        "heatmap s hiccup --from 2016-01-01",
        expect![[r#"
            --- stderr
            topdeck: no samples after 2016-01-01 00:00:00Z; samples exist from 2015-09-09 15:24:39.601Z to 2015-09-09 15:25:41.605Z
            --- exit status 1
        "#]],
    );
    check(
        &dir,
        "heatmap s hiccup --from 2016-01-01 --to 2015-01-01",
        expect![[r#"
            --- stderr
            topdeck: --from 2016-01-01 00:00:00Z is not before --to 2015-01-01 00:00:00Z
            --- exit status 1
        "#]],
    );
    check(
        &dir,
        "heatmap s hiccup --above 100B",
        expect![[r#"
        --- stderr
        topdeck: --above 100 B: the values are in ns
        --- exit status 1
    "#]],
    );
    check(
        &dir,
        "heatmap s 'hiccup{'",
        expect![[r#"
        --- stderr
        error: invalid value 'hiccup{' for '<SELECTOR>': column 8: found the end, expected a label name or `}`; docs/selectors.md has the grammar

        For more information, try '--help'.
        --- exit status 2
    "#]],
    );
    check(
        &dir,
        "heatmap s hiccup --from yesterday",
        expect![[r#"
        --- stderr
        error: invalid value 'yesterday' for '--from <TIME>': expected a time such as 2026-11-09, 2026-11-09T12:30:00Z, now, -2h, or Unix seconds such as 1794225600

        For more information, try '--help'.
        --- exit status 2
    "#]],
    );
    fs::write(
        dir.path().join("gauge.frames"),
        r#"{"metric":"depth","labels":{},"start_ns":7,"end_ns":7,"kind":"gauge","number":1}"#,
    )
    .unwrap();
    run_ok(&dir, "import s gauge.frames");
    check(
        &dir,
        "heatmap s depth",
        expect![[r#"
        --- stderr
        topdeck: 1 series, but none of histograms: the kind of depth is gauge
        --- exit status 1
    "#]],
    );
}

#[test]
fn known_gaps_are_drawn_and_reported() {
    let dir = store_dir();
    run_ok(&dir, "gen disk --minutes 600 --out a.frames");
    run_ok(&dir, "import s a.frames");
    // A flipped bit in a part: its rows are missing, and all commands report it.
    let parts = dir.path().join("s/parts");
    let mut names: Vec<_> = fs::read_dir(parts).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    let mut bytes = fs::read(&names[0]).unwrap();
    bytes[200] ^= 8;
    fs::write(&names[0], bytes).unwrap();
    let hour = "--from 2026-11-09 --to 2026-11-09T01:00:00Z";
    let picture = run(&dir, &format!("heatmap s disk_io_latency {hour}"));
    assert_eq!(picture.status, 0);
    assert!(picture.stdout.contains("missing"), "{}", picture.stdout);
    assert!(picture.stdout.contains('?'), "{}", picture.stdout);
    let verify = run(&dir, "store verify s");
    assert_eq!(verify.status, 1, "{}", verify.stdout);
    assert!(verify.stdout.contains("lost"), "{}", verify.stdout);
    let export = run(&dir, "store export s '*' --out x");
    assert_eq!(export.status, 3, "{}", export.stderr);
    assert!(export.stderr.contains("missing: "), "{}", export.stderr);
}

#[test]
fn store_is_opened_by_one_process() {
    let dir = store_dir();
    let held = fs::File::open(dir.path().join("s/lock")).unwrap();
    held.lock().unwrap();
    check(
        &dir,
        "store stat s",
        expect![[r#"
            --- stderr
            topdeck: cannot open store s: in use by another process; close it there first (find it with `fuser s/lock`)
            --- exit status 1
        "#]],
    );
}

#[test]
fn retention_rules_are_saved_and_applied() {
    let dir = store_dir();
    run_ok(&dir, "import s --metric hiccup hiccup.hlog");
    let document = json(&run_ok(&dir, "store retention s 'base 1d' '1m 1d' --json"));
    assert_eq!(document["retention"][0]["duration_ns"], 86_400_000_000_000u64);
    run_ok(&dir, "store maintain s");
    let stat = json(&run_ok(&dir, "store stat s --json"));
    let resolutions: Vec<&str> = stat["resolutions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sum| sum["resolution"].as_str().unwrap())
        .collect();
    assert_eq!(resolutions, ["5m", "1h", "1d"]);
    assert_eq!(count_values(&dir, "s", "hiccup"), 48_761, "rollups hold all of it");
    check(
        &dir,
        "store retention s 'base'",
        expect![[r#"
        --- stderr
        error: invalid value 'base' for '[RULE]...': expected a resolution (base, 1m, 5m, 1h or 1d), a duration (such as 30d, 1y or forever) and optionally a selector, as in 'base 30d' or '5m 1y {host="x"}'

        For more information, try '--help'.
        --- exit status 2
    "#]],
    );
    check(
        &dir,
        "store retention s --clear",
        expect![[r#"
        --- stdout
        Retention: unlimited.
        --- exit status 0
    "#]],
    );
}

#[test]
fn a_picture_is_written_as_svg() {
    let dir = store_dir();
    run_ok(&dir, "gen disk --minutes 90 --out a.frames");
    run_ok(&dir, "import s a.frames");
    run_ok(&dir, "heatmap s '*' --above 12.3ms --svg p.svg --columns 90");
    let svg = fs::read_to_string(dir.path().join("p.svg")).unwrap();
    assert!(svg.contains("disk_io_latency") && svg.contains("took longer than 12.3 ms"));
    let document = json(&run_ok(&dir, "heatmap s '*' --columns 90 --json"));
    assert_eq!(document["step_ns"], 60_000_000_000u64);
    assert_eq!(document["columns"].as_array().unwrap().len(), 90);
}

#[test]
fn prometheus_scrapes_are_differenced() {
    let dir = store_dir();
    let page = |fast: u64, slow: u64| {
        format!(
            "# TYPE rpc_seconds histogram\nrpc_seconds_bucket{{le=\"0.1\"}} {fast}\n\
             rpc_seconds_bucket{{le=\"+Inf\"}} {}\nrpc_seconds_count {}\n",
            fast + slow,
            fast + slow
        )
    };
    fs::write(dir.path().join("first.prom"), page(100, 5)).unwrap();
    fs::write(dir.path().join("second.prom"), page(130, 6)).unwrap();
    run_ok(&dir, "import s first.prom --start 2015-09-09T12:00:00Z");
    fs::write(dir.path().join("kinds.prom"), "# TYPE a counter\na_total 5\n# TYPE b gauge\nb 7\n")
        .unwrap();
    run_ok(&dir, "import s kinds.prom --start 2015-09-09T12:00:00Z");
    let lines = run_ok(&dir, "store export s 'or(__kind:gauge,__kind:cumulative-counter)'");
    assert!(lines.contains("\"kind\":\"cumulative-counter\",\"number\":5.0"), "{lines}");
    assert!(lines.contains("\"kind\":\"gauge\",\"number\":7.0"), "{lines}");
    let alone = run_ok(&dir, "heatmap s rpc_seconds");
    assert!(alone.contains("These histograms are cumulative"), "{alone}");
    run_ok(&dir, "import s second.prom --start 2015-09-09T12:01:00Z");
    assert_eq!(count_values(&dir, "s", "rpc_seconds"), 31);
}

#[test]
fn delete_does_not_affect_a_snapshot() {
    let dir = store_dir();
    run_ok(&dir, "import s --metric pause tagged.hlog");
    run_ok(&dir, "store snapshot s copy");
    let range = "--from 2015-09-09 --to 2015-09-10";
    let asked = run(&dir, &format!("store delete s 'pause{{tag=\"A\"}}' {range}"));
    assert_eq!(asked.status, 0, "{}", asked.stdout);
    let all = count_values(&dir, "s", "pause");
    let line = format!("store delete s 'pause{{tag=\"A\"}}' {range} --yes --json");
    let deleted = json(&run_ok(&dir, &line));
    assert_eq!(deleted["rows"], 21);
    assert!(count_values(&dir, "s", "pause") < all);
    let again = run(&dir, &line);
    let expected = "matches no series with samples: all samples of 1 series (pause{tag=\"A\"}) \
                    were deleted or have expired; available: pause";
    assert!(again.status == 1 && again.stderr.contains(expected), "{}", again.stderr);
    let other = run(&dir, &line.replace("pause", "load"));
    assert!(other.stderr.contains("matches no series; available: pause"), "{}", other.stderr);
    run_ok(&dir, "store restore copy t");
    assert_eq!(count_values(&dir, "t", "pause"), all);
}
