//! Query result as JSON.

use std::sync::Arc;

use hist::{Bracket, Cell};
use query::maxima::{MaxQuery, Maxima};
use query::{
    BucketGrid, FloatHistogram, LabelSet, QueryResult, QueryWarningKind, QueryWarnings, ResultData,
    SeriesPoint, SeriesPoints, SourceSpan, StepGrid, StepValue, Stream,
};
use serde_json::Value;

use super::reader::DocumentReader;
use super::wide_bounds::wide_bounds_warning;
use super::{CellEncoding, encoded_distribution, gap};
use crate::error::{Result, bail};
use render::json::Json::{self, Integer, List, Null, Object, Text};
use render::json::number;

/// A query result with the maxima of its percentiles. With frames it has the evaluation timestamps,
/// too, and [`from_json`] reads it back.
pub fn to_json(result: &QueryResult, maxima: &[Maxima], cells: CellEncoding) -> Json {
    let (kind, data) = match &result.data {
        ResultData::Scalar(numbers) => {
            ("scalar", List(points_json(result, numbers.iter().map(|n| Some(number_or_text(*n))))))
        }
        ResultData::Text(text) => ("text", Text(text.clone())),
        ResultData::Vector(streams) => {
            ("vector", List(streams.iter().map(|it| stream_json(result, it, cells)).collect()))
        }
        ResultData::Matrix(streams) => {
            ("matrix", List(streams.iter().map(|it| stream_json(result, it, cells)).collect()))
        }
        ResultData::RawSamples(series) => {
            let series = series.iter().map(|series| {
                let samples = series.points.iter().map(|it| sample_json(it, cells)).collect();
                Object(vec![
                    ("labels", super::labels(series.labels.iter())),
                    ("samples", List(samples)),
                ])
            });
            ("samples", List(series.collect()))
        }
    };
    let maximum = |maxima: &Maxima| {
        let streams = maxima.streams.iter().map(|it| stream_json(result, it, cells)).collect();
        Object(vec![
            ("expression", Text(maxima.expression.clone())),
            ("unit", maxima.unit.clone().map_or(Null, Text)),
            ("data", List(streams)),
        ])
    };
    let notes = |kind| {
        result.warnings.of_kind(kind).map(|(text, _)| Text(text.to_owned())).collect::<Vec<_>>()
    };
    let mut warnings = notes(QueryWarningKind::Warning);
    // A reader of frames has the values themselves.
    if cells == CellEncoding::Objects {
        warnings.extend(wide_bounds_warning(result).map(Text));
    }
    let mut fields = vec![
        ("schema", Integer(2)),
        ("kind", Text(kind.to_owned())),
        ("unit", result.unit.clone().map_or(Null, Text)),
        ("data", data),
        ("maxima", List(maxima.iter().map(maximum).collect())),
        ("warnings", List(warnings)),
        ("infos", List(notes(QueryWarningKind::Info))),
        ("gaps", List(result.gaps.iter().map(gap).collect())),
    ];
    if cells == CellEncoding::Frames {
        let StepGrid { start, step, count } = result.steps;
        let steps = vec![
            ("start_ns", Integer(start.into())),
            ("step_ns", Integer(step.into())),
            ("count", Integer(count as i128)),
        ];
        fields.push(("steps", Object(steps)));
    }
    Object(fields)
}

/// Reads a document with frames. `queries` are the maximum queries of the expression.
pub fn from_json(document: &Value, queries: Vec<MaxQuery>) -> Result<(QueryResult, Vec<Maxima>)> {
    let document = DocumentReader::new(document);
    let steps = document.get("steps");
    let steps = StepGrid {
        start: steps.get("start_ns").integer()?,
        step: steps.get("step_ns").integer()?,
        count: steps.get("count").count()? as usize,
    };
    if steps.step <= 0 {
        bail!("cannot read the answer: steps of {} ns", steps.step);
    }
    let data = document.get("data");
    let data = match document.get("kind").text()? {
        "scalar" => ResultData::Scalar(
            read_points(data, &steps, |value| value.number())?
                .into_iter()
                .map(|number| number.unwrap_or(f64::NAN))
                .collect(),
        ),
        "text" => ResultData::Text(data.text()?.to_owned()),
        "vector" => ResultData::Vector(read_streams(data, &steps)?),
        "matrix" => ResultData::Matrix(read_streams(data, &steps)?),
        "samples" => ResultData::RawSamples(data.list()?.map(read_series).collect::<Result<_>>()?),
        other => bail!("cannot read the answer: unknown kind {other:?}"),
    };
    let mut warnings = QueryWarnings::default();
    for warning in document.get("warnings").list()? {
        warnings.warn(SourceSpan::default(), warning.text()?);
    }
    for info in document.get("infos").list()? {
        warnings.info(SourceSpan::default(), info.text()?);
    }
    let unit = document.get("unit").optional_text()?.map(str::to_owned);
    let gaps = document.get("gaps").gaps()?;
    let answer = QueryResult { data, steps, warnings, gaps, unit };
    let maxima = read_maxima(document.get("maxima"), &answer, queries)?;
    Ok((answer, maxima))
}

