//! Query result as JSON.

use hist::{Bracket, Cell};
use query::{LabelSet, QueryResult, QueryWarningKind, ResultData, SeriesPoint, StepValue, Stream};

use super::{distribution, gap};
use query::maxima::Maxima;
use render::json::Json::{self, Integer, List, Null, Object, Text};
use render::json::number;

/// A query result with the maxima of its percentiles.
pub fn to_json(answer: &QueryResult, maxima: &[Maxima]) -> Json {
    let (kind, data) = match &answer.data {
        ResultData::Scalar(numbers) => (
            "scalar",
            List(points_json(
                answer,
                numbers.iter().map(|n| Some(value_json(&StepValue::Number(*n)))),
            )),
        ),
        ResultData::Text(text) => ("text", Text(text.clone())),
        ResultData::Vector(streams) => {
            ("vector", List(streams.iter().map(|of| stream_json(answer, of)).collect()))
        }
        ResultData::Matrix(streams) => {
            ("matrix", List(streams.iter().map(|of| stream_json(answer, of)).collect()))
        }
        ResultData::Points(series) => {
            let series = series.iter().map(|of| {
                let readings = of.points.iter().map(reading_json).collect();
                Object(vec![
                    ("labels", super::labels(of.labels.iter())),
                    ("samples", List(readings)),
                ])
            });
            ("samples", List(series.collect()))
        }
    };
    let maximum = |of: &Maxima| {
        let streams = of.streams.iter().map(|of| stream_json(answer, of)).collect();
        Object(vec![
            ("expression", Text(of.expression.clone())),
            ("unit", of.unit.clone().map_or(Null, Text)),
            ("data", List(streams)),
        ])
    };
    let notes =
        |kind| List(answer.warnings.of_kind(kind).map(|(text, _)| Text(text.to_owned())).collect());
    Object(vec![
        ("schema", Integer(2)),
        ("kind", Text(kind.to_owned())),
        ("unit", answer.unit.clone().map_or(Null, Text)),
        ("data", data),
        ("maxima", List(maxima.iter().map(maximum).collect())),
        ("warnings", notes(QueryWarningKind::Warning)),
        ("infos", notes(QueryWarningKind::Info)),
        ("gaps", List(answer.gaps.iter().map(gap).collect())),
    ])
}

fn stream_json(answer: &QueryResult, stream: &Stream) -> Json {
    let values = stream.points.iter().map(|point| point.as_ref().map(value_json));
    Object(vec![
        ("labels", super::labels(stream.labels.iter())),
        ("points", List(points_json(answer, values))),
    ])
}

/// Existing points only; times in nanoseconds.
fn points_json(answer: &QueryResult, values: impl Iterator<Item = Option<Json>>) -> Vec<Json> {
    let of = |(at, value): (usize, Option<Json>)| {
        let time = Integer(answer.steps.time(at).into());
        Some(Object(vec![("time_ns", time), ("value", value?)]))
    };
    let mut points: Vec<Json> = values.enumerate().filter_map(of).collect();
    // The vector grew by doubling, and is kept until the response is written.
    points.shrink_to_fit();
    points
}

fn reading_json(reading: &SeriesPoint) -> Json {
    Object(vec![
        ("start_ns", reading.start.map_or(Null, |start| Integer(start.into()))),
        ("time_ns", Integer(reading.time.into())),
        ("value", value_json(&reading.value)),
    ])
}

/// A number, a statistic with its bounds, or a distribution with its buckets.
fn value_json(value: &StepValue) -> Json {
    match value {
        StepValue::Number(of) => number_or_text(*of),
        StepValue::Bracket(of) => bracket_json(**of),
        StepValue::Distribution(mixture) => {
            let mut fields = distribution(mixture);
            let statistics =
                [("sum", Some(mixture.sum())), ("min", mixture.min()), ("max", mixture.max())];
            for (name, of) in statistics {
                let field = fields.iter_mut().find(|field| field.0 == name);
                field.expect("BUG: a distribution has sum, min and max").1 =
                    of.map_or(Null, bracket_json);
            }
            Object(fields)
        }
        StepValue::Histogram(histogram) => {
            let buckets = histogram.buckets().map(|bucket| {
                Object(vec![
                    ("lower", number_or_text(bucket.lower)),
                    ("upper", number_or_text(bucket.upper)),
                    ("count", number_or_text(bucket.count)),
                ])
            });
            Object(vec![
                ("count", number_or_text(histogram.count)),
                ("sum", number_or_text(histogram.sum)),
                ("buckets", List(buckets.collect())),
            ])
        }
    }
}

/// A statistic with its bounds.
fn bracket_json(of: Bracket) -> Json {
    Object(vec![
        ("lower", number_or_text(of.lower)),
        ("estimate", number_or_text(of.estimate)),
        ("upper", number_or_text(of.upper)),
    ])
}

