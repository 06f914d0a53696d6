//! Alerts from outside on a clock that the tests set, with files in a temporary directory.

use std::path::PathBuf;

use disk::OsDisk;
use journal::random_id;
use rules::AlertAcknowledgement;
use sim::{SimDisk, SimProcess};

use super::*;

const MINUTE: i64 = 60 * 1_000_000_000;

/// Alerts in a directory of their own, which is removed at the end.
struct StoredAlerts {
    dir: PathBuf,
    alerts: ReceivedAlerts,
}

impl StoredAlerts {
    fn new() -> StoredAlerts {
        let dir = std::env::temp_dir().join(format!("topdeck-received-{:x}", random_id()));
        std::fs::create_dir(&dir).unwrap();
        let alerts = ReceivedAlerts::open(Arc::new(OsDisk), &dir, 0).0;
        StoredAlerts { dir, alerts }
    }

    /// What a server finds that starts after a kill.
    fn reopen(&mut self, now_ns: i64) -> Option<String> {
        let (alerts, problem) = ReceivedAlerts::open(Arc::new(OsDisk), &self.dir, now_ns);
        self.alerts = alerts;
        problem
    }

    /// Firing, transition and end in minutes of the only alert.
    fn only(&self) -> (bool, u64, i64) {
        let [alert] = &self.alerts.alerts()[..] else { panic!("not one alert") };
        (alert.is_firing, alert.transition, alert.ends_ns / MINUTE)
    }
}

impl Drop for StoredAlerts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// An alert with times in minutes.
fn alert(name: &str, starts: i64, ends: i64) -> SubmittedAlert {
    SubmittedAlert {
        labels: [("alertname".to_owned(), name.to_owned())].into(),
        annotations: BTreeMap::new(),
        starts_ns: starts * MINUTE,
        ends_ns: ends * MINUTE,
        is_timeout: false,
        generator_url: String::new(),
    }
}

#[test]
fn an_alert_fires_until_its_end_unless_it_is_received_again() {
    let stored = StoredAlerts::new();
    assert!(stored.alerts.put(vec![alert("a", 0, 4)], 0).unwrap());
    // Prometheus sends a later end each minute: no change of state.
    assert!(!stored.alerts.put(vec![alert("a", 0, 5)], MINUTE).unwrap());
    assert_eq!(stored.only(), (true, 1, 5));
    assert_eq!(stored.alerts.next_deadline_ns(), Some(5 * MINUTE));
    assert!(!stored.alerts.apply_due_changes(4 * MINUTE).unwrap());
    assert!(stored.alerts.apply_due_changes(5 * MINUTE).unwrap());
    assert_eq!(stored.only(), (false, 2, 5));
    // Again: it fires anew, as another alert.
    let began_ns = stored.alerts.alerts()[0].began_ns;
    assert!(stored.alerts.put(vec![alert("a", 6, 10)], 6 * MINUTE).unwrap());
    assert_eq!(stored.only(), (true, 3, 10));
    assert_ne!(stored.alerts.alerts()[0].began_ns, began_ns);
    // Its source resolves it.
    assert!(stored.alerts.put(vec![alert("a", 6, 7)], 7 * MINUTE).unwrap());
    assert_eq!(stored.only(), (false, 4, 7));
    assert!(!stored.alerts.put(vec![alert("a", 6, 7)], 8 * MINUTE).unwrap(), "repeated");
    assert!(!stored.alerts.apply_due_changes(21 * MINUTE).unwrap());
    assert_eq!(stored.alerts.alerts().len(), 1);
    assert!(!stored.alerts.apply_due_changes(22 * MINUTE).unwrap());
    assert_eq!(stored.alerts.alerts().len(), 0, "it is forgotten after 15 minutes");
    assert!(!stored.alerts.put(vec![alert("b", 0, 1)], 22 * MINUTE).unwrap(), "an unknown end");
    assert_eq!(stored.alerts.alerts().len(), 0);
}

