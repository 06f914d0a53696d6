//! Manifest: the parts and progress of a store at one generation. Replacing it commits all of that
//! at once.
//!
//! It is readable text, one fact a line:
//!
//! ```text
//! topdeck store N                   version: 4 with sections, else 3
//! generation N                      incremented by each commit
//! journal ID POSITION               contains this journal up to this position (exclusive)
//! series N                          minimum number of keys in the series file
//! next N                            number of the next part
//! producer ID EPOCH SEQUENCE POSITION  last batch of an epoch that is contained, its position
//! keep RESOLUTION DURATION SELECTOR  retention of matching series; the first match applies
//! part N RESOLUTION START END BYTES CHUNKS ROWS COVERS DROPPED
//! gap START END PRODUCER LOST REASON
//! checksum CRC                      CRC-32C of all lines before, 8 hexadecimal digits
//! ```
//! Numbers are decimal, ids hexadecimal, times and durations ns; `-` stands for unknown, unlimited
//! or empty. `COVERS` lists the source parts of a rollup: for each day its number since the epoch,
//! a colon, and comma-separated numbers of base parts and ranges of them; days are separated by
//! semicolons. `DROPPED` is `dropped` where a rule by selector dropped rows of some series from the
//! part. Version 1 has no `DROPPED`: there, a rollup counts as `dropped` if a rule limits its
//! resolution. Up to version 2, the series file has no records of further producers. Version 4 has
//! the same lines as version 3: records of the journal from the position on may have sections.
//! Specification: `docs/formats/manifest.md`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use model::text_file::{checksum_line, escape_word, split_last_line, split_words, unescape_word};
use model::{Gap, Selector};

use crate::error::Error;
use crate::resolution::{DAY, Resolution};

const TITLE: &str = "topdeck store ";
/// The latest version.
pub const VERSION: u32 = 4;
/// The version written while no record of the journal that is not in parts has sections.
const VERSION_WITHOUT_SECTIONS: u32 = 3;
/// The oldest version read.
const VERSION_OLDEST: u32 = 1;
/// Fields of a `part` line.
pub const PART_FIELDS: [&str; 9] =
    ["N", "RESOLUTION", "START", "END", "BYTES", "CHUNKS", "ROWS", "COVERS", "DROPPED"];
/// From this version on, parts record whether rules dropped rows of some series.
const VERSION_OF_DROPPED: u32 = 2;
/// Value of that field.
const DROPPED: &str = "dropped";

/// Maximum number of gaps; beyond it, neighbours are merged.
const GAPS_MAX: usize = 4096;
/// Length of the reason prefix by which merged gaps are grouped.
const REASON_PREFIX_BYTES: usize = 16;
/// Suffix of the reason of merged gaps whose reasons differed.
const MERGED_SUFFIX: &str = "; and others like it";
/// Maximum number of producer epochs; beyond it, the origin with the most epochs loses the longest
/// idle ones.
pub(crate) const PRODUCERS_MAX: usize = 1 << 16;

/// State of a store at one generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Manifest {
    pub(crate) generation: u64,
    /// Journal id, once there is one.
    pub(crate) journal: Option<u128>,
    pub(crate) position: u64,
    pub(crate) series: u64,
    pub(crate) next_part: u64,
    pub(crate) producers: ProducerTable,
    pub(crate) retention: Vec<RetentionRule>,
    pub(crate) parts: BTreeMap<u64, PartInfo>,
    pub(crate) gaps: Vec<Gap>,
    /// Records of the journal from the position on may have sections, such as exemplars. Releases
    /// that do not read these would reject such a record with its samples, so they must not open
    /// the store.
    pub(crate) has_sections: bool,
}

/// Deduplication table: last sequence per producer epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProducerTable(BTreeMap<(u64, u64), ProducerState>);

impl ProducerTable {
    /// Records a batch as contained; returns the number of evicted sequences.
    pub(crate) fn record(&mut self, identity: journal::BatchIdentity, position: u64) -> u64 {
        let state = ProducerState { sequence: identity.sequence, position };
        self.0.insert((identity.producer, identity.epoch), state);
        journal::evict(&mut self.0, PRODUCERS_MAX, |state| state.position)
    }

