//! One case for each row of the language's tables.

use super::super::ast::{Constant, Directives, Literal, Operator};
use super::super::{ArgumentValue, Body, BoundKind, CaqlExprKind, StreamKind, parse};
use super::{HOUR_NS, expr_of, parse_and_bind, with_all_brackets};

/// Grouping of an expression. A single letter is a call.
#[track_caller]
fn check(text: &str, expected: &str) {
    let letter = regex::Regex::new(r"\b[a-ehm]\b(\s*[({])?").unwrap();
    let calls = letter.replace_all(text, |found: &regex::Captures<'_>| {
        format!("{}{}", &found[0], if found.get(1).is_some() { "" } else { "()" })
    });
    let query =
        parse(&calls).unwrap_or_else(|error| panic!("{}", error.format_with_source(&calls)));
    assert_eq!(with_all_brackets(&expr_of(query)), expected, "{text}");
}

#[test]
fn precedence() {
    check("a + b / 10", "(a + (b / 10))");
    check("m > 4 | wait(3m)", "wait(3m){(m > 4)}");
    check("12 < h and h < 14", "((12 < h) and (h < 14))");
    check("not a or b", "(!(a or b))");
    check("!a or b", "((!a) or b)");
    check("a or not b", "(a or (!b))");
    check("a or b and c", "(a or (b and c))");
    check("a == b < c", "(a == (b < c))");
    check("a % b * c", "(a % (b * c))");
    check("a % b / c", "(a % (b / c))");
    check("a * b / c", "(a * (b / c))");
    check("a - b + c", "((a - b) + c)");
    check("a - b - c", "(a - b - c)");
    check("a / b / c", "(a / b / c)");
    check("a ^ b ^ c", "(a ^ b ^ c)");
    check("1 + 2 | label('three')", "label(\"three\"){(1 + 2)}");
    check("2 + 3 * 4 ^ 2 / 8", "(2 + (3 * ((4 ^ 2) / 8)))");
}

#[test]
fn every_level_is_its_own() {
    let operators = Operator::BINARY.map(Operator::symbol);
    for (at, loose) in operators.iter().enumerate() {
        for tight in &operators[at + 1..] {
            check(&format!("a {loose} b {tight} c"), &format!("(a {loose} (b {tight} c))"));
            check(&format!("a {tight} b {loose} c"), &format!("((a {tight} b) {loose} c)"));
        }
        check(&format!("!a {loose} -b"), &format!("((!a) {loose} (-b))"));
        check(&format!("(a {loose} b) {loose} c"), &format!("((a {loose} b) {loose} c)"));
        check(&format!("not a {loose} b | c"), &format!("c{{(!(a {loose} b))}}"));
    }
}

#[test]
fn not_reaches_to_the_next_pipe_comma_or_bracket() {
    check("a and not b or c", "(a and (!(b or c)))");
    check("not not a or b", "(!(!(a or b)))");
    check("pass{not a or b, c}", "pass{(!(a or b)), c}");
    check("(a + not b) or c", "((a + (!b)) or c)");
    check("not a | b", "b{(!a)}");
    check("!not a or b", "(!(!(a or b)))");
    check("a or not b | c", "c{(a or (!b))}");
    check("not(a) or b", "(!(a or b))");
    check("!!a", "(!(!a))");
}

#[test]
fn pipes_are_first_inputs() {
    check("a | c", "c{a}");
    check("a | c(){b, 1}", "c{a, b, 1}");
    check("a | c(5m) { b }", "c(5m){a, b}");
    check("a | c{}", "c{a}");
    check("a | b | c{d | e}", "c{b{a}, e{d}}");
    check("(a | b) + 1", "(b{a} + 1)");
    check("(a)|b", "b{a}");
    check("a{b + 1, (c)}", "a{(b + 1), c}");
    check("a {1} ", "a{1}");
    check("graphite:find::count (\"x\")", "graphite:find:count(\"x\")");
}

#[test]
fn signs() {
    check("-5", "-5");
    check("- 5", "(-5)");
    check("+5", "5");
    check("a -5", "(a - 5)");
    check("a+5", "(a + 5)");
    check("a - -5", "(a - -5)");
    check("a--5", "(a - -5)");
    check("-a ^ b", "((-a) ^ b)");
    check("--a", "(-(-a))");
    check("-2 ^ 2", "(-2 ^ 2)");
    check("-(5)", "(-5)");
    check("fill(-5){a}", "fill(-5){a}");
    check("fill(+1.50){a}", "fill(1.5){a}");
    check("delay(-5m){a}", "delay(-5m){a}");
    check("a - 5m", "(a - 5m)");
}

