//! Sparkline of a minute on a logarithmic scale.

/// Sparkline over time.
#[derive(Clone, Debug, Default)]
pub struct Sparkline {
    /// Beginning, end, value.
    points: Vec<(u64, u64, f64)>,
    end_ns: u64,
}

/// From the left end to the right one.
const RANGE_NS: u64 = 60_000_000_000;
/// Wider, a cell would be less than a second.
pub const CELLS_MAX: usize = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// From the lowest bar to the highest at the least, so that noise does not look like a mountain.
const RATIO_MIN: f64 = 10.0;

impl Sparkline {
    /// Points as beginning, end and value; times in nanoseconds. The right end is `end_ns`.
    pub fn new(points: Vec<(u64, u64, f64)>, end_ns: u64) -> Sparkline {
        Sparkline { points, end_ns }
    }

    /// As wide as there is room; where nothing was recorded, or nobody looked, is nothing.
    pub fn text(&self, room: usize) -> String {
        let mut cells: Vec<Option<f64>> = vec![None; room];
        let place = |ns: u64| {
            // Newest at the right end; a minute and more ago is left of the line.
            let age = self.end_ns.saturating_sub(ns) as f64 / RANGE_NS as f64;
            (1.0 - age) * room as f64
        };
        for &(start, end, value) in &self.points {
            let (from, to) = (place(start), place(end));
            // The cells whose middle is in the interval, and the one that its own middle is in.
            let own = f64::midpoint(from, to);
            for (at, cell) in cells.iter_mut().enumerate() {
                let middle = at as f64 + 0.5;
                let is_own = (at as f64..at as f64 + 1.0).contains(&own);
                if is_own || (from..to).contains(&middle) {
                    *cell = Some(cell.map_or(value, |known: f64| known.max(value)));
                }
            }
        }
        // The scale is the same however many values share a cell.
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
        // Twice is three tenths of the least scale.
        check(&[(50, 1.0), (60, 2.0)], 6, "    ▁▃");
        // The worst of a cell is seen.
        check(&[(41, 1.0), (59, 100.0), (60, 1.0)], 3, "  █");
    }
}
