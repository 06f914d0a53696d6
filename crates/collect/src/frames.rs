//! Readings as topdeck keeps them: one JSON object per line.
//!
//! ```text
//! {"metric":"m","labels":{"host":"a"},"start_ns":0,"end_ns":60000000000,"frame":"0QECAQAA"}
//! {"metric":"depth","labels":{},"unit":"jobs","start_ns":0,"end_ns":0,"kind":"gauge","number":17.0}
//! {"metric":"version","labels":{},"start_ns":0,"end_ns":0,"kind":"text","text":"1.2.3"}
//! ```
//!
//! `frame` is base64 of `hist::codec::frame`: buckets, exact side values, and the unit and whether counts are
//! cumulative travel as they are. All other fields may be missing; labels keep their order, times are whole
//! nanoseconds since the Unix epoch. Fields that are not known are passed over. `docs/formats/frames.md` says
//! the same to a stranger.

use std::fmt::Write as _;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

use hist::Histogram;
use hist::codec::frame::{self, Meaning, Temporality};

use crate::json::{Token, Tokens};
use crate::lines::{self, Line};
use crate::number;
use crate::reading::{Over, Reading, Sink, Value};
use crate::trouble::{Place, Trouble, quote};
use crate::unit::Unit;

/// A histogram in all of 46,082 buckets, each with a count of 64 bits, is 700 kB in base64.
const LINE_BYTES_MAX: usize = 1 << 20;

const EXPECTED: &str = "an object with a frame: {\"metric\":\"…\",\"frame\":\"…\"}";

/// Words for what is no histogram.
const KINDS: [(Over, &str); 3] =
    [(Over::Interval, "count"), (Over::Total, "cumulative-count"), (Over::Moment, "gauge")];
const TEXT: &str = "text";

/// Units that a frame has a code for.
const UNITS: [(frame::Unit, Unit); 5] = [
    (frame::Unit::Nanoseconds, Unit::Nanoseconds),
    (frame::Unit::Microseconds, Unit::Microseconds),
    (frame::Unit::Milliseconds, Unit::Milliseconds),
    (frame::Unit::Seconds, Unit::Seconds),
    (frame::Unit::Bytes, Unit::Bytes),
];

/// Reads lines.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn Sink) -> io::Result<()> {
    lines::for_each(input, LINE_BYTES_MAX, |number, line| {
        let line = match line {
            Line::Whole(line) => line.trim_ascii(),
            Line::TooLong { start } => {
                return sink.trouble(Trouble::new(Place::Line(number), EXPECTED, quote(start)));
            }
        };
        if line.is_empty() {
            return ControlFlow::Continue(());
        }
        match object(line) {
            Ok(reading) => sink.reading(reading),
            Err(mut trouble) => {
                trouble.place = Place::Line(number);
                return sink.trouble(trouble);
            }
        }
        ControlFlow::Continue(())
    })
}

/// Appends a line for a histogram of one interval, its end included. A unit that frames have no code for
/// stands beside the frame.
pub fn write<'a>(
    out: &mut String,
    metric: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    (start_ns, end_ns): (i64, i64),
    unit: Option<&Unit>,
    histogram: &Histogram,
) {
    write_head(out, metric, labels, unit.filter(|unit| code_of(unit).is_none()));
    write_times(out, Some(start_ns), Some(end_ns));
    write_frame(out, unit, Temporality::Delta, histogram);
}

