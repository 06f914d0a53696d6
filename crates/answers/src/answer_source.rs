//! Where a command reads: the directory of a store, or a server.
//!
//! Both give the same answers: values of `query` and `store`, which `report` draws. A store is read
//! in this process; a server is asked for documents with frames, which are read back without loss.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use client::{ProgressLine, RequestParameters, ServerClient, print_message};
use hist::Mixture;
use model::Selector;
use query::breakdown::{Breakdown, HeatmapSelection};
use query::compare::{Comparison, Selection};
use query::maxima::{self, MaxQuery, Maxima};
use query::selection::SelectionSummary;
use query::selector_text;
use query::{
    Error, Language, Limits, QueryRequest, QueryResult, ResultData, Settings, StoreSource, Stream,
};
use report::document;
use store::{Cardinality, ReadView, Store, TimeColumn};

use crate::query_error::error_text;
use crate::store_dir::{no_match_error, open, with_dir};

/// Name of the parameter with the encoding of buckets, and the lossless encoding.
const FRAMES: (&str, &str) = ("cells", "frames");

/// Source of answers.
pub enum AnswerSource {
    /// The store of a directory.
    Dir(Box<StoreDir>),
    /// A running server.
    Server(ServerClient),
}

/// An open store.
pub struct StoreDir {
    dir: PathBuf,
    store: Store,
    view: ReadView,
}

/// A query, and what it may cost.
pub struct BoundedQuery<'a> {
    /// The query.
    pub request: QueryRequest<'a>,
    /// What it may read and return.
    pub limits: Limits,
    /// Maximum age of the latest sample, in nanoseconds.
    pub lookback: i64,
    /// Longest time, in nanoseconds.
    pub timeout: i64,
}

/// A query result, and the maxima of its percentiles.
type QueryAnswer = (QueryResult, Vec<Maxima>);

/// Selection of a breakdown as typed, for a server: thresholds have units.
pub struct BreakdownThresholds {
    /// Lower threshold.
    pub above: String,
    /// Upper threshold.
    pub up_to: Option<String>,
}

impl AnswerSource {
    /// The store in a directory, or the server if there is no directory.
    pub fn open(dir: Option<&Path>, server: &ServerClient) -> Result<AnswerSource> {
        match dir {
            None => Ok(AnswerSource::Server(server.clone())),
            Some(dir) if server.is_named() => bail!(
                "cannot read both the store {} and a server; omit the directory or --server",
                dir.display()
            ),
            Some(dir) => {
                let store = open(dir)?;
                let view = store.view().map_err(with_dir(dir))?;
                let directory = StoreDir { dir: dir.to_owned(), store, view };
                Ok(AnswerSource::Dir(Box::new(directory)))
            }
        }
    }

    /// Directory or URL, for messages.
    pub fn name(&self) -> String {
        match self {
            AnswerSource::Dir(directory) => directory.dir.display().to_string(),
            AnswerSource::Server(server) => server.url(),
        }
    }

    /// What a selector matches. `range` limits the gaps.
    pub fn selection(&self, selector: &Selector, range: Range<i64>) -> Result<SelectionSummary> {
        match self {
            AnswerSource::Dir(directory) => {
                let read = SelectionSummary::read(&directory.view, selector, &range);
                read.map_err(|error| directory.error(error))
            }
            AnswerSource::Server(server) => {
                let mut parameters = RequestParameters::default().with("selector", selector);
                if range.start > i64::MIN {
                    parameters = parameters.with_ns("from", range.start);
                }
                if range.end < i64::MAX {
                    parameters = parameters.with_ns("to", range.end);
                }
                let answer = server.get("/v1/selection", parameters)?;
                Ok(document::selection::from_json(&answer)?)
            }
        }
    }

    /// What a selector matches; an error if it matches nothing.
    pub fn required_selection(&self, selector: &Selector) -> Result<SelectionSummary> {
        let summary = self.selection(selector, i64::MIN..i64::MAX)?;
        match summary.groups.is_empty() {
            true => Err(no_match_error(&self.name(), selector, &summary)),
            false => Ok(summary),
        }
    }

