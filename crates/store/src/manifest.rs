//! Manifest: the parts and progress of a store at one generation. Replacing it commits all of that
//! at once.
//!
//! It is text, a fact a line, so that a person can read it:
//!
//! ```text
//! topdeck store 2
//! generation N                      rises with each commit
//! journal ID POSITION               fed from this journal up to this position, excluded
//! series N                          forms that the file of series has at least
//! next N                            the next part's number
//! producer ID BOOT SEQUENCE POSITION the last batch of a boot that is contained, and where it was
//! keep RESOLUTION DURATION SELECTOR how long rows of matching series stay; the first that matches counts
//! part N RESOLUTION START END BYTES CHUNKS ROWS COVERS DROPPED
//! gap START END PRODUCER LOST REASON
//! checksum CRC                      CRC-32C of all lines before, 8 hexadecimal digits
//! ```
//! Numbers are decimal, ids hexadecimal, times and durations ns; `-` stands for what is not known,
//! not limited or empty. `COVERS` is what a rollup was made of: for each day its number since the
//! epoch, a colon, and numbers of base parts and ranges of them with commas between; days have
//! semicolons between. `DROPPED` is `dropped` where a rule by selector took rows of some series out
//! of the part's days. Version 1 has no `DROPPED`: there, a rollup counts as such if a rule limits
//! its resolution. `docs/formats/manifest.md` says the same to a stranger.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use model::wire::{escape_word, unescape_word};
use model::{Gap, Selector};

use crate::error::Error;
use crate::resolution::{DAY, Resolution};

const TITLE: &str = "topdeck store ";
/// The version that is written.
pub const VERSION: u32 = 2;
/// The oldest version that is read.
const VERSION_OLDEST: u32 = 1;
/// What the line of a part says.
pub const PART_FIELDS: [&str; 9] =
    ["N", "RESOLUTION", "START", "END", "BYTES", "CHUNKS", "ROWS", "COVERS", "DROPPED"];
/// Since this version parts say whether rules dropped rows of some of their series.
const VERSION_OF_DROPPED: u32 = 2;
/// How they say it.
const DROPPED: &str = "dropped";

/// Gaps that are remembered at the most; then neighbours are joined.
const GAPS_MAX: usize = 4096;
/// Letters by which reasons are of one kind.
const REASON_PREFIX_BYTES: usize = 16;
/// What the reason of joined gaps ends with that were not quite alike.
const MERGED_SUFFIX: &str = "; and others like it";
/// Producers' boots whose sequences are remembered at the most; then the origin that has most of
/// them loses those that were silent longest.
pub(crate) const PRODUCERS_MAX: usize = 1 << 16;

/// One state of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Manifest {
    pub(crate) generation: u64,
    /// The journal's number, once there is one.
    pub(crate) journal: Option<u128>,
    pub(crate) position: u64,
    pub(crate) series: u64,
    pub(crate) next_part: u64,
    pub(crate) producers: ProducerTable,
    pub(crate) retention: Vec<RetentionRule>,
    pub(crate) parts: BTreeMap<u64, PartInfo>,
    pub(crate) gaps: Vec<Gap>,
}

/// Deduplication table: last sequence per producer epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProducerTable(BTreeMap<(u64, u64), ProducerState>);

impl ProducerTable {
    /// Remembers that a batch is contained; how many sequences are forgotten for it.
    pub(crate) fn record(&mut self, identity: journal::BatchIdentity, position: u64) -> u64 {
        let heard = ProducerState { sequence: identity.sequence, position };
        self.0.insert((identity.producer, identity.epoch), heard);
        journal::evict(&mut self.0, PRODUCERS_MAX, |heard| heard.position)
    }

    /// Whether a batch is contained already.
    pub(crate) fn contains(&self, identity: journal::BatchIdentity) -> bool {
        let heard = self.0.get(&(identity.producer, identity.epoch));
        heard.is_some_and(|heard| identity.sequence <= heard.sequence)
    }
}

/// Last sequence of a producer epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProducerState {
    pub(crate) sequence: u64,
    /// The journal's position of that batch: who was silent longest has the least.
    pub(crate) position: u64,
}

