//! Start times of alerts from the series `ALERTS_FOR_STATE`, as Prometheus restores them.
//!
//! Stored states (`rule_snapshot`) are complete. The series is for groups without them: those of a
//! Prometheus whose data was imported, or when the file of states is damaged. It has only the time
//! since when an alert is active, so `keep_firing_for` and acknowledgements are not restored.

use query::{LabelSet, NAME, is_stale};

use crate::alert_series::ALERTS_FOR_STATE;
use crate::alert_table::AlertState;
use crate::group::EvaluatedGroup;

/// Limits of the restoration, with the defaults of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForStateLimits {
    /// Maximum age of the last sample (`for-outage-tolerance`, 1 hour).
    pub outage_tolerance_ns: i64,
    /// Minimum time between the restoration and the next firing, and minimum `for` of restored
    /// rules (`for-grace-period`, 10 minutes).
    pub grace_period_ns: i64,
}

impl Default for ForStateLimits {
    fn default() -> ForStateLimits {
        const MINUTE_NS: i64 = 60 * 1_000_000_000;
        ForStateLimits { outage_tolerance_ns: 60 * MINUTE_NS, grace_period_ns: 10 * MINUTE_NS }
    }
}

impl EvaluatedGroup {
    /// Restores the start times of pending alerts. Prometheus does so after the second evaluation,
    /// when recording rules have current results. `last_sample` returns time and value of the last
    /// sample of a series before the restart.
    pub fn restore_for_state(
        &mut self,
        time_ns: i64,
        limits: &ForStateLimits,
        last_sample: &dyn Fn(&LabelSet) -> Option<(i64, f64)>,
    ) {
        for (for_ns, table) in self.alerting_rules() {
            if for_ns < limits.grace_period_ns {
                continue;
            }
            for (labels, alert) in &mut table.alerts {
                let sample = last_sample(&labels.with(NAME, ALERTS_FOR_STATE));
                let is_recent = |&(down_ns, value): &(i64, f64)| {
                    time_ns.saturating_sub(down_ns) <= limits.outage_tolerance_ns
                        && !is_stale(value)
                };
                let Some((down_ns, value)) = sample.filter(is_recent) else { continue };
                if alert.state == AlertState::Pending {
                    let active_ns = (value as i64).saturating_mul(1_000_000_000);
                    let grace_ns = limits.grace_period_ns;
                    alert.active_at_ns =
                        restored_start(active_ns, down_ns, time_ns, for_ns, grace_ns);
                }
            }
        }
    }
}

/// Start of an alert that was active since `active_ns` until the node went down.
fn restored_start(active_ns: i64, down_ns: i64, now_ns: i64, for_ns: i64, grace_ns: i64) -> i64 {
    let pending_ns = down_ns.saturating_sub(active_ns);
    match for_ns.saturating_sub(pending_ns) {
        // It was firing, and does so again at the next evaluation.
        rest_ns if rest_ns <= 0 => active_ns,
        // It would fire before the data is complete again.
        rest_ns if rest_ns < grace_ns => now_ns.saturating_add(grace_ns).saturating_sub(for_ns),
        // The outage does not count.
        _ => active_ns.saturating_add(now_ns.saturating_sub(down_ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minutes until the alert fires, with `for: 30m` and a grace period of 10 minutes: pending for
    /// some minutes before an outage of 20 minutes.
    #[track_caller]
    fn check(pending_minutes: i64, expected: i64) {
        const MINUTE_NS: i64 = 60 * 1_000_000_000;
        let (down_ns, now_ns, for_ns) = (100 * MINUTE_NS, 120 * MINUTE_NS, 30 * MINUTE_NS);
        let active_ns = down_ns - pending_minutes * MINUTE_NS;
        let start_ns = restored_start(active_ns, down_ns, now_ns, for_ns, 10 * MINUTE_NS);
        assert_eq!((start_ns + for_ns - now_ns).max(0) / MINUTE_NS, expected);
    }

    #[test]
    fn an_outage_does_not_count_as_pending() {
        check(5, 25);
        check(20, 10);
        // Less than the grace period remains.
        check(25, 10);
        // It was firing.
        check(30, 0);
        check(40, 0);
    }
}
