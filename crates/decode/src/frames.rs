//! topdeck's lossless line format: one JSON object per sample.
//!
//! ```text
//! {"metric":"m","labels":{"host":"a"},"start_ns":0,"end_ns":60000000000,"frame":"0QECAQAA"}
//! {"metric":"depth","labels":{},"unit":"jobs","start_ns":0,"end_ns":0,"kind":"gauge","number":17.0}
//! {"metric":"version","labels":{},"start_ns":0,"end_ns":0,"kind":"text","text":"1.2.3"}
//! ```
//!
//! `frame` is base64 of `hist::codec::frame`: buckets, exact statistics, unit and temporality are
//! preserved. All other fields are optional. Labels keep their order. Times are integer nanoseconds
//! since the Unix epoch. Unknown fields are ignored. Specification: `docs/formats/frames.md`.

use std::fmt::Write as _;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

use codecs::frame_text;
use hist::Histogram;
use hist::codec::frame::{self, SeriesMeta, Temporality};

use crate::decimal;
use crate::decoded_sample::{DecodedSample, DecodedValue, SampleSink, SampleTemporality};
use crate::input_error::{InputError, InputPosition, quote};
use crate::json::{JsonToken, JsonTokenizer};
use crate::lines::{self, InputLine};
use crate::unit::Unit;

/// A histogram with all 46,082 buckets, each with a 64-bit count, takes 700 kB in base64.
const LINE_BYTES_MAX: usize = 1 << 20;

const EXPECTED: &str = "an object with a frame: {\"metric\":\"…\",\"frame\":\"…\"}";

/// Kinds of numbers, as in selectors. The last three are names of earlier versions: exported files
/// remain readable.
const TEMPORALITIES: [(SampleTemporality, &str); 6] = [
    (SampleTemporality::Delta, "delta-counter"),
    (SampleTemporality::Cumulative, "cumulative-counter"),
    (SampleTemporality::Instant, "gauge"),
    (SampleTemporality::Delta, "count"),
    (SampleTemporality::Cumulative, "counter"),
    (SampleTemporality::Cumulative, "cumulative-count"),
];
const TEXT_KIND: &str = "text";

/// Units with a code in the frame format.
const UNITS: [(frame::FrameUnit, Unit); 5] = [
    (frame::FrameUnit::Nanoseconds, Unit::Nanoseconds),
    (frame::FrameUnit::Microseconds, Unit::Microseconds),
    (frame::FrameUnit::Milliseconds, Unit::Milliseconds),
    (frame::FrameUnit::Seconds, Unit::Seconds),
    (frame::FrameUnit::Bytes, Unit::Bytes),
];

/// Reads lines of JSON, one sample each.
pub fn read_lines(input: &mut dyn BufRead, sink: &mut dyn SampleSink) -> io::Result<()> {
    lines::for_each_line(input, LINE_BYTES_MAX, |number, line| {
        let line = match line {
            InputLine::Complete(line) => line.trim_ascii(),
            InputLine::TooLong { start } => {
                return sink.error(InputError::new(
                    InputPosition::Line(number),
                    EXPECTED,
                    quote(start),
                ));
            }
        };
        if line.is_empty() {
            return ControlFlow::Continue(());
        }
        match parse_object(line) {
            Ok(sample) => sink.sample(sample),
            Err(mut error) => {
                error.position = InputPosition::Line(number);
                return sink.error(error);
            }
        }
        ControlFlow::Continue(())
    })
}

/// Appends a line for a histogram of one interval, with the line end. A unit without a frame code
/// is written beside the frame.
pub fn write_histogram<'a>(
    out: &mut String,
    metric: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    (start_ns, end_ns): (i64, i64),
    unit: Option<&Unit>,
    histogram: &Histogram,
) {
    write_head(out, metric, labels, unit.filter(|unit| unit_code(unit).is_none()));
    write_times(out, Some(start_ns), Some(end_ns));
    write_frame(out, unit, Temporality::Delta, histogram);
}