#[test]
fn overlapping_alerts_are_merged_as_in_alertmanager() {
    let stored = StoredAlerts::new();
    stored.alerts.put(vec![alert("a", 0, 60)], 0).unwrap();
    // The begin stays; a given end is not shortened by a timeout.
    let again = SubmittedAlert { is_timeout: true, ..alert("a", 10, 15) };
    stored.alerts.put(vec![again], 10 * MINUTE).unwrap();
    let merged = stored.alerts.alerts()[0].clone();
    assert_eq!((merged.starts_ns, merged.ends_ns), (0, 60 * MINUTE));
    // The end of a timeout is replaced by any newer one.
    let stored = StoredAlerts::new();
    stored.alerts.put(vec![SubmittedAlert { is_timeout: true, ..alert("a", 0, 5) }], 0).unwrap();
    stored.alerts.put(vec![alert("a", 1, 3)], MINUTE).unwrap();
    assert_eq!(stored.only(), (true, 1, 3));
}

#[test]
fn states_survive_a_kill_and_time_without_the_server_ends_nothing() {
    let mut stored = StoredAlerts::new();
    stored.alerts.put(vec![alert("a", 0, 4)], 0).unwrap();
    let acknowledgement = AlertAcknowledgement {
        at_ns: 0,
        until_ns: 200 * MINUTE,
        by: "ann".to_owned(),
        note: String::new(),
        origin: None,
    };
    let set = AcknowledgementChange::Set(acknowledgement.clone());
    assert!(stored.alerts.change(|alert| alert.change_acknowledgements(&set)).unwrap());
    assert!(!stored.alerts.change(|alert| alert.change_acknowledgements(&set)).unwrap());
    assert_eq!(stored.reopen(60 * MINUTE), None);
    assert_eq!(stored.only(), (true, 2, 65));
    let known = stored.alerts.alerts()[0].acknowledgements.clone();
    assert_eq!(known.current(), Some(&acknowledgement));
    assert!(stored.alerts.apply_due_changes(65 * MINUTE).unwrap());
    assert_eq!(stored.alerts.alerts()[0].acknowledgements.current(), None);
    stored.reopen(66 * MINUTE);
    assert_eq!(stored.only(), (false, 3, 65));
}

#[test]
fn an_acknowledgement_expires_and_its_removal_has_one_effect() {
    let stored = StoredAlerts::new();
    stored.alerts.put(vec![alert("a", 0, 100)], 0).unwrap();
    let until = |minutes: i64| {
        AcknowledgementChange::Set(AlertAcknowledgement {
            at_ns: 0,
            until_ns: minutes * MINUTE,
            by: "ann".to_owned(),
            note: String::new(),
            origin: None,
        })
    };
    stored.alerts.change(|alert| alert.change_acknowledgements(&until(10))).unwrap();
    // The same with another expiry is no other state.
    stored.alerts.change(|alert| alert.change_acknowledgements(&until(20))).unwrap();
    assert_eq!(stored.only(), (true, 2, 100));
    assert!(!stored.alerts.apply_due_changes(19 * MINUTE).unwrap());
    assert!(stored.alerts.apply_due_changes(20 * MINUTE).unwrap());
    assert_eq!(stored.only(), (true, 3, 100));
    let all = AcknowledgementChange::RemoveAll;
    assert!(!stored.alerts.change(|alert| alert.change_acknowledgements(&all)).unwrap());
    assert_eq!(stored.only(), (true, 3, 100));
}

#[test]
fn a_write_that_fails_is_an_error_and_is_made_later() {
    let mut stored = StoredAlerts::new();
    let blocked = stored.dir.join("received-alerts.new");
    std::fs::create_dir(&blocked).unwrap();
    let error = stored.alerts.put(vec![alert("a", 0, 4)], 0).unwrap_err().to_string();
    assert!(error.starts_with("cannot store alerts: ") && error.ends_with("send them again"));
    assert!(
        stored.alerts.apply_due_changes(0).is_err(),
        "nothing follows from a state that is not durable"
    );
    assert!(stored.alerts.durable_alerts().is_err(), "nobody hears of it");
    std::fs::remove_dir(&blocked).unwrap();
    assert!(stored.alerts.apply_due_changes(0).is_ok());
    let (durable, version) = stored.alerts.durable_alerts().unwrap();
    assert_eq!((durable.len(), version), (1, stored.alerts.state_version()));
    stored.reopen(0);
    assert_eq!(stored.only(), (true, 1, 5));
}

