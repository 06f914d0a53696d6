//! An answer over time, drawn in the terminal: distributions as heatmaps, numbers as lines.

use anyhow::{Result, bail};
use collect::Unit;
use hist::Bracket;
use query::{QueryResult, ResultData, StepValue, Stream};

use crate::store::stat::gap_text;
use render::chart::heatmap::{Heatmap, HeatmapColumn};
use render::chart::time_axis;
use render::merged_distribution::MergedDistribution;
use render::terminal::heatmap as terminal_heatmap;
use render::terminal::plot::{GUTTER, axis_lines};
use render::terminal::{Terminal, TextStyle};
use render::text::escape_control;

use super::result_page::{self, NO_RESULT, StreamNames, number_bracket};
use api::maxima::Maxima;
use render::number_formatter::NumberFormatter;

/// Lines of a picture, without its axis.
const ROWS: usize = 16;
/// Round values that are named beside them.
const TICKS: usize = 5;
/// Characters from one time below the axis to the next.
const TICK_WIDTH: usize = 16;
/// Streams in one picture: as many marks as can be told apart.
const MARKS: [char; 6] = ['●', '▲', '■', '◆', '○', '△'];
const MARKS_ASCII: [char; 6] = ['*', '+', 'x', 'o', '#', '@'];

/// Window of a distribution at a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum StepWindow {
    /// As long as the step.
    Step,
    /// So many nanoseconds.
    Length(i64),
    Unknown,
}

pub(super) fn plot_text(
    answer: &QueryResult,
    maxima: &[Maxima],
    (expression, window): (&str, StepWindow),
    terminal: &Terminal,
) -> Result<String> {
    let scalar;
    let streams = match &answer.data {
        ResultData::Matrix(streams) => streams,
        ResultData::Scalar(values) if !answer.steps.is_instant() => {
            let points = values.iter().map(|value| Some(StepValue::Number(*value))).collect();
            scalar = vec![Stream::new(query::LabelSet::default(), points)];
            &scalar
        }
        _ => bail!("one moment is no picture: give --from, or leave --plot out"),
    };
    if streams.is_empty() {
        return Ok(format!("{NO_RESULT}\n"));
    }
    let is_distribution =
        |stream: &&Stream| stream.points.iter().flatten().any(StepValue::is_distribution);
    let (distributions, lines): (Vec<&Stream>, Vec<&Stream>) =
        streams.iter().partition(is_distribution);
    let most = MARKS.len();
    if distributions.len() > most || lines.len() > most {
        bail!(
            "{} streams cannot be told apart in a picture, {most} can: pick some with topk, or put them \
             together with sum by (…)",
            streams.len(),
        );
    }
    let mut pictures = Vec::new();
    for stream in distributions {
        pictures.push(heatmap_text(answer, stream, (expression, window), terminal)?);
    }
    if !lines.is_empty() {
        let lines: Vec<Stream> = lines.into_iter().cloned().collect();
        pictures.push(LinePlot::new(answer, maxima, &lines, terminal).text(expression));
    }
    Ok(pictures.join("\n"))
}

fn heatmap_text(
    answer: &QueryResult,
    stream: &Stream,
    (expression, window): (&str, StepWindow),
    terminal: &Terminal,
) -> Result<String> {
    let steps = answer.steps;
    let (length, note) = match window {
        StepWindow::Step => (steps.step, None),
        StepWindow::Length(window) if window == steps.step => (window, None),
        StepWindow::Length(window) if window > steps.step => {
            let (window, step) =
                (result_page::duration_text(window), result_page::duration_text(steps.step));
            bail!(
                "windows of {window} overlap at steps of {step}: a heatmap would show each value more than \
                 once; give --step {}",
                window.replace(' ', "")
            )
        }
        StepWindow::Length(window) => {
            let (of, step) =
                (result_page::duration_text(window), result_page::duration_text(steps.step));
            (
                window,
                Some(format!(
                    "A column is the last {of} of each {step}; what was before is not in it."
                )),
            )
        }
        StepWindow::Unknown => {
            let note =
                "A column is what is known at one moment: a value may be in several, or in none.";
            (steps.step, Some(note.to_owned()))
        }
    };
    let mut columns = Vec::with_capacity(stream.points.len());
    for (at, point) in stream.points.iter().enumerate() {
        let values = match point {
            Some(StepValue::Distribution(mixture)) => MergedDistribution::from((**mixture).clone()),
            None => MergedDistribution::from(hist::Mixture::default()),
            Some(_) => bail!(
                "these histograms have counts with fractions and cannot be a heatmap: \
                 draw what happened, with exact_increase"
            ),
        };
        let end = steps.time(at);
        let start = end.saturating_sub(length);
        let gaps = answer.gaps.iter().filter(|gap| gap.start < end && start < gap.end);
        let gaps = gaps.map(gap_text).collect();
        columns.push(HeatmapColumn { start, end, values, gaps });
    }
    let unit = answer.unit.as_deref().and_then(Unit::parse);
    let label = result_page::stream_name(&stream.labels);
    let title =
        if label == "all" { expression.to_owned() } else { format!("{expression}  {label}") };
    let map = Heatmap {
        title,
        unit,
        columns,
        thresholds: Vec::new(),
        warnings: note.into_iter().collect(),
    };
    Ok(terminal_heatmap::heatmap_text(&map, terminal)?)
}

