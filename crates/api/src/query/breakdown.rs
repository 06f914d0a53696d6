//! `/v1/breakdown`.

use query::StoreSource;
use query::breakdown::HeatmapSelection;
use store::ReadView;

use super::{BREAKDOWN, selection};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::parameters::{Parameters, SELECTOR_SYNTAX};
use report::document;

pub(super) async fn breakdown(
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(BREAKDOWN)?;
    let (queries, now) = (context.queries.clone(), context.intake.now());
    let timeout = parameters.timeout()?;
    parameters.required("selector", SELECTOR_SYNTAX)?;
    parameters.required("above", "a quantity such as 100ms")?;
    let limits = super::parse_limits(&parameters, queries.settings.limits)?;
    let asked = parameters.clone();
    let estimate = move |view: &ReadView, _: &ActiveQuery| {
        let moment = |name| asked.time(name, now).ok().flatten();
        let ends = (moment("baseline_from"), moment("baseline_to"));
        let rows = |selector| selection::estimate_rows(view, &selector, ends, 1);
        asked.selectors("selector").map_or(0, rows)
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let selector = parameters.selectors("selector")?;
        let found = selection::find_histograms(view, &selector, limits.series)?;
        let unit = selection::common_unit(&selector, &found)?;
        let one = |name: &str| {
            let all = selection::parse_limits(&parameters, name, unit.as_ref())?;
            match &all[..] {
                [] => Ok(None),
                [(_, limit)] => Ok(Some(*limit)),
                _ => {
                    let found = parameters.get(name).unwrap_or("");
                    Err(ApiError::invalid_parameter(name, found, "one quantity"))
                }
            }
        };
        let (above, up_to) = (one("above")?, one("up_to")?);
        let moment = |name: &'static str| Ok::<_, ApiError>((name, parameters.time(name, now)?));
        let ends = (moment("baseline_from")?, moment("baseline_to")?);
        let picture = selection::resolve_range(view, &found, ends)?;
        let start = moment("from")?.1.unwrap_or(picture.start);
        let end = moment("to")?.1.unwrap_or(picture.end);
        // A rectangle beyond the data extends the heatmap's range.
        let first = if ends.0.1.is_none() { picture.start.min(start) } else { picture.start };
        let last = if ends.1.1.is_none() { picture.end.max(end) } else { picture.end };
        let rectangle = HeatmapSelection {
            selector,
            baseline: first..last,
            time: start..end,
            above: above.unwrap_or(f64::NEG_INFINITY),
            up_to: up_to.unwrap_or(f64::INFINITY),
        };
        let source = StoreSource::new(view).with_context(active);
        let explanation = query::breakdown::break_down(&source, &rectangle, limits, active)
            .map_err(|error| ApiError::from_query_error(error, ""))?;
        let unit = unit.as_ref().map(ToString::to_string);
        active.json_response(&document::breakdown::to_json(&rectangle, unit, &explanation))
    };
    context.run_query("breakdown", timeout, estimate, work).await
}
