//! Saved baseline of a change of shape: a file of histograms beside the rule file, as `topdeck
//! query --frames` writes it (`docs/formats/frames.md`). Each is the distribution of a window.
//! Those with the labels of a stream are its baseline, those without labels that of all other
//! streams.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use decode::{
    DecodedSample, DecodedValue, InputError, InputPosition, SampleSink, SampleTemporality, Unit,
};
use hist::Mixture;
use query::LabelSet;

use super::criterion::CriterionOutcome;
use super::shape_change::{BASELINE_WINDOWS_MIN, ShapeBaseline, WINDOW_COUNT_MIN, has_shape};

/// Distributions that windows of streams are compared with, after their check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SavedBaseline {
    /// Path, as written.
    path: String,
    /// Unit of the values.
    unit: Option<Unit>,
    streams: BTreeMap<LabelSet, ShapeBaseline>,
}

impl SavedBaseline {
    /// Reads the lines of a file. The error is the cause, with the line if there is one.
    pub(super) fn parse(path: &str, bytes: &[u8]) -> Result<SavedBaseline, String> {
        let mut collector = WindowCollector::default();
        let mut input = bytes;
        decode::frames::read_lines(&mut input, &mut collector)
            .map_err(|error| error.to_string())?;
        if let Some(cause) = collector.failure {
            return Err(cause);
        }
        if collector.streams.is_empty() {
            return Err("the file has no histograms".to_owned());
        }
        let mut streams = BTreeMap::new();
        for (labels, windows) in collector.streams {
            let windows: Vec<Mixture> = windows.into_values().collect();
            let Some(baseline) = ShapeBaseline::new(&windows)? else {
                let count = windows.iter().filter(|window| has_shape(window)).count();
                return Err(format!(
                    "found {count} windows of {labels} with at least {WINDOW_COUNT_MIN} values, \
                     expected {BASELINE_WINDOWS_MIN} or more"
                ));
            };
            streams.insert(labels, baseline);
        }
        let unit = collector.unit.flatten().and_then(|unit| unit_of(unit.name()));
        Ok(SavedBaseline { path: path.to_owned(), unit, streams })
    }

    /// Compares a window of a stream, whose values have this unit. The error is the cause.
    pub(super) fn compare(
        &self,
        (labels, unit): (&LabelSet, &str),
        window: &Mixture,
        min_shift: f64,
    ) -> Result<CriterionOutcome, String> {
        let found = self.streams.get(labels).or_else(|| self.streams.get(&LabelSet::default()));
        let path = &self.path;
        let Some(baseline) = found else {
            return Err(format!("cannot compare shapes: {path:?} has no histogram of the stream"));
        };
        if self.unit != unit_of(unit) {
            let saved = self.unit.as_ref().map_or("", Unit::name);
            return Err(format!(
                "cannot compare shapes: the unit of the stream is {unit:?}, that of {path:?} \
                 {saved:?}"
            ));
        }
        Ok(baseline.compare(window, min_shift))
    }
}

/// Unit with this name, in whatever spelling; `None` if there is none.
fn unit_of(name: &str) -> Option<Unit> {
    let other = || Unit::Other(name.to_owned());
    (!name.is_empty()).then(|| Unit::parse(name).unwrap_or_else(other))
}

/// Windows by their labels and times.
#[derive(Default)]
struct WindowCollector {
    streams: BTreeMap<LabelSet, BTreeMap<WindowTimes, Mixture>>,
    /// Unit of the first histogram.
    unit: Option<Option<Unit>>,
    /// Histograms so far.
    count: u64,
    failure: Option<String>,
}

/// Start and end of a window; of one without times, its number. A distribution of several bucket
/// layouts has a line for each.
type WindowTimes = (Option<i64>, Option<i64>, u64);

impl WindowCollector {
    fn add(&mut self, sample: DecodedSample) -> Result<(), String> {
        self.count += 1;
        let number = self.count;
        let DecodedValue::Histogram(histogram) = &sample.value else {
            return Err(format!("sample {number} is no histogram"));
        };
        if sample.temporality == SampleTemporality::Cumulative {
            let expected = "expected one of an interval";
            return Err(format!("histogram {number}: found a cumulative histogram, {expected}"));
        }
        let unit = self.unit.get_or_insert_with(|| sample.unit.clone());
        if *unit != sample.unit {
            let name = |unit: &Option<Unit>| unit.as_ref().map_or("", Unit::name).to_owned();
            let (first, found) = (name(unit), name(&sample.unit));
            return Err(format!("histogram {number}: found unit {found:?}, expected {first:?}"));
        }
        let times = match (sample.start, sample.end) {
            (None, None) => (None, None, number),
            (start, end) => (start, end, 0),
        };
        let window = self.streams.entry(LabelSet::new(sample.labels)).or_default();
        let added = window.entry(times).or_default().add(histogram);
        added.map_err(|error| format!("histogram {number}: {error}"))
    }
}

impl SampleSink for WindowCollector {
    fn number(&mut self, _: f64) {}

    fn sample(&mut self, sample: DecodedSample) {
        if self.failure.is_none() {
            self.failure = self.add(sample).err();
        }
    }

    fn skipped(&mut self, _: &'static str) {}

    fn error(&mut self, error: InputError) -> ControlFlow<()> {
        let InputError { position, expected, actual, .. } = error;
        let place = match position {
            InputPosition::Line(line) => format!("line {line}: "),
            InputPosition::Byte(_) => String::new(),
        };
        self.failure.get_or_insert(format!("{place}found {actual}, expected {expected}"));
        ControlFlow::Break(())
    }
}
