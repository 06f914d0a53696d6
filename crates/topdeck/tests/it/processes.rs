//! `topdeck ls`, `cat`, `watch`, `in-flight`, `diff`, `post-mortem` and `hist` of programs that
//! export metrics: this test binary, started again under another name.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use expect_test::{Expect, expect};
use serde_json::Value;

use crate::environment::{TmpfsDir, fresh_dir, wait_until};
use crate::{TextRun, counts, root};

#[path = "../../../shm/examples/sample.rs"]
mod sample;

/// Tells `a_sample_program` what to do.
const PROGRAM_VARIABLE: &str = "TOPDECK_TEST_SAMPLE";

/// Not a test, but the program started by the tests.
#[test]
fn a_sample_program() {
    match std::env::var(PROGRAM_VARIABLE).as_deref() {
        Err(_) => {}
        Ok("hostile") => print_control_characters(),
        Ok(words) => {
            let words = words.split_whitespace().map(str::to_owned);
            sample::run(sample::SampleOptions::parse(words).expect("words of the sample"));
        }
    }
}

/// Exports texts with control characters.
fn print_control_characters() {
    let text = "\x1b[2J\x07\u{9b}31m\nroot";
    let described =
        || shm::MetricBuilder::new("evil\x1b]0;x\x07_total").label("l", text).unit(text);
    described().help(text).counter().expect("a counter").add(3);
    shm::MetricBuilder::new("said").text().expect("a text").set(text);
    let tag = shm::Tag::new(text).expect("a tag");
    let table = shm::MetricBuilder::new("work").in_flight(&["device"]).expect("a table");
    let _stuck = table.begin(7, &[tag]);
    println!("ready");
    // Until it is killed.
    loop {
        std::thread::park();
    }
}

/// Metrics directory of a test.
pub(crate) struct MetricsDir {
    pub(crate) memory: TmpfsDir,
    programs: PathBuf,
}

impl MetricsDir {
    /// `None` without shared memory, with a message.
    pub(crate) fn new() -> Option<MetricsDir> {
        let memory = TmpfsDir::new()?;
        Some(MetricsDir { memory, programs: fresh_dir(&std::env::temp_dir()) })
    }

    /// Starts a program and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(&self, name: &str, wanted: &str) -> SampleProgram {
        let path = self.programs.join(name);
        if !path.exists() {
            let own = std::env::current_exe().expect("a path");
            // Hard links fail for files of other users and across file systems.
            if fs::hard_link(&own, &path).is_err() {
                fs::copy(&own, &path).expect("a copy");
            }
        }
        let mut command = Command::new(&path);
        command
            .args(["--exact", "processes::a_sample_program", "--nocapture"])
            // Until it is killed, unless it is to exit by itself.
            .env(PROGRAM_VARIABLE, wanted.replace("--requests", "--seconds 3600 --requests"))
            .env("TOPDECK_SHM", &self.memory.path)
            .stdout(Stdio::piped());
        let mut child = loop {
            match command.spawn() {
                // A program that another test starts inherits the copy that is being written,
                // until it executes its own.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                started => break started.expect("it starts"),
            }
        };
        let mut lines = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut line = String::new();
        // With one CPU libtest prints the test name first, on the same line.
        while !line.trim_end().ends_with("ready") {
            line.clear();
            assert!(
                lines.read_line(&mut line).expect("a line") > 0,
                "it ended before it was ready"
            );
        }
        SampleProgram { child, _lines: lines }
    }

    #[track_caller]
    fn run(&self, line: &str) -> TextRun {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = Command::new(env!("CARGO_BIN_EXE_topdeck"))
            .args(words)
            .current_dir(root())
            .env_clear()
            .env("LC_ALL", "C.UTF-8")
            .env("TOPDECK_SHM", &self.memory.path)
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        TextRun {
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
            status: output.status.code().expect("no signal"),
        }
    }

    /// Output with varying parts masked.
    #[track_caller]
    fn check(&self, line: &str, expected: Expect) {
        let run = self.run(line);
        expected.assert_eq(&self.mask(&run.all()));
    }

    fn mask(&self, text: &str) -> String {
        let text = text.replace(&*self.memory.path.to_string_lossy(), "DIR");
        let text = text.replace(&*self.programs.to_string_lossy(), "PROGRAMS");
        text.lines().map(|line| mask_line(line) + "\n").collect()
    }

    /// Its only metrics file.
    fn file(&self) -> PathBuf {
        let mut files = fs::read_dir(&self.memory.path).expect("a directory");
        files.next().expect("a file").expect("an entry").path()
    }
}

