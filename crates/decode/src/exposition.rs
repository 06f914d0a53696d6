//! Decoder of Prometheus text (0.0.4) and OpenMetrics text. A classic histogram is one series;
//! everything else is numbers.
//!
//! The lines `name_bucket{…,le="…"}` with equal names, timestamps and labels except `le` form one
//! histogram. Its bounds are the `le` values, in any spelling. The unit is taken from `# UNIT`,
//! else from the suffix of the name (`_seconds`). Counters and the sum and count of a summary are
//! cumulative; quantiles, infos, states and gauges are instant values; for a value without a type,
//! the name decides (`convention.rs`). `name_created` is the start time of its series and not a
//! value. A timestamp below 1e11 is in seconds (OpenMetrics), any other in milliseconds (0.0.4).
//! Exemplars of the lines of a histogram are those of its series. OpenMetrics 2.0 has histograms,
//! native ones too, and summaries on one line each (`composite_value.rs`), and start times as
//! `st@`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod classic_histogram_lines;
mod composite_value;
mod exposition_line;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

use model::LABELS_MAX;

use crate::convention;
use crate::decimal;
use crate::decoded_sample::{DecodedSample, DecodedValue, SampleSink, SampleTemporality};
use crate::exemplar::DecodedExemplar;
use crate::exposition::classic_histogram_lines::{ClassicHistogramLines, parse_count};
use crate::exposition::composite_value::CompositeValue;
use crate::exposition::exposition_line::{ExpositionLine, split_name};
use crate::input_error::{InputError, InputPosition, quote};
use crate::lines::{self, InputLine};
use crate::unit::Unit;

/// No label set is longer.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of quantiles of a summary on one line.
const QUANTILES_MAX: usize = 128;
/// Series limit of one input.
pub const SERIES_MAX: usize = 1_000_000;

/// Reads one exposition.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn SampleSink) -> io::Result<()> {
    let mut page = ExpositionParser::default();
    let mut stopped = false;
    lines::for_each_line(input, LINE_BYTES_MAX, |number, line| {
        let read = match line {
            InputLine::Complete(line) => page.parse_line(number, line, sink),
            InputLine::TooLong { start } => Err((("a shorter line", quote(start)), false)),
        };
        let flow = match read {
            Ok(()) => ControlFlow::Continue(()),
            Err(((expected, found), is_absurd)) => {
                let error = InputError::new(InputPosition::Line(number), expected, found);
                sink.error(InputError { is_invalid_value: is_absurd, ..error })
            }
        };
        stopped = flow.is_break();
        flow
    })?;
    // After an error, the series read before it are complete lines, so they are emitted too.
    page.finish(stopped, sink);
    Ok(())
}

