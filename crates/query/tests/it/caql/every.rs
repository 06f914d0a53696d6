//! Every function there is, with arguments that fit and streams of every kind: none fails but by saying why.

use query::caql::Signature;
use query::caql::signature::{Default, Inputs, Parameter, Standing, Takes, Wants};
use query::{Error, Question, Stream};
use store::{HOUR, MINUTE};

use super::{answer_of, question, written_out};

fn argument(wants: Wants) -> &'static str {
    match wants {
        Wants::Number | Wants::NumberWithin(..) => "0.5",
        Wants::WholeWithin(..) => "1",
        Wants::Duration | Wants::Span | Wants::Shift | Wants::DurationOrMinutes => "3m",
        Wants::ShiftOrZone | Wants::DurationOr(_) | Wants::Moment => "2m",
        Wants::Text => "\"dc:x\"",
        Wants::OneOf(words) => words[0],
        Wants::Uuid => "\"1b4e28ba-2fa1-11d2-883f-0016d3cca427\"",
        Wants::Name => "\"req\"",
        Wants::Search => "\"and(host:a)\"",
        Wants::Regex => "\"h(o)st\"",
        Wants::Format => "\"%n %tv{host}\"",
    }
}

fn written(parameter: &Parameter) -> String {
    match parameter.wants {
        Wants::OneOf(words) if parameter.name == "timezone" || words.is_empty() => {
            "\"UTC\"".to_owned()
        }
        Wants::OneOf(words) => format!("{:?}", words[0]),
        Wants::Text if parameter.name == "timezone" => "\"UTC\"".to_owned(),
        wants => argument(wants).to_owned(),
    }
}

/// A call with all arguments that it needs, and perhaps those that it may have.
fn call(function: &Signature, with_options: bool) -> String {
    let mut arguments = Vec::new();
    for parameter in &function.parameters {
        if parameter.default == Default::Required || with_options {
            arguments.push(written(parameter));
        }
    }
    arguments.extend(function.rest.iter().map(written));
    if with_options {
        let given = |option: &Parameter| format!("{}={}", option.name, written(option));
        arguments.extend(function.options.iter().map(given));
    }
    format!("{}({})", function.name, arguments.join(", "))
}

fn sources(function: &Signature) -> Vec<String> {
    let numbers = [
        "A",
        "B",
        r#"find("req")"#,
        r#"find("nothing")"#,
        r#"find("lat")"#,
        "NULL",
        "1",
        r#"vector("%tv{host}"){find("req")}"#,
    ];
    let histograms = [
        "H",
        r#"find:histogram("lat")"#,
        r#"find:histogram("nothing")"#,
        r#"find:histogram("req")"#,
        "histogram{NULL}",
    ];
    let all: Vec<&str> = match function.takes {
        Takes::Nothing => return vec![String::new()],
        Takes::Numbers => numbers.to_vec(),
        Takes::Histograms => histograms.to_vec(),
        Takes::Either => numbers.into_iter().chain(histograms).collect(),
    };
    let x = usize::from(function.parameters.iter().any(|parameter| parameter.name == "x"));
    let count = match function.inputs {
        Inputs::Exactly(count) => count - x.min(count - 1),
        Inputs::AtLeast(count) => count,
        Inputs::Any => 1,
    };
    all.iter().map(|source| format!("{{{}}}", vec![*source; count].join(", "))).collect()
}

#[track_caller]
fn check(asked: &Question<'_>) -> bool {
    match answer_of(asked) {
        Ok(answer) => {
            let query::Data::Matrix(streams) = &answer.data else { panic!("{}", asked.text) };
            let fits = |stream: &Stream| stream.points.len() == answer.steps.count;
            assert!(streams.iter().all(fits), "{}", asked.text);
            true
        }
        Err(Error::Parse { message, .. } | Error::Execution { message, .. }) => {
            assert!(!message.contains("yet"), "{}: {message}", asked.text);
            false
        }
        Err(error) => panic!("{}: {error}", asked.text),
    }
}

#[test]
fn every_function_runs() {
    for function in Signature::all() {
        if matches!(function.standing, Standing::Gone(_)) {
            continue;
        }
        let mut answered = 0;
        for sources in sources(function) {
            for with_options in [false, true] {
                let text = written_out(&format!("{}{sources}", call(function, with_options)));
                let long = Question { step: 2 * MINUTE, ..question(&text) };
                let odd = Question { start: long.start - HOUR + 7, step: 90 * MINUTE, ..long };
                let serial = format!("#serial\n{text}");
                let serial = Question { text: &serial, ..question(&text) };
                for asked in [question(&text), long.clone(), odd, serial] {
                    answered += usize::from(check(&asked));
                }
            }
        }
        assert!(answered > 0, "{} never answers", function.name);
    }
}
