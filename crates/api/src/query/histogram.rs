//! One distribution: all that series have in a time, put together exactly.

use std::ops::ControlFlow;

use hist::{Bound, Mixture};
use store::{Grid, View};

use super::{HISTOGRAM, selection};
use crate::context::Context;
use crate::desk::{Asking, Written};
use crate::document::{count, distribution, gap, statistic};
use crate::json::Json::{self, Integer, List, Null, Object, Text};
use crate::json::{integer, number};
use crate::parameters::{Parameters, SELECTOR};
use crate::refusal::Refusal;

/// Shares that quantiles are told of, where nobody says.
const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

pub(super) async fn histogram(
    context: Context,
    parameters: Parameters,
) -> Result<Written, Refusal> {
    let parameters = parameters.only(HISTOGRAM)?;
    let (desk, now) = (context.desk.clone(), context.intake.now());
    let (timeout, shares) = (parameters.timeout()?, shares(&parameters)?);
    let asked = parameters.clone();
    let estimate = move |view: &View, _: &Asking| rows_about(&asked, view, now, 1);
    let work = move |view: &View, asking: &Asking| {
        let picked = Picked::read(&parameters, view, now, desk.settings.limits.series)?;
        let (start, end) = (picked.range.start, picked.range.end);
        let grid = Grid { start, step: end - start, columns: 1 };
        let mut columns = view.histograms(&picked.found, grid)?;
        let mut column = columns.next().expect("BUG: a grid of one column has one")?;
        // Where nobody says until when, what is missing after the last row is missing too.
        column.gaps.extend(view.gaps(&picked.asked));
        column.gaps.sort();
        column.gaps.dedup();
        asking.check()?;
        let quantiles = shares.iter().map(|&share| {
            let value = statistic(column.value.quantile(share));
            Object(vec![("q", number(share)), ("value", value)])
        });
        let mut fields = picked.head();
        fields.extend([("start_ns", Integer(start.into())), ("end_ns", Integer(end.into()))]);
        fields.extend(distribution(&column.value));
        fields.extend([
            ("mean", statistic(column.value.mean())),
            ("stddev", statistic(column.value.stddev())),
            ("quantiles", List(quantiles.collect())),
            ("above", above(&picked.above, &column.value)),
            ("gaps", List(column.gaps.iter().map(gap).collect())),
        ]);
        asking.answer(&Object(fields))
    };
    context.query("histogram", timeout, estimate, work).await
}

/// About how many rows a distribution or a heatmap of so many columns is made of.
pub(super) fn rows_about(parameters: &Parameters, view: &View, now: i64, columns: u64) -> u64 {
    let moment = |name| parameters.moment(name, now).ok().flatten();
    let ends = (moment("from"), moment("to"));
    let rows = |selector| selection::rows_about(view, &selector, ends, columns);
    // What is wrong with it is told when it is worked on.
    parameters.selectors("selector").map_or(0, rows)
}

fn shares(parameters: &Parameters) -> Result<Vec<f64>, Refusal> {
    let shares = selection::several(parameters, "q", |text| {
        let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        share.ok_or_else(|| Refusal::parameter("q", text, "a share from 0 to 1"))
    })?;
    Ok(if shares.is_empty() { SHARES.to_vec() } else { shares })
}

/// How many values are above each limit.
pub(super) fn above(limits: &[(String, f64)], mixture: &Mixture) -> Json {
    let of = |(written, limit): &(String, f64)| {
        Object(vec![
            ("written", Text(written.clone())),
            ("limit", number(*limit)),
            ("count", count(mixture.count_above(*limit, Bound::Exclusive))),
        ])
    };
    List(limits.iter().map(of).collect())
}

/// What is asked about: series of histograms in one unit, and when.
pub(super) struct Picked {
    pub(super) selector: String,
    pub(super) found: Vec<store::Found>,
    pub(super) unit: Option<collect::Unit>,
    pub(super) range: std::ops::Range<i64>,
    /// The time that is asked about: without end where nobody says one.
    pub(super) asked: std::ops::Range<i64>,
    pub(super) above: Vec<(String, f64)>,
}

impl Picked {
    pub(super) fn read(
        parameters: &Parameters,
        view: &View,
        now: i64,
        series_max: u64,
    ) -> Result<Picked, Refusal> {
        let written = parameters.required("selector", SELECTOR)?.to_owned();
        let selector = parameters.selectors("selector")?;
        let series_max = parameters.count("max_series", series_max, u64::MAX)?.min(series_max);
        let ends =
            (("from", parameters.moment("from", now)?), ("to", parameters.moment("to", now)?));
        let asked = ends.0.1.unwrap_or(i64::MIN)..ends.1.1.unwrap_or(i64::MAX);
        let picks_nothing = view.each_series(&selector, &mut |_| ControlFlow::Break(())) == 0;
        // A series all of whose rows are missing is none that a selector picks: the gaps say so.
        let missing = selection::range_of_gaps(view, &asked);
        let found = match picks_nothing && missing.is_some() {
            true => Vec::new(),
            false => selection::histograms(view, &selector, series_max)?,
        };
        let unit = selection::unit(&selector, &found)?;
        let above = match found.is_empty() {
            true => selection::limits_of_nothing(parameters, "above")?,
            false => selection::limits(parameters, "above", unit.as_ref())?,
        };
        let range = match (selection::range(view, &found, ends), missing) {
            (Err(Refusal::Missing(_)), Some(missing)) => missing,
            (range, _) => range?,
        };
        Ok(Picked { selector: written, found, unit, range, asked, above })
    }

    /// With what the document begins.
    pub(super) fn head(&self) -> Vec<(&'static str, Json)> {
        vec![
            ("schema", integer(1)),
            ("selector", Text(self.selector.clone())),
            ("series", integer(self.found.len() as u64)),
            ("unit", self.unit.as_ref().map_or(Null, |unit| Text(unit.to_string()))),
        ]
    }
}
