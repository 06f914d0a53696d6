//! Heatmap as one self-contained SVG. Lengths are in pixels of an image 960 wide.
//!
//! Neighbouring cells of one colour are one run, and all runs of a colour are one path, so an image
//! of 200 columns stays far below a megabyte (`a_large_picture_is_a_small_file`). Tooltips are per
//! column.

use std::fmt::Write as _;

use hist::MergeError;

use crate::chart::colour_scale::{self, Background, ColourScale};
use crate::chart::heatmap::{FittedColumns, Heatmap, HeatmapColumn};
use crate::chart::heatmap_rows::{HeatmapRow, HeatmapRows};
use crate::chart::time_axis;
use crate::svg::{
    self, CHAR_WIDTH, LEFT, LINE, OccupiedSpans, PLOT, TextAnchor, WIDTH, line, text,
};
use crate::text::wrap_indented;
use crate::time;
use crate::value_formatter::{self, ValueFormatter};

/// Distance from the top to the plot, without the threshold lines.
const HEADER_HEIGHT: f64 = 118.0;
const ROWS: usize = 112;
const ROW: f64 = 3.0;
/// Height of an end row, and its distance from the axis.
const END_ROW: f64 = 12.0;
const END_GAP: f64 = 4.0;
/// Height of the strip below the plot that marks columns with gaps.
const GAP_STRIP: f64 = 6.0;
/// Height of the time labels below the plot.
const TIMES: f64 = 38.0;
/// Height of the heading of a threshold strip.
const STRIP_HEAD: f64 = 26.0;
const STRIP: f64 = 54.0;
const STRIP_FOOT: f64 = 12.0;
const FOOTER_HEIGHT: f64 = 22.0;
/// Two pixels per column: more would not be visible.
const COLUMNS_MAX: usize = 424;
const LEVELS: usize = 16;
/// Minimum distance of time labels.
const TICK_WIDTH: f64 = 110.0;
const SWATCH: f64 = 11.0;
/// Quantile lines over the heatmap, with CSS classes; the maximum is drawn as well.
const LINES: [(f64, &str); 2] = [(0.5, "p50"), (0.99, "p99")];

const STYLE: &str = ".over{fill:none;stroke-linejoin:round}.halo{stroke:#ffffff;stroke-opacity:.75;stroke-width:4}.p50{stroke:#24292f;stroke-width:1.6;stroke-dasharray:1.5 \
                     2.5}.p99{stroke:#24292f;stroke-width:1.6}.top{stroke:#d1480b;stroke-width:2}.frame{fill:none;stroke:#8c959f;stroke-width:1}.bars{fill:#8250df}.hatch{stroke:#8c959f;stroke-width:1.3}.strip{fill:#8c959f}.unknown{fill:url(#hatch)}.some{fill:url(#hatch);fill-opacity:.6}.tip{fill:#000000;fill-opacity:0}.tip:hover{fill-opacity:.12}.cells{shape-rendering:crispEdges}";
const STYLE_DARK: &str = "\
.halo{stroke:#0d1117}.p50,.p99{stroke:#ffffff}.top{stroke:#ff8c1a}.frame{stroke:#6e7681}.bars{fill:#bc8cff}\
.hatch{stroke:#6e7681}.strip{fill:#6e7681}.tip{fill:#ffffff}";
const HATCH: &str = "<defs><pattern id=\"hatch\" width=\"7\" height=\"7\" \
                     patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><path \
                     class=\"hatch\" d=\"M0 0V7\"/></pattern></defs>\n";

/// One SVG file with all heatmaps, stacked vertically.
pub fn document(maps: &[Heatmap]) -> Result<String, MergeError> {
    let drawn = SvgBody::new(maps)?;
    Ok(svg::document(&drawn.title, &drawn.description, drawn.height, &style(), &drawn.body))
}

/// SVG element for a page that has [`svg::STYLE`] and [`style`].
pub fn element(id: &str, maps: &[Heatmap]) -> Result<String, MergeError> {
    let drawn = SvgBody::new(maps)?;
    Ok(svg::element(id, &drawn.title, &drawn.description, drawn.height, "", &drawn.body))
}