fn read_maxima(
    list: DocumentReader<'_>,
    answer: &QueryResult,
    queries: Vec<MaxQuery>,
) -> Result<Vec<Maxima>> {
    let streams: &[Stream] = match &answer.data {
        ResultData::Vector(streams) | ResultData::Matrix(streams) => streams,
        _ => return Ok(Vec::new()),
    };
    let mut maxima = Vec::new();
    for maximum in list.list()? {
        let expression = maximum.get("expression").text()?;
        let Some(query) = queries.iter().find(|query| query.expression == expression) else {
            continue;
        };
        let result = QueryResult {
            data: ResultData::Matrix(read_streams(maximum.get("data"), &answer.steps)?),
            steps: answer.steps,
            warnings: QueryWarnings::default(),
            gaps: Vec::new(),
            unit: maximum.get("unit").optional_text()?.map(str::to_owned),
        };
        maxima.extend(Maxima::new(query.clone(), result, streams));
    }
    Ok(maxima)
}

fn read_streams(list: DocumentReader<'_>, steps: &StepGrid) -> Result<Vec<Stream>> {
    let read = |stream: DocumentReader<'_>| {
        let points = read_points(stream.get("points"), steps, read_value)?;
        Ok(Stream::new(stream.get("labels").labels()?, points))
    };
    list.list()?.map(read).collect()
}

fn read_points<T>(
    list: DocumentReader<'_>,
    steps: &StepGrid,
    read: impl Fn(DocumentReader<'_>) -> Result<T>,
) -> Result<Vec<Option<T>>> {
    let mut points: Vec<Option<T>> = (0..steps.count).map(|_| None).collect();
    for point in list.list()? {
        let time = point.get("time_ns").integer()?;
        let at = time.checked_sub(steps.start).map(|after| after / steps.step);
        let at = at.and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| points.get_mut(at)) {
            Some(slot) => *slot = Some(read(point.get("value"))?),
            None => bail!("cannot read the answer: {time} ns is not a step of the query"),
        }
    }
    Ok(points)
}

fn read_series(series: DocumentReader<'_>) -> Result<SeriesPoints> {
    let read = |point: DocumentReader<'_>| {
        let start = point.get("start_ns");
        Ok(SeriesPoint {
            start: if start.is_null() { None } else { Some(start.integer()?) },
            time: point.get("time_ns").integer()?,
            value: read_value(point.get("value"))?,
        })
    };
    let points = series.get("samples").list()?.map(read).collect::<Result<_>>()?;
    Ok(SeriesPoints { labels: series.get("labels").labels()?, points, ..SeriesPoints::default() })
}

fn read_value(value: DocumentReader<'_>) -> Result<StepValue> {
    Ok(if !value.get("frames").is_null() {
        StepValue::Distribution(Arc::new(value.mixture()?))
    } else if !value.get("buckets").is_null() {
        StepValue::Histogram(Arc::new(read_histogram(value)?))
    } else if !value.get("estimate").is_null() {
        StepValue::Bracket(Box::new(value.bracket()?))
    } else {
        StepValue::Number(value.number()?)
    })
}