    /// Whether a batch is contained.
    pub(crate) fn contains(&self, identity: journal::BatchIdentity) -> bool {
        let last = self.last_sequence(identity.producer, identity.epoch);
        last.is_some_and(|last| identity.sequence <= last)
    }

    /// Sequence of the last contained batch of a producer epoch.
    pub(crate) fn last_sequence(&self, producer: u64, epoch: u64) -> Option<u64> {
        self.0.get(&(producer, epoch)).map(|state| state.sequence)
    }
}

/// Last sequence of a producer epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProducerState {
    pub(crate) sequence: u64,
    /// Journal position of that batch; the longest idle epoch has the smallest.
    pub(crate) position: u64,
}

/// Manifest entry of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    /// Part number.
    pub number: u64,
    /// Resolution of the rows.
    pub resolution: Resolution,
    /// Earliest start of a row, in ns since the Unix epoch.
    pub start: i64,
    /// Latest end of a row.
    pub end: i64,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of rows.
    pub rows: u64,
    /// Source parts, for a rollup.
    pub covers: SourceParts,
    /// A rule by selector dropped rows of some series: missing rows of a series and day do not mean
    /// that there were none.
    pub has_dropped_series: bool,
}

/// Source parts of a rollup: numbers of base parts, by start of their day. They are retained after
/// the parts are deleted, to tell whether a day can be rolled up again.
pub type SourceParts = BTreeMap<i64, BTreeSet<u64>>;

impl PartInfo {
    /// Partition of the part.
    pub(crate) fn partition(&self) -> Range<i64> {
        crate::resolution::interval_range(self.end, self.resolution.partition())
    }
}

/// Retention rule: resolution, duration, selector.
#[derive(Clone, Debug, PartialEq)]
pub struct RetentionRule {
    /// Resolution the rule applies to.
    pub resolution: Resolution,
    /// Retention after the end of a row, in nanoseconds; `None`: unlimited.
    pub duration: Option<i64>,
    /// Series the rule applies to.
    pub selector: Selector,
}

/// Generation of an intact manifest.
pub(crate) fn generation(bytes: &[u8]) -> Option<u64> {
    Manifest::read(bytes).ok().map(|manifest| manifest.generation)
}

/// Version of a manifest that this program cannot read; `None` if the checksum is wrong, because
/// the version may be wrong too.
pub(crate) fn other_version(bytes: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(bytes).ok()?;
    let version = version(text).filter(|&version| !is_read(version))?;
    let (body, last) = split_last_line(text);
    (last == checksum_line(body)).then_some(version)
}

fn is_read(version: u32) -> bool {
    (VERSION_OLDEST..=VERSION).contains(&version)
}

fn version(text: &str) -> Option<u32> {
    text.strip_prefix(TITLE)?.lines().next()?.parse().ok()
}

impl Manifest {
    /// Parses the manifest of a directory.
    pub(crate) fn open(bytes: &[u8], dir: &Path) -> Result<Manifest, Error> {
        let path = dir.join("manifest");
        if let Some(found) = other_version(bytes) {
            return Err(Error::Version { path, found, supported: VERSION });
        }
        Manifest::read(bytes).map_err(|reason| Error::Manifest { path, reason })
    }

