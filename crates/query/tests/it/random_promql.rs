//! Random PromQL expressions: well typed, with all functions, operators and modifiers.

use query::promql::{AggregateOp, BinaryOp, PromqlFunction, ValueType, functions};

use super::choice::ByteChoices;

/// Metrics that may exist.
pub(crate) const NAMES: [&str; 7] =
    ["latency", "waited", "requests", "bytes_total", "load", "old_bucket", "target_info"];
const LABELS: [&str; 8] =
    ["host", "zone", "le", "__name__", "instance", "job", "no_such", "__type__"];
const TEXTS: [&str; 12] =
    ["", "a", "b", "host", "zone", "le", "__name__", "$1", "x$1y", "(.*)", "(a)|b.*", "new"];
const NUMBERS: [&str; 20] = [
    "0", "1", "2", "3.5", "0.5", "0.99", "-1", "1e3", "-0.0", "NaN", "Inf", "-Inf", "1e308",
    "-1e308", "5e-324", "1e18", "-9.3e18", "0x10", "5m", "0.1",
];
const RANGES: [&str; 18] = [
    "1m", "5m", "2m", "3m", "5m", "1m", "15s", "1ms", "1s", "30s", "1h", "7s", "61s", "1d", "1y",
    "200y", "1e9", "2m30s",
];
const OFFSETS: [&str; 8] = ["1m", "-1m", "7s", "1h", "-1h", "1y", "-200y", "200y"];
const ATS: [&str; 7] = ["start()", "end()", "0", "100", "-100", "9e9", "-9e9"];

/// Expression of a type, not much higher than `depth`.
pub(crate) fn expression(choice: &mut ByteChoices<'_>, kind: ValueType, depth: u32) -> String {
    match kind {
        ValueType::Scalar => scalar(choice, depth),
        ValueType::Vector => vector(choice, depth),
        ValueType::Matrix => matrix(choice, depth),
        ValueType::Text => format!("{:?}", choice.pick_one(&TEXTS)),
    }
}

fn scalar(choice: &mut ByteChoices<'_>, depth: u32) -> String {
    match choice.below(if depth == 0 { 3 } else { 6 }) {
        0..=2 => choice.pick_one(&NUMBERS).to_owned(),
        3 => function_call(choice, ValueType::Scalar, depth),
        4 => {
            let op = choice.pick_one(&OPERATORS);
            let word = if op.is_comparison() { " bool" } else { "" };
            match op {
                op if op.is_set() || is_trim(op) => scalar(choice, depth - 1),
                op => {
                    let (left, right) = (scalar(choice, depth - 1), scalar(choice, depth - 1));
                    format!("({left} {}{word} {right})", op.text())
                }
            }
        }
        _ => format!("-({})", scalar(choice, depth - 1)),
    }
}

fn is_trim(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::TrimUpper | BinaryOp::TrimLower)
}

const OPERATORS: [BinaryOp; 18] = {
    use BinaryOp::*;
    [
        Add,
        Subtract,
        Multiply,
        Divide,
        Modulo,
        Power,
        Atan2,
        Or,
        And,
        Unless,
        Equal,
        NotEqual,
        Greater,
        GreaterOrEqual,
        Less,
        LessOrEqual,
        TrimUpper,
        TrimLower,
    ]
};

fn vector(choice: &mut ByteChoices<'_>, depth: u32) -> String {
    if depth == 0 {
        return selector(choice);
    }
    match choice.below(12) {
        0 | 1 => selector(choice),
        2..=5 => function_call(choice, ValueType::Vector, depth),
        6 | 7 => aggregate(choice, depth),
        8..=10 => binary(choice, depth),
        _ => format!("-({})", vector(choice, depth - 1)),
    }
}

fn selector(choice: &mut ByteChoices<'_>) -> String {
    let mut text = selector_with_range(choice);
    text += &modifiers(choice);
    text
}

fn selector_with_range(choice: &mut ByteChoices<'_>) -> String {
    let name = choice.pick_one(&NAMES);
    match choice.below(16) {
        0..=10 => name.to_owned(),
        11 => format!("{name}{{host=\"a\"}}"),
        12 => format!("{name}{{zone!=\"x\", host=~\"a|b\"}}"),
        13 => "{__name__=~\".+\"}".to_owned(),
        14 => format!("{{__name__=~\"{name}|load\", host!~\"b.*\"}}"),
        _ => "no_such_metric{host=\"a\"}".to_owned(),
    }
}

