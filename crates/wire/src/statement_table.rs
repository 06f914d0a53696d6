//! Histograms per statement and outcome, for a bounded number of statements.
//!
//! Times are in nanoseconds, sizes in bytes. When the table is full, the half of the statements
//! with the least total time is merged into `other`: no operation is lost, only its statement. A
//! merged statement that comes back starts again, so that its count may be too low;
//! [`StatementTable::merged_statements`] tells how many were merged. The texts of all tables have a
//! limit of their own: beyond it, operations of statements that are not in the table are in
//! `other`.

use std::collections::HashMap;

use hist::Histogram;
use protocol::observer::{Operation, OperationOutcome};

use crate::operation_totals::OperationTotals;
use crate::statement_texts::StatementTexts;
use crate::text_hash::BuildTextHasher;
use crate::timeout_spikes::TimeoutSpikes;
use crate::traced_operation::TracedOperations;

/// Statements of one service.
pub struct StatementTable {
    limit: usize,
    entries: HashMap<Box<str>, StatementStatistics, BuildTextHasher>,
    other: StatementStatistics,
    merged_statements: u64,
    protocol: &'static str,
    /// Memory of the texts of all entries, as reserved in [`StatementTexts`].
    text_bytes: usize,
    /// Key of the current operation: peer, verb and fingerprint, with a zero byte between them.
    key: String,
}

/// Operations of one statement.
#[derive(Clone, Debug, Default)]
pub struct StatementStatistics {
    /// Kind of request; empty for the row of all other statements.
    pub verb: Box<str>,
    /// The statement without literal values.
    pub statement: Box<str>,
    /// Address or network of the clients; empty if clients are not told apart.
    pub peer: Box<str>,
    /// Successful operations.
    pub succeeded: OperationHistograms,
    /// Failed operations by class of error, as counted in the totals of the service.
    pub failed: Vec<(Box<str>, OperationHistograms)>,
    /// Operations that wait by design, with any outcome.
    pub waits: OperationHistograms,
    /// Time of all operations but waits, from first byte to last byte, in nanoseconds.
    pub total_time_ns: u128,
    /// Whether they end at a time-out; without waits.
    pub timeouts: TimeoutSpikes,
    /// Whether the user counts the operations as waits.
    pub is_wait: bool,
}

/// Histograms of operations.
#[derive(Clone, Debug, Default)]
pub struct OperationHistograms {
    /// First byte of the request to last byte of the response, in nanoseconds.
    pub last_byte: Histogram,
    /// First byte of the request to first byte of the response, in nanoseconds.
    pub first_byte: Histogram,
    /// Last byte of the request to first byte of the response, in nanoseconds; 0 if the server
    /// responds before it has the whole request.
    pub server: Histogram,
    /// Size of the request in bytes.
    pub request_bytes: Histogram,
    /// Size of the response in bytes.
    pub response_bytes: Histogram,
    /// Rows of the response, of those operations that tell it.
    pub rows: Histogram,
    /// Some of the operations whose client sent `traceparent`.
    pub traced: TracedOperations,
}

impl OperationHistograms {
    fn record(&mut self, operation: &Operation<'_>) {
        let first_byte = operation.response_start - operation.request_start;
        let server = operation.response_start.saturating_sub(operation.request_end);
        self.last_byte.record((operation.response_end - operation.request_start) as f64);
        self.first_byte.record(first_byte as f64);
        self.server.record(server as f64);
        self.request_bytes.record(operation.request_bytes as f64);
        self.response_bytes.record(operation.response_bytes as f64);
        if let Some(rows) = operation.rows {
            self.rows.record(rows as f64);
        }
        self.traced.record(operation);
    }

    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &OperationHistograms) {
        let pairs = [
            (&mut self.last_byte, &other.last_byte),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.server, &other.server),
            (&mut self.request_bytes, &other.request_bytes),
            (&mut self.response_bytes, &other.response_bytes),
            (&mut self.rows, &other.rows),
        ];
        for (into, from) in pairs {
            merge_histogram(into, from);
        }
        self.traced.merge(&other.traced);
    }
}

/// Adds a histogram of the same scheme.
pub(crate) fn merge_histogram(into: &mut Histogram, from: &Histogram) {
    let merged = into.merge(from);
    assert!(merged.is_ok(), "BUG: histograms of one table have one scheme: {merged:?}");
}

