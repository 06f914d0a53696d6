//! Inode of a simulated file: page cache, durable contents, pending writes.

mod crash_outcome;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crash_outcome::CrashOutcome;

use disk::Region;

use super::mapped_words::MappedWords;
use super::pages::{PAGE, Pages, split_aligned};
use super::rng::Rng;

/// The disk writes a sector atomically.
const SECTOR: u64 = 512;

/// Number of an open file.
pub(super) type OpenId = u64;
/// Process id.
pub(super) type Pid = u64;

/// Data and metadata of a file, without its name.
#[derive(Debug, Default)]
pub(super) struct Inode {
    /// Page cache, except the mapped words.
    cache: Pages,
    /// Mapped words of the first bytes (without the wake page), if the file was mapped.
    words: Option<MappedWords>,
    /// Durable contents.
    durable: Pages,
    /// Writes since the last sync that may have reached the disk, oldest first.
    pending: Vec<PendingWrite>,
    /// Mapped pages whose sync failed, with their contents then: not written until they change.
    lost_pages: BTreeMap<u64, Vec<u8>>,
    /// Number of pages from the start that have blocks, written or not.
    reserved_pages: u64,
    /// Lock holders, and whether each is exclusive.
    locks: BTreeMap<OpenId, bool>,
    mappings: Vec<Mapping>,
}

/// Active mapping of a file.
#[derive(Debug)]
struct Mapping {
    pid: Pid,
    len: u64,
    /// Dead when the region is dropped.
    token: Weak<()>,
}

#[derive(Clone, Debug)]
struct PendingWrite {
    kind: WriteKind,
    len_after: u64,
}

#[derive(Clone, Debug)]
enum WriteKind {
    Write { offset: u64, bytes: Vec<u8> },
    Len,
}

