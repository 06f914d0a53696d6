//! No template panics, hangs, or takes more memory than its limits allow.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rules::template::{
    AlertTemplateData, TemplateContext, TemplateQuery, TemplateSample, TemplateValue, TextTemplate,
    expand_alert_text,
};

struct TwoSamples;

impl TemplateQuery for TwoSamples {
    fn query(&self, expression: &str, _: i64) -> Result<Vec<TemplateSample>, String> {
        let labels = BTreeMap::from([("job".to_owned(), expression.to_owned())]);
        let sample = TemplateSample { labels, value: TemplateValue::Float(0.5) };
        Ok(vec![sample.clone(), sample])
    }
}

/// Limit of the output, 1 MiB, and room for the message of an error, which quotes the template.
const TEXT_SIZE_MAX: usize = 1 << 20;

fn expand(text: &str) -> String {
    let labels = BTreeMap::from([("job".to_owned(), "node".to_owned())]);
    let data = AlertTemplateData {
        labels: &labels,
        value: TemplateValue::Float(12.5),
        external_labels: &labels,
        external_url: "http://localhost/",
    };
    let context =
        TemplateContext { query: &TwoSamples, time_ns: 0, external_url: "http://localhost/" };
    expand_alert_text("A", text, &data, &context).text
}

#[track_caller]
fn check_limit(text: &str, message: &str) {
    let expanded = expand(text);
    let end = expanded.char_indices().rev().nth(300).map_or(0, |(at, _)| at);
    assert!(expanded.contains(message), "{message}: ...{}", &expanded[end..]);
}

#[test]
fn a_loop_without_end_stops_at_the_step_limit() {
    check_limit("{{ range 9000000000000000000 }}{{ end }}", "step limit (1000000) reached");
    check_limit(
        "{{ range 100000 }}{{ range 100000 }}{{ $x := . }}{{ end }}{{ end }}",
        "step limit (1000000) reached",
    );
}

#[test]
fn output_stops_at_its_size_limit() {
    let text = format!("{{{{ range 100000 }}}}{}{{{{ end }}}}", "x".repeat(1000));
    check_limit(&text, "output size limit (1024 KiB) reached");
    check_limit("{{ printf \"%1000000d%1000000d\" 1 2 }}", "text size limit (1024 KiB) reached");
}

#[test]
fn a_text_that_doubles_stops_at_the_size_limit() {
    let text = "{{ $x := \"ab\" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}{{ len $x }}";
    check_limit(text, "text size limit (1024 KiB) reached");
    let text = "{{ $x := \"ab\" }}{{ range 50 }}{{ $x = reReplaceAll \"\" $x $x }}{{ end }}";
    check_limit(text, "text size limit (1024 KiB) reached");
    let text = "{{ $x := printf \"%1000000d\" 1 }}{{ range 1000 }}{{ $y := toUpper $x }}{{ end }}";
    check_limit(text, "limit of bytes from functions (64 MiB) reached");
    let text = "{{ $x := printf \"%1000000d\" 1 }}{{ range 1000 }}{{ $y := html $x }}{{ end }}";
    check_limit(text, "limit of bytes from functions (64 MiB) reached");
}

#[test]
fn a_value_that_doubles_stops_at_the_size_limit() {
    let text = "{{ $x := args 1 }}{{ range 30 }}{{ $x = args $x $x }}{{ end }}{{ $x }}";
    check_limit(text, "text size limit (1024 KiB) reached");
    let text = "{{ $x := args 1 }}{{ range 100000 }}{{ $x = args $x }}{{ end }}{{ $x }}";
    check_limit(text, "nesting limit of values (32) reached");
}

#[test]
fn a_template_that_calls_itself_stops_at_the_nesting_limit() {
    check_limit(
        "{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" }}",
        "nesting limit (150) reached",
    );
    check_limit(
        "{{ define \"a\" }}{{ tmpl \"a\" . }}{{ end }}{{ template \"a\" }}",
        "nesting limit (150) reached",
    );
    let nested = format!("{}1{}", "(print ".repeat(60), ")".repeat(60));
    let body = format!("{{{{ print {nested} }}}}{{{{ template \"a\" {nested} }}}}");
    check_limit(
        &format!("{{{{ define \"a\" }}}}{body}{{{{ end }}}}{{{{ template \"a\" }}}}"),
        "nesting limit (150) reached",
    );
}

#[test]
fn deep_source_stops_at_the_nesting_limit() {
    check_limit(
        &format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000)),
        "nesting limit (64) reached",
    );
    check_limit(&"{{ if 1 }}".repeat(10_000), "nesting limit (64) reached");
    check_limit(&"{{ block \"a\" . }}".repeat(10_000), "nesting limit (64) reached");
}

#[test]
fn a_chain_of_else_if_is_not_nested() {
    let branches = "{{ else if 0 }}b".repeat(1000);
    assert_eq!(expand(&format!("{{{{ if 0 }}}}a{branches}{{{{ else }}}}c{{{{ end }}}}")), "c");
}

#[test]
fn queries_and_patterns_stop_at_their_limits() {
    check_limit("{{ range 1000 }}{{ $x := query \"a\" }}{{ end }}", "query limit (100) reached");
    check_limit(
        "{{ range 1000 }}{{ $x := match (printf \"a%d\" .) \"a\" }}{{ end }}",
        "step limit (1000000) reached",
    );
    assert_eq!(
        expand("{{ range 1000 }}{{ $x := match \"^(a|b){1,100}$\" \"a\" }}{{ end }}ok"),
        "ok"
    );
}

