//! `topdeck load` against servers with a known service time.

use std::process::Stdio;
use std::time::Duration;

use load::{StubProtocol, StubServer};
use serde_json::Value;

use super::environment::{free_port, wait_until};
use super::serve::server_process::{ServerProcess, TestDir};
use super::{TextRun, topdeck};

const MS: u64 = 1_000_000;

fn stub() -> StubServer {
    StubServer::start(StubProtocol::Http1, 5 * MS).expect("a stub starts")
}

fn url(stub: &StubServer) -> String {
    format!("http://{}/", stub.address())
}

/// Runs it, up to four times while the report says that the generator stalled: a stalled generator
/// sends less than scheduled.
#[track_caller]
fn valid_run(arguments: &[&str]) -> Option<TextRun> {
    for _ in 0..4 {
        let run = topdeck(&[&["load", "--no-calibration"], arguments].concat(), b"");
        if run.status != INVALID_RESULT {
            return Some(run);
        }
        let texts = [&run.stdout, &run.stderr].map(|text| text.contains("INVALID RESULT"));
        assert!(texts.contains(&true), "{}", run.all());
    }
    println!("skipped: the generator stalled in each of four runs");
    None
}

/// Exit status of an invalid result.
const INVALID_RESULT: i32 = 3;

fn number(text: &str, after: &str) -> u64 {
    let at = text.find(after).unwrap_or_else(|| panic!("{after} is not in {text}"));
    let word = text[at + after.len()..].split_whitespace().next().unwrap();
    word.replace(',', "").parse().unwrap()
}