/// Appends a line for any sample, with the line end.
pub fn write_sample(out: &mut String, sample: &DecodedSample) {
    let labels = sample.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let is_histogram = matches!(sample.value, DecodedValue::Histogram(_));
    let unit = sample.unit.as_ref();
    let unit_beside = unit.filter(|unit| !is_histogram || unit_code(unit).is_none());
    write_head(out, &sample.metric, labels, unit_beside);
    write_times(out, sample.start, sample.end);
    let word = TEMPORALITIES
        .iter()
        .find(|known| known.0 == sample.temporality)
        .expect("BUG: every temporality has a keyword")
        .1;
    let written = match &sample.value {
        DecodedValue::Histogram(histogram) => {
            let temporality = match sample.temporality {
                SampleTemporality::Cumulative => Temporality::Cumulative,
                SampleTemporality::Delta | SampleTemporality::Instant => Temporality::Delta,
            };
            return write_frame(out, unit, temporality, histogram);
        }
        DecodedValue::Integer(n) => write!(out, ",\"kind\":\"{word}\",\"number\":{n}"),
        DecodedValue::Number(x) if x.is_finite() => {
            write!(out, ",\"kind\":\"{word}\",\"number\":{x:?}")
        }
        DecodedValue::Number(x) => write!(out, ",\"kind\":\"{word}\",\"number\":\"{x:?}\""),
        DecodedValue::Text(text) => {
            out.push_str(",\"kind\":\"text\",\"text\":");
            write_text(out, text);
            Ok(())
        }
    };
    written.expect("writing to a String does not fail");
    out.push_str("}\n");
}

fn unit_code(unit: &Unit) -> Option<frame::FrameUnit> {
    UNITS.iter().find(|known| known.1 == *unit).map(|known| known.0)
}

fn write_head<'a>(
    out: &mut String,
    metric: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    unit: Option<&Unit>,
) {
    out.push_str("{\"metric\":");
    write_text(out, metric);
    out.push_str(",\"labels\":{");
    for (at, (name, value)) in labels.into_iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        write_text(out, name);
        out.push(':');
        write_text(out, value);
    }
    out.push('}');
    if let Some(unit) = unit {
        out.push_str(",\"unit\":");
        write_text(out, unit.name());
    }
}

fn write_times(out: &mut String, start_ns: Option<i64>, end_ns: Option<i64>) {
    for (name, time) in [("start_ns", start_ns), ("end_ns", end_ns)] {
        if let Some(time) = time {
            write!(out, ",\"{name}\":{time}").expect("writing to a String does not fail");
        }
    }
}

