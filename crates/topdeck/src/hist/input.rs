//! Files to groups.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Read, Write as _};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use collect::{Format, Over, Reading, Sink, Trouble, Unit, Value};

use crate::hist::above;
use crate::hist::group::{Group, Key};
use crate::hist::heat;
use crate::hist::intervals;
use crate::hist::options::Options;
use crate::hist::show;
use crate::hist::whole::Numbers;

/// Enough of an input to tell its format, and to read numbers without waiting for the kernel.
pub(crate) const HEAD_BYTES: u64 = 1 << 20;
/// How often progress is shown.
const PROGRESS_BYTES: u64 = 64 << 20;
/// More troubles are counted and not kept.
const TROUBLES_KEPT: usize = 1000;
/// As many names as a message lists.
const NAMES_LISTED: usize = 20;

/// All that was read.
pub(crate) struct Collected {
    pub(crate) groups: Vec<Group>,
    /// What was found and is no histogram.
    pub(crate) skipped: BTreeMap<&'static str, u64>,
    /// By file.
    pub(crate) troubles: Vec<(String, Trouble)>,
    pub(crate) trouble_count: u64,
    /// Files that could not be read at all, or to their end.
    pub(crate) unread: Vec<String>,
    /// Names of all metrics seen.
    metrics: BTreeSet<String>,
}

impl Collected {
    pub(crate) fn has_skipped(&self) -> bool {
        !self.skipped.is_empty()
    }

    /// What was skipped, in words; empty if nothing was.
    pub(crate) fn skipped_text(&self) -> String {
        let parts = self.skipped.iter().map(|(what, n)| format!("{} × {what}", show::count(*n)));
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Why there is nothing to report.
    pub(crate) fn nothing(&self, options: &Options) -> String {
        let files: Vec<String> = options.files.iter().map(|file| name(file)).collect();
        let files = files.join(", ");
        match &options.metric {
            Some(metric) if !self.metrics.contains(metric) && !self.metrics.is_empty() => {
                let names: Vec<&str> =
                    self.metrics.iter().map(String::as_str).take(NAMES_LISTED).collect();
                format!("{files}: no metric {metric:?}; there are: {}", names.join(", "))
            }
            _ if self.has_skipped() => {
                format!("{files}: no histograms; found {}", self.skipped_text())
            }
            _ => format!("{files}: no values"),
        }
    }
}

/// Reads all files. What cannot be read is in the result.
pub(crate) fn collect(options: &Options) -> Result<Collected> {
    let unit = options.unit.as_ref().filter(|unit| unit.in_nanoseconds().is_some());
    let numbers_unit = if unit.is_some() { Some(Unit::Nanoseconds) } else { options.unit.clone() };
    let limits = above::limits(options, numbers_unit.as_ref());
    let mut taker = Taker {
        options,
        row_ns: match &options.interval {
            Some(interval) => Some(intervals::interval_ns(interval)?),
            None => options.heatmap.then_some(heat::ROW_NS),
        },
        numbers: Numbers::new(&limits),
        numbers_unit,
        file: 0,
        file_name: String::new(),
        is_page: false,
        known: HashMap::new(),
        failed: None,
        collected: Collected {
            groups: Vec::new(),
            skipped: BTreeMap::new(),
            troubles: Vec::new(),
            trouble_count: 0,
            unread: Vec::new(),
            metrics: BTreeSet::new(),
        },
    };
    if let Some(memory) = &options.memory {
        taker.is_page = true;
        memory.read(&mut taker)?;
        return match taker.failed {
            Some(error) => Err(error),
            None => Ok(taker.collected),
        };
    }
    for (file, path) in options.files.iter().enumerate() {
        (taker.file, taker.file_name) = (file, name(path));
        if let Err(error) = read_file(path, options, &mut taker) {
            taker.collected.unread.push(format!("cannot read {}: {error}", taker.file_name));
        }
        taker.flush_numbers();
        if let Some(error) = taker.failed {
            return Err(error.context(taker.file_name));
        }
        if taker.collected.trouble_count > 0 && !options.keep_going {
            break;
        }
    }
    Ok(taker.collected)
}

fn read_file(path: &Path, options: &Options, taker: &mut Taker<'_>) -> io::Result<()> {
    let (source, length): (Box<dyn Read>, u64) = if path.as_os_str() == "-" {
        (Box::new(io::stdin().lock()), 0)
    } else {
        let file = File::open(path)?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        (Box::new(file), length)
    };
    let mut source = Watched { source, read: 0, shown: 0, length, name: name(path) };
    let mut head = Vec::new();
    (&mut source).take(HEAD_BYTES).read_to_end(&mut head)?;
    let format = match options.format.map_or_else(|| collect::detect(&head), Ok) {
        Ok(format) => format,
        Err(trouble) => {
            let _ = taker.trouble(trouble);
            return Ok(());
        }
    };
    taker.is_page = format == Format::Prometheus;
    let mut input = head.chain(BufReader::with_capacity(HEAD_BYTES as usize, source));
    collect::read(format, &mut input, options.unit.as_ref(), taker)
}

/// What a file is called in messages.
pub(crate) fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".into() } else { path.display().to_string() }
}

