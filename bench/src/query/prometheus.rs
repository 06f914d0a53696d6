//! Questions to Prometheus, over HTTP.

use anyhow::{Context, Result};
use collect::synthetic::Truth;
use serde_json::Value;

use super::accuracy::Found;
use super::asked::Asked;
use super::contender::{self, Answer, Contender};
use super::question::{Dialect, Question};
use crate::store::prometheus::{Prometheus, range};
use crate::store::{Query, Work};

struct Peer<'a> {
    server: &'a mut Prometheus,
    work: &'a Work,
    over: &'static str,
}

impl Contender for Peer<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Prometheus { over: self.over }
    }

    fn ask(&mut self, key: &'static str, question: &Question) -> Result<(Query, Answer)> {
        let Question { text, start_ns, end_ns, step_ns } = question;
        let [start, end, step] = [start_ns, end_ns, step_ns].map(|ns| ns / 1_000_000_000);
        let path = range(text, start, end, step);
        let (query, answer) = self.server.query(self.work, key, &path)?;
        let series = answer["data"]["result"].as_array().context("an answer without a result")?;
        let steps = ((end - start) / step) as usize;
        let numbers = series.iter().map(|one| numbers(one, start, step, steps)).collect();
        let count = series.iter().flat_map(histograms).filter_map(count_of).sum();
        Ok((query, Answer { numbers, count }))
    }
}

/// The numbers of a series at their steps, the first of which is one after the start.
fn numbers(series: &Value, start_s: i64, step_s: i64, steps: usize) -> Vec<Option<Found>> {
    let mut all = vec![None; steps];
    for pair in series["values"].as_array().into_iter().flatten() {
        let Some((time, text)) = pair[0].as_f64().zip(pair[1].as_str()) else { continue };
        let at = (time as i64 - start_s) / step_s - 1;
        let place = usize::try_from(at).ok().and_then(|at| all.get_mut(at));
        if let Some((place, estimate)) = place.zip(text.parse().ok()) {
            *place = Some(Found { estimate, bounds: None });
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

/// About A; `over` gives what happened in a window.
pub(crate) fn a(
    server: &mut Prometheus,
    work: &Work,
    over: &'static str,
    truth: &Truth,
    asked: &mut Asked,
) -> Result<()> {
    let sweeps = over == INCREASE;
    contender::a(&mut Peer { server, work, over }, work, truth, sweeps, asked)
}

/// About B.
pub(crate) fn b(server: &mut Prometheus, work: &Work, asked: &mut Asked) -> Result<()> {
    contender::b(&mut Peer { server, work, over: INCREASE }, work, true, asked)
}

/// What gives that of the histograms that Prometheus' own clients send.
const INCREASE: &str = "increase";
