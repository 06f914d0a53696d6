//! Units and quantities.

use std::fmt;

use crate::decimal;

/// Unit of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// 10^-9 s, the unit of topdeck's own histograms.
    Nanoseconds,
    /// 10^-6 s.
    Microseconds,
    /// 10^-3 s.
    Milliseconds,
    /// Prometheus' and OpenTelemetry's base unit of time.
    Seconds,
    /// 60 s.
    Minutes,
    /// 3,600 s.
    Hours,
    /// 86,400 s.
    Days,
    /// Octets.
    Bytes,
    /// A unit without a scale known to topdeck.
    Other(String),
}

/// Units with their accepted spellings; the first spelling is displayed.
const SPELLINGS: [(Unit, &[&str]); 8] = [
    (Unit::Nanoseconds, &["ns", "nanoseconds"]),
    (Unit::Microseconds, &["us", "µs", "μs", "microseconds"]),
    (Unit::Milliseconds, &["ms", "milliseconds"]),
    (Unit::Seconds, &["s", "seconds"]),
    (Unit::Minutes, &["min", "minutes"]),
    (Unit::Hours, &["h", "hours"]),
    (Unit::Days, &["d", "days"]),
    (Unit::Bytes, &["B", "bytes"]),
];

impl Unit {
    /// Unit with this spelling, if known.
    pub fn parse(text: &str) -> Option<Unit> {
        SPELLINGS.iter().find(|entry| entry.1.contains(&text)).map(|entry| entry.0.clone())
    }

    /// Short spellings accepted by [`Self::parse`].
    pub fn names() -> impl Iterator<Item = &'static str> {
        SPELLINGS.iter().map(|entry| entry.1[0])
    }

    /// Unit suffix of a metric name, by Prometheus' convention.
    pub(crate) fn from_metric_name(name: &str) -> Option<Unit> {
        Unit::parse(name.rsplit('_').next()?).filter(|_| name.contains('_'))
    }

    /// Display text after a number.
    pub fn name(&self) -> &str {
        match self {
            Unit::Other(name) => name,
            known => {
                SPELLINGS.iter().find(|entry| entry.0 == *known).expect("every unit is spelled").1
                    [0]
            }
        }
    }

    /// `(k, e)` if the unit equals k · 10^e nanoseconds; `None` if it is not a unit of time.
    pub(crate) fn nanoseconds(&self) -> Option<(u64, i32)> {
        Some(match self {
            Unit::Nanoseconds => (1, 0),
            Unit::Microseconds => (1, 3),
            Unit::Milliseconds => (1, 6),
            Unit::Seconds => (1, 9),
            Unit::Minutes => (6, 10),
            Unit::Hours => (36, 11),
            Unit::Days => (864, 11),
            Unit::Bytes | Unit::Other(_) => return None,
        })
    }

    /// Nanoseconds per unit; `None` if it is not a unit of time.
    pub fn in_nanoseconds(&self) -> Option<f64> {
        self.nanoseconds().map(|(k, e)| k as f64 * 10f64.powi(e))
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Quantity with unit: `1.5s`, `250 ms`, `42`. Stored as decimal text, so that conversion is exact:
/// 0.3 ms is 300000 ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    decimal: String,
    unit: Option<Unit>,
}

impl Quantity {
    /// Parses a finite number with an optional unit; a space between them is optional.
    pub fn parse(text: &str) -> Option<Quantity> {
        let text = text.trim();
        // Longest number first: in "1e3s" the e belongs to the number.
        let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]).rev();
        for end in ends {
            let (decimal, unit) = (text[..end].trim_end(), text[end..].trim_start());
            let finite = decimal::parse(decimal.as_bytes()).is_some_and(f64::is_finite);
            if !finite {
                continue;
            }
            let unit = if unit.is_empty() { None } else { Some(Unit::parse(unit)?) };
            return Some(Quantity { decimal: decimal.to_owned(), unit });
        }
        None
    }

    /// Unit, if one was written.
    pub fn unit(&self) -> Option<&Unit> {
        self.unit.as_ref()
    }

    /// Amount in another unit; `None` if the dimensions differ. An amount without a unit is taken
    /// to be in the requested unit.
    pub fn value_in(&self, unit: Option<&Unit>) -> Option<f64> {
        let bytes = self.decimal.as_bytes();
        let plain = || decimal::parse(bytes);
        let (from, to) = match (&self.unit, unit) {
            (None, _) => return plain(),
            (Some(from), Some(to)) if from == to => return plain(),
            (Some(from), Some(to)) => (from.nanoseconds()?, to.nanoseconds()?),
            (Some(_), None) => return None,
        };
        if from.0 % to.0 == 0 {
            return decimal::parse_scaled(bytes, (from.0 / to.0, from.1 - to.1));
        }
        Some(decimal::parse_scaled(bytes, from)? / (to.0 as f64 * 10f64.powi(to.1)))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.unit {
            Some(unit) => write!(f, "{} {unit}", self.decimal),
            None => write!(f, "{}", self.decimal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, unit: Option<Unit>, expected: Option<f64>) {
        let found = Quantity::parse(text).and_then(|quantity| quantity.value_in(unit.as_ref()));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn quantities_convert_exactly() {
        check("1.5s", Some(Unit::Nanoseconds), Some(1.5e9));
        check("0.3ms", Some(Unit::Nanoseconds), Some(300_000.0));
        check("0.1 s", Some(Unit::Seconds), Some(0.1));
        check("100ms", Some(Unit::Seconds), Some(0.1));
        check("2 min", Some(Unit::Seconds), Some(120.0));
        check("90s", Some(Unit::Minutes), Some(1.5));
        check("1e3us", Some(Unit::Milliseconds), Some(1.0));
        check("250 µs", Some(Unit::Microseconds), Some(250.0));
        check("42", None, Some(42.0));
        check("42", Some(Unit::Milliseconds), Some(42.0));
    }

    #[test]
    fn invalid_quantities_are_rejected() {
        for text in ["", "s", "1.5 lightyears", "1 5", "inf", "NaN s", "1..2s"] {
            check(text, Some(Unit::Seconds), None);
        }
        check("1s", Some(Unit::Bytes), None);
        check("1s", None, None);
    }

    #[test]
    fn units_are_parsed_from_metric_names() {
        assert_eq!(Unit::from_metric_name("http_request_duration_seconds"), Some(Unit::Seconds));
        assert_eq!(Unit::from_metric_name("rpc_ms"), Some(Unit::Milliseconds));
        assert_eq!(Unit::from_metric_name("seconds"), None);
        assert_eq!(Unit::from_metric_name("queue_depth"), None);
    }
}
