//! Decoder of the Influx line protocol: lines of fields, into rows.
//!
//! ```text
//! measurement[,tag=value]… field=value[,field=value]… [timestamp]
//! value      1.5  -3i  7u  t|T|true|True|TRUE  f|F|false|False|FALSE  "text"
//! ```
//! <https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/>.
//! A backslash escapes a comma, a space or an equals sign; in a string, a quote or a backslash.
//! Before any other character it is a literal backslash. A string may contain line breaks. Lines
//! that begin with `#` are comments.
//!
//! Each field is a series named `measurement_field`, or `measurement` for a field called `value`,
//! as in Telegraf and Prometheus. Numbers are gauges, booleans are 1 and 0, strings are texts. A
//! line is atomic: one invalid field rejects the whole line.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use model::{Sample, SampleValue, Series, SeriesKind};

use crate::decimal;
use crate::input_error::{InputError, InputPosition, quote};
use crate::mapper::{MAX_REPORTED_ERRORS, MapSummary};
use crate::series_sink::SeriesSink;

/// Timestamp precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampPrecision {
    /// 10^-9 s, the default.
    #[default]
    Nanoseconds,
    /// 10^-6 s.
    Microseconds,
    /// 10^-3 s.
    Milliseconds,
    /// 1 s.
    Seconds,
    /// 60 s; version 1 only.
    Minutes,
    /// 3,600 s; version 1 only.
    Hours,
}

/// Times before are not those of measurements: a time of today in microseconds, taken as
/// nanoseconds, is in January 1970 (until 2054); in milliseconds or seconds it is earlier.
const PLAUSIBLE_FROM: i64 = 31 * 86_400 * 1_000_000_000;

impl TimestampPrecision {
    /// Parses the parameter `precision` of version 1 or 2.
    pub fn parse(text: &str) -> Option<TimestampPrecision> {
        Some(match text {
            "ns" | "n" => TimestampPrecision::Nanoseconds,
            "us" | "u" | "µ" | "µs" => TimestampPrecision::Microseconds,
            "ms" => TimestampPrecision::Milliseconds,
            "s" => TimestampPrecision::Seconds,
            "m" => TimestampPrecision::Minutes,
            "h" => TimestampPrecision::Hours,
            _ => return None,
        })
    }

    /// What is expected instead of a time in the first months of 1970, which a sender means that
    /// uses a coarser precision than its request says.
    fn implausible_time(self) -> &'static str {
        match self {
            TimestampPrecision::Nanoseconds => {
                "a time in nanoseconds, not in January 1970; if times are in seconds, \
                 milliseconds or microseconds, send precision=s, ms or us"
            }
            _ => {
                "a time in the precision of the request, not in January 1970; send the precision \
                 of the times: s, ms or us"
            }
        }
    }

    fn nanoseconds(self) -> i64 {
        match self {
            TimestampPrecision::Nanoseconds => 1,
            TimestampPrecision::Microseconds => 1000,
            TimestampPrecision::Milliseconds => 1_000_000,
            TimestampPrecision::Seconds => 1_000_000_000,
            TimestampPrecision::Minutes => 60_000_000_000,
            TimestampPrecision::Hours => 3_600_000_000_000,
        }
    }
}

/// Reads a body. `now` is the timestamp of lines without one, in nanoseconds since the Unix epoch.
pub fn read_lines(
    body: &[u8],
    precision: TimestampPrecision,
    now: i64,
    sink: &mut dyn SeriesSink,
) -> MapSummary {
    let mut placed = MapSummary::default();
    let (mut rest, mut number, mut key) = (body, 1u64, Vec::new());
    while !rest.is_empty() {
        let end = line_end(rest);
        let (line, at) = (&rest[..end], number);
        let breaks = line.iter().filter(|&&byte| byte == b'\n').count() as u64;
        number = number.saturating_add(breaks).saturating_add(1);
        rest = rest.get(end.saturating_add(1)..).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        match InfluxLine::parse(at, line, precision, now) {
            Ok(line) => line.write(&mut key, sink, &mut placed),
            Err(error) => reject(&mut placed, error.to_string()),
        }
    }
    placed
}

fn reject(placed: &mut MapSummary, reason: String) {
    placed.rejected = placed.rejected.saturating_add(1);
    if placed.errors.len() < MAX_REPORTED_ERRORS {
        placed.errors.push(reason);
    }
}

/// End of the first line: a line break outside strings. An unterminated string ends at its own line
/// and does not affect the following lines, so each byte is scanned at most twice.
fn line_end(bytes: &[u8]) -> usize {
    let first = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let series = unescaped_end(&bytes[..first], b" ");
    if bytes[0] == b'#' || series == first {
        return first;
    }
    let mut at = series;
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => return at,
            b'"' if bytes[..at].ends_with(b"=") => match quoted_end(after(bytes, at)) {
                Some(length) => at = at.saturating_add(length).saturating_add(2),
                None => return first.max(at.saturating_add(line_break(&bytes[at..]))),
            },
            _ => at = at.saturating_add(1),
        }
    }
    bytes.len()
}

