//! Prometheus text (0.0.4) and OpenMetrics text: classic histograms, one per series; counters and gauges as numbers.
//!
//! The lines `name_bucket{…,le="…"}` that agree in name, in all labels but `le`, and in time stamp are one
//! histogram; its bounds are the `le` values, in whatever spelling. The unit is that of `# UNIT`, else of
//! the name's ending (`_seconds`). Metrics of other kinds are counted as skipped. A time stamp below 1e11
//! is seconds (OpenMetrics), others are milliseconds (0.0.4). Exemplars are passed over.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

use hist::Histogram;
use hist::codec::prometheus::Classic;

use crate::lines::{self, Line};
use crate::number;
use crate::reading::{Over, Reading, Sink, Value};
use crate::trouble::{Place, Trouble, quote};
use crate::unit::Unit;

const COUNTER: &str = "a counter";
const GAUGE: &str = "a gauge";
/// No label set is longer.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Series of one input; a server with more has a problem of its own.
pub const SERIES_MAX: usize = 1_000_000;

/// Reads one exposition.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn Sink) -> io::Result<()> {
    let mut page = Page::default();
    let mut stopped = false;
    lines::for_each(input, LINE_BYTES_MAX, |number, line| {
        let read = match line {
            Line::Whole(line) => page.line(number, line, sink),
            Line::TooLong { start } => Err(("a shorter line", quote(start))),
        };
        let flow = match read {
            Ok(()) => ControlFlow::Continue(()),
            Err((expected, found)) => {
                sink.trouble(Trouble::new(Place::Line(number), expected, found))
            }
        };
        stopped = flow.is_break();
        flow
    })?;
    // Stopped at an error, what was read before it is still whole lines of series: handed over, too.
    page.finish(stopped, sink);
    Ok(())
}

