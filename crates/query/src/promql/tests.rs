//! Tests of parser, type checker and formatter, including the round trip through text.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::{ExprKind, Options, VectorSelector, parse, parse_series_labels};
use crate::error::Error;

/// Formatted text of a parsed expression.
#[track_caller]
fn check(text: &str, shown: &str) {
    let options = Options::all();
    let expr =
        parse(text, &options).unwrap_or_else(|error| panic!("{}", error.format_with_source(text)));
    assert_eq!(expr.to_string(), shown);
    check_reads_back(text, &options);
}

/// The formatted text equals the input.
#[track_caller]
fn check_unchanged(text: &str) {
    check(text, text);
}

/// The formatted text parses to the same tree.
#[track_caller]
fn check_reads_back(text: &str, options: &Options) {
    let Ok(expr) = parse(text, options) else { return };
    let shown = expr.to_string();
    let again = parse(&shown, options)
        .unwrap_or_else(|error| panic!("{}", error.format_with_source(&shown)));
    // Compared as text, because NaN is not equal to itself.
    let (expr, again) = (expr.without_spans(), again.without_spans());
    assert_eq!(format!("{again:?}"), format!("{expr:?}"), "{text} is shown as {shown}");
}

/// Error of an expression with its span, with all features enabled.
#[track_caller]
fn check_fails(text: &str, expected: Expect) {
    check_fails_with(text, &Options::all(), expected);
}

#[track_caller]
fn check_fails_with(text: &str, options: &Options, expected: Expect) {
    let error = parse(text, options).expect_err("the expression is refused");
    let span = error.span().map(|span| format!("{span}: ")).unwrap_or_default();
    expected.assert_eq(&format!("{span}{error}"));
}

#[track_caller]
fn selector(text: &str) -> VectorSelector {
    match parse(text, &Options::all()).map(|expr| expr.kind) {
        Ok(ExprKind::Selector(selector)) => selector,
        other => panic!("{text} is no selector: {other:?}"),
    }
}

/// Label matchers of a store selector.
#[track_caller]
fn check_picks(text: &str, matching: &[&str], others: &[&str]) {
    let selector = super::selector_of(&selector(text)).expect("a store can be asked for it");
    let series = |host: &str| {
        let series = model::Series::new("m", model::SeriesKind::Gauge).with_label("host", host);
        series.validate().expect("a good series")
    };
    for host in matching {
        assert!(selector.matches(&series(host)), "{text} does not pick {host:?}");
    }
    for host in others {
        assert!(!selector.matches(&series(host)), "{text} picks {host:?}");
    }
}

