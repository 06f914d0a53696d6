//! Which function is worked out where.

use super::work::Kernel;
use super::{
    change, each, exclude, fill, filter, global, graphite, group, legends, math, op, rank, stats,
    time, vector, walk,
};

/// What works out a function, by the name that stands for what it computes.
pub(super) fn kernel(name: &str) -> Option<Kernel> {
    match name.split_once(':').map_or(name, |(package, _)| package) {
        "stats" => stats::kernel(name),
        "op" => op::kernel(name),
        "each" => each::kernel(name),
        "math" => math::kernel(name),
        "label" | "tag" => legends::kernel(name),
        "group_by" => group::kernel(name),
        "filter" => filter::kernel(name),
        "exclude" => exclude::kernel(name),
        "fill" => fill::kernel(name),
        "time" => time::kernel(name),
        "vector" => vector::kernel(name),
        "graphite" => graphite::kernel(name),
        "top" | "bottom" | "sort" => rank::kernel(name),
        "counter" | "derivative" | "diff" => change::kernel(name),
        "randomwalk" => walk::kernel(name),
        _ => global::kernel(name),
    }
}