    #[expect(clippy::expect_used, reason = "a string takes everything")]
    pub(crate) fn write(&self) -> Vec<u8> {
        let version = match self.has_sections {
            true => VERSION,
            false => VERSION_WITHOUT_SECTIONS,
        };
        let mut out = format!("{TITLE}{version}\ngeneration {}\n", self.generation);
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("BUG: a string takes everything");
            out.push('\n');
        };
        if let Some(journal) = self.journal {
            line(format_args!("journal {journal:032x} {}", self.position));
        }
        line(format_args!("series {}", self.series));
        line(format_args!("next {}", self.next_part));
        for ((producer, epoch), state) in &self.producers.0 {
            line(format_args!(
                "producer {producer:x} {epoch:x} {} {}",
                state.sequence, state.position
            ));
        }
        for keep in &self.retention {
            line(format_args!(
                "keep {} {} {}",
                keep.resolution,
                optional_number(keep.duration),
                escape_word(&keep.selector.to_string())
            ));
        }
        for part in self.parts.values() {
            line(format_args!(
                "part {} {} {} {} {} {} {} {} {}",
                part.number,
                part.resolution,
                part.start,
                part.end,
                part.bytes,
                part.chunks,
                part.rows,
                covers(&part.covers),
                if part.has_dropped_series { DROPPED } else { "-" }
            ));
        }
        for gap in &self.gaps {
            let (producer, lost) = (optional_number(gap.producer), optional_number(gap.lost));
            line(format_args!(
                "gap {} {} {producer} {lost} {}",
                gap.start,
                gap.end,
                escape_word(&gap.reason)
            ));
        }
        let last = checksum_line(&out);
        out.push_str(&last);
        out.into_bytes()
    }

    /// Parses a manifest; returns the cause if it is invalid.
    pub(crate) fn read(bytes: &[u8]) -> Result<Manifest, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
        let Some(version) = version(text) else {
            return Err("invalid title line".to_owned());
        };
        if !is_read(version) {
            return Err(format!("format version {version}, supported {VERSION}"));
        }
        let (body, last) = split_last_line(text);
        // Compared as text: a number has several spellings, and a flipped bit can change the case
        // of a digit.
        if last != checksum_line(body) {
            return Err("checksum mismatch".to_owned());
        }
        let has_sections = version > VERSION_WITHOUT_SECTIONS;
        let mut manifest = Manifest { has_sections, ..Manifest::default() };
        for (number, line) in body.lines().enumerate().skip(1) {
            manifest
                .parse_line(line, version)
                .ok_or_else(|| format!("cannot parse line {}: {line}", number.saturating_add(1)))?;
        }
        if version < VERSION_OF_DROPPED {
            manifest.expect_dropped_series();
        }
        Ok(manifest)
    }

    /// Version 1 does not record what rules dropped: assume that they did.
    fn expect_dropped_series(&mut self) {
        let limited: BTreeSet<Resolution> = self
            .retention
            .iter()
            .filter(|rule| rule.duration.is_some() && rule.resolution != Resolution::Base)
            .map(|rule| rule.resolution)
            .collect();
        for part in self.parts.values_mut() {
            part.has_dropped_series = limited.contains(&part.resolution);
        }
    }

    fn parse_line(&mut self, line: &str, version: u32) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "generation" => self.generation = rest.parse().ok()?,
            "series" => self.series = rest.parse().ok()?,
            "next" => self.next_part = rest.parse().ok()?,
            "journal" => {
                let (id, position) = rest.split_once(' ')?;
                self.journal = Some(u128::from_str_radix(id, 16).ok()?);
                self.position = position.parse().ok()?;
            }
            "producer" => {
                let [producer, epoch, sequence, position] = split_words(rest)?;
                let hex = |text| u64::from_str_radix(text, 16).ok();
                let state = ProducerState {
                    sequence: sequence.parse().ok()?,
                    position: position.parse().ok()?,
                };
                self.producers.0.insert((hex(producer)?, hex(epoch)?), state);
            }
            "keep" => {
                let [resolution, duration, selector] = split_words(rest)?;
                self.retention.push(RetentionRule {
                    resolution: Resolution::parse(resolution)?,
                    duration: parse_optional(duration)?,
                    selector: Selector::parse(&unescape_word(selector)?).ok()?,
                });
            }
            "part" => {
                let (rest, dropped) = match version < VERSION_OF_DROPPED {
                    true => (rest, "-"),
                    false => rest.rsplit_once(' ')?,
                };
                let [number, resolution, start, end, bytes, chunks, rows, covers] =
                    split_words(rest)?;
                let part = PartInfo {
                    number: number.parse().ok()?,
                    resolution: Resolution::parse(resolution)?,
                    start: start.parse().ok()?,
                    end: end.parse().ok()?,
                    bytes: bytes.parse().ok()?,
                    chunks: chunks.parse().ok()?,
                    rows: rows.parse().ok()?,
                    covers: read_covers(covers)?,
                    has_dropped_series: match dropped {
                        DROPPED => true,
                        "-" => false,
                        _ => return None,
                    },
                };
                self.parts.insert(part.number, part);
            }
            "gap" => {
                let [start, end, producer, lost, reason] = split_words(rest)?;
                self.gaps.push(Gap {
                    start: start.parse().ok()?,
                    end: end.parse().ok()?,
                    producer: parse_optional(producer)?,
                    lost: parse_optional(lost)?,
                    reason: unescape_word(reason)?,
                });
            }
            _ => return None,
        }
        Some(())
    }

    /// Merges neighbours whose reasons are alike.
    fn join_gaps(&mut self, are_alike: impl Fn(&Gap, &Gap) -> bool) {
        self.gaps.dedup_by(|gap, kept| {
            let joins = gap.producer == kept.producer && are_alike(gap, kept);
            if joins {
                (kept.start, kept.end) = (kept.start.min(gap.start), kept.end.max(gap.end));
                kept.lost = kept.lost.zip(gap.lost).and_then(|(a, b)| a.checked_add(b));
                if gap.reason != kept.reason && !kept.reason.ends_with(MERGED_SUFFIX) {
                    kept.reason.push_str(MERGED_SUFFIX);
                }
            }
            joins
        });
    }

    /// Adds a gap. Beyond the limit, neighbouring gaps of one producer and reason are merged; if
    /// that does not suffice, gaps with the same reason prefix, starting with the producer that has
    /// the most, so that other producers' gaps stay exact.
    pub(crate) fn add_gap(&mut self, gap: Gap) {
        if self.gaps.contains(&gap) {
            return;
        }
        self.gaps.push(gap);
        if self.gaps.len() <= GAPS_MAX {
            return;
        }
        model::sort::by(&mut self.gaps, |a, b| {
            (a.producer, &a.reason, a.start).cmp(&(b.producer, &b.reason, b.start))
        });
        self.join_gaps(|a, b| a.reason == b.reason);
        // Reasons that name a record or a series are as many as there are records or series.
        let kind = |gap: &Gap| gap.reason.chars().take(REASON_PREFIX_BYTES).collect::<String>();
        let mut of_producers: Vec<(usize, Option<u64>)> = self
            .gaps
            .chunk_by(|a, b| a.producer == b.producer)
            .map(|gaps| (gaps.len(), gaps[0].producer))
            .collect();
        model::sort::by(&mut of_producers, Ord::cmp);
        while let Some((_, producer)) =
            of_producers.pop().filter(|_| self.gaps.len() > GAPS_MAX / 2)
        {
            self.join_gaps(|a, b| a.producer == producer && kind(a) == kind(b));
        }
    }
}

