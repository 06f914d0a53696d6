//! Distribution and percentile spectrum as one self-contained SVG. Lengths are in pixels of an
//! image 960 wide.

use std::fmt::Write as _;

use crate::chart::axis::{Axis, round_step};
use crate::chart::distribution_columns::DistributionColumns;
use crate::chart::percentile_spectrum::PercentileSpectrum;
use crate::merged_distribution::MergedDistribution;
use crate::svg::curve::CurveFrame;
use crate::svg::{
    self, CHAR_WIDTH, CHAR_WIDTH_BOLD, LEFT, LINE, OccupiedSpans, PLOT, TextAnchor, line, text,
};
use crate::threshold_count::ThresholdCount;
use crate::value_formatter::{self, ValueFormatter};

/// Distance from the top of a group to its first plot.
const HEADER_HEIGHT: f64 = 116.0;
const SHAPE_HEIGHT: f64 = 230.0;
/// Space between the plots: tick labels, marks, a heading.
const PLOT_GAP: f64 = 132.0;
const SPECTRUM_HEIGHT: f64 = 270.0;
const FOOTER_HEIGHT: f64 = 62.0;
const GROUP_HEIGHT: f64 = HEADER_HEIGHT + SHAPE_HEIGHT + PLOT_GAP + SPECTRUM_HEIGHT + FOOTER_HEIGHT;
const COLUMNS: usize = 282;
/// Estimated width of a threshold label.
const LIMIT_WIDTH: f64 = 92.0;

/// Input of a pair of charts.
pub struct DistributionPicture<'a> {
    /// Title above the charts.
    pub title: String,
    /// Distribution to draw.
    pub distribution: &'a MergedDistribution,
    /// Formatter, in the unit of the distribution.
    pub formatter: ValueFormatter,
    /// Thresholds to mark.
    pub thresholds: Vec<ThresholdCount>,
}

