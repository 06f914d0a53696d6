//! Silences on a clock that the tests set, with files in a temporary directory.

use std::sync::atomic::{AtomicUsize, Ordering};

use disk::OsDisk;
use notify::{AlertMatcher, Recurrence};

use super::*;

const HOUR: i64 = 3_600_000_000_000;

/// A store in a directory of its own, which is removed at the end.
struct StoredSilences {
    dir: PathBuf,
    store: SilenceStore,
    changes: Arc<AtomicUsize>,
}

impl StoredSilences {
    fn new() -> StoredSilences {
        let dir = std::env::temp_dir().join(format!("topdeck-silences-{:x}", random_id()));
        std::fs::create_dir(&dir).unwrap();
        let changes = Arc::new(AtomicUsize::new(0));
        let store = StoredSilences::open(&dir, &changes).0;
        StoredSilences { dir, store, changes }
    }

    fn open(dir: &Path, changes: &Arc<AtomicUsize>) -> (SilenceStore, Option<String>) {
        let changes = Arc::clone(changes);
        SilenceStore::open(Arc::new(OsDisk), dir, move |_| {
            changes.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn reopen(&mut self) -> Option<String> {
        let (store, problem) = StoredSilences::open(&self.dir, &self.changes);
        self.store = store;
        problem
    }

    fn ids(&self) -> Vec<String> {
        self.store.snapshot().as_slice().iter().map(|silence| silence.id.clone()).collect()
    }
}

impl Drop for StoredSilences {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn silence(matcher: &str, starts_ns: i64, ends_ns: i64) -> Silence {
    Silence {
        id: String::new(),
        matchers: vec![AlertMatcher::parse(matcher).unwrap()],
        starts_ns,
        ends_ns,
        recurrences: Vec::new(),
        created_by: "ann".to_owned(),
        comment: "a comment".to_owned(),
        annotations: std::collections::BTreeMap::new(),
        updated_ns: 0,
    }
}

#[test]
fn silences_survive_a_restart_and_expire() {
    let mut stored = StoredSilences::new();
    let mut window = silence("zone=~\"a|b\"", 0, i64::MAX);
    let weekly = serde_json::json!({"weekdays": ["sunday"], "location": "Europe/Berlin"});
    window.recurrences.push(Recurrence::from_json(weekly).unwrap());
    let id = stored.store.set(window, HOUR).unwrap();
    assert_eq!(stored.reopen(), None);
    let found = stored.store.find(&id).unwrap();
    assert_eq!((found.starts_ns, found.updated_ns, found.ends_ns), (HOUR, HOUR, i64::MAX));
    assert_eq!(found.matchers[0].to_string(), "zone=~\"a|b\"");
    assert_eq!(found.recurrences[0].to_json()["weekdays"][0], "sunday");
    assert_eq!(stored.store.expire(&id, 2 * HOUR).unwrap().ends_ns, 2 * HOUR);
    // Again: no change.
    assert_eq!(stored.store.expire(&id, 3 * HOUR).unwrap().ends_ns, 2 * HOUR);
    assert_eq!(stored.changes.load(Ordering::Relaxed), 2);
    assert!(matches!(stored.store.expire("x", HOUR), Err(SilenceStoreError::NotFound(_))));
}

#[test]
fn expired_silences_are_kept_for_5_days() {
    let stored = StoredSilences::new();
    let first = stored.store.set(silence("a=b", 0, HOUR), 0).unwrap();
    let second = stored.store.set(silence("a=c", 0, 200 * HOUR), 120 * HOUR).unwrap();
    assert_eq!(stored.ids(), [first.clone(), second.clone()]);
    let third = stored.store.set(silence("a=d", 0, 200 * HOUR), 121 * HOUR).unwrap();
    assert_eq!(stored.ids(), [second, third]);
}

#[test]
fn a_silence_is_changed_as_alertmanager_changes_it() {
    let stored = StoredSilences::new();
    let id = stored.store.set(silence("a=b", 0, 10 * HOUR), 0).unwrap();
    // Clients know the start to the millisecond.
    let changed = Silence { id: id.clone(), ..silence("a=b", 999_999, 20 * HOUR) };
    // A later end: in place, and again without effect.
    assert_eq!(stored.store.set(changed.clone(), HOUR).unwrap(), id);
    assert_eq!(stored.store.set(changed.clone(), HOUR).unwrap(), id);
    assert_eq!(stored.changes.load(Ordering::Relaxed), 2);
    // Other matchers: another silence.
    let other = Silence { id: id.clone(), ..silence("a=c", 0, 20 * HOUR) };
    let second = stored.store.set(other, 2 * HOUR).unwrap();
    assert_ne!(second, id);
    assert_eq!(stored.store.find(&id).unwrap().ends_ns, 2 * HOUR);
    assert_eq!(stored.store.find(&second).unwrap().starts_ns, 2 * HOUR);
    // An expired one begins anew.
    let again = stored.store.set(changed, 3 * HOUR).unwrap();
    assert!(again != id && again != second);
    let unknown = Silence { id: "x".to_owned(), ..silence("a=b", 0, 20 * HOUR) };
    assert!(matches!(stored.store.set(unknown, 0), Err(SilenceStoreError::NotFound(_))));
}

#[test]
fn a_damaged_file_is_kept_and_silences_nothing() {
    let mut stored = StoredSilences::new();
    stored.store.set(silence("a=b", 0, HOUR), 0).unwrap();
    let path = stored.dir.join("silences");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text = text.replace("a%20comment", "a%20change");
    std::fs::write(&path, &text).unwrap();
    let problem = stored.reopen().unwrap();
    assert!(problem.contains("the checksum does not match, kept as "), "{problem}");
    assert_eq!(stored.ids(), [""; 0]);
    assert_eq!(std::fs::read_to_string(stored.dir.join("silences.damaged")).unwrap(), text);
}

#[test]
fn a_change_that_cannot_be_written_has_no_effect() {
    let stored = StoredSilences::new();
    std::fs::create_dir(stored.dir.join("silences.new")).unwrap();
    let error = stored.store.set(silence("a=b", 0, HOUR), 0).unwrap_err();
    assert!(error.to_string().starts_with("cannot store silences: "), "{error}");
    assert_eq!((stored.ids().len(), stored.changes.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn ids_are_uuids() {
    let id = new_uuid();
    let lengths: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12]);
    assert_eq!((&id[14..15], "89ab".contains(&id[19..20])), ("4", true), "{id}");
}

#[test]
fn expired_silences_give_way_to_new_ones_in_a_full_file() {
    let mut stored = StoredSilences::new();
    stored.store.file_bytes_max = 10_000;
    let long = |matcher: &str, ends_ns: i64| Silence {
        comment: "x".repeat(2_000),
        ..silence(matcher, 0, ends_ns)
    };
    let mut correcting = long("a=slo", HOUR);
    correcting.annotations.insert(notify::SLO_CORRECTION_ANNOTATION.to_owned(), "true".to_owned());
    let kept = stored.store.set(correcting, 0).unwrap();
    let _first = stored.store.set(long("a=1", 2 * HOUR), 0).unwrap();
    let second = stored.store.set(long("a=2", 3 * HOUR), 0).unwrap();
    let third = stored.store.set(long("a=3", 90 * HOUR), 0).unwrap();
    // Nothing has expired.
    let refused = stored.store.set(long("a=4", 90 * HOUR), 0);
    assert!(matches!(refused, Err(SilenceStoreError::Size)), "{refused:?}");
    let fourth = stored.store.set(long("a=4", 90 * HOUR), 4 * HOUR).unwrap();
    assert_eq!(stored.ids(), [kept, second, third.clone(), fourth.clone()]);
    let fifth = stored.store.set(long("a=5", 90 * HOUR), 4 * HOUR).unwrap();
    let sixth = stored.store.set(long("a=6", 90 * HOUR), 4 * HOUR).unwrap();
    let all = [third, fourth, fifth, sixth];
    assert_eq!(stored.ids(), all);
    let refused = stored.store.set(long("a=7", 90 * HOUR), 4 * HOUR);
    assert!(matches!(refused, Err(SilenceStoreError::Size)), "{refused:?}");
    assert_eq!(stored.reopen(), None);
    assert_eq!(stored.ids(), all);
}