#[test]
fn store_regexes_are_translated() {
    check_picks(r#"{host=~"\\w+"}"#, &["e1"], &["é1"]);
    check_picks(r#"m{host!~"\\w+"}"#, &["é1"], &["e1"]);
    check_picks(r#"{host=~"\\Qa.b\\E"}"#, &["a.b"], &["axb"]);
    check_picks(r#"{host=~"a{"}"#, &["a{"], &["a"]);
    check_picks(r#"{host=~"[[a/]+\\/"}"#, &["[a//"], &["a"]);
    check_picks(r#"m{host=~".*"}"#, &["a", "a\nb"], &[]);
    check_picks(r#"{host=~"a.b|c"}"#, &["a\nb", "c"], &["ab", "ca.b"]);
}

#[test]
fn an_earlier_name_of_a_kind_is_rejected_with_the_new_name() {
    let check = |text: &str, expected: &str| {
        let error = super::selector_of(&selector(text)).expect_err("an earlier name");
        assert_eq!(error.to_string(), expected, "{text}");
    };
    let renamed = "kind \"histogram\" has a new name: use __kind=\"delta-histogram\"";
    check(r#"m{__kind="histogram"}"#, renamed);
    check(r#"m{__kind!~"histogram|count"}"#, renamed);
    check_picks(r#"m{__kind=~"counter|gauge"}"#, &["a"], &[]);
}

#[test]
fn literals() {
    check("1_000", "1000");
    check("0x1F + 017 + .5 + 5. + 1e3", "31 + 15 + 0.5 + 5 + 1000");
    check("- -1 + +Inf", "1 + Inf");
    check("-nan", "NaN");
    check("1h30m", "1h30m");
    check("-5m", "-5m");
    check("-0w", "-0s");
    check(r#"'it\'s' # a comment"#, r#""it's""#);
    check("`a\\b`", r#""a\\b""#);
    check(r#""\u00e4\x41\101""#, r#""äAA""#);
}

#[test]
fn selectors() {
    check_unchanged("foo");
    check_unchanged("foo:bar");
    check("foo{}", "foo");
    check(r#"foo { a = "b" , c!='d',e=~`f`,g!~"h",}"#, r#"foo{a="b",c!="d",e=~"f",g!~"h"}"#);
    check(r#"{"foo.bar", 'a b'="c"}"#, r#"{__name__="foo.bar","a b"="c"}"#);
    check("{by=\"x\", sum='y'}", r#"{by="x",sum="y"}"#);
    for word in ["sum", "by", "and", "offset", "without", "start", "anchored", "min_of", "fill"] {
        check_unchanged(word);
        check_unchanged(&format!("{word} + {word}"));
    }
    let selector = selector(r#"foo{a="b"}"#);
    assert_eq!(selector.name, "foo");
    assert_eq!(selector.matchers.last().map(|m| m.to_string()).unwrap(), r#"__name__="foo""#);
}

#[test]
fn ranges_offsets_and_times() {
    check_unchanged("foo[5m] offset 1w");
    check_unchanged("foo[5m] anchored");
    check_unchanged("foo smoothed");
    check_unchanged("foo offset -1m");
    check_unchanged("rate(foo[5m] smoothed @ start() offset 1h)");
    check_unchanged("sum(foo)[1h:1m] @ end() offset 5m");
    check("foo[90]", "foo[1m30s]");
    check("foo offset 1h @ 1.5", "foo @ 1.500 offset 1h");
    check("foo @ -5m", "foo @ -300.000");
    check("foo[0.0005]", "foo[0.0005]");
    check("foo[5m:]", "foo[5m:]");
    check("max_over_time(rate(foo[5m])[1h:step()])", "max_over_time(rate(foo[5m])[1h:step()])");
    check_unchanged("-foo offset 5m ^ 2");
}

#[test]
fn durations_are_trees() {
    check_unchanged("foo[(1 + 2) * step() - range() / 2 % 3]");
    check_unchanged("foo[-min_of(step(), max_of(1, 2)) ^ 2]");
    // After a number, the offset ends; after parentheses it does not.
    check("foo offset 1m + 2", "foo offset 1m + 2");
    assert!(matches!(
        parse("foo offset 1m + 2", &Options::all()).unwrap().kind,
        ExprKind::Binary { .. }
    ));
    assert!(matches!(
        parse("foo offset (60) + 2", &Options::all()).unwrap().kind,
        ExprKind::Selector(_)
    ));
    assert!(matches!(
        parse("foo offset -(60) + 2", &Options::all()).unwrap().kind,
        ExprKind::Binary { .. }
    ));
    check("foo offset - -1 + 2", "foo offset ++1 + 2");
    check("foo offset (step()) ^ 2", "foo offset (step()) ^ 2");
    check("foo offset (step())", "foo offset +(step())");
    check("foo offset -+-step()", "foo offset +--step()");
}

#[test]
fn operators_bind() {
    check_unchanged("a or b and c unless d == e + f * g ^ -h ^ i");
    let right = |text: &str| match parse(text, &Options::all()).unwrap().kind {
        ExprKind::Binary { right, .. } => right.to_string(),
        ExprKind::Unary { expr, .. } => expr.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(right("a - b - c"), "c");
    assert_eq!(right("a ^ b ^ c"), "b ^ c");
    assert_eq!(right("-a ^ b"), "a ^ b");
    assert_eq!(right("-a * b"), "b");
    assert_eq!(right("a ^ -b * c"), "c");
    assert_eq!(right("a + b </ c"), "c");
    assert_eq!(right("a atan2 b % c"), "c");
}

#[test]
fn matching() {
    check_unchanged("a == bool b");
    check_unchanged("a + ignoring (x, \"y z\") b");
    check_unchanged("a * on (x) group_left (y) b");
    check_unchanged("a * on () group_right () b");
    check("a * on(x) group_left b", "a * on (x) group_left () b");
    check("a + on(a) c", "a + on (a) c");
    check("a + ignoring() c", "a + c");
    check_unchanged("a + fill (0) b");
    check("a + fill_right(-1) fill_left(5m) b", "a + fill_left (300) fill_right (-1) b");
    check("a + fill_left(2) fill_right(2) b", "a + fill (2) b");
    check("a and on(\"without\", \"inf\", by) b", "a and on (\"without\", \"inf\", by) b");
}

#[test]
fn aggregations_and_calls() {
    check_unchanged("sum(a)");
    check("SUM(a) by (x,)", "sum by (x) (a)");
    check("sum without() (a)", "sum without () (a)");
    check("sum by () (a)", "sum(a)");
    check_unchanged("topk by (x) (3, a)");
    check_unchanged("count_values(\"v\", a)");
    check_unchanged("limit_ratio(-0.5, a)");
    check_unchanged("label_replace(a, \"b\", \"c\", \"d\", \"e\")");
    check_unchanged("info(a, {data=~\".+\"})");
    check("info(a, {})", "info(a, {})");
    check_unchanged("time() + step() + range() + min_of(1, 2) + start() + end()");
    check_unchanged("histogram_quantiles(a, \"q\", 0.5, 0.9)");
}

#[test]
fn unexpected_words_are_rejected() {
    check_fails("", expect!["0..0: no expression found in input"]);
    check_fails("1 +", expect!["3..3: unexpected end of input"]);
    check_fails("sum(a b)", expect![[r#"6..7: unexpected identifier "b" in aggregation"#]]);
    check_fails("rate(a b)", expect![[r#"7..8: unexpected identifier "b""#]]);
    check_fails(
        "a + on (b c) d",
        expect![[r#"10..11: unexpected identifier "c" in grouping opts, expected "," or ")""#]],
    );
    check_fails(
        "a{b}",
        expect![[r#"3..4: unexpected "}" in label matching, expected label matching operator"#]],
    );
    check_fails(
        "a[]",
        expect![[
            r#"2..3: unexpected "]" in subquery or range selector, expected number, duration, step(), or range()"#
        ]],
    );
    check_fails(
        "a offset b",
        expect![[
            r#"9..10: unexpected identifier "b" in offset, expected number, duration, step(), or range()"#
        ]],
    );
    check_fails("a @ b", expect![[r#"4..5: unexpected identifier "b" in @, expected timestamp"#]]);
    check_fails("sum(a,)", expect!["5..6: trailing commas not allowed in function call args"]);
    check_fails("on", expect!["0..2: unexpected <on>"]);
    check_fails("foo \"a long text\"", expect![[r#"4..17: unexpected string "\"a long te"..."#]]);
}

#[test]
fn unexpected_characters_are_rejected() {
    check_fails("(a", expect!["2..2: unclosed left parenthesis"]);
    check_fails("a)", expect!["2..2: unexpected right parenthesis ')'"]);
    check_fails("a[5m", expect!["4..4: unclosed left bracket"]);
    check_fails("a{", expect!["2..2: unexpected end of input inside braces"]);
    check_fails("a ? b", expect!["2..5: unexpected character: '?'"]);
    check_fails("'a", expect!["0..2: unterminated quoted string"]);
    check_fails(r#""\q""#, expect!["0..4: unknown escape sequence U+0071 'q'"]);
    check_fails("1.2.3", expect![[r#"0..5: bad number or duration syntax: "1.2.""#]]);
    check_fails("a[5m1h]", expect![[r#"2..6: not a valid duration string: "5m1h""#]]);
    check_fails("a[b]", expect!["2..4: unexpected character in duration expression: 'b'"]);
}

#[test]
fn type_mismatches_are_rejected() {
    check_fails(
        "rate(a)",
        expect![[
            r#"5..6: expected type range vector in call to function "rate", got instant vector"#
        ]],
    );
    check_fails(
        "floor(a, b)",
        expect![[r#"0..11: expected 1 argument(s) in call to "floor", got 2"#]],
    );
    check_fails(
        "hour(a, b)",
        expect![[r#"0..10: expected at most 1 argument(s) in call to "hour", got 2"#]],
    );
    check_fails(
        "rates(a)",
        expect![[r#"0..5: unknown function with name "rates"; did you mean "rate"?"#]],
    );
    check_fails("anything(a)", expect![[r#"0..8: unknown function with name "anything""#]]);
    check_fails("1 == 1", expect!["2..3: comparisons between scalars must use BOOL modifier"]);
    check_fails(
        "a + bool b",
        expect!["2..7: bool modifier can only be used on comparison operators"],
    );
    check_fails(
        "1 and a",
        expect![[r#"0..7: set operator "and" not allowed in binary scalar expression"#]],
    );
    check_fails(
        "a or on(x) group_left b",
        expect![[r#"0..23: no grouping allowed for "or" operation"#]],
    );
    check_fails(
        "a + on(x) 1",
        expect!["0..11: vector matching only allowed between instant vectors"],
    );
    check_fails(
        "a and fill(1) b",
        expect!["0..15: filling in missing series not allowed for set operators"],
    );
    check_fails(
        "-a[5m]",
        expect![[
            r#"0..6: unary expression only allowed on expressions of type scalar or instant vector, got "range vector""#
        ]],
    );
    check_fails(
        "a[5m][5m:]",
        expect!["0..10: subquery is only allowed on instant vector, got matrix instead"],
    );
    check_fails(
        "{a=~\".*\"}",
        expect!["0..9: vector selector must contain at least one non-empty matcher"],
    );
    check_fails(
        "a{__name__=\"b\"}",
        expect![[r#"0..15: metric name must not be set twice: "a" or "b""#]],
    );
    check_fails("a{b=~\"(\"}", expect!["2..8: error parsing regexp: missing closing ): `(`"]);
    check_fails(
        "topk(a, b)",
        expect!["5..6: expected type scalar in aggregation parameter, got instant vector"],
    );
    check_fails(
        "info(a, b)",
        expect!["8..9: expected label selectors only, got vector selector instead"],
    );
}

#[test]
fn misplaced_suffixes_are_rejected() {
    check_fails("a offset 1 offset 2", expect!["0..10: offset may not be set multiple times"]);
    check_fails("a @ 1 @ 2", expect!["0..5: @ <timestamp> may not be set multiple times"]);
    check_fails("a @ inf", expect!["0..1: timestamp out of bounds for @ modifier: +Inf"]);
    check_fails("a @ 1 [5m]", expect!["6..10: no @ modifiers allowed before range"]);
    check_fails("(a)[5m]", expect!["3..7: ranges only allowed for vector selectors"]);
    check_fails("a[0]", expect!["2..3: duration must be greater than 0"]);
    check_fails("a[1 / 0]", expect!["4..5: division by zero"]);
    check_fails("a offset 1e10", expect!["9..13: duration out of range"]);
    check_fails(
        "1 offset 5m",
        expect![
            "0..1: offset modifier must be preceded by an instant vector selector or range vector \
             selector or a subquery"
        ],
    );
    check_fails(
        "a anchored smoothed",
        expect!["0..1: anchored and smoothed modifiers cannot be used together"],
    );
}

#[test]
fn disabled_features_are_rejected() {
    let check = |text, expected| check_fails_with(text, &Options::default(), expected);
    check(
        "sort_by_label(a, \"b\")",
        expect![[
            r#"0..13: function "sort_by_label" is experimental; enable with --experimental (HTTP: experimental=true)"#
        ]],
    );
    check(
        "limitk(1, a)",
        expect![
            "0..12: limitk() is experimental; enable with --experimental (HTTP: experimental=true)"
        ],
    );
    check(
        "a[step()]",
        expect![
            "2..8: duration expressions are experimental; enable with \
             --experimental (HTTP: experimental=true)"
        ],
    );
    check(
        "a[5m] anchored",
        expect![
            "0..5: anchored modifier is experimental; enable with \
             --experimental (HTTP: experimental=true)"
        ],
    );
    check(
        "a + fill(1) b",
        expect![
            "0..13: fill modifiers are experimental; enable with \
             --experimental (HTTP: experimental=true)"
        ],
    );
    check_reads_back("foo offset +(5)", &Options::default());
}

#[test]
fn limits() {
    let too_much = |text: String, what: &str| match parse(&text, &Options::all()) {
        Err(Error::Limit { limit: found, .. }) => assert!(found.contains(what), "{found}"),
        other => panic!("{} bytes: {other:?}", text.len()),
    };
    too_much(" ".repeat(super::LENGTH_MAX + 1), "bytes of text");
    for opening in ["(", "-", "sum(", "2^", "abs(", "a[(", "a offset (", "a[-", "a[2^", "a[max_of("]
    {
        too_much(
            opening.repeat(200).replace("a[", "").replace("a offset ", ""),
            "nested expressions",
        );
    }
    too_much(format!("a[{}", "(".repeat(200)), "nested expressions");
    too_much(format!("a[{}", "-".repeat(200)), "nested expressions");
    too_much(format!("a[1{}]", "+1".repeat(200)), "nested expressions");
    too_much(format!("a{}", "+a".repeat(300)), "levels of operators");
    too_much(format!("a{}", "[5m:]".repeat(300)), "levels of operators");
    too_much(format!("a{{{}}}", "b=~\"c\",".repeat(200)), "regular expressions");
    check_reads_back(&format!("a{}", "+a".repeat(250)), &Options::all());
    // Would take a minute if every label were compared with every other.
    let (many, more) = ("a,".repeat(40_000), "b,".repeat(40_000));
    check_reads_back(&format!("a * on ({many}) group_left ({more}) b"), &Options::all());
    check_reads_back(&format!("{}a{}", "(".repeat(90), ")".repeat(90)), &Options::all());
}

#[test]
fn labels_of_series() {
    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)], rest: &str) {
        let (labels, found) = parse_series_labels(text).unwrap();
        let labels: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!((labels.as_slice(), found), (expected, rest));
    }
    check("a 1 _x3 {{sum:1}}", &[("__name__", "a")], " 1 _x3 {{sum:1}}");
    check("a{b=\"c\",} 1+1x3", &[("__name__", "a"), ("b", "c")], " 1+1x3");
    check("{'b c'=`d`, \"e\"} ", &[("__name__", "e"), ("b c", "d")], " ");
    check("{} 1", &[], " 1");
    check("sum", &[("__name__", "sum")], "");
    let fails = |text| parse_series_labels(text).unwrap_err().to_string();
    assert_eq!(fails("a{b}"), "unexpected \"}\" in label set, expected \"=\"");
    assert_eq!(fails("a{b=c}"), "unexpected identifier \"c\" in label set, expected string");
    assert_eq!(fails("1 2"), "unexpected number \"1\"");
    assert_eq!(fails(""), "unexpected end of input");
}

/// Fragments of valid and invalid expressions.
const PIECES: &[&str] = &[
    "a",
    "b:c",
    "(",
    ")",
    "[5m]",
    "[5m:1m]",
    "[",
    "]",
    "{",
    "}",
    "{a=\"b\"}",
    "{\"x y\"}",
    ",",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "==",
    "!=",
    ">",
    "<=",
    "</",
    ">/",
    "=",
    "=~",
    "@ 5",
    "@ start()",
    "offset 5m",
    "offset",
    "by (a)",
    "without (b)",
    "on (a)",
    "ignoring ()",
    "group_left (c)",
    "group_right",
    "bool",
    "fill (1)",
    "fill_left (2)",
    "fill_right (-3)",
    "sum",
    "topk",
    "rate",
    "info",
    "abs(",
    "step()",
    "range()",
    "min_of(",
    "anchored",
    "smoothed",
    "and",
    "or",
    "unless",
    "atan2",
    "inf",
    "nan",
    "1",
    "0x1f",
    "5m",
    ".5",
    "0.0005",
    "\"a\"",
    "'\\n'",
    "`c`",
    "# d\n",
];

proptest! {
    #[test]
    fn shown_reads_back(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12)) {
        for options in [Options::all(), Options::default()] {
            check_reads_back(&pieces.join(" "), &options);
            check_reads_back(&pieces.concat(), &options);
        }
    }

    #[test]
    fn grown_reads_back(text in any_expression()) {
        check_reads_back(&text, &Options::all());
    }

    #[test]
    fn random_text_does_not_panic(text in ".{0,64}") {
        check_reads_back(&text, &Options::all());
        let _ = parse_series_labels(&text);
    }
}

/// Mostly valid expressions.
fn any_expression() -> impl Strategy<Value = String> {
    let duration =
        prop::sample::select(&["5m", "0.0015", "90", "1y3ms"][..]).prop_map(str::to_owned);
    let duration = duration.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            Just("step()".to_owned()),
            inner.clone().prop_map(|a| format!("({a})")),
            inner.clone().prop_map(|a| format!("-{a}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("max_of({a},{b})")),
            (inner.clone(), prop::sample::select(&["+", "-", "*", "/", "%", "^"][..]), inner)
                .prop_map(|(a, op, b)| format!("{a}{op}{b}")),
        ]
    });
    let leaf = prop::sample::select(&["a", "1", "-Inf", "{b!=\"\"}", "sum", "time()"][..]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 3, move |inner| {
        let op = prop::sample::select(
            &["+", "-", "*", "^", "==bool", "and", "+on(a)group_left", "</"][..],
        );
        prop_oneof![
            inner.clone().prop_map(|a| format!("({a})")),
            inner.clone().prop_map(|a| format!("-{a}")),
            inner.clone().prop_map(|a| format!("sum by(\"inf\",x)({a})")),
            (inner.clone(), op, inner.clone()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
            (inner.clone(), duration.clone()).prop_map(|(a, d)| format!("{a} offset {d}")),
            (inner.clone(), duration.clone()).prop_map(|(a, d)| format!("rate({a}[{d}]@5)")),
            (inner, duration.clone()).prop_map(|(a, d)| format!("rate({a}[5m:{d}]smoothed)")),
        ]
    })
}
