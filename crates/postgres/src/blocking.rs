//! Sessions that wait for locks, and the tree of who blocks whom.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use hist::Histogram;

use crate::metric::{PostgresMetric, distribution, gauge, text};
use crate::report::PostgresRow;
use crate::session::ResultRow;

/// Lines of a tree; more sessions are counted.
const LINES_MAX: usize = 100;
/// Sessions whose blockers are read. Each read of blockers locks the server's lock manager.
const WAITERS_MAX: usize = 200;

pub(crate) const BLOCKED_SESSIONS: PostgresMetric =
    gauge("pg_blocked_sessions", "", "", "sessions that wait for a lock");
pub(crate) const LOCK_WAIT_AGE: PostgresMetric = distribution(
    "pg_lock_wait_age",
    "ns",
    "ages of the waits for locks in progress, sampled each second; in 13 since the start of the \
     statement",
);
pub(crate) const BLOCKING_TREE: PostgresMetric = text(
    "pg_blocking_tree",
    "sessions that wait for locks below those that block them, as text; absent if none waits",
);

/// Sessions that wait longest for a lock, and those that block them.
pub(crate) fn sql(version: u32) -> String {
    let began = if version < 14 { "a.query_start" } else { "l.waitstart" };
    let start = if version < 14 { "NULL::timestamptz" } else { "min(waitstart)" };
    format!(
        "WITH w AS MATERIALIZED (SELECT pid, pg_blocking_pids(pid) AS blockers \
         FROM (SELECT pid FROM pg_stat_get_activity(NULL) WHERE wait_event_type = 'Lock' \
         ORDER BY query_start LIMIT {WAITERS_MAX}) s), \
         l AS MATERIALIZED (SELECT pid, {start} AS waitstart, min(mode) AS mode \
         FROM pg_locks WHERE NOT granted GROUP BY pid) \
         SELECT a.pid, array_to_string(w.blockers, ','), a.usename, a.datname, a.state, \
         extract(epoch FROM clock_timestamp() - a.xact_start)::float8, \
         CASE WHEN w.pid IS NOT NULL THEN \
         extract(epoch FROM clock_timestamp() - {began})::float8 END, l.mode \
         FROM pg_stat_activity a LEFT JOIN w ON w.pid = a.pid LEFT JOIN l ON l.pid = a.pid \
         WHERE w.pid IS NOT NULL OR a.pid IN (SELECT unnest(blockers) FROM w)"
    )
}

/// Waits since the last row.
#[derive(Debug, Default)]
pub(crate) struct LockWaits {
    ages: Histogram,
    blocked: u64,
    tree: String,
}

impl LockWaits {
    /// Adds the result of [`sql`], read when that many sessions waited.
    pub(crate) fn add(&mut self, rows: &[ResultRow], waiting: u64) {
        let sessions: BTreeMap<u32, BlockedSession<'_>> =
            model::sort::map(rows.iter().filter_map(BlockedSession::read));
        let ages = sessions.values().filter_map(|session| session.wait_seconds);
        ages.for_each(|age| self.ages.record((age * 1e9).max(0.0)));
        let blocked = sessions.values().filter(|it| !it.blockers.is_empty()).count() as u64;
        self.blocked = blocked.max(waiting);
        self.tree = tree(&sessions);
    }

    /// No session waits.
    pub(crate) fn end(&mut self) {
        (self.blocked, self.tree) = (0, String::new());
    }

    /// The tree at the last sample.
    pub(crate) fn tree(&self) -> &str {
        &self.tree
    }

    pub(crate) fn rows(&self, rows: &mut Vec<PostgresRow>) {
        let blocked = self.blocked as f64;
        rows.push(PostgresRow::number(&BLOCKED_SESSIONS, Vec::new(), blocked));
        if !self.ages.is_empty() {
            let ages = self.ages.clone();
            rows.push(PostgresRow::distribution(&LOCK_WAIT_AGE, Vec::new(), ages));
        }
        if !self.tree.is_empty() {
            rows.push(PostgresRow::text(&BLOCKING_TREE, Vec::new(), self.tree.clone()));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ages = Histogram::default();
    }
}

/// A session that waits or blocks.
struct BlockedSession<'a> {
    blockers: Vec<u32>,
    user: &'a str,
    database: &'a str,
    state: &'a str,
    transaction_seconds: Option<f64>,
    wait_seconds: Option<f64>,
    mode: &'a str,
}

impl BlockedSession<'_> {
    fn read(row: &ResultRow) -> Option<(u32, BlockedSession<'_>)> {
        let [pid, blockers, user, database, state, transaction, wait, mode] = &row[..] else {
            return None;
        };
        let seconds = |text: &Option<String>| text.as_deref()?.parse::<f64>().ok();
        let session = BlockedSession {
            blockers: text_of(blockers).split(',').filter_map(|pid| pid.parse().ok()).collect(),
            user: text_of(user),
            database: text_of(database),
            state: text_of(state),
            transaction_seconds: seconds(transaction),
            wait_seconds: seconds(wait),
            mode: text_of(mode),
        };
        Some((text_of(pid).parse().ok()?, session))
    }
}

fn text_of(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or("")
}

