//! Value formatting: fitting unit, four digits, bounds rounded outwards.

use decode::Unit;
use hist::Bracket;

/// Significant digits of estimates and bounds.
const DIGITS: i32 = 4;
/// Significant digits of exact values.
const DIGITS_EXACT: i32 = 7;
/// Tick labels above this use powers of ten.
const TICK_PLAIN_MAX: f64 = 1e6;
/// Rounding error of unit conversion; bounds are not rounded outwards because of it.
const CONVERSION_ERROR: f64 = 1e-12;

/// Value formatter of a group.
#[derive(Clone, Debug)]
pub struct ValueFormatter {
    unit: Option<Unit>,
    /// Nanoseconds per unit, or 1.
    factor: f64,
}

#[derive(Clone, Copy)]
enum RoundingMode {
    Nearest,
    Down,
    Up,
}

/// Unit of results that are a share of a whole.
pub const SHARE_UNIT: &str = "share, 0 to 1";
/// Units whose numbers are percent already.
const PERCENT_UNITS: [&str; 2] = ["percent", "%"];

const TIMES: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];
const SIZES: [(f64, &str); 5] = [(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")];

impl ValueFormatter {
    /// Formatter for a unit.
    pub fn new(unit: Option<&Unit>) -> ValueFormatter {
        let factor = unit.and_then(Unit::in_nanoseconds).unwrap_or(1.0);
        ValueFormatter { unit: unit.cloned(), factor }
    }

    /// Whether values are durations.
    pub fn is_time(&self) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit.in_nanoseconds().is_some())
    }

    /// Value in the chart unit: nanoseconds for times.
    pub fn scale(&self, value: f64) -> f64 {
        value * self.factor
    }

    /// Inverse of [`Self::scale`].
    pub fn unscale(&self, value: f64) -> f64 {
        value / self.factor
    }

    /// Estimate.
    pub fn estimate(&self, value: f64) -> String {
        self.text(value, DIGITS, RoundingMode::Nearest)
    }

    /// Exact value.
    pub fn exact(&self, value: f64) -> String {
        self.trimmed(value, DIGITS_EXACT)
    }

    /// Round value, as on an axis.
    pub fn tick(&self, base: f64) -> String {
        let value = self.unscale(base);
        if self.factor == 1.0 && self.unit.is_none() && value.abs() >= TICK_PLAIN_MAX {
            return plain_power(value, DIGITS, RoundingMode::Nearest);
        }
        self.trimmed(value, DIGITS)
    }

    /// Estimate or exact value; `> 2.5 s` if there is no upper bound.
    pub fn value(&self, bracket: Bracket) -> String {
        if bracket.is_exact() {
            self.exact(bracket.estimate)
        } else if !bracket.estimate.is_finite() {
            "unknown".into()
        } else if bracket.upper == f64::INFINITY && bracket.estimate == bracket.lower {
            format!("> {}", self.exact(bracket.lower))
        } else {
            self.estimate(bracket.estimate)
        }
    }

    /// Both bounds; empty if the value is exact.
    pub fn bounds(&self, bracket: Bracket) -> String {
        if bracket.is_exact() {
            return String::new();
        }
        let (lower, upper) = (
            self.text(bracket.lower, DIGITS, RoundingMode::Down),
            self.text(bracket.upper, DIGITS, RoundingMode::Up),
        );
        // Narrower than what is printed.
        if lower == upper {
            return String::new();
        }
        // Equal units are printed once.
        match (lower.split_once(' '), upper.split_once(' ')) {
            (Some((number, a)), Some((_, b))) if a == b => format!("{number} to {upper}"),
            _ => format!("{lower} to {upper}"),
        }
    }

    fn trimmed(&self, value: f64, digits: i32) -> String {
        let text = self.text(value, digits, RoundingMode::Nearest);
        let (number, unit) = text.split_once(' ').map_or((&text[..], None), |(n, u)| (n, Some(u)));
        let number = if number.contains('.') && !number.contains('e') {
            number.trim_end_matches('0').trim_end_matches('.')
        } else {
            number
        };
        unit.map_or(number.to_owned(), |unit| format!("{number} {unit}"))
    }

    fn text(&self, value: f64, digits: i32, round: RoundingMode) -> String {
        if let Some((power, rest)) = self.unit.as_ref().and_then(|unit| ucum_power(unit.name())) {
            let scaled = ValueFormatter::new(crate::number_formatter::parse_unit(rest).as_ref());
            return scaled.text(value * 10f64.powi(power), digits, round);
        }
        let scales: &[(f64, &str)] = match &self.unit {
            Some(Unit::Bytes) => &SIZES,
            Some(unit) if unit.in_nanoseconds().is_some() => &TIMES,
            Some(unit) if unit.name() == SHARE_UNIT => return percent_text(value, round),
            Some(unit) => {
                let is_percent = PERCENT_UNITS.contains(&unit.name());
                let unit = if is_percent { "%" } else { unit.name() };
                return format!("{} {unit}", format_integer(value, digits, round));
            }
            None => return format_integer(value, digits, round),
        };
        let base = self.scale(value);
        if !base.is_finite() {
            return if base > 0.0 { "infinity".into() } else { "-infinity".into() };
        }
        let mut at = scales.iter().rposition(|scale| base.abs() >= scale.0).unwrap_or(0);
        // With four digits 999.96 us rounds to 1.000 ms.
        if at + 1 < scales.len() && rounded(base.abs() / scales[at].0, digits, round) >= 1000.0 {
            at += 1;
        }
        let number = base / scales[at].0;
        let text = if at == 0 {
            format_integer(number, digits, round)
        } else {
            plain(number, digits, round)
        };
        format!("{text} {}", scales[at].1)
    }
}

