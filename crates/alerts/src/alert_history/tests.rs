//! The history on a simulated disk.

use sim::{SimDisk, SimProcess};

use super::*;
use crate::history_entry::HistoryEvent;
use crate::history_entry::tests::entry;

const DATA: &str = "/data";

fn disk() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.process().create_dir(Path::new(DATA)).expect("a directory");
    disk.process().sync_dir(Path::new("/")).expect("durable");
    disk
}

fn open(process: &SimProcess) -> (AlertHistory, Option<String>) {
    // A file of about five changes.
    AlertHistory::with_limit(Arc::new(process.clone()), Path::new(DATA), 1000)
}

fn append(history: &AlertHistory, count: usize) -> Result<(), String> {
    (0..count).try_for_each(|_| history.append(vec![entry(HistoryEvent::Firing)]))
}

fn numbers(history: &AlertHistory) -> Vec<u64> {
    history.read().expect("the files are readable").iter().map(|entry| entry.number).collect()
}

#[test]
fn changes_survive_a_restart_and_are_numbered_on() {
    let disk = disk();
    let (history, problem) = open(&disk.process());
    assert_eq!((problem, history.newest(), numbers(&history)), (None, 0, Vec::new()));
    let two = vec![entry(HistoryEvent::Firing), entry(HistoryEvent::Resolved)];
    history.append(two).expect("stored");
    let (history, problem) = open(&disk.process());
    assert_eq!((problem, history.newest()), (None, 2));
    append(&history, 1).expect("stored");
    assert_eq!(numbers(&history), [1, 2, 3]);
    let events: Vec<_> = history.read().unwrap().iter().map(|entry| entry.event).collect();
    assert_eq!(events, [HistoryEvent::Firing, HistoryEvent::Resolved, HistoryEvent::Firing]);
}

#[test]
fn the_newest_changes_of_two_files_are_kept() {
    let disk = disk();
    let (history, _) = open(&disk.process());
    append(&history, 40).expect("stored");
    let (history, problem) = open(&disk.process());
    assert_eq!(problem, None);
    let found = numbers(&history);
    assert!((6..20).contains(&found.len()), "{found:?}");
    assert_eq!(found.last(), Some(&40));
    assert!(found.windows(2).all(|pair| pair[1] == pair[0] + 1), "{found:?}");
    assert!(disk.files().iter().all(|(_, len)| *len <= 1000), "{:?}", disk.files());
}

#[test]
fn changes_that_are_stored_at_once_are_split_between_files() {
    let disk = disk();
    let (history, _) = open(&disk.process());
    let many = (0..40).map(|_| entry(HistoryEvent::Firing)).collect();
    history.append(many).expect("stored");
    let bytes_max = 1000 + TITLE.len() as u64;
    assert!(disk.files().iter().all(|(_, len)| *len <= bytes_max), "{:?}", disk.files());
    let (history, problem) = open(&disk.process());
    let found = numbers(&history);
    assert!((6..20).contains(&found.len()), "{found:?}");
    assert_eq!((problem, found.last()), (None, Some(&40)));
    assert!(found.windows(2).all(|pair| pair[1] == pair[0] + 1), "{found:?}");
    // A change that is longer than a file has one of its own.
    let (history, _) = AlertHistory::with_limit(Arc::new(disk.process()), Path::new(DATA), 100);
    history.append(vec![entry(HistoryEvent::Firing); 3]).expect("stored");
    assert_eq!(numbers(&open(&disk.process()).0), [42, 43]);
}

#[test]
fn clients_that_follow_know_what_they_missed() {
    let (history, _) = open(&disk().process());
    append(&history, RECENT_MAX + 5).expect("stored");
    let newest = RECENT_MAX as u64 + 5;
    let tail = |number| {
        let HistoryTail { entries, missed, newest } = history.after(number);
        (entries.len(), missed, newest)
    };
    assert_eq!(tail(newest), (0, 0, newest));
    assert_eq!(tail(newest - 2), (2, 0, newest));
    assert_eq!(tail(5), (RECENT_MAX, 0, newest));
    assert_eq!(tail(3), (RECENT_MAX, 2, newest));
    assert_eq!(tail(newest + 100), (0, 0, newest));
}

#[test]
fn a_kill_or_a_power_cut_loses_nothing_that_was_stored() {
    for operation in 0..80 {
        for is_power in [false, true] {
            let disk = disk();
            let process = disk.process();
            match is_power {
                true => disk.cut_after(operation),
                false => process.kill_after(operation),
            }
            let (history, _) = open(&process);
            let stored = (0..20).take_while(|_| append(&history, 1).is_ok()).count() as u64;
            if is_power {
                disk.power_cut();
            }
            let (history, _) = open(&disk.process());
            let found = numbers(&history);
            let newest = found.last().copied().unwrap_or(0);
            assert!(newest == stored || newest == stored + 1, "{operation}: {found:?} {stored}");
            append(&history, 1).expect("stored");
            assert_eq!(numbers(&history).last(), Some(&(newest + 1)), "{operation}");
        }
    }
}

#[test]
fn a_full_disk_is_reported_and_the_changes_stay_in_memory() {
    let disk = disk();
    disk.set_capacity(0);
    let (history, _) = open(&disk.process());
    let error = append(&history, 1).unwrap_err();
    assert!(error.starts_with("cannot store the history of alerts: "), "{error}");
    assert_eq!((numbers(&history), history.after(0).entries.len()), (vec![1], 1));
    disk.set_capacity(1 << 20);
    append(&history, 1).expect("stored");
    assert_eq!(numbers(&history), [1, 2]);
}

#[test]
fn damage_is_reported_and_the_rest_is_kept() {
    let disk = disk();
    let (history, _) = open(&disk.process());
    append(&history, 3).expect("stored");
    let path = Path::new(DATA).join(FILE_NAME);
    disk.flip_bit(&path, TITLE.len() as u64 + 3, 1);
    let (history, problem) = open(&disk.process());
    let expected = "/data/alert-history: 1 damaged lines are left out";
    assert_eq!(problem.as_deref(), Some(expected));
    assert_eq!(numbers(&history), [2, 3]);
    disk.flip_bit(&path, 0, 1);
    let (history, problem) = open(&disk.process());
    let problem = problem.expect("a problem");
    assert!(problem.ends_with("kept as /data/alert-history.damaged"), "{problem}");
    assert_eq!(numbers(&history), Vec::<u64>::new());
    append(&history, 1).expect("stored");
    assert_eq!(numbers(&history), [1]);
}

#[test]
fn arbitrary_text_is_no_panic() {
    for text in ["", "\n", "topdeck", TITLE, &format!("{TITLE}x"), &format!("{TITLE}x\n \n\n1 2")] {
        let found = decode_lines(text);
        assert!(found.is_err() || found.is_ok_and(|(entries, _)| entries.is_empty()), "{text:?}");
    }
}
