//! Counts above thresholds.

use anyhow::{Result, bail};
use collect::{Quantity, Unit};
use hist::Bracket;

use crate::hist::group::DistributionGroup;
use crate::hist::options::Options;
use crate::hist::value_formatter::{self, ValueFormatter};

/// Threshold and the count above it.
pub(crate) struct ThresholdCount<'a> {
    pub(crate) quantity: &'a Quantity,
    /// In the unit of the group.
    pub(crate) threshold: f64,
    pub(crate) count: Bracket<u64>,
}

/// The limits in the unit that plain numbers are recorded in; those that mean something else are left out.
pub(crate) fn thresholds(options: &Options, unit: Option<&Unit>) -> Vec<f64> {
    options.above.iter().filter_map(|written| threshold(options, written, unit)).collect()
}

/// A limit without unit is in the unit of the command line, else in that of the values.
fn threshold(options: &Options, written: &Quantity, unit: Option<&Unit>) -> Option<f64> {
    if let (None, Some(given)) = (written.unit(), &options.unit) {
        return Quantity::parse(&format!("{written} {given}"))?.value_in(unit);
    }
    written.value_in(unit)
}

/// Every limit of the command line, against one group.
pub(crate) fn count_all<'a>(
    options: &'a Options,
    group: &DistributionGroup,
) -> Result<Vec<ThresholdCount<'a>>> {
    let mut all = Vec::new();
    for written in &options.above {
        let unit = group.key.unit.as_ref();
        let Some(limit) = threshold(options, written, unit) else {
            match unit {
                Some(unit) if group.key.metric.is_empty() => {
                    bail!("--above {written}: the values are in {unit}")
                }
                Some(unit) => {
                    let metric = &group.key.metric;
                    bail!(
                        "--above {written}: the values of {metric} are in {unit}; choose with --metric"
                    )
                }
                None => bail!("--above {written}: the values have no unit; name it with --unit"),
            }
        };
        all.push(ThresholdCount {
            quantity: written,
            threshold: limit,
            count: group.distribution.count_above(limit),
        });
    }
    Ok(all)
}

/// `1,204 of 88,310 (1.36 %) took longer than 1.5 s`.
pub(crate) fn sentence(
    above: &ThresholdCount<'_>,
    group: &DistributionGroup,
    show: &ValueFormatter,
) -> String {
    count_sentence(
        above.count,
        group.distribution.count(),
        above.threshold,
        group.key.unit.as_ref(),
        show,
    )
}

/// The same of any count.
pub(crate) fn count_sentence(
    bounds: Bracket<u64>,
    n: u64,
    limit: f64,
    unit: Option<&Unit>,
    show: &ValueFormatter,
) -> String {
    let is_time = unit.is_some_and(|unit| unit.in_nanoseconds().is_some());
    let verb = match (is_time, bounds.is_exact() && bounds.estimate == 1) {
        (true, _) => "took longer than",
        (false, true) => "was above",
        (false, false) => "were above",
    };
    let limit = show.exact(limit);
    let of = format!("of {}", value_formatter::count(n));
    if bounds.is_exact() {
        let share = value_formatter::share(bounds.estimate, n);
        return format!(
            "{} {of} ({share}) {verb} {limit}",
            value_formatter::count(bounds.estimate)
        );
    }
    let (low, high) =
        (value_formatter::share(bounds.lower, n), value_formatter::share(bounds.upper, n));
    let shares = format!("{} to {high}", low.trim_end_matches(" %"));
    format!(
        "between {} and {} {of} ({shares}) {verb} {limit}, likely {}",
        value_formatter::count(bounds.lower),
        value_formatter::count(bounds.upper),
        value_formatter::count(bounds.estimate)
    )
}
