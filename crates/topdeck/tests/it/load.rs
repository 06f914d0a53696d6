//! `topdeck load` against servers whose truth is known.

use std::process::Stdio;
use std::time::Duration;

use load::{Answers, Stub};
use serde_json::Value;

use super::machine::{free_port, until};
use super::serve::deck::{Deck, Folder};
use super::{Run, topdeck};

const MS: u64 = 1_000_000;

fn stub() -> Stub {
    Stub::start(Answers::Http1, 5 * MS).expect("a stub starts")
}

fn url(stub: &Stub) -> String {
    format!("http://{}/", stub.address())
}

/// Runs it, up to four times while the report says that the generator stalled: a stalled generator
/// sends less than intended.
#[track_caller]
fn trusted(arguments: &[&str]) -> Option<Run> {
    for _ in 0..4 {
        let run = topdeck(&[&["load", "--no-calibration"], arguments].concat(), b"");
        if run.status != UNTRUSTED {
            return Some(run);
        }
        let told = [&run.stdout, &run.stderr].map(|text| text.contains("NOT TO BE TRUSTED"));
        assert!(told.contains(&true), "{}", run.all());
    }
    println!("skipped: the generator stalled in each of four runs");
    None
}

/// Exit status of a run whose generator stalled.
const UNTRUSTED: i32 = 3;

fn number(text: &str, after: &str) -> u64 {
    let at = text.find(after).unwrap_or_else(|| panic!("{after} is not in {text}"));
    let word = text[at + after.len()..].split_whitespace().next().unwrap();
    word.replace(',', "").parse().unwrap()
}

