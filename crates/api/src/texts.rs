//! Texts: the latest of each series that has any, such as how a process ended or what is not measured on a host.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use axum::routing;
use model::{Gap, Sample, Selector, Value, selector};
use store::View;

use crate::context::Context;
use crate::desk::{Asking, Written};
use crate::document;
use crate::json::Json::{Bool, Integer, List, Object, Text};
use crate::json::integer;
use crate::openapi::{Parameter, Route, SELECTOR, TIMEOUT};
use crate::parameters::Parameters;
use crate::refusal::Refusal;

/// As many as are told where nobody says, and at the most.
const LIMIT: usize = 1_000;
const LIMIT_MAX: usize = 100_000;
/// Bytes of all that are told: more than anybody reads.
const TOLD_BYTES_MAX: usize = 16 << 20;

const TEXTS: &[Parameter] = &[
    SELECTOR.required(),
    Parameter::text("from", "when it begins; a day before the end, if not said"),
    Parameter::text("to", "when it ends; now, if not said"),
    Parameter::integer("limit", "as many series are told; 1,000 if not said, 100,000 at the most"),
    TIMEOUT,
];

pub(crate) const ROUTES: &[Route] =
    &[Route::get("/v1/texts", "The latest text of each series in a time.", TEXTS, || {
        routing::get(texts)
    })];

async fn texts(context: Context, parameters: Parameters) -> Result<Written, Refusal> {
    let parameters = parameters.only(TEXTS)?;
    let now = context.intake.now();
    let to = parameters.moment("to", now)?.unwrap_or(now);
    let from = parameters.moment("from", now)?.unwrap_or(to.saturating_sub(store::DAY));
    let (timeout, limit) = (parameters.timeout()?, parameters.count("limit", LIMIT, LIMIT_MAX)?);
    let desk = context.desk.clone();
    let work = move |view: &View, asking: &Asking| {
        let expected = "a selector of series of texts, such as process_end{host=\"a\"}";
        parameters.required("selector", expected)?;
        let own = parameters.selector("selector")?.unwrap_or(Selector::All);
        let wanted = Selector::and(vec![Selector::equal(selector::KIND, "text"), own]);
        let (mut told, mut found, mut bytes) = (Vec::new(), 0u64, 0);
        // A row lies before its end.
        let range = from.saturating_sub(1)..to.saturating_add(1);
        let mut gaps: BTreeSet<Gap> = view.gaps(&range).into_iter().collect();
        for series in view.select(&wanted) {
            asking.check()?;
            let mut last = None;
            let missing = view.samples(&series, range.clone(), &mut |sample| {
                let Sample { end, value: Value::Text(text), .. } = sample else { return };
                if (from..=to).contains(&end) {
                    last = Some((end, text));
                }
            })?;
            gaps.extend(missing);
            let Some((end, text)) = last else { continue };
            found += 1;
            bytes += text.len() + series.series.form().len();
            if told.len() >= limit || bytes > TOLD_BYTES_MAX {
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
        desk.answer(&Object(vec![
            ("schema", integer(1)),
            ("found", integer(found)),
            ("cut", Bool((told.len() as u64) < found)),
            ("texts", List(told)),
            ("gaps", List(gaps.iter().map(document::gap).collect())),
        ]))
    };
    context.light_view("texts", timeout, work).await
}