/// Power of ten and the rest of a unit of UCUM such as `10*-9` or `10*-9.%`.
fn ucum_power(name: &str) -> Option<(i32, &str)> {
    let rest = name.strip_prefix("10*")?;
    let end = rest.find(|of: char| of != '-' && !of.is_ascii_digit()).unwrap_or(rest.len());
    let (power, rest) = rest.split_at(end);
    Some((power.parse().ok()?, rest.strip_prefix('.').unwrap_or(rest)))
}

/// Rounds to significant digits; digits before the decimal point are kept.
fn rounded(number: f64, digits: i32, round: RoundingMode) -> f64 {
    let step = 10f64.powi(decimals(number, digits));
    let scaled = number * step;
    let error = scaled.abs() * CONVERSION_ERROR;
    let integer = match round {
        RoundingMode::Nearest => scaled.round(),
        RoundingMode::Down => (scaled + error).floor(),
        RoundingMode::Up => (scaled - error).ceil(),
    };
    integer / step
}

fn decimals(number: f64, digits: i32) -> i32 {
    if number == 0.0 {
        return 0;
    }
    (digits - 1 - number.abs().log10().floor() as i32).clamp(0, 300)
}

/// An integer that was not divided has no decimals.
fn format_integer(number: f64, digits: i32, round: RoundingMode) -> String {
    const GREATEST: f64 = 1e15;
    if number.fract() == 0.0 && number.abs() < GREATEST {
        let sign = if number < 0.0 { "-" } else { "" };
        return format!("{sign}{}", count(number.abs() as u64));
    }
    plain(number, digits, round)
}

/// Plain number with thousands separators; powers of ten instead of many zeros.
fn plain(number: f64, digits: i32, round: RoundingMode) -> String {
    const LEAST: f64 = 1e-4;
    const GREATEST: f64 = 1e15;
    if number.is_nan() {
        return "unknown".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "infinity".into() } else { "-infinity".into() };
    }
    if number != 0.0 && !(LEAST..GREATEST).contains(&number.abs()) {
        return plain_power(number, digits, round);
    }
    let value = rounded(number, digits, round);
    // Rounding may have reached the next power of ten.
    let decimals = decimals(value, digits).max(0) as usize;
    let text = format!("{value:.decimals$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", &text[..]), |text| ("-", text));
    let (integer, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
    let integer = thousands(integer);
    match fraction {
        Some(fraction) => format!("{sign}{integer}.{fraction}"),
        None => format!("{sign}{integer}"),
    }
}