/// A line per session; those that wait are below the first session that blocks them.
fn tree(sessions: &BTreeMap<u32, BlockedSession<'_>>) -> String {
    let mut waiters: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (waiter, session) in sessions {
        for blocker in &session.blockers {
            waiters.entry(*blocker).or_default().push(*waiter);
        }
    }
    let (printed, lines) = (BTreeSet::new(), String::new());
    let mut printer = TreePrinter { sessions, waiters, printed, lines };
    // Blockers that are no sessions are prepared transactions: their process is 0.
    let blockers: Vec<u32> = printer.waiters.keys().copied().collect();
    let is_root = |pid: &u32| sessions.get(pid).is_none_or(|it| it.blockers.is_empty());
    blockers.iter().filter(|pid| is_root(pid)).for_each(|pid| printer.print(*pid));
    // A cycle, until the server detects the deadlock.
    sessions.keys().for_each(|pid| printer.print(*pid));
    let absent = blockers.iter().filter(|pid| !sessions.contains_key(pid)).count();
    let hidden = sessions.len() + absent - printer.printed.len();
    if hidden > 0 {
        let _ = writeln!(printer.lines, "{hidden} more");
    }
    printer.lines.trim_end().to_owned()
}

struct TreePrinter<'a> {
    sessions: &'a BTreeMap<u32, BlockedSession<'a>>,
    /// Sessions that wait for a blocker.
    waiters: BTreeMap<u32, Vec<u32>>,
    printed: BTreeSet<u32>,
    lines: String,
}

impl TreePrinter<'_> {
    /// Prints a session and those below it, without recursion: a chain may have any length.
    fn print(&mut self, root: u32) {
        let mut next = vec![(root, 0)];
        while let Some((pid, depth)) = next.pop() {
            if self.printed.len() >= LINES_MAX {
                return;
            }
            if !self.printed.insert(pid) {
                continue;
            }
            self.print_line(pid, depth);
            let waiters = self.waiters.get(&pid).into_iter().flatten();
            next.extend(waiters.rev().map(|waiter| (*waiter, depth + 1)));
        }
    }

    fn print_line(&mut self, pid: u32, depth: usize) {
        let lines = &mut self.lines;
        let _ = write!(lines, "{:1$}", "", depth.min(20) * 2);
        let Some(session) = self.sessions.get(&pid) else {
            let _ = writeln!(lines, "prepared transaction");
            return;
        };
        let BlockedSession { user, database, state, mode, .. } = session;
        let _ = write!(lines, "{pid} {user}@{database} {state}");
        if let Some(seconds) = session.transaction_seconds {
            let _ = write!(lines, ", transaction {seconds:.1} s");
        }
        if let Some(seconds) = session.wait_seconds {
            let mode = if mode.is_empty() { "a lock" } else { mode };
            let _ = write!(lines, ", waits {seconds:.1} s for {mode}");
        }
        lines.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::report::tests::row_lines;

    /// Rows: process, blockers, age of the transaction, age of the wait.
    #[track_caller]
    fn check(rows: &[(u32, &str, f64, Option<f64>)], expected: Expect) {
        let rows: Vec<ResultRow> = (rows.iter())
            .map(|(pid, blockers, transaction, wait)| {
                let text = |text: &str| Some(text.to_owned());
                let mode = wait.and(text("ShareLock"));
                let state = if wait.is_some() { "active" } else { "idle in transaction" };
                vec![
                    text(&pid.to_string()),
                    (!blockers.is_empty()).then(|| (*blockers).to_owned()),
                    text("ann"),
                    text("shop"),
                    text(state),
                    text(&transaction.to_string()),
                    wait.map(|wait| wait.to_string()),
                    mode,
                ]
            })
            .collect();
        let mut waits = LockWaits::default();
        waits.add(&rows, 0);
        let mut written = Vec::new();
        waits.rows(&mut written);
        expected.assert_eq(&row_lines(&written));
    }

    #[test]
    fn waiters_are_below_their_blockers() {
        check(&[], expect![["pg_blocked_sessions 0\n"]]);
        check(
            &[
                (7, "5,6", 1.0, Some(0.25)),
                (5, "", 30.0, None),
                (6, "5", 3.0, Some(2.5)),
                (8, "7", 0.5, Some(0.125)),
            ],
            expect![[r#"
                pg_blocked_sessions 3
                pg_lock_wait_age 3 values, max 2500000000
                pg_blocking_tree 5 ann@shop idle in transaction, transaction 30.0 s
                  6 ann@shop active, transaction 3.0 s, waits 2.5 s for ShareLock
                    7 ann@shop active, transaction 1.0 s, waits 0.2 s for ShareLock
                      8 ann@shop active, transaction 0.5 s, waits 0.1 s for ShareLock
            "#]],
        );
    }

    #[test]
    fn a_long_chain_is_cut() {
        const SESSIONS: usize = 20_000;
        let text = |text: String| Some(text);
        let rows: Vec<ResultRow> = (1..=SESSIONS)
            .map(|pid| {
                let mut row = vec![text(pid.to_string()), text((pid - 1).to_string())];
                row.resize(8, None);
                row
            })
            .collect();
        let mut waits = LockWaits::default();
        waits.add(&rows, 30_000);
        assert_eq!(waits.blocked, 30_000);
        assert_eq!(waits.tree().lines().count(), LINES_MAX + 1);
        let hidden = SESSIONS + 1 - LINES_MAX;
        assert_eq!(waits.tree().lines().last(), Some(&*format!("{hidden} more")));
    }

    #[test]
    fn cycles_and_prepared_transactions_are_printed() {
        check(
            &[(5, "6", 1.0, Some(1.0)), (6, "5", 1.0, Some(1.0)), (9, "0", 1.0, Some(1.0))],
            expect![[r#"
                pg_blocked_sessions 3
                pg_lock_wait_age 3 values, max 1000000000
                pg_blocking_tree prepared transaction
                  9 ann@shop active, transaction 1.0 s, waits 1.0 s for ShareLock
                5 ann@shop active, transaction 1.0 s, waits 1.0 s for ShareLock
                  6 ann@shop active, transaction 1.0 s, waits 1.0 s for ShareLock
            "#]],
        );
    }
}
