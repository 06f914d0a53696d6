//! Thresholds of the command line (`--above`), and the number of values above them.

use crate::error::{Result, bail};
use decode::{Quantity, Unit};
use render::threshold_count::ThresholdCount;

use crate::distribution::DistributionOptions;
use crate::distribution::group::DistributionGroup;

/// Thresholds in the unit of plain numbers; thresholds of another dimension are dropped.
pub(crate) fn thresholds(options: &DistributionOptions, unit: Option<&Unit>) -> Vec<f64> {
    options.above.iter().filter_map(|written| threshold(options, written, unit)).collect()
}

/// A threshold without a unit is in the unit of the command line, otherwise in that of the values.
fn threshold(
    options: &DistributionOptions,
    quantity: &Quantity,
    unit: Option<&Unit>,
) -> Option<f64> {
    if let (None, Some(units)) = (quantity.unit(), &options.unit) {
        return Quantity::parse(&format!("{quantity} {units}"))?.value_in(unit);
    }
    quantity.value_in(unit)
}

/// All thresholds of the command line for one group, in the order given.
pub(crate) fn count_all(
    options: &DistributionOptions,
    group: &DistributionGroup,
) -> Result<Vec<ThresholdCount>> {
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
                        "--above {written}: the values of {metric} are in {unit}; select another \
                         metric with --metric"
                    )
                }
                None => bail!("--above {written}: the values have no unit; set it with --unit"),
            }
        };
        let count = group.distribution.count_above(limit);
        all.push(ThresholdCount { threshold: limit, count });
    }
    Ok(all)
}
