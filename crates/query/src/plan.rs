//! What has to be done to answer a question: both languages are read into this, and one evaluation works it out.
//!
//! A node gives streams: numbers or distributions at each step. Only [`Op::Ranged`] gives readings as they came,
//! and only functions over time take those.

use model::Selector;

use crate::caql;
use crate::error::Place;
use crate::eval::{aggregate, binary, call, over};
use crate::promql::Matcher;

/// A piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) op: Op,
    /// Where in the expression it stands.
    pub(crate) place: Place,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// The same number at each step.
    Number(f64),
    /// A text, for functions that take one.
    Text(String),
    /// The latest reading of each series at each step, not older than the lookback.
    Latest(Fetch),
    /// Readings of a stretch of time before each step.
    Ranged(Box<Ranged>),
    /// What happened in a stretch of time before each step, exactly, out of the coarsest rollups that fit.
    Exact(Box<Exact>),
    /// The same at each step: worked out once.
    Once(Box<Node>),
    Negate(Box<Node>),
    /// A function of readings over time.
    Over(Box<over::Over>),
    /// A function of what is there at each step.
    Call {
        function: &'static call::Function,
        args: Vec<Node>,
    },
    Aggregate(Box<aggregate::Aggregate>),
    Binary(Box<binary::Binary>),
    /// A function of CAQL.
    Stage(Box<caql::Stage>),
}

/// Which series are read, and when.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    pub(crate) selector: Selector,
    /// The same as it was written, for what is absent.
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) shift: Shift,
    pub(crate) extension: Extension,
    /// Each histogram is told whether its counter began anew after the one before. Prometheus does so where nothing
    /// but counts and sums is asked for, and remarks on sums of counters depend on it.
    pub(crate) looks_for_resets: bool,
    pub(crate) place: Place,
}

/// When it is read, against the step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shift {
    /// How long before the step; negative, after it.
    pub(crate) offset: i64,
    /// Not at the step but at this moment.
    pub(crate) at: Option<i64>,
}

impl Shift {
    /// The moment that is meant at a step.
    pub(crate) fn apply(self, time: i64) -> i64 {
        self.at.unwrap_or(time).saturating_sub(self.offset)
    }
}

/// What is added at the ends of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Extension {
    #[default]
    None,
    /// The reading before the range stands at its start.
    Anchored,
    /// Values at both ends are interpolated.
    Smoothed,
}

/// Readings of a stretch of time that ends at each step.
#[derive(Clone, Debug)]
pub(crate) struct Ranged {
    pub(crate) of: RangedOf,
    /// Nanoseconds of the stretch; its start is excluded, its end included.
    pub(crate) range: i64,
    /// Counters are meant: of a series of deltas its running total is read.
    pub(crate) of_counters: bool,
    pub(crate) place: Place,
}

#[derive(Clone, Debug)]
pub(crate) enum RangedOf {
    Series(Fetch),
    Subquery { inner: Node, step: Option<i64>, shift: Shift },
}

impl Ranged {
    pub(crate) fn shift(&self) -> Shift {
        match &self.of {
            RangedOf::Series(fetch) => fetch.shift,
            RangedOf::Subquery { shift, .. } => *shift,
        }
    }

    pub(crate) fn extension(&self) -> Extension {
        match &self.of {
            RangedOf::Series(fetch) => fetch.extension,
            RangedOf::Subquery { .. } => Extension::None,
        }
    }
}

/// What happened in a stretch of time before each step.
#[derive(Clone, Debug)]
pub(crate) struct Exact {
    pub(crate) fetch: Fetch,
    /// Nanoseconds of the stretch.
    pub(crate) range: i64,
    /// Divided by the seconds of the range.
    pub(crate) is_rate: bool,
    /// Series whose labels agree are put together.
    pub(crate) grouping: Option<aggregate::Grouping>,
    /// What the expression says in standard PromQL: the same only for distributions that are deltas, and done
    /// where something else was selected.
    pub(crate) standard: Option<Node>,
}
