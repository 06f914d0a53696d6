//! Commands as requests: each is started once, its exit completes the request, and nothing is left
//! after a run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use load::{
    ArrivalProcess, Failure, InvalidReason, RequestTemplate, Requests, RunResult, Schedule,
    Settings, Target, Template,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture;
use crate::servers::Dir;

const MS: u64 = 1_000_000;

fn settings(requests: Requests) -> Settings {
    Settings {
        target: None,
        requests,
        max_connections: 20,
        ..fixture::settings(
            "http://localhost/",
            Schedule::constant(20.0, 500 * MS, ArrivalProcess::Constant),
        )
    }
}

/// One command without input.
fn command(words: &[&str]) -> Settings {
    let command = words.iter().map(|word| Template::text(*word)).collect();
    settings(Requests::single(RequestTemplate {
        name: "a".to_owned(),
        command,
        ..RequestTemplate::default()
    }))
}

fn shell(script: &str) -> Settings {
    command(&["sh", "-c", script])
}

fn described(text: &str) -> Settings {
    settings(Requests::parse(text, Path::new("/")).unwrap())
}

/// Runs it and checks the accounting.
#[track_caller]
fn run(settings: &Settings) -> RunResult {
    let run = load::run(settings, &Arc::new(AtomicBool::new(false)), &mut ()).unwrap();
    let tally = &run.tally;
    assert_eq!(tally.scheduled, settings.schedule.arrivals().count() as u64);
    assert_eq!(tally.accounted(), tally.scheduled, "{tally:?}");
    assert_eq!(tally.response.count(), tally.completed + tally.unfinished);
    assert_eq!(tally.failure.count(), tally.failures());
    assert!(
        !run.invalid_reasons.iter().any(|one| matches!(one, InvalidReason::CountMismatch { .. }))
    );
    run
}

/// Every command that could be started failed in the same way.
#[track_caller]
fn all_fail(settings: &Settings, failure: Failure) -> RunResult {
    let mut runs = (0..10).map(|_| {
        let run = run(settings);
        let tally = &run.tally;
        assert_eq!(tally.failed[failure as usize] + tally.not_sent, tally.scheduled, "{tally:?}");
        run
    });
    // A machine may stall for the length of a run, so that nothing is sent.
    runs.find(|run| run.tally.failures() > 0).expect("something is sent")
}

/// A duration that no other sleep on this machine has.
fn unique(number: u32) -> String {
    format!("31557.{}{number}", std::process::id())
}

/// Processes with this word among their arguments.
fn with_word(word: &str) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_word = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
    };
    pids.filter(has_word).collect()
}

/// Unreaped children of this process: PID, name in parentheses, state, parent.
fn zombies() -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let mine = format!(" Z {} ", std::process::id());
    stats
        .filter(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(&mine)))
        .collect()
}

