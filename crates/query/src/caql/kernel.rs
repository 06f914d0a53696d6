//! Kernel interface of CAQL functions.
//!
//! Every stream has one value for each slot, or none (NULL). A slot of a stream of distributions is
//! never NULL: it is a distribution, perhaps an empty one. What a stream is called in a legend
//! stands under [`LABEL`].

use crate::caql::arguments::{Arguments, CaqlContext};
use crate::error::{Result, SourceSpan};
use crate::query_warnings::QueryWarnings;
use crate::stream::{StepGrid, Stream};

/// Under which label a stream's legend stands, once something has set it.
pub const LABEL: &str = "__label__";

/// What a kernel does.
pub(crate) type KernelFn = fn(KernelInput<'_>) -> Result<Vec<Stream>>;

/// CAQL kernel: computes a function from input streams.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    /// How many slots of its inputs it looks at before the first slot that is asked for, and after
    /// the last.
    pub(crate) reach: fn(&Arguments, StepGrid) -> (usize, usize),
    /// What it makes of them.
    pub(crate) run: KernelFn,
}

impl Kernel {
    /// One that looks at each slot alone.
    pub(crate) fn slotwise(work: KernelFn) -> Kernel {
        Kernel { reach: |_, _| (0, 0), run: work }
    }
}

/// Input of a kernel.
pub(crate) struct KernelInput<'a> {
    /// What is computed, as `window:mean`.
    pub(crate) name: &'a str,
    /// The streams of all sources, in order. They have `before + steps.count + after` points.
    pub(crate) inputs: Vec<Stream>,
    /// The inputs that are worked on count what happened in each slot: they are no rates.
    pub(crate) are_counts: bool,
    pub(crate) arguments: &'a Arguments,
    /// The slots that are asked for: slot `i` is what happened from `steps.time(i)` until one step
    /// later.
    pub(crate) steps: StepGrid,
    pub(crate) slots_before: usize,
    pub(crate) slots_after: usize,
    pub(crate) context: &'a CaqlContext,
    /// Where the call stands.
    pub(crate) span: SourceSpan,
    pub(crate) warnings: &'a mut QueryWarnings,
}
