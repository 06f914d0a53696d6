//! Tests of the supervisor.

use std::sync::atomic::{AtomicI64, AtomicU32};

use super::*;

/// A supervisor without backoff, and its clock.
fn supervisor_without_backoff() -> (Supervisor, Arc<AtomicI64>) {
    let now = Arc::new(AtomicI64::new(1));
    let read = Arc::clone(&now);
    let settings = SupervisorSettings {
        initial_backoff: Duration::ZERO,
        clock: Arc::new(move || read.load(Ordering::Relaxed)),
        ..SupervisorSettings::default()
    };
    (Supervisor::new(settings), now)
}

#[test]
fn panicked_thread_is_restarted_and_reported() {
    let (supervisor, now) = supervisor_without_backoff();
    let thread = supervisor.thread("store");
    let mut runs = 0;
    let done = thread.run(
        || false,
        || {
            runs += 1;
            assert!(runs > 2, "run {runs}");
            runs
        },
    );
    assert_eq!(done, Some(3));
    let status = &supervisor.threads()[0];
    assert_eq!((status.count, status.waiting, status.restarts), (1, 0, 2));
    assert_eq!(status.last_panic, Some(PanicReport { message: "run 2".to_owned(), time: 1 }));
    assert_eq!(supervisor.failures(), Vec::<String>::new(), "it runs, and panicked twice");
    thread.record_caught_panic(&"once more");
    let expected = "thread store panics repeatedly (panics: 3)";
    assert_eq!(supervisor.failures(), [expected]);
    now.store(STABLE_NS + 1, Ordering::Relaxed);
    assert_eq!(supervisor.failures(), Vec::<String>::new(), "it has settled");
    drop(thread);
    assert_eq!((supervisor.threads()[0].count, supervisor.threads()[0].restarts), (0, 2));
    assert_eq!(supervisor.panics("store"), 3, "a caught panic is no restart");
}

#[test]
fn waiting_thread_counts_as_down() {
    let (supervisor, _) = supervisor_without_backoff();
    let thread = supervisor.thread("commit");
    thread.record_panic(&"a defect");
    let expected = "thread commit is down (panics: 1)";
    assert_eq!(supervisor.failures(), [expected]);
    thread.record_restart();
    assert_eq!(supervisor.failures(), Vec::<String>::new());
    thread.record_panic(&"a defect");
    drop(thread);
    assert_eq!((supervisor.threads()[0].count, supervisor.threads()[0].waiting), (0, 0));
}

#[test]
fn a_stop_ends_the_wait_and_the_thread_ends_in_order() {
    let settings = SupervisorSettings {
        initial_backoff: Duration::MAX,
        max_backoff: Duration::MAX,
        ..SupervisorSettings::default()
    };
    let supervisor = Supervisor::new(settings);
    let runs = AtomicU32::new(0);
    let is_stopping = || runs.load(Ordering::Relaxed) > 0;
    let work = || match runs.fetch_add(1, Ordering::Relaxed) {
        0 => panic!("the first time"),
        _ => "ended",
    };
    assert_eq!(supervisor.thread("flusher").run(is_stopping, work), Some("ended"));
    let work = || -> () { panic!("at the end") };
    assert_eq!(supervisor.thread("flusher").run(|| true, work), None, "it is given up");
}

#[test]
fn backoff_doubles_up_to_a_limit() {
    let settings = SupervisorSettings::default();
    let waits = [1, 2, 3, 9, 10, 33, u32::MAX].map(|panics| settings.backoff(panics).as_millis());
    assert_eq!(waits, [100, 200, 400, 25_600, 30_000, 30_000, 30_000]);
}

