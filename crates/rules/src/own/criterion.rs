//! Criteria: a measure of the values in a window, and the comparison with a threshold.
//!
//! A measure of a distribution is a bracket. A comparison uses the bound that makes it certain:
//! *above 250 ms* holds if the lower bound is above 250 ms. A value whose bracket contains the
//! threshold therefore meets neither *above* nor *below*.

use std::sync::Arc;

use decode::{Quantity, Unit};
use hist::{Bracket, LimitInclusion, Mixture};
use regex::Regex;
use store::NumberAggregate;

use super::forecast::ForecastCriterion;
use super::saved_baseline::SavedBaseline;
use super::stream_reader::{StreamWindow, WindowValue};
use super::users_above::UsersCriterion;

/// Criterion of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Criterion {
    /// 1 (worst) to 5.
    pub(crate) severity: u8,
    pub(crate) measure: Measure,
    /// In words.
    pub(crate) text: String,
}

impl Criterion {
    pub(super) fn is_absence(&self) -> bool {
        matches!(self.measure, Measure::Absence(_))
    }

    /// Limit of the values of a distribution that the criterion is about: those above it are why it
    /// holds.
    pub(crate) fn upper_limit(&self) -> Option<&Quantity> {
        let (measure, comparison) = match &self.measure {
            Measure::Number(measure, comparison) => (measure, comparison),
            Measure::UsersAbove(users) => {
                return users.comparison.kind.is_lower_bound().then_some(&users.limit);
            }
            _ => return None,
        };
        if !comparison.kind.is_lower_bound() {
            return None;
        }
        match measure {
            NumberMeasure::CountAbove(limit) | NumberMeasure::ShareAbove(limit) => Some(limit),
            NumberMeasure::Quantile(_)
            | NumberMeasure::Min
            | NumberMeasure::Max
            | NumberMeasure::Mean => Some(&comparison.threshold),
            NumberMeasure::Value | NumberMeasure::Rate | NumberMeasure::Count => None,
        }
    }

    /// Whether its outcome depends on nothing but the rows of the window.
    pub(super) fn reads_window_only(&self) -> bool {
        match self.measure {
            Measure::Number(..)
            | Measure::UsersAbove(_)
            | Measure::SavedShape { .. }
            | Measure::TextMatch(_)
            | Measure::TextChange => true,
            Measure::Absence(_)
            | Measure::ShapeChange { .. }
            | Measure::OldestInFlight(_)
            | Measure::Forecast(_)
            | Measure::Formula => false,
        }
    }
}

/// What is measured, and what is compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Measure {
    /// A number.
    Number(NumberMeasure, ThresholdComparison),
    /// Number of users with a value above a threshold.
    UsersAbove(UsersCriterion),
    /// The latest text matches.
    TextMatch(TextPattern),
    /// Texts of the window differ.
    TextChange,
    /// No rows since this time; `None`: a multiple of the learned interval.
    Absence(Option<i64>),
    /// The shape differs from that of windows around the same time, this long before.
    ShapeChange {
        baseline_ns: i64,
        /// Smallest share of requests that moved which is of interest.
        min_shift: f64,
    },
    /// The shape differs from that of saved distributions.
    SavedShape {
        baseline: Arc<SavedBaseline>,
        /// As of a change of shape.
        min_shift: f64,
    },
    /// The newest row of a gauge of the age of the oldest operation in flight has at least this
    /// age.
    OldestInFlight(Quantity),
    /// A gauge reaches a bound soon.
    Forecast(ForecastCriterion),
    /// A formula over other rules is true.
    Formula,
}

/// Regular expression that the whole text matches.
#[derive(Clone, Debug)]
pub(crate) struct TextPattern(pub(crate) Regex);