/// A number; values that JSON lacks (NaN, infinities) are strings, as in Prometheus.
fn number_or_text(x: f64) -> Json {
    match x {
        _ if x.is_finite() => number(x),
        _ if x.is_nan() => Text("NaN".to_owned()),
        _ => Text(if x > 0.0 { "+Inf" } else { "-Inf" }.to_owned()),
    }
}

/// Size of a field of an object.
const FIELD_BYTES: usize = size_of::<(&str, Json)>();
/// Size of a bracket, beside the value itself.
const BRACKET_BYTES: usize = 3 * FIELD_BYTES;

/// Size of result data in memory plus its JSON document, before serialization. Results over the
/// limit are rejected by this before the document is built, which is several times as large.
pub fn data_bytes(data: &ResultData) -> usize {
    match data {
        ResultData::Scalar(numbers) => numbers.len() * (size_of::<f64>() + POINT_BYTES),
        ResultData::Text(text) => 2 * text.len(),
        ResultData::Vector(streams) | ResultData::Matrix(streams) => streams_bytes(streams),
        ResultData::Points(series) => {
            let one = |of: &SeriesPoint| {
                size_of::<SeriesPoint>() + POINT_BYTES + FIELD_BYTES + value_bytes(&of.value)
            };
            let of = |of: &query::SeriesPoints| {
                labels_bytes(&of.labels) + of.points.iter().map(one).sum::<usize>()
            };
            series.iter().map(of).sum()
        }
    }
}

/// Size of a time and a value, without the value's own memory.
const POINT_BYTES: usize = size_of::<Json>() + 2 * FIELD_BYTES;

/// The same for streams.
pub fn streams_bytes(streams: &[Stream]) -> usize {
    let of = |stream: &Stream| {
        let points = stream.points.iter().flatten();
        labels_bytes(&stream.labels)
            + stream.points.len() * size_of::<Option<StepValue>>()
            + points.map(|value| POINT_BYTES + value_bytes(value)).sum::<usize>()
    };
    streams.iter().map(of).sum()
}

fn labels_bytes(labels: &LabelSet) -> usize {
    let one = |(name, value): (&str, &str)| size_of::<(String, Json)>() + name.len() + value.len();
    size_of::<Stream>()
        + size_of::<Json>()
        + 2 * FIELD_BYTES
        + labels.iter().map(one).sum::<usize>()
}

fn value_bytes(value: &StepValue) -> usize {
    match value {
        StepValue::Number(_) => 0,
        StepValue::Bracket(of) => size_of_val(&**of) + BRACKET_BYTES,
        StepValue::Distribution(mixture) => {
            let cells: usize = mixture.parts().iter().map(|part| part.cells().count()).sum();
            // Collected without a size hint, vectors have up to twice the capacity.
            5 * FIELD_BYTES + 3 * BRACKET_BYTES + 2 * cells * size_of::<Cell>()
        }
        StepValue::Histogram(histogram) => {
            let buckets = histogram.buckets().count();
            3 * FIELD_BYTES + 2 * buckets * size_of::<Json>() + buckets * BRACKET_BYTES
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use hist::{Histogram, Scheme};

    use super::*;

    #[track_caller]
    fn check(of: &StepValue, expected: Expect) {
        expected.assert_eq(&format!("{:#}", value_json(of)));
    }

    #[test]
    fn infinite_bounds_are_texts() {
        check(&StepValue::Number(f64::NAN), expect![[r#""NaN""#]]);
        let bracket = |of| StepValue::Bracket(Box::new(of));
        check(
            &bracket(Bracket { lower: f64::NEG_INFINITY, estimate: 1.5, upper: f64::INFINITY }),
            expect![[r#"{"lower":"-Inf","estimate":1.5,"upper":"+Inf"}"#]],
        );
        // No lower bound, and an infinite one, differ.
        check(
            &bracket(Bracket::exact(f64::INFINITY)),
            expect![[r#"{"lower":"+Inf","estimate":"+Inf","upper":"+Inf"}"#]],
        );
        let mut parts = hist::HistogramParts::new(Scheme::explicit(&[1.0]).unwrap());
        parts.positive = vec![(1, 2)];
        let open = hist::Mixture::from(Histogram::from_parts(parts).unwrap());
        check(
            &StepValue::Distribution(std::sync::Arc::new(open)),
            expect![[
                r#"{"count":2,"sum":{"lower":1.9999999999999938,"estimate":2.0000000000000004,"upper":"+Inf"},"min":{"lower":1.0000000000000002,"estimate":1.0000000000000002,"upper":"+Inf"},"max":{"lower":1.0000000000000002,"estimate":1.0000000000000002,"upper":"+Inf"},"cells":[{"lower":1.0000000000000002,"upper":null,"count":2}]}"#
            ]],
        );
    }
}
