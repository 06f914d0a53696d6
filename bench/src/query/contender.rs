//! The queries in order, equal for all contenders.

use anyhow::{Result, ensure};
use synthetic::ExpectedStats;

use super::accuracy::{self, NumberWithBounds, compare_windows};
use super::query_results::{QueryResults, SweepPoint, TimedQuery};
use super::range_query::{self, Dialect, RangeQuery, over_dataset};
use crate::store::{QueryCost, StoreWork};

/// Runs queries.
pub(crate) trait QueryContender {
    fn dialect(&self) -> Dialect;

    /// Runs a query once to warm up, then for each counted round.
    fn measure(
        &mut self,
        key: &'static str,
        question: &RangeQuery,
    ) -> Result<(QueryCost, QueryAnswer)>;
}

/// Values of an answer.
pub(crate) struct QueryAnswer {
    /// By stream: a number per step, if it has one.
    pub(crate) numbers: Vec<Vec<Option<NumberWithBounds>>>,
    /// Measurements in all histograms.
    pub(crate) count: f64,
}

impl QueryAnswer {
    /// The numbers of the only stream, in another unit.
    fn only(&self, factor: f64) -> Result<Vec<Option<NumberWithBounds>>> {
        ensure!(self.numbers.len() == 1, "{} streams instead of one", self.numbers.len());
        let scaled = |found: &Option<NumberWithBounds>| found.map(|found| found.scaled(factor));
        Ok(self.numbers[0].iter().map(scaled).collect())
    }
}

fn run_timed(
    contender: &mut dyn QueryContender,
    key: &'static str,
    question: RangeQuery,
    results: &mut QueryResults,
) -> Result<QueryAnswer> {
    let (query, answer) = contender.measure(key, &question)?;
    results.timed.push(TimedQuery { text: question.text, query });
    Ok(answer)
}

/// Queries the heatmap of A, from whatever resolution the store has.
pub(crate) fn run_heatmap(
    contender: &mut dyn QueryContender,
    key: &'static str,
    work: &StoreWork,
    results: &mut QueryResults,
) -> Result<f64> {
    let question = over_dataset(&work.a, 90, contender.dialect().heatmap());
    Ok(run_timed(contender, key, question, results)?.count)
}

/// Runs all queries of A; those of varying size only if `sweeps` is set.
pub(crate) fn run_a(
    contender: &mut dyn QueryContender,
    work: &StoreWork,
    truth: &ExpectedStats,
    sweeps: bool,
    results: &mut QueryResults,
) -> Result<()> {
    let (dataset, dialect) = (&work.a, contender.dialect());
    let count = run_heatmap(contender, "heat", work, results)?;
    results.total = Some((count, truth.total().count));
    for (key, q) in [("p99", 0.99), ("p99.9", 0.999)] {
        let answer =
            run_timed(contender, key, over_dataset(dataset, 4, dialect.quantile(q, 4)), results)?;
        let truths = accuracy::quantiles(truth, q);
        let found = answer.only(dialect.nanoseconds())?;
        results.accuracies.push(compare_windows(key, &found, &truths, false));
    }
    let answer =
        run_timed(contender, "below", over_dataset(dataset, 4, dialect.count_below()), results)?;
    let found = answer.only(dialect.parts())?;
    results.accuracies.push(compare_windows("below", &found, &accuracy::shares(truth), true));
    let answer = run_timed(
        contender,
        "three",
        over_dataset(dataset, 4, dialect.three_quantiles()),
        results,
    )?;
    ensure!(answer.numbers.len() == 3, "{} streams instead of three", answer.numbers.len());

    let limits = [
        ("above", accuracy::counts_above(truth)),
        ("above-edge", accuracy::counts_above_edge(dataset, truth)),
    ];
    for (key, truths) in limits {
        let text = dialect.count_above(key == "above-edge");
        let found = contender.measure(key, &over_dataset(dataset, 4, text))?.1.only(1.0)?;
        results.accuracies.push(compare_windows(key, &found, &truths, false));
    }
    if sweeps {
        run_sweep(contender, range_query::sweeps_a(work, dialect), results)?;
    }
    Ok(())
}

/// Runs all queries of B.
pub(crate) fn run_b(
    contender: &mut dyn QueryContender,
    work: &StoreWork,
    sweeps: bool,
    results: &mut QueryResults,
) -> Result<()> {
    let dialect = contender.dialect();
    let answer = run_timed(
        contender,
        "b-p99.9",
        over_dataset(&work.b, 5, dialect.counts_of_b(None)),
        results,
    )?;
    let found = answer.only(1.0)?.into_iter().flatten().count();
    ensure!(found == work.b.scale().minutes / 5, "{found} steps of B have a value");
    if sweeps {
        run_sweep(contender, range_query::sweeps_b(work, dialect), results)?;
    }
    Ok(())
}

fn run_sweep(
    contender: &mut dyn QueryContender,
    sweeps: Vec<(range_query::Sweep, f64, RangeQuery)>,
    results: &mut QueryResults,
) -> Result<()> {
    for (sweep, size, question) in sweeps {
        let (query, _) = contender.measure("sweep", &question)?;
        results.sweep_points.push(SweepPoint { sweep, size, query });
    }
    Ok(())
}