impl PartialEq for TextPattern {
    fn eq(&self, other: &TextPattern) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// A number of a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NumberMeasure {
    /// Result of a query, or the latest value of a gauge.
    Value,
    Quantile(f64),
    /// Number of values above a threshold.
    CountAbove(Quantity),
    /// Their share.
    ShareAbove(Quantity),
    /// Requests or increase per second; of a gauge, the change per second.
    Rate,
    /// Number of requests; the increase of a counter.
    Count,
    Min,
    Max,
    Mean,
}

/// ThresholdComparison with a threshold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ThresholdComparison {
    pub(crate) kind: ComparisonKind,
    pub(crate) threshold: Quantity,
}

/// Kind of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonKind {
    Above,
    Below,
    AtLeast,
    AtMost,
    Equals,
}

impl ComparisonKind {
    /// Whether it certainly holds for each value of a bracket.
    pub(super) fn holds(self, value: &Bracket, threshold: f64) -> bool {
        match self {
            ComparisonKind::Above => value.lower > threshold,
            ComparisonKind::Below => value.upper < threshold,
            ComparisonKind::AtLeast => value.lower >= threshold,
            ComparisonKind::AtMost => value.upper <= threshold,
            ComparisonKind::Equals => value.lower == threshold && value.upper == threshold,
        }
    }

    /// Whether great values are why it holds.
    fn is_lower_bound(self) -> bool {
        matches!(self, ComparisonKind::Above | ComparisonKind::AtLeast)
    }

    /// Key in a rule file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            ComparisonKind::Above => "above",
            ComparisonKind::Below => "below",
            ComparisonKind::AtLeast => "at_least",
            ComparisonKind::AtMost => "at_most",
            ComparisonKind::Equals => "equals",
        }
    }
}

/// Whether a criterion holds for a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CriterionOutcome {
    /// It certainly holds.
    Holds(MeasuredValue),
    /// It does not, or not certainly.
    Clear,
    /// There are too few values.
    Unknown,
}

/// A measured value, and the threshold in its unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeasuredValue {
    pub(crate) value: Bracket,
    pub(crate) threshold: Option<f64>,
    /// Unit of both; empty if unknown.
    pub(crate) unit: String,
}

/// Compares a number of a window. `seconds` is the length of the window.
pub(crate) fn compare_number(
    measure: &NumberMeasure,
    comparison: &ThresholdComparison,
    window: &StreamWindow,
    seconds: f64,
) -> Result<CriterionOutcome, String> {
    let Some(value) = measure.value(window, seconds)? else {
        return Ok(CriterionOutcome::Unknown);
    };
    let unit = measure.unit(&window.unit);
    let threshold = in_unit(&comparison.threshold, &unit)?;
    let measured = MeasuredValue { value, threshold: Some(threshold), unit };
    Ok(match comparison.kind.holds(&value, threshold) {
        true => CriterionOutcome::Holds(measured),
        false => CriterionOutcome::Clear,
    })
}

/// Amount in the unit of a stream.
pub(super) fn in_unit(quantity: &Quantity, unit: &str) -> Result<f64, String> {
    let known = Unit::parse(unit);
    quantity.value_in(known.as_ref()).ok_or_else(|| match unit {
        "" => format!("cannot compare with {quantity}: the stream has no unit; write a number"),
        unit => format!("cannot compare with {quantity}: the unit of the stream is {unit}"),
    })
}

impl NumberMeasure {
    /// Unit of the number, for a stream with values of this unit.
    pub(crate) fn unit(&self, unit: &str) -> String {
        match self {
            NumberMeasure::CountAbove(_)
            | NumberMeasure::ShareAbove(_)
            | NumberMeasure::Rate
            | NumberMeasure::Count => String::new(),
            _ => unit.to_owned(),
        }
    }