type Labels = Vec<(String, String)>;
/// What was expected, what was found.
type Wrong = (&'static str, String);

type SeriesKey = (String, Labels, Option<i64>);

#[derive(Default)]
struct Page {
    kinds: HashMap<String, Kind>,
    units: HashMap<String, Unit>,
    series: Vec<Series>,
    /// Place in `series` by name, labels and time stamp.
    known: HashMap<SeriesKey, usize>,
    ended: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Histogram,
    /// What it holds now, not all since a start.
    GaugeHistogram,
    Other(&'static str),
}

/// Lines of one histogram, as they were read.
struct Series {
    line: u64,
    metric: String,
    labels: Labels,
    time: Option<i64>,
    /// Bound, cumulative count.
    buckets: Vec<(f64, u64)>,
    sum: Option<f64>,
    count: Option<u64>,
}

impl Page {
    fn line(&mut self, number: u64, line: &[u8], sink: &mut dyn Sink) -> Result<(), Wrong> {
        let text = std::str::from_utf8(line).map_err(|_| ("UTF-8", quote(line)))?.trim();
        if text.is_empty() {
            return Ok(());
        }
        if self.ended {
            return Err(("nothing after # EOF", quote(line)));
        }
        match text.strip_prefix('#') {
            Some(comment) => self.comment(comment.trim_start()),
            None => self.sample(number, &Sample::parse(text)?, sink)?,
        }
        Ok(())
    }

    fn comment(&mut self, comment: &str) {
        let mut words = comment.split_ascii_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("TYPE"), Some(name), Some(kind)) => {
                let kind = match kind {
                    "histogram" => Kind::Histogram,
                    "gaugehistogram" => Kind::GaugeHistogram,
                    "counter" => Kind::Other(COUNTER),
                    "gauge" => Kind::Other(GAUGE),
                    "summary" => {
                        Kind::Other("part of a summary, which holds quantiles and no distribution")
                    }
                    "info" => Kind::Other("an info"),
                    "stateset" => Kind::Other("a state"),
                    _ => Kind::Other("a value without type"),
                };
                self.kinds.insert(name.trim_matches('"').to_owned(), kind);
            }
            (Some("UNIT"), Some(name), Some(unit)) => {
                let unit = Unit::parse(unit).unwrap_or_else(|| Unit::Other(unit.to_owned()));
                self.units.insert(name.trim_matches('"').to_owned(), unit);
            }
            (Some("EOF"), None, None) => self.ended = true,
            _ => {}
        }
    }

    fn sample(&mut self, line: u64, sample: &Sample<'_>, sink: &mut dyn Sink) -> Result<(), Wrong> {
        let stem = |suffix: &str| sample.name.strip_suffix(suffix).filter(|stem| !stem.is_empty());
        let is_ours = |metric: &&str| !matches!(self.kinds.get(*metric), Some(Kind::Other(_)));
        if let Some((metric, le)) = stem("_bucket").filter(is_ours).zip(sample.le()) {
            let bound = number::parse(le.as_bytes()).filter(|bound| !bound.is_nan());
            let bound = bound.ok_or_else(|| ("a number as le", quote(le.as_bytes())))?;
            let count = whole(sample.value)?;
            self.series(line, metric, sample)?.buckets.push((bound, count));
            return Ok(());
        }
        let part = |names: [&str; 2]| names.into_iter().find_map(stem);
        if let Some(metric) = part(["_sum", "_gsum"]).filter(|metric| self.is_histogram(metric)) {
            let sum = number::parse(sample.value.as_bytes());
            let sum = sum.ok_or_else(|| ("a number", quote(sample.value.as_bytes())))?;
            self.series(line, metric, sample)?.sum = Some(sum);
        } else if let Some(metric) = part(["_count", "_gcount"]).filter(|m| self.is_histogram(m)) {
            let count = whole(sample.value)?;
            self.series(line, metric, sample)?.count = Some(count);
        } else if !stem("_created").is_some_and(|metric| self.is_histogram(metric)) {
            let number = number::parse(sample.value.as_bytes())
                .ok_or_else(|| ("a number", quote(sample.value.as_bytes())))?;
            let kind = self.kind_of(&sample.name);
            let over = match kind {
                COUNTER => Over::Total,
                GAUGE => Over::Moment,
                _ => {
                    sink.skipped(kind);
                    return Ok(());
                }
            };
            sink.reading(Reading {
                metric: sample.name.clone(),
                labels: sample.labels.clone(),
                unit: self.unit_of(&sample.name),
                start: sample.time,
                end: sample.time,
                over,
                value: Value::Number(number),
            });
        }
        Ok(())
    }

    fn is_histogram(&self, metric: &str) -> bool {
        match self.kinds.get(metric) {
            Some(kind) => matches!(kind, Kind::Histogram | Kind::GaugeHistogram),
            None => self.series.last().is_some_and(|series| series.metric == metric),
        }
    }

    /// Of a counter or a gauge: OpenMetrics' counters end with what their unit does not.
    fn unit_of(&self, name: &str) -> Option<Unit> {
        let stem = name.strip_suffix("_total").unwrap_or(name);
        let said = self.units.get(stem).or_else(|| self.units.get(name)).cloned();
        said.or_else(|| Unit::of_name(stem))
    }

    fn kind_of(&self, name: &str) -> &'static str {
        let stems = ["", "_total", "_info", "_sum", "_count"];
        let kind = stems.iter().find_map(|end| self.kinds.get(name.strip_suffix(end)?));
        match kind {
            Some(Kind::Other(kind)) => kind,
            _ => "a value without type",
        }
    }

    fn series(
        &mut self,
        line: u64,
        metric: &str,
        sample: &Sample<'_>,
    ) -> Result<&mut Series, Wrong> {
        let labels: Labels =
            sample.labels.iter().filter(|label| label.0 != "le").cloned().collect();
        let key = (metric.to_owned(), labels, sample.time);
        let at = match self.known.get(&key) {
            Some(&at) => at,
            None if self.series.len() == SERIES_MAX => {
                return Err(("at most 1,000,000 series", format!("series {metric} beside them")));
            }
            None => {
                let (metric, labels, time) = key.clone();
                let series = Series {
                    line,
                    metric,
                    labels,
                    time,
                    buckets: Vec::new(),
                    sum: None,
                    count: None,
                };
                self.series.push(series);
                self.known.insert(key, self.series.len() - 1);
                self.series.len() - 1
            }
        };
        Ok(&mut self.series[at])
    }

    /// `cut`: the input was left before its end, so the last series may lack lines.
    fn finish(self, cut: bool, sink: &mut dyn Sink) {
        let last = self.series.len().saturating_sub(1);
        let (units, kinds) = (self.units, self.kinds);
        for (at, series) in self.series.into_iter().enumerate() {
            let histogram = match series.histogram() {
                Ok(histogram) => histogram,
                Err(_) if cut && at == last => continue,
                Err((expected, found)) => {
                    let found = format!("{found} in {}", series.metric);
                    let trouble = Trouble::new(Place::Line(series.line), expected, found);
                    if sink.trouble(trouble).is_break() {
                        return;
                    }
                    continue;
                }
            };
            let is_moment = kinds.get(&series.metric) == Some(&Kind::GaugeHistogram);
            let unit = units.get(&series.metric).cloned().or_else(|| Unit::of_name(&series.metric));
            sink.reading(Reading {
                metric: series.metric,
                labels: series.labels,
                unit,
                start: series.time,
                end: series.time,
                over: if is_moment { Over::Interval } else { Over::Total },
                value: Value::Histogram(Box::new(histogram)),
            });
        }
    }
}

