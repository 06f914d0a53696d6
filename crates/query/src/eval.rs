//! Plan evaluation, all steps of a node at once.

pub(crate) mod aggregate;
pub(crate) mod binary;
pub(crate) mod call;
mod exact;
mod node;
pub(crate) mod range_functions;
mod select;
mod series;
mod series_merge;
mod subquery;

use std::collections::HashMap;
use std::sync::Arc;

use model::Gap;
use store::DecodedChunks;

use crate::context::QueryContext;
use crate::error::{Error, Result, SourceSpan};
use crate::limits::QueryBudget;
use crate::query_warnings::QueryWarnings;
use crate::settings::Settings;
use crate::source::Source;
use crate::stream::{StepGrid, Stream};

/// State of a running evaluation.
pub(crate) struct Evaluation<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) settings: &'a Settings,
    pub(crate) budget: Arc<QueryBudget<'a>>,
    pub(crate) warnings: QueryWarnings,
    pub(crate) gaps: Vec<Gap>,
    /// Streams of nodes used more than once in a query, by node and steps.
    pub(crate) shared: HashMap<(usize, StepGrid), Arc<Vec<Stream>>>,
    /// Whether the steps are those of a range query with only one step.
    pub(crate) is_range_of_one_step: bool,
    /// Whether series with the same labels but different units are told apart, not merged: where
    /// only their presence counts, or where they are the result.
    pub(crate) keeps_units_apart: bool,
    /// Memory for chunks of histograms.
    pub(crate) decoded_chunks: DecodedChunks,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(
        source: &'a dyn Source,
        settings: &'a Settings,
        context: &'a dyn QueryContext,
    ) -> Evaluation<'a> {
        Evaluation {
            source,
            settings,
            budget: Arc::new(QueryBudget::new(settings.limits, context)),
            warnings: QueryWarnings::default(),
            gaps: Vec::new(),
            shared: HashMap::new(),
            is_range_of_one_step: false,
            keeps_units_apart: false,
            decoded_chunks: DecodedChunks::default(),
        }
    }

    /// Releases the memory of dropped streams.
    pub(crate) fn release(&self, streams: &[Stream]) {
        self.budget.release_samples(streams.iter().map(Stream::samples).sum());
    }

    /// Drops the metric name, because a function changed the meaning of the values.
    pub(crate) fn drop_name(&self, stream: &mut Stream) {
        match self.settings.delayed_name_removal {
            true => stream.drops_name = true,
            false => stream.labels = stream.labels.without_metadata(),
        }
    }

    /// Merges streams whose labels have become equal, if no step has two of them.
    pub(crate) fn merge_equal_labels(
        &self,
        streams: Vec<Stream>,
        span: SourceSpan,
    ) -> Result<Vec<Stream>> {
        match self.settings.delayed_name_removal {
            // The names still distinguish the streams.
            true => Ok(streams),
            false => merge_equal_labels(streams, span),
        }
    }
}

/// Merges streams with equal labels; an error if a step has two.
pub(crate) fn merge_equal_labels(streams: Vec<Stream>, span: SourceSpan) -> Result<Vec<Stream>> {
    let mut merged: Vec<Stream> = Vec::with_capacity(streams.len());
    let mut indexes = std::collections::HashMap::with_capacity(streams.len());
    for stream in streams {
        match indexes.entry(stream.labels.clone()) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(merged.len());
                merged.push(stream);
            }
            std::collections::hash_map::Entry::Occupied(entry) => {
                for (target, more) in merged[*entry.get()].points.iter_mut().zip(stream.points) {
                    match (&target, more) {
                        (_, None) => {}
                        (None, more) => *target = more,
                        (Some(_), Some(_)) => return Err(duplicate_labels_error(span)),
                    }
                }
            }
        }
    }
    Ok(merged)
}

pub(crate) fn duplicate_labels_error(span: SourceSpan) -> Error {
    let message = "vector cannot contain metrics with the same labelset".to_owned();
    Error::Execution { span, message }
}
