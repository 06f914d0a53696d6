//! Prometheus text (0.0.4) and OpenMetrics text: classic histograms, one per series; everything else as numbers.
//!
//! The lines `name_bucket{…,le="…"}` that agree in name, in all labels but `le`, and in time stamp are one
//! histogram; its bounds are the `le` values, in whatever spelling. The unit is that of `# UNIT`, else of
//! the name's ending (`_seconds`). A counter counts up, as do sum and count of a summary; its quantiles, infos, states
//! and gauges are how things stand; of a value without type the name decides (`convention.rs`). `name_created` says
//! since when its series counts, and is no value. A time stamp below 1e11 is seconds (OpenMetrics), others are
//! milliseconds (0.0.4). Exemplars are passed over.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod line;
mod series;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

use crate::convention;
use crate::exposition::line::Sample;
use crate::exposition::series::{Series, whole};
use crate::lines::{self, Line};
use crate::number;
use crate::reading::{Over, Reading, Sink, Value};
use crate::trouble::{Place, Trouble, quote};
use crate::unit::Unit;

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
            Line::TooLong { start } => Err((("a shorter line", quote(start)), false)),
        };
        let flow = match read {
            Ok(()) => ControlFlow::Continue(()),
            Err(((expected, found), is_absurd)) => {
                let trouble = Trouble::new(Place::Line(number), expected, found);
                sink.trouble(Trouble { is_absurd, ..trouble })
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
    /// Totals of the metric and the labels read last, until it is known since when they count.
    totals: Totals,
    ended: bool,
}

#[derive(Default)]
struct Totals {
    metric: String,
    labels: Labels,
    readings: Vec<Reading>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Histogram,
    /// What it holds now, not all since a start.
    GaugeHistogram,
    Counter,
    Summary,
    Info,
    /// How things stand: gauges, states.
    Gauge,
    Unknown,
}

impl Kind {
    fn named(word: &str) -> Kind {
        match word {
            "histogram" => Kind::Histogram,
            "gaugehistogram" => Kind::GaugeHistogram,
            "counter" => Kind::Counter,
            "gauge" | "stateset" => Kind::Gauge,
            "summary" => Kind::Summary,
            "info" => Kind::Info,
            _ => Kind::Unknown,
        }
    }

    fn is_histogram(self) -> bool {
        matches!(self, Kind::Histogram | Kind::GaugeHistogram)
    }

    /// Whether a metric of that kind has lines with that ending.
    fn has(self, ending: &str) -> bool {
        match ending {
            "_total" => self == Kind::Counter,
            "_info" => self == Kind::Info,
            "_sum" | "_count" => self == Kind::Summary,
            "_created" => matches!(self, Kind::Counter | Kind::Summary) || self.is_histogram(),
            _ => false,
        }
    }
}

impl Page {
    /// What is wrong with a line, and whether it is a line at all.
    fn line(&mut self, number: u64, line: &[u8], sink: &mut dyn Sink) -> Result<(), (Wrong, bool)> {
        let text = std::str::from_utf8(line).map_err(|_| (("UTF-8", quote(line)), false))?.trim();
        if text.is_empty() {
            return Ok(());
        }
        if self.ended {
            return Err((("nothing after # EOF", quote(line)), false));
        }
        match text.strip_prefix('#') {
            Some(comment) => self.comment(comment.trim_start()),
            None => {
                let sample = Sample::parse(text).map_err(|wrong| (wrong, false))?;
                let value = sample.value;
                self.sample(number, sample, sink)
                    .map_err(|wrong| (wrong, number::parse(value.as_bytes()).is_some()))?;
            }
        }
        Ok(())
    }

    fn comment(&mut self, comment: &str) {
        let mut words = comment.split_ascii_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("TYPE"), Some(name), Some(kind)) => {
                self.kinds.insert(name.trim_matches('"').to_owned(), Kind::named(kind));
            }
            (Some("UNIT"), Some(name), Some(unit)) => {
                let unit = Unit::parse(unit).unwrap_or_else(|| Unit::Other(unit.to_owned()));
                self.units.insert(name.trim_matches('"').to_owned(), unit);
            }
            (Some("EOF"), None, None) => self.ended = true,
            _ => {}
        }
    }

    fn sample(&mut self, line: u64, sample: Sample<'_>, sink: &mut dyn Sink) -> Result<(), Wrong> {
        let stem = |suffix: &str| sample.name.strip_suffix(suffix).filter(|stem| !stem.is_empty());
        let is_ours =
            |metric: &&str| self.kinds.get(*metric).is_none_or(|kind| kind.is_histogram());
        if let Some((metric, le)) = stem("_bucket").filter(is_ours).zip(sample.le()) {
            let bound = number::parse(le.as_bytes()).filter(|bound| !bound.is_nan());
            let bound = bound.ok_or_else(|| ("a number as le", quote(le.as_bytes())))?;
            let count = whole(sample.value)?;
            self.series(line, metric, &sample)?.buckets.push((bound, count));
            return Ok(());
        }
        let part = |names: [&str; 2]| names.into_iter().find_map(stem);
        if let Some(metric) = part(["_sum", "_gsum"]).filter(|metric| self.is_histogram(metric)) {
            let sum = sample.number()?;
            self.series(line, metric, &sample)?.sum = Some(sum);
        } else if let Some(metric) = part(["_count", "_gcount"]).filter(|m| self.is_histogram(m)) {
            let count = whole(sample.value)?;
            self.series(line, metric, &sample)?.count = Some(count);
        } else if let Some(metric) = stem("_created").filter(|metric| self.is_histogram(metric)) {
            let created = sample.moment()?;
            self.series(line, metric, &sample)?.created = Some(created);
        } else {
            self.number(sample, sink)?;
        }
        Ok(())
    }

    /// A line that is not of a histogram.
    fn number(&mut self, sample: Sample<'_>, sink: &mut dyn Sink) -> Result<(), Wrong> {
        let (metric, kind) = self.family(&sample.name);
        let ending = &sample.name[metric.len()..];
        let labels = || sample.labels.iter().filter(|label| label.0 != "quantile");
        if metric != self.totals.metric || !labels().eq(&self.totals.labels) {
            self.totals.hand_over(None, sink);
            (self.totals.metric, self.totals.labels) =
                (metric.to_owned(), labels().cloned().collect());
        }
        if ending == "_created" {
            let created = sample.moment()?;
            self.totals.hand_over(Some(created), sink);
            return Ok(());
        }
        let value = Value::Number(sample.number()?);
        let grows = match kind {
            Kind::Counter => true,
            Kind::Summary => !ending.is_empty(),
            Kind::Info | Kind::Gauge => false,
            _ => convention::grows(&sample.name),
        };
        let unit = match (kind, ending) {
            (Kind::Summary, "_count") => None,
            _ => self.unit_of(metric, &sample.name),
        };
        let mut labels = sample.labels;
        if kind == Kind::Summary && !grows {
            labels.iter_mut().filter(|label| label.0 == "quantile").for_each(spell);
        }
        let reading = Reading {
            metric: sample.name,
            labels,
            unit,
            start: sample.time,
            end: sample.time,
            over: if grows { Over::Total } else { Over::Moment },
            value,
        };
        match grows {
            true => self.totals.readings.push(reading),
            false => sink.reading(reading),
        }
        Ok(())
    }

    /// The metric that a line is of, as far as that is declared, else the line's name; and its kind.
    fn family<'a>(&self, name: &'a str) -> (&'a str, Kind) {
        if let Some(kind) = self.kinds.get(name) {
            return (name, *kind);
        }
        let declared =
            ["_total", "_info", "_sum", "_count", "_created"].iter().find_map(|ending| {
                let stem = name.strip_suffix(ending)?;
                let kind = self.kinds.get(stem).filter(|kind| kind.has(ending))?;
                Some((stem, *kind))
            });
        declared.unwrap_or((name, Kind::Unknown))
    }

    fn is_histogram(&self, metric: &str) -> bool {
        match self.kinds.get(metric) {
            Some(kind) => kind.is_histogram(),
            None => self.series.last().is_some_and(|series| series.metric == metric),
        }
    }

    /// Of a number: a counter's name may end with what its unit does not.
    fn unit_of(&self, metric: &str, name: &str) -> Option<Unit> {
        let stem = metric.strip_suffix("_total").unwrap_or(metric);
        let said = self.units.get(stem).or_else(|| self.units.get(name)).cloned();
        said.or_else(|| convention::unit(name))
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
                let at = self.series.len();
                self.series.push(Series::new(line, metric, labels, time));
                self.known.insert(key, at);
                at
            }
        };
        Ok(&mut self.series[at])
    }

    /// `cut`: the input was left before its end, so the last series may lack lines.
    fn finish(mut self, cut: bool, sink: &mut dyn Sink) {
        self.totals.hand_over(None, sink);
        let last = self.series.len().saturating_sub(1);
        let (units, kinds) = (self.units, self.kinds);
        for (at, series) in self.series.into_iter().enumerate() {
            let histogram = match series.histogram() {
                Ok(histogram) => histogram,
                Err(_) if cut && at == last => continue,
                Err((expected, found)) => {
                    let found = format!("{found} in {}", series.metric);
                    let trouble = Trouble::absurd(Place::Line(series.line), expected, found);
                    if sink.trouble(trouble).is_break() {
                        return;
                    }
                    continue;
                }
            };
            let is_moment = kinds.get(&series.metric) == Some(&Kind::GaugeHistogram);
            let unit = units.get(&series.metric).cloned().or_else(|| Unit::of_name(&series.metric));
            let created = series.created.filter(|_| !is_moment);
            let (start, end) = convention::total(created, series.time);
            sink.reading(Reading {
                metric: series.metric,
                labels: series.labels,
                unit,
                start,
                end,
                over: if is_moment { Over::Interval } else { Over::Total },
                value: Value::Histogram(Box::new(histogram)),
            });
        }
    }
}

impl Totals {
    /// Hands over what was held back.
    fn hand_over(&mut self, created: Option<i64>, sink: &mut dyn Sink) {
        for mut reading in self.readings.drain(..) {
            (reading.start, reading.end) = convention::total(created, reading.end);
            sink.reading(reading);
        }
    }
}

/// A number in a label, however it is spelled, as Prometheus stores it.
fn spell(label: &mut (String, String)) {
    if let Some(number) = number::parse(label.1.as_bytes()) {
        label.1 = convention::label_number(number);
    }
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
