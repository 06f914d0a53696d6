//! Fingerprints of texts that were read before, so that the lexer reads a text that is sent again
//! only once.
//!
//! A text is in one of two places, which its hash selects; it is compared whole, so that a text
//! with the same hash is only a miss. A text is added when it is seen the second time, unless
//! another one had its place in between: texts that are never repeated (literals in statements)
//! cost a hash, and displace nothing.

use crate::text_hash::HashSeeds;

/// Places for pairs of texts: four times as many texts as a service has statements by default.
const SETS: usize = 1_024;

/// How often a fingerprint was in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FingerprintCacheCounts {
    /// Fingerprints from the cache.
    pub hits: u64,
    /// Texts that were read.
    pub misses: u64,
}

/// The cache of all services of a capture.
pub(crate) struct FingerprintCache {
    /// Empty until the first text is added.
    sets: Vec<CacheSet>,
    text_bytes: usize,
    /// Memory of all texts and their fingerprints. Beyond it, the cache starts anew.
    text_bytes_max: usize,
    counts: FingerprintCacheCounts,
}

/// Two texts, of which the first was used later.
#[derive(Clone, Default)]
struct CacheSet {
    entries: [Option<CacheEntry>; 2],
    /// Hash of the last text that was not found.
    candidate: u64,
}

#[derive(Clone)]
struct CacheEntry {
    key: TextHash,
    text: Box<str>,
    fingerprint: Box<str>,
}

/// A text's hash, and the kind of its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextHash {
    hash: u64,
    kind: u8,
}

impl TextHash {
    /// `kind` tells apart texts that have several fingerprints.
    pub(crate) fn new(kind: u8, text: &str) -> TextHash {
        // The cache compares whole texts, so a collision is only a miss.
        TextHash { hash: HashSeeds::CONSTANT.hash(u64::from(kind), text.as_bytes()), kind }
    }

    fn set(self) -> usize {
        self.hash as usize % SETS
    }
}

impl FingerprintCache {
    /// A cache whose texts have at most `text_bytes_max` bytes, with their fingerprints.
    pub(crate) fn new(text_bytes_max: usize) -> FingerprintCache {
        let counts = FingerprintCacheCounts::default();
        FingerprintCache { sets: Vec::new(), text_bytes: 0, text_bytes_max, counts }
    }

    /// The fingerprint of a text, without counting the access.
    pub(crate) fn peek(&self, key: TextHash, text: &str) -> Option<&str> {
        let set = self.sets.get(key.set())?;
        let found = set.entries.iter().flatten().find(|entry| entry.is_of(key, text))?;
        Some(&found.fingerprint)
    }

    /// The fingerprint of a text.
    pub(crate) fn get(&mut self, key: TextHash, text: &str) -> Option<&str> {
        let set = self.sets.get_mut(key.set());
        let is_found = set.is_some_and(|set| set.touch(key, text));
        let count = if is_found { &mut self.counts.hits } else { &mut self.counts.misses };
        *count += 1;
        let entry = if is_found { self.sets[key.set()].entries[0].as_ref() } else { None };
        entry.map(|entry| &*entry.fingerprint)
    }

    /// Notes the fingerprint of a text that is not in the cache.
    pub(crate) fn insert(&mut self, key: TextHash, text: &str, fingerprint: &str) {
        if self.sets.is_empty() {
            self.sets = vec![CacheSet::default(); SETS];
        }
        let set = &mut self.sets[key.set()];
        if set.candidate != key.hash {
            set.candidate = key.hash;
            return;
        }
        let (text, fingerprint) = (text.into(), fingerprint.into());
        let entry = CacheEntry { key, text, fingerprint };
        self.text_bytes += entry.bytes();
        // The text that was used last stays.
        let at = usize::from(set.entries[0].is_some());
        let replaced = set.entries[at].replace(entry);
        self.text_bytes -= replaced.as_ref().map_or(0, CacheEntry::bytes);
        if self.text_bytes > self.text_bytes_max {
            self.sets.clear();
            self.text_bytes = 0;
        }
    }

