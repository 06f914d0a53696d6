//! Templates give the output and the errors of Prometheus, byte for byte.
//!
//! `testdata/templates/golden.json` was made by Prometheus' own code (`generate.go` beside it).

use std::collections::BTreeMap;

use rules::template::{
    AlertTemplateData, TemplateContext, TemplateError, TemplateQuery, TemplateSample,
    TemplateValue, TextTemplate, expand_alert_text,
};

/// 2026-03-14 15:09:26.535 UTC.
const TIME_NS: i64 = 1_773_500_966_535_000_000;
const URL: &str = "https://prom.example.org/base%20path";

/// Differences from Go that `docs/templates.md` lists.
const DIFFERENCES: &[&str] = &["{{ template \"__alert_Slow\" }}"];

/// Answers of `generate.go`.
struct Vectors;

impl TemplateQuery for Vectors {
    fn query(&self, expression: &str, time_ns: i64) -> Result<Vec<TemplateSample>, String> {
        let sample = |labels: &[(&str, &str)], value| TemplateSample {
            labels: text_map(labels),
            value: TemplateValue::Float(value),
        };
        match expression {
            "empty" => Ok(Vec::new()),
            "one" => Ok(vec![sample(&[("instance", "a:9090")], 42.5)]),
            "three" => Ok(vec![
                sample(&[("__name__", "up"), ("instance", "c"), ("job", "x")], 3.0),
                sample(&[("__name__", "up"), ("instance", "a"), ("job", "y")], 1e9),
                sample(&[("__name__", "up"), ("instance", "b"), ("__value__", "text")], 0.25),
            ]),
            "time" => Ok(vec![sample(&[], (time_ns / 1_000_000_000) as f64)]),
            _ => Err("parse error: unknown expression".to_owned()),
        }
    }
}

fn text_map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn expand(text: &str) -> Result<String, TemplateError> {
    let labels = text_map(&[
        ("alertname", "Slow"),
        ("instance", "db-1.example.org:9100"),
        ("job", "node"),
        ("mode", ""),
        ("html", r#"<a href="x">O'Neil & co</a>"#),
        ("path", "/var/lib/ünïcode"),
    ]);
    let data = AlertTemplateData {
        labels: &labels,
        value: TemplateValue::Float(1234.5678),
        external_labels: &text_map(&[("cluster", "eu-1")]),
        external_url: URL,
    };
    let context = TemplateContext { query: &Vectors, time_ns: TIME_NS, external_url: URL };
    let expanded = expand_alert_text("Slow", text, &data, &context);
    match expanded.error {
        None => Ok(expanded.text),
        Some(error) => {
            assert_eq!(expanded.text, format!("<error expanding template: {error}>"));
            Err(error)
        }
    }
}

#[test]
fn templates_give_what_prometheus_gives() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/templates/golden.json");
    let golden = std::fs::read_to_string(path).expect("golden.json");
    let golden: serde_json::Value = serde_json::from_str(&golden).expect("golden.json is JSON");
    let cases = golden.as_array().expect("an array");
    assert!(cases.len() > 600, "only {} cases", cases.len());
    let mut failures = Vec::new();
    for case in cases {
        let text = |key: &str| case[key].as_str().unwrap_or_default();
        let template = text("template");
        let expected = match case["error"].is_string() {
            true => Err(text("error").to_owned()),
            false => Ok(text("output").to_owned()),
        };
        let found = expand(template).map_err(|error| error.to_string());
        let is_difference = DIFFERENCES.contains(&template);
        if (found == expected) == is_difference {
            failures.push(format!("{template:?}\n  Go:    {expected:?}\n  found: {found:?}"));
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_histogram_prints_and_has_fields_but_is_no_number() {
    let record = rules::template::TemplateRecord::new(
        "*histogram.FloatHistogram",
        vec![("Count".to_owned(), TemplateValue::Float(7.0))],
        Some("{count:7, sum:1}".to_owned()),
    );
    let value = TemplateValue::Record(std::sync::Arc::new(record));
    let labels = BTreeMap::new();
    let data =
        AlertTemplateData { labels: &labels, value, external_labels: &labels, external_url: URL };
    let context = TemplateContext { query: &Vectors, time_ns: TIME_NS, external_url: URL };
    let expanded = |text: &str| expand_alert_text("A", text, &data, &context).text;
    assert_eq!(expanded("{{ $value }} {{ $value.Count }}"), "{count:7, sum:1} 7");
    assert!(
        expanded("{{ humanize $value }}")
            .contains("can't convert *histogram.FloatHistogram to float"),
    );
}

#[test]
fn examples_in_the_documentation_give_the_output_beside_them() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/templates.md");
    let page = std::fs::read_to_string(path).expect("docs/templates.md");
    // Those of messages have other data.
    let page = page.split("\n## Templates of messages").next().unwrap_or_default();
    let mut count = 0;
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let code = |cell: &str| {
            cell.trim_matches(['|', ' ']).trim_matches('`').replace("\\|", "|").to_owned()
        };
        // The other tables have two columns.
        let [name, _, example, output] = cells[..] else { continue };
        let example = code(example);
        assert!(example.contains(&code(name)), "{line}");
        assert_eq!(expand(&example).expect(line), code(output), "{line}");
        count += 1;
    }
    assert_eq!(count, 48, "functions in docs/templates.md");
}

#[test]
fn a_message_template_reads_data_of_the_caller() {
    let alert = |name: &str, start_ns: i64| {
        let fields = vec![
            ("Labels".to_owned(), TemplateValue::text_map(&text_map(&[("alertname", name)]))),
            ("StartsAt".to_owned(), TemplateValue::time(start_ns)),
        ];
        let record = rules::template::TemplateRecord::new("template.Alert", fields, None);
        TemplateValue::Record(std::sync::Arc::new(record))
    };
    let alerts = TemplateValue::list(vec![alert("Slow", 0), alert("Down", TIME_NS)]);
    let fields = vec![("Alerts".to_owned(), alerts)];
    let record = rules::template::TemplateRecord::new("template.Data", fields, None);
    let data = TemplateValue::Record(std::sync::Arc::new(record));
    let text = "{{ len .Alerts }}:{{ range .Alerts }} {{ .Labels.alertname }} since \
                {{ .StartsAt.Format \"2006-01-02\" }}{{ end }}";
    let template = TextTemplate::parse("message", text).expect("a template");
    let context = TemplateContext { query: &Vectors, time_ns: TIME_NS, external_url: URL };
    let message = template.expand(&data, &context).expect("a message");
    assert_eq!(message, "2: Slow since 1970-01-01 Down since 2026-03-14");
}
