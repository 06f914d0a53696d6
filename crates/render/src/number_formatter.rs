//! Formatting of query results: unit and bounds.

use decode::Unit;
use hist::Bracket;

use crate::value_formatter::{SHARE_UNIT, ValueFormatter};

/// Number formatter.
pub struct NumberFormatter {
    formatter: ValueFormatter,
    /// Unit, if it is too long to print after each number.
    separate_unit: Option<String>,
}

impl NumberFormatter {
    /// Formatter for a unit, if the unit is known.
    pub fn new(name: Option<&str>) -> NumberFormatter {
        let name = name.unwrap_or("");
        // A unit that is a sentence. Shares are shown in percent.
        let is_apart = name.contains(',') && name != SHARE_UNIT;
        let known = if is_apart { None } else { parse_unit(name) };
        NumberFormatter {
            formatter: ValueFormatter::new(known.as_ref()),
            separate_unit: is_apart.then(|| name.to_owned()),
        }
    }

    /// Text on the unit for the first line of a table; `None` if each number has its unit.
    pub fn unit_note(&self, name: Option<&str>) -> Option<String> {
        match (&self.separate_unit, name) {
            (Some(apart), _) => Some(apart.clone()),
            (None, Some(_)) => None,
            (None, None) => Some("unit unknown".to_owned()),
        }
    }

    /// Estimate of a value.
    pub fn value(&self, bracket: Bracket) -> String {
        let text = self.formatter.value(bracket);
        // Unit names of counts are plural.
        match text.strip_prefix("1 ") {
            Some("values") => "1 value".to_owned(),
            Some("values/s") => "1 value/s".to_owned(),
            _ => text,
        }
    }

    /// Exact value.
    pub fn exact(&self, value: f64) -> String {
        self.value(Bracket::exact(value))
    }

    /// A value of which four digits matter.
    pub fn estimate(&self, value: f64) -> String {
        self.formatter.estimate(value)
    }

    /// Both bounds; empty if the value is exact.
    pub fn bounds(&self, bracket: Bracket) -> String {
        if bracket.estimate.is_nan() || bracket.is_exact() {
            return String::new();
        }
        let bounds = self.formatter.bounds(bracket);
        // The bounds differ only beyond the digits that are shown.
        let is_narrow = bounds
            .split_once(" to ")
            .is_some_and(|(lower, upper)| upper == lower || upper.split(' ').next() == Some(lower));
        if is_narrow { String::new() } else { bounds }
    }

    /// The value if it is exact, otherwise its bounds, for one cell.
    pub fn range(&self, bracket: Bracket) -> String {
        match self.bounds(bracket) {
            bounds if bounds.is_empty() => self.value(bracket),
            bounds => bounds,
        }
    }

    /// The value, with `~` if it is an estimate.
    pub fn value_with_mark(&self, bracket: Bracket) -> String {
        let mark = if bracket.is_exact() || bracket.estimate.is_nan() { "" } else { "~" };
        format!("{mark}{}", self.value(bracket))
    }

    /// Formatter that converts values to axis positions.
    pub fn formatter(&self) -> &ValueFormatter {
        &self.formatter
    }
}

/// Note on the maximum error of marked estimates.
#[derive(Default)]
pub struct EstimateNote {
    has_estimates: bool,
    is_unbounded: bool,
    max_error: f64,
}

impl EstimateNote {
    /// Includes an estimate that is shown.
    pub fn add(&mut self, bracket: Bracket) {
        if bracket.is_exact() || bracket.estimate.is_nan() {
            return;
        }
        self.has_estimates = true;
        let off = (bracket.estimate - bracket.lower).max(bracket.upper - bracket.estimate);
        let share = off / bracket.estimate.abs();
        match share.is_finite() {
            true => self.max_error = self.max_error.max(share),
            false => self.is_unbounded = true,
        }
    }

    /// Note below the table, with the name of the option or column that has the bounds; `None` if
    /// all values are exact.
    pub fn text(&self, bounds: &str) -> Option<String> {
        let percent = (self.max_error * 1e4).ceil() / 100.0;
        match (self.has_estimates, self.is_unbounded || percent >= 100.0) {
            (false, _) => None,
            (true, true) => Some(format!("~ is an estimate; {bounds} has the bounds")),
            (true, false) => {
                Some(format!("~ is an estimate within {percent} %; {bounds} has the bounds"))
            }
        }
    }
}

/// Parses a unit name of a series, if it is a known unit.
pub fn parse_unit(name: &str) -> Option<Unit> {
    let other = || Unit::Other(name.to_owned());
    (!name.is_empty()).then(|| Unit::parse(name).unwrap_or_else(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        for (unit, number, expected) in [
            (Some("ns"), 1_804_000_000.0, "1.804 s"),
            (Some("values"), 4019.0, "4,019 values"),
            (Some("values"), 1.0, "1 value"),
            (Some("values/s"), 1.0, "1 value/s"),
            (Some("share, 0 to 1"), 0.25, "25 %"),
            (Some("share, 0 to 1"), 0.00004, "0.004 %"),
            (Some("shares, of many"), 0.25, "0.25"),
            // Billionths of another program were "250,000,000 10*-9".
            (Some("10*-9"), 250_000_000.0, "0.25"),
            (Some("10*-9.%"), 12_500_000_000.0, "12.5 %"),
            (Some("10*3.B"), 4_000.0, "4 MB"),
            (None, 1_226_742_335.0, "1,226,742,335"),
            (None, f64::NAN, "unknown"),
            (None, f64::INFINITY, "infinity"),
        ] {
            assert_eq!(NumberFormatter::new(unit).exact(number), expected, "{unit:?}");
        }
    }

    #[test]
    fn bounds_are_shown_for_estimates() {
        let of = |lower, upper| {
            let estimate = f64::midpoint(lower, upper);
            NumberFormatter::new(Some("ms")).bounds(Bracket { lower, estimate, upper })
        };
        assert_eq!(of(10.0, 11.0), "10.00 to 11.00 ms");
        assert_eq!(of(10.6, 10.600_000_000_000_02), "");
        assert_eq!(of(3.0, 3.0), "");
    }

    #[test]
    fn estimate_error_is_in_percent() {
        let mut note = EstimateNote::default();
        note.add(Bracket::exact(5.0));
        assert_eq!(note.text("--json"), None);
        note.add(Bracket { lower: 99.0, estimate: 100.0, upper: 101.5 });
        assert!(note.text("--json").unwrap().contains("an estimate within 1.5 %; --json has"));
        note.add(Bracket { lower: 1.0, estimate: 1.0, upper: f64::INFINITY });
        assert!(!note.text("--json").unwrap().contains('%'));
    }
}
