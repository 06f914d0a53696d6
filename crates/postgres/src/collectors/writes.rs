//! Background writer, checkpoints, WAL, I/O.

use crate::collector::ViewCollector;
use crate::metric::{counter, gauge};

pub(super) const BACKGROUND_WRITER: ViewCollector = ViewCollector {
    name: "background_writer",
    from: "FROM pg_stat_bgwriter",
    metrics: &[
        counter(
            "pg_stat_bgwriter_checkpoints_timed_total",
            "",
            "checkpoints_timed",
            "checkpoints by `checkpoint_timeout`",
        )
        .until(16),
        counter(
            "pg_stat_bgwriter_checkpoints_req_total",
            "",
            "checkpoints_req",
            "checkpoints by `max_wal_size` or a command",
        )
        .until(16),
        counter(
            "pg_stat_bgwriter_checkpoint_write_time_seconds_total",
            "s",
            "checkpoint_write_time / 1000",
            "time of writes of checkpoints",
        )
        .until(16),
        counter(
            "pg_stat_bgwriter_checkpoint_sync_time_seconds_total",
            "s",
            "checkpoint_sync_time / 1000",
            "time of syncs of checkpoints",
        )
        .until(16),
        counter(
            "pg_stat_bgwriter_buffers_checkpoint_total",
            "",
            "buffers_checkpoint",
            "buffers written by checkpoints",
        )
        .until(16),
        counter(
            "pg_stat_bgwriter_buffers_backend_total",
            "",
            "buffers_backend",
            "buffers written by backends; from 17 on in `pg_stat_io_writes_total`",
        )
        .until(16),
        counter(
            "pg_stat_bgwriter_buffers_backend_fsync_total",
            "",
            "buffers_backend_fsync",
            "syncs by backends; from 17 on in `pg_stat_io_fsyncs_total`",
        )
        .until(16),
        counter(
            "pg_stat_bgwriter_buffers_clean_total",
            "",
            "buffers_clean",
            "buffers written by the background writer",
        ),
        counter(
            "pg_stat_bgwriter_maxwritten_clean_total",
            "",
            "maxwritten_clean",
            "rounds of the background writer that reached `bgwriter_lru_maxpages`",
        ),
        counter("pg_stat_bgwriter_buffers_alloc_total", "", "buffers_alloc", "buffers allocated"),
    ],
    ..ViewCollector::DEFAULT
};

pub(super) const CHECKPOINTER: ViewCollector = ViewCollector {
    name: "checkpointer",
    from: "FROM pg_stat_checkpointer",
    metrics: &[
        counter(
            "pg_stat_checkpointer_num_timed_total",
            "",
            "num_timed",
            "checkpoints by `checkpoint_timeout`, skipped ones included",
        )
        .since(17),
        counter(
            "pg_stat_checkpointer_num_requested_total",
            "",
            "num_requested",
            "checkpoints by `max_wal_size` or a command",
        )
        .since(17),
        counter("pg_stat_checkpointer_num_done_total", "", "num_done", "checkpoints completed")
            .since(18),
        counter(
            "pg_stat_checkpointer_restartpoints_timed_total",
            "",
            "restartpoints_timed",
            "restartpoints by `checkpoint_timeout`",
        )
        .since(17),
        counter(
            "pg_stat_checkpointer_restartpoints_req_total",
            "",
            "restartpoints_req",
            "restartpoints by request",
        )
        .since(17),
        counter(
            "pg_stat_checkpointer_restartpoints_done_total",
            "",
            "restartpoints_done",
            "restartpoints completed",
        )
        .since(17),
        counter(
            "pg_stat_checkpointer_write_time_seconds_total",
            "s",
            "write_time / 1000",
            "time of writes",
        )
        .since(17),
        counter(
            "pg_stat_checkpointer_sync_time_seconds_total",
            "s",
            "sync_time / 1000",
            "time of syncs",
        )
        .since(17),
        counter(
            "pg_stat_checkpointer_buffers_written_total",
            "",
            "buffers_written",
            "shared buffers written",
        )
        .since(17),
        counter(
            "pg_stat_checkpointer_slru_written_total",
            "",
            "slru_written",
            "SLRU buffers written",
        )
        .since(18),
    ],
    ..ViewCollector::DEFAULT
};

