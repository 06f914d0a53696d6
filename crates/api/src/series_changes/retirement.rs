//! Retirement of series: a staleness marker ends each, as if its source had stopped.
//!
//! Its rows stay, and a new sample revives it. Texts have no markers, and a series that a marker
//! has ended already needs no other.

use std::sync::Arc;

use decode::staleness::{mark_series_retired, marker_series};
use intake::{IngestWriter, Intake, PendingAck, SeriesKeyEncoding};
use model::{SampleValue, SeriesKind};
use store::{ReadView, SeriesEntryRef};

use super::{DRY_RUN, EXPECTED_SERIES, SELECTOR, SeriesChange};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::Object;
use crate::json::integer;
use crate::parameters::Parameters;
use crate::route::Parameter;

pub(super) const RETIRE: &[Parameter] = &[SELECTOR, DRY_RUN, EXPECTED_SERIES];
/// Name of the producer of the markers.
const PRODUCER: &str = "retire";

pub(super) async fn retire(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(RETIRE)?;
    let (queries, intake) = (context.queries.clone(), context.intake.clone());
    let store = queries.store()?;
    let work = move |active: &ActiveQuery| {
        let view = store.view()?;
        let mut change = SeriesChange::resolve(&parameters, &view, intake.now())?;
        let selected = change.found.len();
        let ends = retain_current(&mut change, &view, active)?;
        if change.found.is_empty() {
            return Err(ApiError::BadRequest(format!(
                "cannot retire: none of {selected} selected series is current; all are retired, \
                 or texts"
            )));
        }
        change.check_expected(&parameters)?;
        let mut fields = change.fields(&view)?;
        drop(view);
        if !change.is_dry_run {
            let retired = append_markers(&intake, &change.found, &ends)?;
            let rejected = (change.found.len() as u64).saturating_sub(retired);
            fields.extend([("retired", integer(retired)), ("rejected", integer(rejected))]);
        }
        queries.json_response(&Object(fields))
    };
    context.run_heavy("retire", None, work).await
}

/// Leaves the series that a marker would end. Returns the end of the last row of each.
fn retain_current(
    change: &mut SeriesChange,
    view: &ReadView,
    active: &ActiveQuery,
) -> Result<Vec<i64>, ApiError> {
    let mut ends = Vec::new();
    for found in std::mem::take(&mut change.found) {
        active.check_cancelled()?;
        let latest = view.latest_end(std::slice::from_ref(&found))?;
        let Some(end) = latest.filter(|_| found.series.kind() != SeriesKind::Text) else {
            continue;
        };
        if !is_ended(view, &found, end)? {
            change.found.push(found);
            ends.push(end);
        }
    }
    Ok(ends)
}

/// Whether a marker follows the last row of a series, or is it.
fn is_ended(view: &ReadView, found: &SeriesEntryRef, end: i64) -> Result<bool, ApiError> {
    let Ok(Some(marker)) = marker_series(&found.series) else { return Ok(false) };
    let Some(marker) = view.select_id(&marker.id()) else { return Ok(false) };
    let Some(marked) = view.latest_end(std::slice::from_ref(&marker))? else { return Ok(false) };
    if marked < end {
        return Ok(false);
    }
    let mut is_marker = false;
    view.samples(&marker, marked.saturating_sub(1)..marked, &mut |sample| {
        is_marker = matches!(sample.value, SampleValue::Number(it) if query::is_stale(it));
    })?;
    Ok(is_marker)
}

/// Appends the marker of each series, now or after its last row, durably. Returns the number of
/// markers stored: a limit of the store can reject the series that has the markers of a histogram.
fn append_markers(
    intake: &Arc<Intake>,
    found: &[SeriesEntryRef],
    ends: &[i64],
) -> Result<u64, ApiError> {
    let producer = intake.producer(PRODUCER);
    producer.disable_absence_monitor();
    let failed =
        |error: &dyn std::fmt::Display| ApiError::Internal(format!("cannot retire: {error}"));
    let writer = || intake.writer_for(producer.id(), SeriesKeyEncoding::CANONICAL);
    let (mut batch, mut pending_acks, mut markers): (IngestWriter, Vec<PendingAck>, u64) =
        (writer(), Vec::new(), 0);
    let mut append = |batch: IngestWriter| -> Result<(), ApiError> {
        markers = markers.saturating_add(batch.samples());
        if !batch.is_empty() {
            pending_acks.push(intake.append(&producer, batch).map_err(|error| failed(&error))?);
        }
        Ok(())
    };
    let now = intake.now();
    for (found, end) in found.iter().zip(ends) {
        let at = now.max(end.saturating_add(1));
        mark_series_retired(model::Series::clone(&found.series), at, &mut batch)
            .map_err(|error| failed(&error))?;
        if batch.is_half_full() {
            append(std::mem::replace(&mut batch, writer()))?;
        }
    }
    append(batch)?;
    for pending_ack in pending_acks {
        pending_ack.wait_durable().map_err(|error| failed(&error))?;
    }
    Ok(markers)
}
