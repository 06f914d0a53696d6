//! Stores of whole histograms: ingest, disk space, and queries, compared with other stores.
//!
//! Each store gets the data sets A and B of `synthetic` and a thousand gauges, and returns its cost
//! as [`StoreFigures`]. A store is a file with a function that returns them, such as
//! `prometheus.rs`.

mod figures;
pub(crate) mod http;
pub(crate) mod lockstep;
pub(crate) mod prometheus;
pub(crate) mod remote_write;
pub(crate) mod server;
pub(crate) mod topdeck;
mod window_errors;

use synthetic::{Dataset, DatasetKind, DatasetScale};

use self::figures::{CheckedAnswer, IngestCost, QUERIES, SETS};
pub(crate) use self::figures::{QueryCost, StoreFigures};
use crate::Effort;
use crate::query::QueryResults;
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples, number};

const METHOD: &str = "Data set A is one disk over a week: 10,080 one-minute histograms with 373 \
                      used buckets and 1,226,742,335 measurements in total. B is 1,000 series of \
                      a web service over a day: 1,440,000 histograms with 134.5 used buckets. \
                      `topdeck gen` generates both, so the exact values are known. The third set \
                      is 1,000 gauges over a day, one number per minute. Each set is sent to a \
                      server that has just been started with an empty directory, over HTTP on this \
                      machine, in requests that were encoded before; A over one connection, B \
                      and the gauges over two. The store of topdeck runs in the process of the \
                      benchmark, gets the same data as encoded batches, and validates them like \
                      foreign bytes; its CPU time is that of all threads of the process. So its \
                      figures exclude HTTP and JSON, and its memory includes the queued batches. \
                      A query of topdeck returns count, p99 and maximum of each column.\n\nCPU \
                      time is that of the server, user and system: of ingest, in steps of 10 ms, \
                      until the last acknowledgement, and until the server was idle again (which \
                      includes compaction); of a query, as the scheduler counts its threads. \
                      “Written” is the number of bytes written to the device, including log and \
                      compaction. “Stored” is the size of the blocks when all data are in \
                      blocks. Memory is the peak resident size, reset before the queries. \
                      Queries are medians of their runs after one that is not \
                      counted.\n\nPrometheus gets cumulative native histograms of schema 5 (2.2 \
                      % per bucket, 106 per decade, the closest to the 90 per decade of the \
                      data); each source bucket is moved as a whole to the bucket of its middle; \
                      remote write 1.0, Snappy. It runs with default settings except for a long \
                      retention and experimental functions, which `query` uses. Its histograms \
                      have no minimum and no maximum. “Gauge histograms” sends A as one gauge \
                      histogram per minute and sums them over time: its clients do not do that, \
                      but counts are then exact.";

/// Parts of the data sets in a run, and number of query rounds.
pub(crate) struct StoreWork {
    pub(crate) a: Dataset,
    pub(crate) b: Dataset,
    pub(crate) gauges: usize,
    pub(crate) gauge_minutes: usize,
    pub(crate) query_rounds: usize,
    pub(crate) quick: bool,
    /// Whether to run the comparison of this file on the loaded store, and that of `query.rs`.
    pub(crate) store: bool,
    pub(crate) query: bool,
}

/// Rounds of a query: some servers need seconds for each.
const QUERY_ROUNDS: usize = 5;
const QUERY_ROUNDS_QUICK: usize = 2;

impl StoreWork {
    fn new(effort: &Effort, store: bool, query: bool) -> StoreWork {
        let (a, b) = (DatasetScale::full(DatasetKind::Disk), DatasetScale::full(DatasetKind::Http));
        let (a, b) = match (effort.quick, store) {
            (true, true) => (
                DatasetScale { minutes: 1_440, ..a },
                DatasetScale { series: 100, minutes: 360, ..b },
            ),
            // As much as Prometheus keeps without compaction, so that none is awaited.
            (true, false) => {
                (DatasetScale { minutes: 180, ..a }, DatasetScale { series: 80, minutes: 60, ..b })
            }
            (false, _) => (a, b),
        };
        StoreWork {
            a: Dataset::new(DatasetKind::Disk, a),
            b: Dataset::new(DatasetKind::Http, b),
            gauges: if effort.quick { 100 } else { 1_000 },
            gauge_minutes: 1_440,
            query_rounds: if effort.quick { QUERY_ROUNDS_QUICK } else { QUERY_ROUNDS },
            quick: effort.quick,
            store,
            query,
        }
    }
}

