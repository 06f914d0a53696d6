//! Two selections side by side.

use model::Selector;
use query::compare::Selection;
use query::{Limits, Stored};
use store::View;

use super::COMPARE;
use super::selection::{self, End};
use crate::context::Context;
use crate::desk::{Asking, Written};
use crate::document;
use crate::parameters::{Parameters, SELECTOR};
use crate::refusal::Refusal;

/// About as many intervals are compared of each side.
const INTERVALS: u64 = 100;

pub(super) async fn compare(context: Context, parameters: Parameters) -> Result<Written, Refusal> {
    let parameters = parameters.only(COMPARE)?;
    let (desk, now) = (context.desk.clone(), context.intake.now());
    let timeout = parameters.timeout()?;
    parameters.required("a", SELECTOR)?;
    let has = |name| parameters.get(name).is_some();
    if !has("b") && !has("from_b") && !has("to_b") {
        let what = "parameter b: is missing, expected a second selector, or another time in from_b and to_b";
        return Err(Refusal::Bad(what.to_owned()));
    }
    let limits = super::limits(&parameters, desk.settings.limits)?;
    let asked = parameters.clone();
    let estimate = move |view: &View, _: &Asking| {
        let moment = |name| asked.moment(name, now).ok().flatten();
        let (from, to) = (moment("from"), moment("to"));
        let ends_b = (moment("from_b").or(from), moment("to_b").or(to));
        let selector = |name| asked.selector(name).ok().flatten();
        let a = selector("a").unwrap_or(Selector::All);
        let b = selector("b").unwrap_or_else(|| a.clone());
        let rows = |selector, ends| selection::rows_about(view, selector, ends, INTERVALS);
        rows(&a, (from, to)).saturating_add(rows(&b, ends_b))
    };
    let work = move |view: &View, asking: &Asking| {
        let a = parameters.selector("a")?.unwrap_or(Selector::All);
        let b = parameters.selector("b")?.unwrap_or_else(|| a.clone());
        let moment = |name: &'static str| Ok::<_, Refusal>((name, parameters.moment(name, now)?));
        let (from, to) = (moment("from")?, moment("to")?);
        let or = |own: End<'static>, other: End<'static>| {
            if own.1.is_some() { own } else { other }
        };
        let (from_b, to_b) = (or(moment("from_b")?, from), or(moment("to_b")?, to));
        let sides = [side(view, a, (from, to), limits)?, side(view, b, (from_b, to_b), limits)?];
        let source = Stored::new(view).within(asking);
        let comparison = query::compare::compare(&source, [&sides[0], &sides[1]], limits, asking)
            .map_err(|error| Refusal::of_question(error, ""))?;
        asking.answer(&document::compare::of(&sides, &comparison))
    };
    context.query("compare", timeout, estimate, work).await
}

fn side(
    view: &View,
    selector: Selector,
    ends: (End<'_>, End<'_>),
    limits: Limits,
) -> Result<Selection, Refusal> {
    let found = selection::histograms(view, &selector, limits.series)?;
    let range = selection::range(view, &found, ends)?;
    Ok(Selection { selector, range })
}
