//! Commands as requests: each is started once, its end is its answer, and when a run is over nothing that it started is left.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use load::{Doubt, Failure, Request, Requests, Run, Schedule, Settings, Spacing, Target, Template};
use rustix::process::{Pid, Signal, kill_process};

use crate::plain;
use crate::servers::Folder;

const MS: u64 = 1_000_000;

fn settings(requests: Requests) -> Settings {
    Settings {
        target: Target::command(),
        requests,
        connections_max: 20,
        ..plain::settings("http://localhost/", Schedule::constant(20.0, 500 * MS, Spacing::Even))
    }
}

/// One command, with nothing to read.
fn command(words: &[&str]) -> Settings {
    let command = words.iter().map(|word| Template::text(*word)).collect();
    settings(Requests::one(Request { name: "a".to_owned(), command, ..Request::default() }))
}

fn shell(script: &str) -> Settings {
    command(&["sh", "-c", script])
}

fn described(text: &str) -> Settings {
    settings(Requests::parse(text, Path::new("/")).unwrap())
}

/// Runs it, by the books.
#[track_caller]
fn run(settings: &Settings) -> Run {
    let run = load::run(settings, &Arc::new(AtomicBool::new(false)), &mut ()).unwrap();
    let tally = &run.tally;
    assert_eq!(tally.intended, settings.schedule.arrivals().count() as u64);
    assert_eq!(tally.accounted(), tally.intended, "{tally:?}");
    assert_eq!(tally.response.count(), tally.completed + tally.unfinished);
    assert_eq!(tally.failure.count(), tally.failures());
    assert!(!run.doubts.iter().any(|one| matches!(one, Doubt::Books { .. })));
    run
}

/// Everything that this machine let it start went the same way.
#[track_caller]
fn all_fail(settings: &Settings, failure: Failure) -> Run {
    let run = run(settings);
    let tally = &run.tally;
    assert_eq!(tally.failed[failure as usize] + tally.missed, tally.intended, "{tally:?}");
    run
}

/// A length of time that no other sleep on this machine has.
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

/// Children of this process that have ended, and that nobody waited for: number, name in parentheses, state, parent.
fn zombies() -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let told = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let mine = format!(" Z {} ", std::process::id());
    told.filter(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(&mine)))
        .collect()
}

/// What was killed takes a moment to go, and other tests have children too.
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

fn words(run: &Run, failure: Failure) -> String {
    run.words[failure as usize].clone().unwrap()
}

#[test]
fn a_command_that_ends_well_is_an_answer() {
    let run = run(&shell("echo out; echo err >&2"));
    let tally = &run.tally;
    assert_eq!(tally.completed + tally.seen_late + tally.missed, tally.intended, "{tally:?}");
    assert_eq!((tally.opened, tally.waited), (tally.intended - tally.missed, 0));
    // There was room at any time: what kept a command from its start was the generator.
    assert_eq!(tally.own_lag, tally.send_lag);
    assert_eq!((tally.service.count(), run.words.iter().flatten().count()), (tally.completed, 0));
}

#[test]
fn a_status_is_a_failure_and_its_words_are_told() {
    let run = all_fail(&shell("echo hello >&2; echo no such table >&2; exit 3"), Failure::Exit);
    let words = words(&run, Failure::Exit);
    assert!(words.starts_with("request "), "{words}");
    assert!(words.ends_with(" ended with status 3: hello / no such table"), "{words}");
}

#[test]
fn only_the_end_of_many_words_is_told() {
    let script = "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1";
    let said = words(&all_fail(&shell(script), Failure::Exit), Failure::Exit);
    assert!(said.len() <= 300 && said.contains(": xxx"), "{said}");
    assert!(said.ends_with("xend"), "{said}");
}

#[test]
fn a_signal_is_a_failure() {
    let run = all_fail(&shell("kill -KILL $$"), Failure::Signal);
    let words = words(&run, Failure::Signal);
    assert!(words.ends_with(" was killed by signal 9"), "{words}");
}

/// What hangs is killed, with all that it started.
#[test]
fn a_command_that_hangs_is_killed_with_its_group() {
    let word = unique(1);
    let script = format!("echo waiting >&2; sleep {word} & sleep {word}");
    // A shell takes as long to say something as the machine lets it.
    for timeout_ms in [300, 3_000, 30_000] {
        let settings = Settings { timeout_ns: timeout_ms * MS, ..shell(&script) };
        let run = all_fail(&settings, Failure::TimedOut);
        nothing_is_left(&word);
        assert!(run.tally.failure.min().unwrap().lower >= timeout_ms as f64 * 1e6 * 0.97);
        let words = words(&run, Failure::TimedOut);
        assert!(words.contains("its time was over"), "{words}");
        if words.contains("its time was over: waiting") {
            return;
        }
    }
    panic!("no shell said anything in 30 s");
}

/// What has not ended at the end counts with its age, and then it ends.
#[test]
fn what_is_unfinished_counts_with_its_age_and_is_killed() {
    let word = unique(2);
    let script = format!("sleep {word} & sleep {word}");
    let run = run(&Settings { drain_ns: 200 * MS, ..shell(&script) });
    nothing_is_left(&word);
    assert_eq!(run.tally.unfinished + run.tally.missed, run.tally.intended);
    assert!(run.tally.response.min().unwrap().lower >= 200e6 * 0.97);
}

