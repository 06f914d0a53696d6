//! Many streams put together into fewer: `sum by (…)` and its like.

mod count_values;
mod fold;
mod hash;
mod heap;
mod mean;
mod pick;
mod sum;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;

use crate::error::{Error, Place, Result};
use crate::eval::Evaluation;
use crate::labels::{Labels, NAME};
use crate::plan::Node;
use crate::promql::AggregateOp;
use crate::stream::{Steps, Stream};

/// Which streams are put together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grouping {
    /// Those that agree in all labels but these, not in these.
    pub(crate) is_without: bool,
    pub(crate) labels: Vec<String>,
}

impl Grouping {
    /// What a group is called.
    pub(crate) fn labels_of(&self, labels: &Labels) -> Labels {
        match self.is_without {
            true => labels.keep(|label| label != NAME && !self.names(label)),
            false => labels.keep(|label| self.names(label)),
        }
    }

    fn names(&self, label: &str) -> bool {
        self.labels.iter().any(|held| held == label)
    }

    /// The groups, in the order of their first streams.
    fn groups(&self, streams: Vec<Stream>) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: HashMap<Labels, usize> = HashMap::new();
        for stream in streams {
            let labels = self.labels_of(&stream.labels);
            let at = *known.entry(labels).or_insert_with_key(|labels| {
                groups.push(Group { labels: labels.clone(), members: Vec::new() });
                groups.len() - 1
            });
            groups[at].members.push(stream);
        }
        groups
    }
}

/// Streams that are put together.
struct Group {
    labels: Labels,
    members: Vec<Stream>,
}

/// An aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub(crate) way: AggregateOp,
    pub(crate) grouping: Grouping,
    pub(crate) of: Node,
    /// How many, which quantile, or under which label.
    pub(crate) param: Option<Node>,
}

impl Evaluation<'_> {
    pub(crate) fn aggregate(
        &mut self,
        aggregate: &Aggregate,
        place: Place,
        steps: Steps,
    ) -> Result<Vec<Stream>> {
        if aggregate.way == AggregateOp::CountValues {
            return self.count_values(aggregate, place, steps);
        }
        let params = match &aggregate.param {
            Some(node) => Params { numbers: self.scalar(node, steps)?, place: node.place },
            None => Params { numbers: Vec::new(), place },
        };
        let streams = self.streams(&aggregate.of, steps)?;
        match aggregate.way {
            AggregateOp::TopK
            | AggregateOp::BottomK
            | AggregateOp::LimitK
            | AggregateOp::LimitRatio => self.pick(aggregate, &params, streams, place),
            _ => self.fold(aggregate, &params, streams, steps),
        }
    }
}

/// The parameter of an aggregation at each step.
struct Params {
    numbers: Vec<f64>,
    place: Place,
}

impl Params {
    fn has_nan(&self) -> bool {
        self.numbers.iter().any(|number| number.is_nan())
    }

    /// The greatest; NaN if one is.
    fn max(&self) -> f64 {
        self.least_by(|number| -number).map_or(f64::NAN, |least| -least)
    }

    /// The least; NaN if one is.
    fn min(&self) -> f64 {
        self.least_by(|number| number).unwrap_or(f64::NAN)
    }

    fn least_by(&self, key: impl Fn(f64) -> f64) -> Option<f64> {
        let keys = self.numbers.iter().map(|number| key(*number));
        (!self.has_nan()).then(|| keys.fold(f64::INFINITY, f64::min))
    }
}

fn failed<T>(place: Place, message: String) -> Result<T> {
    Err(Error::Execution { place, message })
}
