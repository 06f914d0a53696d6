//! The table of all collectors.
//!
//! Sources of the SQL: the chapters *The Cumulative Statistics System* and *System Views* of
//! PostgreSQL's manual, versions 13 to 19; names as in postgres_exporter.

mod databases;
mod replication;
mod sessions;
mod tables;
mod writes;

use crate::collector::ViewCollector;

/// All collectors, in the order in which they are read.
pub(crate) const COLLECTORS: &[ViewCollector] = &[
    sessions::SERVER,
    databases::DATABASE,
    sessions::CONNECTIONS,
    sessions::LOCKS,
    sessions::LOCK_STATISTICS,
    writes::BACKGROUND_WRITER,
    writes::CHECKPOINTER,
    writes::WAL,
    writes::IO,
    replication::ARCHIVER,
    replication::RECOVERY,
    replication::REPLICATION,
    replication::SLOTS,
    tables::VACUUM,
    databases::WRAPAROUND,
    tables::TABLES,
    databases::DATABASE_SIZE,
    tables::TABLE_SIZE,
    writes::WAL_FILES,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::metric::VERSIONS;
    use crate::report::PostgresRow;
    use crate::report::tests::row_lines;

    fn metric_names(version: u32) -> BTreeSet<&'static str> {
        let metrics = COLLECTORS.iter().flat_map(|collector| collector.metrics);
        metrics.filter(|metric| metric.is_of(version)).map(|metric| metric.name).collect()
    }

    /// Metrics that a version has and the one before it has not, and the reverse.
    #[track_caller]
    fn check(version: u32, added: &[&str], removed: &[&str]) {
        let (before, now) = (metric_names(version - 1), metric_names(version));
        let part = |one: &BTreeSet<&'static str>, other: &BTreeSet<&'static str>| {
            one.difference(other)
                .map(|name| name.rsplit_once("pg_stat_").unwrap_or(("", name)).1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (part(&now, &before), part(&before, &now)),
            (
                added.iter().map(|it| (*it).to_owned()).collect(),
                removed.iter().map(|it| (*it).to_owned()).collect()
            ),
            "{version}"
        );
    }

    #[test]
    fn views_follow_the_version() {
        check(15, &[], &[]);
        check(
            17,
            &[
                "checkpointer_buffers_written_total",
                "checkpointer_num_requested_total",
                "checkpointer_num_timed_total",
                "checkpointer_restartpoints_done_total",
                "checkpointer_restartpoints_req_total",
                "checkpointer_restartpoints_timed_total",
                "checkpointer_sync_time_seconds_total",
                "checkpointer_write_time_seconds_total",
            ],
            &[
                "bgwriter_buffers_backend_fsync_total",
                "bgwriter_buffers_backend_total",
                "bgwriter_buffers_checkpoint_total",
                "bgwriter_checkpoint_sync_time_seconds_total",
                "bgwriter_checkpoint_write_time_seconds_total",
                "bgwriter_checkpoints_req_total",
                "bgwriter_checkpoints_timed_total",
            ],
        );
        check(
            18,
            &[
                "checkpointer_num_done_total",
                "checkpointer_slru_written_total",
                "database_parallel_workers_launched_total",
                "database_parallel_workers_to_launch_total",
            ],
            &[
                "wal_sync_time_seconds_total",
                "wal_sync_total",
                "wal_write_time_seconds_total",
                "wal_write_total",
            ],
        );
        check(
            19,
            &["lock_fastpath_exceeded_total", "lock_wait_time_seconds_total", "lock_waits_total"],
            &[],
        );
    }

    #[test]
    fn queries_have_a_column_per_label_and_metric() {
        for version in VERSIONS {
            for collector in COLLECTORS {
                let metrics: Vec<_> =
                    collector.metrics.iter().filter(|metric| metric.is_of(version)).collect();
                let names: BTreeSet<&str> = metrics.iter().map(|metric| metric.name).collect();
                assert_eq!(names.len(), metrics.len(), "{} {version}", collector.name);
                let Some(sql) = collector.sql(version) else {
                    assert!(metrics.is_empty());
                    continue;
                };
                assert_eq!(sql.matches(")::text").count(), collector.labels.len(), "{sql}");
                assert_eq!(sql.matches(")::float8").count(), metrics.len(), "{sql}");
                let columns = collector.labels.len() + metrics.len();
                let mut rows = Vec::new();
                collector.rows(version, &[vec![Some("7".to_owned()); columns]], &mut rows);
                assert_eq!(rows.len(), metrics.len());
                // A view without rows, and columns that are NULL.
                rows.clear();
                collector.rows(version, &[], &mut rows);
                collector.rows(version, &[vec![None; columns]], &mut rows);
                assert!(rows.is_empty());
            }
        }
    }

    #[test]
    fn collectors_and_metrics_have_one_name_each() {
        let names: BTreeSet<&str> = COLLECTORS.iter().map(|collector| collector.name).collect();
        assert_eq!(names.len(), COLLECTORS.len());
    }

    #[test]
    fn rows_of_a_recorded_result_have_their_labels() {
        let field = |text: &str| (text != "-").then(|| text.to_owned());
        // Version 15: a database without checksums, with its first columns.
        let columns = databases::DATABASE.metrics.iter().filter(|metric| metric.is_of(15)).count();
        let mut row: Vec<_> = ["shop", "2", "1000", "-3"].map(field).to_vec();
        row.resize(columns + 1, None);
        let mut rows: Vec<PostgresRow> = Vec::new();
        databases::DATABASE.rows(15, &[row], &mut rows);
        let expected = "pg_stat_database_numbackends{datname=\"shop\"} 2\n\
                        pg_stat_database_xact_commit{datname=\"shop\"} 1000\n";
        assert_eq!(row_lines(&rows), expected);
    }
}
