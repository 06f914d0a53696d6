//! Series sink trait: samples grouped by series.

use hist::codec::frame_body::HistogramBody;
use model::{Exemplar, Gap, LadderCell, Result, Sample, SampleValue, Series};

use crate::exemplar::{DecodedExemplar, ExemplarProblem};
use crate::spans::SpanSummary;
use crate::spans::trace::RawSpan;

/// Sink of samples, in input order.
pub trait SeriesSink {
    /// Selects the series of the following samples. Equal keys must denote equal series, so
    /// `series` is called only for a new key. A key contains everything that determines the series,
    /// including the kind. After an error, no series is selected and samples must wait for the next
    /// call.
    fn series(&mut self, key: &[u8], series: &mut dyn FnMut() -> Result<Series>) -> Result<()>;
    /// A sample of the selected series.
    fn sample(&mut self, sample: &Sample) -> Result<()>;
    /// A histogram of the selected series and an interval, by the body of its frame. A sink that
    /// keeps bytes needs no [`Sample`] of it.
    fn frame(&mut self, (start, end): (i64, i64), body: &HistogramBody<'_>) -> Result<()> {
        let value = SampleValue::Histogram(Box::new(body.to_histogram()));
        self.sample(&Sample { start, end, value })
    }
    /// Known missing data.
    fn gap(&mut self, gap: Gap);
    /// Description of a metric, such as the HELP of Prometheus. Most sinks need none.
    fn description(&mut self, _metric: &str, _text: &str) {}
    /// An exemplar of the series with a key, which need not be the selected one. Returns whether it
    /// was taken. Most sinks need none.
    fn exemplar(
        &mut self,
        _key: &[u8],
        _series: &mut dyn FnMut() -> Result<Series>,
        _exemplar: &Exemplar,
    ) -> bool {
        false
    }
    /// An exemplar that was rejected, or changed.
    fn exemplar_problem(&mut self, _problem: ExemplarProblem) {}
    /// Whether a span may be kept as an exemplar of the series with a key, by its rank
    /// ([`model::span_sampling_key`]): others that were taken may come before it.
    fn wants_span(&mut self, _key: &[u8], _time: i64, _value: f64, _rank: u64) -> bool {
        true
    }
    /// Numbers of the spans of the series with a key, by cell of the exemplars. They ended in the
    /// minute of a time.
    fn span_counts(&mut self, _key: &[u8], _time: i64, _counts: &[(LadderCell, u64)]) {}
    /// Whether a span name of a service may become a label. Sinks that store series bound their
    /// number; [`crate::spans::OTHER_NAME`] stands for further ones, and is itself refused for a
    /// service beyond the number of services.
    fn admits_span_name(&mut self, _service: &str, _namespace: &str, _name: &str) -> bool {
        true
    }
    /// A valid span, for sinks that keep whole traces. Of a root, the cell of its duration in
    /// milliseconds.
    fn span(&mut self, _span: &RawSpan<'_>, _root: Option<LadderCell>) {}
    /// Counts of the spans of a request.
    fn count_spans(&mut self, _summary: &SpanSummary) {}
}

/// Passes on an exemplar, or what is wrong with it. Returns whether it was taken.
pub(crate) fn pass_exemplar(
    sink: &mut (impl SeriesSink + ?Sized),
    key: &[u8],
    series: &mut dyn FnMut() -> Result<Series>,
    exemplar: &DecodedExemplar,
) -> bool {
    match exemplar {
        Ok(exemplar) => sink.exemplar(key, series, exemplar),
        Err(problem) => {
            sink.exemplar_problem(*problem);
            false
        }
    }
}

/// Recording sink for tests.
#[derive(Debug, Default)]
pub struct VecSeriesSink {
    /// Samples with their series, in input order.
    pub rows: Vec<(Series, Sample)>,
    /// Recorded gaps.
    pub gaps: Vec<Gap>,
    /// Metrics with their descriptions, in input order.
    pub descriptions: Vec<(String, String)>,
    /// Exemplars with their series, in input order.
    pub exemplars: Vec<(Series, Exemplar)>,
    /// What was wrong with exemplars.
    pub exemplar_problems: Vec<ExemplarProblem>,
    known: std::collections::HashMap<Vec<u8>, Series>,
    series: Option<Series>,
}

impl SeriesSink for VecSeriesSink {
    fn series(&mut self, key: &[u8], series: &mut dyn FnMut() -> Result<Series>) -> Result<()> {
        self.series = None;
        let found = match self.known.get(key) {
            Some(known) => known.clone(),
            None => {
                let found = series()?.validate()?;
                self.known.insert(key.to_owned(), found.clone());
                found
            }
        };
        self.series = Some(found);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> Result<()> {
        let series = self.series.clone().expect("BUG: a sample before its series");
        self.rows.push((series, sample.clone()));
        Ok(())
    }

    fn gap(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }

    fn description(&mut self, metric: &str, text: &str) {
        self.descriptions.push((metric.to_owned(), text.to_owned()));
    }

    fn exemplar(
        &mut self,
        _key: &[u8],
        series: &mut dyn FnMut() -> Result<Series>,
        exemplar: &Exemplar,
    ) -> bool {
        let series = series().and_then(Series::validate);
        self.exemplars.extend(series.ok().map(|series| (series, exemplar.clone())));
        true
    }

    fn exemplar_problem(&mut self, problem: ExemplarProblem) {
        self.exemplar_problems.push(problem);
    }
}
