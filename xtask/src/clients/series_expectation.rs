//! Compares the measurements that a client sent with the answers of topdeck.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Query that returns a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum QueryMethod {
    /// `/v1/histogram`: the merged histogram of all selected series.
    Distribution,
    /// `/api/v1/query`: the latest sample, a native histogram.
    Native,
    /// `/api/v1/query`: a number.
    Number,
    /// `/api/v1/query_range`: the last number.
    Range,
}

/// Expected answer. `None` for statistics that the format does not have.
#[derive(Clone, Debug)]
pub(super) struct SeriesExpectation {
    pub(super) client: String,
    pub(super) label: String,
    pub(super) method: QueryMethod,
    /// A selector or an expression.
    pub(super) selector: String,
    /// Number of measurements sent.
    pub(super) count: u64,
    /// Unit of the values of a distribution; `None` if it is not compared.
    pub(super) unit: Option<String>,
    /// Sum; for a number, the number itself.
    pub(super) sum: Option<f64>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    /// Names of `sum`, `min` and `max` that the format has only through its buckets: they must lie
    /// within the bounds of the answer.
    pub(super) unbounded_fields: Vec<String>,
}

impl SeriesExpectation {
    /// Parses a line that a client prints.
    pub(super) fn read(line: &str) -> Result<SeriesExpectation> {
        let value: Value = serde_json::from_str(line)
            .with_context(|| format!("a client printed invalid JSON: {line:?}"))?;
        let text = |key: &str| {
            value[key].as_str().map(str::to_owned).with_context(|| format!("no {key}: {line}"))
        };
        let ask = match text("ask")?.as_str() {
            "distribution" => QueryMethod::Distribution,
            "native" => QueryMethod::Native,
            "number" => QueryMethod::Number,
            other => bail!("unknown query kind {other:?}: {line}"),
        };
        let count = value["count"].as_u64().with_context(|| format!("no count: {line}"))?;
        let number = |key: &str| value[key].as_f64();
        let within = value["within"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(SeriesExpectation {
            client: text("client")?,
            label: text("what")?,
            method: ask,
            selector: text("of")?,
            count,
            unit: value["unit"].as_str().map(str::to_owned),
            sum: number("sum"),
            min: number("min"),
            max: number("max"),
            unbounded_fields: within.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }

    /// Compares `answer` with what was sent.
    pub(super) fn compare(&self, answer: &Value) -> SeriesCheck {
        let mut stored = StoredStatistics::parse(self.method, answer);
        if !matches!(self.method, QueryMethod::Distribution | QueryMethod::Native) {
            let number = stored.sum.map_or(f64::NAN, |(lower, _)| lower);
            let is_right = self.sum == Some(number);
            stored.text = number.to_string();
            return self.series_check(is_right, stored, answer);
        }
        let is = |name, truth: Option<f64>, stored: Option<(f64, f64)>| match (truth, stored) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(truth), Some((lower, upper))) if self.has_bounds(name) => {
                lower <= truth && truth <= upper
            }
            (Some(truth), Some(bounds)) => bounds == (truth, truth),
        };
        let has_unit = |unit: &String| answer["unit"].as_str() == Some(unit.as_str());
        let is_right = stored.count == Some(self.count)
            && self.unit.as_ref().is_none_or(has_unit)
            && is("sum", self.sum, stored.sum)
            && is("min", self.min, stored.min)
            && is("max", self.max, stored.max);
        stored.text = stored.count.map_or_else(|| "nothing".to_owned(), |count| count.to_string());
        self.series_check(is_right, stored, answer)
    }

    fn series_check(
        &self,
        is_right: bool,
        stored: StoredStatistics,
        answer: &Value,
    ) -> SeriesCheck {
        let wrong = (!is_right).then(|| {
            let SeriesExpectation { client, label: what, selector: of, count, .. } = self;
            let SeriesExpectation { unit, sum, min, max, .. } = self;
            let mut answer = answer.to_string();
            answer.truncate(answer.floor_char_boundary(600));
            format!(
                "{client}, {what}: {of}: sent {count}, unit {unit:?}, sum {sum:?}, min {min:?}, \
                 max {max:?}; stored {:?}, sum {:?}, min {:?}, max {:?}, of {answer}",
                stored.count, stored.sum, stored.min, stored.max
            )
        });
        SeriesCheck { stored: stored.text, mismatch: wrong }
    }

    /// The compared statistics, for the table.
    fn compared(&self) -> String {
        if !matches!(self.method, QueryMethod::Distribution | QueryMethod::Native) {
            return "value".to_owned();
        }
        let facts = [("sum", self.sum), ("min", self.min), ("max", self.max)];
        let known = facts.iter().filter(|(_, value)| value.is_some());
        let names = known.map(|(name, _)| match self.has_bounds(name) {
            true => format!("{name} within"),
            false => (*name).to_owned(),
        });
        let unit = self.unit.iter().map(|_| "unit".to_owned());
        let names: Vec<String> =
            std::iter::once("count".to_owned()).chain(unit).chain(names).collect();
        names.join(", ")
    }

    fn has_bounds(&self, name: &str) -> bool {
        self.unbounded_fields.iter().any(|within| within == name)
    }
}

/// The answer of topdeck, and the differences.
pub(super) struct SeriesCheck {
    pub(super) stored: String,
    pub(super) mismatch: Option<String>,
}

/// Statistics with their bounds; the bounds of an exact statistic are equal.
struct StoredStatistics {
    count: Option<u64>,
    sum: Option<(f64, f64)>,
    min: Option<(f64, f64)>,
    max: Option<(f64, f64)>,
    text: String,
}

impl StoredStatistics {
    fn parse(ask: QueryMethod, answer: &Value) -> StoredStatistics {
        let mut stored =
            StoredStatistics { count: None, sum: None, min: None, max: None, text: String::new() };
        let series = &answer["data"]["result"];
        let only = series.as_array().filter(|list| list.len() == 1).map(|list| &list[0]);
        match ask {
            QueryMethod::Distribution => {
                let bounds = |key: &str| {
                    let value = &answer[key];
                    Some((value["lower"].as_f64()?, value["upper"].as_f64()?))
                };
                let count = &answer["count"];
                stored.count = count.as_u64().or_else(|| count["estimate"].as_u64());
                (stored.sum, stored.min, stored.max) =
                    (bounds("sum"), bounds("min"), bounds("max"));
            }
            QueryMethod::Native => {
                let histogram = only.map(|one| &one["histogram"][1]);
                let number = |key: &str| text(&histogram?[key]);
                stored.count = number("count").map(|count| count as u64);
                stored.sum = number("sum").map(|sum| (sum, sum));
            }
            QueryMethod::Number | QueryMethod::Range => {
                let value = only.and_then(|one| match ask {
                    QueryMethod::Range => text(&one["values"].as_array()?.last()?[1]),
                    _ => text(&one["value"][1]),
                });
                stored.sum = value.map(|value| (value, value));
            }
        }
        stored
    }
}

/// Parses a number in Prometheus notation.
fn text(value: &Value) -> Option<f64> {
    value.as_str()?.parse().ok()
}

/// Table with one line per series.
pub(super) fn table(sent: &[SeriesExpectation], answers: &[SeriesCheck]) -> String {
    let head = ["client", "what", "sent", "stored", "compared"].map(str::to_owned);
    let rows = sent.iter().zip(answers).map(|(sent, answer)| {
        let should = match sent.method {
            QueryMethod::Distribution | QueryMethod::Native => sent.count.to_string(),
            QueryMethod::Number | QueryMethod::Range => sent.sum.unwrap_or(f64::NAN).to_string(),
        };
        let wrong = if answer.mismatch.is_some() { ": WRONG" } else { "" };
        let stored = format!("{}{wrong}", answer.stored);
        [sent.client.clone(), sent.label.clone(), should, stored, sent.compared()]
    });
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let [a, b, c, d] = [0, 1, 2, 3].map(|column| width(column).unwrap_or(0));
    let line = |[client, what, sent, stored, compared]: &[String; 5]| {
        format!("{client:a$}  {what:b$}  {sent:>c$}  {stored:>d$}  {compared}\n")
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"client":"c","what":"w","ask":"distribution","of":"x","count":3,"sum":6.5,"min":1,"max":null}"#;

    #[track_caller]
    fn check(line: &str, answer: &str, is_right: bool) {
        let answer: Value = serde_json::from_str(answer).unwrap();
        let checked = SeriesExpectation::read(line).unwrap().compare(&answer);
        assert_eq!(checked.mismatch.is_none(), is_right, "{:?}", checked.mismatch);
    }

    #[test]
    fn distribution_matches_exactly() {
        let answer = |count: u64, sum: f64| {
            format!(
                r#"{{"count":{count},"sum":{{"lower":{sum},"upper":6.5}},"min":{{"lower":1,"upper":1}}}}"#
            )
        };
        check(LINE, &answer(3, 6.5), true);
        check(LINE, &answer(2, 6.5), false);
        check(LINE, &answer(3, 6.25), false);
        check(LINE, "{}", false);
        let within = LINE.replace("null}", "null,\"within\":[\"sum\"]}");
        check(&within, &answer(3, 6.25), true);
        check(&within, &answer(3, 6.75), false);
        let in_seconds = LINE.replace("\"sum\"", "\"unit\":\"s\",\"sum\"");
        check(
            &in_seconds,
            &answer(3, 6.5).replace("{\"count\"", "{\"unit\":\"s\",\"count\""),
            true,
        );
        check(&in_seconds, &answer(3, 6.5), false);
    }

    #[test]
    fn number_is_of_one_series() {
        let line = r#"{"client":"c","what":"w","ask":"number","of":"x","count":3,"sum":7}"#;
        check(line, r#"{"data":{"result":[{"value":[1,"7"]}]}}"#, true);
        check(line, r#"{"data":{"result":[{"value":[1,"8"]}]}}"#, false);
        check(line, r#"{"data":{"result":[{"value":[1,"7"]},{"value":[1,"7"]}]}}"#, false);
    }

    #[test]
    fn a_native_histogram_has_count_and_sum() {
        let line = LINE.replace("distribution", "native").replace("\"min\":1,", "");
        check(&line, r#"{"data":{"result":[{"histogram":[1,{"count":"3","sum":"6.5"}]}]}}"#, true);
        check(&line, r#"{"data":{"result":[{"histogram":[1,{"count":"3","sum":"6"}]}]}}"#, false);
    }
}
