//! The table of a run: a row per data set, query and measure, a column per server.

use super::answer::AnswerCheck;
use crate::report::{ReportTable, ReportTarget, Samples, number};

/// Limit of the values of topdeck.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PathLimit {
    AtMost(f64),
    AtLeast(f64),
}

impl PathLimit {
    fn is_met(self, value: f64) -> bool {
        match self {
            PathLimit::AtMost(limit) => value <= limit,
            PathLimit::AtLeast(limit) => value >= limit,
        }
    }

    fn text(self) -> String {
        match self {
            PathLimit::AtMost(limit) => format!("≤ {}", plain(limit)),
            PathLimit::AtLeast(limit) => format!("≥ {}", plain(limit)),
        }
    }
}

fn plain(limit: f64) -> String {
    let text = limit.to_string();
    match text.strip_suffix("000") {
        Some(thousands) if limit >= 10_000.0 => format!("{thousands},000"),
        _ => text,
    }
}

/// Content of a cell.
#[derive(Clone, Debug, PartialEq)]
enum PathCell {
    Open,
    Values(Vec<f64>),
    /// An answer that is no number, such as a refusal.
    Text(String),
    /// An answer that differs from the right one.
    Wrong(String),
}

/// Measure of the row that says whether the answers were right.
pub(crate) const ANSWER: &str = "answer";

/// What a row measures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathMeasure {
    pub(crate) what: String,
    /// Measure with its unit.
    pub(crate) measure: &'static str,
    pub(crate) limit: Option<PathLimit>,
}

impl PathMeasure {
    pub(crate) fn new(what: impl Into<String>, measure: &'static str) -> PathMeasure {
        PathMeasure { what: what.into(), measure, limit: None }
    }

    pub(crate) fn with(self, limit: Option<PathLimit>) -> PathMeasure {
        PathMeasure { limit, ..self }
    }
}

/// Rows in the order of their first value, those of a query together.
pub(crate) struct PathTable {
    columns: Vec<String>,
    /// Columns to which the limits apply.
    own: usize,
    /// Limits are those of all data.
    has_limits: bool,
    rows: Vec<(PathMeasure, Vec<PathCell>)>,
}

impl PathTable {
    /// The first `own` columns are those of topdeck.
    pub(crate) fn new(columns: Vec<String>, own: usize) -> PathTable {
        PathTable { columns, own, has_limits: true, rows: Vec::new() }
    }

    /// A table of a part of the data.
    pub(crate) fn without_limits(self) -> PathTable {
        PathTable { has_limits: false, ..self }
    }

    fn cell(&mut self, measure: PathMeasure, column: usize) -> &mut PathCell {
        let found = self
            .rows
            .iter()
            .position(|(one, _)| one.what == measure.what && one.measure == measure.measure);
        let row = found.unwrap_or_else(|| {
            let last = self.rows.iter().rposition(|(one, _)| one.what == measure.what);
            let row = last.map_or(self.rows.len(), |last| last + 1);
            let limit = measure.limit.filter(|_| self.has_limits);
            let measure = measure.with(limit);
            self.rows.insert(row, (measure, vec![PathCell::Open; self.columns.len()]));
            row
        });
        &mut self.rows[row].1[column]
    }

    /// Adds the value of a round.
    pub(crate) fn add(&mut self, measure: PathMeasure, column: usize, value: f64) {
        match self.cell(measure, column) {
            PathCell::Values(values) => values.push(value),
            PathCell::Text(_) | PathCell::Wrong(_) => {}
            open => *open = PathCell::Values(vec![value]),
        }
    }

    pub(crate) fn say(&mut self, measure: PathMeasure, column: usize, text: impl Into<String>) {
        *self.cell(measure, column) = PathCell::Text(text.into());
    }

    /// Notes whether an answer was right; a wrong one is not forgotten in later rounds.
    pub(crate) fn judge(&mut self, what: &str, column: usize, check: &AnswerCheck) {
        let cell = self.cell(PathMeasure::new(what, ANSWER), column);
        if !matches!(cell, PathCell::Wrong(_)) {
            *cell = match check.is_equal() {
                true => PathCell::Text(check.cell()),
                false => PathCell::Wrong(check.cell()),
            };
        }
    }

    /// Whether topdeck meets a limit in all of its columns, with right answers; `None` if it was
    /// not measured.
    fn is_met(&self, what: &str, limit: PathLimit, cells: &[PathCell]) -> Option<bool> {
        let answers = self.rows.iter().filter(|(one, _)| one.what == what);
        let mut own = answers.flat_map(|(_, cells)| &cells[..self.own]);
        if own.any(|cell| matches!(cell, PathCell::Wrong(_))) {
            return Some(false);
        }
        let verdicts = cells[..self.own].iter().filter_map(|cell| match cell {
            PathCell::Open => None,
            PathCell::Values(values) => Some(limit.is_met(samples("", values).median())),
            PathCell::Text(_) | PathCell::Wrong(_) => Some(false),
        });
        verdicts.reduce(|all, one| all && one)
    }

