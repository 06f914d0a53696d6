//! Planner and check properties of a CAQL function, in addition to its signature.

/// Planner and check properties of a function, in addition to its signature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FunctionTraits {
    pub(crate) unit: StreamUnitRule,
    pub(crate) quantiles: QuantileRule,
    pub(crate) merges: MergeRule,
    pub(crate) resample: ResampleRule,
    /// Index of the first input that may be counts per slot instead of rates: the kernel has to
    /// know which.
    pub(crate) first_count_input: Option<usize>,
    /// Whether two calls with equal arguments give different results.
    pub(crate) is_random: bool,
}

/// Unit of the streams of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StreamUnitRule {
    /// Unknown unit.
    Unknown,
    /// Fixed unit.
    Named(&'static str),
    /// Unit common to all inputs.
    SameAsInputs,
    /// Values per second, if the argument `period` is a second or absent; otherwise unknown.
    Rate,
    /// Unit of the values in the inputs' distributions.
    Values,
    /// Distributions of values in the unit of the inputs.
    Distributions,
}

/// Effect of a function on quantiles, used to reject averages of quantiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum QuantileRule {
    /// Its result is not a quantile.
    NotQuantile,
    /// Its result is a quantile.
    Quantile,
    /// Its result is a quantile if an input is one.
    Kept,
    /// Its result is a quantile if one input is a quantile and all other inputs are constants.
    KeptWithConstants,
    /// It averages its inputs.
    Average(AverageOver),
}

/// Scope of an average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AverageOver {
    /// All streams.
    Streams,
    /// The streams of each group.
    Groups,
    /// The slots of a window.
    Windows,
    /// A period.
    Period,
}

/// Inputs that a function merges. The store merges the histograms of a selector only for such a
/// function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MergeRule {
    /// None.
    Nothing,
    /// All of them.
    All,
    /// Those with equal tags in the categories given as arguments.
    ByTags,
}

/// Rule for folding values of a period shorter than a slot into one value of the slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ResampleRule {
    /// The function has no period of its own.
    NoPeriod,
    /// First value.
    First,
    /// Of rolling windows the last value, the first one with the argument `align="start"`.
    Rolling,
    /// Merged histogram.
    Merged,
    /// Numbers reduced by this function of `stats`.
    Numbers(&'static str),
}