#[test]
fn a_run_tells_what_users_felt() {
    let stub = stub();
    let Some(run) = trusted(&[&url(&stub), "--rate", "100", "--duration", "1s", "--seed", "5"])
    else {
        return;
    };
    assert_eq!(run.status, 0, "{}", run.all());
    let text = &run.stdout;
    assert!(text.contains("100/s at even distances for 1 s"), "{text}");
    assert!(text.contains("seed 5, 1 thread, 16 to "), "{text}");
    assert!(text.contains("calibration was left out"), "{text}");
    assert_eq!((number(text, "intended"), number(text, "completed")), (100, 100));
    for word in ["p50", "p99.99", "max", "mean", "response", "service", "send lag", "own lag"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // A line a second where nobody looks on from a terminal.
    assert!(run.stderr.starts_with("1 s of 1 s: 100/s asked, "), "{}", run.stderr);
}

/// The only run of these tests with a calibration. More is asked for than any machine sends, so it doubts; it runs all the same.
#[test]
fn a_run_tells_what_this_machine_can_be_trusted_with() {
    let stub = stub();
    let url = url(&stub);
    let arguments = [&url, "--rate", "50000000", "--duration", "1us", "--quiet", "--json", "-"];
    let run = topdeck(&[&["load"], &arguments[..]].concat(), b"");
    assert_eq!(run.status, 3, "{}", run.all());
    assert!(run.stderr.starts_with("NOT TO BE TRUSTED"), "{}", run.stderr);
    for line in ["calibration, clock: ", "calibration, rate: one thread", "calibration, freeze"] {
        assert!(run.stderr.contains(line), "{line}: {}", run.stderr);
    }
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    let calibration = &document["calibration"];
    assert!(calibration["rate_max"].is_number(), "{calibration}");
    let freeze = calibration["freeze"].as_array().unwrap();
    assert_eq!(freeze.len(), 4, "{calibration}");
    assert_eq!(document["account"]["intended"], 50);
    // Whatever it doubts is among the doubts of the run.
    let doubts = document["doubts"].as_array().unwrap();
    let is_told = |kind: &str| doubts.iter().any(|doubt| doubt["kind"] == kind);
    let apart = |one: &Value| {
        let [found, truth, allowed] =
            ["found_ns", "truth_ns", "allowed_ns"].map(|name| one[name].as_f64().unwrap());
        (found - truth).abs() > allowed
    };
    let is_steady = calibration["steady"] == true;
    assert!(is_told("rate"), "{document}");
    assert_eq!(is_told("unsteady"), !is_steady, "{document}");
    assert_eq!(is_told("freeze"), is_steady && freeze.iter().any(apart), "{document}");
}

#[test]
fn rates_change_in_steps_and_ramps_and_as_recorded() {
    let stub = stub();
    let url = url(&stub);
    let folder = Folder::new();
    let replay = folder.path("times.txt");
    std::fs::write(&replay, "# a comment\n100.5\n100.6\n100.6\n\n100800ms\n").unwrap();
    let replay = replay.to_str().unwrap();
    let of = |schedule: &[&str], words: &str, intended: u64| {
        let arguments = [&[url.as_str(), "--quiet"], schedule].concat();
        let Some(run) = trusted(&arguments) else { return };
        assert!(run.stdout.contains(words), "{}", run.stdout);
        assert_eq!(number(&run.stdout, "intended"), intended, "{}", run.stdout);
        assert_eq!(run.stderr, "");
    };
    of(&["--steps", "20,60", "--duration", "1s"], "20/s, then 60/s (500 ms each)", 40);
    of(&["--ramp", "0..80", "--duration", "500ms"], "from 0/s to 80/s at even", 20);
    of(&["--replay", replay], "4 requests as ", 4);
    of(&["--replay", replay, "--duration", "200ms"], "3 requests as ", 3);
}

#[test]
fn what_is_required_decides_the_exit_status() {
    let stub = stub();
    let url = url(&stub);
    let arguments = [&url, "--rate", "100", "--duration", "500ms", "--quiet"];
    let met = ["--require", "p50<1s", "--require", "failed<0.1%", "--require", "rate>10"];
    let Some(run) = trusted(&[&arguments[..], &met].concat()) else { return };
    assert_eq!(run.status, 0, "{}", run.all());
    assert_eq!(run.stdout.matches("\n  met  ").count(), 3, "{}", run.stdout);
    let Some(run) = trusted(&[&arguments[..], &met, &["--require", "p50<5ms"]].concat()) else {
        return;
    };
    assert_eq!(run.status, 4, "{}", run.all());
    assert!(run.stdout.contains("NOT MET  p50<5ms"), "{}", run.stdout);
}

/// Nobody listens: every request is accounted for, and times that never were are not made up.
#[test]
fn an_absent_server_fails_each_request() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let arguments = [&url, "--rate", "50", "--duration", "500ms", "--quiet"];
    let Some(run) = trusted(&[&arguments[..], &["--require", "p50<1h"]].concat()) else { return };
    assert_eq!(run.status, 4, "{}", run.all());
    assert_eq!((number(&run.stdout, "intended"), number(&run.stdout, "refused")), (25, 25));
    assert!(run.stdout.contains("NOT MET  p50<1h  never"), "{}", run.stdout);
    assert!(run.stdout.contains("the first refused: Connection refused"), "{}", run.stdout);
    assert!(run.stdout.contains(" needed at the most, "), "{}", run.stdout);
}

#[test]
fn what_cannot_be_run_is_told() {
    let folder = Folder::new();
    let path = folder.path("times.txt");
    std::fs::write(&path, "1\nx\n").unwrap();
    let path = path.to_str().unwrap();
    let requests = folder.path("requests.toml");
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
        (vec!["http://a/", "--search", "--precision", "3"], 2, "0.1%"),
        (vec!["http://a/", "--rate", "1", "--rate-max", "3"], 2, "--search"),
        (vec!["http://a/", "--rate", "1", "--ramp", "1..2"], 2, "cannot be used with"),
        (vec!["http://127.0.0.1/", "--replay", path], 1, "line 2: \"x\" is no time"),
        (vec!["http://127.0.0.1/", "--replay", "/nowhere"], 1, "cannot read /nowhere"),
        (vec!["http://nobody.invalid/", "--rate", "1"], 1, "nobody.invalid"),
        // Before the run, and not after it.
        (vec!["http://a.invalid/", "--rate", "1", "--json", "/no/x"], 1, "cannot write /no/x"),
        (vec!["http://a.invalid/", "--rate", "1", "--html", "/"], 1, "cannot write /:"),
        (vec!["http://a/", "--rate", "1", "--", "true"], 2, "cannot be used with"),
        (vec!["--rate", "1", "--connections", "1", "--", "true"], 2, "cannot be used with"),
        (vec!["--rate", "1", "--requests", "/nowhere", "--", "true"], 2, "cannot be used with"),
        (vec!["--rate", "1", "--"], 2, "required"),
        (vec!["--rate", "1"], 2, "required"),
        (vec!["--rate", "1", "--", "/nowhere/a"], 1, "there is no such file"),
        (vec!["--rate", "1", "--requests", requests], 1, "\"page\" has no command"),
        (vec!["--rate", "1", "--requests", requests, "--ca", "a"], 1, "--ca is for a server"),
        (vec!["http://a/", "--rate", "1", "--argument", "-1"], 1, "it has arguments"),
        (vec!["grpc://a/b", "--rate", "1"], 1, "/package.Service/Method"),
        (vec!["redis://a", "--rate", "1", "--body", " "], 1, "no words"),
        (vec!["postgres://a/b?sslmode=prefer", "--rate", "1"], 2, "sslmode=disable"),
        (vec!["compare", "/nowhere", "/nowhere"], 1, "cannot read /nowhere"),
    ] {
        let run = topdeck(&[&["load"], &arguments[..]].concat(), b"");
        assert_eq!(run.status, status, "{arguments:?}: {}", run.all());
        assert!(run.stderr.contains(said), "{arguments:?}: {}", run.all());
    }
}

