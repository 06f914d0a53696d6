//! Frames with what a frame does not say: one JSON object per line.
//!
//! ```text
//! {"metric":"m","labels":{"host":"a"},"start_ns":0,"end_ns":60000000000,"frame":"0QECAQAA"}
//! ```
//!
//! `frame` is base64 of `hist::codec::frame`: buckets, exact side values and the unit travel as they are. All
//! other fields may be missing; labels keep their order, times are whole nanoseconds since the Unix epoch.
//! Fields that are not known are passed over. `docs/formats/frames.md` says the same to a stranger.

use std::fmt::Write as _;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

use hist::Histogram;
use hist::codec::frame::{self, Meaning, Temporality};

use crate::json::{Token, Tokens};
use crate::lines::{self, Line};
use crate::reading::{Reading, Sink, Value};
use crate::trouble::{Place, Trouble, quote};
use crate::unit::Unit;

/// A histogram in all of 46,082 buckets, each with a count of 64 bits, is 700 kB in base64.
const LINE_BYTES_MAX: usize = 1 << 20;

const EXPECTED: &str = "an object with a frame: {\"metric\":\"…\",\"frame\":\"…\"}";

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
            Ok((_, Temporality::Cumulative)) => sink.skipped("a cumulative histogram"),
            Ok((reading, Temporality::Delta)) => sink.reading(reading),
            Err(mut trouble) => {
                trouble.place = Place::Line(number);
                return sink.trouble(trouble);
            }
        }
        ControlFlow::Continue(())
    })
}

/// Appends a line for a histogram of one interval, its end included. A unit that frames have no code for is
/// left out, and reads back as none.
pub fn write<'a>(
    out: &mut String,
    metric: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    (start_ns, end_ns): (i64, i64),
    unit: Option<&Unit>,
    histogram: &Histogram,
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
    let code = UNITS.iter().find(|known| Some(&known.1) == unit);
    let unit = code.map_or(frame::Unit::None, |known| known.0);
    let frame = frame::encode_base64(histogram, Meaning { unit, temporality: Temporality::Delta });
    write!(out, "}},\"start_ns\":{start_ns},\"end_ns\":{end_ns},\"frame\":\"{frame}\"}}")
        .expect("a String takes all");
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

fn object(line: &[u8]) -> Result<(Reading, Temporality), Trouble> {
    let mut tokens = Tokens::new(line);
    let (mut reading, mut meaning) = (Reading::new(Value::Text(String::new())), None);
    if tokens.value()? != Token::Object {
        return Err(wrong(EXPECTED, line));
    }
    while let Some(key) = tokens.key()? {
        match key.as_str() {
            "metric" => reading.metric = text(&mut tokens, "a metric's name in quotes")?,
            "labels" => reading.labels = labels(&mut tokens)?,
            "start_ns" => reading.start = Some(time(&mut tokens)?),
            "end_ns" => reading.end = Some(time(&mut tokens)?),
            "frame" => {
                let base64 = text(&mut tokens, "base64 of a frame in quotes")?;
                let (histogram, found) = frame::decode_base64(&base64).map_err(|error| {
                    let found = format!("{} ({error})", quote(base64.as_bytes()));
                    Trouble::new(Place::Byte(0), "base64 of a frame", found)
                })?;
                (reading.value, meaning) = (Value::Histogram(Box::new(histogram)), Some(found));
            }
            _ => tokens.skip()?,
        }
    }
    if !tokens.at_end() {
        return Err(wrong("the end of the line", &line[tokens.offset()..]));
    }
    let meaning = meaning.ok_or_else(|| wrong(EXPECTED, line))?;
    reading.unit = UNITS.iter().find(|known| known.0 == meaning.unit).map(|known| known.1.clone());
    Ok((reading, meaning.temporality))
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
/// `frame` is a text.
pub(crate) fn is_start(text: &[u8]) -> bool {
    let line = text.trim_ascii_start().split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut tokens = Tokens::new(line);
    if tokens.value() != Ok(Token::Object) {
        return false;
    }
    while let Ok(Some(key)) = tokens.key() {
        if key == "frame" {
            return matches!(tokens.value(), Ok(Token::Text(text)) if text.starts_with("0Q"));
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
    fn cumulative_counts_are_no_interval() {
        let cumulative = Meaning { temporality: Temporality::Cumulative, ..Meaning::default() };
        let frame = frame::encode_base64(&Histogram::default(), cumulative);
        let mut sink = Recorded::default();
        read(&mut format!("{{\"frame\":\"{frame}\"}}").as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.skipped, ["a cumulative histogram"]);
    }
}
