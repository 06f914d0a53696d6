//! Properties that hold for any bytes: one check per fuzz target, by its name. `fuzz/` includes
//! this file by path, and `fuzz_regressions` repeats the checks on inputs that once failed.

#[path = "byte_choices.rs"]
pub(crate) mod choice;
#[path = "random_caql.rs"]
pub(crate) mod streams;
#[path = "random_source.rs"]
pub(crate) mod wild;
#[path = "random_promql.rs"]
pub(crate) mod words;

use std::sync::atomic::{AtomicU64, Ordering};

use query::promql::{LENGTH_MAX, Options, ValueType, parse, parse_series_labels};
use query::{Error, Language, Limits, QueryRequest, QueryResult, ResultData, Settings, StepValue};

use choice::ByteChoices;
use wild::RandomSource;

/// Panics on a failure.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 2] = [("promql", promql), ("query", query)];

/// A parsed expression formats to text that parses to the same tree. The first byte selects the
/// enabled features.
fn promql(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = parse_series_labels(text);
    let options = if choice % 2 == 0 { Options::all() } else { Options::default() };
    let expr = match parse(text, &options) {
        Ok(expr) => expr,
        Err(error) => return drop(error.format_with_source(text)),
    };
    let shown = expr.to_string();
    // The formatted text may be longer than the input and exceed the limit.
    if shown.len() > LENGTH_MAX {
        return;
    }
    let again = parse(&shown, &options);
    let again =
        again.unwrap_or_else(|error| panic!("{text:?}: {}", error.format_with_source(&shown)));
    // Compared as text, because NaN is not equal to itself.
    let (expr, again) = (expr.without_spans(), again.without_spans());
    assert_eq!(format!("{again:?}"), format!("{expr:?}"), "{text:?} is shown as {shown:?}");
}

/// Any query of any data returns a result within the limits, or an error.
fn query(bytes: &[u8]) {
    run_query(bytes);
}

/// Outcome of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FuzzOutcome {
    Answered,
    Nothing,
    TimedOut,
    Limited,
    Failed,
    ParseFailed,
}

/// Runs the query encoded in some bytes and returns its outcome.
pub(crate) fn run_query(bytes: &[u8]) -> FuzzOutcome {
    let choice = &mut ByteChoices::new(bytes);
    let begin = RandomSource::begin(choice);
    let (start, end, step) = times(choice, begin);
    let kind = match choice.below(16) {
        14 => ValueType::Scalar,
        15 => ValueType::Matrix,
        _ => ValueType::Vector,
    };
    let depth = 1 + choice.below(4) as u32;
    let language = if choice.one_in(3) { Language::Caql } else { Language::PromQl };
    let text = match language {
        Language::PromQl => words::expression(choice, kind, depth),
        Language::Caql => streams::expression(choice, depth / 2),
    };
    let settings = settings(choice);
    let options = Options::all();
    let question = QueryRequest { text: &text, language, start, end, step, options };
    let patience = if choice.one_in(8) { choice.below(20) as u64 } else { u64::MAX };
    let source = RandomSource::new(choice, begin);
    let asked = AtomicU64::new(0);
    let is_over = || asked.fetch_add(1, Ordering::Relaxed) >= patience;
    if std::env::var_os("TOPDECK_SHOW").is_some() {
        eprintln!("{text} from {start} to {end} by {step}");
    }
    let found = query::testing::execute_with_stats(&source, &question, &settings, &is_over);
    let what = || format!("{text} from {start} to {end} by {step} with {settings:?}");
    match found {
        Ok((answer, beside)) => {
            check_answer(&answer, language, &what);
            assert_eq!(beside, 0, "samples are counted that are gone: {}", what());
            match answer.data {
                ResultData::Vector(streams) | ResultData::Matrix(streams) if streams.is_empty() => {
                    FuzzOutcome::Nothing
                }
                _ => FuzzOutcome::Answered,
            }
        }
        Err(Error::Timeout) => {
            let asked = asked.into_inner();
            assert_eq!(asked, patience + 1, "it went on though nobody waits: {}", what());
            FuzzOutcome::TimedOut
        }
        Err(error) => {
            let shown = error.format_with_source(&text);
            match error {
                Error::Limit { .. } => FuzzOutcome::Limited,
                Error::Parse { .. } => {
                    // Expressions are well typed; other expected errors are listed.
                    let is_caql = language == Language::Caql;
                    assert!(is_caql || !shown.contains("unexpected"), "{shown}");
                    FuzzOutcome::ParseFailed
                }
                _ => FuzzOutcome::Failed,
            }
        }
    }
}

fn times(choice: &mut ByteChoices<'_>, begin: i64) -> (i64, i64, i64) {
    const SECOND: i64 = 1_000_000_000;
    let start = match choice.below(30) {
        0 => i64::MIN,
        1 => i64::MAX,
        2 => choice.word() as i64,
        _ => begin.saturating_add(choice.below(300) as i64 * SECOND),
    };
    let step = match choice.below(12) {
        0..=2 => 0,
        3 => 1,
        4 => i64::MAX,
        5 => 7_000_001,
        6 => 3600 * SECOND,
        _ => 15 * SECOND,
    };
    let end = match choice.below(20) {
        0 => i64::MAX,
        1 => start.saturating_sub(1),
        2 => start,
        _ => start.saturating_add(step.saturating_mul(choice.below(20) as i64)),
    };
    (start, end, step)
}

fn settings(choice: &mut ByteChoices<'_>) -> Settings {
    let is_small = choice.one_in(6);
    let samples = if is_small { choice.below(300) as u64 } else { 20_000 };
    let bytes = if is_small { choice.below(5000) as u64 } else { 1 << 20 };
    let series = if is_small { choice.below(8) as u64 } else { 100 };
    Settings {
        limits: Limits { samples, series, bytes, steps: 2000 },
        lookback: choice.pick_one(&[
            300_000_000_000,
            300_000_000_000,
            300_000_000_000,
            i64::MAX,
            1,
        ]),
        delayed_name_removal: choice.one_in(3),
        type_and_unit_labels: choice.one_in(4),
        start_timestamps: choice.one_in(3),
        averaged_quantiles: choice.one_in(2),
        ..Settings::default()
    }
}

/// Properties of every result.
fn check_answer(answer: &QueryResult, language: Language, what: &dyn Fn() -> String) {
    let count = answer.steps.count;
    let streams = match &answer.data {
        ResultData::Scalar(numbers) => {
            assert_eq!(numbers.len(), count, "{}", what());
            return;
        }
        ResultData::Text(_) | ResultData::RawSamples(_) => return,
        ResultData::Vector(streams) | ResultData::Matrix(streams) => streams,
    };
    for stream in streams {
        assert_eq!(stream.points.len(), count, "{} of {}", stream.labels, what());
        let may_be_empty = language == Language::Caql;
        assert!(may_be_empty || !stream.is_empty(), "{} of {}", stream.labels, what());
        for point in stream.points.iter().flatten() {
            if let StepValue::Bracket(bracket) = point {
                let holds = bracket.lower <= bracket.estimate && bracket.estimate <= bracket.upper;
                assert!(holds, "{bracket:?} of {}", what());
            }
        }
    }
    let mut labels: Vec<_> = streams.iter().map(|stream| &stream.labels).collect();
    labels.sort();
    let is_each_once = labels.windows(2).all(|pair| pair[0] != pair[1]);
    // CAQL legends are free text.
    let is_free = language == Language::Caql;
    assert!(is_each_once || is_free, "two streams of the same labels: {}", what());
}