impl Series {
    /// Cumulative counts to counts on explicit bounds.
    fn histogram(&self) -> Result<Histogram, Wrong> {
        let mut buckets = self.buckets.clone();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let Some(pair) = buckets.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(("each le once", format!("le=\"{}\" twice", pair[0].0)));
        }
        if buckets.last().is_none_or(|last| last.0 != f64::INFINITY) {
            let count = self.count.ok_or(("a bucket le=\"+Inf\"", "none".to_owned()))?;
            buckets.push((f64::INFINITY, count));
        }
        if buckets[0].0 == f64::NEG_INFINITY {
            return Err(("bounds above -Inf", "le=\"-Inf\"".to_owned()));
        }
        if let Some(pair) = buckets.windows(2).find(|pair| pair[0].1 > pair[1].1) {
            let found = format!("{} at le=\"{}\" after {}", pair[1].1, pair[1].0, pair[0].1);
            return Err(("cumulative counts that never fall", found));
        }
        let total = buckets[buckets.len() - 1].1;
        if let Some(count) = self.count.filter(|&count| count != total) {
            let found = format!("_count {count} and le=\"+Inf\" {total}");
            return Err(("_count equal to the bucket le=\"+Inf\"", found));
        }
        let classic = Classic { buckets, sum: self.sum, count: total };
        classic.to_histogram().map_err(|error| ("counts that make a histogram", error.to_string()))
    }
}

/// A count, however it is spelled.
fn whole(text: &str) -> Result<u64, Wrong> {
    let spelled = || {
        let number = number::parse(text.as_bytes())?;
        let is_count = number >= 0.0 && number < u64::MAX as f64 && number.fract() == 0.0;
        is_count.then_some(number as u64)
    };
    text.parse().ok().or_else(spelled).ok_or_else(|| ("a count", quote(text.as_bytes())))
}

/// One line.
struct Sample<'a> {
    name: String,
    labels: Labels,
    value: &'a str,
    time: Option<i64>,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Result<Sample<'a>, Wrong> {
        let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace()).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let mut name = name.to_owned();
        let rest = rest.trim_start();
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => parse_labels(inside, &mut name)?,
            None => (Vec::new(), rest),
        };
        let is_name = |c: char| c.is_alphanumeric() || "_:.-/".contains(c);
        if name.is_empty() || !name.chars().all(is_name) && end > 0 {
            return Err(("a metric name, labels and a number", quote(line.as_bytes())));
        }
        let mut words = rest.split_ascii_whitespace();
        let value =
            words.next().ok_or_else(|| ("a number after the name", quote(line.as_bytes())))?;
        let time = match words.next() {
            None => None,
            Some(exemplar) if exemplar.starts_with('#') => None,
            Some(time) => Some(parse_time(time)?),
        };
        Ok(Sample { name, labels, value, time })
    }

    fn le(&self) -> Option<&str> {
        self.labels.iter().find(|label| label.0 == "le").map(|label| label.1.as_str())
    }
}

