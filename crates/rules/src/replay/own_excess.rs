//! Values above the threshold of an own rule, while its alerts fired: that of its first criterion
//! that has one of a distribution.

use hist::Bracket;

use super::ReplayInputs;
use super::alert_trace::ReplayedAlert;
use super::threshold::ThresholdExcess;
use crate::affected_series::AffectedSeries;
use crate::own::OwnCondition;

/// Values above the threshold; `None` without one, or if the values cannot be counted.
pub(super) fn count_above(
    own: &OwnCondition,
    alerts: &[&ReplayedAlert],
    inputs: &ReplayInputs<'_>,
) -> Option<ThresholdExcess> {
    let (threshold, limit) = own.first_limit()?;
    let mut values = Bracket::exact(0.0);
    for alert in alerts {
        for period in &alert.firing {
            let series = AffectedSeries::of_stream(own, limit, &alert.series, period.clone())?;
            if inputs.context.is_cancelled() {
                return None;
            }
            let source = (inputs.open_source)();
            let found = series.values_above(&*source).ok()??;
            values.lower += found.lower;
            values.estimate += found.estimate;
            values.upper += found.upper;
        }
    }
    Some(ThresholdExcess { threshold, unit: None, values })
}