    fn value(&self, window: &StreamWindow, seconds: f64) -> Result<Option<Bracket>, String> {
        match &window.value {
            WindowValue::Missing => Ok(None),
            WindowValue::Texts(_) => Err("cannot measure a number: the stream has texts".into()),
            WindowValue::Result(value) => match self {
                NumberMeasure::Value => Ok(Some(*value)),
                _ => Err("cannot measure the result of a query that is a number; compare it \
                          without quantile, count_above, share_above and statistic"
                    .into()),
            },
            WindowValue::Distribution(mixture) => self.of_mixture(mixture, &window.unit, seconds),
            WindowValue::Counter(summary) => self.of_counter(summary, seconds).map(Some),
            WindowValue::Gauge(summary) => self.of_gauge(summary, seconds).map(Some),
        }
    }

    fn of_mixture(
        &self,
        mixture: &Mixture,
        unit: &str,
        seconds: f64,
    ) -> Result<Option<Bracket>, String> {
        let count = mixture.count();
        if count == 0 {
            return Ok(None);
        }
        let above = |limit: &Quantity| {
            let limit = in_unit(limit, unit)?;
            Ok::<_, String>(mixture.count_above(limit, LimitInclusion::Exclusive))
        };
        Ok(match self {
            NumberMeasure::Value => {
                return Err("cannot compare a distribution; add quantile, count_above, \
                            share_above or statistic"
                    .into());
            }
            NumberMeasure::Quantile(q) => mixture.quantile(*q),
            NumberMeasure::CountAbove(limit) => above(limit).map(|found| {
                let number = |count: u64| count as f64;
                let (lower, upper) = (number(found.lower), number(found.upper));
                Some(Bracket { lower, estimate: number(found.estimate), upper })
            })?,
            NumberMeasure::ShareAbove(limit) => Some(above(limit)?.fraction_of(count)),
            NumberMeasure::Rate => Some(Bracket::exact(count as f64 / seconds)),
            NumberMeasure::Count => Some(Bracket::exact(count as f64)),
            NumberMeasure::Min => mixture.min(),
            NumberMeasure::Max => mixture.max(),
            NumberMeasure::Mean => mixture.mean(),
        })
    }

    fn of_counter(&self, summary: &NumberAggregate, seconds: f64) -> Result<Bracket, String> {
        match self {
            NumberMeasure::Rate => Ok(Bracket::exact(summary.sum.value() / seconds)),
            NumberMeasure::Count => Ok(Bracket::exact(summary.sum.value())),
            _ => Err("cannot measure a counter; use statistic = \"rate\" or \"count\"".into()),
        }
    }

    fn of_gauge(&self, summary: &NumberAggregate, seconds: f64) -> Result<Bracket, String> {
        let number = match self {
            NumberMeasure::Value => summary.last,
            NumberMeasure::Rate => (summary.last - summary.first) / seconds,
            NumberMeasure::Count => summary.count as f64,
            NumberMeasure::Min => summary.min,
            NumberMeasure::Max => summary.max,
            NumberMeasure::Mean => summary.mean().unwrap_or(f64::NAN),
            NumberMeasure::Quantile(_)
            | NumberMeasure::CountAbove(_)
            | NumberMeasure::ShareAbove(_) => {
                return Err(
                    "cannot measure a gauge; use statistic = \"value\", \"min\", \"max\", \
                            \"mean\" or \"rate\""
                        .into(),
                );
            }
        };
        Ok(Bracket::exact(number))
    }
}

/// Compares the age of the oldest operation in flight; `None` if the program has ended.
pub(crate) fn compare_age(
    age: Option<f64>,
    least: &Quantity,
    unit: &str,
) -> Result<CriterionOutcome, String> {
    let threshold = in_unit(least, unit)?;
    Ok(match age {
        Some(age) if age >= threshold => CriterionOutcome::Holds(MeasuredValue {
            value: Bracket::exact(age),
            threshold: Some(threshold),
            unit: unit.to_owned(),
        }),
        _ => CriterionOutcome::Clear,
    })
}