    /// Bytes of all texts and fingerprints.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    pub(crate) fn counts(&self) -> FingerprintCacheCounts {
        self.counts
    }
}

impl CacheSet {
    /// Moves the entry of a text to the front. Returns whether there is one.
    fn touch(&mut self, key: TextHash, text: &str) -> bool {
        let is_of =
            |entry: &Option<CacheEntry>| entry.as_ref().is_some_and(|entry| entry.is_of(key, text));
        let found = self.entries.iter().position(is_of);
        if found == Some(1) {
            self.entries.swap(0, 1);
        }
        found.is_some()
    }
}

impl CacheEntry {
    fn is_of(&self, key: TextHash, text: &str) -> bool {
        self.key == key && *self.text == *text
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.fingerprint.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT_BYTES_MAX: usize = 1 << 20;

    fn insert(cache: &mut FingerprintCache, text: &str) {
        cache.insert(TextHash::new(0, text), text, &format!("of {text}"));
    }

    /// Whether a text is in the cache.
    #[track_caller]
    fn check(cache: &mut FingerprintCache, text: &str, expected: bool) {
        let key = TextHash::new(0, text);
        let fingerprint = expected.then(|| format!("of {text}"));
        assert_eq!(cache.peek(key, text), fingerprint.as_deref());
        assert_eq!(cache.get(key, text), fingerprint.as_deref());
    }

    #[test]
    fn a_text_is_found_after_its_second_time() {
        let mut cache = FingerprintCache::new(TEXT_BYTES_MAX);
        check(&mut cache, "a", false);
        insert(&mut cache, "a");
        check(&mut cache, "a", false);
        insert(&mut cache, "a");
        check(&mut cache, "a", true);
        check(&mut cache, "b", false);
        assert_eq!(cache.get(TextHash::new(1, "a"), "a"), None, "another kind");
        assert_eq!(cache.counts(), FingerprintCacheCounts { hits: 1, misses: 4 });
    }

    #[test]
    fn a_text_with_the_same_hash_is_another_text() {
        let (mut cache, key) =
            (FingerprintCache::new(TEXT_BYTES_MAX), TextHash { hash: 5, kind: 0 });
        for text in ["a", "a"] {
            cache.insert(key, text, "of a");
        }
        assert_eq!(cache.get(key, "a"), Some("of a"));
        assert_eq!(cache.peek(key, "b"), None);
        cache.insert(key, "b", "of b");
        assert_eq!((cache.peek(key, "a"), cache.peek(key, "b")), (Some("of a"), Some("of b")));
        assert_eq!(cache.get(key, "b"), Some("of b"));
        cache.insert(key, "c", "of c");
        let found = ["a", "b", "c"].map(|text| cache.peek(key, text).is_some());
        assert_eq!(found, [false, true, true], "the text that was used last stays");
    }

    #[test]
    fn texts_that_are_not_repeated_displace_nothing() {
        let mut cache = FingerprintCache::new(TEXT_BYTES_MAX);
        for text in ["often", "often"] {
            insert(&mut cache, text);
        }
        for n in 0..100_000 {
            insert(&mut cache, &format!("select {n}"));
        }
        check(&mut cache, "often", true);
        assert_eq!(cache.text_bytes(), "often".len() + "of often".len());
    }

    #[test]
    fn texts_are_bounded() {
        let mut cache = FingerprintCache::new(TEXT_BYTES_MAX);
        let long = "x".repeat(16 << 10);
        for n in 0..2_000 {
            let text = format!("{n} {long}");
            for _ in 0..2 {
                insert(&mut cache, &text);
                assert!(cache.text_bytes() <= TEXT_BYTES_MAX);
            }
        }
        assert!(cache.text_bytes() > 0);
    }
}
