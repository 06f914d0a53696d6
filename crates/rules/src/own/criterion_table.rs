//! Table `[[rule.criteria]]` of a rule file, before and after its check.

use decode::{Quantity, duration_text};
use regex::Regex;
use serde::Deserialize;
use toml::Spanned;

use super::criterion::{
    ComparisonKind, Criterion, Measure, NumberMeasure, TextPattern, ThresholdComparison,
};
use super::forecast::{FORECAST_WINDOW_MIN_NS, ForecastCriterion};
use super::shape_key::{BaselineKey, shape_measure};
use super::table_problem::{TableProblem, TableResult, duration, keep, problem, unknown_name};
use super::users_key::users_measure;
use crate::rule_file::RuleFileReader;

/// Share of requests that must have moved, if a shape criterion sets none.
const MIN_SHIFT: f64 = 0.005;
/// Share of the outcomes that a forecast criterion needs, if it sets none.
const FORECAST_CHANCE: f64 = 0.5;

/// A criterion as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CriterionTable {
    severity: Spanned<u8>,
    quantile: Option<Spanned<f64>>,
    count_above: Option<Spanned<Amount>>,
    share_above: Option<Spanned<Amount>>,
    statistic: Option<Spanned<String>>,
    text: Option<Spanned<String>>,
    text_changes: Option<Spanned<bool>>,
    absent: Option<Spanned<bool>>,
    after: Option<Spanned<String>>,
    shape_of: Option<Spanned<BaselineKey>>,
    min_shift: Option<Spanned<Amount>>,
    forecast: Option<Spanned<ForecastTable>>,
    oldest_in_flight: Option<Spanned<Amount>>,
    users_above: Option<Spanned<Amount>>,
    user_label: Option<Spanned<String>>,
    above: Option<Spanned<Amount>>,
    below: Option<Spanned<Amount>>,
    at_least: Option<Spanned<Amount>>,
    at_most: Option<Spanned<Amount>>,
    equals: Option<Spanned<Amount>>,
}

/// `forecast = { within = "3d", chance = "10%" }`, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForecastTable {
    within: Spanned<String>,
    chance: Option<Spanned<Amount>>,
}

/// A number, or a text with a unit: `0.25`, `"250ms"`, `"1%"`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Amount {
    Integer(i64),
    Float(f64),
    Text(String),
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Amount::Integer(number) => number.to_string(),
            Amount::Float(number) => number.to_string(),
            Amount::Text(text) => text.clone(),
        }
    }

    fn quantity(&self) -> Option<Quantity> {
        let text = self.text();
        match text.trim().strip_suffix('%') {
            None => Quantity::parse(&text),
            Some(percent) => {
                let percent: f64 = percent.trim().parse().ok()?;
                Quantity::parse(&(percent / 100.0).to_string())
            }
        }
    }
}

