//! Reads a process's file: without a lock, a call or a word to the process, at any moment, also after it died.

use std::path::Path;

use hist::{Histogram, Integers, Parts, Scheme, Side, Sum};

use crate::cells::read_distribution;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::layout::{self, BUCKETS, GROUP, SCALE, SLOT_BYTES, header, kind};
use crate::registry::{Series, decode, sizes, text_of};
use crate::shown::{Heartbeat, InFlight, Metric, Number, Operation, Value};
use crate::source::Source;

/// A process's file of metrics, opened.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    header: [u64; header::WORDS],
    series: Vec<Entry>,
    runs: Vec<Run>,
    /// Entries that were looked at; some may make no series.
    seen: usize,
    /// Bytes of names, labels and help texts that they have.
    text_bytes: usize,
    /// Where the cells of the last one end.
    small_end: usize,
    large_end: usize,
}

/// Operations of a table that are shown; the rest counts as not listed.
const OPERATIONS_MAX: usize = 65_536;
/// A file may let all its entries have one long text; no process does.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// A series of the file.
#[derive(Debug)]
struct Entry {
    series: Series,
    /// Its number in the registry.
    number: u64,
    small: usize,
    large: usize,
}

/// Counters whose numbers and cells follow each other.
#[derive(Debug)]
struct Run {
    first: usize,
    count: usize,
    small: usize,
}

impl Run {
    fn goes_on(&self, at: usize, small: usize) -> bool {
        at == self.first + self.count && small == self.small.saturating_add(self.count * 8)
    }
}

/// What a process's file says of it, beside its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which process it is.
    pub identity: Identity,
    /// Whose it is.
    pub uid: u32,
    /// The file of its program.
    pub program: String,
    /// Its command line.
    pub command: String,
    /// When the file was made: nanoseconds since 1970.
    pub created_unix_ns: i64,
    /// When the file was made: nanoseconds of `CLOCK_MONOTONIC`.
    pub created_ns: u64,
    /// Whether it said goodbye.
    pub has_ended: bool,
    /// When it ended, or was found dead: nanoseconds of `CLOCK_MONOTONIC`; 0 while nobody knows.
    pub ended_ns: u64,
    /// How many series it has.
    pub series: usize,
    /// How many threads have lanes, or had.
    pub lanes: usize,
    /// Series that found no room.
    pub refused: u64,
    /// Records that found no room: they are missing.
    pub lost: u64,
    /// Threads that found no lane of their own.
    pub sharing: u64,
    /// Bytes of memory that the file takes.
    pub bytes: u64,
}

impl Reader {
    /// Opens a file.
    pub fn attach(path: &Path) -> Result<Reader> {
        Reader::open(path, false)
    }

    /// Opens a file as if it were another user's: nothing is mapped, what is read is copied by [`Self::refresh`].
    pub fn attach_copied(path: &Path) -> Result<Reader> {
        Reader::open(path, true)
    }

