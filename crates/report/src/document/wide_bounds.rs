//! Warning about values whose bounds differ by a factor of two or more, because buckets are wide.
//!
//! Prometheus' protocol has no bounds: its clients show the estimate as if it were known. Steps of
//! two, usual in client libraries, do not warn; those of 2.5 do.

use hist::Bracket;
use query::{QueryResult, ResultData, StepValue};

/// The warning, with the widest value as an example.
pub fn wide_bounds_warning(result: &QueryResult) -> Option<String> {
    let (ResultData::Vector(streams) | ResultData::Matrix(streams)) = &result.data else {
        return None;
    };
    let (mut all, mut wide) = (0u64, 0u64);
    let mut widest: Option<Bracket> = None;
    for value in streams.iter().flat_map(|stream| stream.points.iter().flatten()) {
        all += 1;
        let StepValue::Bracket(bracket) = value else { continue };
        if !bracket.is_wide() {
            continue;
        }
        wide += 1;
        let width = |of: &Bracket| of.upper - of.lower;
        if widest.is_none_or(|widest| width(bracket) > width(&widest)) {
            widest = Some(**bracket);
        }
    }
    let Bracket { lower, estimate, upper } = widest?;
    // Four digits; the smallest double above a bound at zero is zero.
    let shown = |value: f64| match value {
        _ if value.abs() < 1e-300 => "0".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => format!("{value:.3e}")
            .parse::<f64>()
            .map_or_else(|_| value.to_string(), |it| it.to_string()),
    };
    let unit = result.unit.as_ref().map_or(String::new(), |unit| format!(" {unit}"));
    Some(format!(
        "wide buckets: {wide} of {all} values are known only within a factor of two or more, for \
         example between {} and {}{unit}, shown as {}; use exponential or native histograms, or \
         more bucket bounds",
        shown(lower),
        shown(upper),
        shown(estimate),
    ))
}
