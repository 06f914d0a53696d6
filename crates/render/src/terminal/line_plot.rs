//! Line plot in characters. A column shows one step, several, or a part of one.

use hist::Bracket;

use crate::chart::axis::linear_ticks;
use crate::chart::time_axis;
use crate::number_formatter::NumberFormatter;
use crate::terminal::plot::{GUTTER, axis_lines, edge};
use crate::terminal::{Terminal, TextStyle};
use crate::text::escape_control;

/// Height of the plot in lines, without the axis.
const ROWS: usize = 16;
/// Number of ticks of the value axis.
const TICKS: usize = 5;
/// Distance of time labels, in characters.
const TICK_WIDTH: usize = 16;
/// Maximum number of lines: one mark each, and marks must be distinguishable.
pub const LINES_MAX: usize = MARKS.len();
const MARKS: [char; 6] = ['●', '▲', '■', '◆', '○', '△'];
const MARKS_ASCII: [char; 6] = ['*', '+', 'x', 'o', '#', '@'];

/// Line: name, legend suffix, and values.
#[derive(Clone, Debug)]
pub struct PlottedLine {
    /// Name in the legend.
    pub name: String,
    /// Text after the peak in the legend.
    pub suffix: String,
    /// Value per step.
    pub points: Vec<Option<Bracket>>,
}

/// Plot of lines over the same steps.
pub struct LinePlot<'a> {
    /// Title above the plot.
    pub title: String,
    /// At most [`LINES_MAX`] lines.
    pub lines: Vec<PlottedLine>,
    /// Text before the legend.
    pub header: Vec<String>,
    /// Text after the legend.
    pub remarks: Vec<String>,
    /// Text below the plot.
    pub footer: String,
    /// First step and end, in nanoseconds since the Unix epoch.
    pub range: [i64; 2],
    /// Step in nanoseconds.
    pub step_ns: i64,
    /// Number of steps.
    pub steps: usize,
    /// Formatter of values.
    pub numbers: &'a NumberFormatter,
}

/// Plot scaled to a terminal.
struct Grid<'a> {
    plot: &'a LinePlot<'a>,
    terminal: &'a Terminal,
    low: f64,
    high: f64,
    width: usize,
}

impl LinePlot<'_> {
    /// Plot as text.
    pub fn text(&self, terminal: &Terminal) -> String {
        let title = escape_control(&self.title.split_whitespace().collect::<Vec<_>>().join(" "));
        let mut lines = vec![terminal.paint(TextStyle::Heading, &title)];
        lines.extend(self.legend(terminal));
        let (low, high) = self.value_range();
        if low > high {
            lines.push("  (no value is finite: nothing to draw)".to_owned());
            return lines.join("\n") + "\n";
        }
        lines.push(String::new());
        let width = terminal.raw_width.saturating_sub(GUTTER + 1).max(1);
        lines.extend(Grid { plot: self, terminal, low, high, width }.lines());
        let [start, end] = self.range;
        let total = self.step_ns as f64 * self.steps as f64;
        let ticks: Vec<(usize, String)> = time_axis::ticks(start, end, width.div_ceil(TICK_WIDTH))
            .into_iter()
            .map(|(time, name)| {
                let position = (time - start) as f64 / total * width as f64;
                ((position as usize).min(width - 1), name)
            })
            .collect();
        lines.extend(axis_lines(&ticks, width, terminal));
        lines.push(terminal.paint(TextStyle::Faint, &self.footer));
        lines.join("\n") + "\n"
    }

    /// Legend: mark, name, peak and suffix of each line.
    fn legend(&self, terminal: &Terminal) -> Vec<String> {
        let mut legend = self.header.clone();
        for (line, mark) in self.lines.iter().zip(marks(terminal)) {
            let peak = line.points.iter().flatten().max_by(|a, b| {
                let key = |of: &Bracket| {
                    if of.estimate.is_nan() { f64::NEG_INFINITY } else { of.estimate }
                };
                key(a).total_cmp(&key(b))
            });
            let peak = peak.map_or_else(
                || "unknown".to_owned(),
                |peak| {
                    let bounds = self.numbers.bounds(*peak);
                    let bounds = if bounds.is_empty() { bounds } else { format!(" ({bounds})") };
                    format!("{}{bounds}", self.numbers.value(*peak))
                },
            );
            legend.push(format!("  {mark} {}: up to {peak}{}", line.name, line.suffix));
        }
        legend.extend(self.remarks.iter().cloned());
        legend
    }

    /// Minimum and maximum drawn; they differ.
    fn value_range(&self) -> (f64, f64) {
        let all = || self.lines.iter().flat_map(|line| &line.points).flatten();
        let finite = || all().map(|of| of.estimate).filter(|estimate| estimate.is_finite());
        let low = finite().fold(f64::INFINITY, f64::min);
        let high = finite().fold(f64::NEG_INFINITY, f64::max);
        // The axis starts at 0 unless all values are far above it.
        let low = if low > 0.0 && low < high * 0.7 { 0.0 } else { low };
        match low == high {
            true => (low - (low.abs() * 0.1).max(0.5), high + (high.abs() * 0.1).max(0.5)),
            false => (low, high),
        }
    }
}

