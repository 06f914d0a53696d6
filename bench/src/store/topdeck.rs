//! topdeck's own store, in this process: what it costs from a batch's bytes to a durable acknowledgement, and
//! from a selector to the statistics of each column. There is no HTTP in it, which is why processor time is
//! what compares, and the peers' includes what a server does besides.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use collect::synthetic::{Dataset, LIMIT_NS, Truth};
use disk::{Disk, OsDisk};
use hist::codec::header::Temporality;
use hist::{Bound, Mixture};
use journal::{Identity, Level};
use model::{Batch, BatchWriter, Kind, Sample, Selector, Series, Value};
use store::{DAY, Grid, HOUR, MINUTE, Options, Resolution, Store};
use tempfile::TempDir;

use super::figures::{Answer, Figures, Load, Query, SETS};
use super::{Walk, Work};
use crate::clock::{cpu_time_of_program, wall_time};
use crate::journal::scratch;
use crate::query::{self, Asked};

pub(crate) const NAME: &str = "topdeck";
/// Minutes of one batch where there is one series; else a batch is all series of a minute.
const MINUTES_ALONE: usize = 60;
/// In the folder of a [`Bench`].
const FOLDER: &str = "store";

/// What topdeck is measured for beside what all stores are.
pub(crate) struct Own {
    pub(crate) figures: Figures,
    /// Bytes of the base alone, per histogram of A and of B.
    pub(crate) base_bytes: [f64; 2],
    pub(crate) written_per_kept: f64,
    pub(crate) heatmap_total: (u64, u64),
    pub(crate) twice: (u64, u64),
    /// What was read, rows that were merged, and processor milliseconds.
    pub(crate) reads: Vec<(String, u64, f64)>,
    /// What was asked in each language.
    pub(crate) asked: Vec<Asked>,
}

/// A store in a folder of its own, with a clock that follows the data.
pub(crate) struct Bench {
    folder: TempDir,
    now: Arc<AtomicI64>,
    pub(crate) store: Store,
}

impl Bench {
    fn new(grace: i64) -> Result<Bench> {
        let folder = scratch::folder()?;
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let dir = folder.path().join(FOLDER);
        let limits = journal::Limits { bytes_max: None, ..journal::Settings::default().limits };
        let settings =
            journal::Settings { codec: journal::Codec::Zstd, limits, ..Default::default() };
        Store::create(&disk, &dir, &settings)?;
        let now = Arc::new(AtomicI64::new(0));
        let clock = Arc::clone(&now);
        let options = Options {
            background: false,
            grace,
            clock: Arc::new(move || clock.load(Ordering::Relaxed)),
            ..Options::default()
        };
        Ok(Bench { store: Store::open(disk, &dir, &options)?, folder, now })
    }

    /// Takes batches in, each with the time at which it ends; keeps the store in order as it would itself.
    fn load(&self, set: &'static str, points: u64, batches: &[(i64, Vec<u8>)]) -> Result<Load> {
        forget_memory();
        let (cpu, wall, written) = (cpu_time_of_program(), wall_time(), written_bytes());
        for (sequence, (end, bytes)) in batches.iter().enumerate() {
            let batch = Batch::check(bytes.clone())?;
            let identity = Identity { producer: 1, boot: 1, sequence: sequence as u64 + 1 };
            let _acknowledged = self.store.ingest(Some(identity), &batch, Level::Disk)?;
            self.now.store(*end, Ordering::Relaxed);
            self.store.maintain()?;
        }
        let (cpu_acknowledged, passed) = (cpu_time_of_program() - cpu, wall_time() - wall);
        let end = batches.last().map_or(0, |batch| batch.0);
        self.now.store(end + DAY, Ordering::Relaxed);
        self.store.seal()?;
        self.store.maintain()?;
        let after = written_bytes();
        Ok(Load {
            set,
            points,
            sent_bytes: batches.iter().map(|batch| batch.1.len() as u64).sum(),
            cpu: cpu_acknowledged,
            cpu_until_idle: cpu_time_of_program() - cpu,
            wall: passed,
            written_bytes: after.zip(written).map(|(after, before)| after - before),
            stored_bytes: self.stored(None)?,
            memory_bytes: memory_bytes().unwrap_or_default(),
        })
    }