/// A command is told of without its arguments, which may be secrets; why the first one failed is told.
#[test]
fn a_command_is_a_request() {
    let script = "echo no such table >&2; exit 3 # hunter2";
    let folder = Folder::new();
    let page = folder.path("run.html");
    let files = ["--json", "-", "--html", page.to_str().unwrap()];
    let arguments = ["--rate", "20", "--duration", "500ms"];
    let command = ["--", "sh", "-c", script];
    let Some(run) = trusted(&[&arguments[..], &files, &command].concat()) else { return };
    assert_eq!(run.status, 0, "{}", run.all());
    let text = &run.stderr;
    assert!(text.contains("sh with 2 arguments  20/s at even distances"), "{text}");
    assert!(text.contains("up to 100 processes at once"), "{text}");
    assert!(text.contains("  10 started, ") && text.contains("for a process to end"), "{text}");
    assert_eq!((number(text, "intended"), number(text, "  exit ")), (10, 10), "{text}");
    assert!(text.contains(" ended with status 3: no such table\n"), "{text}");
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["protocol"], "command");
    assert_eq!(document["account"]["failed"]["exit"], 10);
    let words = document["first_failures"]["exit"].as_str().unwrap();
    assert!(words.ends_with(" ended with status 3: no such table"), "{words}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(" ended with status 3: no such table"), "{page}");
    assert!(![page, run.all()].concat().contains("hunter2"), "{}", run.all());
}

#[test]
fn commands_come_from_a_file() {
    let folder = Folder::new();
    let path = folder.path("commands.toml");
    std::fs::write(
        &path,
        "[[request]]\ncommand = ['true']\n[[request]]\ncommand = ['cat']\nbody = 'a'\n",
    )
    .unwrap();
    let arguments = ["--requests", path.to_str().unwrap(), "--rate", "20", "--duration", "500ms"];
    let Some(run) = trusted(&[&arguments[..], &["--quiet"]].concat()) else { return };
    assert_eq!(run.status, 0, "{}", run.all());
    assert_eq!(number(&run.stdout, "completed"), 10, "{}", run.stdout);
    let is_told = |line: &str| line.starts_with("2 commands of /");
    assert!(run.stdout.lines().any(is_told), "{}", run.stdout);
    assert!(run.stdout.contains("request 2: cat"), "{}", run.stdout);
}