/// Killed processes take a moment to exit, and other tests have children too.
#[track_caller]
fn nothing_is_left(word: &str) {
    for _ in 0..6_000 {
        if with_word(word).is_empty() && zombies().is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("left: {:?}, zombies: {:?}", with_word(word), zombies());
}

fn words(run: &RunResult, failure: Failure) -> String {
    run.first_errors[failure as usize].clone().unwrap()
}

#[test]
fn command_with_status_0_completes() {
    let run = run(&shell("echo out; echo err >&2"));
    let tally = &run.tally;
    assert_eq!(
        tally.completed + tally.observed_late + tally.not_sent,
        tally.scheduled,
        "{tally:?}"
    );
    assert_eq!(
        (tally.connections_opened, tally.queued_requests),
        (tally.scheduled - tally.not_sent, 0)
    );
    // A slot was free at any time: any delay was the generator's.
    assert_eq!(tally.generator_lag, tally.queue_time);
    assert_eq!(
        (tally.service.count(), run.first_errors.iter().flatten().count()),
        (tally.completed, 0)
    );
}

#[test]
fn command_status_is_a_failure_with_stderr() {
    let run = all_fail(&shell("echo hello >&2; echo no such table >&2; exit 3"), Failure::Exit);
    let words = words(&run, Failure::Exit);
    assert!(words.starts_with("request "), "{words}");
    assert!(words.ends_with(" exited with status 3: hello / no such table"), "{words}");
}

#[test]
fn long_stderr_is_truncated_to_its_end() {
    let script = "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1";
    let message = words(&all_fail(&shell(script), Failure::Exit), Failure::Exit);
    assert!(message.len() <= 300 && message.contains(": xxx"), "{message}");
    assert!(message.ends_with("xend"), "{message}");
}

#[test]
fn command_killed_by_signal_fails() {
    let run = all_fail(&shell("kill -KILL $$"), Failure::Signal);
    let words = words(&run, Failure::Signal);
    assert!(words.ends_with(" was killed by signal 9"), "{words}");
}

/// A hanging process is killed with its descendants.
#[test]
fn hanging_command_is_killed_with_its_group() {
    let word = unique(1);
    let script = format!("echo waiting >&2; sleep {word} & sleep {word}");
    // A shell may need long to write on a busy machine.
    for timeout_ms in [300, 3_000, 30_000] {
        let settings = Settings { timeout_ns: timeout_ms * MS, ..shell(&script) };
        let run = all_fail(&settings, Failure::TimedOut);
        nothing_is_left(&word);
        assert!(run.tally.failure.min().unwrap().lower >= timeout_ms as f64 * 1e6 * 0.97);
        let words = words(&run, Failure::TimedOut);
        assert!(words.contains("after the timeout"), "{words}");
        if words.contains("after the timeout: waiting") {
            return;
        }
    }
    panic!("no shell message anything in 30 s");
}

/// It counts with its age at the end, and is then killed.
#[test]
fn unfinished_command_counts_with_its_age_and_is_killed() {
    let word = unique(2);
    let script = format!("sleep {word} & sleep {word}");
    let run = run(&Settings { grace_period_ns: 200 * MS, ..shell(&script) });
    nothing_is_left(&word);
    assert_eq!(run.tally.unfinished + run.tally.not_sent, run.tally.scheduled);
    assert!(run.tally.response.min().unwrap().lower >= 200e6 * 0.97);
}

/// The second Ctrl-C.
#[test]
fn aborted_run_leaves_no_processes() {
    let word = unique(3);
    let schedule = Schedule::constant(20.0, 600_000 * MS, ArrivalProcess::Constant);
    let settings = Settings { schedule, ..command(&["sleep", &word]) };
    let give_up = settings.abort.clone();
    let (looked_for, is_over) = (word.clone(), Arc::new(AtomicBool::new(false)));
    let seen = is_over.clone();
    thread::spawn(move || {
        while with_word(&looked_for).len() < 3 && !seen.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        give_up.store(true, Ordering::Relaxed);
    });
    let run = load::run(&settings, &Arc::new(AtomicBool::new(false)), &mut ()).unwrap();
    is_over.store(true, Ordering::Relaxed);
    nothing_is_left(&word);
    assert!(run.tally.unfinished >= 3, "{:?}", run.tally);
    assert_eq!(run.tally.accounted(), run.tally.scheduled);
}

#[test]
fn commands_queue_at_the_process_limit() {
    let settings = Settings {
        schedule: Schedule::constant(40.0, 500 * MS, ArrivalProcess::Constant),
        max_connections: 2,
        grace_period_ns: 60_000 * MS,
        ..command(&["sleep", "0.2"])
    };
    let mean = |of: &hist::Histogram| of.mean().unwrap().estimate;
    let is_limit =
        |run: &RunResult| mean(&run.tally.generator_lag) < mean(&run.tally.queue_time) / 2.0;
    // On a machine that stalls, the generator may be as late as the commands, once.
    let mut runs = (0..10).map(|_| run(&settings));
    let run = runs.find(is_limit).expect("the limit is not the generator");
    let tally = &run.tally;
    assert_eq!(tally.completed + tally.observed_late + tally.not_sent, 20, "{tally:?}");
    // Of 20 commands of 200 ms each, two at a time, few are done when the last is due.
    assert!(tally.queued_requests + tally.not_sent >= 10, "{tally:?}");
    assert!(tally.queue_time.max().unwrap().upper >= 200e6 || tally.not_sent > 5, "{tally:?}");
}

/// Background processes delay nothing, and are not killed.
#[test]
fn background_processes_are_not_waited_for() {
    let word = unique(4);
    let run = run(&shell(&format!("sleep {word} & exit 0")));
    let tally = &run.tally;
    // The shell has exited; its child may still be about to execute the program.
    let mut left = with_word(&word);
    for _ in 0..6_000 {
        if left.len() as u64 >= tally.connections_opened {
            break;
        }
        thread::sleep(Duration::from_millis(10));
        left = with_word(&word);
    }
    for pid in &left {
        let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
    }
    assert_eq!(
        tally.completed + tally.observed_late + tally.not_sent,
        tally.scheduled,
        "{tally:?}"
    );
    assert_eq!(left.len() as u64, tally.connections_opened);
}

#[test]
fn commands_receive_variables_bodies_and_numbers() {
    let own = Dir::new("commands");
    let dir = own.path("message");
    std::fs::create_dir(&dir).unwrap();
    let text = r#"
        [variables]
        item = ["a", "b c"]

        [[request]]
        command = ["sh", "-c", "cat > \"$0/$TOPDECK_REQUEST\"; echo \"$1\" >> \"$0/$TOPDECK_REQUEST\"", "DIR", "{item}"]
        body = "read {item}\n"
    "#;
    let text = text.replace("DIR", dir.to_str().unwrap());
    let settings = Settings { threads: 2, ..described(&text) };
    let run = run(&settings);
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(&dir).unwrap().flatten() {
        let message = std::fs::read_to_string(entry.path()).unwrap();
        assert!(["read a\na\n", "read b c\nb c\n"].contains(&message.as_str()), "{message:?}");
        numbers.push(entry.file_name().to_str().unwrap().parse::<u64>().unwrap());
    }
    numbers.sort_unstable();
    let all = (1..=run.tally.scheduled).collect::<Vec<_>>();
    assert!(numbers == all || run.tally.not_sent > 0, "{numbers:?}");
    assert_eq!(numbers.len() as u64, run.tally.connections_opened);
    assert_eq!(run.per_request[0].0, "request 1: sh");
}

#[test]
fn missing_program_is_an_error_before_the_run() {
    let message = |settings: &Settings| {
        let ran = load::run(settings, &Arc::new(AtomicBool::new(false)), &mut ());
        assert!(settings.check().is_err());
        ran.unwrap_err().to_string()
    };
    let missing = message(&command(&["no-such-program-anywhere"]));
    assert!(missing.contains("cannot start the command \"no-such-program-anywhere\""), "{missing}");
    assert!(missing.contains("PATH (") && missing.contains("install it"), "{missing}");
    let missing = message(&command(&["./nowhere/x"]));
    assert!(missing.contains("no such file; give its path"), "{missing}");
    let text = message(&command(&["/proc/version"]));
    assert!(text.contains("/proc/version is not executable; set its mode with chmod"), "{text}");
    assert!(message(&command(&[""])).contains("cannot start the command \"\""));
    let both = "[[request]]\ncommand = ['true']\n[[request]]\nname = 'page'\npath = '/'";
    assert!(message(&described(both)).contains("\"page\" has no command"));
    let target = Target::parse("http://localhost/").unwrap().0;
    let both = Settings { target: Some(target), ..command(&["true"]) };
    assert!(message(&both).contains("has a command, and there is a target"));
}

/// If the program is a variable, it is unknown before the run.
#[test]
fn missing_variable_program_fails_each_request() {
    let text = "[variables]\na = ['/nowhere/a']\n[[request]]\ncommand = ['{a}']";
    let run = all_fail(&described(text), Failure::NotStarted);
    let words = words(&run, Failure::NotStarted);
    assert!(words.starts_with("cannot start the process: "), "{words}");
    assert_eq!(run.tally.connections_opened, 0);
}