struct SvgBody {
    title: String,
    description: String,
    height: f64,
    body: String,
}

impl SvgBody {
    fn new(maps: &[Heatmap]) -> Result<SvgBody, MergeError> {
        let mut body = HATCH.to_owned();
        let (mut top, mut about) = (0.0, Vec::new());
        for map in maps {
            let fitted = map.fit_columns(COLUMNS_MAX)?;
            let picture = SvgHeatmap::new(map, &fitted);
            let _ = writeln!(body, "<g transform=\"translate(0 {top})\">");
            picture.draw(&mut body);
            body.push_str("</g>\n");
            top += picture.height();
            about.push(format!("{}: {}.", map.title, map.totals_text()));
            about.extend(map.exceedances().into_iter().map(|sentence| format!("{sentence}.")));
        }
        let title = match maps {
            [one] => one.title.clone(),
            several => format!("{} heatmaps", several.len()),
        };
        Ok(SvgBody { title, description: about.join(" "), height: top.max(60.0), body })
    }
}

/// CSS of heatmaps, with the colours of the ramp.
pub fn style() -> String {
    let colours = |ground| {
        (0..LEVELS).fold(String::new(), |mut style, level| {
            let [r, g, b] = colour_scale::colour(level as f64 / (LEVELS - 1) as f64, ground);
            let _ = write!(style, ".h{level}{{fill:#{r:02x}{g:02x}{b:02x}}}");
            style
        })
    };
    let (light, dark) = (colours(Background::Light), colours(Background::Dark));
    format!("{STYLE}{light}@media(prefers-color-scheme:dark){{{STYLE_DARK}{dark}}}")
}

struct SvgHeatmap<'a> {
    map: &'a Heatmap,
    fitted: &'a FittedColumns,
    formatter: ValueFormatter,
    rows: HeatmapRows,
    warnings: Vec<String>,
    exceedances: Vec<String>,
}