/// Appends a line for any reading, its end included.
pub fn write_reading(out: &mut String, reading: &Reading) {
    let labels = reading.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let is_histogram = matches!(reading.value, Value::Histogram(_));
    let unit = reading.unit.as_ref();
    let unit_beside = unit.filter(|unit| !is_histogram || code_of(unit).is_none());
    write_head(out, &reading.metric, labels, unit_beside);
    write_times(out, reading.start, reading.end);
    let word = KINDS.iter().find(|known| known.0 == reading.over).expect("BUG: all have a word").1;
    let written = match &reading.value {
        Value::Histogram(histogram) => {
            let temporality = match reading.over {
                Over::Total => Temporality::Cumulative,
                Over::Interval | Over::Moment => Temporality::Delta,
            };
            return write_frame(out, unit, temporality, histogram);
        }
        Value::Integer(n) => write!(out, ",\"kind\":\"{word}\",\"number\":{n}"),
        Value::Number(x) if x.is_finite() => {
            write!(out, ",\"kind\":\"{word}\",\"number\":{x:?}")
        }
        Value::Number(x) => write!(out, ",\"kind\":\"{word}\",\"number\":\"{x:?}\""),
        Value::Text(text) => {
            out.push_str(",\"kind\":\"text\",\"text\":");
            write_text(out, text);
            Ok(())
        }
    };
    written.expect("a String takes all");
    out.push_str("}\n");
}

fn code_of(unit: &Unit) -> Option<frame::Unit> {
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
            write!(out, ",\"{name}\":{time}").expect("a String takes all");
        }
    }
}