    fn stored(&self, only: Option<Resolution>) -> Result<u64> {
        let parts = self.store.stat()?.parts;
        let wanted = parts.iter().filter(|part| only.is_none_or(|only| part.resolution == only));
        Ok(wanted.map(|part| part.bytes).sum())
    }

    /// Columns of all series, and of each three statistics, as a picture asks.
    fn columns(&self, grid: Grid) -> Result<Vec<Mixture>> {
        let view = self.store.view()?;
        let series = view.select(&Selector::All);
        let mut columns = Vec::new();
        for column in view.histograms(&series, grid)? {
            let column = column?;
            std::hint::black_box((
                column.value.quantile(0.99),
                column.value.max(),
                column.value.count(),
            ));
            columns.push(column.value);
        }
        Ok(columns)
    }

    fn close(self) -> Result<()> {
        let Bench { folder, store, .. } = self;
        drop(store);
        Ok(folder.close()?)
    }

    /// Closes the store and shows its folder to somebody who opens it anew.
    fn close_for<T>(self, then: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let Bench { folder, store, .. } = self;
        drop(store);
        let result = then(&folder.path().join(FOLDER))?;
        folder.close()?;
        Ok(result)
    }
}

/// Asks once to warm up, then as often as is counted.
pub(crate) fn ask<T>(
    work: &Work,
    key: &'static str,
    mut question: impl FnMut() -> Result<T>,
) -> Result<(Query, T)> {
    forget_memory();
    let mut query =
        Query { key, cpu_ms: Vec::new(), wall_ms: Vec::new(), answer_bytes: 0, memory_bytes: 0 };
    let mut answer = question()?;
    for _ in 0..work.query_rounds {
        let (cpu, wall) = (cpu_time_of_program(), wall_time());
        answer = question()?;
        query.cpu_ms.push((cpu_time_of_program() - cpu).as_secs_f64() * 1e3);
        query.wall_ms.push((wall_time() - wall).as_secs_f64() * 1e3);
    }
    query.memory_bytes = memory_bytes().unwrap_or_default();
    Ok((query, answer))
}

pub(crate) fn run(work: &Work) -> Result<Own> {
    let mut own = Own {
        figures: Figures::new(NAME),
        base_bytes: [0.0; 2],
        written_per_kept: 0.0,
        heatmap_total: (0, 0),
        twice: (0, 0),
        reads: Vec::new(),
        asked: if work.query { query::topdeck::contenders() } else { Vec::new() },
    };
    run_a(work, &mut own)?;
    run_a_base(work, &mut own)?;
    run_b(work, &mut own)?;
    if work.store {
        run_gauges(work, &mut own)?;
    }
    Ok(own)
}

fn series_of(dataset: &Dataset) -> Result<Vec<Series>> {
    let series = |at| {
        let described = dataset.series(at);
        let mut series = Series::new(described.metric, Kind::Histogram(Temporality::Delta));
        series = series.with_unit(described.unit.name());
        for (name, value) in &described.labels {
            series = series.with_label(*name, value.clone());
        }
        Ok(series.checked()?)
    };
    (0..dataset.scale().series).map(series).collect()
}

/// Bytes of batches, each with the time at which it ends.
type Batches = Vec<(i64, Vec<u8>)>;

/// Batches, encoded before anything is measured, and the truth.
fn batches(dataset: &Dataset) -> Result<(Batches, Truth)> {
    let series = series_of(dataset)?;
    let ids: Vec<_> = series.iter().map(Series::id).collect();
    let step = if series.len() == 1 { MINUTES_ALONE } else { 1 };
    let mut minutes = dataset.minutes();
    let mut batches = Vec::new();
    loop {
        let some: Vec<_> = minutes.by_ref().take(step).collect();
        let Some(end) = some.last().map(|minute| minute.end_ns) else { break };
        let mut batch = BatchWriter::default();
        for (at, series) in series.iter().enumerate() {
            match batches.is_empty() {
                true => batch.series(series),
                false => batch.known_series(ids[at], series),
            }
            for minute in &some {
                let value = Value::Histogram(Box::new(minute.histograms[at].clone()));
                batch.sample(&Sample { start: minute.start_ns, end: minute.end_ns, value })?;
            }
        }
        batches.push((end, batch.finish().bytes().to_owned()));
    }
    let truth = minutes.truth().clone();
    Ok((batches, truth))
}