/// Random walks: typical gauge values.
pub(crate) struct RandomWalk {
    pub(crate) gauges: usize,
    pub(crate) minutes: usize,
    values: Vec<f64>,
    start_ms: i64,
}

impl RandomWalk {
    pub(crate) fn new(work: &StoreWork) -> RandomWalk {
        let (gauges, minutes) = (work.gauges, work.gauge_minutes);
        // SplitMix64, as in `synthetic`; a step changes the value by at most 0.05.
        let mut state = 2026u64;
        let mut step = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 / 10.0 - 0.05
        };
        let mut values = Vec::with_capacity(gauges * minutes);
        for gauge in 0..gauges {
            let mut value = 1.0 + gauge as f64 / 100.0;
            for _ in 0..minutes {
                value += step();
                values.push(value);
            }
        }
        RandomWalk { gauges, minutes, values, start_ms: work.b.start_ns(0) / 1_000_000 }
    }

    pub(crate) fn value(&self, gauge: usize, minute: usize) -> f64 {
        self.values[gauge * self.minutes + minute]
    }

    pub(crate) fn time_ms(&self, minute: usize) -> i64 {
        self.start_ms + minute as i64 * 60_000
    }
}

/// The requested sections: stores, queries, or both.
pub(crate) fn run(effort: &Effort, store: bool, query: bool) -> Vec<ReportSection> {
    let work = StoreWork::new(effort, store, query);
    let own = topdeck::run(&work);
    let mut results = Vec::new();
    let mut all = Vec::new();
    let own = match own {
        Ok(mut own) => {
            results.append(&mut own.query_results);
            Some(own)
        }
        Err(error) => {
            eprintln!("        {}: {error:#}", topdeck::NAME);
            all.push(StoreFigures::skipped(topdeck::NAME, &format!("failed: {error:#}")));
            None
        }
    };
    let stores = [
        (prometheus::name(), prometheus::run(&work)),
        (prometheus::name_gauge(), prometheus::run_a_as_gauges(&work)),
    ];
    for (name, figures) in stores {
        match figures {
            Ok((figures, of_query)) => {
                all.push(figures);
                results.push(of_query);
            }
            Err(error) => {
                let why = format!("{error:#}").replace(['|', '\n'], " ");
                eprintln!("        {name}: {why}");
                all.push(StoreFigures::skipped(&name, &format!("skipped: {why}")));
                results.push(QueryResults::skipped(&name, &why));
            }
        }
    }
    let mut sections = Vec::new();
    if store {
        sections.push(section(&work, own, all));
    }
    if query {
        sections.push(crate::query::section(&work, &results));
    }
    sections
}

