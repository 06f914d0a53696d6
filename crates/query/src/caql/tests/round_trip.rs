//! A formatted tree parses to the same tree, and any text is parsed or rejected without a panic.

use proptest::prelude::*;

use super::super::ast::{Argument, CallExpr, CaqlExpr, CaqlExprKind, Constant, Literal, Operator};
use super::super::{Body, CaqlContext, CaqlQuery, Directives, bind, parse};
use crate::error::SourceSpan;
use crate::query_warnings::QueryWarnings;

fn literal() -> impl Strategy<Value = Literal> {
    let number = prop_oneof![
        any::<f64>().prop_filter("a literal is finite", |number| number.is_finite()),
        (-1000..1000_i32).prop_map(|number| f64::from(number) / 4.0),
    ];
    prop_oneof![
        number.prop_map(Literal::Number),
        (-i64::MAX..=i64::MAX).prop_map(Literal::Duration),
        (-100_000..100_000_i64).prop_map(|seconds| Literal::Duration(seconds * 1_000_000_000)),
        r#"[a-z"'%“’ /\\\n{]{0,6}"#.prop_map(Literal::Text),
        prop::sample::select(Constant::ALL.to_vec()).prop_map(Literal::Constant),
    ]
}

fn arguments() -> impl Strategy<Value = Vec<Argument>> {
    let positional = prop::collection::vec(literal(), 0..3);
    let named = prop::collection::btree_map("x|y|period", literal(), 0..3);
    (positional, named).prop_map(|(positional, named)| {
        let positional = positional.into_iter().map(|value| (None, value));
        let named = named.into_iter().map(|(name, value)| (Some(name), value));
        let argument = |(name, value)| Argument { name, value, span: SourceSpan::default() };
        positional.chain(named).map(argument).collect()
    })
}

fn node(kind: CaqlExprKind) -> CaqlExpr {
    CaqlExpr { kind, span: SourceSpan::default() }
}

fn call(inputs: Vec<CaqlExpr>) -> impl Strategy<Value = CaqlExpr> {
    ("f|pass|stats:sum|if|p|nota", arguments()).prop_map(move |(name, arguments)| {
        let name_span = SourceSpan::default();
        node(CaqlExprKind::Call(CallExpr { name, name_span, arguments, inputs: inputs.clone() }))
    })
}

fn expr() -> impl Strategy<Value = CaqlExpr> {
    let leaf = prop_oneof![
        literal().prop_map(|literal| node(CaqlExprKind::Literal(literal))),
        call(Vec::new())
    ];
    leaf.prop_recursive(6, 40, 4, |inner| {
        let unary = prop::sample::select(vec![Operator::Not, Operator::Negate]);
        let chained = prop::sample::select(Operator::BINARY.to_vec());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_flat_map(call),
            (unary, inner.clone()).prop_map(|(operator, operand)| {
                node(CaqlExprKind::Operation { operator, operands: vec![operand] })
            }),
            (chained, prop::collection::vec(inner, 2..4)).prop_map(|(operator, mut operands)| {
                if operator.is_comparison() {
                    operands.truncate(2);
                }
                node(CaqlExprKind::Operation { operator, operands })
            }),
        ]
    })
}

fn without_spans(expr: CaqlExpr) -> CaqlExpr {
    let all = |exprs: Vec<CaqlExpr>| exprs.into_iter().map(without_spans).collect();
    node(match expr.kind {
        CaqlExprKind::Literal(literal) => CaqlExprKind::Literal(literal),
        CaqlExprKind::Operation { operator, operands } => {
            CaqlExprKind::Operation { operator, operands: all(operands) }
        }
        CaqlExprKind::Call(call) => CaqlExprKind::Call(CallExpr {
            name_span: SourceSpan::default(),
            arguments: call
                .arguments
                .into_iter()
                .map(|argument| Argument { span: SourceSpan::default(), ..argument })
                .collect(),
            inputs: all(call.inputs),
            ..call
        }),
    })
}

fn directives() -> impl Strategy<Value = Directives> {
    let span = || prop::option::of(1..i64::MAX);
    (any::<bool>(), any::<bool>(), span(), span()).prop_map(
        |(preview, serial, min_period_ns, lookback_ns)| Directives {
            preview,
            serial,
            min_period_ns,
            lookback_ns,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn formatted_queries_round_trip(expr in expr(), directives in directives()) {
        let query = CaqlQuery { directives, body: Body::Caql(expr) };
        let shown = query.to_string();
        let read = parse(&shown).map_err(|error| TestCaseError::fail(error.format_with_source(&shown)))?;
        let body = match read.body {
            Body::Caql(expr) => Body::Caql(without_spans(expr)),
            body => body,
        };
        prop_assert_eq!(CaqlQuery { body, ..read }, query, "{}", shown);
    }

    #[test]
    fn random_text_does_not_panic(
        text in prop_oneof![
            ".{0,40}",
            r#"([|{}(),=<>!+*/^%-]|[0-9.]{1,3}[smhdw ]|find|pass|not |and |or |NULL|VIEW_RANGE| |["'“”p]|a:|\n|#|//|ü){0,30}"#,
            r#"#?(serial|lang="promql"|min_period=[0-9]{1,20}[smw]?)? ?(find|window:sum|top|label|stats:ratio)\((["'](and\()?[a-z%{}*/:-]{0,6}\)?["']|[0-9]{1,9}[mw]?|,|limit=|of=|offset=){0,4}\)(\{1\})?"#,
        ],
    ) {
        let check = |error: &crate::Error| {
            if let Some(span) = error.span() {
                assert!(text.get(span.start..span.end).is_some(), "{span} of {text:?}");
            }
            assert!(!error.format_with_source(&text).is_empty());
        };
        match parse(&text) {
            Ok(CaqlQuery { body: Body::Caql(expr), .. }) => {
                let shown = expr.to_string();
                let read = parse(&shown).map_err(|error| TestCaseError::fail(error.format_with_source(&shown)))?;
                let Body::Caql(again) = read.body else { panic!("this was CAQL") };
                prop_assert_eq!(without_spans(again), without_spans(expr.clone()), "{}", shown);
                let context = CaqlContext {
                    view_range_ns: 3_600_000_000_000,
                    view_period_ns: 60_000_000_000,
                    is_serial: false,
                };
                if let Err(error) = bind(&expr, &context, &mut QueryWarnings::default()) {
                    check(&error);
                }
            }
            Ok(_) => {}
            Err(error) => check(&error),
        }
    }
}