#[test]
fn a_change_that_cannot_be_stored_is_not_made() {
    let mut stored = StoredAlerts::new();
    stored.alerts.put(vec![alert("a", 0, 60), alert("b", 0, 60)], 0).unwrap();
    stored.reopen(0);
    let blocked = stored.dir.join("received-alerts.new");
    std::fs::create_dir(&blocked).unwrap();
    let firing = |stored: &StoredAlerts| {
        let alerts = stored.alerts.alerts().into_iter();
        alerts.filter(|alert| alert.is_firing).count()
    };
    let clearance =
        AlertClearance { at_ns: MINUTE, by: "ann".to_owned(), note: String::new(), origin: None };
    let clear = |stored: &StoredAlerts| {
        stored.alerts.change(|alert| alert.is_firing && alert.clear(&clearance))
    };
    let before = (stored.alerts.alerts(), stored.alerts.state_version());
    let error = clear(&stored).unwrap_err().to_string();
    assert!(error.starts_with("cannot store changes of alerts from other programs: "), "{error}");
    assert_eq!((stored.alerts.alerts(), stored.alerts.state_version()), before);
    // What is told of them is what is stored.
    assert!(stored.alerts.durable_alerts().is_ok());
    stored.reopen(0);
    assert_eq!(firing(&stored), 2);
    std::fs::remove_dir(&blocked).unwrap();
    assert!(clear(&stored).unwrap());
    assert!(!clear(&stored).unwrap(), "once");
    stored.reopen(2 * MINUTE);
    assert_eq!(firing(&stored), 0);
}

const DATA: &str = "/data";

pub(super) fn sim_disk() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.process().create_dir(Path::new(DATA)).expect("a directory");
    disk.process().sync_dir(Path::new("/")).expect("durable");
    disk
}

/// Alerts of a simulated disk, whose file is replaced after few changes.
pub(super) fn open_on(process: &SimProcess, now_ns: i64) -> (ReceivedAlerts, Option<String>) {
    let disk = Arc::new(process.clone());
    let (alerts, problem) = ReceivedAlerts::open(disk, Path::new(DATA), now_ns);
    lock(&alerts.written).log.set_changes_bytes_min(300);
    (alerts, problem)
}

/// Name, state and transition of each alert.
fn states(alerts: &ReceivedAlerts) -> Vec<(String, bool, u64)> {
    let state = |alert: &Arc<ReceivedAlert>| {
        (alert.labels["alertname"].clone(), alert.is_firing, alert.transition)
    };
    alerts.alerts().iter().map(state).collect()
}

const STEPS: i64 = 4 * 40;

/// A step of a script in which alerts begin, end, are acknowledged and forgotten. Each is one
/// write at most.
fn apply(alerts: &ReceivedAlerts, step: i64) -> Result<(), ReceivedAlertsError> {
    let minute = step / 4;
    let now_ns = minute * MINUTE;
    let acknowledgement = AlertAcknowledgement {
        at_ns: now_ns,
        until_ns: now_ns + MINUTE,
        by: "ann".to_owned(),
        note: String::new(),
        origin: None,
    };
    let repeated = alert(&format!("a{}", minute % 5), minute, minute + 2);
    match step % 4 {
        0 => alerts.apply_due_changes(now_ns).map(drop),
        1 => alerts.put(vec![repeated], now_ns).map(drop),
        2 => {
            alerts.put(vec![alert(&format!("once{minute}"), minute, minute + 1)], now_ns).map(drop)
        }
        _ => {
            let set = AcknowledgementChange::Set(acknowledgement);
            alerts.change(|alert| alert.change_acknowledgements(&set)).map(drop)
        }
    }
}

#[test]
fn a_kill_or_a_power_loss_at_any_write_loses_no_change_that_was_confirmed() {
    let (reference, _) = open_on(&sim_disk().process(), 0);
    let mut expected = vec![states(&reference)];
    for step in 0..STEPS {
        apply(&reference, step).expect("stored");
        expected.push(states(&reference));
    }
    assert!(expected.iter().zip(&expected[1..]).any(|(a, b)| a.len() > b.len()), "none forgotten");
    for operation in 0.. {
        let mut is_survived = true;
        for is_power in [false, true] {
            let disk = sim_disk();
            let process = disk.process();
            match is_power {
                true => disk.cut_after(operation),
                false => process.kill_after(operation),
            }
            let (alerts, _) = open_on(&process, 0);
            let confirmed = (0..STEPS).take_while(|step| apply(&alerts, *step).is_ok()).count();
            is_survived &= confirmed == expected.len() - 1;
            if is_power {
                disk.power_cut();
            }
            let (found, problem) = open_on(&disk.process(), 0);
            let is_cut = |problem: &String| problem.contains("was cut");
            assert!(problem.iter().all(is_cut), "{operation}: {problem:?}");
            let newest = expected.get(confirmed + 1).unwrap_or(&expected[confirmed]);
            let found_states = states(&found);
            assert!(
                found_states == expected[confirmed] || found_states == *newest,
                "{operation}: {found_states:?} after {confirmed} steps"
            );
            // What was cut is not in the way of what follows.
            found.put(vec![alert("later", 90, 99)], 90 * MINUTE).expect("stored");
            let (again, problem) = open_on(&disk.process(), 0);
            assert_eq!((states(&again), problem), (states(&found), None), "{operation}");
        }
        if is_survived {
            assert!(operation > STEPS as u64, "{operation} operations");
            return;
        }
    }
}