/// What a manifest says of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    /// Its number.
    pub number: u64,
    /// What its rows stand for.
    pub resolution: Resolution,
    /// When its earliest row began, in ns since the Unix epoch.
    pub start: i64,
    /// When its latest row ended.
    pub end: i64,
    /// Bytes of storage.
    pub bytes: u64,
    /// Chunks in it.
    pub chunks: u64,
    /// Rows in them.
    pub rows: u64,
    /// Of a rollup: numbers of the base parts it was made of, by the start of their day.
    pub covers: SourceParts,
    /// A rule by selector dropped rows of some series: that it has none of a series and a day does
    /// not say that there were none.
    pub has_dropped_series: bool,
}

/// What a rollup was made of: numbers of base parts, by the start of their day. They stay after the
/// parts are gone, so that it is known whether a day can be rolled up anew.
pub type SourceParts = BTreeMap<i64, BTreeSet<u64>>;

impl PartInfo {
    /// The partition it lies in.
    pub(crate) fn partition(&self) -> Range<i64> {
        crate::resolution::slot_range(self.end, self.resolution.partition())
    }
}

/// Retention rule: resolution, duration, selector.
#[derive(Clone, Debug, PartialEq)]
pub struct RetentionRule {
    /// Of which resolution.
    pub resolution: Resolution,
    /// Nanoseconds after their end; `None` for ever.
    pub duration: Option<i64>,
    /// Of which series.
    pub selector: Selector,
}

/// The generation of a manifest that is whole.
pub(crate) fn generation(bytes: &[u8]) -> Option<u64> {
    Manifest::read(bytes).ok().map(|manifest| manifest.generation)
}

/// The version of a manifest that this program does not read; `None` also of one whose checksum is
/// wrong, for then the version may be.
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

fn split_last_line(text: &str) -> (&str, &str) {
    text.split_at(text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at.saturating_add(1)))
}

impl Manifest {
    /// Reads the one of a folder.
    pub(crate) fn open(bytes: &[u8], dir: &Path) -> Result<Manifest, Error> {
        let path = dir.join("manifest");
        if let Some(found) = other_version(bytes) {
            return Err(Error::Version { path, found, supported: VERSION });
        }
        Manifest::read(bytes).map_err(|why| Error::Manifest { path, reason: why })
    }