fn grid(dataset: &Dataset, step: i64) -> Grid {
    let length = dataset.scale().minutes as i64 * MINUTE;
    Grid { start: dataset.start_ns(0), step, columns: (length / step).max(1) as u64 }
}

fn total(columns: &[Mixture]) -> u64 {
    columns.iter().map(Mixture::count).sum()
}

fn run_a(work: &Work, own: &mut Own) -> Result<()> {
    let dataset = &work.a;
    let (batches, truth) = batches(dataset)?;
    let bench = Bench::new(10 * MINUTE)?;
    let points = dataset.scale().minutes as u64;
    own.figures.loads.push(bench.load(SETS[0], points, &batches)?);
    own.base_bytes[0] = bench.stored(Some(Resolution::Base))? as f64 / points as f64;
    if work.query {
        query::topdeck::a(work, &bench.store, &truth, &mut own.asked)?;
    }
    if work.store {
        ask_a(work, &bench, &batches, &truth, own)?;
    }
    bench.close()
}

fn ask_a(
    work: &Work,
    bench: &Bench,
    batches: &[(i64, Vec<u8>)],
    truth: &Truth,
    own: &mut Own,
) -> Result<()> {
    let dataset = &work.a;
    let (query, columns) = ask(work, "a-heatmap", || bench.columns(grid(dataset, 90 * MINUTE)))?;
    own.figures.queries.push(query);
    own.heatmap_total = (total(&columns), truth.total().count);
    own.figures.answers.push(Answer::new(
        "A: measurements in the heatmap",
        total(&columns).to_string(),
        truth.total().count.to_string(),
    ));
    let maximum = columns
        .iter()
        .filter_map(|column| column.max())
        .map(|max| max.estimate)
        .fold(0.0, f64::max);
    own.figures.answers.push(Answer::new(
        "A: greatest measurement, ns",
        format!("{maximum}"),
        truth.total().max_ns.to_string(),
    ));

    let window = Truth::WINDOW_MINUTES as i64 * MINUTE;
    let (query, columns) = ask(work, "a-p99", || bench.columns(grid(dataset, window)))?;
    own.figures.queries.push(query);
    let mut errors: Vec<f64> = columns
        .iter()
        .zip(truth.windows())
        .filter_map(|(column, window)| {
            let (lower, upper) = window.quantile_ns(0.99)?;
            Some((column.quantile(0.99)?.estimate / ((lower + upper) as f64 / 2.0) - 1.0).abs())
        })
        .collect();
    own.figures.answers.push(errors_of(
        "A: relative error of p99 per 4 min against the middle of its true bucket, median and worst",
        &mut errors,
        "0; a bucket is up to 10 % wide",
    ));
    let below = |columns: &[Mixture]| -> Vec<f64> {
        let share = |column: &Mixture| {
            let above = column.count_above(LIMIT_NS as f64, Bound::Exclusive).estimate;
            1.0 - above as f64 / column.count() as f64
        };
        columns.iter().map(share).collect()
    };
    let (query, shares) =
        ask(work, "a-below", || Ok(below(&bench.columns(grid(dataset, window))?)))?;
    own.figures.queries.push(query);
    let mut errors: Vec<f64> = shares
        .iter()
        .zip(truth.windows())
        .map(|(share, window)| {
            (share - window.at_or_below_limit as f64 / window.count as f64).abs()
        })
        .collect();
    own.figures.answers.push(errors_of(
        "A: error of the share at or below 12.3 ms per 4 min, median and worst",
        &mut errors,
        "0",
    ));
    let mut errors: Vec<f64> = columns
        .iter()
        .zip(truth.windows())
        .map(|(column, window)| (column.count() as f64 / window.count as f64 - 1.0).abs())
        .collect();
    own.figures.answers.push(errors_of(
        "A: relative error of the count per 4 min, median and worst",
        &mut errors,
        "0",
    ));

    // Everything once more, as a sender does that did not hear the acknowledgement.
    let before = total(&bench.columns(grid(dataset, 90 * MINUTE))?);
    let mut repeated = 0;
    for (sequence, (_, bytes)) in batches.iter().enumerate() {
        let identity = Identity { producer: 1, boot: 1, sequence: sequence as u64 + 1 };
        let ack = bench.store.ingest(Some(identity), &Batch::check(bytes.clone())?, Level::Disk)?;
        repeated += u64::from(ack.repeated);
    }
    let after = total(&bench.columns(grid(dataset, 90 * MINUTE))?);
    own.twice = (before, after);
    own.figures.answers.push(Answer::new(
        &format!("A: all requests sent again; measurements, {before} before"),
        format!("{after} ({repeated} × accepted as a repeat)"),
        "no change, accepted",
    ));
    Ok(())
}

