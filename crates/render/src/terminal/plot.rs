//! Text charts: bars, axes, labels.

use crate::chart::distribution_columns::DistributionColumns;
use crate::chart::percentile_spectrum::PercentileSpectrum;
use crate::merged_distribution::MergedDistribution;
use crate::terminal::{Terminal, TextStyle};
use crate::value_formatter::{self, ValueFormatter};

/// Height of a chart in lines, without the axis.
const ROWS: usize = 9;
/// Width of the labels of the vertical axis.
pub(crate) const GUTTER: usize = 10;
/// Minimum distance of labels below an axis.
const GAP: usize = 2;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Three heights in ASCII.
const EIGHTHS_ASCII: [char; 9] = [' ', '.', '.', ':', ':', ':', '#', '#', '#'];

/// Distribution: fraction of values per column.
pub fn distribution(
    merged: &MergedDistribution,
    formatter: &ValueFormatter,
    terminal: &Terminal,
) -> Vec<String> {
    let Some(width) = terminal.width.checked_sub(GUTTER + 1) else { return Vec::new() };
    let Some(shape) = DistributionColumns::new(merged, formatter, width) else {
        return vec!["  (no values above zero to draw)".into()];
    };
    let peak = shape.peak();
    let heights: Vec<(usize, usize)> = shape
        .columns
        .iter()
        .map(|&share| {
            // A single value in a million stays visible.
            let eighths = (share / peak * (ROWS * 8) as f64).round() as usize;
            let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
            (eighths, eighths)
        })
        .collect();
    let percent = |share: f64| {
        let percent = share * 100.0;
        let decimals = if percent >= 10.0 { 0 } else { 1 };
        if percent >= 0.1 { format!("{percent:.decimals$} %") } else { format!("{percent:.0e} %") }
    };
    let marks = vec![(0, percent(peak)), (ROWS / 2, percent(peak / 2.0))];
    let mut lines = bars(&heights, &marks, terminal);
    let ticks: Vec<(usize, String)> = shape
        .axis
        .ticks(width / 9)
        .into_iter()
        .map(|tick| (column(shape.axis.position(tick), width), formatter.tick(tick)))
        .collect();
    lines.extend(axis_lines(&ticks, width, terminal));

    let at = |value: f64| column(shape.axis.position(formatter.scale(value)), width);
    let mut marks = Vec::new();
    if let Some(max) = merged.max().filter(|max| max.estimate.is_finite() && max.estimate > 0.0) {
        marks.push((at(max.estimate), format!("max {}", formatter.value(max)), TextStyle::Max));
    }
    for q in [0.5, 0.99, 0.9, 0.999] {
        let drawn = |value: &hist::Bracket| value.estimate > 0.0 && value.estimate.is_finite();
        if let Some(value) = merged.quantile(q).filter(drawn) {
            marks.push((at(value.estimate), value_formatter::quantile_name(q), TextStyle::Faint));
        }
    }
    lines.push(mark_line(&marks, width, terminal));
    lines.extend(shape.notes(formatter).iter().map(|note| format!("{:GUTTER$} {note}", "")));
    lines
}

/// Percentile spectrum: value of each quantile, on an axis of nines.
pub fn spectrum(
    distribution: &MergedDistribution,
    formatter: &ValueFormatter,
    terminal: &Terminal,
) -> Vec<String> {
    let Some(width) = terminal.width.checked_sub(GUTTER + 1) else { return Vec::new() };
    let Some(spectrum) = PercentileSpectrum::new(distribution, formatter, width) else {
        return Vec::new();
    };
    let axis = spectrum.axis;
    let eighths = |value: f64| (axis.position(value) * (ROWS * 8) as f64).round() as usize;
    let heights: Vec<(usize, usize)> = spectrum
        .columns
        .iter()
        .map(|value| {
            let (lower, estimate, upper) =
                (eighths(value.lower), eighths(value.estimate), eighths(value.upper));
            // Bounds closer than a line are not drawn.
            if upper - lower >= 8 { (lower, upper) } else { (estimate, estimate) }
        })
        .collect();
    let mut marks: Vec<(usize, String)> = Vec::new();
    for tick in axis.ticks(ROWS / 2) {
        let row = ROWS - ((axis.position(tick) * ROWS as f64).round() as usize).clamp(1, ROWS);
        if marks.iter().all(|mark| mark.0 != row) {
            marks.push((row, formatter.tick(tick)));
        }
    }
    let has_bands = heights.iter().any(|(lower, upper)| lower != upper);
    let mut lines = bars(&heights, &marks, terminal);
    let ticks: Vec<(usize, String)> = spectrum
        .percentiles
        .ticks()
        .into_iter()
        .map(|(place, name)| (column(place, width), name))
        .chain([(width - 1, "max".to_owned())])
        .collect();
    lines.extend(axis_lines(&ticks, width, terminal));
    if let Some(max) = distribution.max() {
        lines.push(mark_line(
            &[(width - 1, format!("max {}", formatter.value(max)), TextStyle::Max)],
            width,
            terminal,
        ));
    }
    if has_bands {
        let pattern = if terminal.ascii { '-' } else { '░' };
        lines.push(format!("{:GUTTER$} {pattern} between the bounds of the quantile", ""));
    }
    lines
}

fn column(position: f64, width: usize) -> usize {
    ((position * width as f64) as usize).min(width - 1)
}

