//! Known producer keys (trust on first use).
//!
//! A file in the journal's directory, with a line for each producer: its id, its key in hex, the
//! time in ns since the Unix epoch at which the key was first shown, and its name. The file is
//! replaced atomically and durably before the first batch under a key is accepted. An operator may
//! remove a line while topdeck is stopped: the next key shown is then bound.
//!
//! The upper bits of a producer's id are its origin ([`journal::producer_origin`]): an origin is a
//! party that can invent producers. In a full file a producer replaces the one of the largest
//! origin that was bound last, if its own origin has fewer keys than that even with this one. A
//! client that invents producers thus evicts no agent of another token, and keys bound before the
//! flood stay bound. Lines of version 0.1.0 have ids without an origin; each counts as its own
//! origin.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disk::Disk;
use journal::producer_origin;
use model::text_file::{escape_word, unescape_word};

use crate::error::{Error, Result};

/// File name, in the journal's directory.
const FILE: &str = "producer-keys";
/// Maximum number of bound producers; later producers send without a bound key.
pub(crate) const KEYS_MAX: usize = 4096;
/// Maximum stored length of a name, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Maximum file size in bytes: `KEYS_MAX` lines with the longest names.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A public key.
pub type ProducerKey = [u8; 32];

#[derive(Debug)]
pub(crate) struct KnownKeys {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    keys: Mutex<BTreeMap<u64, KnownKey>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownKey {
    key: ProducerKey,
    first_seen: i64,
    name: String,
}

/// Result of a key check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyCheck {
    /// The key is the producer's, or the producer has no key and shows none.
    Match,
    /// The key is the producer's first.
    New,
    /// The key is the producer's first and replaces the key of this producer, which is no longer
    /// bound.
    Replaced(u64),
    /// The table is full.
    TableFull,
}

impl KnownKeys {
    /// Loads the keys of a journal; unreadable lines are skipped and reported in `notes`.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        journal: &Path,
        notes: &mut Vec<String>,
    ) -> Result<KnownKeys> {
        let path = journal.join(FILE);
        let bytes = disk::read_file(&*disk, &path, FILE_BYTES_MAX)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let mut keys = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            match parse(line) {
                Some((producer, key)) => drop(keys.insert(producer, key)),
                None => notes.push(format!("{}: cannot parse line {}", path.display(), at + 1)),
            }
        }
        Ok(KnownKeys { disk, path, keys: Mutex::new(keys) })
    }

    fn lock_keys(&self) -> MutexGuard<'_, BTreeMap<u64, KnownKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares a producer's key with its first one, and binds a first key, durably. A producer
    /// that has shown no key may continue without one. `legacy_producer` is its id of version
    /// 0.1.0, under which it may be known.
    pub(crate) fn check(
        &self,
        producer: u64,
        legacy_producer: u64,
        name: &str,
        claimed_key: Option<&ProducerKey>,
        now: i64,
    ) -> Result<KeyCheck> {
        let mut keys = self.lock_keys();
        let ids = [producer, legacy_producer];
        let known = ids.into_iter().find_map(|id| Some((id, keys.get(&id)?)));
        if let Some((id, known)) = known {
            // The key is public: comparison time leaks nothing.
            return match claimed_key == Some(&known.key) {
                true => Ok(KeyCheck::Match),
                false => Err(self.forbidden_error(id, known, claimed_key.is_some())),
            };
        }
        let Some(&key) = claimed_key else { return Ok(KeyCheck::Match) };
        let mut with_it = keys.clone();
        let mut check = KeyCheck::New;
        if keys.len() >= KEYS_MAX {
            let Some(evicted) = eviction_candidate(&keys, producer_origin(producer)) else {
                return Ok(KeyCheck::TableFull);
            };
            with_it.remove(&evicted);
            check = KeyCheck::Replaced(evicted);
        }
        let name = name[..name.floor_char_boundary(NAME_BYTES_MAX)].to_owned();
        with_it.insert(producer, KnownKey { key, first_seen: now, name });
        self.write(&with_it)?;
        *keys = with_it;
        Ok(check)
    }

    fn forbidden_error(&self, producer: u64, known: &KnownKey, has_key: bool) -> Error {
        let cause = match has_key {
            true => "the request is signed with a key other than the bound key",
            false => "the request is not signed, but a key is bound",
        };
        Error::Forbidden(format!(
            "cannot accept batches of producer {producer:016x} ({}): {cause}; if its agent lost \
             its key, stop topdeck here and remove the producer's line from {}",
            known.name,
            self.path.display()
        ))
    }

    fn write(&self, keys: &BTreeMap<u64, KnownKey>) -> Result<()> {
        let mut text = String::new();
        for (producer, KnownKey { key, first_seen: since, name }) in keys {
            let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{producer:016x} {key} {since} {}\n", escape_word(name));
        }
        Ok(disk::replace_file(&*self.disk, &self.path, text.as_bytes())?)
    }
}

