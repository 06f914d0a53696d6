//! Writer-side registry: append-only entries and texts.
//!
//! The first word of an entry is written last. A reader that sees it sees the whole entry and its
//! texts.

use std::collections::HashMap;

use crate::cells::{U64Cells, publish};
use crate::entry::{
    LABELS_MAX, RegistryEntry, SeriesDefinition, cells, encode_labels, sizes, text_at, to_words,
};
use crate::error::{Error, Result};
use crate::layout::{self, header, kind};
use crate::map::Map;
use crate::metric_snapshot::MetricRole;
use crate::sync::{AtomicU64, Ordering};

/// Limit of series per name; further ones are counted together with the label `overflow="true"`.
pub const SERIES_PER_NAME_MAX: usize = 1000;

/// Identity of a series: name and labels.
type RegistryKey = (String, Vec<(String, String)>);

/// Writer-side registry of series and texts.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    texts: HashMap<Box<[u8]>, u64>,
    strings_used: usize,
    /// Cells, kind and unit of each series.
    series: HashMap<RegistryKey, (u64, u64, String)>,
    series_per_name: HashMap<String, usize>,
    /// Families of consecutive series: cells of the first, and number.
    families: HashMap<(String, String), (u64, u64, usize)>,
    numbers: HashMap<u64, u64>,
    count: usize,
    small_used: usize,
    large_used: usize,
}

impl Registry {
    pub(crate) fn new() -> Registry {
        Registry { large_used: layout::SMALL_BYTES, ..Registry::default() }
    }

    /// Allocated bytes of small cells.
    pub(crate) fn small_used(&self) -> usize {
        self.small_used
    }

    /// Cells of a series, which is added if it is new.
    pub(crate) fn find_or_add(
        &mut self,
        room: &mut FileSpace<'_>,
        series: &SeriesDefinition,
    ) -> Result<u64> {
        let key = (series.name.clone(), series.labels.clone());
        if let Some((cells, kind, unit)) = self.series.get(&key) {
            if *kind != series.kind || *unit != series.unit {
                return Err(Error::Conflict { name: series.name.clone() });
            }
            return Ok(*cells);
        }
        let series_count = self.series_per_name.get(&series.name).copied().unwrap_or(0);
        let overflow = vec![("overflow".to_owned(), "true".to_owned())];
        if series_count >= SERIES_PER_NAME_MAX && series.labels != overflow {
            room.count_rejected();
            return self
                .find_or_add(room, &SeriesDefinition { labels: overflow, ..series.clone() });
        }
        self.add(room, series)
    }

    /// Cells of the first series of a family; the others follow consecutively.
    pub(crate) fn find_or_add_family(
        &mut self,
        room: &mut FileSpace<'_>,
        series: &SeriesDefinition,
        label: &str,
        values: &[&str],
    ) -> Result<u64> {
        let key = (series.name.clone(), label.to_owned());
        if let Some(&(cells, kind, count)) = self.families.get(&key) {
            return match (kind, count) == (series.kind, values.len()) {
                true => Ok(cells),
                false => Err(Error::Conflict { name: series.name.clone() }),
            };
        }
        let all: Vec<SeriesDefinition> = values
            .iter()
            .map(|value| {
                let mut labels = series.labels.clone();
                labels.push((label.to_owned(), (*value).to_owned()));
                labels.sort_unstable();
                SeriesDefinition { labels, ..series.clone() }
            })
            .collect();
        let (small, align, large) = sizes(series.kind).expect("BUG: an unknown kind");
        // Continues an attempt that ran out of space halfway.
        let family_bytes = |one: &SeriesDefinition| {
            let found = self.series.get(&(one.name.clone(), one.labels.clone()))?;
            (found.1 == series.kind).then_some(found.0)
        };
        let is_there = |one: &&SeriesDefinition| {
            self.series.contains_key(&(one.name.clone(), one.labels.clone()))
        };
        let there = all.iter().filter(is_there).count();
        let mut first = all.first().and_then(family_bytes);
        let next = cells(self.small_used.next_multiple_of(align), self.large_used);
        let follows = first.is_none_or(|first| {
            let at = |number: usize| first + cells(number * small, number * large);
            let in_order = (0..there).all(|number| family_bytes(&all[number]) == Some(at(number)));
            in_order && (there == all.len() || at(there) == next)
        });
        if !follows || (first.is_none() && there > 0) {
            return Err(Error::Conflict { name: series.name.clone() });
        }
        // All or none: a family with some of its series would write to cells of others.
        let fits = self.count + all.len() <= layout::ENTRIES_MAX
            && self.small_used + 64 + small * all.len() <= layout::SMALL_BYTES
            && self.large_used + large * all.len() <= layout::LANE_STRIDE
            && self.strings_used + (all.len() + 4) * (layout::STRING_MAX + 8)
                <= layout::STRINGS_BYTES;
        if !fits {
            room.count_rejected();
            return Err(Error::LimitReached {
                name: series.name.clone(),
                limit: "16,384 series and 2 MiB of cells",
            });
        }
        for one in &all[there..] {
            let cells = self.add(room, one)?;
            first.get_or_insert(cells);
        }
        let first = first.ok_or(Error::InvalidName {
            name: series.name.clone(),
            reason: "label without values",
        })?;
        self.families.insert(key, (first, series.kind, values.len()));
        Ok(first)
    }