fn line_break(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len())
}

/// Bytes after the index `at`.
fn after(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at.saturating_add(1)..).unwrap_or_default()
}

/// Bytes up to the closing quote of a string.
fn quoted_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return Some(at),
            b'\\' if matches!(after(bytes, at), [b'"' | b'\\', ..]) => at = at.saturating_add(2),
            _ => at = at.saturating_add(1),
        }
    }
    None
}

/// Bytes up to the first of `ends` without a backslash before it.
fn unescaped_end(bytes: &[u8], ends: &[u8]) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if matches!(after(bytes, at), [b',' | b' ' | b'=', ..]) => {
                at = at.saturating_add(2)
            }
            byte if ends.contains(&byte) => return at,
            _ => at = at.saturating_add(1),
        }
    }
    bytes.len()
}

/// Removes the backslashes before characters in `escaped`.
fn unescape(text: &str, escaped: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.peek() {
            Some(next) if c == '\\' && escaped.contains(next) => out.extend(rest.next()),
            _ => out.push(c),
        }
    }
    out
}

const ESCAPED: [char; 3] = [',', ' ', '='];

/// Valid line, borrowed from the input.
struct InfluxLine<'a> {
    number: u64,
    /// Measurement and tags.
    series: &'a str,
    fields: &'a str,
    time: i64,
}

enum InfluxField<'a> {
    Number(f64),
    Text(&'a str),
}

impl<'a> InfluxLine<'a> {
    fn parse(
        number: u64,
        bytes: &'a [u8],
        precision: TimestampPrecision,
        now: i64,
    ) -> Result<InfluxLine<'a>, InputError> {
        let wrong = |expected: &'static str, found: &str| {
            Err(InputError::new(InputPosition::Line(number), expected, quote(found.as_bytes())))
        };
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Err(InputError::new(InputPosition::Line(number), "UTF-8", quote(bytes)));
        };
        let (series, rest) = text.split_at(unescaped_end(bytes, b" "));
        let (measurement, tags) = series.split_at(unescaped_end(series.as_bytes(), b","));
        if measurement.is_empty() {
            return wrong("a measurement", text);
        }
        for (name, value) in tag_pairs(tags) {
            if name.is_empty() || value.is_none_or(str::is_empty) {
                return wrong("tags as name=value", tags);
            }
        }
        let rest = rest.trim_start_matches(' ');
        let mut end = 0;
        while end < rest.len() {
            let (name, value) = split_field(&rest[end..]);
            if name.is_empty() || value.is_empty() {
                return wrong("fields as name=value", &rest[end..]);
            }
            if InfluxField::parse(value).is_none() {
                return wrong("a value: 1.5, 3i, 7u, true or \"text\"", value);
            }
            end = end.saturating_add(name.len()).saturating_add(value.len()).saturating_add(1);
            match rest.as_bytes().get(end) {
                Some(b',') => end = end.saturating_add(1),
                None | Some(b' ') => break,
                Some(_) => return wrong("a comma or a space after a value", &rest[end..]),
            }
        }
        let (fields, time) = rest.split_at(end);
        if fields.is_empty() || fields.ends_with(',') {
            return wrong("fields after the measurement", rest);
        }
        let time = match time.trim_matches(' ') {
            "" => Some(now),
            time => time.parse::<i64>().ok().and_then(|n| n.checked_mul(precision.nanoseconds())),
        };
        let Some(time) = time else {
            return wrong("a time of 64 bits in nanoseconds", rest[end..].trim_matches(' '));
        };
        if (0..PLAUSIBLE_FROM).contains(&time) && now > PLAUSIBLE_FROM {
            return wrong(precision.implausible_time(), &rest[end..]);
        }
        Ok(InfluxLine { number, series, fields, time })
    }

    fn write(&self, key: &mut Vec<u8>, sink: &mut dyn SeriesSink, placed: &mut MapSummary) {
        let mut rest = self.fields;
        while !rest.is_empty() {
            let (name, raw) = split_field(rest);
            let read = name.len().saturating_add(raw.len()).saturating_add(2);
            rest = rest.get(read..).unwrap_or_default();
            // The line was validated, so every field has a value.
            let Some(value) = InfluxField::parse(raw) else { continue };
            match self.write_field(name, value, key, sink) {
                Ok(()) => placed.samples = placed.samples.saturating_add(1),
                Err(error) => {
                    reject(placed, format!("{}: {error}", InputPosition::Line(self.number)))
                }
            }
        }
    }

    fn write_field(
        &self,
        name: &str,
        value: InfluxField<'_>,
        key: &mut Vec<u8>,
        sink: &mut dyn SeriesSink,
    ) -> model::Result<()> {
        let (kind, value) = match value {
            InfluxField::Number(number) => (SeriesKind::Gauge, SampleValue::Number(number)),
            InfluxField::Text(text) => {
                (SeriesKind::Text, SampleValue::Text(unescape(text, &['"', '\\'])))
            }
        };
        // A separating space is in none of the pieces.
        key.clear();
        key.push(u8::from(kind == SeriesKind::Text));
        key.extend_from_slice(self.series.as_bytes());
        key.push(b' ');
        key.extend_from_slice(name.as_bytes());
        sink.series(key, &mut || self.field_series(name, kind))?;
        sink.sample(&Sample { start: self.time, end: self.time, value })
    }

    fn field_series(&self, field: &str, kind: SeriesKind) -> model::Result<Series> {
        let (measurement, tags) = self.series.split_at(unescaped_end(self.series.as_bytes(), b","));
        let mut name = unescape(measurement, &ESCAPED);
        if field != "value" {
            name.push('_');
            name.push_str(&unescape(field, &ESCAPED));
        }
        let mut series = Series::new(name, kind);
        for (name, value) in tag_pairs(tags) {
            let value = value.unwrap_or_default();
            series = series.with_label(unescape(name, &ESCAPED), unescape(value, &ESCAPED));
        }
        series.validate()
    }
}