    fn open(path: &Path, is_copied: bool) -> Result<Reader> {
        let source = Source::open(path, is_copied)?;
        let header = source.header()?;
        let mut reader = Reader { source, header, series: Vec::new(), runs: Vec::new(), seen: 0, text_bytes: 0, small_end: 0, large_end: 0 };
        reader.source.refresh(&header)?;
        reader.note_entries()?;
        Ok(reader)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Takes note of what was registered since; and copies the values, where the file is somebody else's.
    pub fn refresh(&mut self) -> Result<()> {
        let mut words = [0; header::WORDS];
        let is_more = if self.source.is_mapped() {
            self.source.head(0, &mut words)?;
            words[header::REGISTRY_COUNT] as usize != self.seen
                || words[header::LANES_USED] != self.header[header::LANES_USED]
        } else {
            true
        };
        // What the process may have changed is believed only after it was checked.
        self.header = if is_more { self.source.header()? } else { words };
        if is_more {
            self.source.refresh(&self.header)?;
        }
        self.note_entries()
    }

    fn note_entries(&mut self) -> Result<()> {
        let count = (self.header[header::REGISTRY_COUNT] as usize).min(layout::ENTRIES_MAX);
        self.series.reserve(count.saturating_sub(self.seen));
        while self.seen < count {
            let mut words = [0; 8];
            self.source.head(layout::REGISTRY + self.seen * layout::ENTRY_BYTES, &mut words)?;
            if words[0] == 0 {
                break;
            }
            if let Some((series, cells)) = decode(&words, |at| self.text(at)) {
                let (small, large) = (cells as u32 as usize, (cells >> 32) as usize);
                // Cells are given out one after the other: nothing is read twice for two entries.
                if small < self.small_end || large < self.large_end {
                    let problem = format!("the cells of entry {} lie over others", self.seen);
                    return Err(Error::Damaged { path: self.path().to_owned(), problem });
                }
                let (small_bytes, _, large_bytes) = sizes(series.kind).unwrap_or_default();
                (self.small_end, self.large_end) = (small + small_bytes, large + large_bytes);
                let labels = series.labels.iter().map(|(name, value)| name.len() + value.len());
                let tags = series.tags.iter().map(String::len);
                let texts = [series.name.len(), series.unit.len(), series.help.len()];
                let texts = texts.into_iter().chain(labels).chain(tags);
                // Each takes memory, also if it is empty.
                self.text_bytes += texts.map(|bytes| bytes + 48).sum::<usize>();
                if self.text_bytes > TEXT_BYTES_MAX {
                    let problem = "its names and labels have more than 64 MiB together".to_owned();
                    return Err(Error::Damaged { path: self.path().to_owned(), problem });
                }
                if matches!(series.kind, kind::COUNTER | kind::UP_DOWN) {
                    let at = self.series.len();
                    match self.runs.last_mut() {
                        Some(run) if run.goes_on(at, small) => run.count += 1,
                        _ => self.runs.push(Run { first: at, count: 1, small }),
                    }
                }
                self.series.push(Entry { series, number: self.seen as u64, small, large });
            }
            self.seen += 1;
        }
        Ok(())
    }

    /// What the file says of its process.
    pub fn process(&self) -> Process {
        let word = |at: usize| self.header[at];
        let wide = |at: usize| u128::from(word(at)) | u128::from(word(at + 1)) << 64;
        let text = |at| {
            String::from_utf8_lossy(&self.text(word(at)).unwrap_or_default()).into_owned()
        };
        Process {
            identity: Identity {
                boot: wide(header::BOOT),
                pid: word(header::PID) as u32,
                pid_namespace: word(header::PID_NAMESPACE),
                start_ticks: word(header::START_TICKS),
            },
            uid: word(header::UID) as u32,
            program: text(header::PROGRAM),
            command: text(header::COMMAND),
            created_unix_ns: word(header::CREATED_UNIX) as i64,
            created_ns: word(header::CREATED),
            has_ended: word(header::STATE) == layout::state::ENDED,
            ended_ns: word(header::ENDED),
            series: self.series.len(),
            lanes: self.lanes(),
            refused: word(header::REFUSED),
            lost: word(header::LOST),
            sharing: word(header::SHARING),
            bytes: self.source.bytes(),
        }
    }

    /// How many series are known. There are more after [`Self::refresh`], never fewer, and they keep their numbers.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// All that the process shows, now.
    pub fn metrics(&mut self) -> Result<Vec<Metric>> {
        self.refresh()?;
        (0..self.series.len()).map(|at| self.metric(at)).collect()
    }

    /// One series of the process, now.
    pub fn metric(&self, at: usize) -> Result<Metric> {
        let Entry { series, .. } = &self.series[at];
        let link = series.link.and_then(|number| {
            self.series.binary_search_by_key(&number, |entry| entry.number).ok()
        });
        Ok(Metric {
            name: series.name.clone(),
            labels: series.labels.clone(),
            unit: series.unit.clone(),
            help: series.help.clone(),
            role: series.role,
            link,
            value: self.value(at)?,
        })
    }

    /// The name of a series.
    pub fn name(&self, at: usize) -> &str {
        &self.series[at].series.name
    }

    /// The value of a series, now.
    pub fn value(&self, at: usize) -> Result<Value> {
        let entry = &self.series[at];
        Ok(match entry.series.kind {
            kind::COUNTER => Value::Counter(Number::Unsigned(self.sum(entry.small)?)),
            kind::UP_DOWN => Value::Gauge(Number::Signed(self.sum(entry.small)? as i64)),
            kind::GAUGE => Value::Gauge(Number::Signed(self.set(entry.small)? as i64)),
            kind::FLOAT_GAUGE => {
                Value::Gauge(Number::Float(f64::from_bits(self.set(entry.small)?)))
            }
            kind::TEXT => self.text_value(entry.small)?,
            kind::HISTOGRAM => match self.histogram(entry)? {
                Some(histogram) => Value::Histogram(Box::new(histogram)),
                None => Value::Unknown("its buckets make no histogram"),
            },
            kind::IN_FLIGHT => Value::InFlight(self.in_flight(entry)?),
            kind::HEARTBEAT => Value::Heartbeat(Heartbeat {
                beats: self.set(entry.small)?,
                last_ns: self.set(entry.small + 8)?,
                every_ns: entry.series.parameter,
            }),
            _ => Value::Unknown("a kind that this topdeck does not know"),
        })
    }

    /// How many values a histogram has, records that are under way among them: a word of each lane instead of all its buckets. `None` of
    /// what is no histogram.
    pub fn recorded(&self, at: usize) -> Result<Option<u64>> {
        let Entry { series, small, .. } = &self.series[at];
        if series.kind != kind::HISTOGRAM {
            return Ok(None);
        }
        let mut sum = 0u64;
        for lane in 0..self.lanes() {
            if small.saturating_add(64) <= self.small_reserved(lane)? {
                // `begun`, the first word of `layout::HISTOGRAM`.
                sum = sum.saturating_add(self.source.small(lane, *small)?);
            }
        }
        Ok(Some(sum))
    }

    /// The counters and up-down gauges among the first `values.len()` series, each modulo 2^64; 0 for what is none of them. The fast way
    /// to see many: those that were registered one after the other are read one after the other.
    pub fn counts(&self, values: &mut [u64]) -> Result<()> {
        let lanes = (0..self.lanes()).filter(|&lane| lane > 0 || self.is_shared());
        let lanes = lanes.map(|lane| Ok((lane, self.small_reserved(lane)?)));
        let lanes = lanes.collect::<Result<Vec<_>>>()?;
        let mut done = 0;
        for run in &self.runs {
            let end = (run.first + run.count).min(values.len());
            if run.first >= end {
                break;
            }
            values[done..run.first].fill(0);
            done = end;
            let values = &mut values[run.first..end];
            let mut is_first = true;
            for &(lane, reserved) in &lanes {
                let have = (reserved.saturating_sub(run.small) / 8).min(values.len());
                if is_first {
                    values[have..].fill(0);
                }
                self.source.add_small(lane, run.small, &mut values[..have], is_first)?;
                is_first = false;
            }
            if is_first {
                values.fill(0);
            }
        }
        values[done..].fill(0);
        Ok(())
    }

    /// Whether anybody counted in the shared lane.
    fn is_shared(&self) -> bool {
        let mut word = [0];
        self.source.head(layout::HEADER_BYTES + 16, &mut word).is_err() || word[0] != 0
    }

    fn lanes(&self) -> usize {
        (self.header[header::LANES_USED] as usize).min(layout::LANES_MAX)
    }

    fn text(&self, at: u64) -> Option<Vec<u8>> {
        text_of(
            |offset, words| self.source.head(offset, words).ok(),
            at,
        )
    }

    /// Bytes of small cells that have room in a lane.
    fn small_reserved(&self, lane: usize) -> Result<usize> {
        let mut word = [0];
        self.source.head(layout::HEADER_BYTES + lane * layout::LANE_BYTES, &mut word)?;
        Ok((word[0] as usize).min(layout::SMALL_BYTES))
    }

    /// Lanes in which small cells have room.
    fn lanes_with(&self, small: usize, bytes: usize) -> Result<Vec<usize>> {
        let mut lanes = Vec::new();
        for lane in 0..self.lanes() {
            if small.saturating_add(bytes) <= self.small_reserved(lane)? {
                lanes.push(lane);
            }
        }
        Ok(lanes)
    }

    fn sum(&self, small: usize) -> Result<u64> {
        let mut sum = 0u64;
        for lane in 0..self.lanes() {
            if small.saturating_add(8) <= self.small_reserved(lane)? {
                sum = sum.wrapping_add(self.source.small(lane, small)?);
            }
        }
        Ok(sum)
    }

    fn set(&self, small: usize) -> Result<u64> {
        if small.saturating_add(8) > self.small_reserved(0)? {
            return Ok(0);
        }
        self.source.small(0, small)
    }

    fn text_value(&self, small: usize) -> Result<Value> {
        const WRITING: u64 = 1 << 63;
        let current_now = || {
            let mut word = [0];
            self.source.lane(0, small, &mut word)?;
            Ok::<u64, Error>(word[0] & !WRITING)
        };
        if small.saturating_add(layout::TEXT_BYTES) > self.small_reserved(0)? {
            return Ok(Value::Text(String::new()));
        }
        for _ in 0..4 {
            let current = current_now()?;
            let mut words = [0; 1 + layout::TEXT_MAX / 8];
            let first = if current & 1 == 0 { 8 } else { 256 };
            self.source.lane(0, small + first, &mut words)?;
            if current_now()? == current {
                let length = (words[0] as usize).min(layout::TEXT_MAX);
                let bytes: Vec<u8> = words[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
                return Ok(Value::Text(String::from_utf8_lossy(&bytes[..length]).into_owned()));
            }
        }
        Ok(Value::Unknown("it changes faster than it can be read"))
    }

    fn histogram(&self, entry: &Entry) -> Result<Option<Histogram>> {
        let (small, large) = (entry.small, entry.large);
        let is_inside = large >= layout::SMALL_BYTES
            && large.saturating_add(layout::BUCKETS_BYTES) <= layout::LANE_STRIDE;
        if !is_inside {
            return Ok(None);
        }
        let mut total = vec![0u64; BUCKETS];
        let mut of_lane = vec![0u64; BUCKETS];
        let (mut zero, mut sum, mut min, mut max, mut is_exact) = (0u64, 0u128, u64::MAX, 0, true);
        for lane in self.lanes_with(small, 64)? {
            let mut read = 0;
            let side = read_distribution(
                |number| {
                    let mut word = [0];
                    self.source.lane(lane, small + number * 8, &mut word)?;
                    Ok(word[0])
                },
                |touched| {
                    read = touched;
                    let mut count = 0u64;
                    for (start, end) in runs(touched) {
                        let words = &mut of_lane[start..end];
                        self.source.lane(lane, large + start * 8, words)?;
                        count = words.iter().fold(count, |sum, n| sum.wrapping_add(*n));
                    }
                    Ok::<u64, Error>(count)
                },
            )?;
            for (start, end) in runs(read) {
                for at in start..end {
                    total[at] = total[at].saturating_add(of_lane[at]);
                }
            }
            zero = zero.saturating_add(side.zero);
            sum = sum.saturating_add(side.sum);
            (min, max) = (min.min(side.min), max.max(side.max));
            is_exact &= side.is_exact;
        }
        let mut parts = Parts::new(Scheme::Exp2(Integers::<SCALE>::grid()));
        let counted = total.iter().enumerate().filter(|&(_, &count)| count > 0);
        parts.positive =
            counted.map(|(place, &count)| (Integers::<SCALE>::index(place), count)).collect();
        parts.zero = zero;
        let standing = |value| if is_exact { Side::Exact(value) } else { Side::Estimated(value) };
        parts.sum = match is_exact {
            true => Side::Exact(Sum::from_integer(sum)),
            false => Side::Estimated(Sum::from_integer(sum)),
        };
        (parts.min, parts.max) = (standing(min as f64), standing(max as f64));
        Ok(Histogram::from_parts(parts).ok())
    }

    fn in_flight(&self, entry: &Entry) -> Result<InFlight> {
        let (small, large) = (entry.small, entry.large);
        let mut found = InFlight::default();
        let is_inside = large >= layout::SMALL_BYTES
            && large.saturating_add(layout::SLOTS_MAX * SLOT_BYTES) <= layout::LANE_STRIDE;
        for lane in self.lanes_with(small, 64)? {
            let mut words = [0; 4];
            // What ended is read first: more may begin meanwhile, and no number is below zero.
            self.source.lane(lane, small + 8, &mut words[1..])?;
            self.source.lane(lane, small, &mut words[..1])?;
            found.started = found.started.wrapping_add(words[0]);
            found.ended = found.ended.wrapping_add(words[1]);
            found.unlisted = found.unlisted.wrapping_add(words[2]);
            let slots = (words[3] as usize).min(layout::SLOTS_MAX);
            if is_inside && found.operations.len() < OPERATIONS_MAX {
                self.operations(entry, lane, slots, &mut found.operations)?;
            }
        }
        found.operations.truncate(OPERATIONS_MAX);
        found.operations.sort_by_key(|operation| operation.start_ns);
        Ok(found)
    }

    fn operations(
        &self,
        entry: &Entry,
        lane: usize,
        slots: usize,
        operations: &mut Vec<Operation>,
    ) -> Result<()> {
        let mut first = vec![0; slots * SLOT_BYTES / 8];
        let mut second = first.clone();
        self.source.lane(lane, entry.large, &mut first)?;
        self.source.lane(lane, entry.large, &mut second)?;
        let (first, second) = (first.as_chunks::<4>().0, second.as_chunks::<4>().0);
        for (slot, again) in first.iter().zip(second) {
            let [start_ns, number, tags_1, tags_2] = *slot;
            // It was the same all the time between the two looks, or it ended, or began just now.
            if start_ns <= layout::FILLING || slot != again {
                continue;
            }
            let tags = [tags_1 as u32, (tags_1 >> 32) as u32, tags_2 as u32, (tags_2 >> 32) as u32];
            let tags = entry.series.tags.iter().zip(tags).filter(|(_, tag)| *tag != 0);
            let tags = tags.map(|(name, tag)| {
                let mut text = self.text(tag.into()).unwrap_or_default();
                text.truncate(layout::STRING_MAX);
                (name.clone(), String::from_utf8_lossy(&text).into_owned())
            });
            operations.push(Operation { start_ns, tags: tags.collect(), number });
        }
        Ok(())
    }
}

/// Runs of buckets that have room: from, to. The last bucket goes with the first group.
fn runs(touched: u64) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    let groups = std::iter::from_fn(move || {
        let rest = touched.checked_shr(at).filter(|rest| *rest != 0)?;
        let start = at + rest.trailing_zeros();
        let length = (touched >> start).trailing_ones();
        at = start + length;
        Some((start as usize * GROUP, at as usize * GROUP))
    });
    groups.chain((touched & 1 == 1).then_some((64 * GROUP, BUCKETS)))
}
