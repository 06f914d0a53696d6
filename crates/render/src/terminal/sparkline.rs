//! Sparkline of the last minute on a logarithmic scale.

/// Sparkline over time.
#[derive(Clone, Debug, Default)]
pub struct Sparkline {
    /// Start, end, value.
    points: Vec<(u64, u64, f64)>,
    end_ns: u64,
}

/// Time from the left to the right end.
const RANGE_NS: u64 = 60_000_000_000;
/// Maximum number of cells: one per second.
pub const CELLS_MAX: usize = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Minimum ratio of the highest to the lowest bar, so that noise stays small.
const RATIO_MIN: f64 = 10.0;

impl Sparkline {
    /// Sparkline of points (start, end, value), times in nanoseconds. The right end is `end_ns`.
    pub fn new(points: Vec<(u64, u64, f64)>, end_ns: u64) -> Sparkline {
        Sparkline { points, end_ns }
    }

    /// Sparkline as wide as `room`. Cells without a value or sample are blank.
    pub fn text(&self, room: usize) -> String {
        let mut cells: Vec<Option<f64>> = vec![None; room];
        let column = |ns: u64| {
            // The newest point is at the right end; points older than a minute are not shown.
            let age = self.end_ns.saturating_sub(ns) as f64 / RANGE_NS as f64;
            (1.0 - age) * room as f64
        };
        for &(start, end, value) in &self.points {
            let (from, to) = (column(start), column(end));
            // Cells whose centre is in the interval, and the cell of the interval's own centre.
            let middle_ns = f64::midpoint(from, to);
            for (at, cell) in cells.iter_mut().enumerate() {
                let middle = at as f64 + 0.5;
                let is_own = (at as f64..at as f64 + 1.0).contains(&middle_ns);
                if is_own || (from..to).contains(&middle) {
                    *cell = Some(cell.map_or(value, |known: f64| known.max(value)));
                }
            }
        }
        // The scale does not depend on how many values share a cell.
        let drawn = || self.points.iter().map(|part| part.2).filter(|value| *value > 0.0);
        let low = drawn().fold(f64::INFINITY, f64::min);
        let high = drawn().fold(0.0, f64::max);
        let ratio = (high / low).max(RATIO_MIN).ln();
        let bar = |value: f64| {
            let level = if value > 0.0 { (value / low).ln() / ratio } else { 0.0 };
            BARS[((level * BARS.len() as f64) as usize).min(BARS.len() - 1)]
        };
        cells.iter().map(|cell| cell.map_or(' ', bar)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[track_caller]
    fn check(values: &[(u64, f64)], room: usize, expected: &str) {
        let parts = values.iter().map(|&(end, value)| ((end - 1) * S, end * S, value)).collect();
        assert_eq!(Sparkline { points: parts, end_ns: 60 * S }.text(room), expected);
    }

    #[test]
    fn bars_stand_for_times_and_ratios() {
        check(&[], 5, "     ");
        check(&[(60, 7.0)], 6, "     ▁");
        let all: Vec<(u64, f64)> =
            (1..=60).map(|at| (at, if at > 50 { 100.0 } else { 1.0 })).collect();
        check(&all, 6, "▁▁▁▁▁█");
        // A factor of 2 is three tenths of the minimum scale.
        check(&[(50, 1.0), (60, 2.0)], 6, "    ▁▃");
        // A cell shows the maximum of its values.
        check(&[(41, 1.0), (59, 100.0), (60, 1.0)], 3, "  █");
    }
}