/// The criterion of a table, unless it has a problem.
pub(super) fn criterion_of(
    written: &Spanned<CriterionTable>,
    (selector_window, read): (Option<i64>, RuleFileReader<'_>),
    text: &dyn Fn(String) -> String,
    problems: &mut Vec<TableProblem>,
) -> Option<Criterion> {
    let table = written.get_ref();
    let severity = keep(severity(&table.severity), problems);
    let (measure, words) = keep(table.measure(written, selector_window, read), problems)?;
    Some(Criterion { severity: severity?, measure, text: text(words) })
}

/// A comparison, its key and its text.
pub(super) type ComparisonParts = (ThresholdComparison, &'static str, String);

fn forecast_measure(
    written: &Spanned<ForecastTable>,
    comparison: Option<ComparisonParts>,
    selector_window: Option<i64>,
) -> TableResult<(Measure, String)> {
    let ForecastTable { within, chance } = written.get_ref();
    let Some(window_ns) = selector_window else {
        return problem(written, "this criterion needs select: a query has no samples");
    };
    if window_ns < FORECAST_WINDOW_MIN_NS {
        return problem(written, "forecast: the window is shorter than 1h; set window = \"7d\"");
    }
    let bound = comparison.filter(|(bound, ..)| bound.kind != ComparisonKind::Equals);
    let Some((bound, _, words)) = bound else {
        return problem(written, "forecast needs a bound; set above, below, at_least or at_most");
    };
    let within_ns = duration(within)?;
    let share = match chance {
        None => FORECAST_CHANCE,
        Some(chance) => match quantity("chance", chance)?.value_in(None) {
            Some(share) if (0.01..=0.99).contains(&share) => share,
            _ => return problem(chance, "chance: expected 0.01 to 0.99, or \"1%\" to \"99%\""),
        },
    };
    let likely = chance.as_ref().map_or_else(String::new, |chance| {
        format!(" with a chance of {}", chance.get_ref().text())
    });
    let words = format!("forecast for {}{likely} {words}", duration_text(within_ns));
    Ok((Measure::Forecast(ForecastCriterion { bound, within_ns, chance: share }), words))
}

impl CriterionTable {
    /// The measure, and its text. `selector_window` is the window of a rule with a selector.
    fn measure(
        &self,
        at: &Spanned<CriterionTable>,
        selector_window: Option<i64>,
        read: RuleFileReader<'_>,
    ) -> TableResult<(Measure, String)> {
        let comparison = self.comparison(at)?;
        let special = self.special_measure(selector_window.is_some(), read)?;
        let numbers = self.number_measures()?;
        let count = usize::from(special.is_some()) + numbers.len();
        let others = [self.forecast.is_some(), self.users_above.is_some()];
        if count + others.into_iter().map(usize::from).sum::<usize>() > 1 {
            return problem(at, "the criterion has two measures; write two criteria");
        }
        if let Some(forecast) = &self.forecast {
            return forecast_measure(forecast, comparison, selector_window);
        }
        if let Some(written) = &self.users_above {
            let limit = (quantity("users_above", written)?, written.get_ref().text());
            let label = self.user_label.as_ref().map(|label| label.get_ref().clone());
            return users_measure(written, limit, label, comparison, selector_window.is_some());
        }
        if let Some(label) = &self.user_label {
            return problem(label, "user_label belongs to users_above");
        }
        match (special, comparison) {
            (Some(measure), None) => Ok(measure),
            (Some(_), Some((_, key, _))) => {
                problem(at, format!("{key} does not belong to this criterion; remove it"))
            }
            (None, None) => problem(
                at,
                "the criterion compares nothing; set above, below, at_least, at_most or equals",
            ),
            (None, Some((comparison, _, words))) => {
                let first = numbers.into_iter().next();
                let (measure, name) =
                    first.unwrap_or_else(|| (NumberMeasure::Value, "value".to_owned()));
                Ok((Measure::Number(measure, comparison), format!("{name} {words}")))
            }
        }
    }

    fn comparison(&self, at: &Spanned<CriterionTable>) -> TableResult<Option<ComparisonParts>> {
        let written = [
            (ComparisonKind::Above, &self.above),
            (ComparisonKind::Below, &self.below),
            (ComparisonKind::AtLeast, &self.at_least),
            (ComparisonKind::AtMost, &self.at_most),
            (ComparisonKind::Equals, &self.equals),
        ];
        let mut set = written.iter().filter_map(|(kind, amount)| Some((*kind, amount.as_ref()?)));
        let Some((kind, amount)) = set.next() else { return Ok(None) };
        if set.next().is_some() {
            return problem(at, "the criterion has two comparisons; write two criteria");
        }
        let threshold = quantity(kind.key(), amount)?;
        let words = format!("{} {}", kind.key().replace('_', " "), amount.get_ref().text());
        Ok(Some((ThresholdComparison { kind, threshold }, kind.key(), words)))
    }

    fn number_measures(&self) -> TableResult<Vec<(NumberMeasure, String)>> {
        let mut found = Vec::new();
        if let Some(written) = &self.quantile {
            let q = *written.get_ref();
            if !(0.0..=1.0).contains(&q) {
                return problem(written, format!("quantile: found {q}, expected 0 to 1"));
            }
            found.push((NumberMeasure::Quantile(q), format!("quantile {q}")));
        }
        if let Some(written) = &self.count_above {
            let limit = quantity("count_above", written)?;
            let text = format!("requests above {}", written.get_ref().text());
            found.push((NumberMeasure::CountAbove(limit), text));
        }
        if let Some(written) = &self.share_above {
            let limit = quantity("share_above", written)?;
            let text = format!("share of requests above {}", written.get_ref().text());
            found.push((NumberMeasure::ShareAbove(limit), text));
        }
        if let Some(written) = &self.statistic {
            let measure = match written.get_ref().as_str() {
                "value" => NumberMeasure::Value,
                "rate" => NumberMeasure::Rate,
                "count" => NumberMeasure::Count,
                "min" => NumberMeasure::Min,
                "max" => NumberMeasure::Max,
                "mean" => NumberMeasure::Mean,
                other => {
                    let known = ["value", "rate", "count", "min", "max", "mean"];
                    return problem(written, unknown_name("statistic", other, &known));
                }
            };
            found.push((measure, written.get_ref().clone()));
        }
        Ok(found)
    }

    fn special_measure(
        &self,
        is_selector: bool,
        read: RuleFileReader<'_>,
    ) -> TableResult<Option<(Measure, String)>> {
        let mut found = Vec::new();
        if let Some(written) = &self.text {
            let parsed = Regex::new(written.get_ref())
                .and_then(|regex| Regex::new(&format!("^(?s:{regex})$")));
            let regex = parsed.or_else(|error| {
                // The last line has the cause, those before show the place.
                let cause = error.to_string().lines().last().unwrap_or_default().to_owned();
                let cause = cause.trim_start_matches("error: ");
                problem(written, format!("text: cannot parse regular expression: {cause}"))
            })?;
            let words = format!("text matches {:?}", written.get_ref());
            found.push((Measure::TextMatch(TextPattern(regex)), words, written.span()));
        }
        if let Some(written) = self.text_changes.as_ref().filter(|it| *it.get_ref()) {
            found.push((Measure::TextChange, "text changes".to_owned(), written.span()));
        }
        if let Some(written) = self.absent.as_ref().filter(|it| *it.get_ref()) {
            let after_ns = self.after.as_ref().map(duration).transpose()?;
            let words = match after_ns {
                Some(after_ns) => format!("no data for {}", duration_text(after_ns)),
                None => "no data for 5 intervals".to_owned(),
            };
            found.push((Measure::Absence(after_ns), words, written.span()));
        } else if let Some(after) = &self.after {
            return problem(after, "after belongs to absent = true");
        }
        if let Some(written) = &self.shape_of {
            let (measure, words) = shape_measure(written, self.min_shift()?, read)?;
            found.push((measure, words, written.span()));
        } else if let Some(min_shift) = &self.min_shift {
            return problem(min_shift, "min_shift belongs to shape_of");
        }
        if let Some(written) = &self.oldest_in_flight {
            let least = quantity("oldest_in_flight", written)?;
            let words = format!("operation in flight for {}", written.get_ref().text());
            found.push((Measure::OldestInFlight(least), words, written.span()));
        }
        if !is_selector && let Some((_, _, span)) = found.first() {
            let message = "this criterion needs select: a query has no samples".to_owned();
            return Err(TableProblem { byte: span.start, message });
        }
        if let [_, (_, _, second), ..] = &found[..] {
            let message = "the criterion has two measures; write two criteria".to_owned();
            return Err(TableProblem { byte: second.start, message });
        }
        Ok(found.pop().map(|(measure, words, _)| (measure, words)))
    }

    fn min_shift(&self) -> TableResult<f64> {
        let Some(written) = &self.min_shift else { return Ok(MIN_SHIFT) };
        let share = quantity("min_shift", written)?.value_in(None);
        match share.filter(|share| (0.0..1.0).contains(share)) {
            Some(share) => Ok(share),
            None => problem(written, "min_shift: expected a share such as 0.01 or \"1%\""),
        }
    }
}

fn quantity(key: &str, written: &Spanned<Amount>) -> TableResult<Quantity> {
    match written.get_ref().quantity() {
        Some(quantity) => Ok(quantity),
        None => {
            let found = written.get_ref().text();
            problem(
                written,
                format!(
                    "{key}: found {found:?}, expected a number such as 0.25, \"250ms\" or \"1%\""
                ),
            )
        }
    }
}

pub(super) fn severity(written: &Spanned<u8>) -> TableResult<u8> {
    match *written.get_ref() {
        found @ 1..=5 => Ok(found),
        found => problem(written, format!("severity: found {found}, expected 1 (worst) to 5")),
    }
}
