//! Which functions and aggregations there are, and what they take.

use std::fmt::{Display, Formatter};

use super::ast::ValueType;
use ValueType::{Matrix, Scalar, Text, Vector};

/// A function, as far as reading goes.
#[derive(Debug, PartialEq, Eq)]
pub struct PromqlFunction {
    /// Its name.
    pub name: &'static str,
    /// The types of its arguments; the last stands for all that follow.
    pub args: &'static [ValueType],
    /// Whether the last argument may be left out, or come again.
    pub variadic: Variadic,
    /// What it gives.
    pub returns: ValueType,
    /// Whether it has to be switched on.
    pub is_experimental: bool,
    /// Whether it is topdeck's own; Prometheus has no function of this name.
    pub is_topdeck_only: bool,
}

/// Whether the last argument may be left out, or come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variadic {
    /// Neither.
    No,
    /// Left out, or up to this often.
    UpTo(usize),
    /// Left out, or as often as one likes.
    Any,
}

/// The function of a name, whether switched on or not.
pub fn function(name: &str) -> Option<&'static PromqlFunction> {
    FUNCTIONS.binary_search_by_key(&name, |function| function.name).ok().map(|at| &FUNCTIONS[at])
}

/// All functions, by name.
pub static FUNCTIONS: &[PromqlFunction] = &[
    define("abs", &[Vector], Vector),
    define("absent", &[Vector], Vector),
    define("absent_over_time", &[Matrix], Vector),
    define("acos", &[Vector], Vector),
    define("acosh", &[Vector], Vector),
    define("asin", &[Vector], Vector),
    define("asinh", &[Vector], Vector),
    define("atan", &[Vector], Vector),
    define("atanh", &[Vector], Vector),
    define("avg_over_time", &[Matrix], Vector),
    define("ceil", &[Vector], Vector),
    define("changes", &[Matrix], Vector),
    define("clamp", &[Vector, Scalar, Scalar], Vector),
    define("clamp_max", &[Vector, Scalar], Vector),
    define("clamp_min", &[Vector, Scalar], Vector),
    define("cos", &[Vector], Vector),
    define("cosh", &[Vector], Vector),
    define("count_over_time", &[Matrix], Vector),
    define("day_of_month", &[Vector], Vector).up_to(1),
    define("day_of_week", &[Vector], Vector).up_to(1),
    define("day_of_year", &[Vector], Vector).up_to(1),
    define("days_in_month", &[Vector], Vector).up_to(1),
    define("deg", &[Vector], Vector),
    define("delta", &[Matrix], Vector),
    define("deriv", &[Matrix], Vector),
    define("double_exponential_smoothing", &[Matrix, Scalar, Scalar], Vector).experimental(),
    define("end", &[], Scalar).experimental(),
    define("exact_increase", &[Matrix], Vector).topdeck_only(),
    define("exact_rate", &[Matrix], Vector).topdeck_only(),
    define("exp", &[Vector], Vector),
    define("first_over_time", &[Matrix], Vector),
    define("floor", &[Vector], Vector),
    define("histogram_avg", &[Vector], Vector),
    define("histogram_count", &[Vector], Vector),
    define("histogram_count_above", &[Scalar, Vector], Vector).topdeck_only(),
    define("histogram_count_below", &[Scalar, Vector], Vector).topdeck_only(),
    define("histogram_count_between", &[Scalar, Scalar, Vector], Vector).topdeck_only(),
    define("histogram_fraction", &[Scalar, Scalar, Vector], Vector),
    define("histogram_inverse_quantile", &[Scalar, Vector], Vector).topdeck_only(),
    define("histogram_max", &[Vector], Vector).topdeck_only(),
    define("histogram_min", &[Vector], Vector).topdeck_only(),
    define("histogram_quantile", &[Scalar, Vector], Vector),
    define("histogram_quantiles", &[Vector, Text, Scalar, Scalar], Vector).up_to(9).experimental(),
    define("histogram_stddev", &[Vector], Vector),
    define("histogram_stdvar", &[Vector], Vector),
    define("histogram_sum", &[Vector], Vector),
    define("hour", &[Vector], Vector).up_to(1),
    define("idelta", &[Matrix], Vector),
    define("increase", &[Matrix], Vector),
    define("info", &[Vector, Vector], Vector).up_to(1).experimental(),
    define("irate", &[Matrix], Vector),
    define("label_join", &[Vector, Text, Text, Text], Vector).variadic(),
    define("label_replace", &[Vector, Text, Text, Text, Text], Vector),
    define("last_over_time", &[Matrix], Vector),
    define("ln", &[Vector], Vector),
    define("log10", &[Vector], Vector),
    define("log2", &[Vector], Vector),
    define("mad_over_time", &[Matrix], Vector).experimental(),
    define("max_of", &[Scalar, Scalar], Scalar).experimental(),
    define("max_over_time", &[Matrix], Vector),
    define("min_of", &[Scalar, Scalar], Scalar).experimental(),
    define("min_over_time", &[Matrix], Vector),
    define("minute", &[Vector], Vector).up_to(1),
    define("month", &[Vector], Vector).up_to(1),
    define("pi", &[], Scalar),
    define("predict_linear", &[Matrix, Scalar], Vector),
    define("present_over_time", &[Matrix], Vector),
    define("quantile_over_time", &[Scalar, Matrix], Vector),
    define("rad", &[Vector], Vector),
    define("range", &[], Scalar).experimental(),
    define("rate", &[Matrix], Vector),
    define("resets", &[Matrix], Vector),
    define("round", &[Vector, Scalar], Vector).up_to(1),
    define("running_total", &[Vector], Vector).topdeck_only(),
    define("scalar", &[Vector], Scalar),
    define("sgn", &[Vector], Vector),
    define("sin", &[Vector], Vector),
    define("sinh", &[Vector], Vector),
    define("sort", &[Vector], Vector),
    define("sort_by_label", &[Vector, Text], Vector).variadic().experimental(),
    define("sort_by_label_desc", &[Vector, Text], Vector).variadic().experimental(),
    define("sort_desc", &[Vector], Vector),
    define("sqrt", &[Vector], Vector),
    define("start", &[], Scalar).experimental(),
    define("start_timestamp", &[Vector], Vector).experimental(),
    define("stddev_over_time", &[Matrix], Vector),
    define("stdvar_over_time", &[Matrix], Vector),
    define("step", &[], Scalar).experimental(),
    define("sum_over_time", &[Matrix], Vector),
    define("tan", &[Vector], Vector),
    define("tanh", &[Vector], Vector),
    define("time", &[], Scalar),
    define("timestamp", &[Vector], Vector),
    define("ts_of_first_over_time", &[Matrix], Vector).experimental(),
    define("ts_of_last_over_time", &[Matrix], Vector).experimental(),
    define("ts_of_max_over_time", &[Matrix], Vector).experimental(),
    define("ts_of_min_over_time", &[Matrix], Vector).experimental(),
    define("users_affected", &[Scalar, Scalar, Vector], Vector).topdeck_only(),
    define("vector", &[Scalar], Vector),
    define("year", &[Vector], Vector).up_to(1),
];