/// SVG file with a pair of charts per distribution that has values, stacked vertically.
pub fn document(pictures: &[DistributionPicture<'_>]) -> String {
    let pictures: Vec<&DistributionPicture<'_>> =
        pictures.iter().filter(|picture| picture.distribution.count() > 0).collect();
    let height = GROUP_HEIGHT * pictures.len().max(1) as f64;
    let mut body = String::new();
    let mut about = Vec::new();
    for (at, picture) in pictures.iter().enumerate() {
        about.push(picture.sentence());
        let _ = write!(body, "<g transform=\"translate(0 {})\">", at as f64 * GROUP_HEIGHT);
        body.push_str(&picture.draw());
        body.push_str("</g>\n");
    }
    let title = match &pictures[..] {
        [one] => one.title.clone(),
        several => format!("{} distributions", several.len()),
    };
    svg::document(&title, &about.join(" "), height, "", &body)
}

impl DistributionPicture<'_> {
    /// Text alternative of the charts.
    fn sentence(&self) -> String {
        let distribution = self.distribution;
        let mut parts = vec![format!("{} values", value_formatter::count(distribution.count()))];
        for q in [0.5, 0.9, 0.99, 0.999] {
            if let Some(value) = distribution.quantile(q) {
                parts.push(format!(
                    "{} {}",
                    value_formatter::quantile_name(q),
                    self.formatter.value(value)
                ));
            }
        }
        if let Some(max) = distribution.max() {
            parts.push(format!("max {}", self.formatter.value(max)));
        }
        let limits = self
            .thresholds
            .iter()
            .map(|a| format!(" {}.", a.sentence(distribution.count(), &self.formatter)));
        format!("{}: {}.{}", self.title, parts.join(", "), limits.collect::<String>())
    }

    fn draw(&self) -> String {
        let mut out = String::new();
        text(&mut out, (24.0, 36.0), "title", TextAnchor::Start, &self.title);
        let facts = self.sentence();
        let facts = facts.strip_prefix(&format!("{}: ", self.title)).unwrap_or(&facts);
        let facts = facts.split_once(". ").map_or(facts, |(first, _)| first).trim_end_matches('.');
        text(&mut out, (24.0, 58.0), "faint", TextAnchor::Start, facts);
        heading(&mut out, HEADER_HEIGHT - 24.0, "Distribution", "percentage of values per column");
        match DistributionColumns::new(self.distribution, &self.formatter, COLUMNS) {
            Some(shape) => self.shape(&mut out, &shape, HEADER_HEIGHT),
            None => text(
                &mut out,
                (LEFT, HEADER_HEIGHT + 20.0),
                "faint",
                TextAnchor::Start,
                "No values above zero to draw.",
            ),
        }
        let top = HEADER_HEIGHT + SHAPE_HEIGHT + PLOT_GAP;
        heading(&mut out, top - 24.0, "Percentile spectrum", "each tick is ten times rarer");
        if let Some(spectrum) = PercentileSpectrum::new(self.distribution, &self.formatter, COLUMNS)
        {
            self.spectrum(&mut out, &spectrum, top);
        }
        out
    }

    fn shape(&self, out: &mut String, shape: &DistributionColumns, top: f64) {
        let bottom = top + SHAPE_HEIGHT;
        let (axis, peak) = (shape.axis, shape.peak());
        let x = |value: f64| LEFT + axis.position(self.formatter.scale(value)) * PLOT;
        // Headroom for the label of the peak and for threshold labels.
        let greatest = peak * 1.08;
        let step = round_step(greatest / 4.0);
        let mut mark = 0.0;
        while mark <= greatest {
            let y = bottom - mark / greatest * SHAPE_HEIGHT;
            line(out, "grid", (LEFT, y), (LEFT + PLOT, y));
            text(out, (LEFT - 8.0, y + 4.0), "faint", TextAnchor::End, &percent(mark, step));
            mark += step;
        }
        let column = PLOT / COLUMNS as f64;
        let mut path = format!("M{LEFT:.1} {bottom:.1}");
        for (at, &share) in shape.columns.iter().enumerate() {
            let height = share / greatest * SHAPE_HEIGHT;
            // A single value in a million stays visible.
            let y = if share > 0.0 { bottom - height.max(1.0) } else { bottom };
            let _ = write!(path, "V{y:.1}H{:.1}", LEFT + (at + 1) as f64 * column);
        }
        let _ = writeln!(out, "<path class=\"area\" d=\"{path}V{bottom:.1}Z\"/>");
        line(out, "axis", (LEFT, bottom), (LEFT + PLOT, bottom));
        self.value_ticks(out, &axis, bottom);

        let limits = || {
            let on_axis = |above: &&ThresholdCount| {
                (axis.low..=axis.high).contains(&self.formatter.scale(above.threshold))
            };
            self.thresholds.iter().filter(on_axis)
        };
        for above in limits() {
            line(out, "limit", (x(above.threshold), top - 6.0), (x(above.threshold), bottom));
        }
        // Labels are stacked above the lines of their neighbours.
        for (at, above) in limits().enumerate() {
            let (x, y) = (x(above.threshold), top + 4.0 + at as f64 * LINE);
            let share = value_formatter::share(above.count.estimate, self.distribution.count());
            let about = if above.count.is_exact() { "" } else { "~" };
            let name = format!("{about}{share} above {}", self.formatter.exact(above.threshold));
            let room = name.chars().count() as f64 * CHAR_WIDTH;
            let (at, anchor) = if x + 6.0 + room > LEFT + PLOT {
                (x - 6.0, TextAnchor::End)
            } else {
                (x + 6.0, TextAnchor::Start)
            };
            text(out, (at, y), "limits", anchor, &name);
        }
        self.marks(out, &x, bottom);
        let notes = shape.notes(&self.formatter);
        text(out, (LEFT + PLOT, bottom + 72.0), "faint", TextAnchor::End, &notes.join("; "));
    }

    fn value_ticks(&self, out: &mut String, axis: &Axis, bottom: f64) {
        let mut room = OccupiedSpans::default();
        for tick in axis.ticks(10) {
            let x = LEFT + axis.position(tick) * PLOT;
            line(out, "axis", (x, bottom), (x, bottom + 5.0));
            let name = self.formatter.tick(tick);
            let width = name.chars().count() as f64 * CHAR_WIDTH;
            if room.try_occupy(x - width / 2.0, x + width / 2.0) {
                text(out, (x, bottom + 21.0), "", TextAnchor::Middle, &name);
            }
        }
    }

    /// The maximum, then quantiles as far as they fit, on a line below the tick labels.
    fn marks(&self, out: &mut String, x: &dyn Fn(f64) -> f64, bottom: f64) {
        let distribution = self.distribution;
        let mut room = OccupiedSpans::default();
        let max = distribution.max().filter(|max| max.estimate > 0.0 && max.estimate.is_finite());
        let max = max.map(|max| (max, format!("max {}", self.formatter.value(max)), "max"));
        let quantiles = [0.5, 0.99, 0.9, 0.999, 0.9999].into_iter().filter_map(|q| {
            let value = distribution.quantile(q)?;
            let value =
                Some(value).filter(|value| value.estimate > 0.0 && value.estimate.is_finite())?;
            Some((value, value_formatter::quantile_name(q), "faint"))
        });
        for (value, name, class) in max.into_iter().chain(quantiles) {
            let at = x(value.estimate);
            let wide = if class == "max" { CHAR_WIDTH_BOLD } else { CHAR_WIDTH };
            let width = name.chars().count() as f64 * wide;
            let middle = at.clamp(LEFT + width / 2.0, LEFT + PLOT - width / 2.0);
            if room.try_occupy(middle - width / 2.0, middle + width / 2.0) {
                let y = bottom + 29.0;
                let _ = writeln!(
                    out,
                    "<path class=\"{}\" d=\"M{at:.1} {y:.1}l-4 7h8z\"/>",
                    if class == "max" { "dot" } else { "area" }
                );
                text(out, (middle, bottom + 51.0), class, TextAnchor::Middle, &name);
            }
        }
    }

    fn spectrum(&self, out: &mut String, spectrum: &PercentileSpectrum, top: f64) {
        let bottom = top + SPECTRUM_HEIGHT;
        let axis = spectrum.axis;
        let y = |base: f64| bottom - axis.position(base) * SPECTRUM_HEIGHT;
        let x = |place: f64| LEFT + place * PLOT;
        let frame =
            CurveFrame { axis, percentiles: spectrum.percentiles, top, height: SPECTRUM_HEIGHT };
        frame.draw(out, &self.formatter);
        frame.curve(out, &spectrum.columns, ["band", "line"]);

        let limits = || {
            let heights =
                self.thresholds.iter().map(|above| (above, self.formatter.scale(above.threshold)));
            let on_axis = heights.filter(|&(_, base)| base > axis.low && base < axis.high);
            on_axis.map(|(above, base)| (above, y(base)))
        };
        for (_, y) in limits() {
            line(out, "limit", (LEFT, y), (LEFT + PLOT, y));
        }
        // Labels of close thresholds are placed side by side.
        let mut rooms: Vec<OccupiedSpans> = Vec::new();
        for (above, y) in limits() {
            let beside = rooms.iter_mut().position(|room| room.try_occupy(y - LINE, y));
            let beside = beside.unwrap_or_else(|| {
                rooms.push(OccupiedSpans::new(y - LINE, y));
                rooms.len() - 1
            });
            let at = LEFT + 8.0 + beside as f64 * LIMIT_WIDTH;
            text(
                out,
                (at, y - 6.0),
                "limits",
                TextAnchor::Start,
                &self.formatter.exact(above.threshold),
            );
        }
        if let Some(max) = self.distribution.max() {
            let at = y(self.formatter.scale(max.estimate));
            let _ = writeln!(
                out,
                "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{at:.1}\" r=\"4.5\"/>",
                x(1.0)
            );
            let name = format!("max {}", self.formatter.value(max));
            text(out, (x(1.0), at - 11.0), "max", TextAnchor::End, &name);
        }
    }
}

fn percent(share: f64, step: f64) -> String {
    let decimals = (-(step * 100.0).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{:.decimals$} %", share * 100.0)
}

fn heading(out: &mut String, y: f64, name: &str, about: &str) {
    let _ = writeln!(
        out,
        "<text x=\"24\" y=\"{y:.1}\"><tspan class=\"heading\">{name}</tspan>\
         <tspan class=\"faint\" dx=\"8\">{about}</tspan></text>"
    );
}
