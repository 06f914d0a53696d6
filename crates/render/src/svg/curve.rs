//! Percentile spectrum as SVG: axes, and a curve with its bounds.

use std::fmt::Write as _;

use hist::Bracket;

use crate::chart::axis::{Axis, PercentileAxis};
use crate::svg::{CHAR_WIDTH, LEFT, OccupiedSpans, PLOT, TextAnchor, line, text};
use crate::value_formatter::ValueFormatter;

/// Plot area of curves.
pub struct CurveFrame {
    /// Value axis.
    pub axis: Axis,
    /// Quantile axis.
    pub percentiles: PercentileAxis,
    /// Distance from the top of the image.
    pub top: f64,
    /// Height of the plot.
    pub height: f64,
}

impl CurveFrame {
    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Vertical position of a value in the chart unit.
    pub fn y(&self, base: f64) -> f64 {
        self.bottom() - self.axis.position(base) * self.height
    }

    /// Horizontal position of an axis position from 0 to 1.
    pub fn x(&self, position: f64) -> f64 {
        LEFT + position * PLOT
    }

    /// Draws both axes with labels.
    pub fn draw(&self, out: &mut String, formatter: &ValueFormatter) {
        let bottom = self.bottom();
        let (x, y) = (|position| self.x(position), |base| self.y(base));
        let mut room = OccupiedSpans::default();
        for tick in self.axis.ticks(8) {
            line(out, "grid", (LEFT, y(tick)), (LEFT + PLOT, y(tick)));
            if room.try_occupy(y(tick) - 7.0, y(tick) + 7.0) {
                text(out, (LEFT - 8.0, y(tick) + 4.0), "", TextAnchor::End, &formatter.tick(tick));
            }
        }
        let mut room = OccupiedSpans::default();
        room.try_occupy(x(1.0) - 30.0, x(1.0));
        for (position, name) in self.percentiles.ticks() {
            line(out, "axis", (x(position), bottom), (x(position), bottom + 5.0));
            let width = name.chars().count() as f64 * CHAR_WIDTH;
            if room.try_occupy(x(position) - width / 2.0, x(position) + width / 2.0) {
                text(out, (x(position), bottom + 21.0), "", TextAnchor::Middle, &name);
            }
        }
        line(out, "axis", (x(1.0), bottom), (x(1.0), bottom + 5.0));
        text(out, (x(1.0), bottom + 21.0), "max", TextAnchor::End, "max");
        line(out, "axis", (LEFT, bottom), (LEFT + PLOT, bottom));
    }

    /// Draws a curve, with the CSS classes of its bounds and of itself.
    pub fn curve(&self, out: &mut String, columns: &[Bracket], [band, curve]: [&str; 2]) {
        let last = columns.len().saturating_sub(1).max(1) as f64;
        let point =
            |at: usize, base: f64| format!("{:.1} {:.1}", self.x(at as f64 / last), self.y(base));
        let values = || columns.iter().enumerate();
        let upper = values().map(|(at, value)| point(at, value.upper));
        let lower = values().rev().map(|(at, value)| point(at, value.lower));
        let outline: Vec<String> = upper.chain(lower).collect();
        let _ = writeln!(out, "<path class=\"{band}\" d=\"M{}Z\"/>", outline.join("L"));
        let points: Vec<String> = values().map(|(at, value)| point(at, value.estimate)).collect();
        let _ = writeln!(out, "<path class=\"{curve}\" d=\"M{}\"/>", points.join("L"));
    }
}
