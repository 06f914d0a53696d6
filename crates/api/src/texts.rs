//! `/v1/texts`: latest value of each series of texts.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use model::{Gap, Sample, SampleValue, Selector, selector};
use store::ReadView;

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{Bool, Integer, List, Object, Text};
use crate::json::integer;
use crate::parameters::Parameters;
use crate::route::{ApiRoute, Parameter, SELECTOR, TIMEOUT};
use crate::routing;
use report::document;

/// Default and maximum number of values in a response.
const LIMIT: usize = 1_000;
const LIMIT_MAX: usize = 100_000;
/// Maximum size of a response in bytes.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

const LIST_PARAMETERS: &[Parameter] = &[
    SELECTOR.required(),
    Parameter::text("from", "start of the range; default: a day before the end"),
    Parameter::text("to", "end of the range; default: now"),
    Parameter::integer("limit", "maximum number of series; default 1,000, at most 100,000"),
    TIMEOUT,
];

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/texts",
    "Latest value of each series of texts in a range.",
    LIST_PARAMETERS,
    || routing::get(list_texts),
)];

async fn list_texts(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(LIST_PARAMETERS)?;
    let now = context.intake.now();
    let to = parameters.time("to", now)?.unwrap_or(now);
    let from = parameters.time("from", now)?.unwrap_or(to.saturating_sub(store::DAY));
    let (timeout, limit) = (parameters.timeout()?, parameters.integer("limit", LIMIT, LIMIT_MAX)?);
    let queries = context.queries.clone();
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let expected = "a selector of texts, such as process_exit_info{host=\"a\"}";
        parameters.required("selector", expected)?;
        let own = parameters.selector("selector")?.unwrap_or(Selector::All);
        let wanted = Selector::and(vec![Selector::label_equals(selector::KIND, "text"), own]);
        let (mut told, mut found, mut bytes) = (Vec::new(), 0u64, 0);
        // A point is before its interval's end.
        let range = from.saturating_sub(1)..to.saturating_add(1);
        let selected = view.select(&wanted);
        let mut gaps: BTreeSet<Gap> = view.gaps_of(&selected, &range).into_iter().collect();
        gaps.retain(|gap| !selected.is_empty() || gap.may_concern(&wanted));
        for series in selected {
            active.check_cancelled()?;
            let mut last = None;
            let missing = view.samples(&series, range.clone(), &mut |sample| {
                let Sample { end, value: SampleValue::Text(text), .. } = sample else { return };
                if (from..=to).contains(&end) {
                    last = Some((end, text));
                }
            })?;
            gaps.extend(missing);
            let Some((end, text)) = last else { continue };
            found += 1;
            bytes += text.len() + series.series.canonical_key().len();
            if told.len() >= limit || bytes > RESPONSE_BYTES_MAX {
                continue;
            }
            let labels = series.series.labels().iter();
            let labels = labels.map(|(name, value)| (name.as_str(), value.as_str()));
            told.push(Object(vec![
                ("name", Text(series.series.name().to_owned())),
                ("labels", document::labels(labels)),
                ("time_ns", Integer(end.into())),
                ("text", Text(text)),
            ]));
        }
        queries.json_response(&Object(vec![
            ("schema", integer(2)),
            ("total", integer(found)),
            ("truncated", Bool((told.len() as u64) < found)),
            ("texts", List(told)),
            ("gaps", List(gaps.iter().map(document::gap).collect())),
        ]))
    };
    context.run_light_with_view("texts", timeout, work).await
}
