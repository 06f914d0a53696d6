//! What a response has beside the result: warnings, gaps, and whether series were left out.

use query::{QueryResult, QueryWarningKind, ResultData};

use super::ResponseExtras;
use report::document::wide_bounds_warning;

/// Maximum number of reported gaps.
const GAPS_REPORTED_MAX: usize = 10;

/// Warnings and infos of a result with their positions, and gaps.
pub(super) fn warnings_and_gaps(result: &QueryResult, text: &str) -> ResponseExtras {
    let notes = |kind| {
        let notes = result.warnings.of_kind(kind).map(|(note, span)| {
            let (line, column) = span.line_and_column(text);
            format!("{note} ({line}:{column})")
        });
        notes.collect::<Vec<_>>()
    };
    let mut warnings = notes(QueryWarningKind::Warning);
    warnings.extend(wide_bounds_warning(result));
    let time_text = |ns: i64| {
        jiff::Timestamp::from_nanosecond(ns.into())
            .map_or_else(|_| ns.to_string(), |at| at.to_string())
    };
    for gap in result.gaps.iter().take(GAPS_REPORTED_MAX) {
        warnings.push(format!(
            "missing from {} to {}: {gap}",
            time_text(gap.start),
            time_text(gap.end)
        ));
    }
    if let Some(more) = result.gaps.len().checked_sub(GAPS_REPORTED_MAX).filter(|more| *more > 0) {
        warnings.push(format!("missing: {more} more gaps"));
    }
    ResponseExtras { warnings, infos: notes(QueryWarningKind::Info) }
}

/// Whether a result has no series.
pub(super) fn is_empty(result: &QueryResult) -> bool {
    match &result.data {
        ResultData::Vector(streams) | ResultData::Matrix(streams) => streams.is_empty(),
        _ => false,
    }
}

/// Truncates to `limit` series, unless it is 0; returns whether there were more.
pub(super) fn truncate(result: &mut QueryResult, limit: usize) -> bool {
    if limit == 0 {
        return false;
    }
    match &mut result.data {
        ResultData::Vector(streams) | ResultData::Matrix(streams) if streams.len() > limit => {
            streams.truncate(limit);
            true
        }
        ResultData::RawSamples(series) if series.len() > limit => {
            series.truncate(limit);
            true
        }
        _ => false,
    }
}
