//! Expressions of CAQL out of choices: most fit together, with all functions there are.

use query::caql::Signature;
use query::caql::signature::{Default, Gives, Parameter, Standing, Takes, Wants};

use super::choice::Choice;
use super::words::NAMES;

const DURATIONS: [&str; 9] = ["1m", "5m", "90s", "1h", "2m", "1d", "1w", "1y", "0m"];
const NUMBERS: [&str; 12] =
    ["1", "0", "2", "0.5", "99", "100", "-1", "3.5", "1e308", "1e-300", "10", "50"];
const TEXTS: [&str; 7] = ["a", "host", "%n", "%tv{host}", "host:a", "^a", ""];

/// An expression; `depth` bounds how far it nests.
pub(crate) fn expression(choice: &mut Choice<'_>, depth: u32) -> String {
    let directive = match choice.below(12) {
        9 => "#min_period=60s ",
        10 => "#serial ",
        11 => "#preview ",
        _ => "",
    };
    directive.to_owned() + &pipe(choice, depth)
}

fn pipe(choice: &mut Choice<'_>, depth: u32) -> String {
    let (mut text, mut gives) = source(choice);
    for _ in 0..choice.below(4) {
        if depth > 0 && choice.one_in(4) {
            let operator = choice.of(&["+", "-", "*", "/", "<", ">=", "==", "and", "or", "^", "%"]);
            text = format!("({text} {operator} ({}))", pipe(choice, depth - 1));
            continue;
        }
        let fits = |one: &&Signature| match one.takes {
            Takes::Nothing => false,
            Takes::Either => true,
            Takes::Numbers => gives == Gives::Numbers,
            Takes::Histograms => gives == Gives::Histograms,
        };
        let one = signature(choice, fits);
        text = match depth > 0 && choice.one_in(8) {
            true => format!("{}{{{text}, {}}}", call(choice, one), pipe(choice, depth - 1)),
            false => format!("{text} | {}", call(choice, one)),
        };
        gives = if one.gives == Gives::Same { gives } else { one.gives };
    }
    text
}

fn source(choice: &mut Choice<'_>) -> (String, Gives) {
    let name = choice.of(&NAMES);
    match choice.below(7) {
        0..=2 => (format!("find:histogram(\"{name}\")"), Gives::Histograms),
        3 | 4 => (format!("find(\"{name}\")"), Gives::Numbers),
        5 => (format!("find:counter(\"{name}\")"), Gives::Numbers),
        _ => {
            let one = signature(choice, |one| one.takes == Takes::Nothing);
            (call(choice, one), one.gives)
        }
    }
}

fn signature(choice: &mut Choice<'_>, fits: impl Fn(&&Signature) -> bool) -> &'static Signature {
    let is_there = |one: &&Signature| !matches!(one.standing, Standing::Gone(_));
    let all: Vec<&Signature> = Signature::all().iter().filter(is_there).filter(fits).collect();
    choice.of(&all)
}

fn call(choice: &mut Choice<'_>, of: &Signature) -> String {
    let mut args = Vec::new();
    for parameter in &of.parameters {
        if parameter.default != Default::Required && choice.one_in(2) {
            break;
        }
        args.push(argument(choice, parameter));
    }
    if let Some(rest) = &of.rest {
        (0..1 + choice.below(3)).for_each(|_| args.push(argument(choice, rest)));
    }
    for option in &of.options {
        if choice.one_in(4) {
            args.push(format!("{}={}", option.name, argument(choice, option)));
        }
    }
    format!("{}({})", of.name, args.join(", "))
}

fn argument(choice: &mut Choice<'_>, of: &Parameter) -> String {
    let duration = |choice: &mut Choice<'_>| choice.of(&DURATIONS).to_owned();
    let quoted = |text: &str| format!("{text:?}");
    match of.wants {
        Wants::Number => choice.of(&NUMBERS).to_owned(),
        Wants::NumberWithin(least, most) => {
            let number: f64 = choice.of(&[0.5, 1.0, 0.0, 10.0, 99.0, 1e9]);
            number.clamp(least, most).to_string()
        }
        Wants::WholeWithin(least, most) => {
            choice.of(&[1.0, 0.0, 2.0, 5.0, 100.0, 1e9f64]).clamp(least, most).to_string()
        }
        Wants::Duration | Wants::Span | Wants::DurationOrMinutes | Wants::DurationOr(_) => {
            duration(choice)
        }
        Wants::Shift | Wants::ShiftOrZone if choice.one_in(3) => format!("-{}", duration(choice)),
        Wants::ShiftOrZone if choice.one_in(3) => quoted("Europe/Berlin"),
        Wants::Shift | Wants::ShiftOrZone | Wants::Moment => duration(choice),
        Wants::OneOf(words) => quoted(choice.of(words)),
        Wants::Uuid => quoted("00000000-0000-0000-0000-000000000001"),
        Wants::Name => quoted(choice.of(&NAMES)),
        Wants::Search => quoted("and(host:a)"),
        Wants::Text | Wants::Regex | Wants::Format => quoted(choice.of(&TEXTS)),
    }
}