fn plain_power(number: f64, digits: i32, round: RoundingMode) -> String {
    let exponent = number.abs().log10().floor();
    let power = 10f64.powf(exponent);
    if !(power > 0.0 && power.is_finite()) {
        return format!("{number:e}");
    }
    let mantissa = rounded(number / power, digits, round);
    format!("{mantissa}e{exponent}")
}

fn thousands(digits: &str) -> String {
    let mut marked = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            marked.push(',');
        }
        marked.push(digit);
    }
    marked
}

/// Count with thousands separators.
pub fn count(n: u64) -> String {
    thousands(&n.to_string())
}

/// Estimate of a count, with `~` if it is not exact.
pub fn count_estimate(n: Bracket<u64>) -> String {
    let mark = if n.is_exact() { "" } else { "~" };
    format!("{mark}{}", count(n.estimate))
}

/// Both bounds of a count; empty if it is exact.
pub fn count_bounds(n: Bracket<u64>) -> String {
    if n.is_exact() { String::new() } else { format!("{} to {}", count(n.lower), count(n.upper)) }
}

/// Percentage of a whole. A nonzero part is not shown as 0 %, an incomplete one not as 100 %.
pub fn share(part: u64, total: u64) -> String {
    if total == 0 {
        return "-".into();
    }
    let percent = part as f64 / total as f64 * 100.0;
    if part == 0 {
        "0 %".into()
    } else if part == total {
        "100 %".into()
    } else if percent > 99.0 {
        let rest = (total - part) as f64 / total as f64 * 100.0;
        let decimals = (1 - rest.log10().floor() as i32).clamp(2, 9) as usize;
        // Truncated, never rounded up to 100 %.
        let step = 10f64.powi(decimals as i32);
        format!("{:.decimals$} %", ((percent * step).floor() / step).min(100.0 - 1.0 / step))
    } else if percent >= 0.01 {
        format!("{percent:.2} %")
    } else {
        format!("{} %", plain_small(percent))
    }
}

/// A share as percent with two decimals, and more where these would make 0 or 100 % of it.
fn percent_text(share: f64, round: RoundingMode) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() {
        return plain(share, DIGITS, round);
    }
    let size = percent.abs();
    // Distance to 0 or 100 %, of which two digits are shown.
    let distance = if (99.0..100.0).contains(&size) { 100.0 - size } else { size };
    let decimals = match distance {
        0.0 => 2,
        distance => (1 - distance.log10().floor() as i32).clamp(2, 11),
    };
    let step = 10f64.powi(decimals);
    let scaled = percent * step;
    let error = scaled.abs() * CONVERSION_ERROR;
    let rounded = match round {
        RoundingMode::Nearest => scaled.round(),
        RoundingMode::Down => (scaled + error).floor(),
        RoundingMode::Up => (scaled - error).ceil(),
    };
    let text = format!("{:.*} %", decimals as usize, rounded / step);
    match share {
        0.0 => "0 %".to_owned(),
        1.0 => "100 %".to_owned(),
        _ => text,
    }
}

/// Two digits of a small number, without a power of ten down to 1e-9.
fn plain_small(number: f64) -> String {
    let decimals = (1 - number.log10().floor() as i32).clamp(2, 11) as usize;
    format!("{number:.decimals$}")
}