/// Ctrl-C twice: it ends at once, and so does all that it started.
#[test]
fn processes_end_with_an_interrupted_run() {
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
        .args(["load", "--no-calibration", "--rate", "20", "--duration", "60s", "--drain", "60s"])
        .args(["--quiet", "--", "sleep", &length])
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let pid = child.id().to_string();
    until("processes run", || sleeping() > 2);
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

/// A server that needs 4 ms for each request, one after the other: it holds 250 per second.
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
                // A client sends the next one when it has the answer: each read is a request.
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

// slow: a search has about ten steps of 0.5 s each, and more where the generator stalls.
#[test]
fn a_search_finds_what_a_server_holds() {
    let url = queue();
    let arguments = ["--search", "--require", "p90<100ms", "--precision", "25%", "--json", "-"];
    let steps = ["--rate", "60", "--duration", "500ms", "--connections-max", "128"];
    let (mut last, mut is_generators) = (String::new(), false);
    for _ in 0..2 {
        let run =
            topdeck(&[&["load", &url, "--no-calibration"], &arguments[..], &steps].concat(), b"");
        assert!(matches!(run.status, 0 | 3 | 4), "{}", run.all());
        assert!(run.stderr.starts_with("step 1: 60/s for 500 ms, p90<100ms "), "{}", run.stderr);
        assert!(run.stderr.contains("calibration was left out"), "{}", run.stderr);
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        let steps = document["steps"].as_array().unwrap();
        assert!(steps.len() > 5, "{document}");
        is_generators |= run.status == 3 || steps.iter().any(|step| step["generator"] == true);
        let held = document["held"]["rate"].as_f64();
        // More than that is in the queue for too long, on any machine.
        assert!(held.is_none_or(|rate| rate < 400.0), "{}", run.stderr);
        if held.is_some_and(|rate| rate > 120.0) {
            assert_eq!(run.status, 0, "{}", run.all());
            assert!(run.stderr.contains("held: "), "{}", run.stderr);
            return;
        }
        last = run.stderr;
    }
    // The server is a program on this machine too, so only the generator's own word excuses it.
    assert!(is_generators, "{last}");
    println!("skipped: the generator stalled in both searches");
}

/// What holds all that is asked for holds at least that.
#[test]
fn a_search_ends_at_the_highest_rate_that_is_asked_for() {
    let stub = stub();
    let url = url(&stub);
    let arguments = ["--search", "--require", "p50<1s", "--duration", "200ms", "--quiet"];
    let rates = ["--rate", "50", "--rate-max", "100"];
    let all = [&["load", "--no-calibration", &url], &arguments[..], &rates].concat();
    let run = topdeck(&all, b"");
    let is_held = run.status == 0 && run.stdout.contains("held: at least 100/s");
    if !is_held && run.stdout.contains("  generator  ") {
        println!("skipped: the generator stalled");
        return;
    }
    assert!(is_held, "{}", run.all());
    assert_eq!(run.stderr, "");
}

/// What a search has tried when it is ended is told, and that it found nothing.
#[test]
fn an_interrupted_search_tells_what_it_tried() {
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
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.starts_with("step 1: 10/s for "), "{line}");
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.expect("kill runs").success());
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{rest}");
    assert!(rest.contains("ended before the rate was found"), "{rest}");
    assert!(text.contains("service p99") && text.contains("10/s"), "{text}");
}

/// A comparison with a run that is not to be trusted says so by its exit status.
#[test]
fn a_doubted_run_is_compared_with_doubt() {
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/load/run.json");
    let compared = topdeck(&["load", "compare", run, run], b"");
    assert_eq!(compared.status, 3, "{}", compared.all());
    assert!(compared.stdout.contains("NOT TO BE TRUSTED"), "{}", compared.stdout);
    let compared = topdeck(&["load", "compare", run, run, "--json"], b"");
    assert_eq!(compared.status, 3, "{}", compared.all());
    let document: Value = serde_json::from_str(&compared.stdout).unwrap();
    assert!(document["b"]["doubts"][0].as_str().unwrap().contains("stood still"), "{document}");
}

