//! PromQL function table: one row for each function, with its signature and its kernel.
//!
//! The parser, planner, evaluator, units, `/v1/functions` and the test of `docs/query.md` read this
//! table. A new function is a kernel in `eval/call/` or `eval/range_functions/` and a row here.

use crate::eval::Evaluation;
#[cfg(test)]
use crate::eval::call::example;
use crate::eval::call::{
    FunctionCall, absent, burn_rate, histogram, info, label, math, running_total, scalar, sort,
    time,
};
use crate::eval::range_functions::{
    GrowthKind, RangeKernel, adjacent, passthrough, regression, statistics, sum,
};
use crate::plan::RangeExtension;
use crate::stream::{Stream, seconds};

use super::ast::ValueType;
use super::signature::{
    BucketUse, CallPlan, PromqlFunction, QuantileUse, QueryTimes, StepDependence, UnitRule,
    Variadic,
};
use BucketUse::{All, CountAndSum};
use QuantileUse::{Average, Count, Kept, Quantile, Sum};
use UnitRule::{Argument, Named, PerSecond, Squared, SquaredValuesOf, Unknown, ValuesOf};
use ValueType::{Matrix, Scalar, Text, Vector};
use math::Monotonicity::{Any, Falling, FromZero, Rising};

/// Row of the function table: signature and kernel.
pub(crate) struct PromqlFunctionRow {
    pub(crate) signature: PromqlFunction,
    pub(crate) kernel: PromqlKernel,
}

/// Implementation of a function.
pub(crate) enum PromqlKernel {
    /// Function of instant vectors.
    Instant(InstantKernel),
    /// Function of range vectors.
    Range(RangeKernel),
    /// None: the planner replaces the call.
    Planned,
}

/// Kernel of an instant function.
pub(crate) type InstantKernel =
    fn(&mut Evaluation<'_>, &FunctionCall<'_>) -> crate::error::Result<Vec<Stream>>;

/// Function with a name, whether enabled or not.
pub fn function(name: &str) -> Option<&'static PromqlFunction> {
    find_row(name).map(|row| &row.signature)
}

/// All functions, by name.
pub fn functions() -> impl Iterator<Item = &'static PromqlFunction> {
    TABLE.iter().map(|row| &row.signature)
}

/// Kernel of a function. Looked up once per plan node, not per step.
pub(crate) fn kernel(function: &PromqlFunction) -> &'static PromqlKernel {
    let row = find_row(function.name).expect("BUG: every signature has a row");
    &row.kernel
}

/// Names of range functions that accept a range extension.
pub(crate) fn names_with_extension(extension: RangeExtension) -> Vec<&'static str> {
    let takes = |row: &&PromqlFunctionRow| match &row.kernel {
        PromqlKernel::Range(kernel) => kernel.takes(extension),
        _ => false,
    };
    TABLE.iter().filter(takes).map(|row| row.signature.name).collect()
}

fn find_row(name: &str) -> Option<&'static PromqlFunctionRow> {
    let at = TABLE.binary_search_by(|row| row.signature.name.cmp(name)).ok()?;
    Some(&TABLE[at])
}

const ANCHORED: &[RangeExtension] = &[RangeExtension::Anchored];
const BOTH: &[RangeExtension] = &[RangeExtension::Anchored, RangeExtension::Smoothed];

