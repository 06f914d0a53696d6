//! What is known: series, names of metrics, labels and their values. What is told is in order; where there is more
//! than the limit, that is said.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use axum::extract::Path;
use model::{Selector, Series, selector};
use store::View;

use super::{SERIES, VALUES};
use crate::context::Context;
use crate::desk::{Asking, Written};
use crate::document;
use crate::json::Json::{self, Bool, List, Null, Object, Text};
use crate::json::integer;
use crate::openapi::Parameter;
use crate::parameters::Parameters;
use crate::refusal::Refusal;

/// As many as are told where nobody says.
const LIMIT: usize = 1_000;
/// And at the most.
const LIMIT_MAX: usize = 100_000;
/// Different texts or series that are held while an answer is put together.
const HELD_MAX: usize = 1_000_000;

/// What is searched for, and where.
struct Search<'a> {
    selector: Selector,
    text: Option<String>,
    limit: usize,
    view: &'a View,
    asking: &'a Asking,
}

impl Search<'_> {
    fn contains(&self, text: &str) -> bool {
        self.text.as_ref().is_none_or(|wanted| text.to_lowercase().contains(wanted))
    }

    fn is_of(&self, series: &Series) -> bool {
        self.contains(series.name())
            || series.labels().iter().any(|(_, value)| self.contains(value))
    }

    /// All series that are picked.
    fn each(&self, each: impl FnMut(&Series) -> Result<(), Refusal>) -> Result<(), Refusal> {
        each_series(self.view, &self.selector, self.asking, each)
    }

    /// The first of what was found, and how many that is in all.
    fn first<T>(
        &self,
        found: impl ExactSizeIterator<Item = T>,
        document: impl Fn(T) -> Vec<(&'static str, Json)>,
    ) -> (usize, Vec<Json>) {
        let all = found.len();
        (all, found.take(self.limit).map(|of| Object(document(of))).collect())
    }
}

/// Goes through all series that are picked, as long as somebody waits.
pub(crate) fn each_series(
    view: &View,
    selector: &Selector,
    asking: &Asking,
    mut each: impl FnMut(&Series) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut outcome = Ok(());
    view.each_series(selector, &mut |series| {
        outcome = asking.check().and_then(|()| each(&series));
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    outcome
}

/// Different texts or series that are held while an answer is put together: no more than may be,
/// with memory for them.
pub(crate) struct Entries<'a> {
    asking: &'a Asking,
    /// For how many there is memory.
    accounted: usize,
}

impl Entries<'_> {
    pub(crate) fn new(asking: &Asking) -> Entries<'_> {
        Entries { asking, accounted: 0 }
    }

    /// There are so many now.
    pub(crate) fn count(&mut self, many: usize) -> Result<(), Refusal> {
        if many > HELD_MAX {
            return Err(Refusal::Execution(format!(
                "there are more than {HELD_MAX} different ones; select fewer series"
            )));
        }
        if many > self.accounted {
            self.accounted += ENTRIES_AT_ONCE;
            self.asking.hold(ENTRIES_AT_ONCE * ENTRY_BYTES)?;
        }
        Ok(())
    }
}

/// Memory of an entry with its text, in a map or set.
const ENTRY_BYTES: usize = 192;
/// Memory is taken for so many at once.
const ENTRIES_AT_ONCE: usize = 1024;

