//! Statistics of slots from samples of numbers, where sums do not suffice.

use store::TimeGrid;

use super::points::point;
use crate::plan::MetricStatistic;
use crate::stream::{SeriesPoint, seconds};
use crate::value::{StepValue, is_stale};

/// Values of slots from samples by time; samples may precede the first slot. For deltas, the change
/// is the sample itself; for other kinds it is the difference from the previous sample.
pub(super) fn slots(
    statistic: MetricStatistic,
    samples: &[SeriesPoint],
    grid: TimeGrid,
    is_delta: bool,
) -> Vec<Option<StepValue>> {
    let mut slots: Vec<Vec<SampleDelta>> = vec![Vec::new(); grid.columns as usize];
    let mut before: Option<(i64, f64)> = None;
    for sample in samples {
        let Some(number) = sample.value.number() else { continue };
        if is_stale(number) {
            before = None;
            continue;
        }
        if number.is_nan() {
            continue;
        }
        let change = match (is_delta, sample.start, before) {
            (true, Some(start), _) if start < sample.time => {
                Some((number, seconds(sample.time - start)))
            }
            (false, _, Some((time, earlier))) if time < sample.time => {
                Some((number - earlier, seconds(sample.time - time)))
            }
            _ => None,
        };
        before = Some((sample.time, number));
        // A sample at the end of a column belongs to it.
        let since = sample.time.saturating_sub(grid.start).saturating_sub(1);
        if let Ok(at) = usize::try_from(since.div_euclid(grid.step))
            && let Some(slot) = slots.get_mut(at)
        {
            slot.push(SampleDelta { number, change });
        }
    }
    slots.iter().map(|seen| point(statistic_of_slot(statistic, seen))).collect()
}

/// Sample with its change and time since the previous sample.
#[derive(Clone)]
struct SampleDelta {
    number: f64,
    change: Option<(f64, f64)>,
}

fn statistic_of_slot(statistic: MetricStatistic, deltas: &[SampleDelta]) -> Option<f64> {
    let count = deltas.len() as f64;
    let numbers = || deltas.iter().map(|deltas| deltas.number);
    let is_counter = matches!(statistic, MetricStatistic::Counter | MetricStatistic::CounterStddev);
    let changes = || {
        deltas
            .iter()
            .filter_map(|deltas| deltas.change)
            .filter(|change| !is_counter || change.0 >= 0.0)
    };
    match statistic {
        _ if deltas.is_empty() => None,
        MetricStatistic::Average => Some(numbers().sum::<f64>() / count),
        MetricStatistic::Count => Some(count),
        MetricStatistic::Sum => Some(numbers().sum()),
        MetricStatistic::Stddev => deviation(numbers()),
        MetricStatistic::Counter | MetricStatistic::Derivative => {
            let (change, time) =
                changes().fold((0.0, 0.0), |sum, change| (sum.0 + change.0, sum.1 + change.1));
            (time > 0.0).then(|| change / time)
        }
        MetricStatistic::CounterStddev | MetricStatistic::DerivativeStddev => {
            deviation(changes().map(|(change, time)| change / time))
        }
        MetricStatistic::Histogram => None,
    }
}

/// Standard deviation of the population.
pub(super) fn deviation(numbers: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    variance(numbers).map(|(variance, _)| variance.sqrt())
}

/// Variance of the population, and the count.
pub(super) fn variance(numbers: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let count = numbers.clone().count() as f64;
    if count == 0.0 {
        return None;
    }
    let mean = numbers.clone().sum::<f64>() / count;
    let squares: f64 = numbers.map(|number| (number - mean) * (number - mean)).sum();
    Some((squares / count, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(statistic: MetricStatistic, samples: &[(i64, f64)], expected: [Option<f64>; 2]) {
        let sample = |&(time, number): &(i64, f64)| {
            let time = time * store::SECOND;
            SeriesPoint { start: None, time, value: StepValue::Number(number) }
        };
        let samples: Vec<SeriesPoint> = samples.iter().map(sample).collect();
        let grid = TimeGrid { start: 0, step: store::MINUTE, columns: 2 };
        let found: Vec<Option<f64>> = slots(statistic, &samples, grid, false)
            .iter()
            .map(|point| point.as_ref()?.number())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn slots_hold_samples_that_ended_in_them() {
        let samples = [(-10, 2.0), (20, 5.0), (50, 11.0), (60, 1.0), (90, 4.0)];
        check(MetricStatistic::Count, &samples, [Some(3.0), Some(1.0)]);
        check(MetricStatistic::Average, &samples, [Some(17.0 / 3.0), Some(4.0)]);
        // The drop at 60 adds no count and no time.
        check(MetricStatistic::Counter, &samples, [Some(9.0 / 60.0), Some(0.1)]);
        check(MetricStatistic::Derivative, &samples, [Some(-1.0 / 70.0), Some(0.1)]);
        check(MetricStatistic::Stddev, &[(10, 1.0), (20, 3.0)], [Some(1.0), None]);
        check(
            MetricStatistic::CounterStddev,
            &[(0, 0.0), (10, 10.0), (20, 40.0)],
            [Some(1.0), None],
        );
    }
}