/// Ctrl-C ends the sending, and what there is is told.
#[test]
fn an_interrupt_ends_it_and_tells_what_there_is() {
    let stub = stub();
    let binary = env!("CARGO_BIN_EXE_topdeck");
    let child = std::process::Command::new(binary)
        .args(["load", "--no-calibration", &url(&stub), "--rate", "50", "--duration", "60s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    until("answers come", || stub.answered() >= 20);
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ended before its time"), "{text}");
    let intended = number(&text, "intended");
    assert!((20..3000).contains(&intended), "{text}");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}", output.status);
}

/// All forms of one run; the JSON is read back, the log by `topdeck hist`.
#[test]
fn a_run_is_written_in_every_form() {
    let stub = stub();
    let folder = Folder::new();
    let [json, html, hlog, other] =
        ["run.json", "run.html", "run.hlog", "other.json"].map(|name| folder.path(name));
    let [json, html, hlog, other] =
        [&json, &html, &hlog, &other].map(|path| path.to_str().unwrap());
    let url = url(&stub);
    let arguments = [&url, "--rate", "100", "--duration", "2s", "--quiet"];
    let files = ["--json", json, "--html", html, "--hlog", hlog];
    let sessions = ["--clicks", "5", "--requests-per-click", "40"];
    let Some(run) = trusted(&[&arguments[..], &files, &sessions].concat()) else { return };
    assert_eq!(run.status, 0, "{}", run.all());
    assert!(run.stdout.contains("Sessions of 5 clicks with 40 requests each: 200"));
    let document: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(document["account"]["completed"], 200);
    assert_eq!(document["times"]["response"]["count"], 200);
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("Percentile spectra") && page.contains("default-src 'none'"));
    for foreign in ["<script", "src=", "href=", "@import", "url(h"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    let read = topdeck(&["hist", "--by", "tag", hlog], b"");
    assert_eq!(read.status, 0, "{}", read.all());
    assert_eq!(super::counts(&read), ["200", "200"], "{}", read.stdout);

    let Some(run) = trusted(&[&arguments[..], &["--json", "-"]].concat()) else { return };
    std::fs::write(other, &run.stdout).unwrap();
    assert!(run.stderr.contains("intended"), "the text is told beside it: {}", run.stderr);
    let compared = topdeck(&["load", "compare", json, other], b"");
    assert_eq!(compared.status, 0, "{}", compared.all());
    assert!(compared.stdout.contains("200 completed"), "{}", compared.stdout);
    let compared = topdeck(&["load", "compare", json, other, "--time", "service", "--json"], b"");
    let compared: Value = serde_json::from_str(&compared.stdout).unwrap();
    assert_eq!(compared["a"]["count"], 200);
    assert!(compared["kolmogorov_smirnov"]["lower"].is_number());
}

/// A server that answers later is told from one that does not.
#[test]
fn a_slower_server_is_no_chance() {
    let folder = Folder::new();
    let paths = ["fast.json", "slow.json"].map(|name| folder.path(name));
    let load = |path: &str, service_ms: u64| {
        let stub = Stub::start(Answers::Http1, service_ms * MS).expect("a stub starts");
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
    if compared["chance"]["value"].is_null() && statuses.contains(&UNTRUSTED) {
        println!("skipped: the generator stalled for whole seconds");
        return;
    }
    assert!(compared["chance"]["value"].as_f64().unwrap() < 0.02, "{compared}");
    assert!(compared["wasserstein"]["estimate"].as_f64().unwrap() > 30e6, "{compared}");
}

/// The seconds of a run are in a running server, and the run ends as it would without one.
#[test]
fn a_run_is_pushed_into_a_server() {
    let mut deck = Deck::new("serve", "");
    deck.start();
    let stub = stub();
    let to = format!("http://{}", deck.address());
    let url = url(&stub);
    let arguments = [&url, "--rate", "100", "--duration", "2s", "--quiet"];
    let left_out = ["load", "--no-calibration"];
    let run = topdeck(&[&left_out, &arguments[..], &["--push", &to, "--run", "a b"]].concat(), b"");
    assert!(run.stdout.contains("pushed to") && run.stdout.contains(": all "), "{}", run.all());
    let completed = number(&run.stdout, "completed");
    let asked = "/v1/histogram?selector=load_response%7Brun%3D%22a%20b%22%7D&from=-1h";
    let stored = || deck.get(asked).json()["count"].as_u64().unwrap_or(0);
    until("all of it is stored", || stored() >= completed);
    assert_eq!(stored(), completed, "{}", deck.log());
    let asked = "/v1/labels?selector=load_failed";
    let labels = deck.ask("GET", asked).expect("it answers").text();
    assert!(labels.contains("protocol") && labels.contains("kind"), "{labels}");
}

/// A server that is not there keeps the run from nothing.
#[test]
fn a_push_to_nobody_is_told() {
    let stub = stub();
    let to = format!("http://127.0.0.1:{}", free_port());
    let url = url(&stub);
    let arguments = [&url, "--rate", "50", "--duration", "1s", "--quiet", "--push", &to];
    let Some(run) = trusted(&arguments) else { return };
    assert_eq!(run.status, 0, "{}", run.all());
    assert!(run.stdout.contains("seconds were NOT delivered: no connection"), "{}", run.stdout);
    assert_eq!(number(&run.stdout, "completed"), 50);
}
