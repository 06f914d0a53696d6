//! CAQL queries of a store on a simulated disk.
//!
//! The fixture has one-minute periods, ten slots from 13:00 UTC of a Sunday, and no earlier data.
//! `A` in an expression stands for `find("req", "and(host:a)")`, and so on.

mod errors;
mod every_function;
mod fixture;
mod golden;
mod reads;
mod sources;

use fixture::{CaqlFixture, START};
use query::{
    LabelSet, Language, QueryRequest, QueryResult, Result, ResultData, Settings, StepValue,
};
use store::MINUTE;

/// Abbreviations of streams.
const STREAMS: [(&str, &str); 6] = [
    ("A", r#"find("req", "and(host:a)")"#),
    ("B", r#"find("req", "and(host:b)")"#),
    ("C", r#"find("req", "and(host:c)")"#),
    ("D", r#"find("total", "and(host:a)")"#),
    ("H", r#"find:histogram("lat", "and(host:a)")"#),
    ("K", r#"find:histogram("lat", "and(host:b)")"#),
];

/// Replaces abbreviations, which are separate words outside of quotes.
fn expand_names(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let (mut out, mut word, mut quote) = (String::new(), String::new(), None);
    for c in text.chars().chain(['\n']) {
        if quote.is_none() && is_word(c) {
            word.push(c);
            continue;
        }
        let known = STREAMS.iter().find(|(short, _)| *short == word);
        out.push_str(known.map_or(word.as_str(), |(_, long)| long));
        word.clear();
        quote = match quote {
            None if matches!(c, '"' | '\'') => Some(c),
            Some(open) if open == c => None,
            held => held,
        };
        out.push(c);
    }
    out.trim_end().to_owned()
}

fn question(text: &str) -> QueryRequest<'_> {
    QueryRequest {
        text,
        language: Language::Caql,
        start: START,
        end: START + 10 * MINUTE,
        step: MINUTE,
        options: query::promql::Options::default(),
    }
}

fn answer_of(question: &QueryRequest<'_>) -> Result<QueryResult> {
    CaqlFixture::get(|source| query::execute(source, question, &Settings::default(), &|| false))
}

fn answer(text: &str) -> Result<QueryResult> {
    answer_of(&question(&expand_names(text)))
}

type StreamRow = (LabelSet, Vec<Option<StepValue>>);

fn rows_of(answer: QueryResult) -> Vec<StreamRow> {
    let ResultData::Matrix(streams) = answer.data else { panic!("CAQL gives streams") };
    streams.into_iter().map(|stream| (stream.labels, stream.points)).collect()
}

#[track_caller]
fn rows(text: &str) -> Vec<StreamRow> {
    match answer(text) {
        Ok(answer) => rows_of(answer),
        Err(error) => panic!("{}", error.format_with_source(&expand_names(text))),
    }
}

/// Expected numbers of streams: a word for each slot, `·` for no value, a line for each stream.
/// `x*` is the same value in all slots.
#[track_caller]
fn check(text: &str, expected: &str) {
    let found = rows(text);
    let lines: Vec<&str> = expected.split('\n').map(str::trim).filter(|l| !l.is_empty()).collect();
    let shown = || {
        let numbers =
            |row: &StreamRow| row.1.iter().map(|p| show(p.as_ref())).collect::<Vec<_>>().join(" ");
        found
            .iter()
            .map(|row| format!("{} ({})", numbers(row), row.0))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(found.len(), lines.len(), "{text}:\n{}", shown());
    for ((_, points), line) in found.iter().zip(lines) {
        let words: Vec<&str> = match line.strip_suffix('*') {
            Some(word) => vec![word; points.len()],
            None => line.split_whitespace().collect(),
        };
        assert_eq!(points.len(), words.len(), "{text}:\n{}", shown());
        for (point, word) in points.iter().zip(words) {
            let number = point.as_ref().and_then(StepValue::number);
            let is_same = match (number, word) {
                (None, "·") => true,
                (Some(number), word) if word != "·" => {
                    let expected = read(word);
                    (number - expected).abs() <= 1e-7 * expected.abs().max(1e-9)
                }
                _ => false,
            };
            assert!(is_same, "{text}: {word} is not in\n{}", shown());
        }
    }
}

/// Number or fraction.
fn read(word: &str) -> f64 {
    let number = |word: &str| word.parse::<f64>().unwrap_or_else(|_| panic!("{word} is no number"));
    match word.split_once('/') {
        Some((a, b)) => number(a) / number(b),
        None => number(word),
    }
}

fn show(point: Option<&StepValue>) -> String {
    match point.map(|value| (value.number(), value)) {
        None => "·".to_owned(),
        Some((Some(number), _)) => number.to_string(),
        Some((None, StepValue::Distribution(mixture))) => format!("[{}]", mixture.count()),
        Some(_) => "?".to_owned(),
    }
}

/// Legends, or canonical names of streams without one.
#[track_caller]
fn check_legends(text: &str, expected: &[&str]) {
    let found: Vec<String> = rows(text).iter().map(|(labels, _)| legend(labels)).collect();
    assert_eq!(found, expected, "{text}");
}

fn legend(labels: &LabelSet) -> String {
    match labels.get(query::caql::LEGEND) {
        "" => {
            let tags = labels.iter().filter(|(name, _)| *name != query::NAME);
            let tags: Vec<String> = tags.map(|(name, value)| format!("{name}:{value}")).collect();
            format!("{}|ST[{}]", labels.name(), tags.join(","))
        }
        legend => legend.to_owned(),
    }
}