impl StatementStatistics {
    /// Records an operation. Returns whether it is a wait.
    fn record(&mut self, operation: &Operation<'_>) -> bool {
        if operation.is_wait || self.is_wait {
            self.waits.record(operation);
            return true;
        }
        let time_ns = operation.response_end - operation.request_start;
        self.total_time_ns += u128::from(time_ns);
        self.timeouts.record(time_ns);
        match operation.outcome {
            OperationOutcome::Ok => self.succeeded.record(operation),
            OperationOutcome::Error(class) => self.failed_class(class).record(operation),
        }
        false
    }

    fn failed_class(&mut self, class: &str) -> &mut OperationHistograms {
        let found = self.failed.iter().position(|(found, _)| **found == *class);
        let at = found.unwrap_or_else(|| {
            self.failed.push((class.into(), OperationHistograms::default()));
            self.failed.len() - 1
        });
        &mut self.failed[at].1
    }

    /// Number of operations but waits.
    pub fn operations(&self) -> u64 {
        self.succeeded.last_byte.count() + self.errors()
    }

    /// Number of failed operations.
    pub fn errors(&self) -> u64 {
        self.failed.iter().map(|(_, histograms)| histograms.last_byte.count()).sum()
    }

    /// Histograms of all operations but waits.
    pub fn work(&self) -> OperationHistograms {
        let mut all = self.succeeded.clone();
        self.failed.iter().for_each(|(_, failed)| all.merge(failed));
        all
    }

    pub(crate) fn rename_error_classes(&mut self, totals: &OperationTotals) {
        let is_same = |class: &str| totals.counted_class(class) == class;
        if self.failed.iter().all(|(class, _)| is_same(class)) {
            return;
        }
        for (class, histograms) in std::mem::take(&mut self.failed) {
            self.failed_class(totals.counted_class(&class)).merge(&histograms);
        }
    }

    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &StatementStatistics) {
        self.succeeded.merge(&other.succeeded);
        self.waits.merge(&other.waits);
        self.total_time_ns += other.total_time_ns;
        self.timeouts.merge(&other.timeouts);
        for (class, failed) in &other.failed {
            self.failed_class(class).merge(failed);
        }
    }
}

impl StatementTable {
    pub(crate) fn new(limit: usize, protocol: &'static str) -> StatementTable {
        StatementTable {
            limit: limit.max(1),
            entries: HashMap::default(),
            other: StatementStatistics::default(),
            merged_statements: 0,
            protocol,
            text_bytes: 0,
            key: String::new(),
        }
    }

    /// Records an operation whose times are in order. Returns whether it is a wait. The classes of
    /// errors are those of [`OperationTotals`](crate::OperationTotals), which are bounded.
    pub(crate) fn record(
        &mut self,
        operation: &Operation<'_>,
        peer: &str,
        texts: &mut StatementTexts,
    ) -> bool {
        self.key.clear();
        for word in [peer, operation.verb] {
            self.key.push_str(word);
            self.key.push('\0');
        }
        let statement_start = self.key.len();
        let (syntax, statement) = (operation.syntax, operation.statement);
        texts.normalizer.append(syntax, statement, self.protocol, &mut self.key);
        if let Some(entry) = self.entries.get_mut(self.key.as_str()) {
            return entry.record(operation);
        }
        let is_wait = texts.waits.contains(operation.verb, &self.key[statement_start..]);
        if self.entries.len() >= self.limit {
            self.merge_least(texts);
        }
        // The key has the words once more.
        let bytes = 2 * self.key.len();
        if !texts.reserve(bytes) {
            self.merged_statements += 1;
            return self
                .other
                .record(&Operation { is_wait: is_wait || operation.is_wait, ..operation.clone() });
        }
        self.text_bytes += bytes;
        let mut entry = StatementStatistics {
            verb: operation.verb.into(),
            statement: self.key[statement_start..].into(),
            peer: peer.into(),
            is_wait,
            ..StatementStatistics::default()
        };
        let is_wait = entry.record(operation);
        self.entries.insert(self.key.as_str().into(), entry);
        is_wait
    }

    /// Removes all statements and their operations; the second value has those of merged ones.
    pub(crate) fn take(
        &mut self,
        texts: &mut StatementTexts,
    ) -> (Vec<StatementStatistics>, StatementStatistics) {
        texts.release(std::mem::take(&mut self.text_bytes));
        (self.entries.drain().map(|(_, entry)| entry).collect(), std::mem::take(&mut self.other))
    }