#[test]
fn damage_is_reported_for_a_day_and_logged_once() {
    let (supervisor, now) = supervisor_without_backoff();
    let lines = Arc::new(Mutex::new(0));
    let log = Arc::clone(&lines);
    let log: LogFn = Arc::new(move |_, _: &str| *log.lock().unwrap() += 1);
    let settings = SupervisorSettings { log: Some(log), ..supervisor.0.settings.clone() };
    let supervisor = Supervisor::new(settings);
    let report = || supervisor.report_damage("record 7".to_owned(), 2, "look".to_owned());
    report();
    now.store(2, Ordering::Relaxed);
    report();
    let expected = DamageReport {
        location: "record 7".to_owned(),
        records: 2,
        remedy: "look".to_owned(),
        time: 1,
    };
    assert_eq!(supervisor.damage(), [expected]);
    assert_eq!((supervisor.damaged_records_total(), *lines.lock().unwrap()), (2, 1));
    now.store(1 + DAMAGE_REPORTED_FOR_NS, Ordering::Relaxed);
    assert_eq!(supervisor.damage(), []);
    report();
    assert_eq!((supervisor.damage().len(), *lines.lock().unwrap()), (1, 2));
    assert_eq!(supervisor.damaged_records_total(), 2, "it is counted once");
    (0..DAMAGE_MAX).for_each(|n| supervisor.report_damage(format!("{n}"), 1, String::new()));
    assert_eq!(supervisor.damage()[0].location, "0", "the oldest is forgotten");
}

#[test]
fn quarantined_inputs_are_bounded_and_logged_once() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lines);
    let log: LogFn = Arc::new(move |_, line: &str| log.lock().unwrap().push(line.to_owned()));
    let supervisor =
        Supervisor::new(SupervisorSettings { log: Some(log), ..SupervisorSettings::default() });
    supervisor.quarantine("record 7", "a count overflows");
    supervisor.quarantine("record 7", "a count overflows");
    assert_eq!(*lines.lock().unwrap(), ["record 7 quarantined: a count overflows"]);
    (0..QUARANTINED_MAX).for_each(|n| supervisor.quarantine(format!("day {n}"), "it panics"));
    let quarantined = supervisor.quarantined();
    assert_eq!((quarantined.len(), &*quarantined[0].name), (QUARANTINED_MAX, "day 0"));
    assert_eq!(supervisor.quarantined_total(), 1 + QUARANTINED_MAX as u64);
    supervisor.release("day 0");
    assert_eq!(supervisor.quarantined()[0].name, "day 1");
}

#[test]
fn acknowledged_damage_is_listed_and_not_logged_again() {
    let (supervisor, now) = supervisor_without_backoff();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lines);
    let log: LogFn = Arc::new(move |_, line: &str| log.lock().unwrap().push(line.to_owned()));
    let settings = SupervisorSettings { log: Some(log), ..supervisor.0.settings.clone() };
    let first = Supervisor::new(settings.clone());
    first.report_damage("record 7".to_owned(), 2, "look".to_owned());
    first.quarantine_permanently("record 9", "a count overflows");
    first.quarantine("rolling up day 3", "a count overflows");
    now.store(5, Ordering::Relaxed);
    let due = first.acknowledgements_due("disk replaced");
    let acknowledgement = |location: &str, records| DamageAcknowledgement {
        location: location.to_owned(),
        records,
        found_at: 1,
        time: 5,
        note: "disk replaced".to_owned(),
    };
    // A rollup is retried: its report ends when it succeeds.
    let expected = [acknowledgement("record 7", 2), acknowledgement("record 9", 1)];
    assert_eq!(due, expected);
    first.acknowledge(due);
    assert_eq!(first.acknowledgements_due("again"), []);
    assert_eq!(lines.lock().unwrap().len(), 3);

    // The next process finds the same damage, and other damage.
    let next = Supervisor::new(settings);
    next.acknowledge(first.acknowledged());
    next.report_damage("record 7".to_owned(), 2, "look".to_owned());
    next.quarantine_permanently("record 9", "saved in quarantine/9.batch");
    next.report_damage("record 8".to_owned(), 1, "look".to_owned());
    assert!(next.is_acknowledged("record 7") && !next.is_acknowledged("record 8"));
    assert_eq!(lines.lock().unwrap()[3..], ["cannot read record 8: damaged; look"]);
    assert_eq!(next.acknowledged(), expected, "the first acknowledgement stays");
}
