//! Statements of `pg_stat_statements`: those that take most time, and the sum of all others.
//!
//! The view has the totals of each statement. Increases between two reads are added up here, so
//! that statements can move between the table and `other` without a counter that falls. Texts are
//! read once per statement: reading them makes the server load the file of all texts.

use std::collections::HashMap;

use crate::metric::{PostgresMetric, counter, text};
use crate::report::{LABEL_CHARS_MAX, PostgresRow, first_chars};
use crate::session::ResultRow;

/// Statements with series of their own.
const STATEMENTS_MAX: usize = 50;
/// Entries of the view that are read.
const ENTRIES_MAX: usize = 10_000;
/// A statement replaces another one that took less than this part of its time lately: statements of
/// similar times do not take turns.
const REPLACED_SHARE: f64 = 0.5;
/// Text before its end is cut.
const TEXT_CHARS: usize = 1_000;
/// Texts that wait to be written; more are dropped.
const TEXTS_MAX: usize = 200;
const OTHER: &str = "other";

pub(crate) const CALLS: PostgresMetric = counter(
    "pg_stat_statements_calls_total",
    "",
    "calls",
    "calls by `datname`, `user` and `queryid`; `queryid` is `other` for all but the 50 statements \
     that take most time",
);
pub(crate) const SECONDS: PostgresMetric =
    counter("pg_stat_statements_seconds_total", "s", "total_exec_time / 1000", "execution time");
pub(crate) const ROWS: PostgresMetric =
    counter("pg_stat_statements_rows_total", "", "rows", "rows that the calls returned or changed");
pub(crate) const QUERY: PostgresMetric = text(
    "pg_stat_statements_query",
    "text of the statement `queryid` with `$1` for constants, or the first word alone; written \
     when the statement gets series",
);

/// Where the extension is: schema and version.
pub(crate) const EXTENSION_SQL: &str = "SELECT quote_ident(n.nspname), e.extversion \
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace \
    WHERE e.extname = 'pg_stat_statements'";

/// Whether a version of the extension has `total_exec_time`: 1.8 (PostgreSQL 13) or later.
pub(crate) fn is_supported(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(1), Some(8))
}

/// The totals, without texts.
pub(crate) fn sql(schema: &str) -> String {
    format!(
        "SELECT coalesce(d.datname, ''), coalesce(r.rolname, ''), s.queryid, \
         sum(s.calls)::float8, sum(s.total_exec_time)::float8 / 1000, sum(s.rows)::float8 \
         FROM {schema}.pg_stat_statements(false) s LEFT JOIN pg_database d ON d.oid = s.dbid \
         LEFT JOIN pg_roles r ON r.oid = s.userid WHERE s.queryid IS NOT NULL \
         GROUP BY 1, 2, 3 ORDER BY 5 DESC LIMIT {ENTRIES_MAX}"
    )
}

/// The texts of statements. The view has no constants of queries, but those of all other
/// statements, passwords among them: of these only the first word leaves the server. The patterns
/// have no backslash, whose meaning depends on `standard_conforming_strings`.
pub(crate) fn text_sql(schema: &str, ids: &[String]) -> String {
    format!(
        "SELECT queryid, min(CASE WHEN query ~* \
         '^[[:space:](]*(select|insert|update|delete|merge|with|values)([^[:alnum:]_]|$)' \
         AND query !~* 'password[^'']*''' THEN left(query, {TEXT_CHARS}) \
         ELSE substring(query FROM '^[[:alpha:]]{{1,20}}') END) \
         FROM {schema}.pg_stat_statements(true) \
         WHERE queryid = ANY ('{{{}}}'::bigint[]) GROUP BY queryid",
        ids.join(",")
    )
}

/// Calls, seconds and rows.
type StatementTotals = [f64; 3];

/// Database, role and query id.
type StatementKey = [String; 3];

/// Statements with series.
#[derive(Debug, Default)]
pub(crate) struct TopStatements {
    /// Totals of the last read; `None` before the first one.
    last: Option<HashMap<StatementKey, StatementTotals>>,
    /// Time of the last read.
    read_at: i64,
    named: HashMap<StatementKey, NamedStatement>,
    other: StatementTotals,
    /// Since when `other` counts.
    other_began: i64,
    /// Texts to write.
    texts: Vec<(String, String)>,
}

#[derive(Debug)]
struct NamedStatement {
    totals: StatementTotals,
    began: i64,
    /// Time of the last reads, halved at each read.
    recent_seconds: f64,
    has_text: bool,
}