impl<'a> SvgHeatmap<'a> {
    fn new(map: &'a Heatmap, fitted: &'a FittedColumns) -> SvgHeatmap<'a> {
        let formatter = map.formatter();
        let rows = HeatmapRows::covering(
            fitted.columns.iter().map(|column| &column.values),
            &formatter,
            ROWS,
        );
        let notes = map.gap_summary().into_iter().chain(map.warnings.iter().cloned());
        let notes = notes.flat_map(|note| note_lines(&note)).collect();
        SvgHeatmap { map, fitted, formatter, rows, warnings: notes, exceedances: map.exceedances() }
    }

    fn top(&self) -> f64 {
        HEADER_HEIGHT
    }

    /// Vertical position of the top of the axis.
    fn axis_top(&self) -> f64 {
        let beyond = self.rows.all().first() == Some(&HeatmapRow::Overflow);
        self.top() + if beyond { END_ROW + END_GAP } else { 0.0 }
    }

    /// Top edge and height of a row.
    fn row(&self, row: HeatmapRow) -> (f64, f64) {
        let bottom = self.axis_top() + ROWS as f64 * ROW;
        let zero = self.rows.all().contains(&HeatmapRow::Zero);
        match row {
            HeatmapRow::Overflow => (self.top(), END_ROW),
            HeatmapRow::OnAxis(at) => (bottom - (at + 1) as f64 * ROW, ROW),
            HeatmapRow::Zero => (bottom + END_GAP, END_ROW),
            HeatmapRow::Negative => {
                (bottom + END_GAP + if zero { END_ROW + END_GAP } else { 0.0 }, END_ROW)
            }
        }
    }

    /// Vertical position of the bottom of the plot.
    fn bottom(&self) -> f64 {
        let ends = self
            .rows
            .all()
            .into_iter()
            .filter(|row| matches!(row, HeatmapRow::Zero | HeatmapRow::Negative));
        self.axis_top() + ROWS as f64 * ROW + ends.count() as f64 * (END_ROW + END_GAP)
    }

    fn height(&self) -> f64 {
        let strips = self.exceedances.len() as f64 * (STRIP_HEAD + STRIP + STRIP_FOOT);
        let notes = (self.warnings.len() + 1) as f64 * LINE;
        self.bottom() + GAP_STRIP + TIMES + strips + notes + FOOTER_HEIGHT
    }

    /// Left edge of a column.
    fn x(&self, column: usize) -> f64 {
        LEFT + column as f64 * PLOT / self.fitted.columns.len().max(1) as f64
    }

    fn draw(&self, out: &mut String) {
        text(out, (24.0, 36.0), "title", TextAnchor::Start, &self.map.title);
        text(out, (24.0, 58.0), "faint", TextAnchor::Start, &self.map.totals_text());
        self.value_axis(out);
        let ramp = self.cells(out);
        self.gaps(out);
        self.lines(out);
        self.limits(out);
        self.legend(out, ramp);
        let plot = self.bottom() - self.top();
        let _ = writeln!(
            out,
            "<rect class=\"frame\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{PLOT}\" \
             height=\"{plot:.1}\"/>",
            self.top()
        );
        let mut y = self.bottom() + GAP_STRIP;
        self.time_axis(out, y);
        y += TIMES;
        for (at, sentence) in self.exceedances.iter().enumerate() {
            text(out, (24.0, y + 12.0), "heading", TextAnchor::Start, sentence);
            self.threshold_strip(out, self.map.thresholds[at], y + STRIP_HEAD);
            y += STRIP_HEAD + STRIP + STRIP_FOOT;
        }
        self.tooltips(out, y - STRIP_FOOT);
        y += 10.0;
        if let (Some((start, end)), Some(about)) =
            (self.map.time_range(), self.fitted.description())
        {
            let first = &self.fitted.columns[0];
            let time = |ns| time::time_text(ns, first.end.saturating_sub(first.start));
            let span = format!("{} to {}; {about}", time(start), time(end));
            text(out, (24.0, y), "faint", TextAnchor::Start, &span);
        }
        for note in &self.warnings {
            y += LINE;
            text(out, (24.0, y), "faint", TextAnchor::Start, note);
        }
    }

    fn value_axis(&self, out: &mut String) {
        let name_end = |out: &mut String, row: HeatmapRow| {
            let (y, height) = self.row(row);
            let name = self.rows.row_label(row, &self.formatter, false);
            text(out, (LEFT - 8.0, y + height / 2.0 + 4.5), "faint", TextAnchor::End, &name);
        };
        let mut room = OccupiedSpans::default();
        for row in self.rows.all().into_iter().filter(|row| !row.is_on_axis()) {
            let y = self.row(row).0;
            room.try_occupy(y - 2.0, y + END_ROW + 2.0);
            name_end(out, row);
        }
        let Some(axis) = &self.rows.axis else {
            let middle = f64::midpoint(self.top(), self.bottom());
            if self.rows.all().is_empty() {
                text(out, (WIDTH / 2.0, middle), "faint", TextAnchor::Middle, "No values to draw.");
            }
            return;
        };
        for tick in axis.ticks(10) {
            let y = self.y(axis.position(tick));
            line(out, "grid", (LEFT, y), (LEFT + PLOT, y));
            line(out, "axis", (LEFT - 5.0, y), (LEFT, y));
            if room.try_occupy(y - 5.0, y + 5.0) {
                text(out, (LEFT - 8.0, y + 4.5), "", TextAnchor::End, &self.formatter.tick(tick));
            }
        }
    }

    /// Vertical position of an axis position.
    fn y(&self, position: f64) -> f64 {
        self.axis_top() + (1.0 - position) * ROWS as f64 * ROW
    }

    /// Draws the cells.
    fn cells(&self, out: &mut String) -> ColourScale {
        let columns = &self.fitted.columns;
        let counts: Vec<_> = columns
            .iter()
            .map(|column| self.rows.counts(&column.values, &self.formatter))
            .collect();
        let ramp = ColourScale::up_to(counts.iter().map(|counts| counts.max()).max().unwrap_or(0));
        // An axis row is one unit high and a column one unit wide: integers keep the path short.
        let mut on_axis = vec![String::new(); LEVELS];
        let mut ends = String::new();
        for row in self.rows.all() {
            let level = |column: usize| ramp.level(counts[column].get(row), LEVELS);
            let mut from = 0;
            while from < columns.len() {
                let to = (from + 1..columns.len())
                    .find(|&to| level(to) != level(from))
                    .unwrap_or(columns.len());
                if let Some(level) = level(from) {
                    let width = to - from;
                    match row {
                        HeatmapRow::OnAxis(at) => {
                            let y = ROWS - 1 - at;
                            let _ = write!(on_axis[level], "M{from} {y}h{width}v1h-{width}z");
                        }
                        _ => {
                            let (y, height) = self.row(row);
                            let (x, width) = (self.x(from), self.x(to) - self.x(from));
                            let _ = writeln!(
                                ends,
                                "<rect class=\"h{level}\" x=\"{x:.2}\" y=\"{y:.1}\" \
                                 width=\"{width:.2}\" height=\"{height}\"/>"
                            );
                        }
                    }
                }
                from = to;
            }
        }
        let _ = writeln!(
            out,
            "<g class=\"cells\">\n{ends}<g transform=\"translate({LEFT} {:.1}) scale({:.5} \
             {ROW})\">",
            self.axis_top(),
            PLOT / columns.len().max(1) as f64,
        );
        for (level, path) in on_axis.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let _ = writeln!(out, "<path class=\"h{level}\" d=\"{path}\"/>");
        }
        out.push_str("</g>\n</g>\n");
        ramp
    }

    /// Hatches columns without data, and marks all columns with gaps below the plot.
    fn gaps(&self, out: &mut String) {
        let kind = |at: usize| {
            let column = &self.fitted.columns[at];
            (!column.gaps.is_empty()).then(|| if column.is_unknown() { "unknown" } else { "some" })
        };
        let n = self.fitted.columns.len();
        let mut from = 0;
        while from < n {
            let to = (from + 1..n).find(|&to| kind(to) != kind(from)).unwrap_or(n);
            if let Some(class) = kind(from) {
                let (x, width) = (self.x(from), self.x(to) - self.x(from));
                let (top, bottom) = (self.top(), self.bottom());
                let _ = writeln!(
                    out,
                    "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{top:.1}\" width=\"{width:.2}\" \
                     height=\"{:.1}\"/>\n<rect class=\"strip\" x=\"{x:.2}\" y=\"{:.1}\" \
                     width=\"{width:.2}\" height=\"{}\"/>",
                    bottom - top,
                    bottom + 1.0,
                    GAP_STRIP - 2.0,
                );
            }
            from = to;
        }
    }

    /// Quantile and maximum lines, in steps; interrupted where there are no values.
    fn lines(&self, out: &mut String) {
        let height = |value: hist::Bracket| {
            let row = self.rows.find_row(value, &self.formatter)?;
            let (top, height) = self.row(row);
            Some(match (&self.rows.axis, row) {
                (Some(axis), HeatmapRow::OnAxis(_)) => {
                    self.y(axis.position(self.formatter.scale(value.estimate)))
                }
                _ => top + height / 2.0,
            })
        };
        let path = |of: &dyn Fn(&HeatmapColumn) -> Option<hist::Bracket>| {
            let mut path = String::new();
            let mut drawing = false;
            for (at, column) in self.fitted.columns.iter().enumerate() {
                let Some(y) = of(column).and_then(height) else {
                    drawing = false;
                    continue;
                };
                let (x, end) = (self.x(at), self.x(at + 1));
                let _ = match drawing {
                    true => write!(path, "V{y:.1}H{end:.1}"),
                    false => write!(path, "M{x:.1} {y:.1}H{end:.1}"),
                };
                drawing = true;
            }
            path
        };
        let quantiles =
            LINES.map(|(q, class)| (class, path(&|c: &HeatmapColumn| c.values.quantile(q))));
        let max = ("top", path(&|column: &HeatmapColumn| column.values.max()));
        for (class, path) in quantiles.into_iter().chain([max]).filter(|line| !line.1.is_empty()) {
            let _ = writeln!(out, "<path class=\"over halo\" d=\"{path}\"/>");
            let _ = writeln!(out, "<path class=\"over {class}\" d=\"{path}\"/>");
        }
    }

    fn limits(&self, out: &mut String) {
        let Some(axis) = &self.rows.axis else { return };
        let mut room = OccupiedSpans::default();
        for &limit in &self.map.thresholds {
            let base = self.formatter.scale(limit);
            if !(axis.low..=axis.high).contains(&base) {
                continue;
            }
            let y = self.y(axis.position(base));
            line(out, "limit", (LEFT, y), (LEFT + PLOT, y));
            if room.try_occupy(y - LINE, y) {
                let name = self.formatter.exact(limit);
                text(out, (LEFT + 6.0, y - 5.0), "limits", TextAnchor::Start, &name);
            }
        }
    }

    /// Legend of colours and lines, above the plot.
    fn legend(&self, out: &mut String, ramp: ColourScale) {
        if self.rows.all().is_empty() {
            return;
        }
        let y = self.top() - 32.0;
        let words = "values per cell";
        text(out, (LEFT, y + 9.0), "faint", TextAnchor::Start, words);
        let left = LEFT + words.len() as f64 * CHAR_WIDTH + 12.0;
        let width = SWATCH * LEVELS as f64;
        for (level, _) in ramp.levels(LEVELS) {
            let x = left + level as f64 * SWATCH;
            let _ = writeln!(
                out,
                "<rect class=\"h{level} cells\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{SWATCH}\" \
                 height=\"10\"/>"
            );
        }
        let mut room = OccupiedSpans::default();
        for count in ramp.marks(4).into_iter().rev() {
            let name = value_formatter::count(count);
            let wide = name.len() as f64 * CHAR_WIDTH;
            let x = left + ramp.heat(count).unwrap_or(0.0) * width;
            let from = (x - wide / 2.0).clamp(left - wide / 2.0, left + width - wide);
            if room.try_occupy(from, from + wide) {
                text(out, (from, y + 24.0), "faint", TextAnchor::Start, &name);
            }
        }
        // Line legend, from the right.
        let mut x = LEFT + PLOT;
        let incomplete = self.fitted.columns.iter().any(|column| !column.gaps.is_empty());
        let unknown = incomplete.then_some(("unknown", "missing"));
        let lines = [("top", "max"), ("p99", "p99"), ("p50", "p50")];
        for (class, name) in unknown.into_iter().chain(lines.into_iter().rev()) {
            x -= name.len() as f64 * CHAR_WIDTH;
            text(out, (x, y + 9.0), "faint", TextAnchor::Start, name);
            x -= 32.0;
            if class == "unknown" {
                let _ = writeln!(
                    out,
                    "<rect class=\"unknown\" x=\"{x:.1}\" y=\"{:.1}\" width=\"26\" height=\"12\"/>\
                     <rect class=\"frame\" x=\"{x:.1}\" y=\"{:.1}\" width=\"26\" height=\"12\"/>",
                    y - 1.0,
                    y - 1.0
                );
            } else {
                line(out, class, (x, y + 5.0), (x + 26.0, y + 5.0));
            }
            x -= 16.0;
        }
    }

    fn time_axis(&self, out: &mut String, y: f64) {
        let Some((start, end)) = self.map.time_range() else { return };
        let mut room = OccupiedSpans::default();
        for (time, name) in time_axis::ticks(start, end, (PLOT / TICK_WIDTH) as usize) {
            let Some(position) = self.fitted.position(time) else { continue };
            let x = LEFT + position / self.fitted.columns.len() as f64 * PLOT;
            line(out, "axis", (x, y), (x, y + 5.0));
            let wide = name.chars().count() as f64 * CHAR_WIDTH;
            let middle = x.min(WIDTH - 4.0 - wide / 2.0);
            if room.try_occupy(middle - wide / 2.0, middle + wide / 2.0) {
                text(out, (middle, y + 19.0), "", TextAnchor::Middle, &name);
            }
        }
    }

    /// Number of values above a threshold per column, as bars.
    fn threshold_strip(&self, out: &mut String, limit: f64, top: f64) {
        let bottom = top + STRIP;
        let counts: Vec<u64> = self
            .fitted
            .columns
            .iter()
            .map(|column| column.values.count_above(limit).estimate)
            .collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        if most > 0 {
            line(out, "grid", (LEFT, top), (LEFT + PLOT, top));
            text(out, (LEFT - 8.0, top + 4.5), "", TextAnchor::End, &value_formatter::count(most));
        }
        text(out, (LEFT - 8.0, bottom + 4.5), "", TextAnchor::End, "0");
        // Unknown differs from zero: hatched.
        for (at, _) in self.fitted.columns.iter().enumerate().filter(|(_, c)| c.is_unknown()) {
            let (x, width) = (self.x(at), self.x(at + 1) - self.x(at));
            let _ = writeln!(
                out,
                "<rect class=\"unknown\" x=\"{x:.2}\" y=\"{top:.1}\" width=\"{width:.2}\" \
                 height=\"{STRIP}\"/>"
            );
        }
        let mut path = String::new();
        for (at, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            // A single value in a million stays visible.
            let height = (count as f64 / most as f64 * STRIP).max(1.5);
            let (x, end) = (self.x(at), self.x(at + 1));
            let _ =
                write!(path, "M{x:.1} {bottom:.1}V{:.1}H{end:.1}V{bottom:.1}z", bottom - height);
        }
        if !path.is_empty() {
            let _ = writeln!(out, "<path class=\"bars\" d=\"{path}\"/>");
        }
        line(out, "axis", (LEFT, bottom), (LEFT + PLOT, bottom));
    }

    /// Tooltips of columns.
    fn tooltips(&self, out: &mut String, bottom: f64) {
        for (at, column) in self.fitted.columns.iter().enumerate() {
            let (x, width) = (self.x(at), self.x(at + 1) - self.x(at));
            let height = bottom - self.top();
            let _ = writeln!(
                out,
                "<rect class=\"tip\" x=\"{x:.2}\" y=\"{:.1}\" width=\"{width:.2}\" \
                 height=\"{height:.1}\"><title>{}</title></rect>",
                self.top(),
                self.tooltip_lines(column)
                    .iter()
                    .map(|line| svg::escape(line))
                    .collect::<Vec<_>>()
                    .join("\n")
            );
        }
    }

    fn tooltip_lines(&self, column: &HeatmapColumn) -> Vec<String> {
        let count = column.values.count();
        let mut lines = vec![column.start_text()];
        lines.push(match (count, column.is_unknown()) {
            (_, true) => "unknown".to_owned(),
            (1, _) => "1 value".to_owned(),
            (count, _) => format!("{} values", value_formatter::count(count)),
        });
        let mut row = |name: &str, value: Option<hist::Bracket>| {
            let Some(value) = value else { return };
            let bounds = self.formatter.bounds(value);
            let bounds = if bounds.is_empty() { bounds } else { format!(" ({bounds})") };
            lines.push(format!("{name} {}{bounds}", self.formatter.value(value)));
        };
        for (q, name) in LINES {
            row(name, column.values.quantile(q));
        }
        row("max", column.values.max());
        if count > 0 {
            lines.extend(self.map.thresholds.iter().map(|&limit| {
                let above = value_formatter::count_estimate(column.values.count_above(limit));
                format!("{above} above {}", self.formatter.exact(limit))
            }));
        }
        lines.extend(column.gaps.iter().map(|reason| format!("missing: {reason}")));
        lines
    }
}

/// Wraps a note to the image width; continuation lines are indented.
fn note_lines(note: &str) -> Vec<String> {
    wrap_indented(note, ((WIDTH - 48.0) / CHAR_WIDTH) as usize, "\u{a0} ")
}
