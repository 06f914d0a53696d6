//! Series, labels and metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use axum::extract::Path;
use model::{Kind, Selector, Series};
use query::{Labels, NAME, promql};
use store::View;

use super::ask::{TRUNCATED, unread};
use super::{Beside, Failure, success, write_list};
use crate::context::Context;
use crate::desk::{Asking, Page, Written};
use crate::json::write_text;
use crate::parameters::{Parameters, together};
use crate::query::{Entries, each_series, value_of};
use crate::refusal::Refusal;

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
    together("match[]", parameters.all("match[]"), promql::REGEXES_MAX, one)
}

/// Collects something of all series that are picked, and answers with the list of it, cut off at a limit. Texts are
/// not known to Prometheus.
async fn listed<T: Ord>(
    context: Context,
    parameters: Result<Parameters, Refusal>,
    (kind, needs_match): (&'static str, bool),
    collect: impl Fn(&Series, &mut BTreeSet<T>) + Send + 'static,
    write: impl Fn(&mut Page, &T) -> fmt::Result + Send + 'static,
) -> Result<Written, Failure> {
    let parameters = parameters?;
    let limit = match parameters.count("limit", 0, usize::MAX)? {
        0 => usize::MAX,
        limit => limit,
    };
    let work = move |view: &View, asking: &Asking| {
        let selector = selector(&parameters)?;
        if needs_match && selector.is_none() {
            return Err(Refusal::Bad("no match[] parameter provided".to_owned()));
        }
        let selector = selector.unwrap_or(Selector::All);
        let (mut found, mut entries) = (BTreeSet::new(), Entries::new(asking));
        each_series(view, &selector, asking, |series| {
            if series.kind() != Kind::Text {
                collect(series, &mut found);
            }
            entries.count(found.len())
        })?;
        let mut beside = Beside::default();
        beside.warnings.extend((found.len() > limit).then(|| TRUNCATED.to_owned()));
        success(asking.page(), &beside, |page| write_list(page, found.iter().take(limit), write))
    };
    Ok(context.light_view(kind, None, work).await?)
}

pub(super) async fn series(
    context: Context,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let collect = |series: &Series, found: &mut BTreeSet<Labels>| {
        let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        found.insert(Labels::new(pairs.chain([(NAME, series.name())])));
    };
    let write = |page: &mut Page, labels: &Labels| {
        page.write_char('{')?;
        for (at, (name, value)) in labels.iter().enumerate() {
            page.write_str(if at > 0 { "," } else { "" })?;
            write_text(page, name)?;
            page.write_char(':')?;
            write_text(page, value)?;
        }
        page.write_char('}')
    };
    listed(context, parameters, ("prometheus_series", true), collect, write).await
}

/// Adds a text that is copied only if it is new.
fn add(text: &str, found: &mut BTreeSet<String>) {
    if !found.contains(text) {
        found.insert(text.to_owned());
    }
}

pub(super) async fn labels(
    context: Context,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let collect = |series: &Series, found: &mut BTreeSet<String>| {
        add(NAME, found);
        series.labels().iter().for_each(|(name, _)| add(name, found));
    };
    listed(context, parameters, ("prometheus_labels", false), collect, |page, text| {
        write_text(page, text)
    })
    .await
}

pub(super) async fn values(
    context: Context,
    Path(label): Path<String>,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let collect = move |series: &Series, found: &mut BTreeSet<String>| {
        if let Some(value) = value_of(series, &label) {
            add(value, found);
        }
    };
    listed(context, parameters, ("prometheus_values", false), collect, |page, text| {
        write_text(page, text)
    })
    .await
}

pub(super) async fn metadata(
    context: Context,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let parameters = parameters?;
    let limit = parameters.count("limit", usize::MAX, usize::MAX)?;
    let per_metric = parameters.count("limit_per_metric", usize::MAX, usize::MAX)?;
    let metric = parameters.get("metric");
    let selector =
        metric.map_or(Selector::All, |name| Selector::equal(model::selector::NAME, name));
    let work = move |view: &View, asking: &Asking| {
        let mut found: BTreeMap<String, BTreeSet<(&str, String)>> = BTreeMap::new();
        let mut entries = Entries::new(asking);
        each_series(view, &selector, asking, |series| {
            let kind = match series.kind() {
                Kind::Histogram(_) => "histogram",
                Kind::Counter(_) => "counter",
                Kind::Gauge => "gauge",
                Kind::Text => return Ok(()),
            };
            let metadata = (kind, series.unit().to_owned());
            match found.get_mut(series.name()) {
                Some(held) => drop(held.insert(metadata)),
                None => drop(found.insert(series.name().to_owned(), BTreeSet::from([metadata]))),
            }
            entries.count(found.len())
        })?;
        success(asking.page(), &Beside::default(), |page| {
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
    Ok(context.light_view("prometheus_metadata", None, work).await?)
}
