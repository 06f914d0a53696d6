//! What is known: series, names of metrics, labels and their values. What is told is in order; where there is more
//! than the limit, that is said.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use axum::extract::{Path, State};
use model::{Selector, Series, selector};
use store::View;

use super::{SERIES, VALUES};
use crate::context::Context;
use crate::desk::{Asking, Written};
use crate::document;
use crate::json::Json::{self, Bool, List, Null, Object, Text};
use crate::json::integer;
use crate::parameters::Parameters;
use crate::refusal::Refusal;

/// As many as are told where nobody says.
const LIMIT: usize = 1_000;
/// And at the most.
const LIMIT_MAX: usize = 100_000;
/// Different texts that are held while they are counted.
const HELD_MAX: usize = 1_000_000;

/// What is searched for.
struct Search {
    selector: Selector,
    text: Option<String>,
    limit: usize,
}

impl Search {
    fn read(parameters: &Parameters) -> Result<Search, Refusal> {
        Ok(Search {
            selector: parameters.selectors("selector")?,
            text: parameters.get("text").map(str::to_lowercase),
            limit: parameters.count("limit", LIMIT, LIMIT_MAX)?,
        })
    }

    fn contains(&self, text: &str) -> bool {
        self.text.as_ref().is_none_or(|wanted| text.to_lowercase().contains(wanted))
    }

    fn is_of(&self, series: &Series) -> bool {
        self.contains(series.name())
            || series.labels().iter().any(|(_, value)| self.contains(value))
    }

    /// All series that are picked, as long as somebody waits.
    fn each(
        &self,
        view: &View,
        asking: &Asking,
        mut each: impl FnMut(&Series) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut outcome = Ok(());
        view.each_series(&self.selector, &mut |series| {
            outcome = asking.check().and_then(|()| each(&series));
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        outcome
    }

    /// A list of what was found, with how many there are in all.
    fn document(&self, name: &'static str, found: usize, told: Vec<Json>) -> Json {
        Object(vec![
            ("schema", integer(1)),
            ("found", integer(found as u64)),
            ("cut", Bool(told.len() < found)),
            (name, List(told)),
        ])
    }
}

fn held(many: usize) -> Result<(), Refusal> {
    match many > HELD_MAX {
        false => Ok(()),
        true => Err(Refusal::Execution(format!(
            "there are more than {HELD_MAX} different ones; select fewer series"
        ))),
    }
}

pub(super) async fn series(
    State(context): State<Context>,
    parameters: Parameters,
) -> Result<Written, Refusal> {
    let parameters = parameters.only(SERIES)?;
    let (timeout, search, desk) =
        (parameters.timeout()?, Search::read(&parameters)?, context.desk.clone());
    let work = move |view: &View, asking: &Asking| {
        // The first of them by name and labels, whatever the order in which the store has them.
        let (mut found, mut told) = (0, BTreeSet::new());
        search.each(view, asking, |series| {
            if search.is_of(series) {
                found += 1;
                told.insert((series.name().to_owned(), series.labels().to_vec(), series.form()));
                if told.len() > search.limit {
                    told.pop_last();
                }
            }
            Ok(())
        })?;
        let told = told.into_iter().filter_map(|(_, _, form)| Series::from_form(&form).ok());
        let told = told.map(|series| Object(head(&series))).collect();
        desk.answer(&search.document("series", found, told))
    };
    context.desk.take("series", timeout, work).await
}

/// What a series is.
pub(crate) fn head(series: &Series) -> Vec<(&'static str, Json)> {
    let labels = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
    vec![
        ("name", Text(series.name().to_owned())),
        ("labels", document::labels(labels)),
        ("kind", Text(selector::kind_word(series.kind()).to_owned())),
        ("unit", if series.unit().is_empty() { Null } else { Text(series.unit().to_owned()) }),
    ]
}

pub(super) async fn names(
    State(context): State<Context>,
    parameters: Parameters,
) -> Result<Written, Refusal> {
    let parameters = parameters.only(SERIES)?;
    let (timeout, search, desk) =
        (parameters.timeout()?, Search::read(&parameters)?, context.desk.clone());
    let work = move |view: &View, asking: &Asking| {
        let mut found: BTreeMap<(String, &str, String), u64> = BTreeMap::new();
        search.each(view, asking, |series| {
            if !search.contains(series.name()) {
                return Ok(());
            }
            let kind = selector::kind_word(series.kind());
            let key = (series.name().to_owned(), kind, series.unit().to_owned());
            *found.entry(key).or_default() += 1;
            held(found.len())
        })?;
        let told = found.iter().take(search.limit).map(|((name, kind, unit), series)| {
            Object(vec![
                ("name", Text(name.clone())),
                ("kind", Text((*kind).to_owned())),
                ("unit", if unit.is_empty() { Null } else { Text(unit.clone()) }),
                ("series", integer(*series)),
            ])
        });
        desk.answer(&search.document("names", found.len(), told.collect()))
    };
    context.desk.take("names", timeout, work).await
}

pub(super) async fn labels(
    State(context): State<Context>,
    parameters: Parameters,
) -> Result<Written, Refusal> {
    let parameters = parameters.only(SERIES)?;
    let (timeout, search, desk) =
        (parameters.timeout()?, Search::read(&parameters)?, context.desk.clone());
    let work = move |view: &View, asking: &Asking| {
        let mut found: BTreeMap<String, (BTreeSet<String>, u64)> = BTreeMap::new();
        let mut values = 0;
        search.each(view, asking, |series| {
            for (name, value) in series.labels().iter().filter(|(name, _)| search.contains(name)) {
                let label = found.entry(name.clone()).or_default();
                values += usize::from(label.0.insert(value.clone()));
                label.1 += 1;
            }
            held(values)
        })?;
        let told = found.iter().take(search.limit).map(|(name, (values, series))| {
            Object(vec![
                ("name", Text(name.clone())),
                ("values", integer(values.len() as u64)),
                ("series", integer(*series)),
            ])
        });
        desk.answer(&search.document("labels", found.len(), told.collect()))
    };
    context.desk.take("labels", timeout, work).await
}

pub(super) async fn values(
    State(context): State<Context>,
    Path(label): Path<String>,
    parameters: Parameters,
) -> Result<Written, Refusal> {
    let parameters = parameters.only(VALUES)?;
    let (timeout, search, desk) =
        (parameters.timeout()?, Search::read(&parameters)?, context.desk.clone());
    let work = move |view: &View, asking: &Asking| {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        search.each(view, asking, |series| {
            if let Some(value) = value_of(series, &label).filter(|value| search.contains(value)) {
                match found.get_mut(value) {
                    Some(series) => *series += 1,
                    None => drop(found.insert(value.to_owned(), 1)),
                }
            }
            held(found.len())
        })?;
        let told = found.iter().take(search.limit).map(|(value, series)| {
            Object(vec![("value", Text(value.clone())), ("series", integer(*series))])
        });
        desk.answer(&search.document("values", found.len(), told.collect()))
    };
    context.desk.take("label_values", timeout, work).await
}

/// The value of a label, or of what stands beside labels.
pub(crate) fn value_of<'a>(series: &'a Series, label: &str) -> Option<&'a str> {
    match label {
        selector::NAME | query::NAME => Some(series.name()),
        selector::UNIT => Some(series.unit()).filter(|unit| !unit.is_empty()),
        selector::KIND => Some(selector::kind_word(series.kind())),
        label => series.label(label),
    }
}