    /// Merges the half of the statements with the least total time into `other`.
    fn merge_least(&mut self, texts: &mut StatementTexts) {
        let time_of =
            |entry: &StatementStatistics| (entry.total_time_ns, entry.waits.last_byte.count());
        let mut times: Vec<_> = self.entries.values().map(time_of).collect();
        times.sort_unstable();
        let middle = times[times.len() / 2];
        let mut remaining = times.len() / 2 + 1;
        let (other, merged) = (&mut self.other, &mut self.merged_statements);
        let mut released = 0;
        self.entries.retain(|key, entry| {
            if time_of(entry) > middle || remaining == 0 {
                return true;
            }
            remaining -= 1;
            *merged += 1;
            released += 2 * key.len();
            other.merge(entry);
            false
        });
        self.text_bytes -= released;
        texts.release(released);
    }

    /// All statements, with the most total time first.
    pub fn statements(&self) -> Vec<&StatementStatistics> {
        let mut statements: Vec<_> = self.entries.values().collect();
        statements.sort_by(|a, b| {
            let order = |entry: &&StatementStatistics| (entry.total_time_ns, entry.waits_count());
            let names = (&a.verb, &a.statement).cmp(&(&b.verb, &b.statement));
            order(b).cmp(&order(a)).then(names)
        });
        statements
    }

    /// Operations of statements that were merged.
    pub fn other(&self) -> &StatementStatistics {
        &self.other
    }

    /// Maximum number of statements.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How often a statement was merged into `other`, or an operation was recorded there because
    /// the texts of all statements have reached their limit.
    pub fn merged_statements(&self) -> u64 {
        self.merged_statements
    }

    /// All operations of the service.
    pub fn total(&self) -> StatementStatistics {
        let mut total = self.other.clone();
        self.entries.values().for_each(|entry| total.merge(entry));
        total
    }
}

impl StatementStatistics {
    fn waits_count(&self) -> u64 {
        self.waits.last_byte.count()
    }
}

#[cfg(test)]
mod tests {
    use protocol::fingerprint::RouteTemplates;
    use protocol::observer::StatementSyntax;

    use super::*;
    use crate::wait_rules::WaitRules;