    fn add(&mut self, room: &mut FileSpace<'_>, series: &SeriesDefinition) -> Result<u64> {
        check_series(series)?;
        let full = |limit| Error::LimitReached { name: series.name.clone(), limit };
        let (small_bytes, align, large_bytes) = sizes(series.kind).expect("BUG: an unknown kind");
        let small = self.small_used.next_multiple_of(align);
        let large = self.large_used;
        let refused = |room: &mut FileSpace<'_>, limit| {
            room.count_rejected();
            Err(full(limit))
        };
        if self.count >= layout::ENTRIES_MAX {
            return refused(room, "16,384 series");
        }
        if small + small_bytes > layout::SMALL_BYTES {
            return refused(room, "2 MiB of cells");
        }
        if large + large_bytes > layout::LANE_STRIDE {
            return refused(room, "62 MiB of buckets, those of 3,900 histograms");
        }
        let mut text = |texts: &mut Registry, bytes: &[u8]| texts.intern(room, bytes);
        let name = text(self, series.name.as_bytes());
        let labels = text(self, &encode_labels(&series.labels));
        let unit = text(self, series.unit.as_bytes());
        let help = text(self, series.help.as_bytes());
        let tags = text(self, series.tags.join("\0").as_bytes());
        let texts = [name, labels, unit, help, tags].into_iter().collect::<Result<Vec<u64>>>();
        let texts = match texts {
            Ok(texts) => texts,
            Err(Error::LimitReached { limit, .. }) => return refused(room, limit),
            Err(error) => return Err(error),
        };
        room.reserve_entry(self.count)?;
        room.reserve_lane_0(small + small_bytes)?;
        let cells = cells(small, large);
        let link =
            series.related_cells.and_then(|link| self.numbers.get(&link)).map_or(0, |at| at + 1);
        let parameter = if series.kind == kind::IN_FLIGHT { texts[4] } else { series.parameter };
        room.write_entry(
            self.count,
            [
                series.kind | role_code(series.role) << 8,
                texts[0],
                texts[1],
                texts[2],
                texts[3],
                cells,
                link,
                parameter,
            ],
        );
        let key = (series.name.clone(), series.labels.clone());
        self.insert(key, series.kind, series.unit.clone(), cells);
        self.small_used = small + small_bytes;
        self.large_used = large + large_bytes;
        Ok(cells)
    }

    /// Inserts the series of the next entry.
    fn insert(&mut self, key: RegistryKey, kind: u64, unit: String, cells: u64) {
        *self.series_per_name.entry(key.0.clone()).or_default() += 1;
        self.series.insert(key, (cells, kind, unit));
        self.numbers.insert(cells, self.count as u64);
        self.count += 1;
    }

    /// Position of a text in words from the start of the texts; 0 is the empty text.
    pub(crate) fn intern(&mut self, room: &mut FileSpace<'_>, bytes: &[u8]) -> Result<u64> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if let Some(&at) = self.texts.get(bytes) {
            return Ok(at);
        }
        let at = self.strings_used.max(8);
        let end = at + 8 + bytes.len().next_multiple_of(8);
        if end > layout::STRINGS_BYTES {
            let name = String::from_utf8_lossy(bytes).into_owned();
            return Err(Error::LimitReached { name, limit: "4 MiB of names and labels" });
        }
        room.reserve_texts(end)?;
        room.write_text(at, bytes);
        self.strings_used = end;
        self.texts.insert(bytes.into(), (at / 8) as u64);
        Ok((at / 8) as u64)
    }

    /// Copies entries and texts of the parent to the same positions in the file of a forked
    /// process.
    pub(crate) fn copy_from_parent(
        &mut self,
        room: &mut FileSpace<'_>,
        from: &Map,
        of: &Registry,
    ) -> Result<()> {
        let word = |offset: usize| {
            let word: &AtomicU64 = from.at(offset).expect("BUG: outside the head");
            word.load(Ordering::Acquire)
        };
        // The parent may continue to add: the texts of the counted entries exist.
        let count = (word(header::REGISTRY_COUNT * 8) as usize).min(layout::ENTRIES_MAX);
        let strings_used = (word(header::STRINGS_USED * 8) as usize).min(layout::STRINGS_BYTES);
        let texts: Vec<u8> = (0..strings_used / 8)
            .flat_map(|at| word(layout::STRINGS + at * 8).to_le_bytes())
            .collect();
        let mut at = 8;
        while at + 8 <= texts.len() {
            let bytes = text_at(&texts, (at / 8) as u64).unwrap_or_default();
            self.strings_used = at;
            self.intern(room, bytes)?;
            at += 8 + bytes.len().next_multiple_of(8);
        }
        self.strings_used = self.strings_used.max(at);
        for number in 0..count {
            let offset = layout::REGISTRY_OFFSET + number * layout::ENTRY_BYTES;
            let words = std::array::from_fn(|at| word(offset + at * 8));
            let entry = RegistryEntry { words: &words, texts: &texts };
            let of_kind =
                sizes(entry.kind()).zip(entry.name()).zip(entry.labels().zip(entry.unit()));
            let Some((((small_bytes, _, large_bytes), name), (labels, unit))) = of_kind else {
                continue;
            };
            let labels =
                labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
            let key = (name.to_owned(), labels.collect());
            let (small, large) = entry.cells();
            self.small_used = self.small_used.max(small + small_bytes);
            self.large_used = self.large_used.max(large + large_bytes);
            room.reserve_entry(self.count)?;
            room.reserve_lane_0(self.small_used)?;
            room.write_entry(self.count, words);
            self.insert(key, entry.kind(), unit.to_owned(), words[5]);
        }
        self.families.clone_from(&of.families);
        Ok(())
    }
}

