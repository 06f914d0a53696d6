//! Arguments of instant functions that occur more than once in an expression, as do those of
//! `histogram_quantile(0.99, increase(m[5m])) or histogram_fraction(0, 0.1, increase(m[5m]))`.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::plan::{PlanNode, PlanOp, SharedNode};

use super::ast::{Expr, ExprKind};

/// Arguments that read samples of a range, or aggregate such a call, and occur more than once.
#[derive(Default)]
pub(super) struct RepeatedArguments {
    /// Number of occurrences, by text.
    counts: HashMap<String, usize>,
    /// Keys of the shared nodes, by text and by whether resets are detected.
    keys: RefCell<HashMap<(String, bool), usize>>,
}

impl RepeatedArguments {
    /// The repeated arguments of an expression.
    pub(super) fn of(expression: &Expr) -> RepeatedArguments {
        let mut repeated = RepeatedArguments::default();
        repeated.count(expression);
        repeated.counts.retain(|_, count| *count > 1);
        repeated
    }

    fn count(&mut self, expr: &Expr) {
        if let ExprKind::Call { args, .. } = &expr.kind {
            for text in args.iter().filter_map(text_of_argument) {
                *self.counts.entry(text).or_default() += 1;
            }
        }
        expr.children().into_iter().for_each(|child| self.count(child));
    }

    /// The plan of an argument, shared if it occurs more than once. Nodes that detect resets have
    /// other results than those that do not.
    pub(super) fn share(&self, argument: &Expr, detects_resets: bool, node: PlanNode) -> PlanNode {
        if self.counts.is_empty() {
            return node;
        }
        let text = text_of_argument(argument).filter(|text| self.counts.contains_key(text));
        let Some(text) = text else { return node };
        let mut keys = self.keys.borrow_mut();
        let next = keys.len();
        let key = *keys.entry((text, detects_resets)).or_insert(next);
        let span = node.span;
        PlanNode { op: PlanOp::Shared(Box::new(SharedNode { key, node })), span }
    }
}

/// Text of an argument whose evaluation takes long.
fn text_of_argument(argument: &Expr) -> Option<String> {
    let argument = argument.unwrap_parens();
    let of_range = match &argument.kind {
        ExprKind::Aggregate { expr, .. } => expr.unwrap_parens(),
        _ => argument,
    };
    let ExprKind::Call { args, .. } = &of_range.kind else { return None };
    let is_range = |arg: &Expr| matches!(arg.unwrap_parens().kind, ExprKind::Matrix { .. });
    args.iter().any(is_range).then(|| argument.to_string())
}

#[cfg(test)]
mod tests {
    use crate::promql::{Options, parse};

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, usize)]) {
        let expression = parse(text, &Options::all()).unwrap();
        let repeated = RepeatedArguments::of(&expression);
        let mut found: Vec<(&str, usize)> =
            repeated.counts.iter().map(|(text, count)| (text.as_str(), *count)).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn arguments_that_read_a_range_twice_are_found() {
        check(
            "histogram_sum(increase(a[5m])) / histogram_quantile(0.5, (increase(a[ 5m])))",
            &[("increase(a[5m])", 2)],
        );
        check(
            "histogram_avg(sum by (b) (rate(a[1m]))) or histogram_count(sum by (b) (rate(a[1m])))",
            &[("sum by (b) (rate(a[1m]))", 2)],
        );
        check("histogram_sum(rate(a[1m])) / histogram_sum(rate(a[2m]))", &[]);
        check("rate(a[1m]) / rate(a[1m])", &[]);
        check("sum(rate(a[1m])) / histogram_sum(rate(a[1m]))", &[]);
        check("abs(a) / abs(a)", &[]);
    }
}