/// Labels up to the closing brace, and what follows it. A quoted name alone is the metric's.
fn parse_labels<'a>(mut rest: &'a str, metric: &mut String) -> Result<(Labels, &'a str), Wrong> {
    let wrong = |expected, rest: &str| (expected, quote(rest.as_bytes()));
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let name = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (name, after) =
                    unquote(quoted).ok_or_else(|| wrong("a closing quote", rest))?;
                rest = after;
                name
            }
            None => {
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
                let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
                rest = after;
                name.to_owned()
            }
        };
        rest = rest.trim_start();
        if let Some(value) = rest.strip_prefix('=') {
            let value = value.trim_start();
            let quoted =
                value.strip_prefix('"').ok_or_else(|| wrong("a label value in quotes", value))?;
            let (value, after) = unquote(quoted).ok_or_else(|| wrong("a closing quote", value))?;
            if name.is_empty() {
                return Err(wrong("a label name", rest));
            }
            labels.push((name, value));
            rest = after.trim_start();
        } else if metric.is_empty() && !name.is_empty() {
            *metric = name;
        } else {
            return Err(wrong("a label, as in {code=\"200\"}", rest));
        }
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
        } else if !rest.starts_with('}') {
            return Err(wrong("a comma or }", rest));
        }
    }
}

/// Text up to the closing quote, escapes undone, and what follows.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut plain = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((plain, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => plain.push('\n'),
                c @ ('\\' | '"') => plain.push(c),
                // As Prometheus reads them: an unknown escape is what it looks like.
                c => plain.extend(['\\', c]),
            },
            c => plain.push(c),
        }
    }
    None
}

fn parse_time(text: &str) -> Result<i64, Wrong> {
    /// As seconds the year 5138, as milliseconds 1973.
    const MILLISECONDS_MIN: f64 = 1e11;
    let number = number::parse(text.as_bytes());
    let power = if number.is_some_and(|n| n.abs() < MILLISECONDS_MIN) { 9 } else { 6 };
    number::parse_scaled(text.as_bytes(), (1, power))
        .filter(|ns| ns.abs() < i64::MAX as f64)
        .map(|ns| ns as i64)
        .ok_or_else(|| ("a time stamp", quote(text.as_bytes())))
}