#[test]
fn literals_and_arguments() {
    check("a(1, \"x\", 5m, y=2, z='w')", "a(1, \"x\", 5m, y=2, z=\"w\")");
    check("a('say \"x\"')", "a('say \"x\"')");
    check("a(p'say %22x%22')", "a('say \"x\"')");
    check("a(\"`mtev`* (x):/,.\")", "a(\"`mtev`* (x):/,.\")");
    check("a(“x”, ‘y’)", "a(\"x\", \"y\")");
    check("a(1d 6h)", "a(30h)");
    check("a(90s, 1.5s, 0s, 14d)", "a(90s, 1.5s, 0s, 2w)");
    check("a(VIEW_RANGE, x=VIEW_PERIOD_SECONDS)", "a(VIEW_RANGE, x=VIEW_PERIOD_SECONDS)");
    check("NULL + VIEW_RANGE_MINUTES", "(NULL + VIEW_RANGE_MINUTES)");
    check("1 // one\n + 2 // two", "(1 + 2)");
    let all = Constant::ALL.map(|constant| (Constant::from_name(constant.name()), constant));
    assert!(all.into_iter().all(|(found, constant)| found == Some(constant)));
}

#[track_caller]
fn check_head(text: &str, expected: Directives) {
    let query = parse(text).unwrap_or_else(|error| panic!("{}", error.format_with_source(text)));
    assert_eq!(query.directives, expected, "{text}");
}

#[test]
fn directives() {
    let none = Directives::default();
    let serial = Directives { serial: true, ..none };
    let period = |seconds: i64| Directives { min_period_ns: Some(seconds * 1_000_000_000), ..none };
    check_head("#preview\n1", Directives { preview: true, ..none });
    check_head("#serial\n1", serial);
    check_head("#strict\n1", serial);
    check_head("#serial 1 + 1", serial);
    check_head("// why\n#serial // because\n\n1", serial);
    check_head("#min_period=3600\n1", period(3600));
    check_head("#min_period=10s 1", period(10));
    check_head("#min_period=1m30s 1", period(90));
    check_head("#min_period=\"60\" 1", period(60));
    check_head("#lang=\"caql\" 1", none);
    check_head("#preview #serial 1", Directives { preview: true, serial: true, ..none });
}

#[test]
fn promql_is_handed_on() {
    let text = "#min_period=60\n#lang=\"promql\"\n#lookback_window=2m\n# why\nrate(x[5m]) // y";
    let query = parse(text).unwrap();
    let Body::Promql { text: body, offset } = query.body else { panic!("this is CAQL") };
    assert_eq!(body, "# why\nrate(x[5m]) // y");
    assert_eq!(&text[offset..], body);
    assert_eq!(query.directives.lookback_ns, Some(120_000_000_000));
    assert_eq!(query.directives.min_period_ns, Some(60_000_000_000));
}

#[test]
fn operators_have_functions() {
    for operator in Operator::BINARY.into_iter().chain([Operator::Not, Operator::Negate]) {
        let function = super::super::Signature::find(operator.function());
        assert!(function.is_some(), "{operator:?}");
    }
}

#[test]
fn spans() {
    let text = " find('ü') | stats:sum() + x";
    let text = text.split(" + ").next().unwrap();
    let expr = expr_of(parse(text).unwrap());
    let span = |span: super::super::super::error::SourceSpan| &text[span.start..span.end];
    assert_eq!(span(expr.span), "find('ü') | stats:sum()");
    let CaqlExprKind::Call(call) = &expr.kind else { panic!("a call") };
    assert_eq!(span(call.name_span), "stats:sum");
    assert_eq!(span(call.inputs[0].span), "find('ü')");
    let text = "not (a() + -5m) ";
    let expr = expr_of(parse(text).unwrap());
    assert_eq!(&text[expr.span.start..expr.span.end], "not (a() + -5m)");
    let CaqlExprKind::Operation { operands, .. } = &expr.kind else { panic!("an operation") };
    assert_eq!(&text[operands[0].span.start..operands[0].span.end], "(a() + -5m)");
}

// Arguments.

