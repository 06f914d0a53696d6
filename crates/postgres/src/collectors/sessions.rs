//! Server, connections and locks.

use crate::collector::ViewCollector;
use crate::metric::{counter, gauge};

pub(super) const SERVER: ViewCollector = ViewCollector {
    name: "server",
    metrics: &[
        gauge(
            "pg_postmaster_start_time_seconds",
            "s",
            "extract(epoch FROM pg_postmaster_start_time())",
            "Unix time of the start of the server",
        ),
        gauge(
            "pg_settings_max_connections",
            "",
            "current_setting('max_connections')",
            "limit of connections (`max_connections`)",
        ),
        gauge(
            "pg_settings_superuser_reserved_connections",
            "",
            "current_setting('superuser_reserved_connections')",
            "connections that only superusers get",
        ),
        gauge(
            "pg_settings_reserved_connections",
            "",
            "current_setting('reserved_connections')",
            "connections that only members of `pg_use_reserved_connections` get",
        )
        .since(16),
    ],
    ..ViewCollector::DEFAULT
};

pub(super) const CONNECTIONS: ViewCollector = ViewCollector {
    name: "connections",
    labels: &[("datname", "d.datname"), ("state", "s.state")],
    from: "FROM pg_database d CROSS JOIN (VALUES ('active'), ('idle'), ('idle in transaction'), \
           ('idle in transaction (aborted)'), ('fastpath function call'), ('disabled'), \
           ('starting')) s(state) \
           LEFT JOIN (SELECT datid, state, count(*) AS n, \
           max(extract(epoch FROM clock_timestamp() - xact_start)) AS age \
           FROM pg_stat_get_activity(NULL) WHERE backend_type = 'client backend' \
           GROUP BY datid, state) a ON a.datid = d.oid AND a.state = s.state \
           WHERE d.datallowconn",
    metrics: &[
        gauge("pg_stat_activity_count", "", "coalesce(a.n, 0)", "connections by `state`"),
        gauge(
            "pg_stat_activity_max_tx_duration",
            "s",
            "coalesce(a.age, 0)",
            "age of the oldest transaction; `pg_transaction_age` has the distribution",
        ),
    ],
    needs_all_stats: true,
    ..ViewCollector::DEFAULT
};

pub(super) const LOCKS: ViewCollector = ViewCollector {
    name: "locks",
    labels: &[("datname", "d.datname"), ("mode", "m.mode")],
    from: "FROM pg_database d CROSS JOIN (VALUES ('accesssharelock'), ('rowsharelock'), \
           ('rowexclusivelock'), ('shareupdateexclusivelock'), ('sharelock'), \
           ('sharerowexclusivelock'), ('exclusivelock'), ('accessexclusivelock'), \
           ('sireadlock')) m(mode) \
           LEFT JOIN (SELECT database, lower(mode) AS mode, count(*) AS n, \
           count(*) FILTER (WHERE NOT granted) AS waiting FROM pg_locks \
           WHERE database IS NOT NULL AND pid IS DISTINCT FROM pg_backend_pid() GROUP BY 1, 2) l \
           ON l.database = d.oid AND l.mode = m.mode WHERE d.datallowconn",
    metrics: &[
        gauge("pg_locks_count", "", "coalesce(l.n, 0)", "locks, held or waited for, by `mode`"),
        gauge("pg_locks_waiting", "", "coalesce(l.waiting, 0)", "locks waited for, by `mode`"),
    ],
    ..ViewCollector::DEFAULT
};

pub(super) const LOCK_STATISTICS: ViewCollector = ViewCollector {
    name: "lock_statistics",
    labels: &[("locktype", "locktype")],
    from: "FROM pg_stat_lock",
    metrics: &[
        counter("pg_stat_lock_waits_total", "", "waits", "waits longer than `deadlock_timeout`")
            .since(19),
        counter(
            "pg_stat_lock_wait_time_seconds_total",
            "s",
            "wait_time / 1000.0",
            "time of these waits",
        )
        .since(19),
        counter(
            "pg_stat_lock_fastpath_exceeded_total",
            "",
            "fastpath_exceeded",
            "relation locks for which the session had no fast-path slot",
        )
        .since(19),
    ],
    ..ViewCollector::DEFAULT
};