fn write_frame(
    out: &mut String,
    unit: Option<&Unit>,
    temporality: Temporality,
    histogram: &Histogram,
) {
    let unit = unit.and_then(unit_code).unwrap_or(frame::FrameUnit::None);
    let frame = frame_text::encode(histogram, SeriesMeta { unit, temporality });
    write!(out, ",\"frame\":\"{frame}\"}}").expect("writing to a String does not fail");
    out.push('\n');
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                write!(out, "\\u{:04x}", c as u32).expect("writing to a String does not fail")
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn parse_object(line: &[u8]) -> Result<DecodedSample, InputError> {
    let mut tokens = JsonTokenizer::new(line);
    let (mut sample, mut value, mut kind) =
        (DecodedSample::new(DecodedValue::Text(String::new())), None, None::<String>);
    if tokens.value()? != JsonToken::Object {
        return Err(unexpected(EXPECTED, line));
    }
    let (mut unit, mut temporality) = (None, None);
    while let Some(key) = tokens.key()? {
        match key.as_str() {
            "metric" => sample.metric = parse_text(&mut tokens, "a metric name in quotes")?,
            "labels" => sample.labels = parse_labels(&mut tokens)?,
            "start_ns" => sample.start = Some(parse_time(&mut tokens)?),
            "end_ns" => sample.end = Some(parse_time(&mut tokens)?),
            "unit" => {
                let name = parse_text(&mut tokens, "a unit in quotes")?;
                // A different spelling is a different series, so the spelling is preserved.
                let known = Unit::parse(&name).filter(|unit| unit.name() == name);
                unit = Some(known.unwrap_or(Unit::Other(name)));
            }
            "frame" => {
                let base64 = parse_text(&mut tokens, "base64 of a frame in quotes")?;
                let (histogram, found) = frame_text::decode(&base64).map_err(|error| {
                    let found = format!("{} ({error})", quote(base64.as_bytes()));
                    InputError::new(InputPosition::Byte(0), "base64 of a frame", found)
                })?;
                let known = UNITS.iter().find(|known| known.0 == found.unit);
                unit = known.map(|known| known.1.clone()).or(unit);
                temporality = Some(match found.temporality {
                    Temporality::Delta => SampleTemporality::Delta,
                    Temporality::Cumulative => SampleTemporality::Cumulative,
                });
                value = Some(DecodedValue::Histogram(Box::new(histogram)));
            }
            "kind" => kind = Some(parse_text(&mut tokens, "a kind in quotes")?),
            "number" => value = Some(DecodedValue::Number(parse_double(&mut tokens)?)),
            TEXT_KIND => {
                value = Some(DecodedValue::Text(parse_text(&mut tokens, "a text in quotes")?))
            }
            _ => tokens.skip()?,
        }
    }
    if !tokens.has_next_document() {
        return Err(unexpected("the end of the line", &line[tokens.offset()..]));
    }
    sample.value = value.ok_or_else(|| unexpected(EXPECTED, line))?;
    sample.temporality = match (&sample.value, kind) {
        (DecodedValue::Histogram(_), _) => temporality.unwrap_or(SampleTemporality::Delta),
        (DecodedValue::Text(_), _) | (_, None) => SampleTemporality::Instant,
        (_, Some(kind)) => {
            let known = TEMPORALITIES.iter().find(|known| known.1 == kind);
            let expected = "a kind: gauge, cumulative-counter or delta-counter";
            known.ok_or_else(|| unexpected(expected, kind.as_bytes()))?.0
        }
    };
    sample.unit = unit;
    Ok(sample)
}

/// JSON has no numbers for NaN and infinities, so they are quoted.
fn parse_double(tokens: &mut JsonTokenizer<'_>) -> Result<f64, InputError> {
    const EXPECTED: &str = "a number";
    let parsed = |text: &str| {
        decimal::parse(text.as_bytes()).ok_or_else(|| unexpected(EXPECTED, text.as_bytes()))
    };
    match tokens.value()? {
        JsonToken::Number(number) => parsed(number),
        JsonToken::Text(text) => parsed(&text),
        _ => Err(unexpected(EXPECTED, b"")),
    }
}

fn parse_labels(tokens: &mut JsonTokenizer<'_>) -> Result<Vec<(String, String)>, InputError> {
    const EXPECTED: &str = "labels: an object of strings";
    if tokens.value()? != JsonToken::Object {
        return Err(unexpected(EXPECTED, b""));
    }
    let mut labels = Vec::new();
    while let Some(name) = tokens.key()? {
        labels.push((name, parse_text(tokens, EXPECTED)?));
    }
    Ok(labels)
}

fn parse_text(
    tokens: &mut JsonTokenizer<'_>,
    expected: &'static str,
) -> Result<String, InputError> {
    match tokens.value()? {
        JsonToken::Text(text) => Ok(text),
        JsonToken::Number(number) => Err(unexpected(expected, number.as_bytes())),
        _ => Err(unexpected(expected, b"")),
    }
}

fn parse_time(tokens: &mut JsonTokenizer<'_>) -> Result<i64, InputError> {
    const EXPECTED: &str = "whole nanoseconds since 1970";
    match tokens.value()? {
        JsonToken::Number(number) => {
            number.parse().map_err(|_| unexpected(EXPECTED, number.as_bytes()))
        }
        JsonToken::Text(text) => Err(unexpected(EXPECTED, text.as_bytes())),
        _ => Err(unexpected(EXPECTED, b"")),
    }
}

/// The caller adds the line number.
fn unexpected(expected: &'static str, found: &[u8]) -> InputError {
    let found = if found.is_empty() { "something else".to_owned() } else { quote(found) };
    InputError::new(InputPosition::Byte(0), expected, found)
}

/// Whether the first line of the input is valid for this decoder and for no other: an object with a
/// member `frame` that is a frame, or with a metric name and a kind.
pub(crate) fn is_start(text: &[u8]) -> bool {
    let line = text.trim_ascii_start().split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut tokens = JsonTokenizer::new(line);
    if tokens.value() != Ok(JsonToken::Object) {
        return false;
    }
    let mut is_named = false;
    while let Ok(Some(key)) = tokens.key() {
        match key.as_str() {
            "frame" => {
                return matches!(tokens.value(), Ok(JsonToken::Text(text)) if text.starts_with("0Q"));
            }
            "kind" if is_named => {
                let known = |kind: &str| {
                    kind == TEXT_KIND || TEMPORALITIES.iter().any(|known| known.1 == kind)
                };
                return matches!(tokens.value(), Ok(JsonToken::Text(kind)) if known(&kind));
            }
            _ => is_named |= key == "metric",
        }
        if tokens.skip().is_err() {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded_sample::RecordingSink;

    #[track_caller]
    fn check(text: &str, expected: &[&str], errors: &[&str]) {
        let mut sink = RecordingSink::default();
        read_lines(&mut text.as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.dump_samples().lines().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(sink.error_texts(), errors);
    }

    fn line(histogram: &Histogram) -> String {
        let mut out = String::new();
        let labels = [("host", "a\"b\\c\n"), ("region", "µ")];
        write_histogram(
            &mut out,
            "latency",
            labels,
            (-5, i64::MAX),
            Some(&Unit::Nanoseconds),
            histogram,
        );
        out
    }

    #[test]
    fn sample_round_trips() {
        let mut histogram =
            Histogram::new(hist::Scheme::LogLinear10).with_thresholds(&[200.0]).unwrap();
        [123.0, 456.0, 456.0].into_iter().for_each(|value| histogram.record(value));
        let mut sink = RecordingSink::default();
        read_lines(&mut line(&histogram).as_bytes(), &mut sink).unwrap();
        let [sample] = &sink.samples[..] else { panic!("one sample: {:?}", sink.error_texts()) };
        assert_eq!(sample.metric, "latency");
        assert_eq!((sample.label("host"), sample.label("region")), (Some("a\"b\\c\n"), Some("µ")));
        assert_eq!((sample.start, sample.end), (Some(-5), Some(i64::MAX)));
        assert_eq!(sample.unit, Some(Unit::Nanoseconds));
        assert_eq!(sample.value, DecodedValue::Histogram(Box::new(histogram)));
    }

    #[test]
    fn missing_fields_stay_unknown() {
        check(
            "{\"frame\":\"0QECAAAA\",\"new\":[{}]}\n\n",
            &[" histogram of 0: sum Some(0.0)"],
            &[],
        );
    }

    #[test]
    fn damaged_lines_are_named_and_the_rest_is_read() {
        let empty = " histogram of 0: sum Some(0.0)";
        let good = "{\"frame\":\"0QECAAAA\"}";
        check(
            &format!("{good}\n{{\"metric\":\"a\"}}\n{{\"frame\":7}}\n[]\n{good} {good}\n{good}\n"),
            &[empty, empty],
            &[
                "line 2: expected an object with a frame: {\"metric\":\"…\",\"frame\":\"…\"}, \
                 found \"{\"metric\":\"a\"}\"",
                "line 3: expected base64 of a frame in quotes, found \"7\"",
                "line 4: expected an object with a frame: {\"metric\":\"…\",\"frame\":\"…\"}, \
                 found \"[]\"",
                "line 5: expected the end of the line, found \"{\"frame\":\"0QECAAAA\"}\"",
            ],
        );
        check(
            "{\"start_ns\":1.5}\n{\"labels\":{\"a\":1}}\n",
            &[],
            &[
                "line 1: expected whole nanoseconds since 1970, found \"1.5\"",
                "line 2: expected labels: an object of strings, found \"1\"",
            ],
        );
    }

    #[test]
    fn cumulative_temporality_round_trips() {
        let cumulative =
            SeriesMeta { temporality: Temporality::Cumulative, ..SeriesMeta::default() };
        let frame = frame_text::encode(&Histogram::default(), cumulative);
        let mut sink = RecordingSink::default();
        read_lines(&mut format!("{{\"frame\":\"{frame}\"}}").as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.samples[0].temporality, SampleTemporality::Cumulative);
    }

    #[test]
    fn samples_of_every_kind_round_trip() {
        let sample = |temporality, unit: Option<Unit>, value| DecodedSample {
            metric: "a \"b\"".to_owned(),
            labels: vec![("host".to_owned(), "x\n".to_owned())],
            unit,
            start: Some(i64::MIN),
            end: Some(7),
            temporality,
            value,
        };
        let jobs = Some(Unit::Other("jobs".to_owned()));
        let mut histogram = Histogram::default();
        histogram.record(12.5);
        let histogram = || DecodedValue::Histogram(Box::new(histogram.clone()));
        let samples = [
            sample(SampleTemporality::Delta, Some(Unit::Milliseconds), histogram()),
            sample(SampleTemporality::Cumulative, jobs.clone(), histogram()),
            sample(
                SampleTemporality::Cumulative,
                Some(Unit::Days),
                DecodedValue::Number(0.1 + 0.2),
            ),
            sample(SampleTemporality::Delta, None, DecodedValue::Number(f64::NEG_INFINITY)),
            sample(SampleTemporality::Instant, jobs, DecodedValue::Number(-0.0)),
            sample(SampleTemporality::Instant, None, DecodedValue::Text("µ \u{1}".to_owned())),
        ];
        let mut text = String::new();
        samples.iter().for_each(|sample| write_sample(&mut text, sample));
        for line in text.lines() {
            assert!(is_start(line.as_bytes()), "{line}");
        }
        let mut sink = RecordingSink::default();
        read_lines(&mut text.as_bytes(), &mut sink).unwrap();
        assert_eq!((sink.error_texts(), sink.samples), (Vec::new(), samples.to_vec()));
    }
}
