//! Answers to the questions of a dashboard, and the file that records them.
//!
//! A file has a block for each question: its title, then one line for each series or item,
//! indented: labels, and the values with the seconds since the first scrape.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::grafana_dashboard::DashboardQuestion;
use super::scrape_page::START_SECONDS;

/// Relative tolerance: sums of floating-point numbers depend on their order.
const TOLERANCE: f64 = 1e-9;

/// Lines of an answer: labels, and values by seconds since the first scrape.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RecordedAnswer(Vec<AnswerLine>);

#[derive(Clone, Debug, PartialEq)]
struct AnswerLine {
    labels: String,
    values: Vec<(i64, String)>,
}

impl RecordedAnswer {
    /// Answer of either server. The order of an instant query whose outermost function sorts is
    /// kept.
    pub(super) fn from_response(question: &DashboardQuestion, body: &str) -> RecordedAnswer {
        let answer: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        assert_eq!(answer["status"], "success", "{}: {body}", question.title);
        let data = &answer["data"];
        let mut lines: Vec<AnswerLine> = match data["result"].as_array() {
            Some(_) if data["resultType"] == "scalar" => {
                let point = point(&data["result"]);
                vec![AnswerLine { labels: "scalar".to_owned(), values: vec![point] }]
            }
            Some(streams) => streams.iter().map(stream_line).collect(),
            None => {
                let items = data.as_array().expect("a list").iter();
                let is_listed = |item: &&Value| match (&question.prefix, item.as_str()) {
                    (Some(prefix), Some(name)) => name.starts_with(prefix),
                    _ => true,
                };
                let line = |item: &Value| AnswerLine { labels: sorted(item), values: vec![] };
                items.filter(is_listed).map(line).collect()
            }
        };
        if !question.title.starts_with("query sort") {
            lines.sort_by(|a, b| a.labels.cmp(&b.labels));
        }
        RecordedAnswer(lines)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn stream_line(stream: &Value) -> AnswerLine {
    let values = match stream["values"].as_array() {
        Some(points) => points.iter().map(point).collect(),
        None => vec![point(&stream["value"])],
    };
    AnswerLine { labels: sorted(&stream["metric"]), values }
}

/// JSON with keys in order.
fn sorted(value: &Value) -> String {
    let labels: Option<BTreeMap<&String, &Value>> =
        value.as_object().map(|object| object.iter().collect());
    labels.map_or_else(
        || value.to_string(),
        |labels| serde_json::to_string(&labels).expect("labels are JSON"),
    )
}

fn point(point: &Value) -> (i64, String) {
    let seconds = point[0].as_f64().expect("a time") as i64 - START_SECONDS;
    (seconds, point[1].as_str().expect("a number").to_owned())
}

/// How an answer differs from the expected one.
pub(super) fn difference(
    question: &DashboardQuestion,
    expected: &RecordedAnswer,
    found: &RecordedAnswer,
) -> Option<String> {
    let labels = |answer: &RecordedAnswer| -> Vec<String> {
        answer.0.iter().map(|line| line.labels.clone()).collect()
    };
    if labels(expected) != labels(found) {
        let (expected, found) = (labels(expected), labels(found));
        return Some(format!("    {found:?}\n    instead of {expected:?}\n    {}", question.path));
    }
    for (expected, found) in expected.0.iter().zip(&found.0) {
        let is_equal =
            expected.values.len() == found.values.len()
                && expected.values.iter().zip(&found.values).all(|(expected, found)| {
                    expected.0 == found.0 && is_near(&expected.1, &found.1)
                });
        if !is_equal {
            return Some(format!(
                "    {}: {:?}\n    instead of {:?}",
                found.labels, found.values, expected.values
            ));
        }
    }
    None
}

fn is_near(expected: &str, found: &str) -> bool {
    let (Ok(a), Ok(b)) = (expected.parse::<f64>(), found.parse::<f64>()) else { return false };
    a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= TOLERANCE * a.abs().min(b.abs())
}

/// Text of a file.
pub(super) fn write_all(answers: &BTreeMap<String, RecordedAnswer>) -> String {
    let mut text = String::new();
    for (title, answer) in answers {
        writeln!(text, "{title}").unwrap();
        for AnswerLine { labels, values } in &answer.0 {
            write!(text, "  {labels}").unwrap();
            for (seconds, value) in values {
                write!(text, "\t{seconds} {value}").unwrap();
            }
            text.push('\n');
        }
    }
    text
}

/// Answers of a file, by title.
pub(super) fn read_all(text: &str) -> BTreeMap<String, RecordedAnswer> {
    let mut answers = BTreeMap::<String, RecordedAnswer>::new();
    let mut title = "";
    for line in text.lines() {
        let Some(line) = line.strip_prefix("  ") else {
            title = line;
            answers.entry(title.to_owned()).or_default();
            continue;
        };
        let mut parts = line.split('\t');
        let labels = parts.next().expect("labels").to_owned();
        let point = |text: &str| {
            let (seconds, value) = text.split_once(' ').expect("a time and a value");
            (seconds.parse().expect("seconds"), value.to_owned())
        };
        let line = AnswerLine { labels, values: parts.map(point).collect() };
        answers.get_mut(title).expect("a title").0.push(line);
    }
    answers
}