#[test]
fn only_changes_are_written_until_the_file_has_twice_the_size_of_its_alerts() {
    let disk = sim_disk();
    let (alerts, _) = open_on(&disk.process(), 0);
    let many = (0..100).map(|number| alert(&format!("a{number}"), 0, 9)).collect();
    alerts.put(many, 0).expect("stored");
    let file_bytes = || {
        let files = disk.files();
        let file = files.iter().find(|(path, _)| path.ends_with("received-alerts"));
        file.expect("the file").1
    };
    let whole = file_bytes();
    let mut before = whole;
    let mut replaced = 0;
    for round in 1..=200 {
        alerts.put(vec![alert("a7", round, round + 9)], round * MINUTE).expect("stored");
        alerts.write_all().expect("stored");
        let now = file_bytes();
        match now > before {
            true => assert!(now - before < 200, "a change of {} bytes", now - before),
            false => replaced += 1,
        }
        assert!(now <= 2 * whole + 200, "{now} bytes, at first {whole}");
        before = now;
    }
    assert!((1..20).contains(&replaced), "{replaced}");
    assert_eq!(states(&open_on(&disk.process(), 0).0), states(&alerts));
}

#[test]
fn a_change_that_does_not_fit_on_the_disk_is_written_later() {
    let disk = sim_disk();
    let (alerts, _) = open_on(&disk.process(), 0);
    alerts.put(vec![alert("a", 0, 9)], 0).expect("stored");
    disk.set_capacity(0);
    // More than a page.
    let long = SubmittedAlert { generator_url: "u".repeat(10_000), ..alert("b", 0, 9) };
    assert!(alerts.put(vec![long], 0).is_err());
    assert!(alerts.apply_due_changes(0).is_err());
    disk.set_capacity(1 << 20);
    assert!(alerts.apply_due_changes(0).is_ok());
    assert_eq!(states(&open_on(&disk.process(), 0).0), states(&alerts));
}

#[test]
fn a_damaged_file_is_kept() {
    let mut stored = StoredAlerts::new();
    stored.alerts.put(vec![alert("a", 0, 4)], 0).unwrap();
    let path = stored.dir.join("received-alerts");
    let text = std::fs::read_to_string(&path).unwrap().replace("alertname a", "alertname b");
    std::fs::write(&path, &text).unwrap();
    let problem = stored.reopen(0).unwrap();
    assert!(problem.contains("the checksum does not match, kept as "), "{problem}");
    assert_eq!(std::fs::read_to_string(path.with_added_extension("damaged")).unwrap(), text);
}

#[test]
fn an_alert_whose_end_was_long_ago_is_kept_until_it_was_told() {
    let stored = StoredAlerts::new();
    stored.alerts.put(vec![alert("a", 100, 104)], 100 * MINUTE).unwrap();
    assert!(stored.alerts.put(vec![alert("a", 1, 1)], 101 * MINUTE).unwrap());
    assert!(!stored.alerts.apply_due_changes(115 * MINUTE).unwrap());
    assert_eq!(stored.only(), (false, 2, 1));
    stored.alerts.apply_due_changes(116 * MINUTE).unwrap();
    assert_eq!(stored.alerts.alerts().len(), 0);
}