/// Answers with a list of that name: what `find` finds of a search, and how many there are in all.
async fn listed(
    context: Context,
    parameters: Parameters,
    known: &'static [Parameter],
    (kind, name): (&'static str, &'static str),
    find: impl FnOnce(&Search<'_>) -> Result<(usize, Vec<Json>), Refusal> + Send + 'static,
) -> Result<Written, Refusal> {
    let parameters = parameters.only(known)?;
    let timeout = parameters.timeout()?;
    let work = move |view: &View, asking: &Asking| {
        let search = Search {
            selector: parameters.selectors("selector")?,
            text: parameters.get("text").map(str::to_lowercase),
            limit: parameters.count("limit", LIMIT, LIMIT_MAX)?,
            view,
            asking,
        };
        let (found, told) = find(&search)?;
        asking.answer(&Object(vec![
            ("schema", integer(1)),
            ("found", integer(found as u64)),
            ("cut", Bool(told.len() < found)),
            (name, List(told)),
        ]))
    };
    context.light_view(kind, timeout, work).await
}

pub(super) async fn series(context: Context, parameters: Parameters) -> Result<Written, Refusal> {
    let find = |search: &Search<'_>| {
        // The first of them by name and labels, whatever the order in which the store has them.
        let (mut found, mut told) = (0, BTreeSet::new());
        search.each(|series| {
            if search.is_of(series) {
                found += 1;
                let form = series.form();
                if told.len() < search.limit {
                    // Name, labels and form: thrice the texts, and what holds them.
                    search.asking.hold(ENTRY_BYTES + 3 * form.len())?;
                }
                told.insert((series.name().to_owned(), series.labels().to_vec(), form));
                if told.len() > search.limit {
                    told.pop_last();
                }
            }
            Ok(())
        })?;
        let told = told.into_iter().filter_map(|(_, _, form)| Series::from_form(&form).ok());
        Ok((found, told.map(|series| Object(head(&series))).collect()))
    };
    listed(context, parameters, SERIES, ("series", "series"), find).await
}

/// What a series is.
pub(crate) fn head(series: &Series) -> Vec<(&'static str, Json)> {
    let labels = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
    vec![
        ("name", Text(series.name().to_owned())),
        ("labels", document::labels(labels)),
        ("kind", Text(selector::kind_word(series.kind()).to_owned())),
        ("unit", unit(series.unit())),
    ]
}

fn unit(unit: &str) -> Json {
    if unit.is_empty() { Null } else { Text(unit.to_owned()) }
}

pub(super) async fn names(context: Context, parameters: Parameters) -> Result<Written, Refusal> {
    let find = |search: &Search<'_>| {
        let mut found: BTreeMap<(String, &str, String), u64> = BTreeMap::new();
        let mut entries = Entries::new(search.asking);
        search.each(|series| {
            if !search.contains(series.name()) {
                return Ok(());
            }
            let kind = selector::kind_word(series.kind());
            let key = (series.name().to_owned(), kind, series.unit().to_owned());
            *found.entry(key).or_default() += 1;
            entries.count(found.len())
        })?;
        Ok(search.first(found.iter(), |((name, kind, unit), series)| {
            vec![
                ("name", Text(name.clone())),
                ("kind", Text((*kind).to_owned())),
                ("unit", self::unit(unit)),
                ("series", integer(*series)),
            ]
        }))
    };
    listed(context, parameters, SERIES, ("names", "names"), find).await
}

pub(super) async fn labels(context: Context, parameters: Parameters) -> Result<Written, Refusal> {
    let find = |search: &Search<'_>| {
        let mut found: BTreeMap<String, (BTreeSet<String>, u64)> = BTreeMap::new();
        let (mut values, mut entries) = (0, Entries::new(search.asking));
        search.each(|series| {
            for (name, value) in series.labels().iter().filter(|(name, _)| search.contains(name)) {
                let label = found.entry(name.clone()).or_default();
                values += usize::from(label.0.insert(value.clone()));
                label.1 += 1;
            }
            entries.count(values)
        })?;
        Ok(search.first(found.iter(), |(name, (values, series))| {
            vec![
                ("name", Text(name.clone())),
                ("values", integer(values.len() as u64)),
                ("series", integer(*series)),
            ]
        }))
    };
    listed(context, parameters, SERIES, ("labels", "labels"), find).await
}

pub(super) async fn values(
    context: Context,
    Path(label): Path<String>,
    parameters: Parameters,
) -> Result<Written, Refusal> {
    let find = move |search: &Search<'_>| {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        let mut entries = Entries::new(search.asking);
        search.each(|series| {
            if let Some(value) = value_of(series, &label).filter(|value| search.contains(value)) {
                match found.get_mut(value) {
                    Some(series) => *series += 1,
                    None => drop(found.insert(value.to_owned(), 1)),
                }
            }
            entries.count(found.len())
        })?;
        Ok(search.first(found.iter(), |(value, series)| {
            vec![("value", Text(value.clone())), ("series", integer(*series))]
        }))
    };
    listed(context, parameters, VALUES, ("label_values", "values"), find).await
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
