//! Changes of stored series on a running server: delete rows, rename series, retire series.
//!
//! Without `dry_run=false` nothing changes: the response says what would. A client that shows the
//! result of a dry run passes its number of series as `expected_series`, so that it changes only
//! what was shown.
//!
//! A renamed series is a new one: its rows are appended durably under the new name, then those
//! under the old name are deleted. If the server stops in between, both exist; a second attempt is
//! rejected, because rows would be counted twice, and names the rows to delete first.

mod retirement;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use decode::SeriesSink as _;
use intake::{Intake, SeriesKeyEncoding};
use model::{Sample, Selector, Series, SeriesId};
use query::StoreSource;
use render::text::plural;
use store::{ReadView, RowCount, SeriesEntryRef, Store};

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{Bool, Integer, List, Null, Object, Text};
use crate::json::{Json, integer};
use crate::parameters::{Parameters, SELECTOR_SYNTAX};
use crate::route::{ApiRoute, FROM, JSON, Parameter, TO};
use crate::routing;
use crate::token::Scope;
use report::document::series_fields;

use self::retirement::{RETIRE, retire};

const SELECTOR: Parameter = Parameter::text("selector", "the series").many().required();
const DRY_RUN: Parameter =
    Parameter::flag("dry_run", "false to change the store; default: true, which only reports");
const EXPECTED_SERIES: Parameter = Parameter::integer(
    "expected_series",
    "number of series of the dry run; the request is rejected if it has changed",
);

const DELETE: &[Parameter] = &[SELECTOR, FROM, TO, DRY_RUN, EXPECTED_SERIES];
const RENAME: &[Parameter] = &[
    SELECTOR,
    Parameter::text("name", "new metric name; default: unchanged"),
    Parameter::text("unit", "new unit, such as ms; none removes it; default: unchanged"),
    DRY_RUN,
    EXPECTED_SERIES,
];

const fn change_route(
    path: &'static str,
    about: &'static str,
    parameters: &'static [Parameter],
    handler: fn() -> axum::routing::MethodRouter<Context>,
    result: &'static str,
) -> ApiRoute {
    ApiRoute { method: "post", ..ApiRoute::get(path, about, parameters, handler) }
        .with_scope(Some(Scope::Admin))
        .with_response(200, JSON, result)
}

pub(crate) const ROUTES: &[ApiRoute] = &[
    change_route(
        "/v1/series/delete",
        "Deletes samples of series, at every resolution; a dry run by default.",
        DELETE,
        || routing::post(delete),
        "affected series, and deleted samples; durable",
    ),
    change_route(
        "/v1/series/rename",
        "Renames series or changes their unit, without conversion of values; a dry run by default.",
        RENAME,
        || routing::post(rename),
        "affected series, and renamed samples; durable",
    ),
    change_route(
        "/v1/series/retire",
        "Ends series now with a staleness marker; their samples stay; a dry run by default.",
        RETIRE,
        || routing::post(retire),
        "affected series, and stored markers; durable",
    ),
];

/// Series listed as examples.
const EXAMPLES: usize = 10;
/// Maximum number of series renamed by a request, each of which is read and written whole.
const RENAMED_SERIES_MAX: usize = 10_000;
/// Name of the producer of renamed rows.
const PRODUCER: &str = "rename";

/// What a request selects.
struct SeriesChange {
    found: Vec<SeriesEntryRef>,
    range: Range<i64>,
    is_dry_run: bool,
}

