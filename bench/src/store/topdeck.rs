//! The store of topdeck in this process: cost from the bytes of a batch to a durable
//! acknowledgement, and from a selector to the statistics of each column. It excludes HTTP, so CPU
//! time is compared; that of the peers includes the rest of a server.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use disk::{Disk, OsDisk};
use hist::codec::header::Temporality;
use hist::{LimitInclusion, Mixture};
use journal::{BatchIdentity, Level};
use model::{Batch, BatchWriter, Sample, SampleValue, Selector, Series, SeriesKind};
use store::{DAY, HOUR, MINUTE, Options, Resolution, Store, TimeGrid};
use synthetic::{Dataset, ExpectedStats, THRESHOLD_NS};
use tempfile::TempDir;

use super::figures::{CheckedAnswer, IngestCost, QueryCost, SETS, StoreFigures};
use super::{RandomWalk, StoreWork};
use crate::clock::{cpu_time_of_program, wall_time};
use crate::journal::scratch;
use crate::query::{self, QueryResults};

pub(crate) const NAME: &str = "topdeck";
/// Minutes per batch with one series; otherwise a batch contains all series of a minute.
const MINUTES_ALONE: usize = 60;
/// In the directory of a [`StoreBench`].
const DIR: &str = "store";

/// Figures that only topdeck has.
pub(crate) struct TopdeckFigures {
    pub(crate) figures: StoreFigures,
    /// Bytes of the base alone, per histogram of A and of B.
    pub(crate) base_bytes: [f64; 2],
    pub(crate) write_amplification: f64,
    pub(crate) heatmap_total: (u64, u64),
    pub(crate) resent: (u64, u64),
    /// Query, rows merged, and CPU milliseconds.
    pub(crate) reads: Vec<(String, u64, f64)>,
    /// Query results by language.
    pub(crate) query_results: Vec<QueryResults>,
}

/// A store with its own directory and a clock that follows the data.
pub(crate) struct StoreBench {
    directory: TempDir,
    now: Arc<AtomicI64>,
    pub(crate) store: Store,
}

impl StoreBench {
    fn new(grace: i64) -> Result<StoreBench> {
        let directory = scratch::dir()?;
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let dir = directory.path().join(DIR);
        let limits = journal::Limits { bytes_max: None, ..journal::Settings::default().limits };
        let settings = journal::Settings {
            compression: journal::Compression::Zstd,
            limits,
            ..Default::default()
        };
        Store::create(&disk, &dir, &settings)?;
        let now = Arc::new(AtomicI64::new(0));
        let clock = Arc::clone(&now);
        let options = Options {
            has_background_thread: false,
            late_grace: grace,
            clock: Arc::new(move || clock.load(Ordering::Relaxed)),
            ..Options::default()
        };
        Ok(StoreBench { store: Store::open(disk, &dir, &options)?, directory, now })
    }