const fn define(
    name: &'static str,
    args: &'static [ValueType],
    returns: ValueType,
) -> PromqlFunction {
    PromqlFunction {
        name,
        args,
        variadic: Variadic::No,
        returns,
        is_experimental: false,
        is_topdeck_only: false,
    }
}

impl PromqlFunction {
    const fn up_to(self, times: usize) -> PromqlFunction {
        PromqlFunction { variadic: Variadic::UpTo(times), ..self }
    }

    const fn variadic(self) -> PromqlFunction {
        PromqlFunction { variadic: Variadic::Any, ..self }
    }

    const fn experimental(self) -> PromqlFunction {
        PromqlFunction { is_experimental: true, ..self }
    }

    const fn topdeck_only(self) -> PromqlFunction {
        PromqlFunction { is_topdeck_only: true, ..self }
    }

    /// How many arguments there must be at least.
    pub fn args_min(&self) -> usize {
        self.args.len() - usize::from(self.variadic != Variadic::No)
    }

    /// How many arguments there may be at most, if there is a limit.
    pub fn args_max(&self) -> Option<usize> {
        match self.variadic {
            Variadic::No => Some(self.args.len()),
            Variadic::UpTo(times) => Some(self.args_min() + times),
            Variadic::Any => None,
        }
    }
}

/// As one writes a call of it, with the types of its arguments; those in brackets may be left out.
impl Display for PromqlFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}(", self.name)?;
        let many = if self.variadic == Variadic::Any { ", …" } else { "" };
        for (at, of) in self.args.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            match at < self.args_min() {
                true => write!(f, "{comma}{}", of.documented())?,
                false => write!(f, "[{comma}{}{many}]", of.documented())?,
            }
        }
        f.write_str(")")
    }
}

/// Operators over many series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it; `text` has how they are written")]
pub enum AggregateOp {
    Avg,
    BottomK,
    Count,
    CountValues,
    Group,
    LimitK,
    LimitRatio,
    Max,
    Min,
    Quantile,
    Stddev,
    Stdvar,
    Sum,
    TopK,
}

impl AggregateOp {
    /// All of them.
    pub const ALL: [AggregateOp; 14] = {
        use AggregateOp::*;
        [
            Avg,
            BottomK,
            Count,
            CountValues,
            Group,
            LimitK,
            LimitRatio,
            Max,
            Min,
            Quantile,
            Stddev,
            Stdvar,
            Sum,
            TopK,
        ]
    };

    /// As it is written.
    pub fn text(self) -> &'static str {
        match self {
            AggregateOp::Avg => "avg",
            AggregateOp::BottomK => "bottomk",
            AggregateOp::Count => "count",
            AggregateOp::CountValues => "count_values",
            AggregateOp::Group => "group",
            AggregateOp::LimitK => "limitk",
            AggregateOp::LimitRatio => "limit_ratio",
            AggregateOp::Max => "max",
            AggregateOp::Min => "min",
            AggregateOp::Quantile => "quantile",
            AggregateOp::Stddev => "stddev",
            AggregateOp::Stdvar => "stdvar",
            AggregateOp::Sum => "sum",
            AggregateOp::TopK => "topk",
        }
    }

    /// The type of its parameter, if it has one.
    pub fn param(self) -> Option<ValueType> {
        use AggregateOp::*;
        match self {
            CountValues => Some(Text),
            BottomK | LimitK | LimitRatio | Quantile | TopK => Some(Scalar),
            _ => None,
        }
    }

    /// Whether it has to be switched on.
    pub fn is_experimental(self) -> bool {
        matches!(self, AggregateOp::LimitK | AggregateOp::LimitRatio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_in_order() {
        assert!(FUNCTIONS.is_sorted_by(|a, b| a.name < b.name));
        let own = FUNCTIONS.iter().filter(|function| function.is_topdeck_only).count();
        assert_eq!((FUNCTIONS.len() - own, own), (90, 10));
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