/// Names and values of tags, still escaped, each after a comma.
fn tag_pairs(mut tags: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    std::iter::from_fn(move || {
        let rest = tags.strip_prefix(',')?;
        let (pair, after) = rest.split_at(unescaped_end(rest.as_bytes(), b","));
        tags = after;
        let (name, value) = pair.split_at(unescaped_end(pair.as_bytes(), b"="));
        Some((name, value.strip_prefix('=')))
    })
}

/// Name and value of the first field, still escaped; the value is empty if missing.
fn split_field(fields: &str) -> (&str, &str) {
    let (name, rest) = fields.split_at(unescaped_end(fields.as_bytes(), b"= ,"));
    let Some(value) = rest.strip_prefix('=') else { return (name, "") };
    let length = match value.strip_prefix('"') {
        Some(text) => {
            quoted_end(text.as_bytes()).map_or(value.len(), |length| length.saturating_add(2))
        }
        None => value.find([',', ' ']).unwrap_or(value.len()),
    };
    (name, &value[..length])
}

impl<'a> InfluxField<'a> {
    fn parse(value: &'a str) -> Option<InfluxField<'a>> {
        Some(match value {
            "t" | "T" | "true" | "True" | "TRUE" => InfluxField::Number(1.0),
            "f" | "F" | "false" | "False" | "FALSE" => InfluxField::Number(0.0),
            _ if value.starts_with('"') => {
                InfluxField::Text(value.strip_prefix('"')?.strip_suffix('"')?)
            }
            _ => InfluxField::Number(match value.as_bytes() {
                [digits @ .., b'i'] => digits_text(digits).parse::<i64>().ok()? as f64,
                [digits @ .., b'u'] => digits_text(digits).parse::<u64>().ok()? as f64,
                digits => decimal::parse(digits).filter(|number| number.is_finite())?,
            }),
        })
    }
}

/// Non-ASCII digits do not form a number.
fn digits_text(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series_sink::VecSeriesSink;

    fn decode_all(text: &[u8], precision: TimestampPrecision) -> (Vec<String>, MapSummary) {
        let mut sink = VecSeriesSink::default();
        let placed = read_lines(text, precision, 7, &mut sink);
        let shown = |(series, sample): &(Series, Sample)| {
            let value = match &sample.value {
                SampleValue::Number(number) => number.to_string(),
                SampleValue::Text(text) => format!("{text:?}"),
                SampleValue::Histogram(_) => panic!("no histograms here"),
            };
            format!("{series} {value} @{}", sample.end)
        };
        (sink.rows.iter().map(shown).collect(), placed)
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let (mut shown, placed) = decode_all(text.as_bytes(), TimestampPrecision::Nanoseconds);
        assert_eq!(placed.samples, shown.len() as u64);
        assert_eq!(placed.rejected, placed.errors.len() as u64);
        shown.extend(placed.errors);
        assert_eq!(shown.join("; "), expected, "{text:?}");
    }

    #[test]
    fn lines_have_measurement_tags_fields_and_time() {
        check("cpu value=1.5 12", "cpu 1.5 @12");
        check(
            "cpu,host=a,b=c idle=1,busy=-2i,n=3u 12",
            "cpu_idle{b=\"c\",host=\"a\"} 1 @12; cpu_busy{b=\"c\",host=\"a\"} -2 @12; \
             cpu_n{b=\"c\",host=\"a\"} 3 @12",
        );
        check("a on=t,off=FALSE", "a_on 1 @7; a_off 0 @7");
        check("a f=\"x y\",g=1", "a_f \"x y\" @7; a_g 1 @7");
        check("# a comment\n\n  a value=1 \r\nb value=2 -3\n", "a 1 @7; b 2 @-3");
    }

    #[test]
    fn backslashes_and_quotes() {
        check(r"a\ b\,c=d,t\=g=v\,w f\ g=1", r#"a b,c=d_f g{t=g="v,w"} 1 @7"#);
        check(r"a\b value=1", r"a\b 1 @7");
        check(r#"a f="q \" \\ \n, =" 5"#, r#"a_f "q \" \\ \\n, =" @5"#);
        check("a f=\"x\ny\" 5\nb value=1 6", "a_f \"x\\ny\" @5; b 1 @6");
        check(r#"a"b value=1"#, r#"a"b 1 @7"#);
    }

    #[test]
    fn times_have_a_precision() {
        for (name, expected) in [
            ("ns", 3i64),
            ("us", 3000),
            ("ms", 3_000_000),
            ("s", 3_000_000_000),
            ("m", 180_000_000_000),
            ("h", 10_800_000_000_000),
        ] {
            let (shown, _) = decode_all(b"a value=1 3", TimestampPrecision::parse(name).unwrap());
            assert_eq!(shown, [format!("a 1 @{expected}")]);
        }
        assert_eq!(TimestampPrecision::parse("weeks"), None);
        let (_, placed) = decode_all(b"a value=1 9223372036854775807", TimestampPrecision::Seconds);
        assert_eq!(placed.rejected, 1);
    }

    #[test]
    fn invalid_lines_are_named_and_the_rest_is_read() {
        let fields = "expected fields as name=value, found";
        check(
            "a\nb value=1",
            "b 1 @7; line 1: expected fields after the measurement, found nothing",
        );
        check("a f=1,g 5", &format!("line 1: {fields} \"g 5\""));
        check("a f= 5", &format!("line 1: {fields} \"f= 5\""));
        check("a f=1, 5", &format!("line 1: {fields} \" 5\""));
        check(",a=b f=1", "line 1: expected a measurement, found \",a=b f=1\"");
        check("a,b f=1", "line 1: expected tags as name=value, found \",b\"");
        check("a,b= f=1", "line 1: expected tags as name=value, found \",b=\"");
        let value = "line 1: expected a value: 1.5, 3i, 7u, true or \"text\", found";
        check("a f=1x", &format!("{value} \"1x\""));
        check("a f=inf", &format!("{value} \"inf\""));
        check("a f=1.5i", &format!("{value} \"1.5i\""));
        check("a f=-1u", &format!("{value} \"-1u\""));
        check("a f=\"x\nb value=1", &format!("b 1 @7; {value} \"\"x\""));
        check("a f=\"x\"y", "line 1: expected a comma or a space after a value, found \"y\"");
        check("a f=1 x", "line 1: expected a time of 64 bits in nanoseconds, found \"x\"");
        check("a f=1,g=x\n\nb value=2", &format!("b 2 @7; {value} \"x\""));
        check("a,b=c,b=d f=1", "line 1: duplicate label \"b\"");
        assert_eq!(decode_all(b"a\xff f=1", TimestampPrecision::Nanoseconds).1.rejected, 1);
    }

    #[test]
    fn times_in_seconds_without_precision_are_not_stored_in_1970() {
        let now = 1_794_906_565_000_000_000;
        let read = |time: &str, precision: TimestampPrecision| {
            let mut sink = VecSeriesSink::default();
            let body = format!("cpu value=1 {time}");
            read_lines(body.as_bytes(), precision, now, &mut sink)
        };
        let nanoseconds = TimestampPrecision::Nanoseconds;
        for time in ["1794906565", "1794906565000", "1794906565000000"] {
            let placed = read(time, nanoseconds);
            assert_eq!((placed.samples, placed.rejected), (0, 1), "{time}");
            assert!(placed.errors[0].contains("send precision=s, ms or us"), "{placed:?}");
        }
        assert_eq!(read("1794906565", TimestampPrecision::Milliseconds).rejected, 1);
        assert_eq!(read("1794906565000000000", nanoseconds).samples, 1);
        assert_eq!(read("1794906565", TimestampPrecision::Seconds).samples, 1);
        // History from before 1970 is possible.
        assert_eq!(read("-86400000000000", nanoseconds).samples, 1);
    }
}