/// Columns from the bottom: solid up to the first height, uncertain up to the second, in eighths of
/// a line.
fn bars(heights: &[(usize, usize)], marks: &[(usize, String)], terminal: &Terminal) -> Vec<String> {
    let glyphs = if terminal.ascii { &EIGHTHS_ASCII } else { &EIGHTHS };
    let band_glyph = if terminal.ascii { '-' } else { '░' };
    (0..ROWS)
        .map(|row| {
            let floor = (ROWS - 1 - row) * 8;
            let mark = marks.iter().find(|mark| mark.0 == row).map_or("", |mark| &mark.1);
            let edge = edge(terminal, !mark.is_empty());
            // A run of one style gets one escape sequence.
            let (mut text, mut run, mut paint) = (String::new(), String::new(), TextStyle::Bar);
            for &(solid, upper) in heights {
                let eighths = solid.saturating_sub(floor).min(8);
                let (glyph, level) = if eighths == 0 && upper > floor {
                    (band_glyph, TextStyle::Uncertain)
                } else {
                    (glyphs[eighths], TextStyle::Bar)
                };
                if level != paint {
                    text.push_str(&terminal.paint(paint, &run));
                    (run, paint) = (String::new(), level);
                }
                run.push(glyph);
            }
            let trimmed = run.trim_end();
            text.push_str(&terminal.paint(paint, trimmed));
            let text = text.trim_end().to_owned();
            format!("{mark:>width$} {edge}{text}", width = GUTTER - 1).trim_end().to_owned()
        })
        .collect()
}

/// Character of a vertical axis, with or without a tick.
pub(crate) fn edge(terminal: &Terminal, is_marked: bool) -> char {
    match (terminal.ascii, is_marked) {
        (true, false) => '|',
        (true, true) => '+',
        (false, false) => '│',
        (false, true) => '┤',
    }
}

/// Axis with ticks, and their labels as far as they fit; the last tick is always labelled.
pub(crate) fn axis_lines(
    ticks: &[(usize, String)],
    width: usize,
    terminal: &Terminal,
) -> [String; 2] {
    let (corner, line, cross) =
        if terminal.ascii { ('+', '-', '+') } else { ('└', '─', '┬') };
    let mut axis: Vec<char> = vec![line; width];
    let mut names = LabelLine::new(width + GUTTER);
    for (at, name) in ticks.iter().rev().take(1).chain(ticks.iter().take(ticks.len().max(1) - 1)) {
        axis[*at] = cross;
        names.centred(at + GUTTER, name);
    }
    let axis: String = axis.into_iter().collect();
    [format!("{}{corner}{axis}", " ".repeat(GUTTER)), format!(" {}", names.text())]
}

/// Line of arrows with names, in order of priority; those that do not fit are omitted.
fn mark_line(marks: &[(usize, String, TextStyle)], width: usize, terminal: &Terminal) -> String {
    let arrow = if terminal.ascii { '^' } else { '▲' };
    let mut names = LabelLine::new(width);
    let mut painted = Vec::new();
    for (at, name, paint) in marks {
        let length = name.chars().count();
        let after = format!("{arrow} {name}");
        let before = format!("{name} {arrow}");
        let left = at.checked_sub(length + 1);
        let placed = match left {
            // In the right half the name is left of its arrow.
            Some(left) if *at > width / 2 && names.try_put(left, &before) => Some(before),
            _ if names.try_put(*at, &after) => Some(after),
            Some(left) if names.try_put(left, &before) => Some(before),
            _ => None,
        };
        painted.extend(placed.map(|text| (text, *paint)));
    }
    let mut line = names.text();
    for (text, paint) in painted {
        line = line.replacen(&text, &terminal.paint(paint, &text), 1);
    }
    format!("{} {line}", " ".repeat(GUTTER)).trim_end().to_owned()
}

/// Line of labels that do not overlap.
struct LabelLine {
    cells: Vec<char>,
    occupied: Vec<bool>,
}

impl LabelLine {
    fn new(width: usize) -> LabelLine {
        LabelLine { cells: vec![' '; width], occupied: vec![false; width] }
    }

    fn try_put(&mut self, at: usize, text: &str) -> bool {
        let end = at + text.chars().count();
        let (from, to) = (at.saturating_sub(GAP), (end + GAP).min(self.occupied.len()));
        if end > self.cells.len() || self.occupied[from..to].contains(&true) {
            return false;
        }
        for (offset, c) in text.chars().enumerate() {
            self.cells[at + offset] = c;
            self.occupied[at + offset] = true;
        }
        true
    }

    /// Centres a label at `at`, or as close to it as the line allows.
    fn centred(&mut self, at: usize, text: &str) -> bool {
        let length = text.chars().count();
        let start = at.saturating_sub(length / 2).min(self.cells.len().saturating_sub(length));
        self.try_put(start, text)
    }

    fn text(&self) -> String {
        self.cells.iter().collect::<String>().trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_distance() {
        let mut names = LabelLine::new(20);
        assert!(names.try_put(0, "abc"));
        assert!(!names.try_put(4, "de"), "a gap of one");
        assert!(names.try_put(5, "de"));
        assert!(!names.try_put(18, "xyz"), "past the end");
        assert!(names.centred(19, "max"));
        assert_eq!(names.text(), "abc  de          max");
    }
}
