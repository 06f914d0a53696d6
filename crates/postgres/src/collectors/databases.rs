//! Databases: transactions, rows, cache, sizes, wraparound.

use crate::collector::ViewCollector;
use crate::metric::{PostgresMetric, counter, gauge};

pub(super) const DATABASE: ViewCollector = ViewCollector {
    name: "database",
    labels: &[("datname", "datname")],
    from: "FROM pg_stat_database WHERE datname IS NOT NULL",
    metrics: DATABASE_METRICS,
    ..ViewCollector::DEFAULT
};

const DATABASE_METRICS: &[PostgresMetric] = &[
    gauge("pg_stat_database_numbackends", "", "numbackends", "connected backends"),
    counter("pg_stat_database_xact_commit", "", "xact_commit", "committed transactions"),
    counter("pg_stat_database_xact_rollback", "", "xact_rollback", "rolled back transactions"),
    counter(
        "pg_stat_database_blks_read",
        "",
        "blks_read",
        "blocks read from the file system: not in the buffer cache",
    ),
    counter("pg_stat_database_blks_hit", "", "blks_hit", "blocks found in the buffer cache"),
    counter("pg_stat_database_tup_returned", "", "tup_returned", "rows read by scans"),
    counter("pg_stat_database_tup_fetched", "", "tup_fetched", "rows fetched by index scans"),
    counter("pg_stat_database_tup_inserted", "", "tup_inserted", "rows inserted"),
    counter("pg_stat_database_tup_updated", "", "tup_updated", "rows updated"),
    counter("pg_stat_database_tup_deleted", "", "tup_deleted", "rows deleted"),
    counter(
        "pg_stat_database_conflicts",
        "",
        "conflicts",
        "queries cancelled on a standby by recovery",
    ),
    counter("pg_stat_database_temp_files", "", "temp_files", "temporary files of queries"),
    counter("pg_stat_database_temp_bytes", "B", "temp_bytes", "bytes of temporary files"),
    counter("pg_stat_database_deadlocks", "", "deadlocks", "deadlocks"),
    counter(
        "pg_stat_database_checksum_failures",
        "",
        "checksum_failures",
        "damaged pages found by checksums; absent without checksums",
    ),
    counter(
        "pg_stat_database_blk_read_time_seconds_total",
        "s",
        "blk_read_time / 1000",
        "time of block reads; 0 without `track_io_timing`",
    ),
    counter(
        "pg_stat_database_blk_write_time_seconds_total",
        "s",
        "blk_write_time / 1000",
        "time of block writes; 0 without `track_io_timing`",
    ),
    counter(
        "pg_stat_database_session_time_seconds_total",
        "s",
        "session_time / 1000",
        "time of sessions",
    )
    .since(14),
    counter(
        "pg_stat_database_active_time_seconds_total",
        "s",
        "active_time / 1000",
        "time of statements",
    )
    .since(14),
    counter(
        "pg_stat_database_idle_in_transaction_time_seconds_total",
        "s",
        "idle_in_transaction_time / 1000",
        "time of sessions that were idle in a transaction",
    )
    .since(14),
    counter("pg_stat_database_sessions_total", "", "sessions", "sessions").since(14),
    counter(
        "pg_stat_database_sessions_abandoned_total",
        "",
        "sessions_abandoned",
        "sessions whose connection was lost",
    )
    .since(14),
    counter(
        "pg_stat_database_sessions_fatal_total",
        "",
        "sessions_fatal",
        "sessions ended by a fatal error",
    )
    .since(14),
    counter(
        "pg_stat_database_sessions_killed_total",
        "",
        "sessions_killed",
        "sessions ended by an operator",
    )
    .since(14),
    counter(
        "pg_stat_database_parallel_workers_to_launch_total",
        "",
        "parallel_workers_to_launch",
        "parallel workers planned",
    )
    .since(18),
    counter(
        "pg_stat_database_parallel_workers_launched_total",
        "",
        "parallel_workers_launched",
        "parallel workers launched",
    )
    .since(18),
];

pub(super) const WRAPAROUND: ViewCollector = ViewCollector {
    name: "wraparound",
    labels: &[("datname", "datname")],
    from: "FROM pg_database WHERE datallowconn",
    metrics: &[
        gauge(
            "pg_database_wraparound_age_datfrozenxid",
            "",
            "age(datfrozenxid)",
            "age of the oldest unfrozen transaction id; writes stop near 2^31",
        ),
        gauge(
            "pg_database_wraparound_age_datminmxid",
            "",
            "mxid_age(datminmxid)",
            "age of the oldest multixact id; writes stop near 2^31",
        ),
    ],
    ..ViewCollector::DEFAULT
};

pub(super) const DATABASE_SIZE: ViewCollector = ViewCollector {
    name: "database_size",
    labels: &[("datname", "datname")],
    from: "FROM pg_database WHERE datallowconn",
    metrics: &[gauge(
        "pg_database_size_bytes",
        "B",
        "pg_database_size(oid)",
        "size of the database on disk",
    )],
    is_slow: true,
    needs_all_stats: true,
};
