//! Kernel interface of CAQL functions. A slot is a step of the result (Prometheus: step).
//!
//! Every stream has one value, or none (NULL), for each slot. A slot of a stream of distributions
//! is never NULL: it holds a distribution, possibly an empty one. The label [`LEGEND`] holds the
//! legend of a stream.

use crate::caql::arguments::{Arguments, CaqlContext};
use crate::error::{Result, SourceSpan};
use crate::query_warnings::QueryWarnings;
use crate::stream::{StepGrid, Stream};

/// Label that holds the legend of a stream, once a function has set it.
pub const LEGEND: &str = "__label__";

/// Function of a kernel.
pub(crate) type KernelFn = fn(KernelInput<'_>) -> Result<Vec<Stream>>;

/// Slots around the requested ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotMargin {
    /// Before the first requested slot.
    pub(crate) before: usize,
    /// After the last requested slot.
    pub(crate) after: usize,
}

impl SlotMargin {
    /// A lookback without a lookahead.
    pub(crate) fn before(slots: usize) -> SlotMargin {
        SlotMargin { before: slots, after: 0 }
    }
}

/// CAQL kernel (implementation of a function): computes it from input streams.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    /// Slots of the inputs that the kernel reads around the requested ones.
    pub(crate) margin: fn(&Arguments, StepGrid) -> SlotMargin,
    /// Computes the output streams.
    pub(crate) run: KernelFn,
}

impl Kernel {
    /// Kernel that reads the requested slots only.
    pub(crate) fn without_margin(run: KernelFn) -> Kernel {
        Kernel { margin: |_, _| SlotMargin::default(), run }
    }
}

/// Input of a kernel.
pub(crate) struct KernelInput<'a> {
    /// Function name, such as `window:mean`.
    pub(crate) name: &'a str,
    /// Streams of all inputs, in order. They have `slots_before + steps.count +
    /// slots_after` points.
    pub(crate) inputs: Vec<Stream>,
    /// Whether the inputs count events per slot, rather than being rates.
    pub(crate) are_counts: bool,
    pub(crate) arguments: &'a Arguments,
    /// Requested slots: slot `i` covers the step from `steps.time(i)`.
    pub(crate) steps: StepGrid,
    pub(crate) slots_before: usize,
    pub(crate) slots_after: usize,
    pub(crate) context: &'a CaqlContext,
    /// Span of the call.
    pub(crate) span: SourceSpan,
    pub(crate) warnings: &'a mut QueryWarnings,
}
