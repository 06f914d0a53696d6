//! What sets a rectangle of a heatmap apart.

use query::Stored;
use query::explain::Rectangle;
use store::View;

use super::{EXPLAIN, selection};
use crate::context::Context;
use crate::desk::{Asking, Written};
use crate::document;
use crate::parameters::{Parameters, SELECTOR};
use crate::refusal::Refusal;

pub(super) async fn explain(context: Context, parameters: Parameters) -> Result<Written, Refusal> {
    let parameters = parameters.only(EXPLAIN)?;
    let (desk, now) = (context.desk.clone(), context.intake.now());
    let timeout = parameters.timeout()?;
    parameters.required("selector", SELECTOR)?;
    parameters.required("above", "a quantity such as 100ms")?;
    let limits = super::limits(&parameters, desk.settings.limits)?;
    let asked = parameters.clone();
    let estimate = move |view: &View, _: &Asking| {
        let moment = |name| asked.moment(name, now).ok().flatten();
        let ends = (moment("picture_from"), moment("picture_to"));
        let rows = |selector| selection::rows_about(view, &selector, ends, 1);
        asked.selectors("selector").map_or(0, rows)
    };
    let work = move |view: &View, asking: &Asking| {
        let selector = parameters.selectors("selector")?;
        let found = selection::histograms(view, &selector, limits.series)?;
        let unit = selection::unit(&selector, &found)?;
        let one = |name: &str| {
            let all = selection::limits(&parameters, name, unit.as_ref())?;
            match &all[..] {
                [] => Ok(None),
                [(_, limit)] => Ok(Some(*limit)),
                _ => {
                    let found = parameters.get(name).unwrap_or("");
                    Err(Refusal::parameter(name, found, "one quantity"))
                }
            }
        };
        let (above, up_to) = (one("above")?, one("up_to")?);
        let moment = |name: &'static str| Ok::<_, Refusal>((name, parameters.moment(name, now)?));
        let ends = (moment("picture_from")?, moment("picture_to")?);
        let picture = selection::range(view, &found, ends)?;
        let start = moment("from")?.1.unwrap_or(picture.start);
        let end = moment("to")?.1.unwrap_or(picture.end);
        // A rectangle beyond the rows is one in a picture that reaches as far.
        let first = if ends.0.1.is_none() { picture.start.min(start) } else { picture.start };
        let last = if ends.1.1.is_none() { picture.end.max(end) } else { picture.end };
        let rectangle = Rectangle {
            selector,
            picture: first..last,
            time: start..end,
            above: above.unwrap_or(f64::NEG_INFINITY),
            up_to: up_to.unwrap_or(f64::INFINITY),
        };
        let source = Stored::new(view).within(asking);
        let explanation = query::explain::explain(&source, &rectangle, limits, asking)
            .map_err(|error| Refusal::of_question(error, ""))?;
        let unit = unit.as_ref().map(ToString::to_string);
        asking.answer(&document::explain::of(&rectangle, unit, &explanation))
    };
    context.query("explain", timeout, estimate, work).await
}
