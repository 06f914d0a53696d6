//! Range queries to Prometheus and to a store with the same data; the results are compared.
//!
//! `make system PART=prometheus` runs it. `TOPDECK_PROMETHEUS` names the program;
//! `TOPDECK_COMPLIANCE_QUERIES` may name a file of Prometheus' compliance tests, whose queries are
//! then run too.

mod data;
mod prometheus;
mod queries;
mod reply;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use disk::Disk;
use journal::{BatchIdentity, Level};
use model::{BatchWriter, Sample, SampleValue};
use query::{Language, QueryRequest, Settings, StoreSource, execute, promql};
use sim::SimDisk;
use store::{Options, ReadView, Store};

use self::data::{DataPoint, DataSeries, END_MS, QUERY_RANGES_MS};
use self::prometheus::PrometheusProcess;
use self::queries::ComplianceQuery;
use self::reply::ComplianceReply;

const MILLI: i64 = 1_000_000;
/// Directory of the store.
const DIR: &str = "/store";

#[test]
#[ignore = "needs TOPDECK_PROMETHEUS, a program"]
fn prometheus_gives_equal_results() {
    let program = std::env::var("TOPDECK_PROMETHEUS").expect("TOPDECK_PROMETHEUS names a program");
    let lines = data::lines();
    let store = build_store(&lines);
    let view = store.view().expect("a store can be read");
    let prometheus = PrometheusProcess::start(Path::new(&program));
    prometheus.load(&lines);
    let list = crate::data("compared.txt");
    let own = queries::read(&fs::read_to_string(list).expect("our list can be read"));
    let ours = compare("compared", &own, &prometheus, &view);
    let mut wrong = ours.wrong;
    if let Ok(path) = std::env::var("TOPDECK_COMPLIANCE_QUERIES") {
        let file = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let theirs = queries::read_compliance(&file);
        wrong += compare("compliance", &theirs, &prometheus, &view).wrong;
    }
    assert_eq!(wrong, 0, "answers differ");
    crate::at_least("compared", ours.equal);
}

/// Outcome counts of a query list.
#[derive(Default)]
struct ListOutcome {
    equal: usize,
    /// Results that differ as expected.
    known: usize,
    /// Results that differ, or agree although a difference is expected.
    wrong: usize,
    /// Queries that both reject.
    both_failed: usize,
    /// Queries with an empty result.
    empty: usize,
}

/// Runs all queries and prints unexpected outcomes.
fn compare(
    name: &str,
    asked: &[ComplianceQuery],
    prometheus: &PrometheusProcess,
    view: &ReadView,
) -> ListOutcome {
    let mut outcome = ListOutcome::default();
    for ComplianceQuery { text, differs } in asked {
        let replies = QUERY_RANGES_MS.map(|range| prometheus.query_range(text, range));
        let replies = replies.map(|body| ComplianceReply::from_json(&body));
        outcome.both_failed += usize::from(replies.iter().all(ComplianceReply::is_failed));
        outcome.empty += usize::from(replies.iter().all(ComplianceReply::is_empty));
        let mut differences = replies.iter().zip(QUERY_RANGES_MS).filter_map(|(reply, range)| {
            let found = catch_unwind(AssertUnwindSafe(|| {
                ComplianceReply::from_result(run_topdeck(view, text, range))
            }));
            found.map_or_else(|_| Some("it panics".to_owned()), |found| reply.difference(&found))
        });
        match (differences.next(), differs) {
            (None, false) => outcome.equal += 1,
            (Some(_), true) => outcome.known += 1,
            (Some(difference), false) => {
                outcome.wrong += 1;
                println!("{text}\n    {}\n", difference.trim_start());
            }
            (None, true) => {
                outcome.wrong += 1;
                println!("{text}\n    is answered alike, and known to differ\n");
            }
        }
    }
    let ListOutcome { equal: alike, known, wrong, both_failed: refused, empty } = &outcome;
    let count = asked.len();
    println!(
        "{name:<12}{alike:>5} of {count} alike ({refused} refused, {empty} empty), {known} known \
         to differ, {wrong} wrong"
    );
    outcome
}

fn run_topdeck(
    view: &ReadView,
    text: &str,
    (start, end, step): (i64, i64, i64),
) -> query::Result<query::QueryResult> {
    let options = promql::Options { standard_only: true, ..promql::Options::all() };
    let (start, end, step) = (start * MILLI, end * MILLI, step * MILLI);
    let question = QueryRequest { text, language: Language::PromQl, start, end, step, options };
    execute(&StoreSource::new(view), &question, &Settings::default(), &|| false)
}

/// Store with all series, half of it in parts and half in memory.
fn build_store(lines: &[DataSeries]) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
    Store::create(&disk, Path::new(DIR), &journal::Settings::default())
        .expect("a store can be made");
    let clock = Arc::new(|| END_MS * MILLI);
    let options = Options { has_background_thread: false, clock, ..Options::default() };
    let store = Store::open(disk, Path::new(DIR), &options).expect("a store can be opened");
    let middle = (data::START_MS + END_MS) / 2;
    for (half, times) in [i64::MIN..middle, middle..i64::MAX].into_iter().enumerate() {
        for (part, lines) in lines.chunks(20).enumerate() {
            let mut batch = BatchWriter::default();
            for line in lines {
                batch.series(&line.series);
                for (time_ms, point) in line.points.iter().filter(|point| times.contains(&point.0))
                {
                    let at = time_ms * MILLI;
                    let value = match point {
                        DataPoint::Number(number) => SampleValue::Number(*number),
                        DataPoint::Histogram(histogram) => {
                            SampleValue::Histogram(histogram.clone())
                        }
                    };
                    let sample = Sample { start: at, end: at, value };
                    batch.sample(&sample).expect("a sample is as it should be");
                }
            }
            let sequence = (half * 1_000 + part + 1) as u64;
            let identity = BatchIdentity { producer: 1, epoch: 1, sequence };
            let taken = store.ingest(Some(identity), &batch.finish(), Level::Process);
            let _acknowledged = taken.expect("a batch is taken");
        }
        store.catch_up().expect("a store takes what is in its journal");
        if half == 0 {
            store.flush().expect("rows can be flushed");
        }
    }
    store
}