/// A float histogram with the same buckets, on a grid of their own bounds.
fn read_histogram(value: DocumentReader<'_>) -> Result<FloatHistogram> {
    let (mut bounds, mut counts): (Vec<f64>, Vec<(i32, f64)>) = (Vec::new(), Vec::new());
    for bucket in value.get("buckets").list()? {
        let (lower, upper) = (bucket.get("lower").number()?, bucket.get("upper").number()?);
        if lower.is_finite() && bounds.last() != Some(&lower) {
            bounds.push(lower);
        }
        if upper.is_finite() {
            bounds.push(upper);
        }
        let index = if upper.is_finite() { bounds.len() - 1 } else { bounds.len() };
        counts.push((index as i32, bucket.get("count").number()?));
    }
    Ok(FloatHistogram {
        grid: BucketGrid::Custom(bounds.into()),
        count: value.get("count").number()?,
        sum: value.get("sum").number()?,
        positive: counts,
        ..FloatHistogram::default()
    })
}

fn stream_json(result: &QueryResult, stream: &Stream, cells: CellEncoding) -> Json {
    let values =
        stream.points.iter().map(|point| point.as_ref().map(|value| value_json(value, cells)));
    Object(vec![
        ("labels", super::labels(stream.labels.iter())),
        ("points", List(points_json(result, values))),
    ])
}

/// Existing points only; times in nanoseconds.
fn points_json(result: &QueryResult, values: impl Iterator<Item = Option<Json>>) -> Vec<Json> {
    let point = |(at, value): (usize, Option<Json>)| {
        let time = Integer(result.steps.time(at).into());
        Some(Object(vec![("time_ns", time), ("value", value?)]))
    };
    let mut points: Vec<Json> = values.enumerate().filter_map(point).collect();
    // The vector grew by doubling, and is kept until the response is written.
    points.shrink_to_fit();
    points
}

fn sample_json(sample: &SeriesPoint, cells: CellEncoding) -> Json {
    Object(vec![
        ("start_ns", sample.start.map_or(Null, |start| Integer(start.into()))),
        ("time_ns", Integer(sample.time.into())),
        ("value", value_json(&sample.value, cells)),
    ])
}

/// A number, a statistic with its bounds, or a distribution with its buckets.
fn value_json(value: &StepValue, cells: CellEncoding) -> Json {
    match value {
        StepValue::Number(number) => number_or_text(*number),
        StepValue::Bracket(bracket) => bracket_json(**bracket),
        StepValue::Distribution(mixture) => {
            let mut fields = encoded_distribution(mixture, cells);
            let statistics =
                [("sum", Some(mixture.sum())), ("min", mixture.min()), ("max", mixture.max())];
            for (name, bracket) in statistics {
                let field = fields.iter_mut().find(|field| field.0 == name);
                field.expect("BUG: a distribution has sum, min and max").1 =
                    bracket.map_or(Null, bracket_json);
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
fn bracket_json(bracket: Bracket) -> Json {
    Object(vec![
        ("lower", number_or_text(bracket.lower)),
        ("estimate", number_or_text(bracket.estimate)),
        ("upper", number_or_text(bracket.upper)),
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

/// Estimated memory of result data and its JSON tree. Larger results are rejected before the tree
/// is built.
pub fn data_bytes(data: &ResultData) -> usize {
    match data {
        ResultData::Scalar(numbers) => numbers.len() * (size_of::<f64>() + POINT_BYTES),
        ResultData::Text(text) => 2 * text.len(),
        ResultData::Vector(streams) | ResultData::Matrix(streams) => streams_bytes(streams),
        ResultData::RawSamples(series) => {
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
        StepValue::Bracket(bracket) => size_of_val(&**bracket) + BRACKET_BYTES,
        StepValue::Distribution(mixture) => {
            let cells: usize = mixture.components().iter().map(|part| part.cells().count()).sum();
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
        expected.assert_eq(&format!("{:#}", value_json(of, CellEncoding::Objects)));
    }

    #[test]
    fn infinite_bounds_are_texts() {
        // An infinite bound of a statistic is a text, as in Prometheus. A cell at the open end of
        // its grid has no bound: null, as in docs/query.md.
        check(&StepValue::Number(f64::NAN), expect![[r#""NaN""#]]);
        let bracket = |of| StepValue::Bracket(Box::new(of));
        check(
            &bracket(Bracket { lower: f64::NEG_INFINITY, estimate: 1.5, upper: f64::INFINITY }),
            expect![[r#"{"lower":"-Inf","estimate":1.5,"upper":"+Inf"}"#]],
        );
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