impl SeriesChange {
    fn resolve(
        parameters: &Parameters,
        view: &ReadView,
        now: i64,
    ) -> Result<SeriesChange, ApiError> {
        parameters.required("selector", SELECTOR_SYNTAX)?;
        let selector = parameters.selectors("selector")?;
        let is_dry_run = match parameters.get("dry_run") {
            None | Some("true" | "1") => true,
            Some("false" | "0") => false,
            Some(other) => {
                return Err(ApiError::invalid_parameter("dry_run", other, "true or false"));
            }
        };
        let ends = [parameters.time("from", now)?, parameters.time("to", now)?];
        let range = ends[0].unwrap_or(i64::MIN)..ends[1].unwrap_or(i64::MAX);
        if range.is_empty() {
            let what = "parameters from and to: empty range; the end is exclusive";
            return Err(ApiError::BadRequest(what.to_owned()));
        }
        let found = view.select(&selector);
        if found.is_empty() {
            return Err(ApiError::NotFound(no_match_message(view, &selector)));
        }
        Ok(SeriesChange { found, range, is_dry_run })
    }

    /// Rejects a change whose dry run reported another number of series.
    fn check_expected(&self, parameters: &Parameters) -> Result<(), ApiError> {
        let expected = parameters.integer("expected_series", usize::MAX, usize::MAX)?;
        let found = self.found.len();
        match expected == usize::MAX || expected == found {
            true => Ok(()),
            false => Err(ApiError::PreconditionFailed(format!(
                "cannot change the series: {found} match, but {expected} were expected; repeat \
                 the dry run"
            ))),
        }
    }

    fn ids(&self) -> BTreeSet<SeriesId> {
        self.found.iter().map(|found| found.series.id()).collect()
    }

    /// First fields of the document.
    fn fields(&self, view: &ReadView) -> Result<Vec<(&'static str, Json)>, ApiError> {
        let extent = view.time_range(&self.found)?;
        let end =
            |of: fn(Range<i64>) -> i64| extent.clone().map_or(Null, |it| Integer(of(it).into()));
        let examples = self.found.iter().take(EXAMPLES);
        Ok(vec![
            ("schema", integer(1)),
            ("dry_run", Bool(self.is_dry_run)),
            ("series", integer(self.found.len() as u64)),
            ("first_ns", end(|extent| extent.start)),
            ("last_ns", end(|extent| extent.end)),
            ("examples", List(examples.map(|it| Object(series_fields(&it.series))).collect())),
        ])
    }