    /// What a selector matches; an error if it matches no histograms.
    pub fn required_histograms(&self, selector: &Selector) -> Result<SelectionSummary> {
        let summary = self.required_selection(selector)?;
        if summary.histograms().next().is_some() {
            return Ok(summary);
        }
        let hint = summary.hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
        bail!(
            "{} matches no histograms, but {} series of other kinds{hint}",
            selector_text(selector),
            summary.series()
        )
    }

    /// The result of a query, or the error in its expression.
    pub fn query(&self, query: &BoundedQuery<'_>) -> Result<Result<QueryAnswer, Error>> {
        match self {
            AnswerSource::Dir(directory) => directory.query(query),
            AnswerSource::Server(server) => query_server(server, query).map(Ok),
        }
    }

    /// The comparison, with the selections as the source resolved them.
    pub fn compare(
        &self,
        sides: [Selection; 2],
        limits: Limits,
    ) -> Result<([Selection; 2], Comparison)> {
        match self {
            AnswerSource::Dir(directory) => {
                let source = StoreSource::new(&directory.view);
                let [a, b] = &sides;
                let compared = query::compare::compare(&source, [a, b], limits, &|| false);
                let comparison = compared.map_err(|error| directory.error(error))?;
                Ok((sides, comparison))
            }
            AnswerSource::Server(server) => {
                let [a, b] = &sides;
                let parameters = RequestParameters::default()
                    .with("a", &a.selector)
                    .with("b", &b.selector)
                    .with_ns("from", a.range.start)
                    .with_ns("to", a.range.end)
                    .with_ns("from_b", b.range.start)
                    .with_ns("to_b", b.range.end)
                    .with("max_series", limits.series)
                    .with(FRAMES.0, FRAMES.1);
                let answer = server.get("/v1/compare", parameters)?;
                Ok(document::compare::from_json(&answer)?)
            }
        }
    }

    /// The breakdown, with the rectangle as the source resolved it, and the unit of the values.
    pub fn break_down(
        &self,
        rectangle: HeatmapSelection,
        unit: Option<String>,
        thresholds: &BreakdownThresholds,
        limits: Limits,
    ) -> Result<(HeatmapSelection, Option<String>, Breakdown)> {
        match self {
            AnswerSource::Dir(directory) => {
                let source = StoreSource::new(&directory.view);
                let found = query::breakdown::break_down(&source, &rectangle, limits, &|| false);
                Ok((rectangle, unit, found.map_err(|error| directory.error(error))?))
            }
            AnswerSource::Server(server) => {
                let parameters = RequestParameters::default()
                    .with("selector", &rectangle.selector)
                    .with("above", &thresholds.above)
                    .with_option("up_to", thresholds.up_to.as_ref())
                    .with_ns("from", rectangle.time.start)
                    .with_ns("to", rectangle.time.end)
                    .with_ns("baseline_from", rectangle.baseline.start)
                    .with_ns("baseline_to", rectangle.baseline.end)
                    .with("max_series", limits.series);
                let answer = server.get("/v1/breakdown", parameters)?;
                Ok(document::breakdown::from_json(&answer)?)
            }
        }
    }

    /// Columns of a heatmap of all histograms of a selector, at most `most`.
    pub fn heatmap(
        &self,
        selector: &Selector,
        range: &Range<i64>,
        most: usize,
    ) -> Result<Vec<TimeColumn<Mixture>>> {
        match self {
            AnswerSource::Dir(directory) => directory.heatmap(selector, range, most),
            AnswerSource::Server(server) => {
                let parameters = RequestParameters::default()
                    .with("selector", selector)
                    .with_ns("from", range.start)
                    .with_ns("to", range.end)
                    .with("max_columns", most)
                    .with(FRAMES.0, FRAMES.1);
                let answer = server.get("/v1/heatmap", parameters)?;
                Ok(document::heatmap::columns_from_json(&answer)?)
            }
        }
    }