fn optional_number<T: ToString>(number: Option<T>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn parse_optional<T: std::str::FromStr>(text: &str) -> Option<Option<T>> {
    if text == "-" { Some(None) } else { text.parse().ok().map(Some) }
}

fn ranges(numbers: &BTreeSet<u64>) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some(run) if run.1.checked_add(1) == Some(number) => run.1 = number,
            _ => runs.push((number, number)),
        }
    }
    if runs.is_empty() {
        return "-".to_owned();
    }
    let run = |&(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

fn covers(covers: &SourceParts) -> String {
    if covers.is_empty() {
        return "-".to_owned();
    }
    let day =
        |(start, numbers): (&i64, &BTreeSet<u64>)| format!("{}:{}", start / DAY, ranges(numbers));
    covers.iter().map(day).collect::<Vec<_>>().join(";")
}

fn read_covers(text: &str) -> Option<SourceParts> {
    if text == "-" {
        return Some(SourceParts::new());
    }
    let mut parts = SourceParts::new();
    for part in text.split(';') {
        let (day, numbers) = part.split_once(':')?;
        parts.insert(day.parse::<i64>().ok()?.checked_mul(DAY)?, read_ranges(numbers)?);
    }
    Some(parts)
}

/// Maximum length of a range; this program writes no longer ones.
const RANGE_MAX: u64 = 1 << 24;

fn read_ranges(text: &str) -> Option<BTreeSet<u64>> {
    let mut numbers = BTreeSet::new();
    if text == "-" {
        return Some(numbers);
    }
    for run in text.split(',') {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if last.checked_sub(first)? > RANGE_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests;
