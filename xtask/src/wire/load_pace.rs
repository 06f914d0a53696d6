//! A load of a fixed rate: equal portions in equal intervals.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Interval of portions: short, so that they are a load rather than bursts.
const INTERVAL: Duration = Duration::from_millis(10);

/// Operations per interval, and number of intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadPace {
    portion: u64,
    portions: u32,
}

impl LoadPace {
    /// Operations per second, rounded to whole portions, for some seconds.
    pub(super) fn new(per_second: u64, seconds: u32) -> LoadPace {
        let per_second_intervals = 1_000 / INTERVAL.as_millis() as u64;
        let portion = per_second.div_ceil(per_second_intervals).max(1);
        LoadPace { portion, portions: seconds * per_second_intervals as u32 }
    }

    /// All operations.
    pub(super) fn operations(self) -> u64 {
        self.portion * u64::from(self.portions)
    }

    /// Calls `send` with the number of operations of each portion when it is due. A portion that
    /// is late follows at once: the number of operations does not depend on the machine.
    pub(super) fn run(self, mut send: impl FnMut(u64) -> Result<()>) -> Result<u64> {
        let began = Instant::now();
        for number in 0..self.portions {
            let due = INTERVAL * number;
            sleep(due.saturating_sub(began.elapsed()));
            send(self.portion)?;
        }
        Ok(self.operations())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_has_whole_portions() {
        assert_eq!(LoadPace::new(2_500, 60).operations(), 150_000);
        assert_eq!(LoadPace::new(2_501, 2).operations(), 2 * 2_600);
        let mut portions = Vec::new();
        let sent = LoadPace { portion: 3, portions: 2 }.run(|count| {
            portions.push(count);
            Ok(())
        });
        assert_eq!((sent.unwrap(), portions), (6, vec![3, 3]));
    }
}
