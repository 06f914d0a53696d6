//! What happened in the stretches of time before the steps, exactly: nothing is extrapolated, and the coarsest
//! rollups that fit are read.
//!
//! A store adds up columns that lie side by side. Where stretches overlap they are made of shorter columns, each
//! of which is read once.

use std::collections::BTreeMap;
use std::sync::Arc;

use hist::{MergeError, Mixture};
use model::Kind;
use store::{Grid, Summary};

use crate::error::{Error, Result};
use crate::eval::Evaluation;
use crate::labels::Labels;
use crate::plan::Exact;
use crate::sliding::sums;
use crate::source::{Handle, Read};
use crate::stream::{Steps, Stream, seconds};
use crate::value::Value;

impl Evaluation<'_> {
    pub(crate) fn exact(&mut self, exact: &Exact, steps: Steps) -> Result<Vec<Stream>> {
        let handles: Vec<Handle> = self.series(&exact.fetch)?.into_values().flatten().collect();
        if let Some(standard) = &exact.standard {
            let is_delta = |handle: &Handle| match handle.kind {
                Kind::Histogram(_) => !handle.kind.is_cumulative(),
                _ => false,
            };
            if !handles.iter().all(is_delta) || exact.fetch.shift.at.is_some() {
                return self.streams(standard, steps);
            }
        }
        if let Some(gauge) = handles.iter().find(|handle| handle.kind == Kind::Gauge) {
            let message = format!(
                "{} is a gauge: it does not add up over time. use avg_over_time or max_over_time",
                gauge.labels
            );
            return Err(Error::Execution { place: exact.fetch.place, message });
        }
        // Distributions and numbers of the same name are two groups.
        let mut groups: BTreeMap<(Labels, bool), Vec<&Handle>> = BTreeMap::new();
        for handle in &handles {
            let labels = match &exact.grouping {
                Some(grouping) => grouping.labels_of(&handle.labels),
                None => handle.labels.clone(),
            };
            let is_histogram = matches!(handle.kind, Kind::Histogram(_));
            groups.entry((labels, is_histogram)).or_default().push(handle);
        }
        let mut streams = Vec::with_capacity(groups.len());
        for ((labels, is_histogram), series) in groups {
            let points = match is_histogram {
                true => self.distributions(exact, &series, steps)?,
                false => self.sums(exact, &series, steps)?,
            };
            let mut stream = Stream::new(labels, points);
            self.drop_name(&mut stream);
            if !stream.is_empty() {
                self.budget.hold(stream.samples())?;
                streams.push(stream);
            }
        }
        self.merge_same(streams, exact.fetch.place)
    }

    fn distributions(
        &mut self,
        exact: &Exact,
        series: &[&Handle],
        steps: Steps,
    ) -> Result<Vec<Option<Value>>> {
        let source = self.source;
        let columns = self.columns(exact, steps, |grid| source.histograms(series, grid))?;
        let add = |held: &mut Mixture, more: &Mixture| {
            more.parts().iter().try_for_each(|part| held.add(part))
        };
        let windows = windows(columns, add).map_err(|error| Error::Execution {
            place: exact.fetch.place,
            message: format!("{error}: ask for a shorter range or fewer series"),
        })?;
        let value = |mixture: Option<Mixture>| {
            let mixture = mixture.filter(|mixture| !mixture.parts().is_empty())?;
            let value = Value::Distribution(Arc::new(mixture));
            match exact.is_rate {
                false => Some(value),
                true => {
                    let mut histogram = Arc::unwrap_or_clone(value.histogram()?);
                    histogram.div(seconds(exact.range));
                    Some(Value::Histogram(Arc::new(histogram)))
                }
            }
        };
        Ok(windows.into_iter().map(value).collect())
    }

    fn sums(
        &mut self,
        exact: &Exact,
        series: &[&Handle],
        steps: Steps,
    ) -> Result<Vec<Option<Value>>> {
        let source = self.source;
        let columns = self.columns(exact, steps, |grid| source.numbers(series, grid))?;
        let add = |held: &mut Option<Summary>, more: &Option<Summary>| {
            match (held.as_mut(), more) {
                (Some(held), Some(more)) => held.add(more),
                (None, _) => *held = *more,
                (Some(_), None) => {}
            }
            Ok::<(), MergeError>(())
        };
        let windows = windows(columns, add).expect("BUG: numbers always add up");
        let divisor = if exact.is_rate { seconds(exact.range) } else { 1.0 };
        let value = |summary: Option<Option<Summary>>| {
            let summary = summary.flatten().filter(|summary| summary.count > 0)?;
            Some(Value::Number(summary.sum.value() / divisor))
        };
        Ok(windows.into_iter().map(value).collect())
    }

    /// What the stretches of the steps are made of.
    fn columns<T>(
        &mut self,
        exact: &Exact,
        steps: Steps,
        mut read: impl FnMut(Grid) -> Result<Read<T>>,
    ) -> Result<Stretches<T>> {
        let (range, shift) = (exact.range, exact.fetch.shift);
        let count = if shift.at.is_some() { 1 } else { steps.count };
        let step = if count == 1 { range } else { steps.step };
        let unit = divisor(step, range);
        let start = shift.apply(steps.start).saturating_sub(range);
        let (each, apart) = ((range / unit) as usize, (step / unit) as usize);
        let columns = (count as u64 - 1).saturating_mul(apart as u64).saturating_add(each as u64);
        let found = Read { values: Vec::new(), gaps: Vec::new() };
        // Stretches with nothing to be read between them are read one by one.
        let found = if apart > each {
            (0..count as i64).try_fold(found, |mut all: Read<T>, at| {
                self.budget.check()?;
                let grid = Grid { start: start + at * step, step: range, columns: 1 };
                let one = read(grid)?;
                all.values.extend(one.values);
                all.gaps.extend(one.gaps);
                Ok::<_, Error>(all)
            })?
        } else {
            self.budget.hold(columns)?;
            let found = read(Grid { start, step: unit, columns })?;
            self.budget.release(columns);
            found
        };
        self.gaps.extend(found.gaps);
        let (each, apart) = if apart > each { (1, 1) } else { (each, apart) };
        Ok(Stretches { columns: found.values, each, apart, count, copies: steps.count / count })
    }
}

