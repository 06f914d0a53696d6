//! Units in UCUM and the scale to whole numbers.

use metrics::Unit;

use super::rejected::ValueRejectReason;

/// Unit suffix of a name, by Prometheus' convention. "_total" may follow.
pub(super) fn unit_of_name(name: &str) -> Option<Unit> {
    let name = name.strip_suffix("_total").unwrap_or(name);
    Some(match name.rsplit_once(['_', '.'])?.1 {
        "seconds" => Unit::Seconds,
        "milliseconds" | "ms" => Unit::Milliseconds,
        "microseconds" | "us" => Unit::Microseconds,
        "nanoseconds" | "ns" => Unit::Nanoseconds,
        "bytes" => Unit::Bytes,
        _ => return None,
    })
}

/// UCUM symbol. A plain count has no unit, as elsewhere in topdeck.
pub(super) fn ucum_name(unit: Option<Unit>) -> &'static str {
    match unit {
        None | Some(Unit::Count) => "",
        Some(Unit::Percent) => "%",
        Some(Unit::Seconds) => "s",
        Some(Unit::Milliseconds) => "ms",
        Some(Unit::Microseconds) => "us",
        Some(Unit::Nanoseconds) => "ns",
        Some(Unit::Tebibytes) => "TiBy",
        Some(Unit::Gibibytes) => "GiBy",
        Some(Unit::Mebibytes) => "MiBy",
        Some(Unit::Kibibytes) => "KiBy",
        Some(Unit::Bytes) => "By",
        Some(Unit::TerabitsPerSecond) => "Tbit/s",
        Some(Unit::GigabitsPerSecond) => "Gbit/s",
        Some(Unit::MegabitsPerSecond) => "Mbit/s",
        Some(Unit::KilobitsPerSecond) => "kbit/s",
        Some(Unit::BitsPerSecond) => "bit/s",
        Some(Unit::CountPerSecond) => "/s",
    }
}

/// Scale from the metric's unit to whole numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct IntegerScale {
    factor: f64,
    pub(super) unit: &'static str,
}

/// 2^63: below, a double is converted to an integer in one instruction.
const END: f64 = 9_223_372_036_854_775_808.0;

impl IntegerScale {
    /// Scale of values in this unit.
    pub(super) fn for_unit(unit: Option<Unit>) -> IntegerScale {
        let kibi = |power| 1024f64.powi(power);
        let (factor, unit) = match unit {
            Some(Unit::Seconds) => (1e9, "ns"),
            Some(Unit::Milliseconds) => (1e6, "ns"),
            Some(Unit::Microseconds) => (1e3, "ns"),
            Some(Unit::Nanoseconds) => (1.0, "ns"),
            Some(Unit::Tebibytes) => (kibi(4), "By"),
            Some(Unit::Gibibytes) => (kibi(3), "By"),
            Some(Unit::Mebibytes) => (kibi(2), "By"),
            Some(Unit::Kibibytes) => (kibi(1), "By"),
            Some(Unit::Bytes) => (1.0, "By"),
            Some(Unit::TerabitsPerSecond) => (1e12, "bit/s"),
            Some(Unit::GigabitsPerSecond) => (1e9, "bit/s"),
            Some(Unit::MegabitsPerSecond) => (1e6, "bit/s"),
            Some(Unit::KilobitsPerSecond) => (1e3, "bit/s"),
            Some(Unit::BitsPerSecond) => (1.0, "bit/s"),
            Some(Unit::Count) => (1.0, ""),
            Some(Unit::Percent) => (1e9, "10*-9.%"),
            Some(Unit::CountPerSecond) => (1e9, "10*-9/s"),
            None => (1e9, "10*-9"),
        };
        IntegerScale { factor, unit }
    }

    /// Nearest integer; halves are rounded up.
    #[inline(always)]
    pub(super) fn round_to_integer(self, value: f64) -> Result<u64, ValueRejectReason> {
        let scaled = value * self.factor;
        if (0.0..END).contains(&scaled) {
            let below = scaled as i64;
            return Ok(below as u64 + u64::from(scaled - below as f64 >= 0.5));
        }
        Err(match value {
            value if value.is_nan() => ValueRejectReason::NotANumber,
            value if value < 0.0 => ValueRejectReason::Negative,
            _ => ValueRejectReason::TooLarge,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(unit: Option<Unit>, value: f64, expected: Result<u64, ValueRejectReason>) {
        assert_eq!(
            IntegerScale::for_unit(unit).round_to_integer(value),
            expected,
            "{value} {unit:?}"
        );
    }

    #[test]
    fn values_become_the_nearest_whole_number() {
        check(Some(Unit::Seconds), 0.3, Ok(300_000_000));
        check(Some(Unit::Milliseconds), 0.25, Ok(250_000));
        check(Some(Unit::Microseconds), 1.0005, Ok(1_001));
        check(Some(Unit::Nanoseconds), 1.4, Ok(1));
        check(Some(Unit::Gibibytes), 1.5, Ok(3 << 29));
        check(None, 0.25, Ok(250_000_000));
        check(None, 17.0, Ok(17_000_000_000));
        check(Some(Unit::Count), 0.5, Ok(1));
        check(Some(Unit::Count), 0.499_999_999_999_999_94, Ok(0));
        check(Some(Unit::Count), -0.0, Ok(0));
        // Odd integers of this size are doubles too: no half is added to them.
        check(Some(Unit::Count), 9_007_199_254_740_991.0, Ok(9_007_199_254_740_991));
        check(Some(Unit::Count), 9_223_372_036_854_774_784.0, Ok((1 << 63) - 1024));
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        check(None, -0.5, Err(ValueRejectReason::Negative));
        check(None, f64::NEG_INFINITY, Err(ValueRejectReason::Negative));
        check(None, f64::NAN, Err(ValueRejectReason::NotANumber));
        check(None, -f64::NAN, Err(ValueRejectReason::NotANumber));
        check(None, 1e10, Err(ValueRejectReason::TooLarge));
        check(None, f64::MAX, Err(ValueRejectReason::TooLarge));
        check(Some(Unit::Count), 9_223_372_036_854_775_808.0, Err(ValueRejectReason::TooLarge));
        check(Some(Unit::Count), f64::INFINITY, Err(ValueRejectReason::TooLarge));
    }

    #[test]
    fn units_are_read_from_names() {
        assert_eq!(unit_of_name("http_request_duration_seconds"), Some(Unit::Seconds));
        assert_eq!(unit_of_name("rpc.took.ms"), Some(Unit::Milliseconds));
        assert_eq!(unit_of_name("sent_bytes_total"), Some(Unit::Bytes));
        assert_eq!(unit_of_name("seconds"), None);
        assert_eq!(unit_of_name("took"), None);
    }
}
