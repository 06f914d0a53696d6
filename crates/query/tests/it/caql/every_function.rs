//! Every function with valid arguments and streams of every kind: it succeeds or returns an error.

use query::caql::Signature;
use query::caql::signature::{
    ArgumentType, DefaultValue, FunctionParameter, InputArity, InputKind, Stability,
};
use query::{Error, QueryRequest, Stream};
use store::{HOUR, MINUTE};

use super::{answer_of, expand_names, question};

fn argument(wants: ArgumentType) -> &'static str {
    match wants {
        ArgumentType::Number | ArgumentType::NumberWithin(..) => "0.5",
        ArgumentType::IntegerWithin(..) => "1",
        ArgumentType::Duration
        | ArgumentType::PositiveDuration
        | ArgumentType::Shift
        | ArgumentType::DurationOrMinutes => "3m",
        ArgumentType::ShiftOrZone | ArgumentType::DurationOr(_) | ArgumentType::Time => "2m",
        ArgumentType::Text => "\"dc:x\"",
        ArgumentType::OneOf(words) => words[0],
        ArgumentType::Uuid => "\"1b4e28ba-2fa1-11d2-883f-0016d3cca427\"",
        ArgumentType::Name => "\"req\"",
        ArgumentType::Search => "\"and(host:a)\"",
        ArgumentType::Regex => "\"h(o)st\"",
        ArgumentType::Format => "\"%n %tv{host}\"",
    }
}

fn format_parameter(parameter: &FunctionParameter) -> String {
    match parameter.argument_type {
        ArgumentType::OneOf(words) if parameter.name == "timezone" || words.is_empty() => {
            "\"UTC\"".to_owned()
        }
        ArgumentType::OneOf(words) => format!("{:?}", words[0]),
        ArgumentType::Text if parameter.name == "timezone" => "\"UTC\"".to_owned(),
        wants => argument(wants).to_owned(),
    }
}

/// Call with all required arguments, optionally with the options.
fn call(function: &Signature, with_options: bool) -> String {
    let mut arguments = Vec::new();
    for parameter in &function.parameters {
        if parameter.default == DefaultValue::Required || with_options {
            arguments.push(format_parameter(parameter));
        }
    }
    arguments.extend(function.variadic.iter().map(format_parameter));
    if with_options {
        let given =
            |option: &FunctionParameter| format!("{}={}", option.name, format_parameter(option));
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
    let all: Vec<&str> = match function.inputs_kind {
        InputKind::Nothing => return vec![String::new()],
        InputKind::Numbers => numbers.to_vec(),
        InputKind::Histograms => histograms.to_vec(),
        InputKind::Either => numbers.into_iter().chain(histograms).collect(),
    };
    let x = usize::from(function.parameters.iter().any(|parameter| parameter.name == "x"));
    let count = match function.arity {
        InputArity::Exactly(count) => count - x.min(count - 1),
        InputArity::AtLeast(count) => count,
        InputArity::Any => 1,
    };
    all.iter().map(|source| format!("{{{}}}", vec![*source; count].join(", "))).collect()
}

#[track_caller]
fn check(asked: &QueryRequest<'_>) -> bool {
    match answer_of(asked) {
        Ok(answer) => {
            let query::ResultData::Matrix(streams) = &answer.data else { panic!("{}", asked.text) };
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
        if matches!(function.stability, Stability::Removed(_)) {
            continue;
        }
        let mut answered = 0;
        for sources in sources(function) {
            for with_options in [false, true] {
                let text = expand_names(&format!("{}{sources}", call(function, with_options)));
                let long = QueryRequest { step: 2 * MINUTE, ..question(&text) };
                let odd = QueryRequest { start: long.start - HOUR + 7, step: 90 * MINUTE, ..long };
                let serial = format!("#serial\n{text}");
                let serial = QueryRequest { text: &serial, ..question(&text) };
                for asked in [question(&text), long.clone(), odd, serial] {
                    answered += usize::from(check(&asked));
                }
            }
        }
        assert!(answered > 0, "{} never answers", function.name);
    }
}