/// Metrics file with space reserved on demand.
pub(crate) struct FileSpace<'a> {
    pub(crate) head: &'a Map,
    /// Reserves space in the file: offset, bytes.
    pub(crate) reserve: &'a mut dyn FnMut(usize, usize) -> Result<()>,
    /// Reserves space for small cells of lane 0.
    pub(crate) reserve_small: &'a mut dyn FnMut(usize) -> Result<()>,
    pub(crate) registry_reserved: &'a mut usize,
    pub(crate) strings_reserved: &'a mut usize,
}

/// Space for entries and texts is reserved in steps of this size.
const RESERVE_STEP: usize = 16 << 10;

impl FileSpace<'_> {
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.head.at(offset).expect("BUG: outside the head")
    }

    fn count_rejected(&self) {
        self.word(header::REJECTED_SERIES * 8).fetch_add(1, Ordering::Relaxed);
    }

    fn reserve_entry(&mut self, number: usize) -> Result<()> {
        let end = (number + 1) * layout::ENTRY_BYTES;
        if end > *self.registry_reserved {
            (self.reserve)(layout::REGISTRY_OFFSET + *self.registry_reserved, RESERVE_STEP)?;
            *self.registry_reserved += RESERVE_STEP;
        }
        Ok(())
    }

    fn reserve_texts(&mut self, end: usize) -> Result<()> {
        if end > *self.strings_reserved {
            let bytes = (end - *self.strings_reserved).next_multiple_of(RESERVE_STEP);
            (self.reserve)(layout::STRINGS + *self.strings_reserved, bytes)?;
            *self.strings_reserved += bytes;
        }
        Ok(())
    }

    fn reserve_lane_0(&mut self, end: usize) -> Result<()> {
        (self.reserve_small)(end)
    }

    fn write_text(&self, at: usize, bytes: &[u8]) {
        self.word(layout::STRINGS + at).store(bytes.len() as u64, Ordering::Relaxed);
        for (number, word) in to_words(bytes).enumerate() {
            self.word(layout::STRINGS + at + 8 + number * 8).store(word, Ordering::Relaxed);
        }
        let end = at + 8 + bytes.len().next_multiple_of(8);
        self.word(header::STRINGS_USED * 8).store(end as u64, Ordering::Release);
    }

    fn write_entry(&self, number: usize, words: [u64; 8]) {
        let entry: &U64Cells<8> = self
            .head
            .at(layout::REGISTRY_OFFSET + number * layout::ENTRY_BYTES)
            .expect("BUG: an entry outside the registry");
        publish(entry, &words, self.word(header::REGISTRY_COUNT * 8), number);
    }
}

fn check_series(series: &SeriesDefinition) -> Result<()> {
    let problem = |problem| Err(Error::InvalidName { name: series.name.clone(), reason: problem });
    if series.name.is_empty() {
        return problem("metric name is empty");
    }
    let texts = [&series.name, &series.unit, &series.help];
    let labels = series.labels.iter().flat_map(|(name, value)| [name, value]);
    if texts.into_iter().chain(labels).any(|text| text.len() > layout::STRING_MAX)
        || encode_labels(&series.labels).len() > layout::STRING_MAX
    {
        return problem("name, unit, help or labels exceed 4,096 bytes");
    }
    if series.labels.len() > LABELS_MAX {
        return problem("more than 64 labels");
    }
    if series.labels.iter().any(|(name, _)| name.is_empty()) {
        return problem("label name is empty");
    }
    if series.labels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return problem("duplicate label");
    }
    if series.tags.len() > layout::TAGS_MAX
        || series
            .tags
            .iter()
            .any(|tag| tag.is_empty() || tag.contains('\0') || tag.len() > layout::STRING_MAX)
    {
        return problem("more than four tags, or a tag name above 4,096 bytes");
    }
    Ok(())
}

fn role_code(role: MetricRole) -> u64 {
    MetricRole::ALL.iter().position(|&one| one == role).unwrap_or(0) as u64
}