/// The second Ctrl-C.
#[test]
fn a_run_that_is_given_up_leaves_nothing() {
    let word = unique(3);
    let schedule = Schedule::constant(20.0, 600_000 * MS, Spacing::Even);
    let settings = Settings { schedule, ..command(&["sleep", &word]) };
    let give_up = settings.give_up.clone();
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
    assert_eq!(run.tally.accounted(), run.tally.intended);
}

#[test]
fn what_finds_no_room_for_a_process_waits() {
    let settings = Settings {
        schedule: Schedule::constant(40.0, 500 * MS, Spacing::Even),
        connections_max: 2,
        drain_ns: 60_000 * MS,
        ..command(&["sleep", "0.2"])
    };
    let run = run(&settings);
    let tally = &run.tally;
    assert_eq!(tally.completed + tally.seen_late + tally.missed, 20, "{tally:?}");
    // Of 20 that need 200 ms each two by two, few are done when the last is due.
    assert!(tally.waited + tally.missed >= 10, "{tally:?}");
    let mean = |of: &hist::Histogram| of.mean().unwrap().estimate;
    assert!(mean(&tally.own_lag) < mean(&tally.send_lag) / 2.0, "the limit is not the generator");
    assert!(tally.send_lag.max().unwrap().upper >= 200e6 || tally.missed > 5, "{tally:?}");
}

/// What a command leaves behind keeps nobody waiting, and is its own affair.
#[test]
fn what_a_command_leaves_behind_is_not_waited_for() {
    let word = unique(4);
    let run = run(&shell(&format!("sleep {word} & exit 0")));
    let tally = &run.tally;
    // The shell has ended; what it left may still be about to start the program.
    let mut left = with_word(&word);
    for _ in 0..6_000 {
        if left.len() as u64 >= tally.opened {
            break;
        }
        thread::sleep(Duration::from_millis(10));
        left = with_word(&word);
    }
    for pid in &left {
        let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
    }
    assert_eq!(tally.completed + tally.seen_late + tally.missed, tally.intended, "{tally:?}");
    assert_eq!(left.len() as u64, tally.opened);
}

#[test]
fn variables_bodies_and_numbers_arrive() {
    let own = Folder::new("commands");
    let folder = own.path("said");
    std::fs::create_dir(&folder).unwrap();
    let text = r#"
        [variables]
        item = ["a", "b c"]

        [[request]]
        command = ["sh", "-c", "cat > \"$0/$TOPDECK_REQUEST\"; echo \"$1\" >> \"$0/$TOPDECK_REQUEST\"", "FOLDER", "{item}"]
        body = "read {item}\n"
    "#;
    let text = text.replace("FOLDER", folder.to_str().unwrap());
    let settings = Settings { threads: 2, ..described(&text) };
    let run = run(&settings);
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        let said = std::fs::read_to_string(entry.path()).unwrap();
        assert!(["read a\na\n", "read b c\nb c\n"].contains(&said.as_str()), "{said:?}");
        numbers.push(entry.file_name().to_str().unwrap().parse::<u64>().unwrap());
    }
    numbers.sort_unstable();
    let all = (1..=run.tally.intended).collect::<Vec<_>>();
    assert!(numbers == all || run.tally.missed > 0, "{numbers:?}");
    assert_eq!(numbers.len() as u64, run.tally.opened);
    assert_eq!(run.by_request[0].0, "request 1: sh");
}

#[test]
fn a_program_that_cannot_be_started_is_told_before_the_run() {
    let said = |settings: &Settings| {
        let ran = load::run(settings, &Arc::new(AtomicBool::new(false)), &mut ());
        assert!(settings.check().is_err());
        ran.unwrap_err().to_string()
    };
    let missing = said(&command(&["no-such-program-anywhere"]));
    assert!(missing.contains("\"no-such-program-anywhere\" cannot be started"), "{missing}");
    assert!(missing.contains("PATH (") && missing.contains("install it"), "{missing}");
    let missing = said(&command(&["./nowhere/x"]));
    assert!(missing.contains("there is no such file: write where it is"), "{missing}");
    let text = said(&command(&["/proc/version"]));
    assert!(text.contains("/proc/version may not be executed: allow it with chmod"), "{text}");
    assert!(said(&command(&[""])).contains("\"\" cannot be started"));
    let both = "[[request]]\ncommand = ['true']\n[[request]]\nname = 'page'\npath = '/'";
    assert!(said(&described(both)).contains("\"page\" has no command"));
    let target = Target::parse("http://localhost/").unwrap().0;
    let both = Settings { target, ..command(&["true"]) };
    assert!(said(&both).contains("has a command, and a target says"));
}

/// Where the program itself is a variable, nobody knows before.
#[test]
fn a_program_that_is_missing_in_the_run_fails_each_request() {
    let text = "[variables]\na = ['/nowhere/a']\n[[request]]\ncommand = ['{a}']";
    let run = all_fail(&described(text), Failure::NotStarted);
    let words = words(&run, Failure::NotStarted);
    assert!(words.starts_with("it was not started: "), "{words}");
    assert_eq!(run.tally.opened, 0);
}