/// The last bound producer of the origin with most keys, if `origin` has fewer even with one more.
fn eviction_candidate(keys: &BTreeMap<u64, KnownKey>, origin: u64) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for producer in keys.keys() {
        *counts.entry(producer_origin(*producer)).or_default() += 1;
    }
    let origin_count = counts.get(&origin).copied().unwrap_or(0);
    let (&largest, &most) = counts.iter().max_by_key(|&(of, count)| (*count, Reverse(*of)))?;
    if most <= origin_count + 1 {
        return None;
    }
    let of_largest = keys.iter().filter(|(producer, _)| producer_origin(**producer) == largest);
    of_largest.max_by_key(|(producer, known)| (known.first_seen, **producer)).map(|(id, _)| *id)
}

fn parse(line: &str) -> Option<(u64, KnownKey)> {
    let mut words = line.split(' ');
    let producer = u64::from_str_radix(words.next()?, 16).ok()?;
    let digits = words.next().filter(|digits| digits.len() == 64 && digits.is_ascii())?;
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    let since = words.next()?.parse().ok()?;
    let name = unescape_word(words.next().unwrap_or_default())?;
    words.next().is_none().then_some((producer, KnownKey { key, first_seen: since, name }))
}

#[cfg(test)]
mod tests {
    use disk::OpenMode;
    use sim::SimDisk;

    use super::*;

    const JOURNAL: &str = "/journal";

    fn open(disk: &Arc<dyn Disk>) -> (KnownKeys, Vec<String>) {
        let mut notes = Vec::new();
        let keys = KnownKeys::open(Arc::clone(disk), Path::new(JOURNAL), &mut notes).unwrap();
        (keys, notes)
    }