    fn operation<'a>(
        statement: &'a str,
        time: u64,
        outcome: OperationOutcome<'a>,
    ) -> Operation<'a> {
        Operation {
            verb: "GET",
            statement,
            syntax: StatementSyntax::Name,
            is_wait: false,
            outcome,
            request_start: 1_000,
            request_end: 1_010,
            response_start: 1_020,
            response_end: 1_000 + time,
            request_bytes: 7,
            response_bytes: 90,
            rows: Some(3),
            traceparent: None,
        }
    }

    /// A table and its texts.
    struct TestTable {
        table: StatementTable,
        texts: StatementTexts,
    }

    fn table(limit: usize) -> TestTable {
        let texts = StatementTexts::new(RouteTemplates::default(), 1 << 20, 1 << 20);
        TestTable { table: StatementTable::new(limit, "test"), texts }
    }

    #[track_caller]
    fn record(test: &mut TestTable, operation: &Operation<'_>) {
        test.table.record(operation, "", &mut test.texts);
        let entries = test.table.entries.keys();
        let bytes: usize = entries.map(|key| 2 * key.len()).sum();
        assert_eq!((test.table.text_bytes, test.texts.bytes()), (bytes, bytes));
    }

    fn counts(test: &TestTable) -> Vec<(String, u64)> {
        let statements = test.table.statements();
        statements.iter().map(|entry| (entry.statement.to_string(), entry.operations())).collect()
    }

    #[test]
    fn a_full_table_keeps_the_statements_with_the_most_time_and_every_operation() {
        let mut table = table(4);
        for (statement, time) in [("a", 900), ("b", 30), ("c", 800), ("d", 20), ("e", 50)] {
            record(&mut table, &operation(statement, time, OperationOutcome::Ok));
        }
        assert_eq!(counts(&table), [("a".into(), 1), ("e".into(), 1)]);
        assert_eq!(table.table.other().operations(), 3);
        assert_eq!(table.table.merged_statements(), 3);
        assert_eq!(table.table.total().operations(), 5);
    }

    #[test]
    fn an_interval_has_each_operation_once() {
        let mut table = table(2);
        for statement in ["a", "b", "c"] {
            record(&mut table, &operation(statement, 30, OperationOutcome::Ok));
        }
        let (statements, other) = table.table.take(&mut table.texts);
        let taken: u64 = statements.iter().map(StatementStatistics::operations).sum();
        assert_eq!((taken + other.operations(), statements.len()), (3, 1));
        record(&mut table, &operation("a", 30, OperationOutcome::Ok));
        assert_eq!(counts(&table), [("a".into(), 1)]);
        assert_eq!(table.table.total().operations(), 1);
    }

    #[test]
    fn one_statement_per_full_table_is_still_bounded() {
        let mut table = table(1);
        for statement in ["a", "b", "c"] {
            record(&mut table, &operation(statement, 30, OperationOutcome::Ok));
        }
        assert_eq!(counts(&table), [("c".into(), 1)]);
        assert_eq!(table.table.total().operations(), 3);
    }

    #[test]
    fn texts_beyond_their_limit_are_other_statements() {
        let mut test = table(100);
        test.texts = StatementTexts::new(RouteTemplates::default(), 40, 1 << 20);
        for statement in ["a", "a longer one", "another one", "a", "b"] {
            record(&mut test, &operation(statement, 30, OperationOutcome::Ok));
        }
        assert_eq!(counts(&test), [("a".into(), 2), ("b".into(), 1)]);
        assert_eq!((test.table.other().operations(), test.table.merged_statements()), (2, 2));
        assert_eq!(test.table.take(&mut test.texts).0.len(), 2);
        assert_eq!(test.texts.bytes(), 0);
    }

    #[test]
    fn peers_are_apart() {
        let mut test = table(100);
        for peer in ["10.0.0.1", "10.0.0.2", "10.0.0.1"] {
            let TestTable { table, texts } = &mut test;
            table.record(&operation("a", 30, OperationOutcome::Ok), peer, texts);
        }
        let statements = test.table.statements();
        let found = statements.iter().map(|entry| (&*entry.peer, entry.operations()));
        assert_eq!(found.collect::<Vec<_>>(), [("10.0.0.1", 2), ("10.0.0.2", 1)]);
    }

    #[test]
    fn errors_are_apart_by_class() {
        let mut table = table(4);
        record(&mut table, &operation("a", 40, OperationOutcome::Ok));
        for class in ["x", "y", "x"] {
            record(&mut table, &operation("a", 40, OperationOutcome::Error(class)));
        }
        let statement = table.table.statements()[0].clone();
        assert_eq!((statement.operations(), statement.errors()), (4, 3));
        let classes = statement.failed.iter().map(|(class, of)| (&**class, of.last_byte.count()));
        assert_eq!(classes.collect::<Vec<_>>(), [("x", 2), ("y", 1)]);
        assert_eq!(statement.work().last_byte.count(), 4);
    }

    #[test]
    fn statements_that_the_user_counts_as_waits_are_not_work() {
        let mut test = table(1);
        test.texts.waits = WaitRules::new(vec!["GET /poll".to_owned()]).unwrap();
        let TestTable { table, texts } = &mut test;
        for _ in 0..6 {
            for (statement, is_wait) in [("/poll", true), ("/slow", false)] {
                let operation = operation(statement, 5_001_000_000, OperationOutcome::Ok);
                assert_eq!(table.record(&operation, "", texts), is_wait);
            }
        }
        let total = table.total();
        assert_eq!((total.operations(), total.waits_count()), (6, 6));
        let proposal = total.timeouts.proposal().map(|of| (of.timeout.as_secs(), of.operations));
        assert_eq!(proposal, Some((5, 6)), "the one that is not accepted");
        // Beyond the limit of texts, too.
        let mut texts = StatementTexts::new(RouteTemplates::default(), 0, 1 << 20);
        texts.waits.clone_from(&test.texts.waits);
        let mut table = StatementTable::new(1, "test");
        assert!(table.record(&operation("/poll", 30, OperationOutcome::Ok), "", &mut texts));
        assert_eq!(table.other().waits_count(), 1);
    }

    #[test]
    fn waits_are_not_work() {
        let mut table = table(4);
        record(&mut table, &operation("a", 40, OperationOutcome::Ok));
        record(
            &mut table,
            &Operation { is_wait: true, ..operation("a", 9_000, OperationOutcome::Ok) },
        );
        let statement = table.table.statements()[0];
        assert_eq!((statement.operations(), statement.waits_count()), (1, 1));
        assert_eq!(statement.total_time_ns, 40);
        let times = &statement.succeeded;
        let exact = |histogram: &Histogram| histogram.max().map(|max| max.estimate);
        assert_eq!(exact(&times.last_byte), Some(40.0));
        assert_eq!(exact(&times.first_byte), Some(20.0));
        assert_eq!(exact(&times.server), Some(10.0));
        assert_eq!(exact(&times.rows), Some(3.0));
    }
}