/// All functions, by name.
static TABLE: &[PromqlFunctionRow] = &[
    instant("abs", &[Vector], Vector, |e, call| math::map(e, call, FromZero, f64::abs))
        .unit(Argument(0))
        .quantiles(Kept),
    instant("absent", &[Vector], Vector, absent::absent),
    range("absent_over_time", &[Matrix], RangeKernel::ABSENT).unit(Unknown),
    instant("acos", &[Vector], Vector, |e, call| math::map(e, call, Falling, f64::acos)),
    instant("acosh", &[Vector], Vector, |e, call| math::map(e, call, Rising, math::acosh)),
    instant("asin", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::asin)),
    instant("asinh", &[Vector], Vector, |e, call| math::map(e, call, Rising, math::asinh)),
    instant("atan", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::atan)),
    instant("atanh", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::atanh)),
    range("avg_over_time", &[Matrix], RangeKernel::window(sum::avg)).quantiles(Average),
    instant(
        "burn_rate",
        &[Scalar, Scalar, Vector, Vector, Vector, Vector],
        Vector,
        burn_rate::burn_rate,
    )
    .topdeck_only()
    .unit(Named("burn rate")),
    instant("ceil", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::ceil))
        .unit(Argument(0))
        .quantiles(Kept),
    range("changes", &[Matrix], RangeKernel::window(adjacent::changes).with_extensions(ANCHORED))
        .unit(Unknown),
    instant("clamp", &[Vector, Scalar, Scalar], Vector, math::clamp)
        .unit(Argument(0))
        .quantiles(Kept),
    instant("clamp_max", &[Vector, Scalar], Vector, math::clamp_max)
        .unit(Argument(0))
        .quantiles(Kept),
    instant("clamp_min", &[Vector, Scalar], Vector, math::clamp_min)
        .unit(Argument(0))
        .quantiles(Kept),
    instant("cos", &[Vector], Vector, |e, call| math::map(e, call, Any, f64::cos)),
    instant("cosh", &[Vector], Vector, |e, call| math::map(e, call, FromZero, f64::cosh)),
    range("count_over_time", &[Matrix], RangeKernel::points(passthrough::count))
        .unit(Unknown)
        .quantiles(Count),
    instant("day_of_month", &[Vector], Vector, |e, call| time::date(e, call, |date| date.day))
        .up_to(1)
        .depends_on_step(),
    instant("day_of_week", &[Vector], Vector, |e, call| time::date(e, call, |date| date.weekday))
        .up_to(1)
        .depends_on_step(),
    instant("day_of_year", &[Vector], Vector, |e, call| {
        time::date(e, call, |date| date.day_of_year)
    })
    .up_to(1)
    .depends_on_step(),
    instant("days_in_month", &[Vector], Vector, |e, call| {
        time::date(e, call, |date| date.days_in_month)
    })
    .up_to(1)
    .depends_on_step(),
    instant("deg", &[Vector], Vector, |e, call| {
        math::map(e, call, Rising, |x| x * 180.0 / std::f64::consts::PI)
    }),
    range("delta", &[Matrix], RangeKernel::growth(GrowthKind::DELTA).with_extensions(BOTH)),
    range("deriv", &[Matrix], RangeKernel::window(regression::deriv)).unit(PerSecond),
    range(
        "double_exponential_smoothing",
        &[Matrix, Scalar, Scalar],
        RangeKernel::window(regression::holt_smoothing),
    )
    .experimental(),
    request_number("end", |times| seconds(times.end)).experimental(),
    exact("exact_increase", false).topdeck_only(),
    exact("exact_rate", true).topdeck_only(),
    #[cfg(test)]
    instant("example_cube", &[Vector], Vector, example::cube).topdeck_only(),
    instant("exp", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::exp)),
    range("first_over_time", &[Matrix], RangeKernel::points(passthrough::first).with_name())
        .quantiles(Kept),
    instant("floor", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::floor))
        .unit(Argument(0))
        .quantiles(Kept),
    instant("histogram_avg", &[Vector], Vector, histogram::avg)
        .unit(ValuesOf(0))
        .buckets(CountAndSum),
    instant("histogram_count", &[Vector], Vector, histogram::count)
        .unit(Named("values"))
        .buckets(CountAndSum),
    instant("histogram_count_above", &[Scalar, Vector], Vector, histogram::count_above)
        .topdeck_only()
        .unit(Named("values")),
    instant("histogram_count_below", &[Scalar, Vector], Vector, histogram::count_below)
        .topdeck_only()
        .unit(Named("values")),
    instant("histogram_count_between", &[Scalar, Scalar, Vector], Vector, histogram::count_between)
        .topdeck_only()
        .unit(Named("values")),
    instant("histogram_fraction", &[Scalar, Scalar, Vector], Vector, histogram::fraction)
        .unit(Named("share, 0 to 1"))
        .buckets(All),
    instant("histogram_inverse_quantile", &[Scalar, Vector], Vector, histogram::inverse_quantile)
        .topdeck_only()
        .unit(Named("share, 0 to 1")),
    instant("histogram_max", &[Vector], Vector, histogram::max).topdeck_only().unit(ValuesOf(0)),
    instant("histogram_min", &[Vector], Vector, histogram::min).topdeck_only().unit(ValuesOf(0)),
    instant("histogram_quantile", &[Scalar, Vector], Vector, histogram::quantile)
        .unit(ValuesOf(1))
        .buckets(All)
        .quantiles(Quantile),
    instant("histogram_quantiles", &[Vector, Text, Scalar, Scalar], Vector, histogram::quantiles)
        .up_to(9)
        .experimental()
        .unit(ValuesOf(0))
        .buckets(All)
        .quantiles(Quantile),
    instant("histogram_stddev", &[Vector], Vector, histogram::stddev)
        .unit(ValuesOf(0))
        .buckets(All),
    instant("histogram_stdvar", &[Vector], Vector, histogram::stdvar)
        .unit(SquaredValuesOf(0))
        .buckets(All),
    instant("histogram_sum", &[Vector], Vector, histogram::sum)
        .unit(ValuesOf(0))
        .buckets(CountAndSum),
    instant("hour", &[Vector], Vector, |e, call| time::date(e, call, |date| date.hour))
        .up_to(1)
        .depends_on_step(),
    range("idelta", &[Matrix], RangeKernel::window(adjacent::idelta)),
    range(
        "increase",
        &[Matrix],
        RangeKernel::growth(GrowthKind::INCREASE)
            .with_starts()
            .with_extensions(BOTH)
            .for_counters(),
    )
    .reads_totals(),
    instant("info", &[Vector, Vector], Vector, info::info)
        .up_to(1)
        .experimental()
        .unit(Argument(0))
        .depends_on_step()
        .label_matchers(1),
    range("irate", &[Matrix], RangeKernel::window(adjacent::irate).with_starts())
        .unit(PerSecond)
        .reads_totals(),
    instant("label_join", &[Vector, Text, Text, Text], Vector, label::join)
        .variadic()
        .unit(Argument(0))
        .quantiles(Kept),
    instant("label_replace", &[Vector, Text, Text, Text, Text], Vector, label::replace)
        .unit(Argument(0))
        .quantiles(Kept),
    range("last_over_time", &[Matrix], RangeKernel::points(passthrough::last).with_name())
        .quantiles(Kept),
    instant("ln", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::ln)),
    instant("log10", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::log10)),
    instant("log2", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::log2)),
    range("mad_over_time", &[Matrix], RangeKernel::window(statistics::mad)).experimental(),
    instant("max_of", &[Scalar, Scalar], Scalar, |e, call| {
        scalar::combine_scalars(e, call, math::greater)
    })
    .experimental(),
    range("max_over_time", &[Matrix], RangeKernel::window(statistics::max)),
    instant("min_of", &[Scalar, Scalar], Scalar, |e, call| {
        scalar::combine_scalars(e, call, math::lesser)
    })
    .experimental(),
    range("min_over_time", &[Matrix], RangeKernel::window(statistics::min)),
    instant("minute", &[Vector], Vector, |e, call| time::date(e, call, |date| date.minute))
        .up_to(1)
        .depends_on_step(),
    instant("month", &[Vector], Vector, |e, call| time::date(e, call, |date| date.month))
        .up_to(1)
        .depends_on_step(),
    instant("pi", &[], Scalar, scalar::pi),
    range("predict_linear", &[Matrix, Scalar], RangeKernel::window(regression::predict_linear))
        .depends_on_step(),
    range("present_over_time", &[Matrix], RangeKernel::points(passthrough::present)).unit(Unknown),
    range("quantile_over_time", &[Scalar, Matrix], RangeKernel::window(statistics::quantile))
        .quantiles(Quantile),
    instant("rad", &[Vector], Vector, |e, call| {
        math::map(e, call, Rising, |x| x * std::f64::consts::PI / 180.0)
    }),
    request_number("range", |times| seconds(times.end.saturating_sub(times.start))).experimental(),
    range(
        "rate",
        &[Matrix],
        RangeKernel::growth(GrowthKind::RATE).with_starts().with_extensions(BOTH).for_counters(),
    )
    .unit(PerSecond)
    .reads_totals(),
    range(
        "resets",
        &[Matrix],
        RangeKernel::window(adjacent::resets).with_starts().with_extensions(ANCHORED),
    )
    .unit(Unknown),
    instant("round", &[Vector, Scalar], Vector, math::round)
        .up_to(1)
        .unit(Argument(0))
        .quantiles(Kept),
    instant("running_total", &[Vector], Vector, running_total::running_total)
        .topdeck_only()
        .unit(Argument(0))
        .depends_on_step()
        .quantiles(Kept),
    instant("scalar", &[Vector], Scalar, scalar::scalar).unit(Argument(0)),
    instant("sgn", &[Vector], Vector, |e, call| math::map(e, call, Rising, math::sign)),
    instant("sin", &[Vector], Vector, |e, call| math::map(e, call, Any, f64::sin)),
    instant("sinh", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::sinh)),
    instant("sort", &[Vector], Vector, sort::by_value).unit(Argument(0)).quantiles(Kept),
    instant("sort_by_label", &[Vector, Text], Vector, sort::by_label)
        .variadic()
        .experimental()
        .unit(Argument(0))
        .quantiles(Kept),
    instant("sort_by_label_desc", &[Vector, Text], Vector, sort::by_label_desc)
        .variadic()
        .experimental()
        .unit(Argument(0))
        .quantiles(Kept),
    instant("sort_desc", &[Vector], Vector, sort::by_value_desc).unit(Argument(0)).quantiles(Kept),
    instant("sqrt", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::sqrt)),
    request_number("start", |times| seconds(times.start)).experimental(),
    instant("start_timestamp", &[Vector], Vector, time::start_timestamp)
        .experimental()
        .unit(Named("s"))
        .depends_on_step(),
    range("stddev_over_time", &[Matrix], RangeKernel::window(statistics::stddev)),
    range("stdvar_over_time", &[Matrix], RangeKernel::window(statistics::stdvar)).unit(Squared),
    request_number("step", |times| seconds(times.step)).experimental(),
    range("sum_over_time", &[Matrix], RangeKernel::window(sum::sum))
        .quantiles(Sum)
        .exact_where_possible(),
    instant("tan", &[Vector], Vector, |e, call| math::map(e, call, Any, f64::tan)),
    instant("tanh", &[Vector], Vector, |e, call| math::map(e, call, Rising, f64::tanh)),
    instant("time", &[], Scalar, time::time).unit(Named("s")).depends_on_step(),
    instant("timestamp", &[Vector], Vector, time::timestamp)
        .unit(Named("s"))
        .depends_on_step_unless_selector(),
    range("ts_of_first_over_time", &[Matrix], RangeKernel::points(passthrough::time_of_first))
        .experimental()
        .unit(Named("s")),
    range("ts_of_last_over_time", &[Matrix], RangeKernel::points(passthrough::time_of_last))
        .experimental()
        .unit(Named("s")),
    range("ts_of_max_over_time", &[Matrix], RangeKernel::window(statistics::time_of_max))
        .experimental()
        .unit(Named("s")),
    range("ts_of_min_over_time", &[Matrix], RangeKernel::window(statistics::time_of_min))
        .experimental()
        .unit(Named("s")),
    instant("users_affected", &[Scalar, Scalar, Vector], Vector, histogram::users_affected)
        .topdeck_only()
        .unit(Named("users")),
    instant("vector", &[Scalar], Vector, scalar::vector).unit(Argument(0)),
    instant("year", &[Vector], Vector, |e, call| time::date(e, call, |date| date.year))
        .up_to(1)
        .depends_on_step(),
];