impl Drop for MetricsDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.programs);
    }
}

/// Replaces times, rates, dates and process IDs by placeholders, and collapses spaces.
fn mask_line(line: &str) -> String {
    let is_number = |word: &str| {
        let digits =
            word.trim_start_matches(['~', '+', '-', '(']).trim_end_matches([',', ';', ')', '.']);
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '.')
    };
    let end =
        |word: &str| word.chars().rev().take_while(|c| ",;).:".contains(*c)).collect::<String>();
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_end_matches([',', ';', ')', ':', '.']);
        let last = words.last().cloned().unwrap_or_default();
        if ["ns", "us", "ms", "s", "KiB"].contains(&bare) && is_number(&last) {
            words.pop();
            words.push(
                format!("TIME{}", end(word))
                    .replace("TIME", if bare == "KiB" { "SIZE" } else { "TIME" }),
            );
        } else if bare.ends_with("/s") {
            if is_number(&last) {
                words.pop();
            }
            words.push("RATE".to_owned());
        } else if last == "(pid" {
            words.push(format!("PID{}", end(word)));
        } else if bare.len() == 10 && bare.starts_with("20") && bare.matches('-').count() == 2 {
            words.push("DATE".to_owned());
        } else if last == "DATE" && word.contains('Z') {
            words.pop();
            words.push(format!("DATE{}", end(word)));
        } else if word.contains(".tdk") {
            words.push("FILE".to_owned());
        } else {
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

/// Program that is killed on drop.
pub(crate) struct SampleProgram {
    child: Child,
    _lines: BufReader<ChildStdout>,
}

impl SampleProgram {
    fn kill(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for SampleProgram {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn a_process_is_listed_and_shown() {
    let Some(dir) = MetricsDir::new() else { return };
    let _program = dir.start("sample-shown", "--requests 400");
    let list = dir.run("ls");
    let line = list.stdout.lines().find(|line| line.contains("sample-shown")).expect("a line");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..3], ["sample-shown", "topdeck"], "{line}");
    assert_eq!(words[6..8], ["15", "running"], "{line}");
    dir.check(
        "cat sample-shown",
        expect![[r#"
        --- stdout
        sample-shown (pid PID,) running, topdeck
        command PROGRAMS/sample-shown --exact processes::a_sample_program --nocapture
        file FILE
        since DATE
        as of DATE, now

        answer_duration{route="home"} 300 values, p50 TIME, p99 TIME, max TIME
        answer_duration{route="search"} 100 values, p50 TIME, p99 TIME, max TIME
        answered_total{route="home"} 300
        answered_total{route="search"} 100
        cache_hits_total 360 (hits are 90.00 % of 400 lookups)
        cache_misses_total 40 (misses are 10.00 % of 400 lookups)
        cache_size 163.84 kB
        client_heartbeat 400 beats, the last TIME before; one is due every TIME
        failed_total 4 (1.00 % of sample_request_duration)
        queue_capacity 64 requests
        queue_depth 0 requests (0.00 % of 64 requests)
        sample_request_duration 400 values, p50 TIME, p99 TIME, max TIME
        storage_calls_total 80 (0.20 per sample_request_duration)
        storage_in_flight 0 in flight; 80 started
        version "1.0.0"
        --- exit status 0
    "#]],
    );
    dir.check(
        "cat sample-shown cache_h* answered_total{route=\"search\"}",
        expect![[r#"
        --- stdout
        sample-shown (pid PID,) running, topdeck
        command PROGRAMS/sample-shown --exact processes::a_sample_program --nocapture
        file FILE
        since DATE
        as of DATE, now

        answered_total{route="search"} 100
        cache_hits_total 360 (hits are 90.00 % of 400 lookups)
        --- exit status 0
    "#]],
    );
    dir.check("cat sample-shown nonsense", expect![[r#"
        --- stderr
        topdeck: sample-shown (pid PID) has no metric nonsense; it has: answer_duration, answered_total, cache_hits_total, cache_misses_total, cache_size, client_heartbeat, failed_total, queue_capacity, queue_depth, sample_request_duration, storage_calls_total, storage_in_flight, version
        --- exit status 1
    "#]]);
    dir.check(
        "in-flight sample-shown",
        expect![[r#"
        --- stdout
        0 in flight in sample-shown (pid PID,) as of DATE, now
        --- exit status 0
    "#]],
    );
    dir.check("post-mortem sample-shown", expect![[r#"
        --- stderr
        topdeck: sample-shown (pid PID) runs; see it with `topdeck cat sample-shown` or `topdeck in-flight sample-shown`
        --- exit status 1
    "#]]);
    let watched = dir.run("watch -i 20ms --count 2 sample-shown answer*").stdout;
    assert!(watched.contains(" ms long") && watched.contains(", nothing changed\n"), "{watched}");
    assert!(watched.lines().last().is_some_and(|line| line.starts_with("done: ")), "{watched}");
    dir.check(
        "diff sample-shown --interval 1ms",
        expect![[r#"
        --- stdout
        sample-shown (pid PID,) over TIME
        Nothing changed in 15 series.
        --- exit status 0
    "#]],
    );
    let run = dir.run("watch -i 0.5ms sample-shown");
    assert_eq!(run.status, 2, "{}", run.stderr);
    let run = dir.run("cat nobody-of-this-name");
    assert_eq!(run.status, 1);
    for part in ["nobody-of-this-name", "sample-shown", "topdeck ls --all", "TOPDECK_SHM"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
}

#[test]
fn json_of_a_process() {
    let Some(dir) = MetricsDir::new() else { return };
    let _program = dir.start("sample-json", "--requests 100 --stuck 7");
    let document = |line: &str| -> Value {
        let run = dir.run(line);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""));
        serde_json::from_str(&run.stdout).expect("JSON")
    };
    let shown = document("cat sample-json --json");
    assert_eq!(shown["process"]["state"], "running");
    let metrics = shown["metrics"].as_array().unwrap();
    let of = |name: &str| metrics.iter().find(|metric| metric["name"] == name).expect("a metric");
    assert_eq!(of("sample_request_duration")["count"], 100);
    assert!(of("sample_request_duration")["max"]["upper"].is_number());
    assert_eq!(of("cache_hits_total")["related_metric"], "cache_size");
    assert_eq!(of("storage_in_flight")["count"], 7);
    let by = document("in-flight sample-json --by device --json");
    assert_eq!(by["groups"][0]["value"], "nvme0n1");
    assert_eq!(by["groups"][0]["count"], 4);
    let listed = document("in-flight sample-json --json");
    assert_eq!(listed["operations"].as_array().unwrap().len(), 7);
    assert_eq!(listed["operations"][0]["tags"]["device"], "nvme0n1");
}

#[test]
fn histogram_of_a_process_has_all_views() {
    let Some(dir) = MetricsDir::new() else { return };
    let _program = dir.start("sample-hist", "--requests 400");
    let run = dir.run("hist sample-hist answer_duration");
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert_eq!(counts(&run), ["400"]);
    assert!(run.stdout.contains("Percentile spectrum"), "{}", run.stdout);
    let run = dir.run("hist --by route sample-hist answer_duration");
    assert_eq!(counts(&run), ["300", "100"]);
    let run = dir.run("hist sample-hist *_duration answered_total");
    assert_eq!(counts(&run), ["400", "400"]);
    assert!(run.stdout.contains("Skipped (not histograms): 2 counters"), "{}", run.stdout);
    let file = dir.file();
    let run = dir.run(&format!("hist --json {} sample_request_duration", file.display()));
    let document: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(document["groups"][0]["count"], 400);
    let run = dir.run("hist sample-hist");
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("answer_duration, sample_request_duration"), "{}", run.stderr);
    let run = dir.run("hist no-such-file answer_duration");
    assert!(
        run.stderr.contains("no file \"no-such-file\" found, and no process"),
        "{}",
        run.stderr
    );
}

#[test]
fn post_mortem_groups_operations_by_device() {
    let Some(dir) = MetricsDir::new() else { return };
    let program = dir.start("sample-killed", "--requests 100 --stuck 4798");
    let by = "in-flight sample-killed --by device";
    dir.check(
        by,
        expect![[r#"
        --- stdout
        4,798 in flight in sample-killed (pid PID,) as of DATE, now

        device count p50 of ages oldest
        nvme0n1 2,742 TIME TIME
        sda 1,371 TIME TIME
        sdb 685 TIME TIME
        --- exit status 0
    "#]],
    );
    dir.check(
        "in-flight sample-killed --older-than 1h",
        expect![[r#"
        --- stdout
        0 in flight in sample-killed (pid PID,) as of DATE, now
        4,798 younger ones are left out
        --- exit status 0
    "#]],
    );
    let copy = dir.programs.join("copy.tdk");
    fs::copy(dir.file(), &copy).expect("a copy");
    dir.check(
        &format!("diff {} sample-killed", copy.display()),
        expect![[r#"
        --- stdout
        sample-killed (pid PID,) from FILE to FILE
        How much time lies between is not in the files: no rates.
        Nothing changed in 15 series.
        --- exit status 0
    "#]],
    );
    program.kill();
    dir.check(
        "post-mortem sample-killed --by device",
        expect![[r#"
        --- stdout
        sample-killed (pid PID,) terminated, topdeck
        command PROGRAMS/sample-killed --exact processes::a_sample_program --nocapture
        file FILE
        since DATE
        end time of death unknown
        ages as of DATE, its latest sign of life, a beat of client_heartbeat

        4,798 operations were in flight:
        device count p50 of ages oldest
        nvme0n1 2,742 TIME TIME
        sda 1,371 TIME TIME
        sdb 685 TIME TIME

        Last values:
        answer_duration{route="home"} 75 values, p50 TIME, p99 TIME, max TIME
        answer_duration{route="search"} 25 values, p50 TIME, p99 TIME, max TIME
        answered_total{route="home"} 75
        answered_total{route="search"} 25
        cache_hits_total 90 (hits are 90.00 % of 100 lookups)
        cache_misses_total 10 (misses are 10.00 % of 100 lookups)
        cache_size 40.96 kB
        client_heartbeat 100 beats, the last TIME before; one is due every TIME
        failed_total 1 (1.00 % of sample_request_duration)
        queue_capacity 64 requests
        queue_depth 0 requests (0.00 % of 64 requests)
        sample_request_duration 100 values, p50 TIME, p99 TIME, max TIME
        storage_calls_total 20 (0.20 per sample_request_duration)
        storage_in_flight 4,798 in flight, the oldest for TIME; 4,818 started
        version "1.0.0"
        --- exit status 0
    "#]],
    );
    let run = dir.run("post-mortem sample-killed");
    assert!(run.stdout.contains("  4,778 more are not listed here"), "{}", run.stdout);
    assert_eq!(dir.run("post-mortem").status, 0);
    assert!(dir.run("post-mortem").stdout.contains("sample-killed"));
    // A copy outlives the file.
    fs::remove_file(dir.file()).expect("it is ours");
    let run = dir.run(&format!("post-mortem --by operation {}", copy.display()));
    for line in ["  read       2,399 ", "  write      2,399 "] {
        assert!(run.stdout.contains(line), "{}", run.stdout);
    }
    let run = dir.run("watch sample-killed");
    assert_eq!(run.status, 1, "{}", run.stderr);
}

#[test]
fn exit_of_a_process_is_reported() {
    let Some(dir) = MetricsDir::new() else { return };
    let mut program = dir.start("sample-aborted", "--abort --requests 10 --stuck 3");
    program.child.wait().expect("it ends");
    let mut program = dir.start("sample-ended", "--requests 10 --seconds 0 --stuck 3");
    program.child.wait().expect("it ends");
    for (name, state, in_flight) in [
        ("sample-aborted", "terminated", "3 operations were in flight"),
        ("sample-ended", "exited", "Nothing was in flight"),
    ] {
        let run = dir.run(&format!("post-mortem {name}"));
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{}", run.stdout);
        assert!(run.stdout.contains(&format!("), {state}, topdeck")), "{}", run.stdout);
        assert!(run.stdout.contains(in_flight), "{}", run.stdout);
    }
    let list = dir.run("ls --all").stdout;
    let state = |name: &str| list.lines().find(|line| line.contains(name)).expect("a line");
    assert!(state("sample-aborted").contains(" terminated "), "{list}");
    assert!(state("sample-ended").contains(" exited "), "{list}");
    assert!(dir.run("ls").stdout.contains("--all lists them"));
}

#[test]
fn watch_ends_with_its_process() {
    let Some(dir) = MetricsDir::new() else { return };
    let program = dir.start("sample-watched", "--requests 10");
    let watch = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["watch", "-i", "1min", "sample-watched"])
        .env("TOPDECK_SHM", &dir.memory.path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    // Before it has opened its pidfd, it may report that there is nothing to watch.
    let descriptors = format!("/proc/{}/fd", watch.id());
    let wakes = |entry: fs::DirEntry| {
        let to = fs::read_link(entry.path()).unwrap_or_default();
        to.to_string_lossy().contains("[eventfd]")
    };
    wait_until("it watches", || {
        fs::read_dir(&descriptors).is_ok_and(|all| all.flatten().any(wakes))
    });
    program.kill();
    let output = watch.wait_with_output().expect("it ends long before the minute is over");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let last = text.lines().last().unwrap_or_default();
    assert!(
        last.contains(" terminated; `topdeck post-mortem ") && last.ends_with(", none late"),
        "{text}"
    );
}

#[test]
fn ambiguous_names_are_listed() {
    let Some(dir) = MetricsDir::new() else { return };
    let one = dir.start("sample-two", "--requests 1");
    let _two = dir.start("sample-two", "--requests 2");
    let run = dir.run("cat sample-two");
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("2 processes are called \"sample-two\""), "{}", run.stderr);
    let run = dir.run(&format!("cat {} answered_total*", one.child.id()));
    assert_eq!(run.status, 0, "{}", run.stderr);
    one.kill();
    let run = dir.run("cat sample-two sample_request_duration");
    assert!(run.stdout.contains("2 values"), "the one that runs is meant: {}", run.stdout);
}

#[test]
fn program_text_is_escaped_for_the_terminal() {
    let Some(dir) = MetricsDir::new() else { return };
    let program = dir.start("sample\x1b[31m\x07", "hostile");
    fs::write(dir.memory.path.join("\x1b[2Jdamaged.tdk"), [7; 8192]).expect("a file");
    let pid = program.child.id();
    let by = ["cat", "cat --json", "in-flight", "in-flight --by device", "watch -i 1ms --count 1"];
    let mut runs: Vec<TextRun> = by.iter().map(|line| dir.run(&format!("{line} {pid}"))).collect();
    runs.extend(["ls --all", "in-flight", "cat \x1b[2J"].map(|line| dir.run(line)));
    runs.push(dir.run(&format!("cat {pid} x")));
    runs.push(dir.run(&format!("diff {pid} --interval 1ms")));
    runs.push(dir.run(&format!("hist {pid} x")));
    program.kill();
    runs.push(dir.run(&format!("post-mortem {pid}")));
    runs.push(dir.run(&format!("post-mortem {pid} --by device")));
    for run in runs {
        let text = run.all();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.contains("\nroot"), "{text}");
    }
    let list = dir.run("ls --all");
    assert_eq!(list.status, 1);
    assert!(list.stderr.contains("damaged.tdk"), "{}", list.stderr);
    assert!(list.stdout.contains(&pid.to_string()), "{}", list.stdout);
}

#[test]
fn unknown_argument_is_neither_file_nor_process() {
    for name in ["999999999", "nosuch"] {
        let run = crate::topdeck(&["hist", name, "x"], b"");
        assert_eq!(run.status, 1, "{}", run.all());
        let said = format!(
            "topdeck: no file \"{name}\" found, and no process with metrics is \
             called \"{name}\""
        );
        assert!(run.stderr.starts_with(&said), "{}", run.stderr);
    }
    // Text that looks like a path is a path.
    let run = crate::topdeck(&["hist", "nosuch.hlog"], b"");
    assert!(run.stderr.contains("cannot read nosuch.hlog"), "{}", run.stderr);
}
