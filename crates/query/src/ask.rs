//! Asking: text in, answer out.

use model::Gap;

use crate::error::{Error, Place, Result};
use crate::eval::{Evaluation, Settings, merge_same};
use crate::note::Notes;
use crate::plan::{Node, Op};
use crate::source::Source;
use crate::stream::{Readings, Steps, Stream};
use crate::{caql, promql};

/// In which language a question is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// Prometheus'.
    #[default]
    PromQl,
    /// Circonus'.
    Caql,
}

/// A question.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// What is asked.
    pub text: &'a str,
    /// In which language.
    pub language: Language,
    /// The first moment that is asked about, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// The last; in CAQL, the end, which is excluded.
    pub end: i64,
    /// Nanoseconds from one to the next; 0 asks about one moment, the start.
    pub step: i64,
    /// Which parts of PromQL are understood.
    pub options: promql::Options,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What was asked for.
    pub data: Data,
    /// The moments that it has values for.
    pub steps: Steps,
    /// What it should not be read without.
    pub notes: Notes,
    /// What is known to be missing in what was read.
    pub gaps: Vec<Gap>,
    /// In what the numbers are, or the values of the distributions, where that is known.
    pub unit: Option<String>,
}

/// The kinds of answers, as Prometheus tells them apart.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// One number for each step.
    Scalar(Vec<f64>),
    /// A text.
    Text(String),
    /// Streams at one moment, each with one point, in the order that the question gives them.
    Vector(Vec<Stream>),
    /// Streams over time.
    Matrix(Vec<Stream>),
    /// Readings as they came.
    Readings(Vec<Readings>),
}

impl Data {
    /// For how many samples it counts towards the limit.
    fn samples(&self) -> u64 {
        match self {
            // Numbers and texts alone are not counted: there is one for each step at the most.
            Data::Scalar(_) | Data::Text(_) => 0,
            Data::Vector(streams) | Data::Matrix(streams) => {
                streams.iter().map(Stream::samples).sum()
            }
            Data::Readings(all) => {
                let readings = all.iter().flat_map(|series| &series.readings);
                readings.map(|reading| reading.value.samples()).sum()
            }
        }
    }
}