// Row constructors.

const fn row(
    name: &'static str,
    args: &'static [ValueType],
    returns: ValueType,
    kernel: PromqlKernel,
) -> PromqlFunctionRow {
    let signature = PromqlFunction {
        name,
        args,
        variadic: Variadic::No,
        returns,
        is_experimental: false,
        is_topdeck_only: false,
        call_plan: CallPlan::Evaluate,
        step_dependence: StepDependence::Arguments,
        bucket_use: BucketUse::Unchanged,
        quantile_use: QuantileUse::Other,
        unit: Unknown,
        reads_totals: false,
        label_matchers_arg: None,
    };
    PromqlFunctionRow { signature, kernel }
}

/// Instant function. Its unit is unknown by default.
const fn instant(
    name: &'static str,
    args: &'static [ValueType],
    returns: ValueType,
    kernel: InstantKernel,
) -> PromqlFunctionRow {
    row(name, args, returns, PromqlKernel::Instant(kernel))
}

/// Range function. Its unit is that of its samples by default.
const fn range(
    name: &'static str,
    args: &'static [ValueType],
    kernel: RangeKernel,
) -> PromqlFunctionRow {
    row(name, args, Vector, PromqlKernel::Range(kernel)).unit(UnitRule::Samples)
}

/// Exact deltas from the store.
const fn exact(name: &'static str, is_rate: bool) -> PromqlFunctionRow {
    let mut row = row(name, &[Matrix], Vector, PromqlKernel::Planned);
    row.signature.call_plan = CallPlan::Exact { is_rate };
    row
}

