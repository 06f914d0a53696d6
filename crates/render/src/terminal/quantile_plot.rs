//! Quantile–quantile plot: each quantile of A against the same quantile of B. Equal distributions
//! are on the diagonal; above it B is greater.

use hist::Mixture;

use crate::chart::axis::Axis;
use crate::terminal::plot::{GUTTER, axis_lines, edge};
use crate::terminal::{Terminal, TextStyle};
use crate::text::wrap_text;
use crate::value_formatter::ValueFormatter;

/// Height of the plot in lines.
const ROWS: usize = 14;
/// Width with a 45° diagonal: a character is about twice as high as wide.
const COLUMNS: usize = 2 * ROWS;
/// Width if the terminal is wide enough.
const COLUMNS_WIDE: usize = 3 * ROWS;
/// Points on each side of the median, evenly spaced in log odds.
const POINTS: i32 = 120;
/// Log odds of the last point: one in a million.
const ODDS_MAX: f64 = 13.8;

/// Plot of two distributions, with axes in the unit of `formatter`.
pub fn qq_plot([a, b]: [&Mixture; 2], formatter: &ValueFormatter, terminal: &Terminal) -> String {
    let share = |at: i32| 1.0 / (1.0 + (-f64::from(at) / f64::from(POINTS) * ODDS_MAX).exp());
    let pair = |share: f64| {
        let [x, y] = [a.quantile(share)?, b.quantile(share)?];
        Some([formatter.scale(x.estimate), formatter.scale(y.estimate)])
    };
    // Quantiles that the smaller side can resolve.
    let n = a.count().min(b.count()) as f64;
    let is_told = |share: &f64| share.min(1.0 - share) * n >= 1.0;
    let drawable = |[x, y]: &[f64; 2]| *x > 0.0 && *y > 0.0 && x.is_finite() && y.is_finite();
    let shares = (-POINTS..=POINTS).map(share).filter(is_told);
    let points: Vec<[f64; 2]> = shares.filter_map(pair).filter(drawable).collect();
    let named: Vec<([f64; 2], char)> = [(0.5, '5'), (0.99, '9'), (1.0, 'M')]
        .into_iter()
        .filter_map(|(share, mark)| Some((pair(share).filter(drawable)?, mark)))
        .collect();
    let all = || points.iter().chain(named.iter().map(|(point, _)| point)).flatten();
    let low = all().copied().fold(f64::INFINITY, f64::min);
    let high = all().copied().fold(0.0, f64::max);
    if low > high {
        return "  (nothing above zero to draw)\n".to_owned();
    }
    // Both axes have the same range.
    let axis = Axis::covering(low, high);
    let wide = if terminal.width >= 80 { COLUMNS_WIDE } else { COLUMNS };
    let width = wide.min(terminal.width.saturating_sub(GUTTER + 1)).max(2);
    let column = |value: f64| ((axis.position(value) * width as f64) as usize).min(width - 1);
    let row = |value: f64| ROWS - 1 - ((axis.position(value) * ROWS as f64) as usize).min(ROWS - 1);
    let mut grid = vec![vec![' '; width]; ROWS];
    let (diagonal, dot) = if terminal.ascii { ('.', '*') } else { ('·', '●') };
    for (x, cell) in (0..width).map(|x| (x, ROWS - 1 - x * ROWS / width)) {
        grid[cell][x] = diagonal;
    }
    for [x, y] in &points {
        grid[row(*y)][column(*x)] = dot;
    }
    for ([x, y], mark) in &named {
        grid[row(*y)][column(*x)] = *mark;
    }
    let ticks = axis.ticks(ROWS / 3);
    let mut lines = vec!["         B".to_owned()];
    for (at, cells) in grid.into_iter().enumerate() {
        let tick = ticks.iter().find(|tick| row(**tick) == at);
        let name = tick.map_or(String::new(), |tick| formatter.tick(*tick));
        let edge = edge(terminal, !name.is_empty());
        let cells: String = cells.into_iter().collect();
        let cells = terminal.paint(TextStyle::Bar, cells.trim_end());
        lines.push(format!("{name:>gutter$} {edge}{cells}", gutter = GUTTER - 1));
    }
    let named: Vec<(usize, String)> =
        ticks.iter().map(|tick| (column(*tick), formatter.tick(*tick))).collect();
    let [axis, mut names] = axis_lines(&named, width, terminal);
    let end = GUTTER + width + 2;
    names.push_str(&" ".repeat(end.saturating_sub(names.chars().count())));
    names.push('A');
    lines.extend([axis, names]);
    let about = format!(
        "  {dot} the same quantile of A and B: above the diagonal B is greater; 5=median, 9=p99, \
         M=maximum"
    );
    for line in wrap_text(&about, terminal.width.saturating_sub(2)) {
        lines.push(terminal.paint(TextStyle::Faint, &format!("  {line}")));
    }
    lines.join("\n") + "\n"
}