/// Argument of a call after binding.
#[track_caller]
fn value(text: &str, name: &str) -> Option<ArgumentValue> {
    let bound =
        parse_and_bind(text).unwrap_or_else(|error| panic!("{}", error.format_with_source(text)));
    match bound.bound_kind {
        BoundKind::Call { arguments, .. } => arguments.get(name).cloned(),
        _ => panic!("a call"),
    }
}

#[track_caller]
fn check_value(text: &str, name: &str, expected: &str) {
    let found = match value(text, name) {
        None => "none".to_owned(),
        Some(ArgumentValue::Number(number)) => number.to_string(),
        Some(ArgumentValue::Duration(ns)) => Literal::Duration(ns).to_string(),
        Some(ArgumentValue::Text(text)) => text,
        Some(ArgumentValue::Selector(selector)) => selector.to_string(),
        Some(ArgumentValue::Regex(regex)) => regex.to_string(),
        Some(ArgumentValue::Format(format)) => format!("{format:?}"),
    };
    assert_eq!(found, expected, "{text}");
}

#[test]
fn defaults_and_positions() {
    check_value("find('x')", "limit", "1000");
    check_value("find('x', limit=3000)", "limit", "3000");
    check_value("find('x')", "tag_query", "none");
    check_value("find('x', start_time_offset=-1h)", "start_time_offset", "-1h");
    check_value("1 | window:sum(5m)", "skip", "5m");
    check_value("1 | window:sum(5m)", "align", "start");
    check_value("1 | rolling:sum(5m)", "skip", "1m");
    check_value("1 | rolling:sum(5m)", "align", "end");
    check_value("1 | window:sum(5m, skip=1m)", "skip", "1m");
    check_value("1 | window:sum(5m, offset='US/Eastern')", "offset", "US/Eastern");
    check_value("1 | window:sum(5m, offset=2)", "offset", "2m");
    check_value("1 | window:sum(5m)", "period", "1m");
    check_value("1 | window:sum(5m, period=VIEW_RANGE)", "period", "1h");
    check_value("1 | window:sum(VIEW_RANGE)", "window_duration", "1h");
    check_value("1 | fill(VIEW_RANGE_SECONDS)", "value", "3600");
    check_value("1 | fill(VIEW_PERIOD_MINUTES)", "value", "1");
    check_value("1 | forecasting:slope(30, 10)", "model_duration", "10m");
    check_value("1 | forecasting:slope(30m, model_duration=3m)", "model_duration", "3m");
    check_value("1 | forecasting:holt_winters(0.1, 0.2, 1)", "period", "1d");
}

#[test]
fn names_and_searches() {
    check_value("find('x.y z')", "name", "and(__name:\"x.y z\")");
    check_value("find('r?q')", "name", "and(__name:r?q)");
    check_value("find('/^re/')", "name", "and(__name:/^re/)");
    check_value("find('/api/*')", "name", "and(__name:\"/api/*\")");
    check_value("find('and(__name:req,host)')", "name", "and(__name:req,host:*)");
    check_value("find('and(a', 'and(b)')", "name", "and(__name:\"and(a\")");
    check_value(
        "find('x', ' and(dc:u*, or(host:a,host:/^c$/),not(dc:eu))')",
        "tag_query",
        "and(dc:u*,or(host:a,host:/^c$/),not(dc:eu))",
    );
}

#[test]
fn kinds() {
    let kind = |text: &str| parse_and_bind(text).unwrap().stream_kind;
    assert_eq!(kind("find('x') + 1"), StreamKind::Numbers);
    assert_eq!(kind("find:histogram('x') | delay(1m)"), StreamKind::Histograms);
    assert_eq!(kind("pass{find:histogram('x'), 1}"), StreamKind::Mixed);
    assert_eq!(kind("histogram{1, 2} | histogram:count()"), StreamKind::Numbers);
    assert_eq!(
        kind("1 | window:histogram(5m) | vector('%n') | vector:unpack()"),
        StreamKind::Histograms
    );
    let constant = |text: &str| match parse_and_bind(text).unwrap().bound_kind {
        BoundKind::Constant(number) => number,
        _ => panic!("a constant"),
    };
    assert_eq!(constant("NULL"), None);
    assert_eq!(constant("VIEW_RANGE"), Some(HOUR_NS as f64 / 60e9));
    assert_eq!(constant("90s"), Some(1.5));
}