fn errors_of(question: &str, errors: &mut [f64], truth: &str) -> Answer {
    errors.sort_by(f64::total_cmp);
    let percent =
        |error: Option<&f64>| format!("{:.4} %", error.copied().unwrap_or(f64::NAN) * 100.0);
    let answer = format!("{}, {}", percent(errors.get(errors.len() / 2)), percent(errors.last()));
    Answer::new(question, answer, truth)
}

/// A without rollups: the same picture from the base, and what it takes for shorter stretches.
fn run_a_base(work: &Work, own: &mut Own) -> Result<()> {
    let dataset = &work.a;
    let (batches, _) = batches(dataset)?;
    // Nothing is rolled up for a year; what is full is sealed by hand.
    let bench = Bench::new(365 * DAY)?;
    for (sequence, (end, bytes)) in batches.iter().enumerate() {
        let identity = Identity { producer: 1, boot: 1, sequence: sequence as u64 + 1 };
        let _acknowledged =
            bench.store.ingest(Some(identity), &Batch::check(bytes.clone())?, Level::Disk)?;
        bench.now.store(*end, Ordering::Relaxed);
        if end % (6 * HOUR) == 0 {
            bench.store.seal()?;
        }
    }
    bench.store.seal()?;
    if work.query {
        query::topdeck::a_base(work, &bench.store, &mut own.asked)?;
    }
    if work.store {
        ask_a_base(work, &bench, own)?;
    }
    bench.close()
}