/// Name of a quantile: p99.9.
pub fn quantile_name(q: f64) -> String {
    // Rounded to the intended decimal: 0.07 * 100 is 7.000000000000001.
    let percent = format!("{:.10}", q * 100.0);
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns() -> ValueFormatter {
        ValueFormatter::new(Some(&Unit::Nanoseconds))
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        for (value, expected) in [
            (0.0, "0 ns"),
            (7.0, "7 ns"),
            (812.0, "812 ns"),
            (999.96, "1,000 ns"),
            (1234.0, "1.234 us"),
            (999_960.0, "1.000 ms"),
            (1.5e6, "1.500 ms"),
            (12_345_678.0, "12.35 ms"),
            (2e9, "2.000 s"),
            (7_200e9, "7,200 s"),
            (-1.5e6, "-1.500 ms"),
            (0.25, "0.2500 ns"),
        ] {
            let expected = if expected == "1,000 ns" { "1.000 us" } else { expected };
            assert_eq!(ns().estimate(value), expected, "{value}");
        }
        assert_eq!(ValueFormatter::new(Some(&Unit::Seconds)).estimate(0.3), "300.0 ms");
        assert_eq!(ValueFormatter::new(Some(&Unit::Minutes)).estimate(1.5), "90.00 s");
        assert_eq!(ValueFormatter::new(Some(&Unit::Bytes)).estimate(2_500_000.0), "2.500 MB");
        assert_eq!(
            ValueFormatter::new(Some(&Unit::Other("rows".into()))).estimate(2_500.5),
            "2,501 rows"
        );
    }

    #[test]
    fn exact_values_are_not_rounded() {
        assert_eq!(ns().exact(23_456_789.0), "23.45679 ms");
        assert_eq!(ns().exact(1_000_000.0), "1 ms");
        assert_eq!(ns().exact(1_100_000.0), "1.1 ms");
        assert_eq!(ns().exact(100.0), "100 ns");
        assert_eq!(ValueFormatter::new(None).exact(1_234_567.0), "1,234,567");
        assert_eq!(ValueFormatter::new(None).exact(100.0), "100");
        assert_eq!(ValueFormatter::new(None).exact(1e20), "1e20");
    }

    #[test]
    fn bounds_round_outwards() {
        let bracket = |lower, estimate, upper| Bracket { lower, estimate, upper };
        assert_eq!(
            ns().bounds(bracket(1_234_567.0, 1_240_000.0, 1_245_678.0)),
            "1.234 to 1.246 ms"
        );
        assert_eq!(ns().bounds(bracket(998_765.0, 999_999.0, 1_000_001.0)), "998.7 us to 1.001 ms");
        assert_eq!(ns().bounds(bracket(1.0, 1.0, 1.0)), "");
        assert_eq!(ns().bounds(bracket(1e9, 1e9, f64::INFINITY)), "1.000 s to infinity");
        let seconds = ValueFormatter::new(Some(&Unit::Seconds));
        assert_eq!(seconds.bounds(bracket(0.3, 0.4, 0.6)), "300.0 to 600.0 ms");
    }

    /// A query of a share printed 0.0123, and an alert did.
    #[test]
    fn shares_are_shown_in_percent_and_small_ones_are_not_rounded_to_0() {
        let share = ValueFormatter::new(Some(&Unit::Other(SHARE_UNIT.to_owned())));
        for (value, expected) in [
            (0.0123, "1.23 %"),
            (0.5, "50 %"),
            (0.00004, "0.004 %"),
            (1.0 / 3.0, "33.33 %"),
            (0.0, "0 %"),
            (1.0, "100 %"),
            (0.999_99, "99.999 %"),
            (-0.25, "-25 %"),
            (1.5, "150 %"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(share.exact(value), expected);
        }
        assert_eq!(share.estimate(0.5), "50.00 %");
        let bounds = |lower, upper| share.bounds(Bracket { lower, estimate: lower, upper });
        assert_eq!(bounds(0.012_345, 0.012_351), "1.23 to 1.24 %");
        assert_eq!(bounds(0.0, 0.000_012_3), "0 to 0.0013 %");
        assert_eq!(bounds(0.07, 0.07 + 1e-17), "");
        let percent = ValueFormatter::new(Some(&Unit::Other("percent".to_owned())));
        assert_eq!(percent.exact(12.5), "12.5 %");
    }

    #[test]
    fn shares_never_round_to_0_or_100_percent() {
        assert_eq!(share(0, 10), "0 %");
        assert_eq!(share(10, 10), "100 %");
        assert_eq!(share(1, 3), "33.33 %");
        assert_eq!(share(1, 1_000_000), "0.00010 %");
        assert_eq!(share(999_999, 1_000_000), "99.99990 %");
        assert_eq!(share(u64::MAX - 1, u64::MAX), "99.999999999 %");
        assert_eq!(share(1204, 88_310), "1.36 %");
    }

    #[test]
    fn quantiles_have_names() {
        assert_eq!(quantile_name(0.5), "p50");
        assert_eq!(quantile_name(0.999), "p99.9");
        assert_eq!(quantile_name(0.07), "p7");
        assert_eq!(quantile_name(0.99999), "p99.999");
        assert_eq!(quantile_name(1.0), "p100");
    }
}