impl TopStatements {
    /// Adds the result of [`sql`], read at a time.
    pub(crate) fn add(&mut self, rows: &[ResultRow], now: i64) {
        let is_complete = rows.len() < ENTRIES_MAX;
        let entries: HashMap<StatementKey, StatementTotals> =
            rows.iter().filter_map(read_entry).collect();
        let Some(last) = self.last.take() else {
            (self.last, self.read_at, self.other_began) = (Some(entries), now, now);
            return;
        };
        let mut increases: Vec<(&StatementKey, StatementTotals)> = (entries.iter())
            .filter_map(|(key, totals)| Some((key, increase(last.get(key), totals, is_complete)?)))
            .collect();
        increases.sort_unstable_by(|a, b| b.1[1].total_cmp(&a.1[1]).then(a.0.cmp(b.0)));
        self.named.values_mut().for_each(|named| named.recent_seconds /= 2.0);
        for (key, increase) in increases {
            if !self.named.contains_key(key) && self.has_place(increase[1]) {
                let named = NamedStatement {
                    totals: [0.0; 3],
                    began: self.read_at,
                    recent_seconds: 0.0,
                    has_text: false,
                };
                self.named.insert(key.clone(), named);
            }
            let totals = match self.named.get_mut(key) {
                Some(named) => {
                    named.recent_seconds += increase[1];
                    &mut named.totals
                }
                None => &mut self.other,
            };
            totals.iter_mut().zip(increase).for_each(|(total, more)| *total += more);
        }
        (self.last, self.read_at) = (Some(entries), now);
    }

    /// Whether a statement that took that time gets series, perhaps those of another one.
    fn has_place(&mut self, seconds: f64) -> bool {
        if self.named.len() < STATEMENTS_MAX {
            return true;
        }
        let least = self
            .named
            .iter()
            .min_by(|a, b| a.1.recent_seconds.total_cmp(&b.1.recent_seconds).then(a.0.cmp(b.0)));
        let least = least.filter(|least| least.1.recent_seconds < seconds * REPLACED_SHARE);
        let key = least.map(|(key, _)| key.clone());
        key.is_some_and(|key| self.named.remove(&key).is_some())
    }