/// Whether a line is what this source reads and no other.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let comment =
        ["# HELP ", "# TYPE ", "# UNIT ", "# EOF"].iter().any(|start| line.starts_with(start));
    comment || {
        let named = line.starts_with(|c: char| c.is_ascii_alphabetic() || "_:{".contains(c));
        let sample = named.then(|| Sample::parse(line).ok()).flatten();
        sample.is_some_and(|sample| number::parse(sample.value.as_bytes()).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Recorded;

    #[track_caller]
    fn check(text: &str, expected: &[&str], troubles: &[&str], skipped: usize) {
        let mut sink = Recorded::default();
        read(&mut text.as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.shown().lines().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(sink.troubles(), troubles, "{text}");
        assert_eq!(sink.skipped.len(), skipped, "{text}");
    }

    const BUCKETS: &str = "a_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 3\n";

    #[test]
    fn a_histogram_with_and_without_type() {
        let cells = "a histogram of 3: -inf..1.0000=2 1.0000..inf=1 sum Some(7.5)";
        check(&format!("# TYPE a histogram\n{BUCKETS}a_sum 7.5\na_count 3\n"), &[cells], &[], 0);
        check(&format!("{BUCKETS}a_sum 7.5\na_count 3\n"), &[cells], &[], 0);
        check(
            &format!("# TYPE a histogram\na_sum 7.5\na_count 3\n{BUCKETS}# EOF\n"),
            &[cells],
            &[],
            0,
        );
        check(
            "a_bucket{le=\"1\"} 2\na_count 3",
            &["a histogram of 3: -inf..1.0000=2 1.0000..inf=1 sum None"],
            &[],
            0,
        );
    }

    #[test]
    fn series_units_times_and_spellings() {
        check(
            "# UNIT rpc_seconds seconds\n\
             rpc_seconds_bucket{code=\"200\",le=\"1e-1\"} 1.0 1500\n\
             rpc_seconds_bucket{code=\"500\",le=\"0.10\"} 4 1500000000000\n\
             rpc_seconds_bucket{le=\"+inf\",code=\"200\"} 1 1500\n\
             rpc_seconds_bucket{le=\"Inf\",code=\"500\"} 4 1500000000000 # {id=\"7\"} 0.05\n",
            &[
                "rpc_seconds{code=\"200\"} histogram of 1: -inf..0.1000=1 sum None [s] @Some(1500000000000)..Some(1500000000000)",
                "rpc_seconds{code=\"500\"} histogram of 4: -inf..0.1000=4 sum None [s] @Some(1500000000000000000)..Some(1500000000000000000)",
            ],
            &[],
            0,
        );
        check(
            "{\"my.a_bucket\",le=\"1\",p=\"x\\\\\\\"\\ny\"} 1\n{\"my.a_bucket\",p=\"x\\\\\\\"\\ny\",le=\"+Inf\"} 1\n",
            &["my.a{p=\"x\\\\\\\"\\ny\"} histogram of 1: -inf..1.0000=1 sum None"],
            &[],
            0,
        );
    }

    #[test]
    fn counters_and_gauges_are_numbers_and_other_kinds_are_counted() {
        check(
            "# TYPE cpu_seconds counter\ncpu_seconds_total{mode=\"user\"} 5.5\n# TYPE g gauge\ng 7 1500\n\
             # TYPE s summary\ns{quantile=\"0.9\"} 1\ns_sum 2\ns_count 3\nup 1\n",
            &[
                "cpu_seconds_total{mode=\"user\"} number 5.5 [s]",
                "g number 7 @Some(1500000000000)..Some(1500000000000)",
            ],
            &[],
            4,
        );
    }

    #[test]
    fn damage_has_its_line_and_the_rest_is_read() {
        let whole = "b_bucket{le=\"+Inf\"} 1\n";
        let read = "b histogram of 1: -inf..inf=1 sum None";
        for (damage, trouble) in [
            ("a_bucket{le=\"x\"} 1\n", "line 1: expected a number as le, found \"x\""),
            ("a_bucket{le=\"1\"} 1.5\n", "line 1: expected a count, found \"1.5\""),
            ("a_bucket{le=\"1\" 1\n", "line 1: expected a comma or }, found \"1\""),
            ("a_bucket{le=\"1} 1\n", "line 1: expected a closing quote, found \"\"1} 1\""),
            ("a_bucket{le=1} 1\n", "line 1: expected a label value in quotes, found \"1} 1\""),
            ("a_bucket\n", "line 1: expected a number after the name, found \"a_bucket\""),
            ("a 1 x\n", "line 1: expected a time stamp, found \"x\""),
            ("a b\n", "line 1: expected a number, found \"b\""),
            ("!\n", "line 1: expected a metric name, labels and a number, found \"!\""),
            (
                "a_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\n",
                "line 1: expected cumulative counts that never fall, found 1 at le=\"inf\" after 2 in a",
            ),
            ("a_bucket{le=\"1\"} 2\n", "line 1: expected a bucket le=\"+Inf\", found none in a"),
            (
                "a_bucket{le=\"1\"} 1\na_bucket{le=\"1.0\"} 1\n",
                "line 1: expected each le once, found le=\"1\" twice in a",
            ),
        ] {
            check(&format!("{damage}{whole}"), &[read], &[trouble], 0);
        }
        check(
            "a 1\n# EOF\nb 1\n",
            &[],
            &["line 3: expected nothing after # EOF, found \"b 1\""],
            1,
        );
        check(
            &format!("{BUCKETS}a_count 4\n"),
            &[],
            &[
                "line 1: expected _count equal to the bucket le=\"+Inf\", found _count 4 and le=\"+Inf\" 3 in a",
            ],
            0,
        );
    }
}