impl Inode {
    pub(super) fn len(&self) -> u64 {
        self.cache.len()
    }

    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) -> usize {
        let count = self.cache.read(bytes, offset);
        if let Some(words) = &self.words {
            words.read(&mut bytes[..count], offset);
        }
        count
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        self.cache.write(bytes, offset);
        if let Some(words) = &self.words {
            words.write(bytes, offset);
        }
        self.push_write(WriteKind::Write { offset, bytes: bytes.to_vec() });
    }

    /// The length must not go below [`Inode::mapped_len`].
    pub(super) fn set_len(&mut self, len: u64) {
        match &self.words {
            Some(words) if words.len() <= len => {}
            Some(words) if self.is_mapped() => words.zero_from(len),
            Some(_) => self.unmap(),
            None => {}
        }
        self.cache.set_len(len);
        self.reserved_pages = self.reserved_pages.min(len.div_ceil(PAGE));
        self.push_write(WriteKind::Len);
    }

    /// Reserves blocks for the first `len` bytes, and extends the file to at least that length.
    pub(super) fn allocate(&mut self, len: u64) {
        self.reserved_pages = self.reserved_pages.max(len.div_ceil(PAGE));
        if self.cache.len() < len {
            self.cache.set_len(len);
            self.push_write(WriteKind::Len);
        }
    }

    fn push_write(&mut self, what: WriteKind) {
        self.pending.push(PendingWrite { kind: what, len_after: self.cache.len() });
    }

    /// Pages used on the disk.
    pub(super) fn page_count(&self) -> u64 {
        self.reserved_pages + self.cache.page_count_from(self.reserved_pages)
    }

    /// Additional pages needed to reserve the first `len` bytes.
    pub(super) fn pages_to_reserve(&self, len: u64) -> u64 {
        let pages = self.reserved_pages.max(len.div_ceil(PAGE));
        pages + self.cache.page_count_from(pages) - self.page_count()
    }

    /// How many of `count` bytes at `offset` can be written with `free` more pages.
    pub(super) fn writable_len(&self, offset: u64, count: usize, mut free: u64) -> usize {
        for (page, _, range) in split_aligned(offset, count, PAGE) {
            if page < self.reserved_pages || self.cache.has_page(page) {
                continue;
            }
            if free == 0 {
                return range.start;
            }
            free -= 1;
        }
        count
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = self.cache.to_vec();
        if let Some(words) = &self.words {
            words.read(&mut bytes, 0);
        }
        bytes
    }

    /// Makes everything durable except pages lost by an earlier failure.
    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply_to(&mut self.durable, |_| true);
        }
        self.durable.set_len(self.cache.len());
        for (page, content) in self.dirty_pages() {
            self.lost_pages.remove(&page);
            self.durable.write(&content, page * PAGE);
        }
    }

    /// Marks everything that is not durable as lost; it remains readable.
    pub(super) fn fail_sync(&mut self) {
        self.pending.clear();
        let dirty = self.dirty_pages();
        self.lost_pages.extend(dirty);
    }

    /// Mapped pages that differ from the disk and that a sync would write.
    fn dirty_pages(&self) -> Vec<(u64, Vec<u8>)> {
        let Some(words) = &self.words else { return Vec::new() };
        let mut dirty = Vec::new();
        // The first page holds the futex words.
        let len = words.len().min(self.cache.len());
        for page in 1..len.div_ceil(PAGE) {
            let offset = page * PAGE;
            let mut content = vec![0; (len - offset).min(PAGE) as usize];
            let mut before = content.clone();
            words.read(&mut content, offset);
            self.durable.read(&mut before, offset);
            if content != before && self.lost_pages.get(&page) != Some(&content) {
                dirty.push((page, content));
            }
        }
        dirty
    }

    /// Contents after a power loss: the durable ones, and an arbitrary part of the others.
    pub(super) fn power_cut(&mut self, rng: &mut Rng) {
        let dirty = self.dirty_pages();
        let mut left = std::mem::take(&mut self.durable);
        let pending = std::mem::take(&mut self.pending);
        let len_until = match rng.below(4) {
            0 => 0,
            1 => pending.len(),
            _ => rng.up_to(pending.len()),
        };
        let len = match len_until {
            0 => left.len(),
            n => pending[n - 1].len_after,
        };
        let mut fate = CrashOutcome::new(pending.len(), rng);
        for (index, change) in pending.iter().enumerate() {
            match change.kind {
                WriteKind::Len if index >= len_until => {}
                WriteKind::Len => change.apply_to(&mut left, |_| true),
                WriteKind::Write { .. } => {
                    change.apply_to(&mut left, |sector| fate.sector_survives(index, sector))
                }
            }
        }
        for (page, content) in dirty {
            if fate.page_survives() {
                left.write(&content, page * PAGE);
            }
        }
        left.set_len(len);
        let reserved_pages = self.reserved_pages.min(len.div_ceil(PAGE));
        *self = Inode { cache: left.clone(), durable: left, reserved_pages, ..Inode::default() };
    }

    /// Corrupts both cache and disk.
    pub(super) fn damage(&mut self, bytes: &[u8], offset: u64) {
        self.cache.write(bytes, offset);
        if let Some(words) = &self.words {
            words.write(bytes, offset);
        }
        self.durable.write(bytes, offset);
    }

    /// Truncates both cache and disk.
    pub(super) fn damage_len(&mut self, len: u64) {
        self.unmap();
        for pages in [&mut self.cache, &mut self.durable] {
            pages.set_len(len.min(pages.len()));
        }
        self.pending.retain_mut(|change| match &mut change.kind {
            WriteKind::Len => true,
            WriteKind::Write { offset, bytes } => {
                bytes.truncate(len.saturating_sub(*offset).try_into().unwrap_or(usize::MAX));
                !bytes.is_empty()
            }
        });
        for change in &mut self.pending {
            change.len_after = change.len_after.min(len);
        }
        self.reserved_pages = self.reserved_pages.min(len.div_ceil(PAGE));
    }

    /// Maps the first `len` bytes, which exist; `None` if a shorter mapping is in use.
    pub(super) fn map(&mut self, len: u64, pid: Pid) -> Option<Region> {
        if self.words.as_ref().is_some_and(|words| words.len() < len) {
            if self.is_mapped() {
                return None;
            }
            self.unmap();
        }
        let words = self.words.get_or_insert_with(|| MappedWords::from_pages(&self.cache));
        let token = Arc::new(());
        self.mappings.retain(Mapping::is_alive);
        self.mappings.push(Mapping { pid, len, token: Arc::downgrade(&token) });
        Some(words.region(len, token))
    }

    /// Detaches the words from the file.
    fn unmap(&mut self) {
        if let Some(words) = self.words.take() {
            let mut bytes = vec![0; words.len().min(self.cache.len()) as usize];
            self.cache.read(&mut bytes, 0);
            words.read(&mut bytes, 0);
            // Stores through the mapping count as writes, unless a failed sync lost them.
            for (page, content) in self.dirty_since(&bytes) {
                self.cache.write(&content, page * PAGE);
                if self.lost_pages.get(&page) != Some(&content) {
                    self.push_write(WriteKind::Write { offset: page * PAGE, bytes: content });
                }
            }
        }
        self.lost_pages.clear();
    }

    /// Pages of `bytes` that differ from the cache.
    fn dirty_since(&self, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut dirty = Vec::new();
        for (page, _, range) in split_aligned(0, bytes.len(), PAGE) {
            let mut before = vec![0; range.len()];
            self.cache.read(&mut before, page * PAGE);
            if before != bytes[range.clone()] {
                dirty.push((page, bytes[range].to_vec()));
            }
        }
        dirty
    }

    /// Whether a living process maps it.
    pub(super) fn is_mapped(&self) -> bool {
        self.mapped_len() > 0
    }

    /// Number of bytes mapped by living processes.
    pub(super) fn mapped_len(&self) -> u64 {
        let lens = self.mappings.iter().filter(|map| map.is_alive()).map(|map| map.len);
        lens.max().unwrap_or(0)
    }

    /// Takes the lock unless others conflict. A lock already held is released first, even if this
    /// fails: as `flock` does.
    pub(super) fn try_lock(&mut self, open: OpenId, exclusive: bool) -> bool {
        if self.locks.get(&open) == Some(&exclusive) {
            return true;
        }
        self.locks.remove(&open);
        let free = match exclusive {
            true => self.locks.is_empty(),
            false => !self.locks.values().any(|&exclusive| exclusive),
        };
        if free {
            self.locks.insert(open, exclusive);
        }
        free
    }

    pub(super) fn unlock(&mut self, open: OpenId) {
        self.locks.remove(&open);
    }

    /// Removes the mappings of a process.
    pub(super) fn unmap_process(&mut self, pid: Pid) {
        self.mappings.retain(|map| map.pid != pid);
    }

    /// A copy without shared memory or open handles.
    pub(super) fn fork(&self) -> Inode {
        let words = self.words.as_ref().map(|words| {
            let mut now = self.cache.clone();
            let mut bytes = vec![0; words.len() as usize];
            now.read(&mut bytes, 0);
            words.read(&mut bytes, 0);
            now.write(&bytes, 0);
            MappedWords::from_pages(&now)
        });
        Inode {
            cache: self.cache.clone(),
            words,
            durable: self.durable.clone(),
            pending: self.pending.clone(),
            lost_pages: self.lost_pages.clone(),
            reserved_pages: self.reserved_pages,
            locks: BTreeMap::new(),
            mappings: Vec::new(),
        }
    }
}