type LabelPairs = Vec<(String, String)>;
/// Expected and actual text.
type ExpositionError = (&'static str, String);

type SeriesKey = (String, LabelPairs, Option<i64>);

#[derive(Default)]
struct ExpositionParser {
    types: HashMap<String, MetricType>,
    units: HashMap<String, Unit>,
    series: Vec<ClassicHistogramLines>,
    /// Index in `series` by name, labels and timestamp.
    series_index: HashMap<SeriesKey, usize>,
    /// Cumulative values of the metric and labels read last, buffered until their creation time is
    /// known.
    pending: PendingTotals,
    /// Number of exemplars in `series`.
    held_exemplars: usize,
    has_eof: bool,
}

#[derive(Default)]
struct PendingTotals {
    metric: String,
    labels: LabelPairs,
    samples: Vec<(DecodedSample, Vec<DecodedExemplar>)>,
    /// Number of their exemplars.
    held_exemplars: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum MetricType {
    Histogram,
    /// Current distribution, not cumulative.
    GaugeHistogram,
    Counter,
    Summary,
    Info,
    /// Instant values: gauges, states.
    Gauge,
    Unknown,
}

impl MetricType {
    fn parse(word: &str) -> MetricType {
        match word {
            "histogram" => MetricType::Histogram,
            "gaugehistogram" => MetricType::GaugeHistogram,
            "counter" => MetricType::Counter,
            "gauge" | "stateset" => MetricType::Gauge,
            "summary" => MetricType::Summary,
            "info" => MetricType::Info,
            _ => MetricType::Unknown,
        }
    }

    fn is_histogram(self) -> bool {
        matches!(self, MetricType::Histogram | MetricType::GaugeHistogram)
    }

    /// Whether a metric of this kind has lines with the suffix `ending`.
    fn has_suffix(self, ending: &str) -> bool {
        match ending {
            "_total" => self == MetricType::Counter,
            "_info" => self == MetricType::Info,
            "_sum" | "_count" => self == MetricType::Summary,
            "_created" => {
                matches!(self, MetricType::Counter | MetricType::Summary) || self.is_histogram()
            }
            _ => false,
        }
    }
}

impl ExpositionParser {
    /// Parses a line. The error's flag is true if the syntax is valid but the value is not.
    fn parse_line(
        &mut self,
        number: u64,
        line: &[u8],
        sink: &mut dyn SampleSink,
    ) -> Result<(), (ExpositionError, bool)> {
        let text = std::str::from_utf8(line).map_err(|_| (("UTF-8", quote(line)), false))?.trim();
        if text.is_empty() {
            return Ok(());
        }
        if self.has_eof {
            return Err((("nothing after # EOF", quote(line)), false));
        }
        match text.strip_prefix('#') {
            Some(comment) => self.parse_comment(comment.trim_start(), sink),
            None => {
                let sample = ExpositionLine::parse(text).map_err(|wrong| (wrong, false))?;
                let value = sample.value;
                if value.starts_with('{') {
                    let composite = CompositeValue::parse(value).map_err(|wrong| (wrong, false))?;
                    return self
                        .emit_composite(sample, &composite, sink)
                        .map_err(|wrong| (wrong, true));
                }
                self.parse_sample(number, sample, sink)
                    .map_err(|wrong| (wrong, decimal::parse(value.as_bytes()).is_some()))?;
            }
        }
        Ok(())
    }

    fn parse_comment(&mut self, comment: &str, sink: &mut dyn SampleSink) {
        if comment == "EOF" {
            self.has_eof = true;
            return;
        }
        let Some((keyword, rest)) = comment.split_once([' ', '\t']) else { return };
        let Some((name, text)) = split_name(rest.trim_start()) else { return };
        let word = text.split_ascii_whitespace().next();
        match (keyword, word) {
            ("HELP", Some(_)) => {
                let text = text.trim().replace("\\n", "\n").replace("\\\\", "\\");
                sink.description(&name, &text);
            }
            ("TYPE", Some(kind)) => {
                self.types.insert(name, MetricType::parse(kind));
            }
            ("UNIT", Some(unit)) => {
                let unit = Unit::parse(unit).unwrap_or_else(|| Unit::Other(unit.to_owned()));
                self.units.insert(name, unit);
            }
            _ => {}
        }
    }

    fn parse_sample(
        &mut self,
        line: u64,
        sample: ExpositionLine<'_>,
        sink: &mut dyn SampleSink,
    ) -> Result<(), ExpositionError> {
        let stem = |suffix: &str| sample.name.strip_suffix(suffix).filter(|stem| !stem.is_empty());
        let is_ours =
            |metric: &&str| self.types.get(*metric).is_none_or(|kind| kind.is_histogram());
        if let Some((metric, le)) = stem("_bucket").filter(is_ours).zip(sample.le()) {
            let bound = decimal::parse(le.as_bytes()).filter(|bound| !bound.is_nan());
            let bound = bound.ok_or_else(|| ("a number as le", quote(le.as_bytes())))?;
            let count = parse_count(sample.value)?;
            let mut held = self.held_exemplars;
            let series = self.get_or_insert_series(line, metric, &sample)?;
            series.buckets.push((bound, count));
            sample.read_exemplars(&mut series.exemplars, &mut held);
            self.held_exemplars = held;
            return Ok(());
        }
        let part = |names: [&str; 2]| names.into_iter().find_map(stem);
        if let Some(metric) = part(["_sum", "_gsum"]).filter(|metric| self.is_histogram(metric)) {
            let sum = sample.number()?;
            self.get_or_insert_series(line, metric, &sample)?.sum = Some(sum);
        } else if let Some(metric) = part(["_count", "_gcount"]).filter(|m| self.is_histogram(m)) {
            let count = parse_count(sample.value)?;
            let mut held = self.held_exemplars;
            let series = self.get_or_insert_series(line, metric, &sample)?;
            series.count = Some(count);
            sample.read_exemplars(&mut series.exemplars, &mut held);
            self.held_exemplars = held;
        } else if let Some(metric) = stem("_created").filter(|metric| self.is_histogram(metric)) {
            let created = sample.time_value()?;
            self.get_or_insert_series(line, metric, &sample)?.created = Some(created);
        } else {
            self.emit_number(sample, sink)?;
        }
        Ok(())
    }

    /// Emits a line that is not part of a histogram.
    fn emit_number(
        &mut self,
        sample: ExpositionLine<'_>,
        sink: &mut dyn SampleSink,
    ) -> Result<(), ExpositionError> {
        let (metric, kind) = self.find_family(&sample.name);
        let ending = &sample.name[metric.len()..];
        let labels = || sample.labels.iter().filter(|label| label.0 != "quantile");
        if metric != self.pending.metric || !labels().eq(&self.pending.labels) {
            self.pending.emit(None, sink);
            (self.pending.metric, self.pending.labels) =
                (metric.to_owned(), labels().cloned().collect());
        }
        if ending == "_created" {
            let created = sample.time_value()?;
            self.pending.emit(Some(created), sink);
            return Ok(());
        }
        let value = DecodedValue::Number(sample.number()?);
        let grows = match kind {
            MetricType::Counter => true,
            MetricType::Summary => !ending.is_empty(),
            MetricType::Info | MetricType::Gauge => false,
            _ => convention::is_monotonic(&sample.name),
        };
        let unit = match (kind, ending) {
            (MetricType::Summary, "_count") => None,
            _ => self.number_unit(metric, &sample.name),
        };
        let mut exemplars = Vec::new();
        match grows {
            true => sample.read_exemplars(&mut exemplars, &mut self.pending.held_exemplars),
            false => sample.read_exemplars(&mut exemplars, &mut 0),
        }
        let mut labels = sample.labels;
        if kind == MetricType::Summary && !grows {
            labels
                .iter_mut()
                .filter(|label| label.0 == "quantile")
                .for_each(normalize_number_label);
        }
        let sample = DecodedSample {
            metric: sample.name,
            labels,
            unit,
            start: if grows { sample.start.or(sample.time) } else { sample.time },
            end: sample.time,
            temporality: if grows {
                SampleTemporality::Cumulative
            } else {
                SampleTemporality::Instant
            },
            value,
        };
        match grows {
            true => self.pending.samples.push((sample, exemplars)),
            false => sink.sample_with_exemplars(sample, exemplars),
        }
        Ok(())
    }

    /// Emits a histogram or a summary of one line.
    fn emit_composite(
        &self,
        sample: ExpositionLine<'_>,
        composite: &CompositeValue<'_>,
        sink: &mut dyn SampleSink,
    ) -> Result<(), ExpositionError> {
        let mut exemplars = Vec::new();
        sample.read_exemplars(&mut exemplars, &mut 0);
        let ExpositionLine { name: metric, labels, time, start, .. } = sample;
        let unit = self.units.get(&metric).cloned().or_else(|| Unit::from_metric_name(&metric));
        let kind = self.types.get(&metric).copied().unwrap_or(MetricType::Unknown);
        let is_gauge = kind == MetricType::GaugeHistogram || composite.is_gauge();
        let (start, end) = convention::cumulative_range(start.filter(|_| !is_gauge), time);
        let decoded = |metric: String, labels: LabelPairs, temporality, value| DecodedSample {
            unit: unit.clone().filter(|_| !metric.ends_with("_count")),
            metric,
            labels,
            start: if temporality == SampleTemporality::Instant { time } else { start },
            end,
            temporality,
            value,
        };
        let Some(summary) = composite.summary() else {
            let value = DecodedValue::Histogram(Box::new(composite.histogram()?));
            let temporality = match is_gauge {
                true => SampleTemporality::Delta,
                false => SampleTemporality::Cumulative,
            };
            let unit = unit.clone();
            let sample = DecodedSample { unit, ..decoded(metric, labels, temporality, value) };
            sink.sample_with_exemplars(sample, exemplars);
            return Ok(());
        };
        let summary = summary?;
        // Each quantile has all labels: many of both would take minutes.
        let (labels_found, quantiles) = (labels.len(), summary.quantiles.len());
        if labels_found > LABELS_MAX || quantiles > QUANTILES_MAX {
            let expected = "at most 64 labels and 128 quantiles";
            return Err((expected, format!("{labels_found} and {quantiles} of {metric}")));
        }
        for (quantile, value) in summary.quantiles {
            let quantile = ("quantile".to_owned(), convention::number_label(quantile));
            let labels = labels.iter().cloned().chain([quantile]).collect();
            let value = DecodedValue::Number(value);
            sink.sample(decoded(metric.clone(), labels, SampleTemporality::Instant, value));
        }
        for (suffix, value, exemplars) in
            [("_sum", summary.sum, Vec::new()), ("_count", summary.count, exemplars)]
        {
            let (metric, value) = (format!("{metric}{suffix}"), DecodedValue::Number(value));
            let sample = decoded(metric, labels.clone(), SampleTemporality::Cumulative, value);
            sink.sample_with_exemplars(sample, exemplars);
        }
        Ok(())
    }

    /// The declared metric family of a line and its kind; the line's name if no family is declared.
    fn find_family<'a>(&self, name: &'a str) -> (&'a str, MetricType) {
        if let Some(kind) = self.types.get(name) {
            return (name, *kind);
        }
        let declared =
            ["_total", "_info", "_sum", "_count", "_created"].iter().find_map(|ending| {
                let stem = name.strip_suffix(ending)?;
                let kind = self.types.get(stem).filter(|kind| kind.has_suffix(ending))?;
                Some((stem, *kind))
            });
        declared.unwrap_or((name, MetricType::Unknown))
    }

    fn is_histogram(&self, metric: &str) -> bool {
        match self.types.get(metric) {
            Some(kind) => kind.is_histogram(),
            None => self.series.last().is_some_and(|series| series.metric == metric),
        }
    }

    /// Unit of a number. A counter's name may end in a suffix that its unit lacks.
    fn number_unit(&self, metric: &str, name: &str) -> Option<Unit> {
        let stem = metric.strip_suffix("_total").unwrap_or(metric);
        let said = self.units.get(stem).or_else(|| self.units.get(name)).cloned();
        said.or_else(|| convention::unit_suffix(name))
    }

    fn get_or_insert_series(
        &mut self,
        line: u64,
        metric: &str,
        sample: &ExpositionLine<'_>,
    ) -> Result<&mut ClassicHistogramLines, ExpositionError> {
        let labels: LabelPairs =
            sample.labels.iter().filter(|label| label.0 != "le").cloned().collect();
        let key = (metric.to_owned(), labels, sample.time);
        let at = match self.series_index.get(&key) {
            Some(&at) => at,
            None if self.series.len() == SERIES_MAX => {
                return Err(("at most 1,000,000 series", format!("series {metric} beside them")));
            }
            None => {
                let (metric, labels, time) = key.clone();
                let at = self.series.len();
                self.series.push(ClassicHistogramLines::new(line, metric, labels, time));
                self.series_index.insert(key, at);
                at
            }
        };
        Ok(&mut self.series[at])
    }

    /// `cut`: the input ended early, so the last series may lack lines.
    fn finish(mut self, cut: bool, sink: &mut dyn SampleSink) {
        self.pending.emit(None, sink);
        let last = self.series.len().saturating_sub(1);
        let (units, kinds) = (self.units, self.types);
        for (at, series) in self.series.into_iter().enumerate() {
            let histogram = match series.histogram() {
                Ok(histogram) => histogram,
                Err(_) if cut && at == last => continue,
                Err((expected, found)) => {
                    let found = format!("{found} in {}", series.metric);
                    let error =
                        InputError::semantic(InputPosition::Line(series.line), expected, found);
                    if sink.error(error).is_break() {
                        return;
                    }
                    continue;
                }
            };
            let is_gauge = kinds.get(&series.metric) == Some(&MetricType::GaugeHistogram);
            let unit = units
                .get(&series.metric)
                .cloned()
                .or_else(|| Unit::from_metric_name(&series.metric));
            let created = series.created.filter(|_| !is_gauge);
            let (start, end) = convention::cumulative_range(created, series.time);
            let sample = DecodedSample {
                metric: series.metric,
                labels: series.labels,
                unit,
                start,
                end,
                temporality: if is_gauge {
                    SampleTemporality::Delta
                } else {
                    SampleTemporality::Cumulative
                },
                value: DecodedValue::Histogram(Box::new(histogram)),
            };
            sink.sample_with_exemplars(sample, series.exemplars);
        }
    }
}

impl PendingTotals {
    /// Emits the buffered values.
    fn emit(&mut self, created: Option<i64>, sink: &mut dyn SampleSink) {
        for (mut sample, exemplars) in self.samples.drain(..) {
            let created = created.or(sample.start);
            (sample.start, sample.end) = convention::cumulative_range(created, sample.end);
            sink.sample_with_exemplars(sample, exemplars);
        }
        self.held_exemplars = 0;
    }
}

/// Spells a number in a label as Prometheus stores it.
fn normalize_number_label(label: &mut (String, String)) {
    if let Some(number) = decimal::parse(label.1.as_bytes()) {
        label.1 = convention::number_label(number);
    }
}

/// Whether the line is valid for this decoder and for no other.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let comment =
        ["# HELP ", "# TYPE ", "# UNIT ", "# EOF"].iter().any(|start| line.starts_with(start));
    comment || {
        let named = line.starts_with(|c: char| c.is_ascii_alphabetic() || "_:{".contains(c));
        let sample = named.then(|| ExpositionLine::parse(line).ok()).flatten();
        sample.is_some_and(|sample| {
            let is_number = decimal::parse(sample.value.as_bytes()).is_some();
            is_number || CompositeValue::parse(sample.value).is_ok()
        })
    }
}