    /// Ingests batches, each with its end time, and runs the maintenance that a server would.
    fn load(
        &self,
        set: &'static str,
        points: u64,
        batches: &[(i64, Vec<u8>)],
    ) -> Result<IngestCost> {
        forget_memory();
        let (cpu, wall, written) = (cpu_time_of_program(), wall_time(), written_bytes());
        for (sequence, (end, bytes)) in batches.iter().enumerate() {
            let batch = Batch::decode(bytes.clone())?;
            let identity = BatchIdentity { producer: 1, epoch: 1, sequence: sequence as u64 + 1 };
            let _acknowledged = self.store.ingest(Some(identity), &batch, Level::Disk)?;
            self.now.store(*end, Ordering::Relaxed);
            self.store.maintain()?;
        }
        let (cpu_acknowledged, passed) = (cpu_time_of_program() - cpu, wall_time() - wall);
        let end = batches.last().map_or(0, |batch| batch.0);
        self.now.store(end + DAY, Ordering::Relaxed);
        self.store.flush()?;
        self.store.maintain()?;
        let after = written_bytes();
        Ok(IngestCost {
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

    /// Merged columns of all series, and three statistics of each, as for a chart.
    fn columns(&self, grid: TimeGrid) -> Result<Vec<Mixture>> {
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
        let StoreBench { directory, store, .. } = self;
        drop(store);
        Ok(directory.close()?)
    }

    /// Closes the store and passes its directory to a function that opens it again.
    fn close_and<T>(self, then: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let StoreBench { directory, store, .. } = self;
        drop(store);
        let result = then(&directory.path().join(DIR))?;
        directory.close()?;
        Ok(result)
    }
}

/// Runs a query once to warm up, then for each counted round.
pub(crate) fn measure_query<T>(
    work: &StoreWork,
    key: &'static str,
    mut question: impl FnMut() -> Result<T>,
) -> Result<(QueryCost, T)> {
    forget_memory();
    let mut query = QueryCost {
        key,
        cpu_ms: Vec::new(),
        wall_ms: Vec::new(),
        answer_bytes: 0,
        memory_bytes: 0,
    };
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

pub(crate) fn run(work: &StoreWork) -> Result<TopdeckFigures> {
    let mut own = TopdeckFigures {
        figures: StoreFigures::new(NAME),
        base_bytes: [0.0; 2],
        write_amplification: 0.0,
        heatmap_total: (0, 0),
        resent: (0, 0),
        reads: Vec::new(),
        query_results: if work.query { query::topdeck::contenders() } else { Vec::new() },
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
        let mut series = Series::new(described.metric, SeriesKind::Histogram(Temporality::Delta));
        series = series.with_unit(decode::Unit::Nanoseconds.name());
        for (name, value) in &described.labels {
            series = series.with_label(*name, value.clone());
        }
        Ok(series.validate()?)
    };
    (0..dataset.scale().series).map(series).collect()
}

/// Encoded batches, each with its end time.
type EncodedBatches = Vec<(i64, Vec<u8>)>;

/// Batches, encoded before the measurement, and the expected values.
fn batches(dataset: &Dataset) -> Result<(EncodedBatches, ExpectedStats)> {
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
                false => batch.series_by_id(ids[at], series),
            }
            for minute in &some {
                let value = SampleValue::Histogram(Box::new(minute.histograms[at].clone()));
                batch.sample(&Sample { start: minute.start_ns, end: minute.end_ns, value })?;
            }
        }
        batches.push((end, batch.finish().bytes().to_owned()));
    }
    let truth = minutes.expected().clone();
    Ok((batches, truth))
}

fn grid(dataset: &Dataset, step: i64) -> TimeGrid {
    let length = dataset.scale().minutes as i64 * MINUTE;
    TimeGrid { start: dataset.start_ns(0), step, columns: (length / step).max(1) as u64 }
}

fn total(columns: &[Mixture]) -> u64 {
    columns.iter().map(Mixture::count).sum()
}

fn run_a(work: &StoreWork, own: &mut TopdeckFigures) -> Result<()> {
    let dataset = &work.a;
    let (batches, truth) = batches(dataset)?;
    let bench = StoreBench::new(10 * MINUTE)?;
    let points = dataset.scale().minutes as u64;
    own.figures.loads.push(bench.load(SETS[0], points, &batches)?);
    own.base_bytes[0] = bench.stored(Some(Resolution::Base))? as f64 / points as f64;
    if work.query {
        query::topdeck::run_a(work, &bench.store, &truth, &mut own.query_results)?;
    }
    if work.store {
        query_a(work, &bench, &batches, &truth, own)?;
    }
    bench.close()
}

fn query_a(
    work: &StoreWork,
    bench: &StoreBench,
    batches: &[(i64, Vec<u8>)],
    truth: &ExpectedStats,
    own: &mut TopdeckFigures,
) -> Result<()> {
    let dataset = &work.a;
    let (query, columns) =
        measure_query(work, "a-heatmap", || bench.columns(grid(dataset, 90 * MINUTE)))?;
    own.figures.queries.push(query);
    own.heatmap_total = (total(&columns), truth.total().count);
    own.figures.answers.push(CheckedAnswer::new(
        "A: measurements in the heatmap",
        total(&columns).to_string(),
        truth.total().count.to_string(),
    ));
    let maximum = columns
        .iter()
        .filter_map(|column| column.max())
        .map(|max| max.estimate)
        .fold(0.0, f64::max);
    own.figures.answers.push(CheckedAnswer::new(
        "A: maximum, ns",
        format!("{maximum}"),
        truth.total().max_ns.to_string(),
    ));

    let window = ExpectedStats::WINDOW_MINUTES as i64 * MINUTE;
    let (query, columns) = measure_query(work, "a-p99", || bench.columns(grid(dataset, window)))?;
    own.figures.queries.push(query);
    let mut errors: Vec<f64> = columns
        .iter()
        .zip(truth.windows())
        .filter_map(|(column, window)| {
            let (lower, upper) = window.quantile_ns(0.99)?;
            Some((column.quantile(0.99)?.estimate / ((lower + upper) as f64 / 2.0) - 1.0).abs())
        })
        .collect();
    own.figures.answers.push(quantile_error_answer(
        "A: relative error of p99 per 4 min relative to the middle of its exact bucket, median \
         and worst",
        &mut errors,
        "0; a bucket is up to 10 % wide",
    ));
    let below = |columns: &[Mixture]| -> Vec<f64> {
        let share = |column: &Mixture| {
            let above = column.count_above(THRESHOLD_NS as f64, LimitInclusion::Exclusive).estimate;
            1.0 - above as f64 / column.count() as f64
        };
        columns.iter().map(share).collect()
    };
    let (query, shares) =
        measure_query(work, "a-below", || Ok(below(&bench.columns(grid(dataset, window))?)))?;
    own.figures.queries.push(query);
    let mut errors: Vec<f64> = shares
        .iter()
        .zip(truth.windows())
        .map(|(share, window)| {
            (share - window.at_or_below_threshold as f64 / window.count as f64).abs()
        })
        .collect();
    own.figures.answers.push(quantile_error_answer(
        "A: error of the share at or below 12.3 ms per 4 min, median and worst",
        &mut errors,
        "0",
    ));
    let mut errors: Vec<f64> = columns
        .iter()
        .zip(truth.windows())
        .map(|(column, window)| (column.count() as f64 / window.count as f64 - 1.0).abs())
        .collect();
    own.figures.answers.push(quantile_error_answer(
        "A: relative error of the count per 4 min, median and worst",
        &mut errors,
        "0",
    ));

    // Sends everything again, like a sender that missed the acknowledgements.
    let before = total(&bench.columns(grid(dataset, 90 * MINUTE))?);
    let mut repeated = 0;
    for (sequence, (_, bytes)) in batches.iter().enumerate() {
        let identity = BatchIdentity { producer: 1, epoch: 1, sequence: sequence as u64 + 1 };
        let ack =
            bench.store.ingest(Some(identity), &Batch::decode(bytes.clone())?, Level::Disk)?;
        repeated += u64::from(ack.is_duplicate);
    }
    let after = total(&bench.columns(grid(dataset, 90 * MINUTE))?);
    own.resent = (before, after);
    own.figures.answers.push(CheckedAnswer::new(
        &format!("A: all requests sent again; measurements, {before} before"),
        format!("{after} ({repeated} × accepted as a duplicate)"),
        "no change, accepted",
    ));
    Ok(())
}

fn quantile_error_answer(question: &str, errors: &mut [f64], truth: &str) -> CheckedAnswer {
    errors.sort_by(f64::total_cmp);
    let percent =
        |error: Option<&f64>| format!("{:.4} %", error.copied().unwrap_or(f64::NAN) * 100.0);
    let answer = format!("{}, {}", percent(errors.get(errors.len() / 2)), percent(errors.last()));
    CheckedAnswer::new(question, answer, truth)
}

/// A without rollups: the same chart from the base, and the cost of shorter intervals.
fn run_a_base(work: &StoreWork, own: &mut TopdeckFigures) -> Result<()> {
    let dataset = &work.a;
    let (batches, _) = batches(dataset)?;
    // No rollups for a year; full heads are flushed explicitly.
    let bench = StoreBench::new(365 * DAY)?;
    for (sequence, (end, bytes)) in batches.iter().enumerate() {
        let identity = BatchIdentity { producer: 1, epoch: 1, sequence: sequence as u64 + 1 };
        let _acknowledged =
            bench.store.ingest(Some(identity), &Batch::decode(bytes.clone())?, Level::Disk)?;
        bench.now.store(*end, Ordering::Relaxed);
        if end % (6 * HOUR) == 0 {
            bench.store.flush()?;
        }
    }
    bench.store.flush()?;
    if work.query {
        query::topdeck::run_a_base(work, &bench.store, &mut own.query_results)?;
    }
    if work.store {
        query_a_base(work, &bench, own)?;
    }
    bench.close()
}

fn query_a_base(work: &StoreWork, bench: &StoreBench, own: &mut TopdeckFigures) -> Result<()> {
    let dataset = &work.a;
    let (query, _) =
        measure_query(work, "a-heatmap-base", || bench.columns(grid(dataset, 90 * MINUTE)))?;
    own.figures.queries.push(query);
    let all = grid(dataset, 90 * MINUTE);
    let length = all.step * all.columns as i64;
    for days in [1, 2, 4, 7].into_iter().filter(|days| days * DAY <= length) {
        let grid = TimeGrid { columns: (days * DAY / all.step) as u64, ..all };
        let (query, _) = measure_query(work, "span", || bench.columns(grid))?;
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

fn run_b(work: &StoreWork, own: &mut TopdeckFigures) -> Result<()> {
    let dataset = &work.b;
    let (batches, truth) = batches(dataset)?;
    let bench = StoreBench::new(10 * MINUTE)?;
    let scale = dataset.scale();
    let points = (scale.minutes * scale.series) as u64;
    let load = bench.load(SETS[1], points, &batches)?;
    own.base_bytes[1] = bench.stored(Some(Resolution::Base))? as f64 / points as f64;
    let written = load.written_bytes.map_or(f64::NAN, |bytes| bytes as f64);
    own.write_amplification = written / load.stored_bytes as f64;
    own.figures.loads.push(load);
    if work.store {
        query_b(work, &bench, &truth, own)?;
    }
    if !work.query {
        return bench.close();
    }
    // Frees them, because memory is measured.
    drop(batches);
    query::topdeck::run_b(work, &bench.store, &mut own.query_results)?;
    let results = &mut own.query_results;
    bench.close_and(|directory| query::topdeck::run_b_memory(directory, results))
}

fn query_b(
    work: &StoreWork,
    bench: &StoreBench,
    truth: &ExpectedStats,
    own: &mut TopdeckFigures,
) -> Result<()> {
    let dataset = &work.b;
    let scale = dataset.scale();
    let (query, _) = measure_query(work, "b-p99.9", || {
        let columns = bench.columns(grid(dataset, 5 * MINUTE))?;
        Ok(columns.iter().map(|column| column.quantile(0.999)).collect::<Vec<_>>())
    })?;
    own.figures.queries.push(query);
    let whole = grid(dataset, scale.minutes as i64 * MINUTE);
    let (query, columns) = measure_query(work, "b-day", || bench.columns(whole))?;
    own.figures.queries.push(query);
    own.figures.answers.push(CheckedAnswer::new(
        "B: measurements of the day",
        total(&columns).to_string(),
        truth.total().count.to_string(),
    ));
    // From the base: no rollup fits windows of four minutes.
    for part in [8, 4, 2, 1] {
        let view = bench.store.view()?;
        let mut series = view.select(&Selector::All);
        series.truncate(scale.series / part);
        let grid = grid(dataset, 4 * MINUTE);
        let (query, _) = measure_query(work, "series", || {
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

fn run_gauges(work: &StoreWork, own: &mut TopdeckFigures) -> Result<()> {
    let walk = RandomWalk::new(work);
    let series: Vec<Series> = (0..walk.gauges)
        .map(|gauge| {
            let series = Series::new("load_average", SeriesKind::Gauge);
            Ok(series.with_label("host", format!("host-{gauge:04}")).validate()?)
        })
        .collect::<Result<_>>()?;
    // As many points per batch as in a request to Prometheus.
    const MINUTES_MANY: usize = 4;
    let mut batches = Vec::new();
    for first in (0..walk.minutes).step_by(MINUTES_MANY) {
        let mut batch = BatchWriter::default();
        let minutes = first..(first + MINUTES_MANY).min(walk.minutes);
        for (gauge, series) in series.iter().enumerate() {
            match first == 0 {
                true => batch.series(series),
                false => batch.series_by_id(series.id(), series),
            }
            for minute in minutes.clone() {
                let at = walk.time_ms(minute) * 1_000_000;
                let value = SampleValue::Number(walk.value(gauge, minute));
                batch.sample(&Sample { start: at, end: at, value })?;
            }
        }
        let end = walk.time_ms(minutes.end - 1) * 1_000_000;
        batches.push((end, batch.finish().bytes().to_owned()));
    }
    let bench = StoreBench::new(10 * MINUTE)?;
    own.figures.loads.push(bench.load(SETS[2], (walk.gauges * walk.minutes) as u64, &batches)?);
    // A gauge sample on the minute belongs to the minute that ends there.
    let grid = TimeGrid {
        start: walk.time_ms(0) * 1_000_000 - MINUTE,
        step: MINUTE,
        columns: walk.minutes as u64,
    };
    let (query, means) = measure_query(work, "gauges-mean", || {
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
    own.figures.answers.push(CheckedAnswer::new(
        "gauges: mean at the middle",
        found.map_or("nothing".to_owned(), |found| format!("{found:.9}")),
        format!("{:.9}", truth / walk.gauges as f64),
    ));
    bench.close()
}

fn self_proc_file(name: &str) -> Result<String> {
    let path = Path::new("/proc/self").join(name);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

fn written_bytes() -> Option<u64> {
    self_proc_file("io")
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
}

/// Peak resident size since [`forget_memory`], including queued batches.
pub(crate) fn memory_bytes() -> Option<u64> {
    let status = self_proc_file("status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn forget_memory() {
    // Without permission the figure is too high.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Points per CPU second.
pub(crate) fn per_cpu_second(points: u64, cpu: Duration) -> f64 {
    points as f64 / cpu.as_secs_f64()
}