impl Mapping {
    fn is_alive(&self) -> bool {
        self.token.strong_count() > 0
    }
}

impl PendingWrite {
    /// Applies it to `pages`; of a write, the sectors that arrive.
    fn apply_to(&self, pages: &mut Pages, mut arrives: impl FnMut(u64) -> bool) {
        match &self.kind {
            WriteKind::Write { offset, bytes } => {
                for (sector, within, range) in split_aligned(*offset, bytes.len(), SECTOR) {
                    if arrives(sector) {
                        pages.write(&bytes[range], sector * SECTOR + within as u64);
                    }
                }
            }
            WriteKind::Len => pages.set_len(pages.len().min(self.len_after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A file with durable contents `durable` and no pending writes.
    fn inode(durable: &[u8]) -> Inode {
        let mut node = Inode::default();
        node.write(durable, 0);
        node.sync();
        node
    }

    /// Possible results of power losses, as seen by `look`.
    fn outcomes<T: Ord>(node: &Inode, look: impl Fn(&[u8]) -> T) -> BTreeSet<T> {
        let after = |seed| {
            let mut node = node.fork();
            node.power_cut(&mut Rng::new(seed));
            look(&node.to_vec())
        };
        (0..600).map(after).collect()
    }

    fn sectors(bytes: &[u8]) -> String {
        bytes.chunks(SECTOR as usize).map(|sector| char::from(sector[0])).collect()
    }

    #[track_caller]
    fn check(node: &Inode, expected: &[&str]) {
        let seen = outcomes(node, sectors);
        assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn synced_data_survives() {
        check(&inode(&[b'a'; 1024]), &["aa"]);
    }

    #[test]
    fn write_survives_by_sector() {
        let mut node = inode(&[b'a'; 1024]);
        node.write(&[b'b'; 1024], 0);
        check(&node, &["aa", "ab", "ba", "bb"]);
    }

    #[test]
    fn a_sector_may_hold_any_version() {
        let mut node = inode(&[b'a'; 512]);
        node.write(&[b'b'; 512], 0);
        node.write(&[b'c'; 512], 0);
        check(&node, &["a", "b", "c"]);
    }

    #[test]
    fn a_later_write_may_arrive_without_an_earlier_one() {
        let mut node = inode(b"..");
        node.write(b"1", 0);
        node.write(b"2", 1);
        let seen = outcomes(&node, |bytes| String::from_utf8(bytes.to_vec()).unwrap());
        let expected = ["..", ".2", "1.", "12"].map(str::to_owned);
        assert_eq!(seen, BTreeSet::from(expected));
    }

    #[test]
    fn length_and_data_survive_independently() {
        let mut node = inode(&[b'a'; 512]);
        node.write(&[b'b'; 1024], 512);
        check(&node, &["a", "a\0\0", "a\0b", "ab\0", "abb"]);
    }

    #[test]
    fn truncated_data_does_not_return() {
        let mut node = inode(&[b'a'; 1024]);
        node.set_len(512);
        node.set_len(1024);
        check(&node, &["a", "a\0", "aa"]);
    }

    #[test]
    fn failed_sync_loses_writes_for_good() {
        let mut node = inode(&[b'a'; 1024]);
        node.write(&[b'b'; 512], 0);
        node.fail_sync();
        assert_eq!(sectors(&node.to_vec()), "ba");
        check(&node, &["aa"]);
        node.write(&[b'c'; 512], 512);
        node.sync();
        assert_eq!(sectors(&node.to_vec()), "bc");
        check(&node, &["ac"]);
        node.write(&[b'b'; 512], 0);
        node.sync();
        check(&node, &["bc"]);
    }

    #[test]
    fn a_failed_sync_loses_a_mapped_page_until_it_changes() {
        let mut node = inode(&vec![0; 3 * PAGE as usize]);
        let region = node.map(3 * PAGE, 0).unwrap();
        let store = |value| region[0].store(value, std::sync::atomic::Ordering::Relaxed);
        let look = |bytes: &[u8]| bytes[PAGE as usize];
        store(1);
        node.fail_sync();
        node.sync();
        assert_eq!(outcomes(&node, look), BTreeSet::from([0]));
        store(2);
        assert_eq!(outcomes(&node, look), BTreeSet::from([0, 2]));
        node.sync();
        assert_eq!(outcomes(&node, look), BTreeSet::from([2]));
    }

    #[test]
    fn page_lost_by_failed_sync_stays_lost_after_unmap() {
        let mut node = inode(&vec![0; 3 * PAGE as usize]);
        let region = node.map(3 * PAGE, 0).unwrap();
        region[0].store(1, std::sync::atomic::Ordering::Relaxed);
        region[512].store(2, std::sync::atomic::Ordering::Relaxed);
        node.fail_sync();
        region[512].store(3, std::sync::atomic::Ordering::Relaxed);
        drop(region);
        node.set_len(2 * PAGE + 8);
        node.sync();
        let pages = |bytes: &[u8]| [bytes[PAGE as usize], bytes[2 * PAGE as usize]];
        assert_eq!(pages(&node.to_vec()), [1, 3]);
        assert_eq!(outcomes(&node, pages), BTreeSet::from([[0, 3]]));
    }

    #[test]
    fn mapped_pages_arrive_each_by_itself() {
        let mut node = inode(&vec![b'.'; 3 * PAGE as usize]);
        let region = node.map(3 * PAGE, 0).unwrap();
        region[0].store(u64::from(b'1'), std::sync::atomic::Ordering::Relaxed);
        region[512].store(u64::from(b'2'), std::sync::atomic::Ordering::Relaxed);
        let pages = |bytes: &[u8]| [bytes[PAGE as usize], bytes[2 * PAGE as usize]];
        assert_eq!(outcomes(&node, pages), BTreeSet::from([*b"..", *b".2", *b"1.", *b"12"]));
        node.sync();
        assert_eq!(outcomes(&node, pages), BTreeSet::from([*b"12"]));
    }

    #[test]
    fn longer_mapping_waits_for_shorter_to_end() {
        let mut node = inode(&vec![b'.'; 2 * PAGE as usize]);
        let region = node.map(2 * PAGE, 0).unwrap();
        region[0].store(7, std::sync::atomic::Ordering::Relaxed);
        node.allocate(3 * PAGE);
        assert!(node.map(3 * PAGE, 0).is_none());
        drop(region);
        let longer = node.map(3 * PAGE, 0).unwrap();
        assert_eq!(longer[0].load(std::sync::atomic::Ordering::Relaxed), 7);
    }

    #[test]
    fn mapped_file_can_be_truncated_past_its_mapping() {
        let mut node = inode(&vec![7; 4 * PAGE as usize]);
        let region = node.map(2 * PAGE, 0).unwrap();
        assert_eq!(node.mapped_len(), 2 * PAGE);
        node.set_len(2 * PAGE + 9);
        node.set_len(4 * PAGE);
        region[0].store(1, std::sync::atomic::Ordering::Relaxed);
        let mut expected = vec![0; 4 * PAGE as usize];
        expected[..2 * PAGE as usize + 9].fill(7);
        expected[PAGE as usize..][..8].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        assert!(node.to_vec() == expected);
        node.set_len(2 * PAGE);
        node.sync();
        drop(region);
        node.set_len(PAGE + 3);
        node.sync();
        node.power_cut(&mut Rng::new(1));
        assert_eq!(node.to_vec(), expected[..PAGE as usize + 3]);
    }

    #[test]
    fn space_is_counted_in_pages() {
        let mut node = Inode::default();
        node.set_len(100 * PAGE);
        assert_eq!(node.page_count(), 0);
        node.write(b"x", 10 * PAGE);
        assert_eq!(node.page_count(), 1);
        assert_eq!(node.pages_to_reserve(4 * PAGE), 4);
        assert_eq!(node.pages_to_reserve(11 * PAGE), 10);
        node.allocate(4 * PAGE);
        assert_eq!(node.page_count(), 5);
        assert_eq!(node.writable_len(3 * PAGE, 3 * PAGE as usize, 1), 2 * PAGE as usize);
        assert_eq!(node.writable_len(9 * PAGE + 1, 2 * PAGE as usize, 0), 0);
        node.set_len(2 * PAGE);
        assert_eq!(node.page_count(), 2);
    }
}