#[test]
fn texts_of_all_alerts_are_bounded_and_a_known_alert_does_not_end_for_it() {
    let mut stored = StoredAlerts::new();
    stored.alerts.text_bytes_max = 100;
    let long = |name: &str, ends: i64, bytes: usize| SubmittedAlert {
        generator_url: "u".repeat(bytes),
        ..alert(name, 0, ends)
    };
    assert!(stored.alerts.put(vec![long("a", 5, 40)], 0).unwrap());
    // The limit does not fit both; what fits is taken.
    let error = stored.alerts.put(vec![long("b", 5, 60), long("c", 5, 30)], 0).unwrap_err();
    assert!(matches!(error, ReceivedAlertsError::Size), "{error}");
    assert!(error.to_string().contains("size limit (128 MiB)"), "{error}");
    let names = |stored: &StoredAlerts| -> Vec<(String, i64, usize)> {
        let alerts = stored.alerts.alerts();
        let of = |alert: &Arc<ReceivedAlert>| {
            let url = alert.generator_url.len();
            (alert.labels["alertname"].clone(), alert.ends_ns / MINUTE, url)
        };
        alerts.iter().map(of).collect()
    };
    assert_eq!(names(&stored), [("a".to_owned(), 5, 40), ("c".to_owned(), 5, 30)]);
    // Longer texts of a known alert are not taken, its new end is.
    assert!(stored.alerts.put(vec![long("a", 9, 90)], MINUTE).is_err());
    assert_eq!(names(&stored), [("a".to_owned(), 9, 40), ("c".to_owned(), 5, 30)]);
    assert!(stored.alerts.put(vec![long("a", 9, 50)], MINUTE).is_ok());
    // The end of an alert makes room once it is forgotten.
    assert!(stored.alerts.put(vec![long("c", 2, 30)], 2 * MINUTE).unwrap());
    stored.alerts.apply_due_changes(17 * MINUTE).unwrap();
    assert!(stored.alerts.put(vec![long("d", 30, 30)], 17 * MINUTE).unwrap());
    // What an earlier version stored above the limit stays.
    stored.reopen(17 * MINUTE);
    stored.alerts.text_bytes_max = 10;
    assert!(stored.alerts.put(vec![long("d", 40, 30)], 18 * MINUTE).is_ok());
}

/// Identity of the only alert at a site that receives it at these minutes.
#[track_caller]
fn identity(received: &[(i64, SubmittedAlert)]) -> String {
    let site = StoredAlerts::new();
    for (minute, alert) in received {
        site.alerts.apply_due_changes(minute * MINUTE).unwrap();
        site.alerts.put(vec![alert.clone()], minute * MINUTE).unwrap();
    }
    let [alert] = &site.alerts.alerts()[..] else { panic!("not one alert") };
    crate::alert_notification::received_notification(alert).key.to_string()
}

#[test]
fn two_sites_that_receive_an_alert_have_the_same_key() {
    let north = identity(&[(100, alert("a", 100, 104))]);
    assert_eq!(identity(&[(102, alert("a", 100, 106))]), north);
    // The clock of its source is ahead.
    assert_eq!(identity(&[(99, alert("a", 100, 103))]), north);
    assert_ne!(identity(&[(100, alert("b", 100, 104))]), north);
    assert_ne!(identity(&[(101, alert("a", 101, 105))]), north);
    // The end.
    let end = [(100, alert("a", 100, 104)), (103, alert("a", 100, 103))];
    let late_end = [(101, alert("a", 100, 104)), (103, alert("a", 100, 103))];
    assert_eq!(identity(&end), identity(&late_end));
    // Again, with another begin.
    let again =
        |first: i64| identity(&[(first, alert("a", 100, 104)), (106, alert("a", 105, 110))]);
    assert_eq!(again(100), again(101));
}

/// Of an alert that ended, contacts know the key: another one with the same begin is not told.
#[test]
fn an_alert_that_begins_anew_is_another_one_also_if_its_source_says_the_same_begin() {
    let first = alert("a", 100, 101);
    let mut known = vec![(100, first.clone())];
    let mut keys = vec![identity(&known)];
    // Once while it is known that it ended, and then after it was forgotten.
    for minute in [105, 120, 140, 170] {
        let again = SubmittedAlert { ends_ns: (minute + 1) * MINUTE, ..first.clone() };
        known.push((minute, again));
        keys.push(identity(&known));
    }
    let ids: BTreeSet<&str> = keys.iter().filter_map(|key| key.split('/').next()).collect();
    assert_eq!(ids.len(), keys.len(), "{keys:?}");
}
