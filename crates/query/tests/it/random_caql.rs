//! Random CAQL expressions: mostly valid, with all functions.

use query::caql::Signature;
use query::caql::signature::{
    ArgumentType, DefaultValue, FunctionParameter, InputKind, OutputKind, Stability,
};

use super::choice::ByteChoices;
use super::words::NAMES;

const DURATIONS: [&str; 9] = ["1m", "5m", "90s", "1h", "2m", "1d", "1w", "1y", "0m"];
const NUMBERS: [&str; 12] =
    ["1", "0", "2", "0.5", "99", "100", "-1", "3.5", "1e308", "1e-300", "10", "50"];
const TEXTS: [&str; 7] = ["a", "host", "%n", "%tv{host}", "host:a", "^a", ""];

/// Expression; `depth` bounds its nesting.
pub(crate) fn expression(choice: &mut ByteChoices<'_>, depth: u32) -> String {
    let directive = match choice.below(12) {
        9 => "#min_period=60s ",
        10 => "#serial ",
        11 => "#preview ",
        _ => "",
    };
    directive.to_owned() + &pipe(choice, depth)
}

fn pipe(choice: &mut ByteChoices<'_>, depth: u32) -> String {
    let (mut text, mut gives) = source(choice);
    for _ in 0..choice.below(4) {
        if depth > 0 && choice.one_in(4) {
            let operator =
                choice.pick_one(&["+", "-", "*", "/", "<", ">=", "==", "and", "or", "^", "%"]);
            text = format!("({text} {operator} ({}))", pipe(choice, depth - 1));
            continue;
        }
        let fits = |one: &&Signature| match one.inputs_kind {
            InputKind::Nothing => false,
            InputKind::Either => true,
            InputKind::Numbers => gives == OutputKind::Numbers,
            InputKind::Histograms => gives == OutputKind::Histograms,
        };
        let one = signature(choice, fits);
        text = match depth > 0 && choice.one_in(8) {
            true => format!("{}{{{text}, {}}}", call(choice, one), pipe(choice, depth - 1)),
            false => format!("{text} | {}", call(choice, one)),
        };
        gives = if one.output_kind == OutputKind::AsInput { gives } else { one.output_kind };
    }
    text
}

fn source(choice: &mut ByteChoices<'_>) -> (String, OutputKind) {
    let name = choice.pick_one(&NAMES);
    match choice.below(7) {
        0..=2 => (format!("find:histogram(\"{name}\")"), OutputKind::Histograms),
        3 | 4 => (format!("find(\"{name}\")"), OutputKind::Numbers),
        5 => (format!("find:counter(\"{name}\")"), OutputKind::Numbers),
        _ => {
            let one = signature(choice, |one| one.inputs_kind == InputKind::Nothing);
            (call(choice, one), one.output_kind)
        }
    }
}

fn signature(
    choice: &mut ByteChoices<'_>,
    fits: impl Fn(&&Signature) -> bool,
) -> &'static Signature {
    let is_there = |one: &&Signature| !matches!(one.stability, Stability::Removed(_));
    let all: Vec<&Signature> = Signature::all().filter(is_there).filter(fits).collect();
    choice.pick_one(&all)
}

fn call(choice: &mut ByteChoices<'_>, of: &Signature) -> String {
    let mut args = Vec::new();
    for parameter in &of.parameters {
        if parameter.default != DefaultValue::Required && choice.one_in(2) {
            break;
        }
        args.push(argument(choice, parameter));
    }
    if let Some(rest) = &of.variadic {
        (0..1 + choice.below(3)).for_each(|_| args.push(argument(choice, rest)));
    }
    for option in &of.options {
        if choice.one_in(4) {
            args.push(format!("{}={}", option.name, argument(choice, option)));
        }
    }
    format!("{}({})", of.name, args.join(", "))
}

fn argument(choice: &mut ByteChoices<'_>, of: &FunctionParameter) -> String {
    let duration = |choice: &mut ByteChoices<'_>| choice.pick_one(&DURATIONS).to_owned();
    let quoted = |text: &str| format!("{text:?}");
    match of.argument_type {
        ArgumentType::Number => choice.pick_one(&NUMBERS).to_owned(),
        ArgumentType::NumberWithin(least, most) => {
            let number: f64 = choice.pick_one(&[0.5, 1.0, 0.0, 10.0, 99.0, 1e9]);
            number.clamp(least, most).to_string()
        }
        ArgumentType::IntegerWithin(least, most) => {
            choice.pick_one(&[1.0, 0.0, 2.0, 5.0, 100.0, 1e9f64]).clamp(least, most).to_string()
        }
        ArgumentType::Duration
        | ArgumentType::PositiveDuration
        | ArgumentType::DurationOrMinutes
        | ArgumentType::DurationOr(_) => duration(choice),
        ArgumentType::Shift | ArgumentType::ShiftOrZone if choice.one_in(3) => {
            format!("-{}", duration(choice))
        }
        ArgumentType::ShiftOrZone if choice.one_in(3) => quoted("Europe/Berlin"),
        ArgumentType::Shift | ArgumentType::ShiftOrZone | ArgumentType::Time => duration(choice),
        ArgumentType::OneOf(words) => quoted(choice.pick_one(words)),
        ArgumentType::Uuid => quoted("00000000-0000-0000-0000-000000000001"),
        ArgumentType::Name => quoted(choice.pick_one(&NAMES)),
        ArgumentType::Search => quoted("and(host:a)"),
        ArgumentType::Text | ArgumentType::Regex | ArgumentType::Format => {
            quoted(choice.pick_one(&TEXTS))
        }
    }
}
