//! What the planner and the checks know of a function of CAQL beside its signature.

/// What the planner and the checks know of a function beside its signature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FunctionTraits {
    pub(crate) unit: StreamUnitRule,
    pub(crate) quantiles: QuantileRule,
    pub(crate) merges: MergeRule,
    pub(crate) resample: ResampleRule,
    /// From which source on the kernel is told whether they count values in each slot.
    pub(crate) counts_from: Option<usize>,
    /// Two calls are not the same, even with the same arguments.
    pub(crate) is_random: bool,
}

/// Unit of the streams that a function gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StreamUnitRule {
    /// It cannot be named.
    Unknown,
    /// This one.
    Named(&'static str),
    /// That of all sources.
    Sources,
    /// Values by the second, if that is the period.
    Rate,
    /// Numbers in the unit of the values whose distributions the sources have.
    Values,
    /// Distributions of values in the unit of the sources.
    Distributions,
}

/// What a function does with quantiles, so that averages of them can be rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum QuantileRule {
    /// Its result is no quantile.
    Other,
    /// Its result is a quantile.
    Quantile,
    /// Its result is a quantile if a source is one.
    Kept,
    /// The same, if all other sources are constants.
    KeptWithConstants,
    /// It averages its sources.
    Average(AverageOver),
}

/// What an average is taken over.
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

/// Which of its sources a function merges. The store merges histograms that are found only for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MergeRule {
    /// None.
    Not,
    /// All of them.
    All,
    /// Those whose tags of the categories in the arguments agree.
    ByTags,
}

/// How values of a period shorter than a slot become one of the slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ResampleRule {
    /// The function has no period of its own.
    Not,
    /// The first of them.
    First,
    /// The last, unless the windows are aligned to their start.
    Rolling,
    /// Their merged histograms.
    Merged,
    /// Their numbers, reduced in a way that `stats` knows.
    Numbers(&'static str),
}