fn marks(terminal: &Terminal) -> [char; 6] {
    if terminal.ascii { MARKS_ASCII } else { MARKS }
}

impl Grid<'_> {
    fn value_row(&self, value: f64) -> usize {
        let share = ((self.high - value) / (self.high - self.low)).clamp(0.0, 1.0);
        (share * (ROWS - 1) as f64).round() as usize
    }

    /// Steps of a column.
    fn column_steps(&self, column: usize) -> std::ops::Range<usize> {
        let count = self.plot.steps;
        let first = column * count / self.width;
        first..((column + 1) * count / self.width).max(first + 1)
    }

    fn lines(&self) -> Vec<String> {
        let uncertain = if self.terminal.ascii { ':' } else { '░' };
        let mut grid = vec![vec![' '; self.width]; ROWS];
        // Bounds first, so that marks overwrite them.
        for line in &self.plot.lines {
            self.draw(&mut grid, line, uncertain, |of| (of.lower, of.upper));
        }
        for (line, mark) in self.plot.lines.iter().zip(marks(self.terminal)) {
            self.draw(&mut grid, line, mark, |of| (of.estimate, of.estimate));
        }
        let ticks = self.ticks();
        let line = |(row, cells): (usize, Vec<char>)| {
            let name = ticks.iter().find(|tick| tick.0 == row).map_or("", |tick| &tick.1);
            let edge = edge(self.terminal, !name.is_empty());
            let cells: String = cells.into_iter().collect();
            let cells = self.terminal.paint(TextStyle::Bar, cells.trim_end());
            format!("{name:>width$} {edge}{cells}", width = GUTTER - 1)
        };
        grid.into_iter().enumerate().map(line).collect()
    }

    /// Fills each column from the minimum to the maximum of its steps.
    fn draw(
        &self,
        grid: &mut [Vec<char>],
        line: &PlottedLine,
        mark: char,
        ends: impl Fn(&Bracket) -> (f64, f64),
    ) {
        for column in 0..self.width {
            let points = line.points[self.column_steps(column)].iter().flatten();
            let (low, high) = points
                .filter(|of| of.estimate.is_finite())
                .map(&ends)
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (lower, upper)| {
                    (low.min(lower), high.max(upper))
                });
            if low <= high {
                for row in &mut grid[self.value_row(high)..=self.value_row(low)] {
                    row[column] = mark;
                }
            }
        }
    }

    /// Lines with round values.
    fn ticks(&self) -> Vec<(usize, String)> {
        let formatter = self.plot.numbers.formatter();
        let mut ticks: Vec<(usize, String)> = Vec::new();
        for base in linear_ticks(formatter.scale(self.low), formatter.scale(self.high), TICKS) {
            let row = self.value_row(formatter.unscale(base));
            if ticks.iter().all(|tick| tick.0 != row) {
                let name =
                    if base == 0.0 { "0".to_owned() } else { tick_label(formatter.tick(base)) };
                ticks.push((row, name));
            }
        }
        ticks
    }
}

/// Tick label, without the unit if both do not fit.
fn tick_label(tick: String) -> String {
    match tick.split_once(' ') {
        Some((number, _)) if tick.chars().count() >= GUTTER => number.to_owned(),
        _ => tick,
    }
}