pub(super) const WAL: ViewCollector = ViewCollector {
    name: "wal",
    from: "FROM pg_stat_wal",
    metrics: &[
        counter("pg_stat_wal_records_total", "", "wal_records", "WAL records").since(14),
        counter("pg_stat_wal_fpi_total", "", "wal_fpi", "full page images in the WAL").since(14),
        counter("pg_stat_wal_bytes_total", "B", "wal_bytes", "bytes of WAL").since(14),
        counter(
            "pg_stat_wal_buffers_full_total",
            "",
            "wal_buffers_full",
            "writes of WAL because its buffers were full",
        )
        .since(14),
        counter("pg_stat_wal_write_total", "", "wal_write", "writes of WAL").since(14).until(17),
        counter("pg_stat_wal_sync_total", "", "wal_sync", "syncs of WAL").since(14).until(17),
        counter(
            "pg_stat_wal_write_time_seconds_total",
            "s",
            "wal_write_time / 1000",
            "time of writes of WAL; 0 without `track_wal_io_timing`",
        )
        .since(14)
        .until(17),
        counter(
            "pg_stat_wal_sync_time_seconds_total",
            "s",
            "wal_sync_time / 1000",
            "time of syncs of WAL; 0 without `track_wal_io_timing`",
        )
        .since(14)
        .until(17),
    ],
    ..ViewCollector::DEFAULT
};

pub(super) const IO: ViewCollector = ViewCollector {
    name: "io",
    labels: &[("backend_type", "backend_type"), ("object", "object"), ("context", "context")],
    from: "FROM pg_stat_io WHERE coalesce(reads, 0) + coalesce(writes, 0) + coalesce(extends, 0) \
           + coalesce(hits, 0) + coalesce(fsyncs, 0) > 0",
    metrics: &[
        counter("pg_stat_io_reads_total", "", "reads", "reads").since(16),
        counter("pg_stat_io_read_bytes_total", "B", "reads * op_bytes", "bytes read")
            .since(16)
            .until(17),
        counter("pg_stat_io_read_bytes_total", "B", "read_bytes", "bytes read").since(18),
        counter(
            "pg_stat_io_read_time_seconds_total",
            "s",
            "read_time / 1000",
            "time of reads; 0 without `track_io_timing`",
        )
        .since(16),
        counter("pg_stat_io_writes_total", "", "writes", "writes").since(16),
        counter("pg_stat_io_write_bytes_total", "B", "writes * op_bytes", "bytes written")
            .since(16)
            .until(17),
        counter("pg_stat_io_write_bytes_total", "B", "write_bytes", "bytes written").since(18),
        counter(
            "pg_stat_io_write_time_seconds_total",
            "s",
            "write_time / 1000",
            "time of writes; 0 without `track_io_timing`",
        )
        .since(16),
        counter("pg_stat_io_extends_total", "", "extends", "extensions of relations").since(16),
        counter("pg_stat_io_hits_total", "", "hits", "blocks found in shared buffers").since(16),
        counter("pg_stat_io_evictions_total", "", "evictions", "blocks evicted").since(16),
        counter("pg_stat_io_fsyncs_total", "", "fsyncs", "syncs").since(16),
        counter(
            "pg_stat_io_fsync_time_seconds_total",
            "s",
            "fsync_time / 1000",
            "time of syncs; 0 without `track_io_timing`",
        )
        .since(16),
    ],
    ..ViewCollector::DEFAULT
};

pub(super) const WAL_FILES: ViewCollector = ViewCollector {
    name: "wal_files",
    from: "FROM pg_ls_waldir()",
    metrics: &[
        gauge("pg_wal_segments", "", "count(*)", "WAL files"),
        gauge("pg_wal_size_bytes", "B", "coalesce(sum(size), 0)", "size of the WAL files"),
    ],
    is_slow: true,
    needs_all_stats: true,
    ..ViewCollector::DEFAULT
};
