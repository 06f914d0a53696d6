//! Tables of the connected database: scans, rows, vacuum, sizes.

use crate::collector::ViewCollector;
use crate::metric::{PostgresMetric, counter, gauge};

pub(super) const VACUUM: ViewCollector = ViewCollector {
    name: "vacuum",
    from: "FROM pg_stat_progress_vacuum",
    metrics: &[
        gauge("pg_stat_progress_vacuum_running", "", "count(*)", "vacuums in progress"),
        gauge(
            "pg_stat_progress_vacuum_heap_blks_remaining",
            "",
            "coalesce(sum(heap_blks_total - heap_blks_scanned), 0)",
            "heap blocks that they have not scanned",
        ),
    ],
    needs_all_stats: true,
    ..ViewCollector::DEFAULT
};

pub(super) const TABLES: ViewCollector = ViewCollector {
    name: "tables",
    labels: TABLE_LABELS,
    from: "FROM (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
           WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', \
           'information_schema') AND n.nspname !~ '^pg_' \
           ORDER BY c.relpages DESC, c.oid LIMIT 100) o \
           JOIN pg_stat_user_tables t ON t.relid = o.oid \
           LEFT JOIN pg_statio_user_tables b ON b.relid = o.oid",
    metrics: TABLE_METRICS,
    ..ViewCollector::DEFAULT
};

const TABLE_LABELS: &[(&str, &str)] =
    &[("datname", "current_database()"), ("schemaname", "t.schemaname"), ("relname", "t.relname")];

const TABLE_METRICS: &[PostgresMetric] = &[
    counter("pg_stat_user_tables_seq_scan", "", "t.seq_scan", "sequential scans"),
    counter("pg_stat_user_tables_seq_tup_read", "", "t.seq_tup_read", "rows read by them"),
    counter("pg_stat_user_tables_idx_scan", "", "t.idx_scan", "index scans"),
    counter("pg_stat_user_tables_idx_tup_fetch", "", "t.idx_tup_fetch", "rows fetched by them"),
    counter("pg_stat_user_tables_n_tup_ins", "", "t.n_tup_ins", "rows inserted"),
    counter("pg_stat_user_tables_n_tup_upd", "", "t.n_tup_upd", "rows updated"),
    counter("pg_stat_user_tables_n_tup_del", "", "t.n_tup_del", "rows deleted"),
    counter(
        "pg_stat_user_tables_n_tup_hot_upd",
        "",
        "t.n_tup_hot_upd",
        "rows updated without a new index entry",
    ),
    gauge("pg_stat_user_tables_n_live_tup", "", "t.n_live_tup", "live rows, an estimate"),
    gauge("pg_stat_user_tables_n_dead_tup", "", "t.n_dead_tup", "dead rows, an estimate"),
    gauge(
        "pg_stat_user_tables_n_mod_since_analyze",
        "",
        "t.n_mod_since_analyze",
        "rows changed since the last analyze",
    ),
    gauge(
        "pg_stat_user_tables_last_vacuum",
        "s",
        "extract(epoch FROM t.last_vacuum)",
        "Unix time of the last vacuum; absent without one",
    ),
    gauge(
        "pg_stat_user_tables_last_autovacuum",
        "s",
        "extract(epoch FROM t.last_autovacuum)",
        "Unix time of the last automatic vacuum; absent without one",
    ),
    gauge(
        "pg_stat_user_tables_last_analyze",
        "s",
        "extract(epoch FROM t.last_analyze)",
        "Unix time of the last analyze; absent without one",
    ),
    gauge(
        "pg_stat_user_tables_last_autoanalyze",
        "s",
        "extract(epoch FROM t.last_autoanalyze)",
        "Unix time of the last automatic analyze; absent without one",
    ),
    counter("pg_stat_user_tables_vacuum_count", "", "t.vacuum_count", "vacuums"),
    counter("pg_stat_user_tables_autovacuum_count", "", "t.autovacuum_count", "automatic vacuums"),
    counter("pg_stat_user_tables_analyze_count", "", "t.analyze_count", "analyzes"),
    counter(
        "pg_stat_user_tables_autoanalyze_count",
        "",
        "t.autoanalyze_count",
        "automatic analyzes",
    ),
    counter(
        "pg_statio_user_tables_heap_blocks_read",
        "",
        "b.heap_blks_read",
        "heap blocks read from the file system",
    ),
    counter(
        "pg_statio_user_tables_heap_blocks_hit",
        "",
        "b.heap_blks_hit",
        "heap blocks found in the buffer cache",
    ),
    counter(
        "pg_statio_user_tables_idx_blocks_read",
        "",
        "b.idx_blks_read",
        "index blocks read from the file system",
    ),
    counter(
        "pg_statio_user_tables_idx_blocks_hit",
        "",
        "b.idx_blks_hit",
        "index blocks found in the buffer cache",
    ),
];

/// Tables that are locked so that the size would wait are left out, as those whose indexes are.
pub(super) const TABLE_SIZE: ViewCollector = ViewCollector {
    name: "table_size",
    labels: TABLE_LABELS,
    from: "FROM (SELECT c.oid, n.nspname AS schemaname, c.relname FROM pg_class c \
           JOIN pg_namespace n ON n.oid = c.relnamespace \
           WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', \
           'information_schema') AND n.nspname !~ '^pg_' AND NOT EXISTS (SELECT 1 FROM pg_locks l \
           WHERE l.mode = 'AccessExclusiveLock' AND l.relation IN (SELECT c.oid \
           UNION ALL SELECT c.reltoastrelid \
           UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = c.oid)) \
           ORDER BY c.relpages DESC, c.oid LIMIT 100) t",
    metrics: &[gauge(
        "pg_stat_user_tables_size_bytes",
        "B",
        "pg_total_relation_size(t.oid)",
        "size of the table with indexes and TOAST on disk",
    )],
    is_slow: true,
    ..ViewCollector::DEFAULT
};
