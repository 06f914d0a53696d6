//! Catalog of a metrics file: entries and texts, copied once.

use std::path::Path;

use crate::entry::{RegistryEntry, sizes, text_at};
use crate::error::{Error, Result};
use crate::layout::{self, header, kind};
use crate::source::FileSource;

/// Series in the order of their entries.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// Copy of the texts of the file.
    texts: Vec<u8>,
    series: Vec<SeriesEntry>,
    runs: Vec<ContiguousCounters>,
    /// Number of entries read; some may not be series.
    scanned: usize,
    /// Decoded size of the names, labels and help texts of all series.
    text_bytes: usize,
    /// End of the cells of the last series.
    small_end: usize,
    large_end: usize,
}

/// Limit against a forged file in which all entries refer to one long text.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// Registry entry of a series.
#[derive(Debug)]
struct SeriesEntry {
    /// Number of the entry in the registry.
    number: u64,
    words: [u64; 8],
}

/// Counters with consecutive numbers and cells.
#[derive(Debug)]
pub(crate) struct ContiguousCounters {
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) small: usize,
}

impl ContiguousCounters {
    fn is_continued_by(&self, at: usize, small: usize) -> bool {
        at == self.first + self.count && small == self.small.saturating_add(self.count * 8)
    }
}

impl Catalog {
    /// Whether the header refers to entries or texts that were not read yet.
    pub(crate) fn is_stale_for(&self, words: &[u64; header::WORDS]) -> bool {
        let texts = (words[header::STRINGS_USED] as usize).next_multiple_of(8);
        words[header::REGISTRY_COUNT] as usize != self.scanned || texts != self.texts.len()
    }

    /// Reads new entries and texts.
    pub(crate) fn extend(
        &mut self,
        source: &FileSource,
        words: &[u64; header::WORDS],
    ) -> Result<()> {
        if !self.is_stale_for(words) {
            return Ok(());
        }
        let count = (words[header::REGISTRY_COUNT] as usize).min(layout::ENTRIES_MAX);
        let mut entries = vec![0; count.saturating_sub(self.scanned) * layout::ENTRY_BYTES];
        source.read(layout::REGISTRY_OFFSET + self.scanned * layout::ENTRY_BYTES, &mut entries)?;
        // After the entries: the texts of an entry are written before the entry.
        self.read_texts(source)?;
        let (entries, _) = entries.as_chunks::<{ layout::ENTRY_BYTES }>();
        self.series.reserve(entries.len());
        for bytes in entries {
            let (bytes, _) = bytes.as_chunks::<8>();
            let words = std::array::from_fn(|at| u64::from_ne_bytes(bytes[at]));
            if words[0] == 0 {
                break;
            }
            self.add_entry(words, source.path())?;
        }
        Ok(())
    }

    fn read_texts(&mut self, source: &FileSource) -> Result<()> {
        let have = self.texts.len();
        let used = (source.word(header::STRINGS_USED)? as usize).min(layout::STRINGS_BYTES);
        self.texts.resize(used.next_multiple_of(8).max(have), 0);
        let more = &mut self.texts[have..];
        source.read(layout::STRINGS + have, more)?;
        for word in more.as_chunks_mut::<8>().0 {
            *word = u64::from_ne_bytes(*word).to_le_bytes();
        }
        Ok(())
    }

    /// Adds the next entry.
    fn add_entry(&mut self, words: [u64; 8], path: &Path) -> Result<()> {
        let damaged = |problem| Err(Error::Damaged { path: path.to_owned(), reason: problem });
        let number = self.scanned as u64;
        self.scanned += 1;
        let entry = RegistryEntry { words: &words, texts: &self.texts };
        let sizes = sizes(entry.kind());
        let (Some((small_bytes, _, large_bytes)), Some(text_bytes)) = (sizes, entry.text_bytes())
        else {
            return Ok(());
        };
        let (small, large) = entry.cells();
        // Cells are allocated consecutively: no cell belongs to two entries.
        if small < self.small_end || large < self.large_end {
            return damaged(format!("cells of entry {number} overlap others"));
        }
        (self.small_end, self.large_end) = (small + small_bytes, large + large_bytes);
        self.text_bytes += text_bytes;
        if self.text_bytes > TEXT_BYTES_MAX {
            return damaged("names and labels exceed 64 MiB".to_owned());
        }
        if matches!(entry.kind(), kind::COUNTER | kind::UP_DOWN) {
            let at = self.series.len();
            match self.runs.last_mut() {
                Some(run) if run.is_continued_by(at, small) => run.count += 1,
                _ => self.runs.push(ContiguousCounters { first: at, count: 1, small }),
            }
        }
        self.series.push(SeriesEntry { number, words });
        Ok(())
    }

    /// Number of series.
    pub(crate) fn len(&self) -> usize {
        self.series.len()
    }

    /// Entry of a series.
    pub(crate) fn entry(&self, at: usize) -> RegistryEntry<'_> {
        RegistryEntry { words: &self.series[at].words, texts: &self.texts }
    }

    /// Index of the series of an entry.
    pub(crate) fn index_of(&self, number: u64) -> Option<usize> {
        self.series.binary_search_by_key(&number, |one| one.number).ok()
    }

    /// Runs of counters and up-down counters.
    pub(crate) fn runs(&self) -> &[ContiguousCounters] {
        &self.runs
    }

    /// A text, if it existed at the last read.
    pub(crate) fn text(&self, at: u64) -> Option<&[u8]> {
        text_at(&self.texts, at)
    }
}