/// Number derived from the request.
const fn request_number(name: &'static str, number: fn(QueryTimes) -> f64) -> PromqlFunctionRow {
    let mut row = row(name, &[], Scalar, PromqlKernel::Planned);
    row.signature.call_plan = CallPlan::RequestNumber(number);
    row
}

impl PromqlFunctionRow {
    const fn up_to(mut self, times: usize) -> PromqlFunctionRow {
        self.signature.variadic = Variadic::UpTo(times);
        self
    }

    const fn variadic(mut self) -> PromqlFunctionRow {
        self.signature.variadic = Variadic::Any;
        self
    }

    const fn experimental(mut self) -> PromqlFunctionRow {
        self.signature.is_experimental = true;
        self
    }

    const fn topdeck_only(mut self) -> PromqlFunctionRow {
        self.signature.is_topdeck_only = true;
        self
    }

    const fn unit(mut self, unit: UnitRule) -> PromqlFunctionRow {
        self.signature.unit = unit;
        self
    }

    const fn depends_on_step(mut self) -> PromqlFunctionRow {
        self.signature.step_dependence = StepDependence::Step;
        self
    }

    const fn depends_on_step_unless_selector(mut self) -> PromqlFunctionRow {
        self.signature.step_dependence = StepDependence::UnlessSelector;
        self
    }