    pub(crate) fn table(&self) -> ReportTable {
        let mut table = ReportTable::new("", 2, &["data and query", "measure"]);
        table.header.extend(self.columns.iter().cloned());
        table.header.extend(["target".to_owned(), String::new()]);
        let mut before = "";
        for (measure, cells) in &self.rows {
            // Rows of the same query follow one another; only the first names it.
            let what = if measure.what == before { "" } else { &measure.what };
            before = &measure.what;
            let mut row = vec![what.to_owned(), measure.measure.to_owned()];
            row.extend(cells.iter().map(|cell| match cell {
                PathCell::Open => "–".to_owned(),
                PathCell::Values(values) if values.iter().all(|one| *one == values[0]) => {
                    number(values[0])
                }
                PathCell::Values(values) => samples("", values).cell(),
                PathCell::Text(text) => text.clone(),
                PathCell::Wrong(text) => format!("**{text}**"),
            }));
            row.push(measure.limit.map(PathLimit::text).unwrap_or_default());
            let verdict =
                measure.limit.map(|limit| match self.is_met(&measure.what, limit, cells) {
                    Some(true) => "met",
                    Some(false) => "**NOT MET**",
                    None => "open",
                });
            row.push(verdict.unwrap_or_default().to_owned());
            table.rows.push(row);
        }
        table
    }

    /// The rows with a limit, for the list of all targets.
    pub(crate) fn targets(&self) -> Vec<ReportTarget> {
        let target = |(measure, cells): &(PathMeasure, Vec<PathCell>)| {
            let limit = measure.limit?;
            let measured: Vec<String> = cells[..self.own]
                .iter()
                .filter_map(|cell| match cell {
                    PathCell::Open => None,
                    PathCell::Values(values) => Some(number(samples("", values).median())),
                    PathCell::Text(text) | PathCell::Wrong(text) => Some(text.clone()),
                })
                .collect();
            Some(ReportTarget {
                description: format!("{}, {}", measure.what, measure.measure),
                promised: limit.text(),
                measured: measured.join(" / "),
                is_met: self.is_met(&measure.what, limit, cells),
            })
        };
        self.rows.iter().filter_map(target).collect()
    }

    pub(crate) fn samples(&self) -> Vec<(String, Vec<Samples>)> {
        let row = |(measure, cells): &(PathMeasure, Vec<PathCell>)| {
            let of = |(name, cell): (&String, &PathCell)| match cell {
                PathCell::Values(values) => Some(samples(name, values)),
                _ => None,
            };
            let set = format!("{}, {}", measure.what, measure.measure);
            (set, self.columns.iter().zip(cells).filter_map(of).collect())
        };
        self.rows.iter().map(row).collect()
    }
}

fn samples(name: &str, values: &[f64]) -> Samples {
    Samples { values: values.to_vec(), ..Samples::new(name, "") }
}

#[cfg(test)]
mod tests {
    use super::super::answer::{AnswerKey, AnswerValues};
    use super::*;

    #[test]
    fn a_target_holds_for_every_column_of_topdeck_and_a_refusal_misses_it() {
        let columns = ["increase", "exact_increase", "Prometheus"].map(str::to_owned).to_vec();
        let mut table = PathTable::new(columns, 2);
        let measure =
            |what: &str| PathMeasure::new(what, "CPU, ms").with(Some(PathLimit::AtMost(30.0)));
        for (column, value) in [(0, 20.0), (1, 25.0), (2, 90.0)] {
            table.add(measure("both"), column, value);
        }
        table.add(measure("one"), 0, 20.0);
        table.add(measure("one"), 1, 31.0);
        table.add(measure("refused"), 1, 20.0);
        table.say(measure("refused"), 0, "refused");
        table.add(measure("peer alone"), 2, 20.0);
        assert_eq!(verdicts(&table), ["met", "**NOT MET**", "**NOT MET**", "open"]);
    }

    fn verdicts(table: &PathTable) -> Vec<String> {
        table.table().rows.into_iter().filter_map(|mut row| row.pop()).collect()
    }

    #[test]
    fn a_fast_answer_that_differs_misses_the_target() {
        let mut table = PathTable::new(vec!["topdeck".to_owned()], 1);
        let measure = PathMeasure::new("query", "CPU, ms").with(Some(PathLimit::AtMost(30.0)));
        table.add(measure, 0, 1.0);
        let key = AnswerKey::new("", 60);
        let right = AnswerValues([(key.clone(), 1.0)].into());
        let wrong = AnswerValues([(key, 2.0)].into());
        table.judge("query", 0, &right.check(&right.bounds()));
        assert_eq!(verdicts(&table), ["met", ""]);
        table.judge("query", 0, &wrong.check(&right.bounds()));
        table.judge("query", 0, &right.check(&right.bounds()));
        assert_eq!(verdicts(&table), ["**NOT MET**", ""]);
    }
}