fn section(
    work: &StoreWork,
    own: Option<topdeck::TopdeckFigures>,
    mut all: Vec<StoreFigures>,
) -> ReportSection {
    let mut section = ReportSection {
        name: crate::STORE,
        title: "Store: ingest and queries",
        method: METHOD.to_owned(),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    if work.quick {
        section.method += "\n\nQuick run: one day of A, 100 series and six hours of B, 100 gauges.";
    }
    if let Some(own) = own {
        section.targets = targets(&own, &all);
        section.tables.push(reads_table(&own));
        all.insert(0, own.figures);
    }
    section.tables.push(loads_table(&all));
    section.tables.push(queries_table(&all));
    section.tables.push(checked_answers_table(&all));
    section.samples = samples(&all);
    section
}

/// Targets of topdeck; for gauges, at most the cost of Prometheus.
fn targets(own: &topdeck::TopdeckFigures, peers: &[StoreFigures]) -> Vec<ReportTarget> {
    let figures = &own.figures;
    let cpu_ms = |figures: &StoreFigures, key: &str| {
        let mut samples = Samples::new("", "");
        samples.values = figures.queries.iter().find(|query| query.key == key)?.cpu_ms.clone();
        Some(samples.median())
    };
    let load = |figures: &StoreFigures, set: &str| {
        let load = figures.loads.iter().find(|load| load.set == set)?;
        Some((load.points, load.cpu, load.cpu_until_idle))
    };
    let rate = |idle: bool| {
        let (points, cpu, until_idle) = load(figures, SETS[1])?;
        Some(topdeck::per_cpu_second(points, if idle { until_idle } else { cpu }))
    };
    let prometheus = peers.iter().find(|peer| peer.loads.len() > 1);
    let ratio = |of: &dyn Fn(&StoreFigures) -> Option<f64>| Some(of(figures)? / of(prometheus?)?);
    let each = |figures: &StoreFigures| {
        load(figures, SETS[2]).map(|(points, cpu, _)| cpu.as_secs_f64() / points as f64)
    };
    let equal = |what: &str, pair: (u64, u64)| {
        ReportTarget::at_most(what, 0.0, "difference", Some(pair.0.abs_diff(pair.1) as f64))
    };
    vec![
        ReportTarget::at_most(
            "A: the week as 112 columns, from the base",
            15.0,
            "ms of CPU",
            cpu_ms(figures, "a-heatmap-base"),
        ),
        ReportTarget::at_most(
            "A: the same from rollups",
            3.0,
            "ms of CPU",
            cpu_ms(figures, "a-heatmap"),
        ),
        ReportTarget::at_most("A: stored, base", 300.0, "B/histogram", Some(own.base_bytes[0])),
        ReportTarget::at_most(
            "B: the day as one histogram",
            30.0,
            "ms of CPU",
            cpu_ms(figures, "b-day"),
        ),
        ReportTarget::at_most("B: stored, base", 72.0, "B/histogram", Some(own.base_bytes[1])),
        ReportTarget::at_least(
            "B: ingest, to the last acknowledgement",
            80_000.0,
            "histograms per CPU s",
            rate(false),
        ),
        ReportTarget::at_least(
            "B: the same until rollups are complete",
            80_000.0,
            "histograms per CPU s",
            rate(true),
        ),
        ReportTarget::at_most(
            "B: written per stored byte",
            2.5,
            "B/B",
            Some(own.write_amplification),
        ),
        equal("A: total of the heatmap", own.heatmap_total),
        equal("A: everything sent twice", own.resent),
        ReportTarget::at_most(
            "gauges: ingest, relative to Prometheus' CPU",
            1.0,
            "×",
            ratio(&each),
        ),
        ReportTarget::at_most(
            "gauges: range query, relative to Prometheus' CPU",
            1.0,
            "×",
            ratio(&|figures| cpu_ms(figures, "gauges-mean")),
        ),
    ]
}

fn reads_table(own: &topdeck::TopdeckFigures) -> ReportTable {
    let header = ["what", "rows merged", "CPU ms", "ns a row"];
    let mut table =
        ReportTable::new("Reads from the base, by number of merged points.", 1, &header);
    for (what, rows, cpu_ms) in &own.reads {
        let each = number(cpu_ms * 1e6 / *rows as f64);
        table.rows.push(vec![what.clone(), rows.to_string(), number(*cpu_ms), each]);
    }
    table
}

fn loads_table(all: &[StoreFigures]) -> ReportTable {
    let header = [
        "store",
        "data",
        "points",
        "sent B/point",
        "CPU µs/point, to the last ack",
        "until idle",
        "points/s of wall time",
        "written B/point",
        "stored B/point",
        "memory MB",
    ];
    let mut table = ReportTable::new("Ingest; a point is a histogram or a number.", 2, &header);
    for figures in all {
        if let Some(why) = &figures.skipped {
            table.rows.push(padded(vec![figures.name.clone(), why.clone()], header.len()));
        }
        for load in &figures.loads {
            let each = |total: f64| number(total / load.points as f64);
            table.rows.push(vec![
                figures.name.clone(),
                load.set.to_owned(),
                load.points.to_string(),
                each(load.sent_bytes as f64),
                each(load.cpu.as_secs_f64() * 1e6),
                each(load.cpu_until_idle.as_secs_f64() * 1e6),
                number(load.points as f64 / load.wall.as_secs_f64()),
                load.written_bytes.map_or("not known".to_owned(), |bytes| each(bytes as f64)),
                each(load.stored_bytes as f64),
                number(load.memory_bytes as f64 / 1e6),
            ]);
        }
    }
    table
}

fn queries_table(all: &[StoreFigures]) -> ReportTable {
    let header = ["query", "store", "CPU ms", "wall ms", "answer kB", "memory MB"];
    let mut table = ReportTable::new("Queries: median (min–max).", 2, &header);
    for (key, about) in QUERIES {
        for figures in all {
            let Some(query) = figures.queries.iter().find(|query| query.key == key) else {
                continue;
            };
            let cell = |values: &[f64]| {
                let mut samples = Samples::new("", "");
                samples.values = values.to_vec();
                samples.cell()
            };
            table.rows.push(vec![
                about.to_owned(),
                figures.name.clone(),
                cell(&query.cpu_ms),
                cell(&query.wall_ms),
                number(query.answer_bytes as f64 / 1e3),
                number(query.memory_bytes as f64 / 1e6),
            ]);
        }
    }
    table
}

fn checked_answers_table(all: &[StoreFigures]) -> ReportTable {
    let mut table =
        ReportTable::new("Correctness of the answers.", 3, &["query", "store", "answer", "exact"]);
    for figures in all {
        for CheckedAnswer { question, answer, expected: truth } in &figures.answers {
            let row = [question, &figures.name, answer, truth];
            table.rows.push(row.map(Clone::clone).to_vec());
        }
    }
    table
}

fn padded(mut row: Vec<String>, width: usize) -> Vec<String> {
    row.resize(width, "–".to_owned());
    row
}

fn samples(all: &[StoreFigures]) -> Vec<(String, Vec<Samples>)> {
    let row = |name: &str, values: Vec<f64>| {
        let mut samples = Samples::new(name, "");
        samples.values = values;
        samples
    };
    let mut sets = Vec::new();
    type Figure = (&'static str, fn(&IngestCost) -> f64);
    const FIGURES: [Figure; 4] = [
        ("CPU until idle, µs per point", |load| load.cpu_until_idle.as_secs_f64() * 1e6),
        ("CPU to the last ack, µs per point", |load| load.cpu.as_secs_f64() * 1e6),
        ("stored, bytes per point", |load| load.stored_bytes as f64),
        ("written, bytes per point", |load| load.written_bytes.map_or(f64::NAN, |b| b as f64)),
    ];
    for (what, figure) in FIGURES {
        let each = |load: &IngestCost| figure(load) / load.points as f64;
        for set in all.iter().flat_map(|one| &one.loads).map(|load| load.set) {
            let of = |one: &StoreFigures| {
                let load = one.loads.iter().find(|load| load.set == set)?;
                Some(row(&one.name, vec![each(load)]))
            };
            sets.push((format!("{set}, {what}"), all.iter().filter_map(of).collect()));
        }
    }
    for (key, _) in QUERIES {
        let of = |one: &StoreFigures, take: fn(&QueryCost) -> &Vec<f64>| {
            let query = one.queries.iter().find(|query| query.key == key)?;
            Some(row(&one.name, take(query).clone()))
        };
        let cpu = all.iter().filter_map(|one| of(one, |query| &query.cpu_ms)).collect();
        let wall = all.iter().filter_map(|one| of(one, |query| &query.wall_ms)).collect();
        sets.push((format!("{key}, CPU ms"), cpu));
        sets.push((format!("{key}, wall ms"), wall));
    }
    sets.sort_by(|a, b| a.0.cmp(&b.0));
    sets.dedup_by(|a, b| a.0 == b.0);
    sets
}