#[test]
fn run_reports_times_and_outcomes() {
    let stub = stub();
    let Some(run) = valid_run(&[&url(&stub), "--rate", "100", "--duration", "1s", "--seed", "5"])
    else {
        return;
    };
    assert_eq!(run.status, 0, "{}", run.all());
    let text = &run.stdout;
    assert!(text.contains("100/s evenly spaced for 1 s"), "{text}");
    assert!(text.contains("seed 5, 1 thread, 16 to "), "{text}");
    assert!(text.contains("calibration skipped"), "{text}");
    assert_eq!((number(text, "scheduled"), number(text, "completed")), (100, 100));
    for word in
        ["p50", "p99.99", "max", "mean", "response", "service", "queue time", "generator lag"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    // One line per second without a terminal.
    assert!(run.stderr.starts_with("1 s of 1 s: 100/s scheduled, "), "{}", run.stderr);
}

/// The only test with a calibration. The rate exceeds what any machine sends, so the result is
/// invalid; the run is made anyway.
#[test]
fn run_reports_its_calibration() {
    let stub = stub();
    let url = url(&stub);
    let arguments = [&url, "--rate", "50000000", "--duration", "1us", "--quiet", "--json", "-"];
    let run = topdeck(&[&["load"], &arguments[..]].concat(), b"");
    assert_eq!(run.status, 3, "{}", run.all());
    assert!(run.stderr.starts_with("INVALID RESULT"), "{}", run.stderr);
    for line in [
        "calibration, clock: ",
        "calibration, rate: one thread",
        "calibration, coordinated-omission test",
    ] {
        assert!(run.stderr.contains(line), "{line}: {}", run.stderr);
    }
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    let calibration = &document["calibration"];
    assert!(calibration["max_rate"].is_number(), "{calibration}");
    let checks = calibration["coordinated_omission"].as_array().unwrap();
    assert_eq!(checks.len(), 4, "{calibration}");
    assert_eq!(document["counts"]["scheduled"], 50);
    // Reasons of the calibration are reasons of the run.
    let reasons = document["invalid_reasons"].as_array().unwrap();
    let is_reported = |kind: &str| reasons.iter().any(|reason| reason["kind"] == kind);
    let differs = |one: &Value| {
        let [measured, expected, tolerance] =
            ["measured_ns", "expected_ns", "tolerance_ns"].map(|name| one[name].as_f64().unwrap());
        (measured - expected).abs() > tolerance
    };
    let is_stable = calibration["stable"] == true;
    assert!(is_reported("rate"), "{document}");
    assert_eq!(is_reported("calibration_unstable"), !is_stable, "{document}");
    assert_eq!(
        is_reported("calibration_failed"),
        is_stable && checks.iter().any(differs),
        "{document}"
    );
}

#[test]
fn schedules_are_steps_ramps_and_recordings() {
    let stub = stub();
    let url = url(&stub);
    let dir = TestDir::new();
    let replay = dir.path("times.txt");
    std::fs::write(&replay, "# a comment\n100.5\n100.6\n100.6\n\n100800ms\n").unwrap();
    let replay = replay.to_str().unwrap();
    let of = |schedule: &[&str], words: &str, scheduled: u64| {
        let arguments = [&[url.as_str(), "--quiet"], schedule].concat();
        let Some(run) = valid_run(&arguments) else { return };
        assert!(run.stdout.contains(words), "{}", run.stdout);
        assert_eq!(number(&run.stdout, "scheduled"), scheduled, "{}", run.stdout);
        assert_eq!(run.stderr, "");
    };
    of(&["--steps", "20,60", "--duration", "1s"], "20/s, then 60/s (500 ms each)", 40);
    of(&["--ramp", "0..80", "--duration", "500ms"], "from 0/s to 80/s evenly spaced", 20);
    of(&["--replay", replay], "4 requests recorded in ", 4);
    of(&["--replay", replay, "--duration", "200ms"], "3 requests recorded in ", 3);
}

#[test]
fn requirements_decide_the_exit_status() {
    let stub = stub();
    let url = url(&stub);
    let arguments = [&url, "--rate", "100", "--duration", "500ms", "--quiet"];
    let met = ["--require", "p50<1s", "--require", "failed<0.1%", "--require", "rate>10"];
    let Some(run) = valid_run(&[&arguments[..], &met].concat()) else { return };
    assert_eq!(run.status, 0, "{}", run.all());
    assert_eq!(run.stdout.matches("\n  PASS  ").count(), 3, "{}", run.stdout);
    let Some(run) = valid_run(&[&arguments[..], &met, &["--require", "p50<5ms"]].concat()) else {
        return;
    };
    assert_eq!(run.status, 4, "{}", run.all());
    assert!(run.stdout.contains("FAIL  p50<5ms"), "{}", run.stdout);
}

/// Connection refused: every request is accounted for, and there are no times.
#[test]
fn absent_server_fails_each_request() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let arguments = [&url, "--rate", "50", "--duration", "500ms", "--quiet"];
    let Some(run) = valid_run(&[&arguments[..], &["--require", "p50<1h"]].concat()) else { return };
    assert_eq!(run.status, 4, "{}", run.all());
    assert_eq!((number(&run.stdout, "scheduled"), number(&run.stdout, "refused")), (25, 25));
    assert!(run.stdout.contains("FAIL  p50<1h  not reached"), "{}", run.stdout);
    assert!(run.stdout.contains("first refused: Connection refused"), "{}", run.stdout);
    assert!(run.stdout.contains(" needed, soft limit "), "{}", run.stdout);
}