/// Columns, and which of them make the stretch of each step.
struct Stretches<T> {
    columns: Vec<T>,
    /// How many columns a stretch has.
    each: usize,
    /// How many columns the next begins after it.
    apart: usize,
    /// How many stretches there are.
    count: usize,
    /// For how many steps each stands.
    copies: usize,
}

/// Adds up the columns of each stretch; what follows each other is given as often as it stands for steps.
fn windows<T: Clone, E>(
    stretches: Stretches<T>,
    add: impl Fn(&mut T, &T) -> Result<(), E>,
) -> Result<Vec<Option<T>>, E> {
    let Stretches { columns, each, apart, count, copies } = stretches;
    if each == 1 && copies == 1 {
        return Ok(columns.into_iter().step_by(apart).map(Some).collect());
    }
    let sums = sums(&columns, (0..count).map(|at| at * apart..at * apart + each), add)?;
    Ok(match copies {
        1 => sums,
        _ => sums.into_iter().flat_map(|sum| std::iter::repeat_n(sum, copies)).collect(),
    })
}

/// The greatest that divides both.
fn divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn stretches_are_sums_of_their_columns(
            each in 1usize..9, apart in 1usize..9, count in 1usize..20, seed in 0u64..1000,
        ) {
            let columns: Vec<u64> =
                (0..(count - 1) * apart + each).map(|at| (at as u64 + 1) * 7919 % (seed + 13)).collect();
            let expected: Vec<Option<u64>> = (0..count)
                .map(|at| Some(columns[at * apart..at * apart + each].iter().sum()))
                .collect();
            let stretches = Stretches { columns, each, apart, count, copies: 1 };
            let add = |held: &mut u64, more: &u64| {
                *held += more;
                Ok::<(), ()>(())
            };
            prop_assert_eq!(windows(stretches, add), Ok(expected));
        }
    }

    #[test]
    fn a_fixed_stretch_stands_for_all_steps() {
        let stretches = Stretches { columns: vec![1, 2], each: 2, apart: 2, count: 1, copies: 3 };
        let add = |held: &mut u64, more: &u64| {
            *held += more;
            Ok::<(), ()>(())
        };
        assert_eq!(windows(stretches, add), Ok(vec![Some(3); 3]));
    }
}
