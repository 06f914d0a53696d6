//! Aggregation operators.

use super::ast::ValueType;

/// Aggregation operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are self-explanatory; `text` returns the symbols")]
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
    /// All operators.
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

    /// Text in an expression.
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

    /// Type of the parameter, if there is one.
    pub fn param(self) -> Option<ValueType> {
        use AggregateOp::*;
        match self {
            CountValues => Some(ValueType::Text),
            BottomK | LimitK | LimitRatio | Quantile | TopK => Some(ValueType::Scalar),
            _ => None,
        }
    }

    /// Whether the operator is experimental.
    pub fn is_experimental(self) -> bool {
        matches!(self, AggregateOp::LimitK | AggregateOp::LimitRatio)
    }
}
