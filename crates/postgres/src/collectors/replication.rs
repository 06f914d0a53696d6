//! Archiver, replication, slots.

use crate::collector::ViewCollector;
use crate::metric::{counter, gauge};

pub(super) const ARCHIVER: ViewCollector = ViewCollector {
    name: "archiver",
    from: "FROM pg_stat_archiver",
    metrics: &[
        counter("pg_stat_archiver_archived_count", "", "archived_count", "WAL files archived"),
        counter(
            "pg_stat_archiver_failed_count",
            "",
            "failed_count",
            "failed attempts to archive a WAL file",
        ),
        gauge(
            "pg_stat_archiver_last_archive_age",
            "s",
            "extract(epoch FROM clock_timestamp() - last_archived_time)",
            "time since the last archived WAL file",
        ),
    ],
    ..ViewCollector::DEFAULT
};

pub(super) const RECOVERY: ViewCollector = ViewCollector {
    name: "recovery",
    metrics: &[
        gauge(
            "pg_replication_is_replica",
            "",
            "pg_is_in_recovery()::int",
            "1 on a standby, else 0",
        ),
        gauge(
            "pg_replication_lag_seconds",
            "s",
            "CASE WHEN NOT pg_is_in_recovery() \
             OR pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0 \
             ELSE greatest(0, extract(epoch FROM clock_timestamp() - \
             pg_last_xact_replay_timestamp())) END",
            "on a standby the age of the last replayed transaction, 0 if all received WAL is \
             replayed",
        ),
    ],
    ..ViewCollector::DEFAULT
};

pub(super) const REPLICATION: ViewCollector = ViewCollector {
    name: "replication",
    labels: &[
        ("application_name", "application_name"),
        ("client_addr", "host(client_addr)"),
        ("state", "state"),
    ],
    from: "FROM pg_stat_replication, LATERAL (SELECT CASE WHEN pg_is_in_recovery() \
           THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END AS lsn) c GROUP BY 1, 2, 3",
    metrics: &[
        gauge(
            "pg_stat_replication_pg_wal_lsn_diff",
            "B",
            "max(pg_wal_lsn_diff(c.lsn, replay_lsn))",
            "bytes of WAL that the standby has not replayed",
        ),
        gauge(
            "pg_stat_replication_write_lag_seconds",
            "s",
            "extract(epoch FROM max(write_lag))",
            "time until the standby wrote recent WAL; absent if idle",
        ),
        gauge(
            "pg_stat_replication_flush_lag_seconds",
            "s",
            "extract(epoch FROM max(flush_lag))",
            "time until the standby flushed recent WAL; absent if idle",
        ),
        gauge(
            "pg_stat_replication_replay_lag_seconds",
            "s",
            "extract(epoch FROM max(replay_lag))",
            "time until the standby replayed recent WAL; absent if idle",
        ),
    ],
    needs_all_stats: true,
    ..ViewCollector::DEFAULT
};

pub(super) const SLOTS: ViewCollector = ViewCollector {
    name: "replication_slots",
    labels: &[("slot_name", "slot_name"), ("slot_type", "slot_type")],
    from: "FROM pg_replication_slots, LATERAL (SELECT CASE WHEN pg_is_in_recovery() \
           THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END AS lsn) c",
    metrics: &[
        gauge(
            "pg_replication_slot_slot_is_active",
            "",
            "active::int",
            "1 if the slot is in use, else 0",
        ),
        gauge(
            "pg_replication_slot_retained_bytes",
            "B",
            "pg_wal_lsn_diff(c.lsn, restart_lsn)",
            "bytes of WAL that the slot retains",
        ),
        gauge(
            "pg_replication_slot_safe_wal_size_bytes",
            "B",
            "safe_wal_size",
            "bytes of WAL until the slot is lost; absent without `max_slot_wal_keep_size`",
        ),
    ],
    ..ViewCollector::DEFAULT
};