    #[expect(clippy::expect_used, reason = "a string takes everything")]
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = format!("{TITLE}{VERSION}\ngeneration {}\n", self.generation);
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("BUG: a string takes everything");
            out.push('\n');
        };
        if let Some(journal) = self.journal {
            line(format_args!("journal {journal:032x} {}", self.position));
        }
        line(format_args!("series {}", self.series));
        line(format_args!("next {}", self.next_part));
        for ((producer, boot), heard) in &self.producers.0 {
            line(format_args!(
                "producer {producer:x} {boot:x} {} {}",
                heard.sequence, heard.position
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

    /// Reads one; what is wrong with it otherwise.
    pub(crate) fn read(bytes: &[u8]) -> Result<Manifest, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is no text".to_owned())?;
        let Some(version) = version(text) else {
            return Err("does not begin with the manifest's title".to_owned());
        };
        if !is_read(version) {
            return Err(format!("has version {version}, this topdeck reads version {VERSION}"));
        }
        let (body, last) = split_last_line(text);
        // As text: a number may be written in several ways, a flipped bit changes the case of a
        // digit.
        if last != checksum_line(body) {
            return Err("its checksum does not match".to_owned());
        }
        let mut manifest = Manifest::default();
        for (number, line) in body.lines().enumerate().skip(1) {
            manifest.parse_line(line, version).ok_or_else(|| {
                format!("line {} is not understood: {line}", number.saturating_add(1))
            })?;
        }
        if version < VERSION_OF_DROPPED {
            manifest.expect_dropped_series();
        }
        Ok(manifest)
    }

    /// Nobody noted what rules dropped: whatever they may have is looked for.
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
                let [producer, boot, sequence, position] = split_words(rest)?;
                let hex = |text| u64::from_str_radix(text, 16).ok();
                let heard = ProducerState {
                    sequence: sequence.parse().ok()?,
                    position: position.parse().ok()?,
                };
                self.producers.0.insert((hex(producer)?, hex(boot)?), heard);
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

    /// Joins neighbours whose reasons are alike.
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

    /// Remembers a gap; of very many, neighbours of one producer and reason become one. If that
    /// does not help, of one kind of reason: first those of the producer that has most, so that
    /// others' stay as they are.
    pub(crate) fn add_gap(&mut self, gap: Gap) {
        if self.gaps.contains(&gap) {
            return;
        }
        self.gaps.push(gap);
        if self.gaps.len() <= GAPS_MAX {
            return;
        }
        self.gaps.sort_by(|a, b| {
            (a.producer, &a.reason, a.start).cmp(&(b.producer, &b.reason, b.start))
        });
        self.join_gaps(|a, b| a.reason == b.reason);
        // Reasons that name a record or a series are as many as there are of these.
        let kind = |gap: &Gap| gap.reason.chars().take(REASON_PREFIX_BYTES).collect::<String>();
        let mut of_producers: Vec<(usize, Option<u64>)> = self
            .gaps
            .chunk_by(|a, b| a.producer == b.producer)
            .map(|gaps| (gaps.len(), gaps[0].producer))
            .collect();
        of_producers.sort_unstable();
        while let Some((_, producer)) =
            of_producers.pop().filter(|_| self.gaps.len() > GAPS_MAX / 2)
        {
            self.join_gaps(|a, b| a.producer == producer && kind(a) == kind(b));
        }
    }
}

fn checksum_line(body: &str) -> String {
    format!("checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

fn split_words<const N: usize>(text: &str) -> Option<[&str; N]> {
    let words: Vec<&str> = text.split(' ').collect();
    words.try_into().ok()
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
    let day = |part: &str| {
        let (day, numbers) = part.split_once(':')?;
        Some((day.parse::<i64>().ok()?.checked_mul(DAY)?, read_ranges(numbers)?))
    };
    text.split(';').map(day).collect()
}

/// Numbers that one range may tell; a manifest of more was not written here.
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
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_invented_producers_does_not_make_a_batch_of_another_sender_new() {
        let identity = |origin, producer| journal::BatchIdentity {
            producer: journal::with_origin(origin, producer),
            epoch: 1,
            sequence: 1,
        };
        let mut producers = ProducerTable::default();
        producers.record(identity(1, 1), 0);
        let flood = PRODUCERS_MAX as u64 + 5_000;
        let forgotten: u64 = (1..=flood).map(|n| producers.record(identity(2, n), n)).sum();
        assert!(producers.contains(identity(1, 1)), "its retry would count twice");
        assert!(producers.contains(identity(2, flood)) && !producers.contains(identity(2, 1)));
        assert_eq!(producers.0.len() as u64 + forgotten, flood + 1);
        assert!(producers.0.len() <= PRODUCERS_MAX);
    }

    fn example() -> Manifest {
        let mut manifest = Manifest {
            generation: 7,
            journal: Some(u128::MAX - 5),
            position: 99,
            series: 3,
            next_part: 12,
            retention: vec![RetentionRule {
                resolution: Resolution::FiveMinutes,
                duration: Some(5),
                selector: Selector::parse(r#"http{host=~"a b%.*"}"#).unwrap(),
            }],
            ..Manifest::default()
        };
        let identity = journal::BatchIdentity { producer: 1, epoch: u64::MAX, sequence: 5 };
        assert_eq!(manifest.producers.record(identity, 98), 0);
        for number in [3, 11] {
            manifest.parts.insert(
                number,
                PartInfo {
                    number,
                    resolution: Resolution::Hour,
                    start: -5,
                    end: 17,
                    bytes: 1000,
                    chunks: 2,
                    rows: 40,
                    covers: [(-DAY, [1, 2, 5].into()), (3 * DAY, [7].into())].into(),
                    has_dropped_series: number == 11,
                },
            );
        }
        manifest.add_gap(Gap {
            start: 1,
            end: 2,
            producer: None,
            lost: Some(4),
            reason: "é 100 %\n".into(),
        });
        manifest
    }

    #[test]
    fn manifests_round_trip() {
        for manifest in [Manifest::default(), example()] {
            assert_eq!(Manifest::read(&manifest.write()), Ok(manifest));
        }
    }

    /// As version 1 had it.
    fn first_version(manifest: &Manifest) -> Vec<u8> {
        let text = String::from_utf8(manifest.write()).unwrap();
        let (body, _) = split_last_line(&text);
        let line = |line: &str| match line.split_once(' ') {
            Some(("part", rest)) => format!("part {}\n", rest.rsplit_once(' ').unwrap().0),
            _ => format!("{line}\n"),
        };
        let body: String = body.lines().map(line).collect();
        let body = body.replace(&format!("{TITLE}{VERSION}\n"), &format!("{TITLE}1\n"));
        format!("{body}{}", checksum_line(&body)).into_bytes()
    }

    #[test]
    fn version_1_is_read_and_what_its_rules_may_have_dropped_is_looked_for() {
        let mut manifest = example();
        let mut check = |resolution, duration, expected: bool| {
            manifest.retention[0].resolution = resolution;
            manifest.retention[0].duration = duration;
            let read = Manifest::read(&first_version(&manifest)).unwrap();
            for part in manifest.parts.values_mut() {
                part.has_dropped_series = expected;
            }
            assert_eq!(read, manifest, "{resolution} {duration:?}");
            assert_eq!(Manifest::read(&read.write()), Ok(read));
        };
        check(Resolution::Hour, Some(5), true);
        check(Resolution::Hour, None, false);
        check(Resolution::Minute, Some(5), false);
    }

    #[test]
    fn a_part_of_version_2_says_whether_rows_were_dropped() {
        for word in ["", " droppe", " - -"] {
            let text = String::from_utf8(example().write()).unwrap();
            let (body, _) = split_last_line(&text);
            let body = body.replace(" dropped\n", &format!("{word}\n"));
            let changed = format!("{body}{}", checksum_line(&body));
            assert!(Manifest::read(changed.as_bytes()).is_err(), "{word:?}");
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = example().write();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::read(&damaged).is_err_and(|why| !why.is_empty()), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Manifest::read(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn batches_are_recorded_once() {
        let manifest = example();
        let identity =
            |boot, sequence| journal::BatchIdentity { producer: 1, epoch: boot, sequence };
        assert!(
            manifest.producers.contains(identity(u64::MAX, 5))
                && manifest.producers.contains(identity(u64::MAX, 4))
        );
        assert!(
            !manifest.producers.contains(identity(u64::MAX, 6))
                && !manifest.producers.contains(identity(3, 1))
        );
    }

    #[test]
    fn gaps_with_distinct_reasons_are_bounded() {
        let mut manifest = Manifest::default();
        for at in 0..3 * GAPS_MAX as i64 {
            manifest.add_gap(Gap {
                start: at,
                end: at + 1,
                producer: None,
                lost: Some(1),
                reason: format!("a record was not taken in (position {at})"),
            });
        }
        assert!(manifest.gaps.len() <= GAPS_MAX);
        let lost = manifest.gaps.iter().map(|gap| gap.lost.unwrap()).sum::<u64>();
        assert_eq!(lost, 3 * GAPS_MAX as u64);
        let (first, last) = (
            manifest.gaps.iter().map(|gap| gap.start).min().unwrap(),
            manifest.gaps.iter().map(|gap| gap.end).max().unwrap(),
        );
        assert_eq!((first, last), (0, 3 * GAPS_MAX as i64));
    }

    #[test]
    fn gap_limit_is_per_producer() {
        let mut manifest = Manifest::default();
        let gap = |producer, at: i64| Gap {
            start: at,
            end: at + 1,
            producer,
            lost: Some(1),
            reason: format!("a record was not taken in (position {at})"),
        };
        let others: Vec<Gap> =
            (0..10).map(|at| gap([None, Some(9)][at as usize % 2], at)).collect();
        others.iter().for_each(|gap| manifest.add_gap(gap.clone()));
        for at in 0..3 * GAPS_MAX as i64 {
            manifest.add_gap(gap(Some(7), at));
        }
        assert!(manifest.gaps.len() <= GAPS_MAX);
        assert!(others.iter().all(|gap| manifest.gaps.contains(gap)), "{:?}", manifest.gaps);
        let lost = manifest.gaps.iter().map(|gap| gap.lost.unwrap()).sum::<u64>();
        assert_eq!(lost, 3 * GAPS_MAX as u64 + 10);
    }

    #[test]
    fn gaps_are_bounded() {
        let mut manifest = Manifest::default();
        for at in 0..3 * GAPS_MAX as i64 {
            manifest.add_gap(Gap {
                start: at,
                end: at + 1,
                producer: None,
                lost: Some(1),
                reason: "why".into(),
            });
        }
        assert!(manifest.gaps.len() <= GAPS_MAX);
        assert_eq!(
            manifest.gaps.iter().map(|gap| gap.lost.unwrap()).sum::<u64>(),
            3 * GAPS_MAX as u64
        );
    }
}
