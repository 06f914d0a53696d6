//! Functions of readings over time: `rate`, `avg_over_time` and their like.
//!
//! Numbers come out bit for bit as Prometheus 3.15 has them where times are whole milliseconds: operations are
//! done in its order, with times in its units.

mod extend;
mod pair;
mod plain;
mod rate;
mod remark;
mod smooth;
mod statistics;
mod sum;
mod trend;
mod window;

pub(crate) use smooth::stretched;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Place, Result};
use crate::eval::{Evaluation, same_labels};
use crate::labels::{Labels, TYPE};
use crate::plan::{Extension, Node, Ranged, RangedOf};
use crate::promql::labels_named;
use crate::stream::{Reading, Readings, Steps, Stream};
use crate::value::Value;

use remark::{Remark, Remarks};
use window::{Cursors, Series, Window};

/// A function of readings over time.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    work: Work,
    /// What it gives is still what the metric's name says.
    keeps_name: bool,
    /// It depends on the step itself, not only on the readings.
    depends_on_step: bool,
    /// Begins of counting say something to it.
    uses_starts: bool,
    /// Which it takes beside plain ranges.
    extensions: &'static [Extension],
    /// It is for counters; metrics that seem to be none are told.
    is_for_counters: bool,
}

/// What a function does with the readings of one series at a step.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Something of readings as they came, of which there is at least one.
    Plain(fn(&[Reading]) -> Value),
    /// Something of numbers and histograms, of which there is at least one.
    Apart(fn(&Window<'_>, &mut Remarks) -> Result<Option<Value>>),
    /// One where no series has a reading.
    Absent,
}

impl Function {
    const fn plain(name: &'static str, work: fn(&[Reading]) -> Value) -> Function {
        Function::new(name, Work::Plain(work))
    }

    const fn apart(
        name: &'static str,
        work: fn(&Window<'_>, &mut Remarks) -> Result<Option<Value>>,
    ) -> Function {
        Function::new(name, Work::Apart(work))
    }

    const fn new(name: &'static str, work: Work) -> Function {
        Function {
            name,
            work,
            keeps_name: false,
            depends_on_step: false,
            uses_starts: false,
            extensions: &[],
            is_for_counters: false,
        }
    }

    const fn keeping_name(self) -> Function {
        Function { keeps_name: true, ..self }
    }

    const fn depending_on_step(self) -> Function {
        Function { depends_on_step: true, ..self }
    }

    const fn using_starts(self) -> Function {
        Function { uses_starts: true, ..self }
    }

    const fn extended(self, extensions: &'static [Extension]) -> Function {
        Function { extensions, ..self }
    }

    const fn for_counters(self) -> Function {
        Function { is_for_counters: true, ..self }
    }
}

const BOTH: &[Extension] = &[Extension::Anchored, Extension::Smoothed];

/// All of them, by name.
static FUNCTIONS: [Function; 27] = [
    Function::new("absent_over_time", Work::Absent),
    Function::apart("avg_over_time", sum::avg),
    Function::apart("changes", pair::changes).extended(&[Extension::Anchored]),
    Function::plain("count_over_time", plain::count),
    Function::apart("delta", rate::delta).extended(BOTH),
    Function::apart("deriv", trend::deriv),
    Function::apart("double_exponential_smoothing", trend::smoothed),
    Function::plain("first_over_time", plain::first).keeping_name(),
    Function::apart("idelta", pair::idelta),
    Function::apart("increase", rate::increase).using_starts().extended(BOTH).for_counters(),
    Function::apart("irate", pair::irate).using_starts(),
    Function::plain("last_over_time", plain::last).keeping_name(),
    Function::apart("mad_over_time", statistics::mad),
    Function::apart("max_over_time", statistics::max),
    Function::apart("min_over_time", statistics::min),
    Function::apart("predict_linear", trend::predict_linear).depending_on_step(),
    Function::plain("present_over_time", plain::present),
    Function::apart("quantile_over_time", statistics::quantile),
    Function::apart("rate", rate::rate).using_starts().extended(BOTH).for_counters(),
    Function::apart("resets", pair::resets).using_starts().extended(&[Extension::Anchored]),
    Function::apart("stddev_over_time", statistics::stddev),
    Function::apart("stdvar_over_time", statistics::stdvar),
    Function::apart("sum_over_time", sum::sum),
    Function::plain("ts_of_first_over_time", plain::time_of_first),
    Function::plain("ts_of_last_over_time", plain::time_of_last),
    Function::apart("ts_of_max_over_time", statistics::time_of_max),
    Function::apart("ts_of_min_over_time", statistics::time_of_min),
];

/// The function of that name.
pub(crate) fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// A function of readings, and what it is applied to.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    pub(crate) function: &'static Function,
    /// The readings.
    pub(crate) of: Ranged,
    /// Numbers, in the order of the arguments without the readings.
    pub(crate) args: Vec<Node>,
}

impl Over {
    /// The first argument: remarks are about that, also where it is a number.
    fn first_place(&self) -> Place {
        let places = self.args.iter().map(|arg| arg.place).chain([self.of.place]);
        places.min_by_key(|place| place.start).unwrap_or(self.of.place)
    }

    fn check_extension(&self, place: Place) -> Result<()> {
        let (extension, word) = match self.of.extension() {
            Extension::None => return Ok(()),
            extension @ Extension::Anchored => (extension, "anchored"),
            extension @ Extension::Smoothed => (extension, "smoothed"),
        };
        if self.function.extensions.contains(&extension) {
            return Ok(());
        }
        let takes = |function: &&Function| function.extensions.contains(&extension);
        let names: Vec<&str> = FUNCTIONS.iter().filter(takes).map(|one| one.name).collect();
        let message = format!(
            "{word} modifier can only be used with: {} - not with {}",
            names.join(", "),
            self.function.name
        );
        Err(Error::Execution { place, message })
    }
}

impl Evaluation<'_> {
    pub(crate) fn over(&mut self, over: &Over, place: Place, steps: Steps) -> Result<Vec<Stream>> {
        over.check_extension(place)?;
        let mut numbers = Vec::with_capacity(over.args.len());
        for arg in &over.args {
            numbers.push(self.scalar(arg, steps)?);
        }
        if matches!(over.function.work, Work::Absent) {
            return self.absent(&over.of, steps);
        }
        let apply = Apply { over, place, steps, numbers, lookback: self.settings.lookback };
        let kept = AtomicUsize::new(0);
        let streams = self.map_readings(&over.of, steps, &|evaluation, readings| {
            let Some(stream) = apply.to_series(evaluation, readings)? else { return Ok(None) };
            let before = kept.fetch_add(1, Ordering::Relaxed);
            evaluation.budget.room(before + 1, steps.count)?;
            evaluation.budget.hold(stream.samples())?;
            Ok(Some(stream))
        })?;
        if !self.settings.delayed_name_removal {
            let mut seen: HashSet<&Labels> = HashSet::with_capacity(streams.len());
            if !streams.iter().all(|stream| seen.insert(&stream.labels)) {
                return Err(same_labels(place));
            }
        }
        Ok(streams)
    }

    fn absent(&mut self, of: &Ranged, steps: Steps) -> Result<Vec<Stream>> {
        let found = self.map_readings(of, steps, &|_, readings| {
            let series = Series::whole(readings);
            let mut cursors = Cursors::default();
            let is_there = steps.times().map(|time| {
                let end = of.shift().apply(time);
                let (found, ..) = cursors.within(&series, end.saturating_sub(of.range), end);
                !found.is_empty()
            });
            Ok(Some(is_there.collect::<Vec<bool>>()))
        })?;
        let mut points = vec![Some(Value::Number(1.0)); steps.count];
        for is_there in found {
            points
                .iter_mut()
                .zip(is_there)
                .filter(|(_, there)| *there)
                .for_each(|(at, _)| *at = None);
        }
        // A subquery names none.
        let labels = match &of.of {
            RangedOf::Series(fetch) => labels_named(&fetch.matchers),
            RangedOf::Subquery { .. } => Labels::default(),
        };
        let mut stream = Stream::new(labels, points);
        if stream.is_empty() {
            return Ok(Vec::new());
        }
        self.budget.hold(stream.samples())?;
        stream.drops_name = self.settings.delayed_name_removal;
        Ok(vec![stream])
    }
}