/// Sorts readings into groups.
struct Taker<'a> {
    options: &'a Options,
    row_ns: Option<i64>,
    numbers: Numbers,
    numbers_unit: Option<Unit>,
    file: usize,
    file_name: String,
    /// Whether all that the file holds was read at one time.
    is_page: bool,
    known: HashMap<Key, usize>,
    /// Counts that do not fit: the one thing that ends all.
    failed: Option<anyhow::Error>,
    collected: Collected,
}

impl Taker<'_> {
    fn key(&self, reading: &Reading) -> Key {
        let by = self.options.by.as_deref();
        let apart = self.options.compare || by == Some("file");
        let by = match by {
            None | Some("file") => None,
            Some("series") => {
                let labels = reading.labels.iter().map(|(name, value)| format!("{name}={value:?}"));
                Some(format!("{{{}}}", labels.collect::<Vec<_>>().join(",")))
            }
            Some(label) => Some(match reading.label(label) {
                Some(value) => format!("{label} {value}"),
                None => format!("no {label}"),
            }),
        };
        Key {
            file: apart.then_some(self.file),
            metric: reading.metric.clone(),
            by,
            unit: reading.unit.clone().or_else(|| self.options.unit.clone()),
        }
    }

    fn take(&mut self, reading: &Reading, histogram: &hist::Histogram) {
        let key = self.key(reading);
        let groups = &mut self.collected.groups;
        let at = *self.known.entry(key).or_insert_with_key(|key| {
            groups.push(Group::new(key.clone()));
            groups.len() - 1
        });
        if let Err(error) = groups[at].add(reading, histogram, self.row_ns) {
            self.failed.get_or_insert(error);
        }
    }

    fn flush_numbers(&mut self) {
        if let Some(histogram) = self.numbers.take() {
            let reading = Reading {
                metric: String::new(),
                labels: Vec::new(),
                unit: self.numbers_unit.clone(),
                start: None,
                end: None,
                over: Over::Interval,
                value: Value::Text(String::new()),
            };
            self.take(&reading, &histogram);
        }
    }
}

impl Sink for Taker<'_> {
    #[inline]
    fn number(&mut self, value: f64) {
        self.numbers.record(value);
    }

    fn reading(&mut self, reading: Reading) {
        match &reading.value {
            // A page of Prometheus is read once; in a file of many readings each holds those before it.
            Value::Histogram(_) if reading.over == Over::Total && !self.is_page => {
                self.skipped("a cumulative histogram");
            }
            Value::Histogram(histogram) => {
                let metrics = &mut self.collected.metrics;
                if !reading.metric.is_empty() && !metrics.contains(&reading.metric) {
                    metrics.insert(reading.metric.clone());
                }
                if self.options.metric.as_ref().is_none_or(|name| *name == reading.metric) {
                    self.take(&reading, histogram);
                }
            }
            Value::Integer(_) | Value::Number(_) => self.skipped(match reading.over {
                Over::Total | Over::Interval => "a counter",
                Over::Moment if self.is_page => "a gauge",
                Over::Moment => "a single number",
            }),
            Value::Text(_) => self.skipped("a text"),
        }
    }

    fn skipped(&mut self, what: &'static str) {
        *self.collected.skipped.entry(what).or_default() += 1;
    }

    fn trouble(&mut self, trouble: Trouble) -> ControlFlow<()> {
        self.collected.trouble_count += 1;
        if self.collected.troubles.len() < TROUBLES_KEPT {
            self.collected.troubles.push((self.file_name.clone(), trouble));
        }
        if self.options.keep_going { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// An input that shows on a terminal how far it has been read, if it is large.
struct Watched {
    source: Box<dyn Read>,
    read: u64,
    shown: u64,
    /// 0 if unknown.
    length: u64,
    name: String,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.read += read as u64;
        if self.read - self.shown >= PROGRESS_BYTES && io::stderr().is_terminal() {
            self.shown = self.read;
            let percent = (self.read * 100).checked_div(self.length);
            let of_all = percent.map_or(String::new(), |p| format!(" ({} %)", p.min(100)));
            // Progress that cannot be shown is no failure.
            let _ = write!(io::stderr(), "\r{}: {} MB{of_all} ", self.name, self.read / 1_000_000);
        }
        Ok(read)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.shown > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
