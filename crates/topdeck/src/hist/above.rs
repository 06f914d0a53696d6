//! Limits: how many values were worse, and in which words.

use anyhow::{Result, bail};
use collect::{Quantity, Unit};
use hist::Bracket;

use crate::hist::group::Group;
use crate::hist::options::Options;
use crate::hist::show::{self, Show};

/// One limit, and what lies above it.
pub(crate) struct Above<'a> {
    pub(crate) written: &'a Quantity,
    /// In the unit of the group.
    pub(crate) limit: f64,
    pub(crate) count: Bracket<u64>,
}

/// The limits in the unit that plain numbers are recorded in; those that mean something else are left out.
pub(crate) fn limits(options: &Options, unit: Option<&Unit>) -> Vec<f64> {
    options.above.iter().filter_map(|written| limit(options, written, unit)).collect()
}

/// A limit without unit is in the unit of the command line, else in that of the values.
fn limit(options: &Options, written: &Quantity, unit: Option<&Unit>) -> Option<f64> {
    if let (None, Some(given)) = (written.unit(), &options.unit) {
        return Quantity::parse(&format!("{written} {given}"))?.value_in(unit);
    }
    written.value_in(unit)
}

/// Every limit of the command line, against one group.
pub(crate) fn all<'a>(options: &'a Options, group: &Group) -> Result<Vec<Above<'a>>> {
    let mut all = Vec::new();
    for written in &options.above {
        let unit = group.key.unit.as_ref();
        let Some(limit) = limit(options, written, unit) else {
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
        all.push(Above { written, limit, count: group.whole.above(limit) });
    }
    Ok(all)
}

/// `1,204 of 88,310 (1.36 %) took longer than 1.5 s`.
pub(crate) fn sentence(above: &Above<'_>, group: &Group, show: &Show) -> String {
    count_sentence(above.count, group.whole.count(), above.limit, group.key.unit.as_ref(), show)
}

/// The same of any count.
pub(crate) fn count_sentence(
    bounds: Bracket<u64>,
    n: u64,
    limit: f64,
    unit: Option<&Unit>,
    show: &Show,
) -> String {
    let is_time = unit.is_some_and(|unit| unit.in_nanoseconds().is_some());
    let verb = match (is_time, bounds.is_exact() && bounds.estimate == 1) {
        (true, _) => "took longer than",
        (false, true) => "was above",
        (false, false) => "were above",
    };
    let limit = show.exact(limit);
    let of = format!("of {}", show::count(n));
    if bounds.is_exact() {
        let share = show::share(bounds.estimate, n);
        return format!("{} {of} ({share}) {verb} {limit}", show::count(bounds.estimate));
    }
    let (low, high) = (show::share(bounds.lower, n), show::share(bounds.upper, n));
    let shares = format!("{} to {high}", low.trim_end_matches(" %"));
    format!(
        "between {} and {} {of} ({shares}) {verb} {limit}, likely {}",
        show::count(bounds.lower),
        show::count(bounds.upper),
        show::count(bounds.estimate)
    )
}