#[test]
fn invalid_runs_are_rejected() {
    let dir = TestDir::new();
    let path = dir.path("times.txt");
    std::fs::write(&path, "1\nx\n").unwrap();
    let path = path.to_str().unwrap();
    let requests = dir.path("requests.toml");
    std::fs::write(&requests, "[[request]]\nname = 'page'\n").unwrap();
    let requests = requests.to_str().unwrap();
    for (arguments, status, said) in [
        (vec!["http://127.0.0.1/"], 2, "--rate"),
        (vec!["localhost", "--rate", "1"], 2, "http://"),
        (vec!["http://a/", "--rate", "0"], 2, "above 0"),
        (vec!["http://a/", "--rate", "1", "--require", "p99"], 2, "p99.9<20ms"),
        (vec!["http://a/", "--search", "--require", "mean<1s"], 2, "percentiles and max of"),
        (vec!["http://a/", "--search", "--require", "p9<2min"], 2, "--timeout"),
        (vec!["http://a/", "--search", "--ramp", "1..2"], 2, "cannot be used with"),
        (vec!["http://a/", "--search", "--tolerance", "3"], 2, "0.1%"),
        (vec!["http://a/", "--rate", "1", "--max-rate", "3"], 2, "--search"),
        (vec!["http://a/", "--rate", "1", "--ramp", "1..2"], 2, "cannot be used with"),
        (vec!["http://127.0.0.1/", "--replay", path], 1, "line 2: invalid timestamp \"x\""),
        (vec!["http://127.0.0.1/", "--replay", "/nowhere"], 1, "cannot read /nowhere"),
        (vec!["http://nobody.invalid/", "--rate", "1"], 1, "nobody.invalid"),
        // Before the run.
        (vec!["http://a.invalid/", "--rate", "1", "--json", "/no/x"], 1, "cannot write /no/x"),
        (vec!["http://a.invalid/", "--rate", "1", "--html", "/"], 1, "cannot write /:"),
        (vec!["http://a/", "--rate", "1", "--", "true"], 2, "cannot be used with"),
        (vec!["--rate", "1", "--connections", "1", "--", "true"], 2, "cannot be used with"),
        (vec!["--rate", "1", "--requests", "/nowhere", "--", "true"], 2, "cannot be used with"),
        (vec!["--rate", "1", "--"], 2, "required"),
        (vec!["--rate", "1"], 2, "required"),
        (vec!["--rate", "1", "--", "/nowhere/a"], 1, "no such file"),
        (vec!["--rate", "1", "--requests", requests], 1, "\"page\" has no command"),
        (vec!["--rate", "1", "--requests", requests, "--ca", "a"], 1, "--ca needs a server"),
        (vec!["http://a/", "--rate", "1", "--arg", "-1"], 1, "does not support arguments"),
        (vec!["grpc://a/b", "--rate", "1"], 1, "/package.Service/Method"),
        (vec!["redis://a", "--rate", "1", "--body", " "], 1, "contains no command"),
        (vec!["postgres://a/b?sslmode=prefer", "--rate", "1"], 2, "sslmode=disable"),
        (vec!["compare", "/nowhere", "/nowhere"], 1, "cannot read /nowhere"),
    ] {
        let run = topdeck(&[&["load"], &arguments[..]].concat(), b"");
        assert_eq!(run.status, status, "{arguments:?}: {}", run.all());
        assert!(run.stderr.contains(said), "{arguments:?}: {}", run.all());
    }
}

/// Reports omit the arguments of a command, which may be secrets, and show the first error.
#[test]
fn commands_are_reported_without_arguments() {
    let script = "echo no such table >&2; exit 3 # hunter2";
    let dir = TestDir::new();
    let page = dir.path("run.html");
    let files = ["--json", "-", "--html", page.to_str().unwrap()];
    let arguments = ["--rate", "20", "--duration", "500ms"];
    let command = ["--", "sh", "-c", script];
    let Some(run) = valid_run(&[&arguments[..], &files, &command].concat()) else { return };
    assert_eq!(run.status, 0, "{}", run.all());
    let text = &run.stderr;
    assert!(text.contains("sh with 2 arguments  20/s evenly spaced"), "{text}");
    assert!(text.contains("up to 100 concurrent processes"), "{text}");
    assert!(text.contains("  10 started, ") && text.contains("at the process limit"), "{text}");
    assert_eq!((number(text, "\n  scheduled"), number(text, "  exit ")), (10, 10), "{text}");
    assert!(text.contains(" exited with status 3: no such table\n"), "{text}");
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["protocol"], "command");
    assert_eq!(document["counts"]["failed"]["exit"], 10);
    let words = document["first_errors"]["exit"].as_str().unwrap();
    assert!(words.ends_with(" exited with status 3: no such table"), "{words}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(" exited with status 3: no such table"), "{page}");
    assert!(![page, run.all()].concat().contains("hunter2"), "{}", run.all());
}

