//! Queries of topdeck in this process: from the text to the answer in memory.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use disk::{Disk, OsDisk};
use query::{Language, ResultData, Settings, StepValue, StoreSource, Stream};
use store::{Options, Store};
use synthetic::{Dataset, ExpectedStats};

use super::accuracy::NumberWithBounds;
use super::contender::{self, QueryAnswer, QueryContender};
use super::query_results::QueryResults;
use super::range_query::{Dialect, RangeQuery, over_dataset};
use crate::store::topdeck::{measure_query, memory_bytes};
use crate::store::{QueryCost, StoreWork};

struct TopdeckContender<'a> {
    store: &'a Store,
    work: &'a StoreWork,
    dialect: Dialect,
}

/// Languages, in the order of [`contenders`].
const DIALECTS: [(Dialect, &str); 2] =
    [(Dialect::PromQl, "topdeck, PromQL"), (Dialect::Caql, "topdeck, CAQL")];

/// Contenders without results.
pub(crate) fn contenders() -> Vec<QueryResults> {
    DIALECTS.map(|(_, name)| QueryResults::new(name)).into()
}

/// Whether the results are those of an element of [`contenders`].
pub(super) fn is_topdeck(results: &QueryResults) -> bool {
    DIALECTS.iter().any(|(_, name)| *name == results.name)
}

impl QueryContender for TopdeckContender<'_> {
    fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn measure(
        &mut self,
        key: &'static str,
        question: &RangeQuery,
    ) -> Result<(QueryCost, QueryAnswer)> {
        let (query, answer) =
            measure_query(self.work, key, || execute(self.store, self.dialect, question))?;
        let streams = match &answer.data {
            ResultData::Matrix(streams) | ResultData::Vector(streams) => &streams[..],
            _ => &[],
        };
        let numbers = streams.iter().map(|stream| map_points(stream, number_with_bounds)).collect();
        let counts = streams.iter().flat_map(|stream| map_points(stream, count));
        Ok((query, QueryAnswer { numbers, count: counts.flatten().sum() }))
    }
}

fn execute(store: &Store, dialect: Dialect, question: &RangeQuery) -> Result<query::QueryResult> {
    let RangeQuery { text, start_ns, end_ns, step_ns } = question;
    // A window of PromQL ends at its step, one of CAQL starts there.
    let (language, start) = match dialect {
        Dialect::Caql => (Language::Caql, *start_ns),
        _ => (Language::PromQl, start_ns + step_ns),
    };
    let question = query::QueryRequest {
        text,
        language,
        start,
        end: *end_ns,
        step: *step_ns,
        options: query::promql::Options::all(),
    };
    let view = store.view()?;
    let answer =
        query::execute(&StoreSource::new(&view), &question, &Settings::default(), &|| false);
    answer.with_context(|| format!("asking {text}"))
}

fn map_points<T>(stream: &Stream, of: fn(&StepValue) -> Option<T>) -> Vec<Option<T>> {
    stream.points.iter().map(|point| point.as_ref().and_then(of)).collect()
}

fn number_with_bounds(value: &StepValue) -> Option<NumberWithBounds> {
    let bracket = value.bracket()?;
    let bounds = Some((bracket.lower, bracket.upper));
    Some(NumberWithBounds { estimate: bracket.estimate, bounds })
}

fn count(value: &StepValue) -> Option<f64> {
    match value {
        StepValue::Distribution(mixture) => Some(mixture.count() as f64),
        StepValue::Histogram(histogram) => Some(histogram.count),
        StepValue::Number(_) | StepValue::Bracket(_) => None,
    }
}

fn with_each(
    work: &StoreWork,
    store: &Store,
    all: &mut [QueryResults],
    mut questions: impl FnMut(&mut TopdeckContender<'_>, bool, &mut QueryResults) -> Result<()>,
) -> Result<()> {
    for ((dialect, _), results) in DIALECTS.into_iter().zip(all) {
        // Both languages read the same data; one suffices for the growth of the cost.
        let sweeps = dialect == Dialect::PromQl;
        // A failure of one language must not suppress the results of the other.
        if let Err(error) =
            questions(&mut TopdeckContender { store, work, dialect }, sweeps, results)
        {
            eprintln!("        {}: {error:#}", results.name);
            results.skipped.get_or_insert(format!("{error:#}").replace(['|', '\n'], " "));
        }
    }
    Ok(())
}

/// Queries of A with rollups.
pub(crate) fn run_a(
    work: &StoreWork,
    store: &Store,
    truth: &ExpectedStats,
    all: &mut [QueryResults],
) -> Result<()> {
    with_each(work, store, all, |own, sweeps, results| {
        contender::run_a(own, work, truth, sweeps, results)
    })
}

/// Queries of A without rollups.
pub(crate) fn run_a_base(work: &StoreWork, store: &Store, all: &mut [QueryResults]) -> Result<()> {
    with_each(work, store, all, |own, _, results| {
        contender::run_heatmap(own, "heat-base", work, results).map(|_| ())
    })
}

/// Queries of B.
pub(crate) fn run_b(work: &StoreWork, store: &Store, all: &mut [QueryResults]) -> Result<()> {
    with_each(work, store, all, |own, sweeps, results| contender::run_b(own, work, sweeps, results))
}

/// Memory of the query of B, in a separate process that only opens the store and runs the query:
/// this process has held all requests.
pub(crate) fn run_b_memory(dir: &Path, all: &mut [QueryResults]) -> Result<()> {
    for ((dialect, name), results) in DIALECTS.into_iter().zip(all) {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--memory-of").arg(dir);
        if dialect == Dialect::Caql {
            command.arg("--caql");
        }
        let output = command.output().context("cannot start this program again")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let bytes = text.trim().parse().with_context(|| {
            format!("{name}, memory: {}", String::from_utf8_lossy(&output.stderr).trim())
        })?;
        for timed in results.timed.iter_mut().filter(|timed| timed.query.key == "b-p99.9") {
            timed.query.memory_bytes = bytes;
        }
    }
    Ok(())
}

/// Peak resident size of this process after a query of a store with B or a part of it.
pub(crate) fn query_memory(dir: &Path, is_caql: bool) -> Result<u64> {
    let dialect = if is_caql { Dialect::Caql } else { Dialect::PromQl };
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let options = Options { has_background_thread: false, ..Options::default() };
    let store = Store::open(disk, dir, &options)?;
    let question = over_dataset(&Dataset::http(), 5, dialect.counts_of_b(None));
    let answer = execute(&store, dialect, &question)?;
    let ResultData::Matrix(streams) = &answer.data else { bail!("the response is not a matrix") };
    let found =
        streams.iter().flat_map(|stream| map_points(stream, number_with_bounds)).flatten().count();
    ensure!(found > 0, "the store does not contain B");
    memory_bytes().context("no VmHWM in /proc")
}
