//! `/v1/breakdown`.

use model::{Selector, selector};
use query::StoreSource;
use query::breakdown::HeatmapSelection;
use store::ReadView;

use super::{BREAKDOWN, selection};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json;
use crate::parameters::{Parameters, SELECTOR_SYNTAX};
use crate::unitless::{left_out_json, split_off_unitless};
use report::document;

pub(super) async fn breakdown(
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(BREAKDOWN)?;
    let (queries, now) = (context.queries.clone(), context.intake.now());
    let timeout = parameters.timeout()?;
    parameters.required("selector", SELECTOR_SYNTAX)?;
    parameters.required("above", "a threshold such as 100ms")?;
    let limits = super::parse_limits(&parameters, queries.settings.limits)?;
    let requested = parameters.clone();
    let estimate = move |view: &ReadView, _: &ActiveQuery| {
        let timestamp = |name| requested.time(name, now).ok().flatten();
        let baseline = (timestamp("baseline_from"), timestamp("baseline_to"));
        let rows = |selector| selection::estimate_rows(view, &selector, baseline, 1);
        requested.selectors("selector").map_or(0, rows)
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let selector = parameters.selectors("selector")?;
        let mut found = selection::find_distributions(view, &selector, limits.series, active)?;
        let left_out = split_off_unitless(&mut found);
        let mut warnings = selection::bucket_warnings(view, &selector, &found)?;
        let unit = selection::common_unit(&selector, &found)?;
        let selector = match (&unit, left_out.is_empty()) {
            (Some(unit), false) => {
                let same = Selector::label_equals(selector::UNIT, unit.to_string());
                Selector::and(vec![selector, same])
            }
            _ => selector,
        };
        let parse_one = |name: &str| {
            let all = selection::parse_thresholds(&parameters, name, unit.as_ref())?;
            match &all[..] {
                [] => Ok(None),
                [threshold] => Ok(Some(threshold.clone())),
                _ => {
                    let found = parameters.get(name).unwrap_or("");
                    Err(ApiError::invalid_parameter(name, found, "one threshold"))
                }
            }
        };
        let (above, up_to) = (parse_one("above")?, parse_one("up_to")?);
        let timestamp = |name: &'static str| Ok::<_, ApiError>((name, parameters.time(name, now)?));
        let baseline = (timestamp("baseline_from")?, timestamp("baseline_to")?);
        let heatmap_range = selection::resolve_range(view, &found, baseline)?;
        let start = timestamp("from")?.1.unwrap_or(heatmap_range.start);
        let end = timestamp("to")?.1.unwrap_or(heatmap_range.end);
        // A rectangle beyond the data extends the heatmap's range.
        let first = if baseline.0.1.is_none() {
            heatmap_range.start.min(start)
        } else {
            heatmap_range.start
        };
        let last =
            if baseline.1.1.is_none() { heatmap_range.end.max(end) } else { heatmap_range.end };
        let rectangle = HeatmapSelection {
            selector,
            baseline: first..last,
            time: start..end,
            above: above.as_ref().map_or(f64::NEG_INFINITY, |threshold| threshold.1),
            up_to: up_to.as_ref().map_or(f64::INFINITY, |threshold| threshold.1),
        };
        let source = StoreSource::new(view).with_context(active);
        let explanation = query::breakdown::break_down(&source, &rectangle, limits, active)
            .map_err(|error| ApiError::from_query_error(error, ""))?;
        let thresholds: Vec<(String, f64)> = above.into_iter().chain(up_to).collect();
        let values = explanation.values;
        warnings.extend(selection::limit_warnings(&thresholds, unit.as_ref(), values));
        let unit = unit.as_ref().map(ToString::to_string);
        let mut document = document::breakdown::to_json(&rectangle, unit, &explanation);
        if let Json::Object(fields) = &mut document {
            if !left_out.is_empty() {
                fields.push(("left_out", left_out_json(&left_out)));
            }
            if !warnings.is_empty() {
                let texts = warnings.into_iter().map(Json::Text).collect();
                fields.push(("warnings", Json::List(texts)));
            }
        }
        active.json_response(&document)
    };
    context.run_query("breakdown", timeout, estimate, work).await
}