#[test]
fn commands_from_a_file() {
    let dir = TestDir::new();
    let path = dir.path("commands.toml");
    std::fs::write(
        &path,
        "[[request]]\ncommand = ['true']\n[[request]]\ncommand = ['cat']\nbody = 'a'\n",
    )
    .unwrap();
    let arguments = ["--requests", path.to_str().unwrap(), "--rate", "20", "--duration", "500ms"];
    let Some(run) = valid_run(&[&arguments[..], &["--quiet"]].concat()) else { return };
    assert_eq!(run.status, 0, "{}", run.all());
    assert_eq!(number(&run.stdout, "completed"), 10, "{}", run.stdout);
    let is_reported = |line: &str| line.starts_with("2 commands of /");
    assert!(run.stdout.lines().any(is_reported), "{}", run.stdout);
    assert!(run.stdout.contains("request 2: cat"), "{}", run.stdout);
}

/// The second Ctrl-C ends the run at once, with all its processes.
#[test]
fn second_interrupt_kills_all_processes() {
    let binary = env!("CARGO_BIN_EXE_topdeck");
    let length = format!("31556.{}", std::process::id());
    let has_length = |pid: &str| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').collect::<Vec<_>>() == ["sleep", &length, ""]
    };
    let sleeping = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| entry.file_name().to_str().is_some_and(has_length)).count()
    };
    let mut child = std::process::Command::new(binary)
        .args([
            "load",
            "--no-calibration",
            "--rate",
            "20",
            "--duration",
            "60s",
            "--grace-period",
            "60s",
        ])
        .args(["--quiet", "--", "sleep", &length])
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let pid = child.id().to_string();
    wait_until("processes run", || sleeping() > 2);
    let mut signals = 0;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        let killed = std::process::Command::new("kill").args(["-INT", &pid]).status();
        assert!(killed.expect("kill runs").success());
        signals += 1;
        assert!(signals < 200, "it does not end");
        // A signal sent before the last one is handled merges with it, so it is sent again.
        std::thread::sleep(Duration::from_millis(300));
    };
    assert_eq!(status.code(), Some(130));
    assert!(signals > 1, "the first waits for what has begun");
    assert_eq!(sleeping(), 0);
}

/// A flag of an earlier version is refused with its new name.
#[test]
fn renamed_flags_are_refused_with_their_new_names() {
    for (old, new) in [
        ("--argument", "--arg"),
        ("--clicks", "--page-views"),
        ("--connections-max", "--max-connections"),
        ("--drain", "--grace-period"),
        ("--precision", "--tolerance"),
        ("--rate-max", "--max-rate"),
        ("--requests-per-click", "--requests-per-page"),
        ("--run", "--run-name"),
    ] {
        let run = topdeck(&["load", "http://a/", "--rate", "1", old, "5"], b"");
        assert_eq!(run.status, 2, "{old}: {}", run.all());
        let expected = format!("{old} was renamed to {new}\n");
        assert!(run.stderr.contains(&expected), "{old}: {}", run.all());
    }
    let run = topdeck(&["load", "sessions", "--clicks=5"], b"");
    assert!(run.stderr.contains("--clicks was renamed to --page-views"), "{}", run.all());
    let run = topdeck(&["load", "--never"], b"");
    assert!(run.stderr.contains("'--never'"), "{}", run.all());
}

