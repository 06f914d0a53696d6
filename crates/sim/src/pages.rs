//! File contents as pages that copies share until one is written. Unwritten pages are absent and
//! read as zeros, so that a long empty file is free and a copy of a disk is cheap.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Allocation unit of the file system and page size of memory: 4 KiB.
pub(super) const PAGE: u64 = 4096;

/// Sparse file contents in pages. Everything after the length is zero, regardless of earlier
/// contents.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    len: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE as usize]>>,
}

impl Pages {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `bytes` up to the end of the file; returns the number of bytes.
    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) -> usize {
        let count = self.len.saturating_sub(offset).min(bytes.len() as u64) as usize;
        for (page, within, range) in split_aligned(offset, count, PAGE) {
            let bytes = &mut bytes[range];
            match self.pages.get(&page) {
                Some(page) => bytes.copy_from_slice(&page[within..within + bytes.len()]),
                None => bytes.fill(0),
            }
        }
        count
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        for (page, within, range) in split_aligned(offset, bytes.len(), PAGE) {
            let page = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE as usize]));
            let bytes = &bytes[range];
            Arc::make_mut(page)[within..within + bytes.len()].copy_from_slice(bytes);
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE));
            if let Some(last) = self.pages.get_mut(&(len / PAGE)) {
                Arc::make_mut(last)[(len % PAGE) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    pub(super) fn has_page(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    /// Number of written pages from this one on.
    pub(super) fn page_count_from(&self, page: u64) -> u64 {
        self.pages.range(page..).count() as u64
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("a length that memory holds")];
        self.read(&mut bytes, 0);
        bytes
    }
}

/// Splits `count` bytes at `offset` at multiples of `size`: unit number, offset in it, and range of
/// the bytes.
pub(super) fn split_aligned(
    offset: u64,
    count: usize,
    size: u64,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = at % size;
        let end = count.min(done + (size - within) as usize);
        let range = done..end;
        done = end;
        (!range.is_empty()).then_some((at / size, within as usize, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn pages_are_as_one_long_vector() {
        let mut rng = Rng::new(1);
        let (mut pages, mut model) = (Pages::default(), Vec::new());
        for round in 0..2000_u64 {
            let at = rng.up_to(20_000);
            if rng.chance_in_eight(2) {
                pages.set_len(at as u64);
                model.resize(at, 0);
            } else {
                let bytes = vec![round as u8; rng.up_to(6000)];
                pages.write(&bytes, at as u64);
                model.resize(model.len().max(at + bytes.len()), 0);
                model[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            assert!(pages.to_vec() == model, "round {round}");
        }
    }

    #[test]
    fn copy_is_independent_of_later_writes() {
        let mut pages = Pages::default();
        pages.write(b"before", 0);
        let copy = pages.clone();
        pages.write(b"after!", 0);
        assert_eq!(copy.to_vec(), b"before");
        assert_eq!(pages.to_vec(), b"after!");
    }

    #[test]
    fn length_alone_takes_no_page() {
        let mut pages = Pages::default();
        pages.set_len(1 << 40);
        assert_eq!(pages.page_count_from(0), 0);
        let mut bytes = [1; 8];
        assert_eq!(pages.read(&mut bytes, (1 << 40) - 4), 4);
        assert_eq!(bytes, [0, 0, 0, 0, 1, 1, 1, 1]);
    }
}
