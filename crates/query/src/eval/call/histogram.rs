//! Statistics of distributions: Prometheus' number, with the bounds that the truth lies in.
//!
//! Distributions come as histograms of one series, and as classic ones, whose buckets are a series each with the
//! label `le`. `histogram_count`, `_sum`, `_avg`, `_stddev` and `_stdvar` are only for the former.

mod statistic;
mod subject;

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::histogram::Number;
use crate::labels::NAME;
use crate::note::Notes;
use crate::plan::Node;
use crate::promql::quantile::{Forced, NanNote};
use crate::stream::Stream;
use crate::value::Value;

use super::{Call, text};
use subject::{Subject, Subjects};

pub(super) fn count(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    of_native(evaluation, call, statistic::count)
}

pub(super) fn sum(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    of_native(evaluation, call, statistic::sum)
}

pub(super) fn avg(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    of_native(evaluation, call, statistic::avg)
}

pub(super) fn stddev(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    of_native(evaluation, call, statistic::stddev)
}

pub(super) fn stdvar(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    of_native(evaluation, call, statistic::stdvar)
}

/// Numbers are left out.
fn of_native(
    evaluation: &mut Evaluation<'_>,
    call: &Call<'_>,
    statistic: fn(&Value) -> Option<Value>,
) -> Result<Vec<Stream>> {
    let mut streams = evaluation.streams(&call.args[0], call.steps)?;
    let held = super::samples(&streams);
    let is_delayed = evaluation.settings.delayed_name_removal;
    for stream in &mut streams {
        for point in &mut stream.points {
            *point = point.as_ref().and_then(statistic);
        }
        // Unlike all other functions, these leave type and unit in Prometheus.
        match is_delayed {
            true => stream.drops_name = true,
            false => stream.labels = stream.labels.keep(|label| label != NAME),
        }
    }
    evaluation.exchange(held, &mut streams)?;
    evaluation.merge_same(streams, call.place)
}

pub(super) fn quantile(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    let [q, of] = call.args else { panic!("BUG: histogram_quantile has two arguments") };
    let qs = quantiles_of(evaluation, q, call)?;
    let Subjects { list, held } = evaluation.subjects(of, call.steps)?;
    let mut remarks = Remarks::new(of.place);
    let mut streams = Vec::with_capacity(list.len());
    for subject in list {
        streams.push(of_quantile(subject, &qs, call, &mut remarks));
    }
    remarks.note(&mut evaluation.notes);
    finished(evaluation, streams, held, call)
}

/// Several quantiles, told apart by a label.
pub(super) fn quantiles(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    let [of, label, qs @ ..] = call.args else {
        panic!("BUG: histogram_quantiles has three arguments and more");
    };
    let label = text(label);
    let qs: Vec<Vec<f64>> =
        qs.iter().map(|q| quantiles_of(evaluation, q, call)).collect::<Result<_>>()?;
    let Subjects { list, held } = evaluation.subjects(of, call.steps)?;
    let mut remarks = Remarks::new(of.place);
    let mut streams = Vec::new();
    for subject in list {
        for qs in &qs {
            let all = of_quantile(subject.clone(), qs, call, &mut remarks);
            streams.extend(by_quantile(all, label, qs));
        }
        evaluation.budget.check()?;
    }
    remarks.note(&mut evaluation.notes);
    finished(evaluation, streams, held, call)
}