/// A server with a service time of 4 ms, one request after the other: its capacity is 250 per
/// second.
fn queue() -> String {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let free_ns = std::sync::Arc::new(std::sync::Mutex::new(0));
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (mut socket, free_ns) = (socket, std::sync::Arc::clone(&free_ns));
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                // A client sends the next request after the response: each read is a request.
                while socket.read(&mut buffer).is_ok_and(|length| length > 0) {
                    let done_ns = {
                        let mut free_ns = free_ns.lock().unwrap();
                        *free_ns = clock::now().max(*free_ns) + 4 * MS;
                        *free_ns
                    };
                    let left_ns = done_ns.saturating_sub(clock::now());
                    std::thread::sleep(Duration::from_nanos(left_ns));
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    if socket.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

// slow: a search has about ten trials of 0.5 s each, and more if the generator stalls.
#[test]
fn search_finds_the_capacity_of_a_server() {
    let url = queue();
    let arguments = ["--search", "--require", "p90<100ms", "--tolerance", "25%", "--json", "-"];
    let steps = ["--rate", "60", "--duration", "500ms", "--max-connections", "128"];
    let (mut last, mut is_generators) = (String::new(), false);
    for _ in 0..2 {
        let run =
            topdeck(&[&["load", &url, "--no-calibration"], &arguments[..], &steps].concat(), b"");
        assert!(matches!(run.status, 0 | 3 | 4), "{}", run.all());
        assert!(run.stderr.starts_with("trial 1: 60/s for 500 ms, p90<100ms "), "{}", run.stderr);
        assert!(run.stderr.contains("calibration skipped"), "{}", run.stderr);
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        let trials = document["trials"].as_array().unwrap();
        assert!(trials.len() > 5, "{document}");
        is_generators |=
            run.status == 3 || trials.iter().any(|trial| trial["generator_limited"] == true);
        let sustained = document["sustained"]["rate"].as_f64();
        // At a higher rate the queue exceeds the limit on any machine.
        assert!(sustained.is_none_or(|rate| rate < 400.0), "{}", run.stderr);
        if sustained.is_some_and(|rate| rate > 120.0) {
            assert_eq!(run.status, 0, "{}", run.all());
            assert!(run.stderr.contains("sustained: "), "{}", run.stderr);
            return;
        }
        last = run.stderr;
    }
    // The server is a program on this machine too: only the generator's own report is an excuse.
    assert!(is_generators, "{last}");
    println!("skipped: the generator stalled in both searches");
}

/// At --max-rate the result is a lower bound.
#[test]
fn search_ends_at_max_rate() {
    let stub = stub();
    let url = url(&stub);
    let arguments = ["--search", "--require", "p50<1s", "--duration", "200ms", "--quiet"];
    let rates = ["--rate", "50", "--max-rate", "100"];
    let all = [&["load", "--no-calibration", &url], &arguments[..], &rates].concat();
    let run = topdeck(&all, b"");
    let is_sustained = run.status == 0 && run.stdout.contains("sustained: at least 100/s");
    if !is_sustained && run.stdout.contains("  generator  ") {
        println!("skipped: the generator stalled");
        return;
    }
    assert!(is_sustained, "{}", run.all());
    assert_eq!(run.stderr, "");
}

/// An interrupted search prints its trials and has no result.
#[test]
fn interrupted_search_reports_its_trials() {
    use std::io::{BufRead as _, BufReader, Read as _};
    let stub = stub();
    let binary = env!("CARGO_BIN_EXE_topdeck");
    let mut child = std::process::Command::new(binary)
        .args(["load", "--no-calibration", &url(&stub), "--search", "--require", "p50<1s"])
        .args(["--rate", "10", "--duration", "2s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("trial 1: 10/s for "), "{line}");
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.expect("kill runs").success());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{rest}");
    assert!(rest.contains("interrupted before the rate was found"), "{rest}");
    assert!(text.contains("service p99") && text.contains("10/s"), "{text}");
}

/// A comparison with an invalid run has exit status 3.
#[test]
fn comparison_with_an_invalid_run_says_so() {
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/load/run.json");
    let compared = topdeck(&["load", "compare", run, run], b"");
    assert_eq!(compared.status, 3, "{}", compared.all());
    assert!(compared.stdout.contains("INVALID RESULT"), "{}", compared.stdout);
    let compared = topdeck(&["load", "compare", run, run, "--json"], b"");
    assert_eq!(compared.status, 3, "{}", compared.all());
    let document: Value = serde_json::from_str(&compared.stdout).unwrap();
    assert!(
        document["b"]["invalid_reasons"][0].as_str().unwrap().contains("stalled"),
        "{document}"
    );
}

/// Ctrl-C ends sending; the report covers the partial run.
#[test]
fn interrupted_run_reports_partial_results() {
    let stub = stub();
    let binary = env!("CARGO_BIN_EXE_topdeck");
    let child = std::process::Command::new(binary)
        .args(["load", "--no-calibration", &url(&stub), "--rate", "50", "--duration", "60s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    wait_until("answers come", || stub.responses() >= 20);
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("interrupted: later"), "{text}");
    let scheduled = number(&text, "scheduled");
    assert!((20..3000).contains(&scheduled), "{text}");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}", output.status);
}

/// All output files of one run: the JSON is read by `compare`, the log by `topdeck hist`.
#[test]
fn run_is_written_in_every_format() {
    let stub = stub();
    let dir = TestDir::new();
    let [json, html, hlog, other] =
        ["run.json", "run.html", "run.hlog", "other.json"].map(|name| dir.path(name));
    let [json, html, hlog, other] =
        [&json, &html, &hlog, &other].map(|path| path.to_str().unwrap());
    let url = url(&stub);
    let arguments = [&url, "--rate", "100", "--duration", "2s", "--quiet"];
    let files = ["--json", json, "--html", html, "--hlog", hlog];
    let sessions = ["--page-views", "5", "--requests-per-page", "40"];
    let Some(run) = valid_run(&[&arguments[..], &files, &sessions].concat()) else { return };
    assert_eq!(run.status, 0, "{}", run.all());
    assert!(run.stdout.contains("Sessions of 5 page views with 40 requests each: 200"));
    let document: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(document["counts"]["completed"], 200);
    assert_eq!(document["times"]["response"]["count"], 200);
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("Percentile spectra") && page.contains("default-src 'none'"));
    for foreign in ["<script", "src=", "href=", "@import", "url(h"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    let read = topdeck(&["hist", "--by", "tag", hlog], b"");
    assert_eq!(read.status, 0, "{}", read.all());
    assert_eq!(super::counts(&read), ["200", "200"], "{}", read.stdout);

    let Some(run) = valid_run(&[&arguments[..], &["--json", "-"]].concat()) else { return };
    std::fs::write(other, &run.stdout).unwrap();
    assert!(run.stderr.contains("scheduled"), "the text goes to standard error: {}", run.stderr);
    let compared = topdeck(&["load", "compare", json, other], b"");
    assert_eq!(compared.status, 0, "{}", compared.all());
    assert!(compared.stdout.contains("200 completed"), "{}", compared.stdout);
    // Without a terminal there are 80 columns; rows were broken there.
    let mut names = compared.stdout.lines().map(str::trim_start);
    assert!(names.any(|line| line.starts_with("p99")), "{}", compared.stdout);
    let is_wide = |line: &&str| line.chars().count() > 80 && !line.contains("://");
    assert_eq!(compared.stdout.lines().find(is_wide), None, "{}", compared.stdout);
    let compared = topdeck(&["load", "compare", json, other, "--time", "service", "--json"], b"");
    let compared: Value = serde_json::from_str(&compared.stdout).unwrap();
    assert_eq!(compared["a"]["count"], 200);
    assert!(compared["ks_statistic"]["lower"].is_number());
}

/// A slower server differs significantly.
#[test]
fn slower_server_differs_significantly() {
    let dir = TestDir::new();
    let paths = ["fast.json", "slow.json"].map(|name| dir.path(name));
    let load = |path: &str, service_ms: u64| {
        let stub = StubServer::start(StubProtocol::Http1, service_ms * MS).expect("a stub starts");
        let url = url(&stub);
        // The test permutes whole seconds: five of each run allow a probability of 1 in 126.
        let rate = ["--rate", "40", "--duration", "5s", "--quiet", "--no-calibration"];
        topdeck(&[&["load", &url, "--json", path], &rate[..]].concat(), b"").status
    };
    // The difference exceeds the noise of a busy machine, and runs side by side share that noise.
    let [fast, slow] = paths.each_ref().map(|path| path.to_str().unwrap());
    let statuses = std::thread::scope(|scope| {
        let runs = [(fast, 2), (slow, 400)];
        let runs = runs.map(|(path, service_ms)| scope.spawn(move || load(path, service_ms)));
        runs.map(|run| run.join().unwrap())
    });
    let compared = topdeck(&["load", "compare", fast, slow, "--json"], b"");
    let compared: Value = serde_json::from_str(&compared.stdout).unwrap();
    if compared["permutation_test"]["p_value"].is_null() && statuses.contains(&INVALID_RESULT) {
        println!("skipped: the generator stalled for whole seconds");
        return;
    }
    assert!(compared["permutation_test"]["p_value"].as_f64().unwrap() < 0.02, "{compared}");
    assert!(compared["wasserstein"]["estimate"].as_f64().unwrap() > 30e6, "{compared}");
}

/// The seconds of a run arrive at a server; the run itself is not affected.
#[test]
fn run_is_pushed_to_a_server() {
    let mut deck = ServerProcess::new("serve", "");
    deck.start();
    let stub = stub();
    let to = format!("http://{}", deck.address());
    let url = url(&stub);
    let arguments = [&url, "--rate", "100", "--duration", "2s", "--quiet"];
    let skip_calibration = ["load", "--no-calibration"];
    let run = topdeck(
        &[&skip_calibration, &arguments[..], &["--push", &to, "--run-name", "a b"]].concat(),
        b"",
    );
    assert!(run.stdout.contains("pushed to") && run.stdout.contains(": all "), "{}", run.all());
    let completed = number(&run.stdout, "completed");
    let asked = "/v1/histogram?selector=load_response_time%7Brun%3D%22a%20b%22%7D&from=-1h";
    let stored = || deck.get(asked).json()["count"].as_u64().unwrap_or(0);
    wait_until("all of it is stored", || stored() >= completed);
    assert_eq!(stored(), completed, "{}", deck.log());
    let text = |metric: &str| {
        deck.get(&format!("/v1/texts?selector={metric}%7Brun%3D%22a%20b%22%7D")).json()["texts"][0]
            ["text"]
            .as_str()
            .map(str::to_owned)
    };
    wait_until("the server knows whether it was valid", || text("load_run_validity").is_some());
    let expected = if run.status == 3 { "invalid: " } else { "valid" };
    assert!(text("load_run_validity").unwrap().starts_with(expected), "{}", run.all());
    assert!(text("load_run_schedule").unwrap().contains("100"), "{:?}", text("load_run_schedule"));
    let asked = "/v1/labels?selector=load_failed_requests_total";
    let labels = deck.request("GET", asked).expect("it answers").text();
    assert!(labels.contains("protocol") && labels.contains("reason"), "{labels}");
}

/// An absent server does not affect the run.
#[test]
fn push_to_an_absent_server_is_reported() {
    let stub = stub();
    let to = format!("http://127.0.0.1:{}", free_port());
    let url = url(&stub);
    let arguments = [&url, "--rate", "50", "--duration", "1s", "--quiet", "--push", &to];
    let Some(run) = valid_run(&arguments) else { return };
    assert_eq!(run.status, 0, "{}", run.all());
    assert!(run.stdout.contains("seconds were NOT delivered: cannot connect"), "{}", run.stdout);
    assert_eq!(number(&run.stdout, "completed"), 50);
}