    /// Query ids of which the text is not known.
    pub(crate) fn ids_without_text(&self) -> Vec<String> {
        let without = self.named.iter().filter(|(_, named)| !named.has_text);
        let mut ids: Vec<String> = without.map(|(key, _)| key[2].clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Adds the result of [`text_sql`]. A statement that the view has no more has no text.
    pub(crate) fn add_texts(&mut self, rows: &[ResultRow]) {
        let ids = self.ids_without_text();
        self.named.values_mut().for_each(|named| named.has_text = true);
        for row in rows {
            let [Some(id), Some(query)] = &row[..] else { continue };
            if self.texts.len() < TEXTS_MAX && ids.contains(id) {
                self.texts.push((id.clone(), first_chars(query, TEXT_CHARS).to_owned()));
            }
        }
    }

    pub(crate) fn rows(&self, rows: &mut Vec<PostgresRow>) {
        let mut number = |labels: &[(&'static str, String)], totals: &StatementTotals, began| {
            for (metric, value) in [&CALLS, &SECONDS, &ROWS].into_iter().zip(totals) {
                rows.push(PostgresRow::number(metric, labels.to_vec(), *value).since(began));
            }
        };
        for ([datname, user, id], named) in &self.named {
            let labels =
                [("datname", datname.clone()), ("user", user.clone()), ("queryid", id.clone())];
            number(&labels, &named.totals, named.began);
        }
        if self.last.is_some() {
            number(&[("queryid", OTHER.to_owned())], &self.other, self.other_began);
        }
        for (id, query) in &self.texts {
            let labels = vec![("queryid", id.clone())];
            rows.push(PostgresRow::text(&QUERY, labels, query.clone()));
        }
    }

    /// The rows were stored.
    pub(crate) fn clear(&mut self) {
        self.texts.clear();
    }
}

fn read_entry(row: &ResultRow) -> Option<(StatementKey, StatementTotals)> {
    let [Some(database), Some(user), Some(id), Some(calls), Some(seconds), Some(rows)] = &row[..]
    else {
        return None;
    };
    let key = [database, user, id].map(|text| first_chars(text, LABEL_CHARS_MAX).to_owned());
    let number =
        |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    Some((key, [number(calls)?, number(seconds)?, number(rows)?]))
}

/// Increase since the last read. Totals fall when statistics are reset, or when the view has
/// evicted a statement and begun anew. A new entry counts as a whole, unless it may have been below
/// the limit of the last read.
fn increase(
    last: Option<&StatementTotals>,
    totals: &StatementTotals,
    is_complete: bool,
) -> Option<StatementTotals> {
    match last {
        None => is_complete.then_some(*totals),
        Some(last) if totals[0] < last[0] => Some(*totals),
        Some(last) if totals[0] > last[0] => {
            Some([0, 1, 2].map(|at| (totals[at] - last[at]).max(0.0)))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::report::tests::row_lines;

    /// Rows: query id, calls, seconds, rows.
    fn result(rows: &[(usize, f64, f64, f64)]) -> Vec<ResultRow> {
        let row = |&(id, calls, seconds, rows): &(usize, f64, f64, f64)| {
            let numbers = [calls, seconds, rows].map(|number| number.to_string());
            let words = ["shop".to_owned(), "ann".to_owned(), id.to_string()];
            words.into_iter().chain(numbers).map(Some).collect()
        };
        rows.iter().map(row).collect()
    }

    #[track_caller]
    fn check(table: &TopStatements, expected: Expect) {
        let mut rows = Vec::new();
        table.rows(&mut rows);
        let text = row_lines(&rows);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn increases_are_added_up_over_a_reset() {
        let mut table = TopStatements::default();
        check(&table, expect![[""]]);
        table.add(&result(&[(1, 10.0, 5.0, 10.0), (2, 3.0, 1.0, 0.0)]), 100);
        table.add(&result(&[(1, 12.0, 6.0, 14.0), (2, 3.0, 1.0, 0.0)]), 200);
        // The statistics were reset, and a new statement came.
        table.add(&result(&[(1, 1.0, 0.5, 1.0), (3, 2.0, 0.25, 2.0)]), 300);
        check(
            &table,
            expect![[r#"
                pg_stat_statements_calls_total{datname="shop",user="ann",queryid="1"} 3
                pg_stat_statements_calls_total{datname="shop",user="ann",queryid="3"} 2
                pg_stat_statements_calls_total{queryid="other"} 0
                pg_stat_statements_rows_total{datname="shop",user="ann",queryid="1"} 5
                pg_stat_statements_rows_total{datname="shop",user="ann",queryid="3"} 2
                pg_stat_statements_rows_total{queryid="other"} 0
                pg_stat_statements_seconds_total{datname="shop",user="ann",queryid="1"} 1.5
                pg_stat_statements_seconds_total{datname="shop",user="ann",queryid="3"} 0.25
                pg_stat_statements_seconds_total{queryid="other"} 0"#]],
        );
        assert_eq!(table.ids_without_text(), ["1", "3"]);
        // One is longer than asked for, and one was not asked for.
        let text = |id: &str, text: String| vec![Some(id.to_owned()), Some(text)];
        table.add_texts(&[text("1", "é".repeat(TEXT_CHARS + 1)), text("2", String::new())]);
        assert!(table.ids_without_text().is_empty());
        assert_eq!(table.texts, [("1".to_owned(), "é".repeat(TEXT_CHARS))]);
        // Numbers that are none.
        table.add(&result(&[(9, f64::NAN, 1.0, 1.0), (10, 1.0, f64::INFINITY, 1.0)]), 400);
        table.add(&result(&[(11, 1.0, -1.0, 1.0)]), 500);
        assert_eq!((table.named.len(), table.other), (2, [0.0; 3]));
    }

    #[test]
    fn no_call_is_lost_when_statements_take_turns() {
        let mut table = TopStatements::default();
        table.add(&[], 0);
        let mut totals = vec![(0.0, 0.0); 3 * STATEMENTS_MAX];
        for read in 1..=30 {
            for (id, (calls, seconds)) in totals.iter_mut().enumerate() {
                *calls += 1.0;
                // Others are slow in each read.
                *seconds += if (id + 7 * read) % 11 == 0 { 64.0 } else { 0.25 };
            }
            let rows: Vec<_> = (totals.iter().enumerate())
                .map(|(id, (calls, seconds))| (id, *calls, *seconds, 0.0))
                .collect();
            let before: HashMap<_, _> = (table.named.iter())
                .map(|(key, named)| (key.clone(), (named.began, named.totals[0])))
                .collect();
            let other = table.other[0];
            table.add(&result(&rows), read as i64);
            assert!(table.named.len() <= STATEMENTS_MAX);
            // Every call of this read is in a series, and no counter fell.
            let mut calls = table.other[0] - other;
            for (key, named) in &table.named {
                let last = before.get(key).filter(|last| last.0 == named.began);
                let last = last.map_or(0.0, |last| last.1);
                assert!(named.totals[0] >= last, "{key:?}");
                calls += named.totals[0] - last;
            }
            assert_eq!(calls, totals.len() as f64, "read {read}");
        }
        assert!(table.other[0] > 0.0);
    }

    #[test]
    fn old_extensions_are_not_supported() {
        assert!(["1.8", "1.12", "2.0"].iter().all(|version| is_supported(version)));
        assert!(["1.7", "1", "x"].iter().all(|version| !is_supported(version)));
    }
}