/// Lines in one picture. A column of it is one step, or several, or a part of one.
struct LinePlot<'a> {
    result: &'a QueryResult,
    maxima: &'a [Maxima],
    streams: &'a [Stream],
    terminal: &'a Terminal,
    numbers: NumberFormatter,
    low: f64,
    high: f64,
    width: usize,
}

impl<'a> LinePlot<'a> {
    fn new(
        answer: &'a QueryResult,
        maxima: &'a [Maxima],
        streams: &'a [Stream],
        terminal: &'a Terminal,
    ) -> LinePlot<'a> {
        let (low, high) = value_range(streams);
        let width = terminal.raw_width.saturating_sub(GUTTER + 1).max(1);
        let numbers = NumberFormatter::new(answer.unit.as_deref());
        LinePlot { result: answer, maxima, streams, terminal, numbers, low, high, width }
    }

    fn text(&self, expression: &str) -> String {
        let steps = self.result.steps;
        let title = escape_control(&expression.split_whitespace().collect::<Vec<_>>().join(" "));
        let mut lines = vec![self.terminal.paint(TextStyle::Heading, &title)];
        lines.extend(self.legend());
        if self.low > self.high {
            lines.push("  (no value is finite: nothing to draw)".to_owned());
            return lines.join("\n") + "\n";
        }
        lines.push(String::new());
        lines.extend(self.grid_lines());
        let (start, end) = (steps.start, steps.end());
        let total = steps.step as f64 * steps.count as f64;
        let ticks: Vec<(usize, String)> =
            time_axis::ticks(start, end, self.width.div_ceil(TICK_WIDTH))
                .into_iter()
                .map(|(time, name)| {
                    let place = (time - start) as f64 / total * self.width as f64;
                    ((place as usize).min(self.width - 1), name)
                })
                .collect();
        lines.extend(axis_lines(&ticks, self.width, self.terminal));
        let (first, last) = (
            result_page::step_time(self.result, 0),
            result_page::step_time(self.result, steps.count - 1),
        );
        let about = self.numbers.unit_note(self.result.unit.as_deref());
        let about = about.map_or_else(String::new, |about| format!("; {about}"));
        let step = result_page::duration_text(steps.step);
        let span = format!("  {first} to {last}, every {step}{about}");
        lines.push(self.terminal.paint(TextStyle::Faint, &span));
        lines.join("\n") + "\n"
    }

    /// A line for each stream: its mark, its name, its greatest number, and the maximum behind it.
    fn legend(&self) -> Vec<String> {
        let names = StreamNames::new(self.streams);
        let mut lines: Vec<String> =
            names.common.iter().map(|common| format!("  {common}")).collect();
        for ((stream, mark), name) in self.streams.iter().zip(self.marks()).zip(&names.individual) {
            let numbers = &self.numbers;
            let peak = stream.points.iter().filter_map(number_bracket).max_by(|a, b| {
                let key = |of: &Bracket| {
                    if of.estimate.is_nan() { f64::NEG_INFINITY } else { of.estimate }
                };
                key(a).total_cmp(&key(b))
            });
            let peak = peak.map_or_else(
                || "unknown".to_owned(),
                |peak| {
                    let bounds = numbers.bounds(peak);
                    let bounds = if bounds.is_empty() { bounds } else { format!(" ({bounds})") };
                    format!("{}{bounds}", numbers.value(peak))
                },
            );
            let max = self.maxima.iter().find_map(|maxima| maxima.stream_for(&stream.labels));
            let max = max.and_then(|max| result_page::max_bracket(&max.points));
            let max = max.map_or_else(String::new, |max| {
                format!("; maximum of the values {}", numbers.range(max))
            });
            lines.push(format!("  {mark} {name}: up to {peak}{max}"));
        }
        let together = self.maxima.iter().filter(|maxima| !maxima.is_per_stream);
        lines.extend(
            together.map(|maxima| format!("  {}", result_page::merged_maxima_line(maxima))),
        );
        lines
    }

    fn marks(&self) -> [char; 6] {
        if self.terminal.ascii { MARKS_ASCII } else { MARKS }
    }

    fn value_row(&self, value: f64) -> usize {
        let share = ((self.high - value) / (self.high - self.low)).clamp(0.0, 1.0);
        (share * (ROWS - 1) as f64).round() as usize
    }

    /// The steps that a column shows.
    fn column_steps(&self, column: usize) -> std::ops::Range<usize> {
        let count = self.result.steps.count;
        let first = column * count / self.width;
        first..((column + 1) * count / self.width).max(first + 1)
    }

    fn grid_lines(&self) -> Vec<String> {
        let doubt = if self.terminal.ascii { ':' } else { '░' };
        let mut grid = vec![vec![' '; self.width]; ROWS];
        // Bounds first: marks stand before them.
        for stream in self.streams {
            self.draw(&mut grid, stream, doubt, |of| (of.lower, of.upper));
        }
        for (stream, mark) in self.streams.iter().zip(self.marks()) {
            self.draw(&mut grid, stream, mark, |of| (of.estimate, of.estimate));
        }
        let ticks = self.ticks();
        let line = |(row, cells): (usize, Vec<char>)| {
            let name = ticks.iter().find(|tick| tick.0 == row).map_or("", |tick| &tick.1);
            let edge = match (self.terminal.ascii, name.is_empty()) {
                (true, true) => '|',
                (true, false) => '+',
                (false, true) => '│',
                (false, false) => '┤',
            };
            let cells: String = cells.into_iter().collect();
            let cells = self.terminal.paint(TextStyle::Bar, cells.trim_end());
            format!("{name:>width$} {edge}{cells}", width = GUTTER - 1)
        };
        grid.into_iter().enumerate().map(line).collect()
    }

    /// In each column, everything between the least and the greatest that its steps have.
    fn draw(
        &self,
        grid: &mut [Vec<char>],
        stream: &Stream,
        mark: char,
        ends: impl Fn(Bracket) -> (f64, f64),
    ) {
        for column in 0..self.width {
            let points = &stream.points[self.column_steps(column)];
            let finite =
                points.iter().filter_map(number_bracket).filter(|of| of.estimate.is_finite());
            let (low, high) = finite
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

    /// Rows with round values.
    fn ticks(&self) -> Vec<(usize, String)> {
        let show = self.numbers.formatter();
        let (low, high) = (show.scale(self.low), show.scale(self.high));
        let rough = (high - low) / TICKS as f64;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
        let first = (low / step).ceil();
        let mut ticks: Vec<(usize, String)> = Vec::new();
        for n in 0..=TICKS {
            // Through whole numbers, so that 0.30000000000000004 is not marked.
            let n = first + n as f64;
            let base = if step >= 1.0 { n * step } else { n / (1.0 / step).round() };
            let row = self.value_row(show.unscale(base));
            if base <= high && ticks.iter().all(|tick| tick.0 != row) {
                let name = if base == 0.0 { "0".to_owned() } else { tick_label(show.tick(base)) };
                ticks.push((row, name));
            }
        }
        ticks
    }
}

/// The name of a mark, without its unit where there is no room for both.
fn tick_label(tick: String) -> String {
    match tick.split_once(' ') {
        Some((number, _)) if tick.chars().count() >= GUTTER => number.to_owned(),
        _ => tick,
    }
}

/// The least and greatest number that is drawn; more than nothing lies between them.
fn value_range(streams: &[Stream]) -> (f64, f64) {
    let all = || streams.iter().flat_map(|stream| &stream.points).filter_map(number_bracket);
    let finite = || all().map(|of| of.estimate).filter(|estimate| estimate.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    // What grows from nought is shown from nought, unless it never comes near it.
    let low = if low > 0.0 && low < high * 0.7 { 0.0 } else { low };
    match low == high {
        true => (low - (low.abs() * 0.1).max(0.5), high + (high.abs() * 0.1).max(0.5)),
        false => (low, high),
    }
}
