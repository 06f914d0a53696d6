//! Queries of Prometheus, over HTTP.

use anyhow::{Context, Result};
use serde_json::Value;
use synthetic::ExpectedStats;

use super::accuracy::NumberWithBounds;
use super::contender::{self, QueryAnswer, QueryContender};
use super::query_results::QueryResults;
use super::range_query::{Dialect, RangeQuery};
use crate::store::prometheus::{PrometheusServer, range};
use crate::store::{QueryCost, StoreWork};

struct PrometheusContender<'a> {
    server: &'a mut PrometheusServer,
    work: &'a StoreWork,
    over: &'static str,
}

impl QueryContender for PrometheusContender<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Prometheus { over: self.over }
    }

    fn measure(
        &mut self,
        key: &'static str,
        question: &RangeQuery,
    ) -> Result<(QueryCost, QueryAnswer)> {
        let RangeQuery { text, start_ns, end_ns, step_ns } = question;
        let [start, end, step] = [start_ns, end_ns, step_ns].map(|ns| ns / 1_000_000_000);
        let path = range(text, start, end, step);
        let (query, answer) = self.server.query(self.work, key, &path)?;
        let series = answer["data"]["result"].as_array().context("a response without a result")?;
        let steps = ((end - start) / step) as usize;
        let numbers = series.iter().map(|one| numbers(one, start, step, steps)).collect();
        let count = series.iter().flat_map(histograms).filter_map(count_of).sum();
        Ok((query, QueryAnswer { numbers, count }))
    }
}

/// The numbers of a series by step; the first step is one after the start.
fn numbers(
    series: &Value,
    start_s: i64,
    step_s: i64,
    steps: usize,
) -> Vec<Option<NumberWithBounds>> {
    let mut all = vec![None; steps];
    for pair in series["values"].as_array().into_iter().flatten() {
        let Some((time, text)) = pair[0].as_f64().zip(pair[1].as_str()) else { continue };
        let at = (time as i64 - start_s) / step_s - 1;
        let place = usize::try_from(at).ok().and_then(|at| all.get_mut(at));
        if let Some((place, estimate)) = place.zip(text.parse().ok()) {
            *place = Some(NumberWithBounds { estimate, bounds: None });
        }
    }
    all
}

fn histograms(series: &Value) -> impl Iterator<Item = &Value> {
    series["histograms"].as_array().into_iter().flatten()
}

fn count_of(pair: &Value) -> Option<f64> {
    pair[1]["count"].as_str()?.parse().ok()
}

/// Queries of A; `over` is the function that yields the increase within a window.
pub(crate) fn run_a(
    server: &mut PrometheusServer,
    work: &StoreWork,
    over: &'static str,
    truth: &ExpectedStats,
    results: &mut QueryResults,
) -> Result<()> {
    let sweeps = over == INCREASE;
    contender::run_a(&mut PrometheusContender { server, work, over }, work, truth, sweeps, results)
}

/// Queries of B.
pub(crate) fn run_b(
    server: &mut PrometheusServer,
    work: &StoreWork,
    results: &mut QueryResults,
) -> Result<()> {
    contender::run_b(&mut PrometheusContender { server, work, over: INCREASE }, work, true, results)
}

/// The function for the cumulative histograms of Prometheus' clients.
const INCREASE: &str = "increase";
