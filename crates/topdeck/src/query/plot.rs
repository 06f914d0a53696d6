//! An answer over time, drawn in the terminal: numbers as lines, distributions as heatmaps.

use anyhow::{Result, bail};
use collect::Unit;
use hist::Bracket;
use query::{Answer, Data, Stream, Value};

use crate::heatmap::{self, Column, Heatmap};
use crate::hist::intervals;
use crate::hist::terminal::{Paint, Terminal};
use crate::hist::whole::Whole;

use super::show::{Numbers, name};

/// Rows of a picture of lines.
const ROWS: usize = 16;
/// Streams in one picture: as many marks as can be told apart.
const MARKS: [char; 6] = ['●', '▲', '■', '◆', '○', '△'];
const MARKS_ASCII: [char; 6] = ['*', '+', 'x', 'o', '#', '@'];

pub(super) fn text(answer: &Answer, expression: &str, terminal: &Terminal) -> Result<String> {
    let streams = match &answer.data {
        Data::Matrix(streams) | Data::Vector(streams) => streams,
        _ => bail!("there are no streams over time to draw; leave --plot out"),
    };
    if streams.is_empty() {
        return Ok("nothing: no series has a value there\n".to_owned());
    }
    let is_distribution =
        |stream: &&Stream| stream.points.iter().flatten().any(Value::is_distribution);
    let (distributions, lines): (Vec<&Stream>, Vec<&Stream>) =
        streams.iter().partition(is_distribution);
    let mut text = String::new();
    for stream in distributions {
        text.push_str(&heat(answer, stream, expression, terminal)?);
    }
    if !lines.is_empty() {
        if lines.len() > MARKS.len() {
            bail!(
                "{} streams in one picture cannot be told apart, {} at the most can: pick some with \
                 topk, or put them together with sum by (…)",
                lines.len(),
                MARKS.len()
            );
        }
        text.push_str(&drawn(answer, &lines, terminal));
    }
    Ok(text)
}

fn heat(answer: &Answer, stream: &Stream, expression: &str, terminal: &Terminal) -> Result<String> {
    let steps = answer.steps;
    let mut columns = Vec::with_capacity(stream.points.len());
    for (at, point) in stream.points.iter().enumerate() {
        let values = match point {
            Some(Value::Distribution(mixture)) => Whole::from((**mixture).clone()),
            None => Whole::from(hist::Mixture::default()),
            Some(_) => bail!(
                "histograms with fractions of counts cannot be drawn as a heatmap: \
                 draw what happened, with exact_increase"
            ),
        };
        let end = steps.time(at);
        columns.push(Column { start: end - steps.step, end, values, gaps: Vec::new() });
    }
    let unit = answer.unit.as_deref().and_then(Unit::parse);
    let label = name(&stream.labels);
    let title =
        if label == "all" { expression.to_owned() } else { format!("{expression}  {label}") };
    let map = Heatmap { title, unit, columns, limits: Vec::new(), notes: Vec::new() };
    heatmap::text(&map, terminal)
}

/// Lines in one picture: a column of it is one step or several, of which the least and greatest are joined.
fn drawn(answer: &Answer, streams: &[&Stream], terminal: &Terminal) -> String {
    let numbers = Numbers::new(answer);
    let finite = |stream: &&Stream| -> Vec<Option<Bracket>> {
        let bracket = |point: &Option<Value>| {
            point.as_ref().and_then(Value::bracket).filter(|bracket| bracket.estimate.is_finite())
        };
        stream.points.iter().map(bracket).collect()
    };
    let series: Vec<Vec<Option<Bracket>>> = streams.iter().map(finite).collect();
    let all = || series.iter().flatten().flatten().map(|bracket| bracket.estimate);
    let (low, high) =
        (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    if low > high {
        return "nothing to draw: no value is finite\n".to_owned();
    }
    // What grows from nought is shown from nought, unless it never comes near it.
    let low = if low > 0.0 && low < high * 0.7 { 0.0 } else { low };
    let (low, high) = if low == high { (low - 0.5, high + 0.5) } else { (low, high) };
    let label = |row: usize| {
        let value = high - (high - low) * row as f64 / (ROWS - 1) as f64;
        numbers.value(Bracket::exact(value))
    };
    let marked: Vec<usize> = (0..ROWS).step_by(5).collect();
    let margin = marked.iter().map(|row| label(*row).chars().count()).max().unwrap_or(0);
    let width = terminal.width.saturating_sub(margin + 5).max(20).min(answer.steps.count);
    let place = |at: usize| at * width / answer.steps.count;
    let row_of = |value: f64| {
        let share = (high - value) / (high - low);
        ((share * (ROWS - 1) as f64).round() as usize).min(ROWS - 1)
    };
    let marks = if terminal.ascii { MARKS_ASCII } else { MARKS };
    let mut grid = vec![vec![' '; width]; ROWS];
    for (points, mark) in series.iter().zip(marks) {
        for (at, bracket) in points.iter().enumerate() {
            if let Some(bracket) = bracket {
                grid[row_of(bracket.estimate)][place(at)] = mark;
            }
        }
    }
    let (bar, corner, dash) = if terminal.ascii { ('|', '+', '-') } else { ('│', '└', '─') };
    let mut text = String::new();
    for (stream, mark) in streams.iter().zip(marks) {
        if streams.len() > 1 || !stream.labels.is_empty() {
            text.push_str(&format!("  {mark} {}\n", name(&stream.labels)));
        }
    }
    for (row, cells) in grid.iter().enumerate() {
        let tick = if marked.contains(&row) { label(row) } else { String::new() };
        let cells: String = cells.iter().collect();
        let cells = terminal.paint(Paint::Bar, cells.trim_end());
        text.push_str(&format!("  {tick:>margin$} {bar}{cells}\n"));
    }
    text.push_str(&format!("  {:>margin$} {corner}{}\n", "", dash.to_string().repeat(width)));
    let steps = answer.steps;
    let (first, last) =
        (intervals::time(steps.start, steps.step), intervals::time(steps.end(), steps.step));
    let between = width.saturating_sub(first.chars().count() + last.chars().count());
    text.push_str(&format!("  {:>margin$}  {first}{}{last}\n", "", " ".repeat(between)));
    text
}
