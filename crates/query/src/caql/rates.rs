//! What readings of numbers say about slots of time, where sums of them do not suffice.

use store::Grid;

use super::points::point;
use super::sources::What;
use crate::stream::{Reading, seconds};
use crate::value::{Value, is_stale};

/// Values of slots from readings by time, some of which may lie before the first slot. What is counted in deltas
/// changes by what each reading says; all else by how it differs from the one before.
pub(super) fn slots(
    what: What,
    readings: &[Reading],
    grid: Grid,
    is_delta: bool,
) -> Vec<Option<Value>> {
    let mut slots: Vec<Vec<Seen>> = vec![Vec::new(); grid.columns as usize];
    let mut before: Option<(i64, f64)> = None;
    for reading in readings {
        let Some(number) = reading.value.number() else { continue };
        if is_stale(number) {
            before = None;
            continue;
        }
        if number.is_nan() {
            continue;
        }
        let change = match (is_delta, reading.start, before) {
            (true, Some(start), _) if start < reading.time => {
                Some((number, seconds(reading.time - start)))
            }
            (false, _, Some((time, earlier))) if time < reading.time => {
                Some((number - earlier, seconds(reading.time - time)))
            }
            _ => None,
        };
        before = Some((reading.time, number));
        // What ends with a column belongs to it.
        let since = reading.time.saturating_sub(grid.start).saturating_sub(1);
        if let Ok(at) = usize::try_from(since.div_euclid(grid.step))
            && let Some(slot) = slots.get_mut(at)
        {
            slot.push(Seen { number, change });
        }
    }
    slots.iter().map(|seen| point(value(what, seen))).collect()
}

/// A reading, with how it differs from the one before, and the seconds between them.
#[derive(Clone)]
struct Seen {
    number: f64,
    change: Option<(f64, f64)>,
}

fn value(what: What, seen: &[Seen]) -> Option<f64> {
    let count = seen.len() as f64;
    let numbers = || seen.iter().map(|seen| seen.number);
    let is_counter = matches!(what, What::Counter | What::CounterStddev);
    let changes = || {
        seen.iter().filter_map(|seen| seen.change).filter(|change| !is_counter || change.0 >= 0.0)
    };
    match what {
        _ if seen.is_empty() => None,
        What::Average => Some(numbers().sum::<f64>() / count),
        What::Count => Some(count),
        What::Sum => Some(numbers().sum()),
        What::Stddev => deviation(numbers()),
        What::Counter | What::Derivative => {
            let (change, time) =
                changes().fold((0.0, 0.0), |sum, change| (sum.0 + change.0, sum.1 + change.1));
            (time > 0.0).then(|| change / time)
        }
        What::CounterStddev | What::DerivativeStddev => {
            deviation(changes().map(|(change, time)| change / time))
        }
        What::Histogram => None,
    }
}

/// Of the whole population.
pub(super) fn deviation(numbers: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    variance(numbers).map(|(variance, _)| variance.sqrt())
}

/// Of the whole population, and how many there are.
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
    fn check(what: What, readings: &[(i64, f64)], expected: [Option<f64>; 2]) {
        let reading = |&(time, number): &(i64, f64)| {
            let time = time * store::SECOND;
            Reading { start: None, time, value: Value::Number(number) }
        };
        let readings: Vec<Reading> = readings.iter().map(reading).collect();
        let grid = Grid { start: 0, step: store::MINUTE, columns: 2 };
        let found: Vec<Option<f64>> = slots(what, &readings, grid, false)
            .iter()
            .map(|point| point.as_ref()?.number())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn slots_have_what_ended_in_them() {
        let readings = [(-10, 2.0), (20, 5.0), (50, 11.0), (60, 1.0), (90, 4.0)];
        check(What::Count, &readings, [Some(3.0), Some(1.0)]);
        check(What::Average, &readings, [Some(17.0 / 3.0), Some(4.0)]);
        // The drop at 60 counts nothing and takes no time.
        check(What::Counter, &readings, [Some(9.0 / 60.0), Some(0.1)]);
        check(What::Derivative, &readings, [Some(-1.0 / 70.0), Some(0.1)]);
        check(What::Stddev, &[(10, 1.0), (20, 3.0)], [Some(1.0), None]);
        check(What::CounterStddev, &[(0, 0.0), (10, 10.0), (20, 40.0)], [Some(1.0), None]);
    }
}