#[test]
fn a_large_precision_or_width_is_no_panic() {
    for verb in ["f", "e", "g", "#g", "x", "v", "d", "s", "q"] {
        let (flag, verb) = verb.split_at(verb.len() - 1);
        for (value, length) in [("1.5", 70_000), ("255", 70_000), ("\"ab\"", 70_000), ("nil", 1)] {
            expand(&format!("{{{{ printf \"%{flag}.{length}{verb}\" {value} }}}}"));
            expand(&format!("{{{{ printf \"%{flag}{length}{verb}\" {value} }}}}"));
        }
    }
    let zeros = |text: &str| expand(text).matches('0').count();
    assert_eq!(zeros("{{ printf \"%.70000f\" 1.5 }}"), 69_999);
    assert_eq!(zeros("{{ printf \"%.70000e\" 1.5 }}"), 69_999 + 2);
    assert_eq!(zeros("{{ printf \"%.70000d\" 1 }}"), 69_999);
    assert_eq!(zeros("{{ printf \"%.70000U\" 65 }}"), 69_998);
    assert_eq!(expand("{{ printf \"%.70000g\" 1.5 }}"), "1.5");
    assert_eq!(zeros("{{ printf \"%.70000x\" 1.5 }}"), 70_002);
}

#[test]
fn a_large_source_is_refused() {
    let text = "x".repeat((1 << 20) + 1);
    let error = TextTemplate::parse("a", &text).expect_err("too large").to_string();
    assert_eq!(error, "error parsing template a: template: a: size limit (1024 KiB) reached");
}

/// Operands: constants, data, variables, parentheses, calls with wrong and right arguments.
fn operand() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("1".to_owned()),
        Just("-2.5e3".to_owned()),
        Just("\"a.b:9\"".to_owned()),
        Just("`%*[2]d%-08.3q`".to_owned()),
        "\"%[-+# 0]{0,2}[0-9]{0,6}(\\.[0-9]{0,6})?[vTtbcdoOqxXUeEfFgGsp%]\"",
        Just("'x'".to_owned()),
        Just("true".to_owned()),
        Just("nil".to_owned()),
        Just(".".to_owned()),
        Just("$".to_owned()),
        Just("$labels.job".to_owned()),
        Just("$value".to_owned()),
        Just("$x".to_owned()),
        Just(".Labels.missing.y".to_owned()),
        Just("(query \"q\")".to_owned()),
        Just("(first (query \"q\")).Value".to_owned()),
        Just("(toTime 1e9)".to_owned()),
        Just("9223372036854775807".to_owned()),
        "\"[a-z%0-9$().*+?|{}\\[\\]é-]{0,8}\"",
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        (function_name(), prop::collection::vec(inner, 0..4))
            .prop_map(|(name, operands)| format!("({name} {})", operands.join(" ")))
    })
}

fn function_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "and",
        "or",
        "not",
        "call",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "len",
        "index",
        "slice",
        "print",
        "println",
        "printf",
        "html",
        "js",
        "urlquery",
        "query",
        "first",
        "label",
        "value",
        "strvalue",
        "args",
        "tmpl",
        "sortByLabel",
        "reReplaceAll",
        "match",
        "title",
        "toUpper",
        "toLower",
        "stripPort",
        "stripDomain",
        "humanize",
        "humanize1024",
        "humanizePercentage",
        "humanizeDuration",
        "humanizeTimestamp",
        "toTime",
        "toDuration",
        "now",
        "parseDuration",
        "urlQueryEscape",
        "safeHtml",
        "graphLink",
        "tableLink",
        "pathPrefix",
        "externalURL",
    ])
}

fn template() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[ a-z\\n{}é]{0,6}",
        operand().prop_map(|operand| format!("{{{{- {operand} -}}}}")),
        operand().prop_map(|operand| format!("{{{{ $x = {operand} | printf \"%v\" }}}}")),
        operand().prop_map(|operand| format!("{{{{ template \"t\" {operand} }}}}")),
        Just("{{ break }}".to_owned()),
        Just("{{ continue }}".to_owned()),
        Just("{{ $x = print $x $x }}".to_owned()),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let block = prop::sample::select(vec!["if", "with", "range", "range $k, $v :="]);
        (block, operand(), prop::collection::vec(inner, 0..4), any::<bool>()).prop_map(
            |(block, operand, parts, has_else)| {
                let middle = if has_else { "{{ else }}" } else { "" };
                format!("{{{{ {block} {operand} }}}}{}{middle}{{{{ end }}}}", parts.join(""))
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_template_panics_or_exceeds_the_output_limit(body in template()) {
        let definition = format!("{{{{ define \"t\" }}}}{{{{ . }}}}{body}{{{{ end }}}}");
        let text = format!("{{{{ $x := 1 }}}}{definition}{body}");
        prop_assert!(expand(&text).len() <= TEXT_SIZE_MAX + 4 * text.len() + 1000);
    }

    #[test]
    fn no_text_panics(text in "[-{}().|$ a-z0-9\"'`%é:=,/*\\n\\\\]{0,60}") {
        prop_assert!(expand(&text).len() <= TEXT_SIZE_MAX);
        let action = format!("{{{{ {text} }}}}");
        prop_assert!(expand(&action).len() <= TEXT_SIZE_MAX);
    }
}