    /// Fields of a dry run: the number of base samples that would change.
    fn row_fields(&self, view: &ReadView) -> Result<[(&'static str, Json); 2], ApiError> {
        let count = view.count_rows(&self.found, &self.range, RowCount::COUNTED_MAX)?;
        let is_lower_bound = Bool(count.is_lower_bound);
        Ok([("rows", integer(count.rows)), ("rows_is_lower_bound", is_lower_bound)])
    }
}

/// A selector that matches nothing may have the name of a series in PromQL, or be misspelt.
fn no_match_message(view: &ReadView, selector: &Selector) -> String {
    let mut stored = None;
    view.each_series(&Selector::All, &mut |series| {
        if query::prometheus_series(&series).any(|listed| selector.matches(&listed)) {
            stored = Some(series.to_string());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    let of_promql = stored
        .map(|series| format!("changes take stored names, not those of PromQL: select {series}"));
    let near = || query::selector_hint(&StoreSource::new(view), selector).ok().flatten();
    let hint = of_promql.or_else(near).map_or_else(String::new, |hint| format!("; {hint}"));
    format!("{} matches no series{hint}", query::selector_text(selector))
}

async fn delete(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(DELETE)?;
    let (queries, now) = (context.queries.clone(), context.intake.now());
    let store = queries.store()?;
    let work = move |_: &ActiveQuery| {
        let view = store.view()?;
        let change = SeriesChange::resolve(&parameters, &view, now)?;
        change.check_expected(&parameters)?;
        let mut fields = change.fields(&view)?;
        if change.is_dry_run {
            fields.extend(change.row_fields(&view)?);
        }
        drop(view);
        if !change.is_dry_run {
            let deleted = store.delete_series(&change.ids(), change.range)?;
            fields.extend([
                ("rows", integer(deleted.rows)),
                ("rollup_rows", integer(deleted.rollup_rows)),
                ("kept_rollup_rows", integer(deleted.retained_rows)),
                ("removed_series", integer(deleted.series)),
            ]);
        }
        queries.json_response(&Object(fields))
    };
    context.run_heavy("delete", None, work).await
}

async fn rename(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(RENAME)?;
    let (queries, intake) = (context.queries.clone(), context.intake.clone());
    let store = queries.store()?;
    let work = move |active: &ActiveQuery| {
        let view = store.view()?;
        let mut change = SeriesChange::resolve(&parameters, &view, intake.now())?;
        let renames = plan_renames(&parameters, &mut change)?;
        change.check_expected(&parameters)?;
        let mut fields = change.fields(&view)?;
        let examples = renames.iter().take(EXAMPLES);
        let examples = examples.map(|(_, new)| Object(series_fields(new))).collect();
        fields.push(("renamed", List(examples)));
        let notes = rename_notes(&view, &renames).into_iter().map(Text).collect();
        fields.push(("notes", List(notes)));
        for (old, new) in &renames {
            check_target(&view, old, new)?;
            active.check_cancelled()?;
        }
        if change.is_dry_run {
            fields.extend(change.row_fields(&view)?);
        } else {
            let mut rows = 0;
            for (old, new) in &renames {
                rows += copy_rows(&intake, &view, old, new)?;
            }
            drop(view);
            let deleted = delete_copied(&store, &change)?;
            fields.extend([("rows", integer(rows)), ("removed_series", integer(deleted))]);
        }
        queries.json_response(&Object(fields))
    };
    context.run_heavy("rename", None, work).await
}

/// Old and new series; series that have the new name already are left out of the change.
fn plan_renames(
    parameters: &Parameters,
    change: &mut SeriesChange,
) -> Result<Vec<(SeriesEntryRef, Series)>, ApiError> {
    let (name, unit) = (parameters.get("name"), parameters.get("unit"));
    if name.is_none() && unit.is_none() {
        let what = "parameter name or unit is missing, expected a new name or unit";
        return Err(ApiError::BadRequest(what.to_owned()));
    }
    let unit = unit.map(|unit| if unit == "none" { "" } else { unit });
    let renamed = |series: &Series| {
        let new = Series::new(name.unwrap_or(series.name()), series.kind())
            .with_unit(unit.unwrap_or(series.unit()))
            .with_labels(series.labels().to_vec());
        new.validate().map_err(|error| ApiError::BadRequest(error.to_string()))
    };
    let mut renames = Vec::new();
    for found in std::mem::take(&mut change.found) {
        let new = renamed(&found.series)?;
        if new != *found.series {
            renames.push((found, new));
        }
    }
    if renames.is_empty() {
        let what = "all selected series have this name and unit already";
        return Err(ApiError::BadRequest(what.to_owned()));
    }
    if renames.len() > RENAMED_SERIES_MAX {
        return Err(ApiError::Unprocessable(format!(
            "renamed series limit ({RENAMED_SERIES_MAX}) exceeded: {} match; select fewer",
            renames.len()
        )));
    }
    let targets: BTreeSet<SeriesId> = renames.iter().map(|(_, new)| new.id()).collect();
    if targets.len() < renames.len() {
        let what = "cannot rename: two series would have the same name, unit and labels; select \
                    one of them";
        return Err(ApiError::Unprocessable(what.to_owned()));
    }
    change.found = renames.iter().map(|(old, _)| old.clone()).collect();
    Ok(renames)
}

/// What a rename does that its parameters do not say.
fn rename_notes(view: &ReadView, renames: &[(SeriesEntryRef, Series)]) -> Vec<String> {
    let mut notes = Vec::new();
    let named = |unit: &str| if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let changed = renames.iter().find(|(old, new)| old.series.unit() != new.unit());
    if let Some((old, new)) = changed {
        let (from, to) = (named(old.series.unit()), named(new.unit()));
        notes.push(format!("values are not converted: 1730{from} becomes 1730{to}"));
    }
    let existing: Vec<&Series> = renames
        .iter()
        .map(|(_, new)| new)
        .filter(|new| view.select_id(&new.id()).is_some())
        .collect();
    if let Some(first) = existing.first() {
        let unit =
            if first.unit().is_empty() { String::new() } else { format!(" in {}", first.unit()) };
        notes.push(match existing.len() {
            1 => format!("{first}{unit} exists: the samples are added to its own"),
            n => format!(
                "{n} series of the new name exist, such as {first}{unit}: the samples are added to \
                 theirs"
            ),
        });
    }
    notes
}

/// Rejects a rename that would lose samples, or mix them with others.
fn check_target(view: &ReadView, old: &SeriesEntryRef, new: &Series) -> Result<(), ApiError> {
    let refuse = |why: String| {
        let (old, new) = (&old.series, new);
        Err(ApiError::Unprocessable(format!("cannot rename {old} to {new}: {why}")))
    };
    let Some(extent) = view.time_range(std::slice::from_ref(old))? else { return Ok(()) };
    let range = extent.start.saturating_sub(1)..extent.end.saturating_add(1);
    let mut times = BTreeSet::new();
    view.samples(old, range.clone(), &mut |sample| _ = times.insert(sample.end))?;
    if times.first().is_none_or(|&first| first > extent.start.saturating_add(store::DAY)) {
        return refuse(
            "its older samples exist only as rollups, which cannot be renamed".to_owned(),
        );
    }
    let Some(target) = view.select_id(&new.id()) else { return Ok(()) };
    let (mut equal, mut all) = (0u64, 0u64);
    view.samples(&target, range, &mut |sample| {
        all += 1;
        equal += u64::from(times.contains(&sample.end));
    })?;
    if equal > 0 {
        let equal = plural(equal, "sample", "samples");
        return refuse(format!("it has {equal} of the same times; delete those of one first"));
    }
    if all > 0 && new.kind().is_cumulative() {
        return refuse("the cumulative samples of both would alternate".to_owned());
    }
    Ok(())
}

/// Appends all rows of a series under its new name, durably. Returns their number.
fn copy_rows(
    intake: &Arc<Intake>,
    view: &ReadView,
    old: &SeriesEntryRef,
    new: &Series,
) -> Result<u64, ApiError> {
    let producer = intake.producer(PRODUCER);
    producer.disable_absence_monitor();
    let failed = |error: &dyn std::fmt::Display| {
        ApiError::Internal(format!("cannot rename {}: {error}; nothing was deleted", old.series))
    };
    let key = new.canonical_key();
    let (mut writer, mut rows, mut outcome) = (None, 0, Ok(()));
    let mut pending_acks = Vec::new();
    let mut append = |sample: &Sample| -> Result<(), ApiError> {
        let mut batch = match writer.take() {
            Some(batch) => batch,
            None => {
                let mut batch = intake.writer_for(producer.id(), SeriesKeyEncoding::CANONICAL);
                batch.series(&key, &mut || Ok(new.clone())).map_err(|error| failed(&error))?;
                batch
            }
        };
        batch.sample(sample).map_err(|error| failed(&error))?;
        rows += 1;
        match batch.is_half_full() {
            true => pending_acks.push(intake.append(&producer, batch).map_err(|it| failed(&it))?),
            false => writer = Some(batch),
        }
        Ok(())
    };
    view.samples(old, i64::MIN..i64::MAX, &mut |sample| {
        if outcome.is_ok() {
            outcome = append(&sample);
        }
    })?;
    outcome?;
    if let Some(batch) = writer {
        pending_acks.push(intake.append(&producer, batch).map_err(|error| failed(&error))?);
    }
    for pending_ack in pending_acks {
        pending_ack.wait_durable().map_err(|error| failed(&error))?;
    }
    Ok(rows)
}

/// Deletes the rows under the old names. Returns the number of series removed.
fn delete_copied(store: &Store, change: &SeriesChange) -> Result<u64, ApiError> {
    Ok(store.delete_series(&change.ids(), i64::MIN..i64::MAX)?.series)
}
