//! Which series have data, whether or not they meet the condition of a rule.
//!
//! In PromQL a series that does not meet a condition is absent from the result, as is one without
//! data. A comparison of a vector with a number keeps the labels of the vector, so the vector alone
//! tells the two apart. Other conditions (`absent`, `and`, vector with vector) have no such part.

use query::promql::{Expr, ExprKind, Options, ValueType, parse};

/// Expression of the series with data; `None` if the condition is not a comparison of a vector
/// with a number without `bool`.
pub(super) fn presence_expression(text: &str, options: &Options) -> Option<String> {
    let expression = parse(text, options).ok()?;
    let vector = compared_vector(&expression)?;
    text.get(vector.span.start..vector.span.end).map(str::to_owned)
}

fn compared_vector(expression: &Expr) -> Option<&Expr> {
    match &expression.kind {
        ExprKind::Paren(inner) => compared_vector(inner),
        ExprKind::Binary { op, left, right, matching: None, return_bool: false }
            if op.is_comparison() =>
        {
            match (left.value_type(), right.value_type()) {
                (ValueType::Vector, ValueType::Scalar) => Some(left),
                (ValueType::Scalar, ValueType::Vector) => Some(right),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let found = presence_expression(text, &Options::default());
        assert_eq!(found.as_deref(), expected, "{text}");
    }

    #[test]
    fn series_with_data_are_those_of_the_compared_vector() {
        check("up == 0", Some("up"));
        check("(rate(errors_total[5m]) > 0.1)", Some("rate(errors_total[5m])"));
        check("5 < (a + b)", Some("(a + b)"));
        check("sum by (job) (up) < 2 * 3", Some("sum by (job) (up)"));
        check("absent(up)", None);
        check("a > b", None);
        check("a > 1 and b > 1", None);
        check("up == bool 0", None);
        check("up", None);
    }
}
