//! Number formatting of results: unit and bounds.

use collect::Unit;
use hist::Bracket;

use crate::value_formatter::ValueFormatter;

/// Number formatter.
pub struct NumberFormatter {
    formatter: ValueFormatter,
    /// The unit where it is too long to stand after each number.
    separate_unit: Option<String>,
}

impl NumberFormatter {
    /// In a unit, if it is known.
    pub fn new(name: Option<&str>) -> NumberFormatter {
        let name = name.unwrap_or("");
        // "share, 0 to 1".
        let is_apart = name.contains(',');
        let known = if is_apart { None } else { parse_unit(name) };
        NumberFormatter {
            formatter: ValueFormatter::new(known.as_ref()),
            separate_unit: is_apart.then(|| name.to_owned()),
        }
    }

    /// What the table says about units in its first line; nothing where each number has one.
    pub fn unit_note(&self, name: Option<&str>) -> Option<String> {
        match (&self.separate_unit, name) {
            (Some(apart), _) => Some(apart.clone()),
            (None, Some(_)) => None,
            (None, None) => Some("in no known unit".to_owned()),
        }
    }

    /// The likeliest value.
    pub fn value(&self, bracket: Bracket) -> String {
        let text = self.formatter.value(bracket);
        // The units of counts are plurals.
        match text.strip_prefix("1 ") {
            Some("values") => "1 value".to_owned(),
            Some("values/s") => "1 value/s".to_owned(),
            _ => text,
        }
    }

    /// A value that is known exactly.
    pub fn exact(&self, value: f64) -> String {
        self.value(Bracket::exact(value))
    }

    /// Both bounds where there is width between them.
    pub fn bounds(&self, bracket: Bracket) -> String {
        if bracket.estimate.is_nan() || bracket.is_exact() {
            return String::new();
        }
        let bounds = self.formatter.bounds(bracket);
        // Nearer to each other than the digits that are shown.
        let is_narrow = bounds
            .split_once(" to ")
            .is_some_and(|(lower, upper)| upper == lower || upper.split(' ').next() == Some(lower));
        if is_narrow { String::new() } else { bounds }
    }

    /// The value if it is exact, else its bounds: one cell that says no more than is known.
    pub fn range(&self, bracket: Bracket) -> String {
        match self.bounds(bracket) {
            bounds if bounds.is_empty() => self.value(bracket),
            bounds => bounds,
        }
    }

    /// The value, marked where it is an estimate.
    pub fn value_with_mark(&self, bracket: Bracket) -> String {
        let mark = if bracket.is_exact() || bracket.estimate.is_nan() { "" } else { "~" };
        format!("{mark}{}", self.value(bracket))
    }

    /// How values become what axes are divided by.
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
    /// Counts an estimate that is shown.
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

    /// A line for below the table, with the name of what has the bounds of each; nothing where all
    /// is exact.
    pub fn text(&self, bounds: &str) -> Option<String> {
        let percent = (self.max_error * 1e4).ceil() / 100.0;
        match (self.has_estimates, self.is_unbounded || percent >= 100.0) {
            (false, _) => None,
            (true, true) => Some(format!("~ is an estimate; {bounds} has the bounds of each")),
            (true, false) => Some(format!(
                "~ is an estimate; the truth is within {percent} % of it, and {bounds} has the \
                 bounds of each"
            )),
        }
    }
}

/// The unit of a series by its name, as topdeck scales it where it knows how.
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
            (Some("share, 0 to 1"), 0.25, "0.25"),
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
        let mut doubt = EstimateNote::default();
        doubt.add(Bracket::exact(5.0));
        assert_eq!(doubt.text("--json"), None);
        doubt.add(Bracket { lower: 99.0, estimate: 100.0, upper: 101.5 });
        assert!(doubt.text("--json").unwrap().contains("within 1.5 % of it, and --json has"));
        doubt.add(Bracket { lower: 1.0, estimate: 1.0, upper: f64::INFINITY });
        assert!(!doubt.text("--json").unwrap().contains('%'));
    }
}