    #[test]
    fn first_key_is_required_after_a_restart() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        disk.create_dir(Path::new(JOURNAL)).unwrap();
        let (keys, _) = open(&disk);
        assert_eq!(
            keys.check(7, 7, "old agent", None, 1).unwrap(),
            KeyCheck::Match,
            "it is not bound"
        );
        assert_eq!(keys.check(7, 7, "agent a b", Some(&[1; 32]), 1).unwrap(), KeyCheck::New);
        assert_eq!(keys.check(7, 7, "agent a b", Some(&[1; 32]), 2).unwrap(), KeyCheck::Match);
        drop(keys);
        let (keys, notes) = open(&disk);
        assert_eq!(notes, Vec::<String>::new());
        assert_eq!(keys.check(7, 7, "", Some(&[1; 32]), 3).unwrap(), KeyCheck::Match);
        let error = keys.check(7, 7, "", Some(&[2; 32]), 3).unwrap_err().to_string();
        let expected = "cannot accept batches of producer 0000000000000007 (agent a b): the \
                        request is signed with a key other than the bound key; if its agent lost \
                        its key, stop topdeck here and remove the producer's line from \
                        /journal/producer-keys";
        assert_eq!(error, expected);
        let error = keys.check(7, 7, "", None, 3).unwrap_err().to_string();
        assert!(error.contains("is not signed, but a key is bound"), "{error}");
    }

    #[test]
    fn damaged_line_is_reported_and_keys_are_bounded() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        disk.create_dir(Path::new(JOURNAL)).unwrap();
        let file = disk.open(&Path::new(JOURNAL).join(FILE), OpenMode::Create).unwrap();
        let key = "ab".repeat(32);
        let mut text = format!("0000000000000007 {key} 5 a\nnonsense\n");
        let producer = |n| journal::with_origin(n % 2, 100 + n);
        let line = |n| format!("{:016x} {key} 5 \n", producer(n));
        text.extend((0..KEYS_MAX as u64).map(line));
        file.write_all_at(text.as_bytes(), 0).unwrap();
        drop(file);
        let (keys, notes) = open(&disk);
        assert_eq!(notes, ["/journal/producer-keys: cannot parse line 2"]);
        assert_eq!(keys.check(7, 7, "", Some(&[0xab; 32]), 6).unwrap(), KeyCheck::Match);
        let next = producer(KEYS_MAX as u64);
        assert_eq!(keys.check(next, 8, "", Some(&[1; 32]), 6).unwrap(), KeyCheck::TableFull);
    }

    #[test]
    fn flood_of_one_origin_keeps_the_keys_of_others() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        disk.create_dir(Path::new(JOURNAL)).unwrap();
        let (flood, other) = (|n| journal::with_origin(7, n), |n| journal::with_origin(8, n));
        let file = disk.open(&Path::new(JOURNAL).join(FILE), OpenMode::Create).unwrap();
        let key = "ab".repeat(32);
        let line = |n: u64| format!("{:016x} {key} {n} \n", flood(n));
        let text: String = (0..KEYS_MAX as u64).map(line).collect();
        file.write_all_at(text.as_bytes(), 0).unwrap();
        drop(file);
        let (keys, _) = open(&disk);
        let shown = Some(&[1; 32]);
        let more = flood(KEYS_MAX as u64);
        assert_eq!(keys.check(more, 1, "flood", shown, 9999).unwrap(), KeyCheck::TableFull);
        let newest = KEYS_MAX as u64 - 1;
        let bound = keys.check(other(1), 2, "agent b", shown, 9999).unwrap();
        assert_eq!(bound, KeyCheck::Replaced(flood(newest)));
        drop(keys);
        let (keys, _) = open(&disk);
        assert_eq!(keys.check(other(1), 2, "agent b", shown, 10_000).unwrap(), KeyCheck::Match);
        assert!(keys.check(other(1), 2, "", Some(&[2; 32]), 10_000).is_err(), "it is bound");
        assert!(keys.check(flood(0), 3, "", shown, 10_000).is_err(), "what came first is bound");
        // Each origin evicts the other's keys until both have equally many.
        let mut table = keys.lock_keys().clone();
        let known = table[&other(1)].clone();
        let mut of_other = 1;
        while let Some(evicted) = eviction_candidate(&table, producer_origin(other(0))) {
            assert_eq!(producer_origin(evicted), producer_origin(flood(0)));
            table.remove(&evicted);
            of_other += 1;
            table.insert(other(of_other), known.clone());
        }
        assert_eq!((of_other, table.len()), (KEYS_MAX as u64 / 2, KEYS_MAX));
    }

    #[test]
    fn producer_number_of_version_0_1_0_is_known() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        disk.create_dir(Path::new(JOURNAL)).unwrap();
        let (keys, _) = open(&disk);
        assert_eq!(keys.check(5, 5, "a", Some(&[1; 32]), 1).unwrap(), KeyCheck::New);
        assert_eq!(keys.check(6, 5, "a", Some(&[1; 32]), 2).unwrap(), KeyCheck::Match);
        let error = keys.check(6, 5, "a", Some(&[2; 32]), 2).unwrap_err().to_string();
        assert!(error.contains("producer 0000000000000005"), "its line has that: {error}");
    }
}