fn modifiers(choice: &mut ByteChoices<'_>) -> String {
    let mut text = String::new();
    if choice.one_in(12) {
        text += &format!(" offset {}", choice.pick_one(&OFFSETS));
    }
    if choice.one_in(12) {
        text += &format!(" @ {}", choice.pick_one(&ATS));
    }
    text
}

fn matrix(choice: &mut ByteChoices<'_>, depth: u32) -> String {
    let range = choice.pick_one(&RANGES);
    if depth == 0 || choice.below(4) > 0 {
        let extension = match choice.below(12) {
            10 => " anchored",
            11 => " smoothed",
            _ => "",
        };
        return format!("{}[{range}]{extension}{}", selector_with_range(choice), modifiers(choice));
    }
    let step = match choice.below(4) {
        0 => "",
        1 => "1s",
        2 => "30s",
        _ => choice.pick_one(&RANGES),
    };
    format!("({})[{range}:{step}]{}", vector(choice, depth - 1), modifiers(choice))
}

fn function_call(choice: &mut ByteChoices<'_>, returns: ValueType, depth: u32) -> String {
    let fits: Vec<&PromqlFunction> = functions().filter(|one| one.returns == returns).collect();
    let function = choice.pick_one(&fits);
    let most = function.args_max().unwrap_or(function.args_min() + 2);
    let count = function.args_min() + choice.below((most - function.args_min()).min(3) + 1);
    let last = function.args.len().saturating_sub(1);
    let args: Vec<String> = (0..count)
        .map(|at| expression(choice, function.args[at.min(last)], depth.saturating_sub(1)))
        .collect();
    let args = match (function.name, &args[..]) {
        // The second argument is a selector without a name.
        ("info", [of, _]) => format!("{of}, {{zone=~\".*\"}}"),
        _ => args.join(", "),
    };
    format!("{}({args})", function.name)
}

fn labels(choice: &mut ByteChoices<'_>) -> String {
    let count = choice.below(3);
    let labels: Vec<&str> = (0..count).map(|_| choice.pick_one(&LABELS)).collect();
    labels.join(", ")
}

fn aggregate(choice: &mut ByteChoices<'_>, depth: u32) -> String {
    let op = choice.pick_one(&AggregateOp::ALL);
    let grouping = match choice.below(3) {
        0 => String::new(),
        1 => format!(" by ({})", labels(choice)),
        _ => format!(" without ({})", labels(choice)),
    };
    let param = match op.param() {
        Some(kind) => expression(choice, kind, depth - 1) + ", ",
        None => String::new(),
    };
    format!("{}{grouping} ({param}{})", op.text(), vector(choice, depth - 1))
}

fn binary(choice: &mut ByteChoices<'_>, depth: u32) -> String {
    let op = choice.pick_one(&OPERATORS);
    let is_bool = op.is_comparison() && choice.one_in(3);
    let word = if is_bool { " bool" } else { "" };
    let sides = if op.is_set() { 0 } else { choice.below(4) };
    let (left, right) = match sides {
        0 | 1 => (vector(choice, depth - 1), vector(choice, depth - 1)),
        2 => (vector(choice, depth - 1), scalar(choice, depth - 1)),
        _ => (scalar(choice, depth - 1), vector(choice, depth - 1)),
    };
    let mut matching = String::new();
    if sides < 2 && choice.below(3) > 0 {
        let word = choice.pick_one(&["on", "ignoring"]);
        matching += &format!(" {word} ({})", labels(choice));
        if !op.is_set() {
            matching += match choice.below(4) {
                1 => " group_left (zone)",
                2 => " group_right ()",
                _ => "",
            };
        }
    }
    if sides < 2 && !op.is_set() && choice.one_in(6) {
        matching += choice.pick_one(&[" fill (0)", " fill_left (NaN)", " fill_right (1)"]);
    }
    format!("({left}) {}{word}{matching} ({right})", op.text())
}