fn ask_a_base(work: &Work, bench: &Bench, own: &mut Own) -> Result<()> {
    let dataset = &work.a;
    let (query, _) = ask(work, "a-heatmap-base", || bench.columns(grid(dataset, 90 * MINUTE)))?;
    own.figures.queries.push(query);
    let all = grid(dataset, 90 * MINUTE);
    let length = all.step * all.columns as i64;
    for days in [1, 2, 4, 7].into_iter().filter(|days| days * DAY <= length) {
        let grid = Grid { columns: (days * DAY / all.step) as u64, ..all };
        let (query, _) = ask(work, "span", || bench.columns(grid))?;
        own.reads.push((
            format!("A from the base, {days} days"),
            (days * DAY / MINUTE) as u64,
            median(&query.cpu_ms),
        ));
    }
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn run_b(work: &Work, own: &mut Own) -> Result<()> {
    let dataset = &work.b;
    let (batches, truth) = batches(dataset)?;
    let bench = Bench::new(10 * MINUTE)?;
    let scale = dataset.scale();
    let points = (scale.minutes * scale.series) as u64;
    let load = bench.load(SETS[1], points, &batches)?;
    own.base_bytes[1] = bench.stored(Some(Resolution::Base))? as f64 / points as f64;
    let written = load.written_bytes.map_or(f64::NAN, |bytes| bytes as f64);
    own.written_per_kept = written / load.stored_bytes as f64;
    own.figures.loads.push(load);
    if work.store {
        ask_b(work, &bench, &truth, own)?;
    }
    if !work.query {
        return bench.close();
    }
    // They are many, and memory is measured.
    drop(batches);
    query::topdeck::b(work, &bench.store, &mut own.asked)?;
    let asked = &mut own.asked;
    bench.close_for(|folder| query::topdeck::b_memory(folder, asked))
}

fn ask_b(work: &Work, bench: &Bench, truth: &Truth, own: &mut Own) -> Result<()> {
    let dataset = &work.b;
    let scale = dataset.scale();
    let (query, _) = ask(work, "b-p99.9", || {
        let columns = bench.columns(grid(dataset, 5 * MINUTE))?;
        Ok(columns.iter().map(|column| column.quantile(0.999)).collect::<Vec<_>>())
    })?;
    own.figures.queries.push(query);
    let whole = grid(dataset, scale.minutes as i64 * MINUTE);
    let (query, columns) = ask(work, "b-day", || bench.columns(whole))?;
    own.figures.queries.push(query);
    own.figures.answers.push(Answer::new(
        "B: measurements of the day",
        total(&columns).to_string(),
        truth.total().count.to_string(),
    ));
    // From the base: windows of four minutes are made of no rollup.
    for part in [8, 4, 2, 1] {
        let view = bench.store.view()?;
        let mut series = view.select(&Selector::All);
        series.truncate(scale.series / part);
        let grid = grid(dataset, 4 * MINUTE);
        let (query, _) = ask(work, "series", || {
            Ok(view.histograms(&series, grid)?.collect::<store::Result<Vec<_>>>()?)
        })?;
        let rows = (series.len() * scale.minutes) as u64;
        own.reads.push((
            format!("B from the base, {} series", series.len()),
            rows,
            median(&query.cpu_ms),
        ));
    }
    Ok(())
}

fn run_gauges(work: &Work, own: &mut Own) -> Result<()> {
    let walk = Walk::new(work);
    let series: Vec<Series> = (0..walk.gauges)
        .map(|gauge| {
            let series = Series::new("load_average", Kind::Gauge);
            Ok(series.with_label("host", format!("host-{gauge:04}")).checked()?)
        })
        .collect::<Result<_>>()?;
    // As many points a batch as a request of Prometheus has.
    const MINUTES_MANY: usize = 4;
    let mut batches = Vec::new();
    for first in (0..walk.minutes).step_by(MINUTES_MANY) {
        let mut batch = BatchWriter::default();
        let minutes = first..(first + MINUTES_MANY).min(walk.minutes);
        for (gauge, series) in series.iter().enumerate() {
            match first == 0 {
                true => batch.series(series),
                false => batch.known_series(series.id(), series),
            }
            for minute in minutes.clone() {
                let at = walk.time_ms(minute) * 1_000_000;
                let value = Value::Number(walk.value(gauge, minute));
                batch.sample(&Sample { start: at, end: at, value })?;
            }
        }
        let end = walk.time_ms(minutes.end - 1) * 1_000_000;
        batches.push((end, batch.finish().bytes().to_owned()));
    }
    let bench = Bench::new(10 * MINUTE)?;
    own.figures.loads.push(bench.load(SETS[2], (walk.gauges * walk.minutes) as u64, &batches)?);
    // A gauge read on the minute belongs to the minute that ends then.
    let grid = Grid {
        start: walk.time_ms(0) * 1_000_000 - MINUTE,
        step: MINUTE,
        columns: walk.minutes as u64,
    };
    let (query, means) = ask(work, "gauges-mean", || {
        let view = bench.store.view()?;
        let series = view.select(&Selector::All);
        let mut means = Vec::new();
        for column in view.numbers(&series, grid)? {
            means.push(column?.value.and_then(|summary| summary.mean()));
        }
        Ok(means)
    })?;
    own.figures.queries.push(query);
    let minute = walk.minutes / 2;
    let truth = (0..walk.gauges).map(|gauge| walk.value(gauge, minute)).sum::<f64>();
    let found = means.get(minute).copied().flatten();
    own.figures.answers.push(Answer::new(
        "gauges: their mean in the middle",
        found.map_or("nothing".to_owned(), |found| format!("{found:.9}")),
        format!("{:.9}", truth / walk.gauges as f64),
    ));
    bench.close()
}

fn own_file(name: &str) -> Result<String> {
    let path = Path::new("/proc/self").join(name);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

fn written_bytes() -> Option<u64> {
    own_file("io").ok()?.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
}

/// Greatest resident size since [`forget_memory`], the batches that wait to be sent included.
pub(crate) fn memory_bytes() -> Option<u64> {
    let status = own_file("status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn forget_memory() {
    // Where this is not allowed, the figure is too high.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Processor seconds as points per second.
pub(crate) fn per_cpu_second(points: u64, cpu: Duration) -> f64 {
    points as f64 / cpu.as_secs_f64()
}