fn write_frame(
    out: &mut String,
    unit: Option<&Unit>,
    temporality: Temporality,
    histogram: &Histogram,
) {
    let unit = unit.and_then(code_of).unwrap_or(frame::Unit::None);
    let frame = frame::encode_base64(histogram, Meaning { unit, temporality });
    write!(out, ",\"frame\":\"{frame}\"}}").expect("a String takes all");
    out.push('\n');
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => write!(out, "\\u{:04x}", c as u32).expect("a String takes all"),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn object(line: &[u8]) -> Result<Reading, Trouble> {
    let mut tokens = Tokens::new(line);
    let (mut reading, mut value, mut kind) =
        (Reading::new(Value::Text(String::new())), None, None::<String>);
    if tokens.value()? != Token::Object {
        return Err(wrong(EXPECTED, line));
    }
    let (mut unit, mut over) = (None, None);
    while let Some(key) = tokens.key()? {
        match key.as_str() {
            "metric" => reading.metric = text(&mut tokens, "a metric's name in quotes")?,
            "labels" => reading.labels = labels(&mut tokens)?,
            "start_ns" => reading.start = Some(time(&mut tokens)?),
            "end_ns" => reading.end = Some(time(&mut tokens)?),
            "unit" => {
                let name = text(&mut tokens, "a unit in quotes")?;
                // Another spelling is another series: it is kept.
                let known = Unit::parse(&name).filter(|unit| unit.name() == name);
                unit = Some(known.unwrap_or(Unit::Other(name)));
            }
            "frame" => {
                let base64 = text(&mut tokens, "base64 of a frame in quotes")?;
                let (histogram, found) = frame::decode_base64(&base64).map_err(|error| {
                    let found = format!("{} ({error})", quote(base64.as_bytes()));
                    Trouble::new(Place::Byte(0), "base64 of a frame", found)
                })?;
                let known = UNITS.iter().find(|known| known.0 == found.unit);
                unit = known.map(|known| known.1.clone()).or(unit);
                over = Some(match found.temporality {
                    Temporality::Delta => Over::Interval,
                    Temporality::Cumulative => Over::Total,
                });
                value = Some(Value::Histogram(Box::new(histogram)));
            }
            "kind" => kind = Some(text(&mut tokens, "a kind in quotes")?),
            "number" => value = Some(Value::Number(double(&mut tokens)?)),
            TEXT => value = Some(Value::Text(text(&mut tokens, "a text in quotes")?)),
            _ => tokens.skip()?,
        }
    }
    if !tokens.at_end() {
        return Err(wrong("the end of the line", &line[tokens.offset()..]));
    }
    reading.value = value.ok_or_else(|| wrong(EXPECTED, line))?;
    reading.over = match (&reading.value, kind) {
        (Value::Histogram(_), _) => over.unwrap_or(Over::Interval),
        (Value::Text(_), _) | (_, None) => Over::Moment,
        (_, Some(kind)) => {
            let known = KINDS.iter().find(|known| known.1 == kind);
            let expected = "a kind: gauge, count or cumulative-count";
            known.ok_or_else(|| wrong(expected, kind.as_bytes()))?.0
        }
    };
    reading.unit = unit;
    Ok(reading)
}

/// JSON has no word for what is not finite: those are in quotes.
fn double(tokens: &mut Tokens<'_>) -> Result<f64, Trouble> {
    const EXPECTED: &str = "a number";
    let parsed =
        |text: &str| number::parse(text.as_bytes()).ok_or_else(|| wrong(EXPECTED, text.as_bytes()));
    match tokens.value()? {
        Token::Number(number) => parsed(number),
        Token::Text(text) => parsed(&text),
        _ => Err(wrong(EXPECTED, b"")),
    }
}

fn labels(tokens: &mut Tokens<'_>) -> Result<Vec<(String, String)>, Trouble> {
    const EXPECTED: &str = "labels: an object of texts";
    if tokens.value()? != Token::Object {
        return Err(wrong(EXPECTED, b""));
    }
    let mut labels = Vec::new();
    while let Some(name) = tokens.key()? {
        labels.push((name, text(tokens, EXPECTED)?));
    }
    Ok(labels)
}

fn text(tokens: &mut Tokens<'_>, expected: &'static str) -> Result<String, Trouble> {
    match tokens.value()? {
        Token::Text(text) => Ok(text),
        Token::Number(number) => Err(wrong(expected, number.as_bytes())),
        _ => Err(wrong(expected, b"")),
    }
}

fn time(tokens: &mut Tokens<'_>) -> Result<i64, Trouble> {
    const EXPECTED: &str = "whole nanoseconds since 1970";
    match tokens.value()? {
        Token::Number(number) => number.parse().map_err(|_| wrong(EXPECTED, number.as_bytes())),
        Token::Text(text) => Err(wrong(EXPECTED, text.as_bytes())),
        _ => Err(wrong(EXPECTED, b"")),
    }
}

/// The line is known to the caller.
fn wrong(expected: &'static str, found: &[u8]) -> Trouble {
    let found = if found.is_empty() { "something else".to_owned() } else { quote(found) };
    Trouble::new(Place::Byte(0), expected, found)
}

/// Whether the first line of an input is what this source reads and no other: an object whose member
/// `frame` is a frame, or that has a metric's name and a kind.
pub(crate) fn is_start(text: &[u8]) -> bool {
    let line = text.trim_ascii_start().split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut tokens = Tokens::new(line);
    if tokens.value() != Ok(Token::Object) {
        return false;
    }
    let mut is_named = false;
    while let Ok(Some(key)) = tokens.key() {
        match key.as_str() {
            "frame" => {
                return matches!(tokens.value(), Ok(Token::Text(text)) if text.starts_with("0Q"));
            }
            "kind" if is_named => {
                let known = |kind: &str| kind == TEXT || KINDS.iter().any(|known| known.1 == kind);
                return matches!(tokens.value(), Ok(Token::Text(kind)) if known(&kind));
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
    use crate::reading::Recorded;

    #[track_caller]
    fn check(text: &str, expected: &[&str], troubles: &[&str]) {
        let mut sink = Recorded::default();
        read(&mut text.as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.shown().lines().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(sink.troubles(), troubles);
    }

    fn line(histogram: &Histogram) -> String {
        let mut out = String::new();
        let labels = [("host", "a\"b\\c\n"), ("region", "µ")];
        write(&mut out, "latency", labels, (-5, i64::MAX), Some(&Unit::Nanoseconds), histogram);
        out
    }

    #[test]
    fn all_that_a_reading_holds_comes_back() {
        let mut histogram =
            Histogram::new(hist::Scheme::LogLinear10).with_thresholds(&[200.0]).unwrap();
        [123.0, 456.0, 456.0].into_iter().for_each(|value| histogram.record(value));
        let mut sink = Recorded::default();
        read(&mut line(&histogram).as_bytes(), &mut sink).unwrap();
        let [reading] = &sink.readings[..] else { panic!("one reading: {:?}", sink.troubles()) };
        assert_eq!(reading.metric, "latency");
        assert_eq!(
            (reading.label("host"), reading.label("region")),
            (Some("a\"b\\c\n"), Some("µ"))
        );
        assert_eq!((reading.start, reading.end), (Some(-5), Some(i64::MAX)));
        assert_eq!(reading.unit, Some(Unit::Nanoseconds));
        assert_eq!(reading.value, Value::Histogram(Box::new(histogram)));
    }

    #[test]
    fn what_is_not_said_is_not_known() {
        check(
            "{\"frame\":\"0QECAAAA\",\"new\":[{}]}\n\n",
            &[" histogram of 0: sum Some(0.0)"],
            &[],
        );
    }

    #[test]
    fn damage_is_named_and_the_rest_is_read() {
        let empty = " histogram of 0: sum Some(0.0)";
        let good = "{\"frame\":\"0QECAAAA\"}";
        check(
            &format!("{good}\n{{\"metric\":\"a\"}}\n{{\"frame\":7}}\n[]\n{good} {good}\n{good}\n"),
            &[empty, empty],
            &[
                "line 2: expected an object with a frame: {\"metric\":\"…\",\"frame\":\"…\"}, found \"{\"metric\":\"a\"}\"",
                "line 3: expected base64 of a frame in quotes, found \"7\"",
                "line 4: expected an object with a frame: {\"metric\":\"…\",\"frame\":\"…\"}, found \"[]\"",
                "line 5: expected the end of the line, found \"{\"frame\":\"0QECAAAA\"}\"",
            ],
        );
        check(
            "{\"start_ns\":1.5}\n{\"labels\":{\"a\":1}}\n",
            &[],
            &[
                "line 1: expected whole nanoseconds since 1970, found \"1.5\"",
                "line 2: expected labels: an object of texts, found \"1\"",
            ],
        );
    }

    #[test]
    fn cumulative_counts_are_known_to_be() {
        let cumulative = Meaning { temporality: Temporality::Cumulative, ..Meaning::default() };
        let frame = frame::encode_base64(&Histogram::default(), cumulative);
        let mut sink = Recorded::default();
        read(&mut format!("{{\"frame\":\"{frame}\"}}").as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.readings[0].over, Over::Total);
    }

    #[test]
    fn readings_of_every_kind_come_back() {
        let reading = |over, unit: Option<Unit>, value| Reading {
            metric: "a \"b\"".to_owned(),
            labels: vec![("host".to_owned(), "x\n".to_owned())],
            unit,
            start: Some(i64::MIN),
            end: Some(7),
            over,
            value,
        };
        let jobs = Some(Unit::Other("jobs".to_owned()));
        let mut histogram = Histogram::default();
        histogram.record(12.5);
        let histogram = || Value::Histogram(Box::new(histogram.clone()));
        let readings = [
            reading(Over::Interval, Some(Unit::Milliseconds), histogram()),
            reading(Over::Total, jobs.clone(), histogram()),
            reading(Over::Total, Some(Unit::Days), Value::Number(0.1 + 0.2)),
            reading(Over::Interval, None, Value::Number(f64::NEG_INFINITY)),
            reading(Over::Moment, jobs, Value::Number(-0.0)),
            reading(Over::Moment, None, Value::Text("µ \u{1}".to_owned())),
        ];
        let mut text = String::new();
        readings.iter().for_each(|reading| write_reading(&mut text, reading));
        for line in text.lines() {
            assert!(is_start(line.as_bytes()), "{line}");
        }
        let mut sink = Recorded::default();
        read(&mut text.as_bytes(), &mut sink).unwrap();
        assert_eq!((sink.troubles(), sink.readings), (Vec::new(), readings.to_vec()));
    }
}
