//! Dispatch from function name to kernel.

use super::kernel::Kernel;
use super::{
    aggregate, anomaly, change, elementwise, exclude, fill, filter, forecasting, global, graphite,
    group, histogram, integrate, legends, math, operators, outlier, random_walk, rank, rolling,
    stats, time, vector, window,
};

/// What works out a function, by the name that stands for what it computes.
pub(super) fn kernel(name: &str) -> Option<Kernel> {
    match name.split_once(':').map_or(name, |(package, _)| package) {
        "stats" => stats::kernel(name),
        "op" => operators::kernel(name),
        "each" => elementwise::kernel(name),
        "math" => math::kernel(name),
        "label" | "tag" => legends::kernel(name),
        "group_by" => group::kernel(name),
        "filter" => filter::kernel(name),
        "exclude" => exclude::kernel(name),
        "fill" => fill::kernel(name),
        "time" => time::kernel(name),
        "vector" => vector::kernel(name),
        "graphite" => graphite::kernel(name),
        "window" => window::kernel(name),
        "rolling" => rolling::kernel(name),
        "aggregate" => aggregate::kernel(name),
        "histogram" => histogram::kernel(name),
        "integrate" => integrate::kernel(name),
        "forecasting" => forecasting::kernel(name),
        "outlier" => outlier::kernel(name),
        "anomaly_detection" => anomaly::kernel(name),
        "top" | "bottom" | "sort" => rank::kernel(name),
        "counter" | "derivative" | "diff" => change::kernel(name),
        "randomwalk" => random_walk::kernel(name),
        _ => global::kernel(name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::signature::{Signature, Stability};
    use super::super::sources::MetricStatistic;
    use super::kernel;

    #[test]
    fn every_function_can_be_worked_out() {
        let known = |name: &str| {
            name == "delay"
                || MetricStatistic::from_function(name).is_some()
                || kernel(name).is_some()
        };
        let missing: Vec<&str> = Signature::all()
            .iter()
            .filter(|function| !matches!(function.stability, Stability::Removed(_)))
            .filter(|function| !known(&function.computes))
            .map(|function| function.name.as_str())
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
