//! Which functions and aggregations there are, and what they take.

use std::fmt::{Display, Formatter};

use super::ast::ValueType;
use ValueType::{Matrix, Scalar, Text, Vector};

/// A function, as far as reading goes.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
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
    pub is_own: bool,
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
pub fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.binary_search_by_key(&name, |function| function.name).ok().map(|at| &FUNCTIONS[at])
}

/// All functions, by name.
pub static FUNCTIONS: &[Function] = &[
    one("abs", &[Vector], Vector),
    one("absent", &[Vector], Vector),
    one("absent_over_time", &[Matrix], Vector),
    one("acos", &[Vector], Vector),
    one("acosh", &[Vector], Vector),
    one("asin", &[Vector], Vector),
    one("asinh", &[Vector], Vector),
    one("atan", &[Vector], Vector),
    one("atanh", &[Vector], Vector),
    one("avg_over_time", &[Matrix], Vector),
    one("ceil", &[Vector], Vector),
    one("changes", &[Matrix], Vector),
    one("clamp", &[Vector, Scalar, Scalar], Vector),
    one("clamp_max", &[Vector, Scalar], Vector),
    one("clamp_min", &[Vector, Scalar], Vector),
    one("cos", &[Vector], Vector),
    one("cosh", &[Vector], Vector),
    one("count_over_time", &[Matrix], Vector),
    one("day_of_month", &[Vector], Vector).up_to(1),
    one("day_of_week", &[Vector], Vector).up_to(1),
    one("day_of_year", &[Vector], Vector).up_to(1),
    one("days_in_month", &[Vector], Vector).up_to(1),
    one("deg", &[Vector], Vector),
    one("delta", &[Matrix], Vector),
    one("deriv", &[Matrix], Vector),
    one("double_exponential_smoothing", &[Matrix, Scalar, Scalar], Vector).experimental(),
    one("end", &[], Scalar).experimental(),
    one("exact_increase", &[Matrix], Vector).own(),
    one("exact_rate", &[Matrix], Vector).own(),
    one("exp", &[Vector], Vector),
    one("first_over_time", &[Matrix], Vector),
    one("floor", &[Vector], Vector),
    one("histogram_avg", &[Vector], Vector),
    one("histogram_count", &[Vector], Vector),
    one("histogram_count_above", &[Scalar, Vector], Vector).own(),
    one("histogram_count_below", &[Scalar, Vector], Vector).own(),
    one("histogram_count_between", &[Scalar, Scalar, Vector], Vector).own(),
    one("histogram_fraction", &[Scalar, Scalar, Vector], Vector),
    one("histogram_inverse_quantile", &[Scalar, Vector], Vector).own(),
    one("histogram_max", &[Vector], Vector).own(),
    one("histogram_min", &[Vector], Vector).own(),
    one("histogram_quantile", &[Scalar, Vector], Vector),
    one("histogram_quantiles", &[Vector, Text, Scalar, Scalar], Vector).up_to(9).experimental(),
    one("histogram_stddev", &[Vector], Vector),
    one("histogram_stdvar", &[Vector], Vector),
    one("histogram_sum", &[Vector], Vector),
    one("hour", &[Vector], Vector).up_to(1),
    one("idelta", &[Matrix], Vector),
    one("increase", &[Matrix], Vector),
    one("info", &[Vector, Vector], Vector).up_to(1).experimental(),
    one("irate", &[Matrix], Vector),
    one("label_join", &[Vector, Text, Text, Text], Vector).any(),
    one("label_replace", &[Vector, Text, Text, Text, Text], Vector),
    one("last_over_time", &[Matrix], Vector),
    one("ln", &[Vector], Vector),
    one("log10", &[Vector], Vector),
    one("log2", &[Vector], Vector),
    one("mad_over_time", &[Matrix], Vector).experimental(),
    one("max_of", &[Scalar, Scalar], Scalar).experimental(),
    one("max_over_time", &[Matrix], Vector),
    one("min_of", &[Scalar, Scalar], Scalar).experimental(),
    one("min_over_time", &[Matrix], Vector),
    one("minute", &[Vector], Vector).up_to(1),
    one("month", &[Vector], Vector).up_to(1),
    one("pi", &[], Scalar),
    one("predict_linear", &[Matrix, Scalar], Vector),
    one("present_over_time", &[Matrix], Vector),
    one("quantile_over_time", &[Scalar, Matrix], Vector),
    one("rad", &[Vector], Vector),
    one("range", &[], Scalar).experimental(),
    one("rate", &[Matrix], Vector),
    one("resets", &[Matrix], Vector),
    one("round", &[Vector, Scalar], Vector).up_to(1),
    one("running_total", &[Vector], Vector).own(),
    one("scalar", &[Vector], Scalar),
    one("sgn", &[Vector], Vector),
    one("sin", &[Vector], Vector),
    one("sinh", &[Vector], Vector),
    one("sort", &[Vector], Vector),
    one("sort_by_label", &[Vector, Text], Vector).any().experimental(),
    one("sort_by_label_desc", &[Vector, Text], Vector).any().experimental(),
    one("sort_desc", &[Vector], Vector),
    one("sqrt", &[Vector], Vector),
    one("start", &[], Scalar).experimental(),
    one("start_timestamp", &[Vector], Vector).experimental(),
    one("stddev_over_time", &[Matrix], Vector),
    one("stdvar_over_time", &[Matrix], Vector),
    one("step", &[], Scalar).experimental(),
    one("sum_over_time", &[Matrix], Vector),
    one("tan", &[Vector], Vector),
    one("tanh", &[Vector], Vector),
    one("time", &[], Scalar),
    one("timestamp", &[Vector], Vector),
    one("ts_of_first_over_time", &[Matrix], Vector).experimental(),
    one("ts_of_last_over_time", &[Matrix], Vector).experimental(),
    one("ts_of_max_over_time", &[Matrix], Vector).experimental(),
    one("ts_of_min_over_time", &[Matrix], Vector).experimental(),
    one("users_harmed", &[Scalar, Scalar, Vector], Vector).own(),
    one("vector", &[Scalar], Vector),
    one("year", &[Vector], Vector).up_to(1),
];

const fn one(name: &'static str, args: &'static [ValueType], returns: ValueType) -> Function {
    Function { name, args, variadic: Variadic::No, returns, is_experimental: false, is_own: false }
}

impl Function {
    const fn up_to(self, times: usize) -> Function {
        Function { variadic: Variadic::UpTo(times), ..self }
    }

    const fn any(self) -> Function {
        Function { variadic: Variadic::Any, ..self }
    }

    const fn experimental(self) -> Function {
        Function { is_experimental: true, ..self }
    }

    const fn own(self) -> Function {
        Function { is_own: true, ..self }
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
impl Display for Function {
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
        let own = FUNCTIONS.iter().filter(|function| function.is_own).count();
        assert_eq!((FUNCTIONS.len() - own, own), (90, 10));
    }

    #[test]
    fn calls_as_one_writes_them() {
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