    const fn buckets(mut self, bucket_use: BucketUse) -> PromqlFunctionRow {
        self.signature.bucket_use = bucket_use;
        self
    }

    const fn quantiles(mut self, quantile_use: QuantileUse) -> PromqlFunctionRow {
        self.signature.quantile_use = quantile_use;
        self
    }

    const fn reads_totals(mut self) -> PromqlFunctionRow {
        self.signature.reads_totals = true;
        self
    }

    const fn label_matchers(mut self, arg: usize) -> PromqlFunctionRow {
        self.signature.label_matchers_arg = Some(arg);
        self
    }

    const fn exact_where_possible(mut self) -> PromqlFunctionRow {
        self.signature.call_plan = CallPlan::EvaluateOrExact;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_in_order() {
        assert!(functions().is_sorted_by(|a, b| a.name < b.name));
        let own = functions().filter(|function| function.is_topdeck_only).count();
        let example = functions().filter(|function| function.name.starts_with("example_")).count();
        assert_eq!((functions().count() - own, own - example), (90, 11));
    }

    #[test]
    fn call_arity_is_checked() {
        let written = |name| function(name).map(ToString::to_string);
        assert_eq!(written("pi").as_deref(), Some("pi()"));
        assert_eq!(written("rate").as_deref(), Some("rate(range vector)"));
        assert_eq!(written("round").as_deref(), Some("round(instant vector[, scalar])"));
        assert_eq!(written("hour").as_deref(), Some("hour([instant vector])"));
        let join = "label_join(instant vector, string, string[, string, …])";
        assert_eq!(written("label_join").as_deref(), Some(join));
    }

    #[test]
    fn numbers_of_arguments() {
        let limits = |name| function(name).map(|f| (f.args_min(), f.args_max()));
        assert_eq!(limits("rate"), Some((1, Some(1))));
        assert_eq!(limits("hour"), Some((0, Some(1))));
        assert_eq!(limits("label_join"), Some((3, None)));
        assert_eq!(limits("histogram_quantiles"), Some((3, Some(12))));
        assert_eq!(limits("rates"), None);
    }
}