/// Compares texts of a window, the latest last.
pub(crate) fn compare_texts(measure: &Measure, window: &StreamWindow) -> CriterionOutcome {
    let WindowValue::Texts(texts) = &window.value else { return CriterionOutcome::Unknown };
    let Some(latest) = texts.last() else { return CriterionOutcome::Unknown };
    let (holds, number) = match measure {
        Measure::TextMatch(TextPattern(regex)) => (regex.is_match(latest), 1.0),
        _ => {
            let changes = texts.windows(2).filter(|pair| pair[0] != pair[1]).count();
            (changes > 0, changes as f64)
        }
    };
    let value = Bracket::exact(number);
    let measured = MeasuredValue { value, threshold: None, unit: String::new() };
    match holds {
        true => CriterionOutcome::Holds(measured),
        false => CriterionOutcome::Clear,
    }
}

#[cfg(test)]
mod tests {
    use hist::Histogram;
    use query::LabelSet;

    use super::*;

    fn window(unit: &str, value: WindowValue) -> StreamWindow {
        StreamWindow { labels: LabelSet::default(), unit: unit.to_owned(), value }
    }

    /// Whether the maximum 0.3 of a stream with a unit is above a threshold.
    #[track_caller]
    fn check_unit(unit: &str, threshold: &str, expected: Result<bool, &str>) {
        let mut histogram = Histogram::default();
        histogram.record(0.3);
        let window = window(unit, WindowValue::Distribution(histogram.into()));
        let threshold = Quantity::parse(threshold).expect("a quantity");
        let comparison = ThresholdComparison { kind: ComparisonKind::Above, threshold };
        let outcome = compare_number(&NumberMeasure::Max, &comparison, &window, 60.0);
        let holds = outcome.map(|outcome| matches!(outcome, CriterionOutcome::Holds(_)));
        assert_eq!(holds, expected.map_err(str::to_owned), "{unit} {comparison:?}");
    }

    #[test]
    fn thresholds_are_converted_to_the_unit_of_the_stream() {
        check_unit("s", "250ms", Ok(true));
        check_unit("s", "350 ms", Ok(false));
        check_unit("ms", "250us", Ok(true));
        check_unit("", "0.25", Ok(true));
        check_unit("B", "0.25", Ok(true));
        let cause = "cannot compare with 250 ms: the unit of the stream is B";
        check_unit("B", "250ms", Err(cause));
        let cause = "cannot compare with 250 ms: the stream has no unit; write a number";
        check_unit("", "250ms", Err(cause));
    }

    /// Whether a measure holds for texts.
    #[track_caller]
    fn check_texts(measure: &Measure, texts: &[&str], expected: Option<bool>) {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let holds = match compare_texts(measure, &window("", WindowValue::Texts(texts))) {
            CriterionOutcome::Holds(_) => Some(true),
            CriterionOutcome::Clear => Some(false),
            CriterionOutcome::Unknown => None,
        };
        assert_eq!(holds, expected);
    }

    #[test]
    fn texts_match_as_a_whole_and_changes_are_within_the_window() {
        let pattern = Measure::TextMatch(TextPattern(Regex::new("^(?s:v1.*)$").expect("a regex")));
        check_texts(&pattern, &["v2", "v1.3"], Some(true));
        check_texts(&pattern, &["v1", "v2"], Some(false));
        check_texts(&pattern, &[], None);
        check_texts(&Measure::TextChange, &["a", "a", "b"], Some(true));
        check_texts(&Measure::TextChange, &["a", "a"], Some(false));
    }

    #[test]
    fn a_counter_has_a_rate_and_an_increase() {
        let summary = NumberAggregate::of_number(120.0);
        let window = window("", WindowValue::Counter(summary));
        let value = |measure: NumberMeasure| measure.value(&window, 60.0);
        assert_eq!(value(NumberMeasure::Rate), Ok(Some(Bracket::exact(2.0))));
        assert_eq!(value(NumberMeasure::Count), Ok(Some(Bracket::exact(120.0))));
        assert!(value(NumberMeasure::Max).is_err());
    }
}
