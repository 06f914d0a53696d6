//! What a function of CAQL is given, and what it gives.
//!
//! Every stream has one value for each slot, or none (NULL). A slot of a stream of distributions is never NULL: it is
//! a distribution, perhaps an empty one. What a stream is called in a legend stands under [`LABEL`].

use crate::caql::arguments::{Arguments, Context};
use crate::error::{Place, Result};
use crate::note::Notes;
use crate::stream::{Steps, Stream};

/// Under which label a stream's legend stands, once something has set it.
pub const LABEL: &str = "__label__";

/// A function of CAQL, as far as it is worked out from other streams.
pub(crate) struct Kernel {
    /// How many slots of its inputs it looks at before the first slot that is asked for, and after the last.
    pub(crate) reach: fn(&Arguments, Steps) -> (usize, usize),
    /// What it makes of them.
    pub(crate) work: fn(Work<'_>) -> Result<Vec<Stream>>,
}

impl Kernel {
    /// One that looks at each slot alone.
    pub(crate) fn slotwise(work: fn(Work<'_>) -> Result<Vec<Stream>>) -> Kernel {
        Kernel { reach: |_, _| (0, 0), work }
    }
}

/// A piece of work.
pub(crate) struct Work<'a> {
    /// What is computed, as `window:mean`.
    pub(crate) name: &'a str,
    /// The streams of all sources, in order. They have `before + steps.count + after` points.
    pub(crate) inputs: Vec<Stream>,
    /// The inputs that are worked on count what happened in each slot: they are no rates.
    pub(crate) are_counts: bool,
    pub(crate) arguments: &'a Arguments,
    /// The slots that are asked for: slot `i` is what happened from `steps.time(i)` until one step later.
    pub(crate) steps: Steps,
    pub(crate) before: usize,
    pub(crate) after: usize,
    pub(crate) context: &'a Context,
    /// Where the call stands.
    pub(crate) place: Place,
    pub(crate) notes: &'a mut Notes,
}