    /// Metrics, labels and label values with the most series.
    pub fn cardinality(&self, top: u32) -> Result<Cardinality> {
        match self {
            AnswerSource::Dir(directory) => {
                directory.store.cardinality(top as usize).map_err(with_dir(&directory.dir))
            }
            AnswerSource::Server(server) => {
                let parameters = RequestParameters::default().with("top", top);
                let answer = server.get("/v1/cardinality", parameters)?;
                Ok(document::cardinality::from_json(&answer)?)
            }
        }
    }
}

impl StoreDir {
    /// Error of the store with its directory; limits with the names of their flags.
    fn error(&self, error: Error) -> anyhow::Error {
        match error {
            Error::Store(error) => with_dir(&self.dir)(error),
            error => anyhow!("{}", error_text(&error)),
        }
    }

    fn query(&self, query: &BoundedQuery<'_>) -> Result<Result<QueryAnswer, Error>> {
        let settings = Settings {
            limits: query.limits,
            lookback: query.lookback,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            clips_quantiles: true,
            ..Settings::default()
        };
        let (started, most) = (Instant::now(), Duration::from_nanos(query.timeout.unsigned_abs()));
        let is_over = || started.elapsed() > most;
        let source = StoreSource::new(&self.view);
        let execute = |text: &str| -> Result<Result<QueryResult, Error>> {
            let request = QueryRequest { text, ..query.request.clone() };
            match query::execute(&source, &request, &settings, &is_over) {
                Err(Error::Store(error)) => Err(with_dir(&self.dir)(error)),
                answer => Ok(answer),
            }
        };
        let answer = match execute(query.request.text)? {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        let mut maxima = Vec::new();
        for wanted in max_queries(query, &answer) {
            match execute(&wanted.expression)? {
                Ok(found) => maxima.extend(Maxima::new(wanted, found, result_streams(&answer))),
                // The result is valid without it.
                Err(error) => {
                    print_message(format_args!("the maximum is unknown: {}", error_text(&error)));
                }
            }
        }
        Ok(Ok((answer, maxima)))
    }

    fn heatmap(
        &self,
        selector: &Selector,
        range: &Range<i64>,
        most: usize,
    ) -> Result<Vec<TimeColumn<Mixture>>> {
        let parts = self.store.stat().map_err(with_dir(&self.dir))?.parts;
        let series = query::select_distributions(&self.view, selector);
        let mut progress = ProgressLine::new();
        let mut show = |n: u64, of: u64| {
            progress.show(|_| format!("column {n} of {of}"));
            Ok(())
        };
        query::heatmap::columns(&self.view, &parts, &series, range, most, &mut show)
            .map_err(|error| self.error(error))
    }
}

fn max_queries(query: &BoundedQuery<'_>, answer: &QueryResult) -> Vec<MaxQuery> {
    match &answer.data {
        ResultData::Vector(_) | ResultData::Matrix(_) => {
            let QueryRequest { text, language, options, .. } = &query.request;
            maxima::max_queries(text, *language, options)
        }
        _ => Vec::new(),
    }
}

fn result_streams(answer: &QueryResult) -> &[Stream] {
    match &answer.data {
        ResultData::Vector(streams) | ResultData::Matrix(streams) => streams,
        _ => &[],
    }
}

fn query_server(server: &ServerClient, query: &BoundedQuery<'_>) -> Result<QueryAnswer> {
    let QueryRequest { text, language, start, end, step, options } = &query.request;
    let language_name = match language {
        Language::PromQl => "promql",
        Language::Caql => "caql",
    };
    let is_experimental = options.experimental_functions;
    let mut parameters = RequestParameters::default()
        .with("query", text)
        .with("language", language_name)
        .with("experimental", is_experimental)
        .with_ns("to", *end)
        .with_ns("lookback", query.lookback)
        .with_ns("timeout", query.timeout)
        .with("max_samples", query.limits.samples)
        .with("max_series", query.limits.series)
        .with("max_bytes", query.limits.bytes)
        .with("max_steps", query.limits.steps)
        .with(FRAMES.0, FRAMES.1);
    if *step > 0 {
        parameters = parameters.with_ns("from", *start).with_ns("step", *step);
    }
    let answer = server.post_form("/v1/query", parameters)?;
    let wanted = maxima::max_queries(text, *language, options);
    Ok(document::result::from_json(&answer, wanted)?)
}
