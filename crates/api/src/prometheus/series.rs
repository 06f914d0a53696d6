//! Series, labels and metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::ControlFlow;

use axum::extract::{Path, State};
use model::{Kind, Selector, Series};
use query::{Labels, NAME, promql};
use store::View;

use super::ask::{TRUNCATED, unread};
use super::{Beside, Failure, success, write_list};
use crate::context::Context;
use crate::desk::{Asking, Page, Written};
use crate::json::write_text;
use crate::parameters::Parameters;
use crate::query::value_of;
use crate::refusal::Refusal;

/// Different texts or series that are held while an answer is put together.
const HELD_MAX: usize = 1_000_000;

/// What all `match[]` pick together; `None` if there are none.
fn selector(parameters: &Parameters) -> Result<Option<Selector>, Refusal> {
    let one = |text: &str| {
        let unread = |error: query::Error| unread("match[]", &error, text);
        let expression = promql::parse(text, &promql::Options::default()).map_err(unread)?;
        let promql::ExprKind::Selector(selector) = &expression.kind else {
            let what = "is not a selector such as up or {job=\"a\"}";
            return Err(Refusal::Bad(format!("invalid parameter \"match[]\": {text:?} {what}")));
        };
        promql::selector_of(selector).map_err(unread)
    };
    let all: Vec<Selector> = parameters.all("match[]").map(one).collect::<Result<_, _>>()?;
    Ok(if all.is_empty() { None } else { Some(Selector::or(all)) })
}

/// Goes through series as long as somebody waits. Texts are not known to Prometheus.
fn each(
    view: &View,
    selector: &Selector,
    asking: &Asking,
    mut each: impl FnMut(&Series) -> usize,
) -> Result<(), Refusal> {
    let mut outcome = Ok(());
    view.each_series(selector, &mut |series| {
        outcome = asking.check();
        if outcome.is_ok() && series.kind() != Kind::Text && each(&series) > HELD_MAX {
            let what = format!("there are more than {HELD_MAX} of them; select fewer series");
            outcome = Err(Refusal::Execution(what));
        }
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    outcome
}

/// The list of what was found, cut off at a limit.
fn list<T>(
    page: Page,
    found: impl ExactSizeIterator<Item = T>,
    limit: usize,
    write: impl FnMut(&mut Page, T) -> std::fmt::Result,
) -> Result<Written, Refusal> {
    let most = if limit == 0 { usize::MAX } else { limit };
    let warnings = if found.len() > most { vec![TRUNCATED.to_owned()] } else { Vec::new() };
    let beside = Beside { warnings, infos: Vec::new() };
    success(page, &beside, |page| write_list(page, found.take(most), write))
}

pub(super) async fn series(
    State(context): State<Context>,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let parameters = parameters?;
    let none = || Refusal::Bad("no match[] parameter provided".to_owned());
    let selector = selector(&parameters)?.ok_or_else(none)?;
    let limit = parameters.count("limit", 0, usize::MAX)?;
    let desk = context.desk.clone();
    let work = move |view: &View, asking: &Asking| {
        let mut found = BTreeSet::new();
        each(view, &selector, asking, |series| {
            let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
            found.insert(Labels::new(pairs.chain([(NAME, series.name())])));
            found.len()
        })?;
        list(desk.page(), found.iter(), limit, |page, labels| {
            page.write_char('{')?;
            for (at, (name, value)) in labels.iter().enumerate() {
                page.write_str(if at > 0 { "," } else { "" })?;
                write_text(page, name)?;
                page.write_char(':')?;
                write_text(page, value)?;
            }
            page.write_char('}')
        })
    };
    Ok(context.desk.take("prometheus_series", None, work).await?)
}

pub(super) async fn labels(
    State(context): State<Context>,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let parameters = parameters?;
    let selector = selector(&parameters)?.unwrap_or(Selector::All);
    let limit = parameters.count("limit", 0, usize::MAX)?;
    let desk = context.desk.clone();
    let work = move |view: &View, asking: &Asking| {
        let mut found: BTreeSet<String> = BTreeSet::new();
        each(view, &selector, asking, |series| {
            for name in [NAME].into_iter().chain(series.labels().iter().map(|(name, _)| &**name)) {
                if !found.contains(name) {
                    found.insert(name.to_owned());
                }
            }
            found.len()
        })?;
        list(desk.page(), found.iter(), limit, |page, name| write_text(page, name))
    };
    Ok(context.desk.take("prometheus_labels", None, work).await?)
}

pub(super) async fn values(
    State(context): State<Context>,
    Path(label): Path<String>,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let parameters = parameters?;
    let selector = selector(&parameters)?.unwrap_or(Selector::All);
    let limit = parameters.count("limit", 0, usize::MAX)?;
    let desk = context.desk.clone();
    let work = move |view: &View, asking: &Asking| {
        let mut found: BTreeSet<String> = BTreeSet::new();
        each(view, &selector, asking, |series| {
            if let Some(value) = value_of(series, &label)
                && !found.contains(value)
            {
                found.insert(value.to_owned());
            }
            found.len()
        })?;
        list(desk.page(), found.iter(), limit, |page, value| write_text(page, value))
    };
    Ok(context.desk.take("prometheus_values", None, work).await?)
}

pub(super) async fn metadata(
    State(context): State<Context>,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let parameters = parameters?;
    let limit = parameters.count("limit", usize::MAX, usize::MAX)?;
    let per_metric = parameters.count("limit_per_metric", usize::MAX, usize::MAX)?;
    let metric = parameters.get("metric");
    let selector =
        metric.map_or(Selector::All, |name| Selector::equal(model::selector::NAME, name));
    let desk = context.desk.clone();
    let work = move |view: &View, asking: &Asking| {
        let mut found: BTreeMap<String, BTreeSet<(&str, String)>> = BTreeMap::new();
        each(view, &selector, asking, |series| {
            let kind = match series.kind() {
                Kind::Histogram(_) => "histogram",
                Kind::Counter(_) => "counter",
                Kind::Gauge => "gauge",
                Kind::Text => "unknown",
            };
            let metadata = (kind, series.unit().to_owned());
            match found.get_mut(series.name()) {
                Some(held) => drop(held.insert(metadata)),
                None => drop(found.insert(series.name().to_owned(), BTreeSet::from([metadata]))),
            }
            found.len()
        })?;
        success(desk.page(), &Beside::default(), |page| {
            page.write_char('{')?;
            for (at, (name, all)) in found.iter().take(limit).enumerate() {
                page.write_str(if at > 0 { "," } else { "" })?;
                write_text(page, name)?;
                page.write_char(':')?;
                write_list(page, all.iter().take(per_metric), |page, (kind, unit)| {
                    write!(page, "{{\"type\":\"{kind}\",\"unit\":")?;
                    write_text(page, unit)?;
                    page.write_str(",\"help\":\"\"}")
                })?;
            }
            page.write_char('}')
        })
    };
    Ok(context.desk.take("prometheus_metadata", None, work).await?)
}
