//! `/v1/compare`.

use model::Selector;
use query::compare::Selection;
use query::{Limits, StoreSource};
use store::ReadView;

use super::COMPARE;
use super::selection::{self, RangeBound};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::parameters::{Parameters, SELECTOR_SYNTAX};
use report::document;

/// Approximate number of compared intervals per side.
const INTERVALS: u64 = 100;

pub(super) async fn compare(
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(COMPARE)?;
    let (queries, now) = (context.queries.clone(), context.intake.now());
    let (timeout, cells) = (parameters.timeout()?, super::cell_encoding(&parameters)?);
    parameters.required("a", SELECTOR_SYNTAX)?;
    let has = |name| parameters.get(name).is_some();
    if !has("b") && !has("from_b") && !has("to_b") {
        let what = "parameter b is missing, expected a second selector, or another range in from_b \
                    and to_b";
        return Err(ApiError::BadRequest(what.to_owned()));
    }
    let limits = super::parse_limits(&parameters, queries.settings.limits)?;
    let requested = parameters.clone();
    let estimate = move |view: &ReadView, _: &ActiveQuery| {
        let timestamp = |name| requested.time(name, now).ok().flatten();
        let (from, to) = (timestamp("from"), timestamp("to"));
        let ends_b = (timestamp("from_b").or(from), timestamp("to_b").or(to));
        let selector = |name| requested.selector(name).ok().flatten();
        let a = selector("a").unwrap_or(Selector::All);
        let b = selector("b").unwrap_or_else(|| a.clone());
        let rows = |selector, ends| selection::estimate_rows(view, selector, ends, INTERVALS);
        rows(&a, (from, to)).saturating_add(rows(&b, ends_b))
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let a = parameters.selector("a")?.unwrap_or(Selector::All);
        let b = parameters.selector("b")?.unwrap_or_else(|| a.clone());
        let timestamp = |name: &'static str| Ok::<_, ApiError>((name, parameters.time(name, now)?));
        let (from, to) = (timestamp("from")?, timestamp("to")?);
        let or = |own: RangeBound<'static>, other: RangeBound<'static>| {
            if own.1.is_some() { own } else { other }
        };
        let (from_b, to_b) = (or(timestamp("from_b")?, from), or(timestamp("to_b")?, to));
        let sides = [
            side(view, a, (from, to), (limits, active))?,
            side(view, b, (from_b, to_b), (limits, active))?,
        ];
        let source = StoreSource::new(view).with_context(active);
        let comparison = query::compare::compare(&source, [&sides[0], &sides[1]], limits, active)
            .map_err(|error| ApiError::from_query_error(error, ""))?;
        active.json_response(&document::compare::to_json(&sides, &comparison, cells))
    };
    context.run_query("compare", timeout, estimate, work).await
}

fn side(
    view: &ReadView,
    selector: Selector,
    ends: (RangeBound<'_>, RangeBound<'_>),
    (limits, active): (Limits, &ActiveQuery),
) -> Result<Selection, ApiError> {
    let found = selection::find_distributions(view, &selector, limits.series, active)?;
    let range = selection::resolve_range(view, &found, ends)?;
    Ok(Selection { selector, range })
}
