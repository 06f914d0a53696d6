//! Metadata: series, metric names, labels and values; sorted, truncated at a limit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use axum::extract::Path;
use model::{Selector, Series, selector};
use store::ReadView;

use super::{SERIES, VALUES};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Bool, List, Object, Text};
use crate::json::integer;
use crate::parameters::Parameters;
use crate::route::Parameter;
use report::document;

/// Default limit.
const LIMIT: usize = 1_000;
/// Maximum limit.
const LIMIT_MAX: usize = 100_000;
/// Maximum number of distinct texts or series held while a response is built.
const ENTRIES_MAX: usize = 1_000_000;

/// Search over series metadata.
struct SeriesSearch<'a> {
    selector: Selector,
    filter: Option<String>,
    limit: usize,
    view: &'a ReadView,
    query: &'a ActiveQuery,
}

impl SeriesSearch<'_> {
    fn contains(&self, text: &str) -> bool {
        self.filter.as_ref().is_none_or(|wanted| text.to_lowercase().contains(wanted))
    }

    fn matches(&self, series: &Series) -> bool {
        self.contains(series.name())
            || series.labels().iter().any(|(_, value)| self.contains(value))
    }

    /// Calls `each` for all selected series.
    fn for_each(&self, each: impl FnMut(&Series) -> Result<(), ApiError>) -> Result<(), ApiError> {
        for_each_series(self.view, &self.selector, self.query, each)
    }

    /// As [`SeriesSearch::for_each`], and for the classic histograms whose buckets are counters if
    /// the selector has their name.
    fn for_each_and_classic(
        &self,
        mut each: impl FnMut(&Series) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        self.for_each(&mut each)?;
        match query::bucket_counters(&self.selector) {
            Some(_) => self.for_each_classic(each),
            None => Ok(()),
        }
    }

    fn for_each_classic(
        &self,
        mut each: impl FnMut(&Series) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let mut outcome = Ok(());
        query::each_classic_histogram(self.view, &self.selector, &mut |series| {
            outcome = self.query.check_cancelled().and_then(|()| each(series));
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        outcome
    }

    /// The first entries, and the total number.
    fn first_page<T>(
        &self,
        found: impl ExactSizeIterator<Item = T>,
        document: impl Fn(T) -> Vec<(&'static str, Json)>,
    ) -> (usize, Vec<Json>) {
        let all = found.len();
        (all, found.take(self.limit).map(|of| Object(document(of))).collect())
    }
}

/// Iterates over all selected series, until the query is cancelled.
pub(crate) fn for_each_series(
    view: &ReadView,
    selector: &Selector,
    active: &ActiveQuery,
    mut each: impl FnMut(&Series) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let mut outcome = Ok(());
    view.each_series(selector, &mut |series| {
        outcome = active.check_cancelled().and_then(|()| each(&series));
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    outcome
}

/// Budget for distinct texts or series held while a response is built: number and memory.
pub(crate) struct EntryBudget<'a> {
    query: &'a ActiveQuery,
    /// Number of entries with reserved memory.
    accounted: usize,
}

impl EntryBudget<'_> {
    pub(crate) fn new(active: &ActiveQuery) -> EntryBudget<'_> {
        EntryBudget { query: active, accounted: 0 }
    }

    /// Sets the current number of entries.
    pub(crate) fn set_count(&mut self, many: usize) -> Result<(), ApiError> {
        if many > ENTRIES_MAX {
            return Err(ApiError::Unprocessable(format!(
                "limit of {ENTRIES_MAX} distinct values exceeded; select fewer series"
            )));
        }
        if many > self.accounted {
            self.accounted += ENTRIES_PER_RESERVATION;
            self.query.reserve(ENTRIES_PER_RESERVATION * ENTRY_BYTES)?;
        }
        Ok(())
    }
}

/// Memory of an entry with its text, in a map or set.
const ENTRY_BYTES: usize = 192;
/// Memory is reserved for this many entries at once.
const ENTRIES_PER_RESERVATION: usize = 1024;

/// Responds with a list `name`: the result of `find`, and the total number.
async fn list_response(
    context: Context,
    parameters: Parameters,
    known: &'static [Parameter],
    (operation, name): (&'static str, &'static str),
    find: impl FnOnce(&SeriesSearch<'_>) -> Result<(usize, Vec<Json>), ApiError> + Send + 'static,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(known)?;
    let timeout = parameters.timeout()?;
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let search = SeriesSearch {
            selector: parameters.selectors("selector")?,
            filter: parameters.get("search").map(str::to_lowercase),
            limit: parameters.integer("limit", LIMIT, LIMIT_MAX)?,
            view,
            query: active,
        };
        let (found, results) = find(&search)?;
        active.json_response(&Object(vec![
            ("schema", integer(2)),
            ("total", integer(found as u64)),
            ("truncated", Bool(results.len() < found)),
            (name, List(results)),
        ]))
    };
    context.run_light_with_view(operation, timeout, work).await
}

pub(super) async fn series(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let find = |search: &SeriesSearch<'_>| {
        // The first ones by name and labels, regardless of the store's order.
        let (mut found, mut results) = (0, BTreeSet::new());
        search.for_each(|series| {
            if search.matches(series) {
                found += 1;
                let canonical_key = series.canonical_key();
                if results.len() < search.limit {
                    // Name, labels and canonical key: three times the texts, and their containers.
                    search.query.reserve(ENTRY_BYTES + 3 * canonical_key.len())?;
                }
                results.insert((series.name().to_owned(), series.labels().to_vec(), canonical_key));
                if results.len() > search.limit {
                    results.pop_last();
                }
            }
            Ok(())
        })?;
        let results = results
            .into_iter()
            .filter_map(|(_, _, canonical_key)| Series::from_canonical_key(&canonical_key).ok());
        Ok((found, results.map(|series| Object(document::series_fields(&series))).collect()))
    };
    list_response(context, parameters, SERIES, ("series", "series"), find).await
}