/// One stream for each quantile that was asked for: nearly always it is the same at each step.
fn by_quantile(stream: Stream, label: &str, qs: &[f64]) -> Vec<Stream> {
    let mut kinds: Vec<u64> = qs.iter().map(|q| q.to_bits()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let of = |kind: u64| {
        let mut own = stream.clone();
        own.labels = own.labels.with(label, &quantile_text(f64::from_bits(kind)));
        for (point, q) in own.points.iter_mut().zip(qs) {
            point.take_if(|_| q.to_bits() != kind);
        }
        own
    };
    kinds.into_iter().map(of).collect()
}

/// As OpenMetrics writes it: with a point, so that `1` is `1.0`.
fn quantile_text(q: f64) -> String {
    let text = Number(if q == 0.0 { 0.0 } else { q }).to_string();
    match text.contains(['e', '.', 'N', 'I']) {
        true => text,
        false => text + ".0",
    }
}

/// The quantile that is asked for at each step.
fn quantiles_of(evaluation: &mut Evaluation<'_>, q: &Node, call: &Call<'_>) -> Result<Vec<f64>> {
    let qs = evaluation.scalar(q, call.steps)?;
    for bad in qs.iter().filter(|q| !(0.0..=1.0).contains(*q)) {
        let number = Number(*bad);
        let message =
            format!("PromQL warning: quantile value should be between 0 and 1, got {number}");
        evaluation.notes.warn(q.place, message);
    }
    Ok(qs)
}

fn of_quantile(subject: Subject, qs: &[f64], call: &Call<'_>, remarks: &mut Remarks) -> Stream {
    let name = subject.name.clone();
    subject.map(|step, shape| {
        let (value, nan, forced) = statistic::quantile(qs[step], shape);
        remarks.nan(nan, &name);
        remarks.forced(forced, &name, call.steps.time(step));
        value
    })
}

pub(super) fn fraction(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    let [lower, upper, of] = call.args else {
        panic!("BUG: histogram_fraction has three arguments");
    };
    let lower = evaluation.scalar(lower, call.steps)?;
    let upper = evaluation.scalar(upper, call.steps)?;
    let Subjects { list, held } = evaluation.subjects(of, call.steps)?;
    let mut remarks = Remarks::new(of.place);
    let mut of_subject = |subject: Subject| {
        let name = subject.name.clone();
        subject.map(|step, shape| {
            let (value, nan) = statistic::fraction(lower[step], upper[step], shape);
            remarks.nan(nan, &name);
            value
        })
    };
    let streams = list.into_iter().map(&mut of_subject).collect();
    remarks.note(&mut evaluation.notes);
    finished(evaluation, streams, held, call)
}

/// How many values are greater than a limit.
pub(super) fn count_above(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    own(evaluation, call, |limits, shape| statistic::count_within(limits[0], f64::INFINITY, shape))
}

/// How many values are at most a limit.
pub(super) fn count_below(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    own(evaluation, call, |limits, shape| {
        statistic::count_within(f64::NEG_INFINITY, limits[0], shape)
    })
}

/// How many values are greater than one limit and at most another.
pub(super) fn count_between(
    evaluation: &mut Evaluation<'_>,
    call: &Call<'_>,
) -> Result<Vec<Stream>> {
    own(evaluation, call, |limits, shape| statistic::count_within(limits[0], limits[1], shape))
}

/// The share of values that are at most a limit.
pub(super) fn inverse_quantile(
    evaluation: &mut Evaluation<'_>,
    call: &Call<'_>,
) -> Result<Vec<Stream>> {
    own(evaluation, call, |limits, shape| {
        statistic::fraction(f64::NEG_INFINITY, limits[0], shape).0
    })
}

/// Of how many, who are as many as are said, the values are greater than a limit.
pub(super) fn users_harmed(
    evaluation: &mut Evaluation<'_>,
    call: &Call<'_>,
) -> Result<Vec<Stream>> {
    own(evaluation, call, |limits, shape| {
        let share = statistic::fraction(limits[0], f64::INFINITY, shape).0;
        statistic::times(share, limits[1])
    })
}

pub(super) fn max(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    own(evaluation, call, |_, shape| statistic::extreme(shape, true))
}

pub(super) fn min(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    own(evaluation, call, |_, shape| statistic::extreme(shape, false))
}

/// A function that Prometheus does not have: numbers first, distributions last.
fn own(
    evaluation: &mut Evaluation<'_>,
    call: &Call<'_>,
    statistic: impl Fn(&[f64], &mut subject::Shape) -> Value,
) -> Result<Vec<Stream>> {
    let Some((of, limits)) = call.args.split_last() else {
        panic!("BUG: a function of distributions has an argument");
    };
    let limits: Vec<Vec<f64>> =
        limits.iter().map(|limit| evaluation.scalar(limit, call.steps)).collect::<Result<_>>()?;
    let Subjects { list, held } = evaluation.subjects(of, call.steps)?;
    let of_subject = |subject: Subject| {
        subject.map(|step, shape| {
            let limits: Vec<f64> = limits.iter().map(|limit| limit[step]).collect();
            statistic(&limits, shape)
        })
    };
    let streams = list.into_iter().map(of_subject).collect();
    finished(evaluation, streams, held, call)
}

fn finished(
    evaluation: &mut Evaluation<'_>,
    mut streams: Vec<Stream>,
    held: u64,
    call: &Call<'_>,
) -> Result<Vec<Stream>> {
    for stream in &mut streams {
        evaluation.drop_name(stream);
    }
    evaluation.exchange(held, &mut streams)?;
    evaluation.merge_same(streams, call.place)
}

/// What was remarkable about the distributions, put together over steps and series.
struct Remarks {
    place: Place,
    notes: Notes,
    /// By the metric's name.
    forced: Vec<(String, Repairs)>,
}

/// How often, when, and by how much buckets had to be repaired.
struct Repairs {
    forced: Forced,
    count: u64,
    first: i64,
    last: i64,
}

impl Remarks {
    fn new(place: Place) -> Remarks {
        Remarks { place, notes: Notes::default(), forced: Vec::new() }
    }

    fn nan(&mut self, nan: Option<NanNote>, name: &str) {
        let Some(nan) = nan else { return };
        let message = match nan {
            NanNote::Result => {
                "PromQL info: input to histogram_quantile has NaN observations, result is NaN"
            }
            NanNote::Skew => {
                "PromQL info: input to histogram_quantile has NaN observations, result is skewed higher"
            }
            NanNote::Left => {
                "PromQL info: input to histogram_fraction has NaN observations, which are excluded from \
                 all fractions"
            }
        };
        self.notes.info(self.place, subject::of_metric(message, name));
    }

    fn forced(&mut self, forced: Option<Forced>, name: &str, time: i64) {
        let Some(forced) = forced else { return };
        match self.forced.iter_mut().find(|(held, _)| held == name) {
            Some((_, repairs)) => repairs.add(forced, time),
            None => {
                let repairs = Repairs { forced, count: 1, first: time, last: time };
                self.forced.push((name.to_owned(), repairs));
            }
        }
    }

    fn note(self, notes: &mut Notes) {
        notes.append(self.notes);
        for (name, repairs) in self.forced {
            let message = "PromQL info: input to histogram_quantile needed to be fixed for monotonicity \
                           (see https://prometheus.io/docs/prometheus/latest/querying/functions/\
                           #histogram_quantile)";
            let message = subject::of_metric(message, &name) + &repairs.text();
            notes.info(self.place, message);
        }
    }
}

impl Repairs {
    fn add(&mut self, forced: Forced, time: i64) {
        self.count += 1;
        self.first = self.first.min(time);
        self.last = self.last.max(time);
        self.forced.min_bound = self.forced.min_bound.min(forced.min_bound);
        self.forced.max_bound = self.forced.max_bound.max(forced.max_bound);
        self.forced.max_difference = self.forced.max_difference.max(forced.max_difference);
    }

    fn text(&self) -> String {
        let Forced { min_bound, max_bound, max_difference } = self.forced;
        // Two digits, written as any other number is.
        let rounded = format!("{max_difference:.1e}").parse().unwrap_or(max_difference);
        format!(
            ", from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            Number(min_bound),
            Number(max_bound),
            Number(rounded),
            self.count,
            super::time::text(self.first),
            super::time::text(self.last),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(q: f64, expected: &str) {
        assert_eq!(quantile_text(q), expected);
    }

    #[test]
    fn quantiles_as_labels() {
        check(0.5, "0.5");
        check(1.0, "1.0");
        check(0.0, "0.0");
        check(-1.0, "-1.0");
        check(0.00001, "1e-05");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "+Inf");
    }
}