/// A function that is applied to one series after another.
struct Apply<'a> {
    over: &'a Over,
    place: Place,
    steps: Steps,
    /// The arguments that are numbers, each at each step.
    numbers: Vec<Vec<f64>>,
    lookback: i64,
}

/// After how many steps it is looked whether there is time left.
const STEPS_UNCHECKED: usize = 64;

impl Apply<'_> {
    /// What becomes of a series; `None` where it has no value at any step.
    fn to_series(
        &self,
        evaluation: &mut Evaluation<'_>,
        mut readings: Readings,
    ) -> Result<Option<Stream>> {
        let function = self.over.function;
        let labels = std::mem::take(&mut readings.labels);
        let drops_name = readings.drops_name;
        let series = match function.work {
            Work::Plain(_) | Work::Absent => Series::whole(readings),
            Work::Apart(_) => {
                let uses_starts = function.uses_starts && evaluation.settings.start_timestamps;
                Series::apart(readings, uses_starts)
            }
        };
        let mut remarks = Remarks::default();
        let points = self.points(evaluation, &series, &mut remarks)?;
        if function.is_for_counters {
            let types = evaluation.settings.type_and_unit_labels;
            remarks.extend(no_counter(&labels, &points, types));
        }
        remarks.note(labels.name(), self.over.first_place(), &mut evaluation.notes);
        let mut stream = Stream::new(labels, points);
        if stream.is_empty() {
            return Ok(None);
        }
        stream.drops_name = drops_name;
        if !function.keeps_name {
            evaluation.drop_name(&mut stream);
        }
        Ok(Some(stream))
    }

    fn points(
        &self,
        evaluation: &Evaluation<'_>,
        series: &Series,
        remarks: &mut Remarks,
    ) -> Result<Vec<Option<Value>>> {
        let shift = self.over.of.shift();
        // Of a fixed stretch all steps see the same; but arguments may differ from step to step.
        let is_fixed = shift.at.is_some() && !self.over.function.depends_on_step;
        let mut cursors = Cursors::default();
        let mut points: Vec<Option<Value>> = Vec::with_capacity(self.steps.count);
        let mut args: Vec<f64> = vec![0.0; self.numbers.len()];
        for (at, time) in self.steps.times().enumerate() {
            if at % STEPS_UNCHECKED == 0 {
                evaluation.budget.check()?;
            }
            let mut is_same = is_fixed && at > 0;
            for (arg, numbers) in args.iter_mut().zip(&self.numbers) {
                is_same &= arg.to_bits() == numbers[at].to_bits();
                *arg = numbers[at];
            }
            let point = match points.last() {
                Some(point) if is_same => point.clone(),
                _ => self.point(series, &mut cursors, time, &args, remarks)?,
            };
            points.push(point);
        }
        Ok(points)
    }

    fn point(
        &self,
        series: &Series,
        cursors: &mut Cursors,
        time: i64,
        args: &[f64],
        remarks: &mut Remarks,
    ) -> Result<Option<Value>> {
        let of = &self.over.of;
        let extension = of.extension();
        let end = of.shift().apply(time);
        let start = end.saturating_sub(of.range);
        let (after, until) = match extension {
            Extension::None => (start, end),
            Extension::Anchored => (start.saturating_sub(self.lookback), end),
            Extension::Smoothed => {
                (start.saturating_sub(self.lookback), end.saturating_add(self.lookback))
            }
        };
        let (readings, floats, histograms) = cursors.within(series, after, until);
        if readings.is_empty() && floats.is_empty() && histograms.is_empty() {
            return Ok(None);
        }
        match self.over.function.work {
            Work::Plain(work) => Ok(Some(work(readings))),
            Work::Apart(work) => {
                let (place, range) = (self.place, of.range);
                let is_running = series.is_running;
                let window = Window {
                    place,
                    time,
                    start,
                    end,
                    range,
                    extension,
                    floats,
                    histograms,
                    is_running,
                    args,
                };
                work(&window, remarks)
            }
            Work::Absent => Ok(None),
        }
    }
}

/// Whether numbers that were taken for a counter's do not seem to be one's.
fn no_counter(labels: &Labels, points: &[Option<Value>], has_types: bool) -> Option<Remark> {
    let name = labels.name();
    let is_number = |value: &Value| value.number().is_some();
    if name.is_empty() || !points.iter().flatten().any(is_number) {
        return None;
    }
    if has_types {
        let kind = labels.get(TYPE);
        let is_counter = matches!(kind, "counter" | "histogram");
        return (!is_counter).then(|| Remark::NoCounterType(kind.to_owned()));
    }
    let ends = ["_total", "_sum", "_count", "_bucket"];
    (!ends.iter().any(|end| name.ends_with(end))).then_some(Remark::NoCounterName)
}

#[cfg(test)]
mod tests;