pub(super) async fn names(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let intake = context.intake.clone();
    let find = move |search: &SeriesSearch<'_>| {
        let mut found: BTreeMap<(String, &str, String), u64> = BTreeMap::new();
        let mut entries = EntryBudget::new(search.query);
        search.for_each(|series| {
            if !search.contains(series.name()) {
                return Ok(());
            }
            let kind = selector::kind_name(series.kind());
            let key = (series.name().to_owned(), kind, series.unit().to_owned());
            *found.entry(key).or_default() += 1;
            entries.set_count(found.len())
        })?;
        let mut classic: BTreeMap<(String, &str, String), u64> = BTreeMap::new();
        search.for_each_classic(|series| {
            if !search.contains(series.name()) {
                return Ok(());
            }
            let kind = selector::kind_name(series.kind());
            let key = (series.name().to_owned(), kind, series.unit().to_owned());
            *classic.entry(key).or_default() += 1;
            entries.set_count(found.len() + classic.len())
        })?;
        for (key, series) in classic {
            // Some series may be both.
            let listed = found.entry(key).or_default();
            *listed = series.max(*listed);
        }
        Ok(search.first_page(found.iter(), |((name, kind, unit), series)| {
            let mut fields = vec![
                ("name", Text(name.clone())),
                ("kind", Text((*kind).to_owned())),
                ("unit", document::unit_json(unit)),
                ("series", integer(*series)),
            ];
            let help = intake.description(name);
            fields.extend(help.map(|help| ("help", Text(help.to_string()))));
            fields
        }))
    };
    list_response(context, parameters, SERIES, ("names", "names"), find).await
}

pub(super) async fn labels(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let find = |search: &SeriesSearch<'_>| {
        let mut found: BTreeMap<String, (BTreeSet<String>, u64)> = BTreeMap::new();
        let (mut values, mut entries) = (0, EntryBudget::new(search.query));
        search.for_each_and_classic(|series| {
            for (name, value) in series.labels().iter().filter(|(name, _)| search.contains(name)) {
                let label = found.entry(name.clone()).or_default();
                values += usize::from(label.0.insert(value.clone()));
                label.1 += 1;
            }
            entries.set_count(values)
        })?;
        Ok(search.first_page(found.iter(), |(name, (values, series))| {
            vec![
                ("name", Text(name.clone())),
                ("values", integer(values.len() as u64)),
                ("series", integer(*series)),
            ]
        }))
    };
    list_response(context, parameters, SERIES, ("labels", "labels"), find).await
}

pub(super) async fn values(
    context: Context,
    Path(label): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let find = move |search: &SeriesSearch<'_>| {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        let mut entries = EntryBudget::new(search.query);
        search.for_each_and_classic(|series| {
            if let Some(value) = label_value(series, &label).filter(|value| search.contains(value))
            {
                match found.get_mut(value) {
                    Some(series) => *series += 1,
                    None => drop(found.insert(value.to_owned(), 1)),
                }
            }
            entries.set_count(found.len())
        })?;
        Ok(search.first_page(found.iter(), |(value, series)| {
            vec![("value", Text(value.clone())), ("series", integer(*series))]
        }))
    };
    list_response(context, parameters, VALUES, ("label_values", "values"), find).await
}

/// The value of a label or pseudo label.
pub(crate) fn label_value<'a>(series: &'a Series, label: &str) -> Option<&'a str> {
    match label {
        selector::NAME | query::NAME => Some(series.name()),
        selector::UNIT => Some(series.unit()).filter(|unit| !unit.is_empty()),
        selector::KIND => Some(selector::kind_name(series.kind())),
        label => series.label(label),
    }
}
