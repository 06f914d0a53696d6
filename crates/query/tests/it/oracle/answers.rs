//! Results of a store compared with reference results: counts exactly, numbers up to rounding,
//! bounds around the true value.

use query::{
    LabelSet, Language, NAME, QueryRequest, QueryResult, ResultData, Settings, StepValue,
    StoreSource, promql,
};

use super::random_queries::Splitmix64;
use super::random_request::{RandomQuery, RangeStatistic, times};
use super::raw::{RawData, TagMap, build_store};
use super::reference::{ExpectedSeries, ExpectedValue, Tolerance, expected_series};

/// Queries per store.
const QUESTIONS: u64 = 60;

/// Difference between a result and the expected values.
fn find_error(answer: &QueryResult, truths: &ExpectedSeries) -> Option<String> {
    let streams = match &answer.data {
        ResultData::Vector(streams) | ResultData::Matrix(streams) => streams,
        other => return Some(format!("{other:?} is no vector")),
    };
    let labels = |tags: &TagMap| LabelSet::new(tags.iter().map(|(a, b)| (a.as_str(), b.as_str())));
    let expected: Vec<(LabelSet, _)> =
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
                (Some(value), Some(truth)) => matches_expected(value, truth),
                _ => false,
            };
            if !is_right {
                return Some(format!("{labels} at step {at}: {point:?}, not {truth:?}"));
            }
        }
    }
    None
}

fn matches_expected(value: &StepValue, truth: &ExpectedValue) -> bool {
    let near = |a: f64, b: f64| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * (a.abs() + b.abs() + 1.0)
    };
    match truth {
        ExpectedValue::Values(values, scale) => {
            let n = values.len() as f64;
            match value {
                StepValue::Distribution(mixture) => *scale == 1.0 && mixture.count() as f64 == n,
                StepValue::Histogram(histogram) => near(histogram.count, n * scale),
                _ => false,
            }
        }
        ExpectedValue::Number(truth, tolerance) => {
            let Some(bracket) = value.bracket() else { return false };
            match tolerance {
                Tolerance::None => *value == StepValue::Number(*truth),
                Tolerance::Rounding => {
                    bracket.is_exact() && near(bracket.estimate, *truth)
                        || truth.is_nan() && bracket.estimate.is_nan()
                }
                Tolerance::Unbounded => true,
                // Division by zero.
                Tolerance::Bounds if !truth.is_finite() || bracket.estimate.is_nan() => true,
                Tolerance::Bounds => {
                    let tolerance = 1e-9 * (truth.abs() + 1e-9);
                    bracket.lower - tolerance <= *truth && *truth <= bracket.upper + tolerance
                }
            }
        }
    }
}

fn check(seed: u64) {
    let mut random = Splitmix64(seed);
    let raw = RawData::new(&mut random);
    let store = build_store(&raw, &mut random);
    let view = store.view().unwrap();
    let source = StoreSource::new(&view);
    for number in 0..QUESTIONS {
        let (start, end, step) = times(&mut random);
        let ask = RandomQuery::new(&mut random, 3);
        let text = ask.to_string();
        let options = promql::Options::all();
        let question =
            QueryRequest { text: &text, language: Language::PromQl, start, end, step, options };
        let settings = Settings { averaged_quantiles: true, ..Settings::default() };
        let found = query::testing::execute_with_stats(&source, &question, &settings, &|| false);
        let what =
            format!("seed {seed}, question {number}: {text} from {start} to {end} by {step}");
        let (answer, beside) =
            found.unwrap_or_else(|error| panic!("{what}: {}", error.format_with_source(&text)));
        assert_eq!(beside, 0, "{what}");
        let times: Vec<i64> = answer.steps.times().collect();
        let mut truths = expected_series(&raw, &ask, &times);
        if let RandomQuery::RangeStatistic {
            statistic: RangeStatistic::First | RangeStatistic::Last,
            pick,
        } = &ask
        {
            // Results that keep the metric name.
            let named = |mut tags: TagMap| {
                tags.insert(NAME.to_owned(), pick.name.to_owned());
                tags
            };
            truths = truths.into_iter().map(|(tags, points)| (named(tags), points)).collect();
        }
        if let Some(wrong) = find_error(&answer, &truths) {
            panic!("{what}\n{wrong}");
        }
    }
}

// slow: thousands of queries, each also answered from raw values.
#[test]
fn results_match_the_oracle() {
    (0..24).for_each(check);
}

#[test]
#[ignore = "soak: a hundred thousand stores, some hours"]
fn soak_results_match_the_oracle() {
    (1 << 32..(1 << 32) + 100_000).for_each(check);
}