/// Works out an answer. `is_over` says that nobody waits for it any more, or that its time is up.
pub fn ask(
    source: &dyn Source,
    question: &Question<'_>,
    settings: &Settings,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<Answer> {
    ask_and_count(source, question, settings, is_over).map(|(answer, _)| answer)
}

/// An answer, and how many samples are counted as held beside those of the answer: none, if nothing was forgotten.
pub fn ask_and_count(
    source: &dyn Source,
    question: &Question<'_>,
    settings: &Settings,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<(Answer, i128)> {
    match question.language {
        Language::PromQl => {
            let steps = steps_of(question, settings)?;
            let expression = promql::parse(question.text, &question.options)?;
            let (kind, node) = promql::plan(&expression, question, settings)?;
            let mut evaluation = Evaluation::new(source, settings, is_over);
            evaluation.is_range_of_one_step =
                question.step > 0 && steps.is_instant() && question.end != question.start;
            let data = promql_data(&mut evaluation, kind, &node, steps)?;
            let unit = evaluation.unit(&node)?.text();
            let beside = i128::from(evaluation.budget.held()) - i128::from(data.samples());
            Ok((finish(evaluation, data, steps, unit), beside))
        }
        Language::Caql => {
            caql_answer(source, question, settings, is_over).map(|answer| (answer, 0))
        }
    }
}

fn caql_answer(
    source: &dyn Source,
    question: &Question<'_>,
    settings: &Settings,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<Answer> {
    let plan = caql::plan(question, settings)?;
    let lookback = plan.lookback.unwrap_or(settings.lookback);
    let settings = Settings { lookback, ..settings.clone() };
    let mut evaluation = Evaluation::new(source, &settings, is_over);
    evaluation.notes = plan.notes;
    let offset = plan.promql_at.unwrap_or(0);
    let moved = |error: Error| error.moved(offset);
    let mut streams = evaluation.streams(&plan.node, plan.steps).map_err(moved)?;
    let samples = |streams: &[Stream]| streams.iter().map(Stream::samples).sum::<u64>();
    let shared: u64 = evaluation.shared.values().map(|streams| samples(streams)).sum();
    debug_assert_eq!(evaluation.budget.held(), samples(&streams) + shared, "BUG: held is not held");
    let unit = evaluation.unit(&plan.node).map_err(moved)?.text();
    if plan.promql_at.is_some() {
        streams = without_names(streams, plan.node.place).map_err(moved)?;
        streams.retain(|stream| !stream.is_empty());
        streams.sort_by(|a, b| a.labels.cmp(&b.labels));
        evaluation.notes = evaluation.notes.moved(offset);
    } else {
        let place = plan.node.place;
        caql::name(&mut streams, question.text.get(place.start..place.end).unwrap_or(""));
    }
    Ok(finish(evaluation, Data::Matrix(streams), plan.steps, unit))
}

/// Without names that do not describe what they stand at any more.
fn without_names(mut streams: Vec<Stream>, place: Place) -> Result<Vec<Stream>> {
    if !streams.iter().any(|stream| stream.drops_name) {
        return Ok(streams);
    }
    for stream in streams.iter_mut().filter(|stream| stream.drops_name) {
        stream.labels = stream.labels.without_metadata();
    }
    merge_same(streams, place)
}

fn finish(evaluation: Evaluation<'_>, data: Data, steps: Steps, unit: Option<String>) -> Answer {
    let mut gaps = evaluation.gaps;
    gaps.sort();
    gaps.dedup();
    Answer { data, steps, notes: evaluation.notes, gaps, unit }
}

fn steps_of(question: &Question<'_>, settings: &Settings) -> Result<Steps> {
    if question.step == 0 {
        return Ok(Steps::at(question.start));
    }
    let invalid = |message: &str| {
        let place = Place::new(0, question.text.len());
        Err(Error::Parse { place, message: message.to_owned() })
    };
    if question.step < 0 {
        return invalid("the step is negative: give a step above nought");
    }
    if question.end < question.start {
        return invalid("the end lies before the start");
    }
    let steps = Steps::over(question.start, question.end, question.step);
    let max = settings.limits.steps;
    if steps.count as u64 > max {
        let remedy = "ask for longer steps or a shorter time, or raise max_steps".to_owned();
        let (what, found) = ("steps (max_steps)", steps.count as u64);
        return Err(Error::Limit { what, found, max, remedy });
    }
    Ok(steps)
}

fn promql_data(
    evaluation: &mut Evaluation<'_>,
    kind: promql::ValueType,
    node: &Node,
    steps: Steps,
) -> Result<Data> {
    match (&node.op, kind) {
        (Op::Text(text), _) => Ok(Data::Text(text.clone())),
        (Op::Ranged(ranged), _) => {
            let mut readings = evaluation.ranged(ranged, steps.start)?;
            for series in readings.iter_mut().filter(|series| series.drops_name) {
                series.labels = series.labels.without_metadata();
            }
            readings.sort_by(|a, b| a.labels.cmp(&b.labels));
            Ok(Data::Readings(readings))
        }
        (_, promql::ValueType::Scalar) => Ok(Data::Scalar(evaluation.scalar(node, steps)?)),
        _ => {
            let mut streams = evaluation.streams(node, steps)?;
            streams = without_names(streams, node.place)?;
            streams.retain(|stream| !stream.is_empty());
            Ok(match steps.is_instant() {
                true => Data::Vector(streams),
                false => {
                    streams.sort_by(|a, b| a.labels.cmp(&b.labels));
                    Data::Matrix(streams)
                }
            })
        }
    }
}
