//! Distributions out of streams: histograms as they are, and classic ones out of the streams of their buckets.

use std::collections::HashMap;

use crate::error::Result;
use crate::eval::Evaluation;
use crate::labels::Labels;
use crate::plan::Node;
use crate::promql::quantile::Level;
use crate::stream::{Steps, Stream};
use crate::value::Value;

/// The label with the upper bound of a classic histogram's bucket.
const BOUND: &str = "le";

/// A distribution at a step.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// A histogram or distribution.
    Native(Value),
    /// The buckets of a classic one, in any order.
    Classic(Vec<Level>),
}

/// Distributions of one thing over the steps.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    labels: Labels,
    /// How the metric is called in notes; empty where its name is dropped at once.
    pub(super) name: String,
    points: Vec<Option<Shape>>,
}

/// All distributions, and for how many samples they count.
pub(super) struct Subjects {
    pub(super) list: Vec<Subject>,
    pub(super) held: u64,
}

impl Subject {
    fn new(evaluation: &Evaluation<'_>, labels: Labels, points: Vec<Option<Shape>>) -> Subject {
        let name = name_of(evaluation, &labels);
        Subject { labels, name, points }
    }

    /// A number of each distribution.
    pub(super) fn map(self, mut f: impl FnMut(usize, &mut Shape) -> Value) -> Stream {
        let points = self.points.into_iter().enumerate();
        let points = points.map(|(step, point)| point.map(|mut shape| f(step, &mut shape)));
        Stream::new(self.labels, points.collect())
    }
}

impl Evaluation<'_> {
    /// The distributions of a node. Where a classic and another one are of the same name and labels, neither is
    /// among them.
    pub(super) fn subjects(&mut self, node: &Node, steps: Steps) -> Result<Subjects> {
        let streams = self.streams(node, steps)?;
        let held = super::super::samples(&streams);
        let mut natives = Vec::new();
        let mut classics: Vec<Classic> = Vec::new();
        let mut places: HashMap<Labels, usize> = HashMap::new();
        for stream in streams {
            let has = |is_native: bool| {
                stream.points.iter().flatten().any(|value| value.is_distribution() == is_native)
            };
            if has(false) {
                let written = stream.labels.get(BOUND);
                match bound(written) {
                    Some(bound) => {
                        let labels = stream.labels.with(BOUND, "");
                        let at = *places.entry(labels.clone()).or_insert(classics.len());
                        if at == classics.len() {
                            classics
                                .push(Classic { labels, levels: vec![Vec::new(); steps.count] });
                        }
                        classics[at].add(&stream, bound);
                    }
                    None => {
                        let message = format!(
                            "PromQL warning: bucket label \"le\" is missing or has a malformed value of \
                             {written:?}"
                        );
                        let name = name_of(self, &stream.labels);
                        self.notes.warn(node.place, of_metric(&message, &name));
                    }
                }
            }
            if has(true) {
                natives.push(stream);
            }
        }
        let mut list = Vec::with_capacity(natives.len() + classics.len());
        for native in natives {
            let shape =
                |point: Option<Value>| point.filter(Value::is_distribution).map(Shape::Native);
            let mut points: Vec<Option<Shape>> = native.points.into_iter().map(shape).collect();
            let same = places.get(&native.labels).map(|at| &mut classics[*at].levels);
            if same.is_some_and(|levels| clear_both(&mut points, levels)) {
                let name = name_of(self, &native.labels);
                let message =
                    "PromQL warning: vector contains a mix of classic and native histograms";
                self.notes.warn(node.place, of_metric(message, &name));
            }
            list.push(Subject::new(self, native.labels, points));
        }
        for classic in classics {
            let shape = |levels: Vec<Level>| (!levels.is_empty()).then_some(Shape::Classic(levels));
            let points = classic.levels.into_iter().map(shape).collect();
            list.push(Subject::new(self, classic.labels, points));
        }
        Ok(Subjects { list, held })
    }
}

/// A classic histogram: the buckets that there are at each step.
struct Classic {
    labels: Labels,
    levels: Vec<Vec<Level>>,
}

impl Classic {
    fn add(&mut self, bucket: &Stream, upper_bound: f64) {
        for (levels, point) in self.levels.iter_mut().zip(&bucket.points) {
            if let Some(count) = point.as_ref().and_then(Value::number) {
                levels.push(Level { upper_bound, count });
            }
        }
    }
}

/// Neither is answered for where both are. Says whether there was such a step.
fn clear_both(points: &mut [Option<Shape>], levels: &mut [Vec<Level>]) -> bool {
    let mut were_both = false;
    for (point, levels) in points.iter_mut().zip(levels) {
        if point.is_some() && !levels.is_empty() {
            *point = None;
            levels.clear();
            were_both = true;
        }
    }
    were_both
}

/// A bucket's upper bound as it is written; a number that doubles do not hold is none.
fn bound(text: &str) -> Option<f64> {
    let bound: f64 = text.parse().ok()?;
    let is_written_out = text.contains(['n', 'N']);
    (bound.is_finite() || is_written_out).then_some(bound)
}

/// The metric's name for notes. Where names are dropped at once, notes do not have it, as in Prometheus.
fn name_of(evaluation: &Evaluation<'_>, labels: &Labels) -> String {
    match evaluation.settings.delayed_name_removal {
        true => labels.name().to_owned(),
        false => String::new(),
    }
}

/// A message, with the metric's name if it is known.
pub(super) fn of_metric(message: &str, name: &str) -> String {
    match name {
        "" => message.to_owned(),
        name => format!("{message} for metric name {name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        assert_eq!(bound("0.5"), Some(0.5));
        assert_eq!(bound("+Inf"), Some(f64::INFINITY));
        assert_eq!(bound("-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(bound("1e3"), Some(1000.0));
        assert_eq!(bound("1e999"), None);
        assert_eq!(bound(""), None);
        assert_eq!(bound("Hello World"), None);
    }
}
