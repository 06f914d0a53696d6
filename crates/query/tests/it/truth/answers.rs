//! Answers of a store beside the slow ones: counts exactly, numbers but for rounding, bounds around the truth.

use query::{Answer, Data, Labels, Language, NAME, Question, Settings, Stored, Value, promql};

use super::anything::Random;
use super::question::{Ask, Over, times};
use super::raw::{Raw, Tags, stored};
use super::slow::{Doubt, Truth, Truths, truth};

/// Questions to one store.
const QUESTIONS: u64 = 60;

/// What is wrong with an answer.
fn wrong(answer: &Answer, truths: &Truths) -> Option<String> {
    let streams = match &answer.data {
        Data::Vector(streams) | Data::Matrix(streams) => streams,
        other => return Some(format!("{other:?} is no vector")),
    };
    let labels = |tags: &Tags| Labels::new(tags.iter().map(|(a, b)| (a.as_str(), b.as_str())));
    let expected: Vec<(Labels, _)> =
        truths.iter().map(|(tags, points)| (labels(tags), points)).collect();
    if let Some(stream) = streams.iter().find(|own| expected.iter().all(|e| e.0 != own.labels)) {
        return Some(format!("{} is not expected: {:?}", stream.labels, stream.points));
    }
    for (labels, truths) in &expected {
        let Some(stream) = streams.iter().find(|stream| stream.labels == *labels) else {
            return Some(format!("{labels} is missing: {truths:?}"));
        };
        for (at, (point, truth)) in stream.points.iter().zip(*truths).enumerate() {
            let is_right = match (point, truth) {
                (None, None) => true,
                (Some(value), Some(truth)) => is_right(value, truth),
                _ => false,
            };
            if !is_right {
                return Some(format!("{labels} at step {at}: {point:?}, not {truth:?}"));
            }
        }
    }
    None
}

fn is_right(value: &Value, truth: &Truth) -> bool {
    let near = |a: f64, b: f64| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * (a.abs() + b.abs() + 1.0)
    };
    match truth {
        Truth::Values(values, scale) => {
            let n = values.len() as f64;
            match value {
                Value::Distribution(mixture) => *scale == 1.0 && mixture.count() as f64 == n,
                Value::Histogram(histogram) => near(histogram.count, n * scale),
                _ => false,
            }
        }
        Truth::Number(truth, doubt) => {
            let Some(bracket) = value.bracket() else { return false };
            match doubt {
                Doubt::None => *value == Value::Number(*truth),
                Doubt::Rounding => {
                    bracket.is_exact() && near(bracket.estimate, *truth)
                        || truth.is_nan() && bracket.estimate.is_nan()
                }
                Doubt::Open => true,
                // A share of nothing.
                Doubt::Bounds if !truth.is_finite() || bracket.estimate.is_nan() => true,
                Doubt::Bounds => {
                    let doubt = 1e-9 * (truth.abs() + 1e-9);
                    bracket.lower - doubt <= *truth && *truth <= bracket.upper + doubt
                }
            }
        }
    }
}

fn check(seed: u64) {
    let mut random = Random(seed);
    let raw = Raw::new(&mut random);
    let store = stored(&raw, &mut random);
    let view = store.view().unwrap();
    let source = Stored::new(&view);
    for number in 0..QUESTIONS {
        let (start, end, step) = times(&mut random);
        let ask = Ask::new(&mut random, 3);
        let text = ask.to_string();
        let options = promql::Options::all();
        let question =
            Question { text: &text, language: Language::PromQl, start, end, step, options };
        let settings = Settings { averaged_quantiles: true, ..Settings::default() };
        let found = query::testing::ask_and_count(&source, &question, &settings, &|| false);
        let what =
            format!("seed {seed}, question {number}: {text} from {start} to {end} by {step}");
        let (answer, beside) =
            found.unwrap_or_else(|error| panic!("{what}: {}", error.show(&text)));
        assert_eq!(beside, 0, "{what}");
        let times: Vec<i64> = answer.steps.times().collect();
        let mut truths = truth(&raw, &ask, &times);
        if let Ask::Over { over: Over::First | Over::Last, pick } = &ask {
            // What they give is still what the name says.
            let named = |mut tags: Tags| {
                tags.insert(NAME.to_owned(), pick.name.to_owned());
                tags
            };
            truths = truths.into_iter().map(|(tags, points)| (named(tags), points)).collect();
        }
        if let Some(wrong) = wrong(&answer, &truths) {
            panic!("{what}\n{wrong}");
        }
    }
}

// slow: thousands of queries, each also answered from raw values.
#[test]
fn answers_are_true() {
    (0..24).for_each(check);
}

#[test]
#[ignore = "soak: a hundred thousand stores, some hours"]
fn soak_answers_are_true() {
    (1 << 32..(1 << 32) + 100_000).for_each(check);
}
