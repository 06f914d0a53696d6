//! Appending batches, waiting for durability, and the audit.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use intake::{DownstreamStage, Error, ExemplarPolicy, Intake, Ledger, Settings, WriteTarget};
use journal::BatchIdentity;
use model::{BatchWriter, Gap};
use sim::{DiskOperation, Fault, FaultKind, SimDisk};

use crate::fixture::*;

fn identity(producer: u64, sequence: u64) -> BatchIdentity {
    BatchIdentity { producer, epoch: 1, sequence }
}

#[test]
fn batch_is_in_the_store_and_in_the_ledger() {
    let now = Arc::default();
    let (intake, store) = new_store_intake(&SimDisk::new(1), &now, |_| {});
    let producer = intake.producer("statsd");
    for _ in 0..3 {
        let mut writer = intake.writer(KEY_ENCODING);
        write(&mut writer, "a", 5);
        write(&mut writer, "b", 2);
        assert_eq!((writer.samples(), writer.values()), (2, 7));
        intake.append(&producer, writer).unwrap().wait_durable().unwrap();
    }
    producer.add_received(24);
    producer.add_dropped(1, "no room");
    let stat = store.stat().unwrap();
    assert_eq!((stat.series, stat.head_rows), (2, 6));

    let audit = intake.audit().unwrap();
    let account = audit.producers.iter().find(|account| account.name == "statsd").unwrap();
    let source = account.source.as_ref().unwrap();
    assert_eq!((source.received, source.accepted, source.buffered()), (24, 21, 2));
    let stages: Vec<_> = account.stages.iter().map(|line| line.stage.as_str()).collect();
    assert_eq!(stages, ["journal", "store"]);
    for line in &account.stages {
        let stored = line.stored;
        assert_eq!((stored.batches, stored.samples, stored.values), (3, 6, 21), "{line:?}");
        assert_eq!((line.discrepancy, line.is_reconciled), (0, true), "{line:?}");
    }
    intake.stop();
}

#[test]
fn duplicate_is_acknowledged_and_counted_once() {
    let now = Arc::default();
    let (intake, store) = new_store_intake(&SimDisk::new(1), &now, |_| {});
    let send = |sequence| {
        let pending_ack =
            intake.append_encoded(identity(9, sequence), "agent", &batch("a", 4)).unwrap();
        pending_ack.wait_durable().unwrap();
        pending_ack.is_duplicate()
    };
    assert_eq!([1, 1, 2, 1].map(send), [false, true, false, true]);
    let audit = intake.audit().unwrap();
    let account = audit.producers.iter().find(|account| account.name == "agent").unwrap();
    assert_eq!(account.stages[0].stored.values, 8);
    assert!(account.is_reconciled());
    assert_eq!(store.stat().unwrap().head_rows, 2);
}

/// A batch with a sample and an exemplar.
fn batch_with_exemplar() -> model::Batch {
    let mut writer = BatchWriter::default();
    writer.series(&latency("a"));
    writer.sample(&sample(0, 1)).unwrap();
    writer.exemplar(
        latency("a").id(),
        &model::Exemplar {
            time: 1,
            value: 1.0,
            trace_id: [1; 16],
            span_id: [0; 8],
            attributes: model::ExemplarAttributes::default(),
            source: model::ExemplarSource::Otlp,
        },
    );
    writer.finish()
}

/// Exemplars that the store dropped counted as accepted.
#[test]
fn exemplars_without_an_announcement_in_the_manifest_are_counted_as_rejected() {
    let (disk, now) = (SimDisk::new(1), Arc::default());
    let (intake, store) = new_store_intake(&disk, &now, |_| {});
    let counts = || {
        let counter = |name, labels: &[(&str, &str)]| intake.meter().counter(name, "", labels);
        let reason = [("reason", "not_announced")];
        [
            counter("topdeck_exemplars_accepted_total", &[]).get(),
            counter("topdeck_exemplars_rejected_total", &reason).get(),
        ]
    };
    let send = |sequence| {
        let batch = batch_with_exemplar();
        let ack = intake.append_encoded(identity(9, sequence), "agent", &batch).unwrap();
        ack.wait_durable().unwrap();
    };
    let (path_contains, kind) = ("manifest".to_owned(), FaultKind::Os(28));
    let operation = DiskOperation::Create;
    disk.inject(Fault { operation, path_contains, skip: 0, times: u64::MAX, kind });
    send(1);
    assert_eq!(counts(), [0, 1]);
    assert_eq!(store.exemplar_stat().counts, store::ExemplarCounts::default());
    disk.clear_faults();
    send(2);
    assert_eq!(counts(), [1, 1]);
    // A repetition is not counted again.
    send(2);
    assert_eq!(counts(), [1, 1]);
}

/// Spans that the store dropped had those after them left out.
#[test]
fn spans_without_an_announcement_in_the_manifest_displace_no_others() {
    use decode::SeriesSink as _;

    let (disk, now) = (SimDisk::new(1), Arc::default());
    let (intake, _store) = new_store_intake(&disk, &now, |_| {});
    let producer = intake.producer("p");
    // Whether another span is wanted after those of a batch.
    let send = || {
        let mut writer = intake.writer(KEY_ENCODING);
        write(&mut writer, "a", 5);
        for id in 1..4 {
            let exemplar = model::Exemplar {
                time: 1,
                value: 1.0,
                trace_id: [id; 16],
                span_id: [id; 8],
                attributes: model::ExemplarAttributes::default(),
                source: model::ExemplarSource::Span,
            };
            assert!(writer.exemplar(b"a", &mut || Ok(latency("a")), &exemplar));
        }
        intake.append(&producer, writer).unwrap().wait_durable().unwrap();
        intake.writer(KEY_ENCODING).wants_span(b"a", 1, 1.0, u64::MAX)
    };
    let (path_contains, kind) = ("manifest".to_owned(), FaultKind::Os(28));
    let operation = DiskOperation::Create;
    disk.inject(Fault { operation, path_contains, skip: 0, times: u64::MAX, kind });
    assert!(send());
    disk.clear_faults();
    assert!(!send());
}

/// A receiver that stores no exemplars does not store those of others either.
#[test]
fn exemplars_of_forwarded_batches_are_rejected_if_they_are_disabled() {
    for is_enabled in [true, false] {
        let now = Arc::default();
        let (first, store) = new_store_intake(&SimDisk::new(1), &now, |_| {});
        drop(first);
        let policy = ExemplarPolicy { is_enabled, ..ExemplarPolicy::default() };
        let settings = Settings { exemplars: policy, ..settings(&now) };
        let intake = Intake::new(WriteTarget::Store(Arc::clone(&store)), settings).unwrap();
        let ack = intake.append_encoded(identity(9, 1), "agent", &batch_with_exemplar()).unwrap();
        ack.wait_durable().unwrap();
        let counts = store.exemplar_stat().counts;
        assert_eq!(counts.kept + counts.outside_time, u64::from(is_enabled), "{counts:?}");
        assert_eq!(store.stat().unwrap().head_rows, 1);
    }
}

#[test]
fn id_without_canonical_key_is_rejected() {
    let now = Arc::default();
    let intake = new_journal_intake(&SimDisk::new(1), &now);
    let mut writer = BatchWriter::default();
    writer.series_by_id(latency("a").id(), &latency("a"));
    writer.sample(&sample(0, 1)).unwrap();
    let refused = intake.append_encoded(identity(9, 1), "agent", &writer.finish());
    assert!(matches!(refused, Err(Error::Rejected(_))), "{refused:?}");
}

#[test]
fn rejected_samples_are_reported_with_their_reason() {
    let now = Arc::default();
    let (intake, store) = new_store_intake(&SimDisk::new(1), &now, |_| {});
    // Appends to the journal behind the intake's back.
    let mut writer = BatchWriter::default();
    writer.series_by_id(latency("nobody").id(), &latency("nobody"));
    writer.sample(&sample(0, 1)).unwrap();
    writer.series(&latency("a"));
    writer.sample(&sample(0, 1)).unwrap();
    let batch = writer.finish();
    let bytes: &[u8] = batch.bytes();
    let _ack =
        store.journal().append_batch(Some(identity(5, 1)), &[bytes], journal::Level::Disk).unwrap();
    let audit = intake.audit().unwrap();
    let account = audit.producers.iter().find(|account| account.id == Some(5)).unwrap();
    let line = &account.stages[1];
    assert_eq!((line.received.samples, line.stored.samples), (2, 1));
    assert_eq!((line.discrepancy, line.is_reconciled), (1, true));
    assert!(line.losses[0].reason.contains("unknown series"), "{line:?}");
    assert_eq!(store.stat().unwrap().head_rows, 1);
}

#[derive(Debug)]
struct RemoteStage(Ledger);

impl DownstreamStage for RemoteStage {
    fn ledger(&self) -> Ledger {
        self.0.clone()
    }
}

#[test]
fn remote_is_reconciled_with_the_journal() {
    let now = Arc::default();
    let intake = new_journal_intake(&SimDisk::new(1), &now);
    let mut site = Ledger::new(7, 0, 0);
    let batches = [batch("a", 4), batch("a", 5)];
    for (sequence, batch) in [1, 2].into_iter().zip(&batches) {
        intake
            .append_encoded(identity(9, sequence), "agent", batch)
            .unwrap()
            .wait_durable()
            .unwrap();
    }
    let check = |stage: Ledger, difference: i128, is_explained: bool| {
        intake.add_stage("site a", Arc::new(RemoteStage(stage)));
        let audit = intake.audit().unwrap();
        let account = audit.producers.iter().find(|account| account.name == "agent").unwrap();
        assert_eq!(account.stages.len(), 2);
        let line = &account.stages[1];
        assert_eq!((line.discrepancy, line.is_reconciled), (difference, is_explained), "{line:?}");
    };
    check(site.clone(), 9, true);
    site.add(0, Some(identity(9, 1)), batches[0].bytes());
    check(site.clone(), 5, true);
    let mut liar = site.clone();
    liar.add(1, Some(identity(8, 1)), batches[1].bytes());
    check(liar, 5, false);
    site.add(1, Some(identity(9, 2)), batches[1].bytes());
    check(site.clone(), 0, true);
    intake.remove_stage("site a");
    assert_eq!(intake.audit().unwrap().producers[0].stages.len(), 1);
}

#[test]
fn losses_are_reported_with_their_reasons() {
    use decode::SeriesSink as _;
    let now = Arc::default();
    let intake = new_journal_intake(&SimDisk::new(1), &now);
    let producer = intake.producer("udp");
    for lost in [Some(3), None, Some(4)] {
        let mut writer = intake.writer(KEY_ENCODING);
        let reason = "the kernel's buffer was full".to_owned();
        writer.gap(Gap { start: 5, end: 9, producer: Some(producer.id()), lost, reason });
        intake.append(&producer, writer).unwrap().wait_durable().unwrap();
    }
    let audit = intake.audit().unwrap();
    let account = audit.producers.iter().find(|account| account.name == "udp").unwrap();
    let loss = &account.losses[0];
    assert_eq!(
        (loss.gaps, loss.samples_lost, loss.gaps_of_unknown_size, loss.start, loss.end),
        (3, 7, 1, 5, 9)
    );
}

#[test]
fn concurrent_appends_all_complete() {
    let now: Arc<AtomicI64> = Arc::default();
    let disk = SimDisk::new(1);
    let process: Arc<dyn disk::Disk> = Arc::new(disk.process());
    create_journal(&process).unwrap();
    let home = WriteTarget::Journal(open_journal(&process, &now).unwrap());
    let settings = Settings { background: true, ..settings(&now) };
    let intake = Intake::new(home, settings).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let intake = &intake;
            scope.spawn(move || {
                let producer = intake.producer(&format!("p{}", thread % 2));
                for _ in 0..50 {
                    let mut writer = intake.writer(KEY_ENCODING);
                    write(&mut writer, "a", 3);
                    intake.append(&producer, writer).unwrap().wait_durable().unwrap();
                }
            });
        }
    });
    // The intake's own batches may be on their way to the disk.
    while intake.in_flight_bytes() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let audit = intake.audit().unwrap();
    for name in ["p0", "p1"] {
        let account = audit.producers.iter().find(|account| account.name == name).unwrap();
        assert_eq!((account.stages[0].stored.batches, account.stages[0].stored.values), (100, 300));
        assert_eq!((account.stages[0].discrepancy, account.is_reconciled()), (0, true));
    }
    intake.stop();
    intake.stop();
    let late = intake.append(&intake.producer("p0"), intake.writer(KEY_ENCODING)).unwrap();
    assert!(matches!(late.wait_durable(), Err(Error::JournalFailed(_))));
}

#[test]
fn disk_failure_fails_waiting_and_later_appends() {
    let now: Arc<AtomicI64> = Arc::default();
    let disk = SimDisk::new(1);
    let process: Arc<dyn disk::Disk> = Arc::new(disk.process());
    create_journal(&process).unwrap();
    let home = WriteTarget::Journal(open_journal(&process, &now).unwrap());
    let intake = Intake::new(home, Settings { background: true, ..settings(&now) }).unwrap();
    let producer = intake.producer("p");
    let (path_contains, kind) = (".seg".to_owned(), FaultKind::Os(5));
    disk.inject(Fault { operation: DiskOperation::Sync, path_contains, skip: 0, times: 1, kind });
    let mut writer = intake.writer(KEY_ENCODING);
    write(&mut writer, "a", 3);
    let pending_ack = intake.append(&producer, writer).unwrap();
    assert!(matches!(pending_ack.wait_durable(), Err(Error::JournalFailed(_))));
    assert_eq!(intake.in_flight_bytes(), 0);
    let refused = intake.append(&producer, intake.writer(KEY_ENCODING));
    assert!(matches!(refused, Err(Error::JournalFailed(_))), "{refused:?}");
    intake.stop();
}

#[test]
fn self_metrics_are_stored() {
    let now: Arc<AtomicI64> = Arc::default();
    let (intake, store) = new_store_intake(&SimDisk::new(1), &now, |_| {});
    intake.stop();
    drop(intake);
    let settings = Settings {
        background: true,
        // The clock advances by more with each reading.
        interval: std::time::Duration::from_millis(1),
        ..settings(&now)
    };
    let intake = Intake::new(WriteTarget::Store(Arc::clone(&store)), settings).unwrap();
    intake.meter().counter("topdeck_test_total", "counts a test", &[]).add(3);
    let select = |name: &str| {
        let view = store.view().unwrap();
        view.select(&model::Selector::parse(name).unwrap()).len()
    };
    while select("topdeck_test_total") == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for (name, series) in [
        ("topdeck_journal_position", 1),
        ("topdeck_journal_lag_records", 2),
        ("topdeck_store_series", 1),
        ("process_resident_memory_bytes", 1),
        ("process_cpu_seconds_total", 1),
        ("process_open_fds", 1),
        ("process_start_time_seconds", 1),
        ("topdeck_clock_calibrations_total", 1),
        ("topdeck_journal_append_duration", 1),
        ("topdeck_batches_total", 4),
    ] {
        assert_eq!(select(name), series, "{name}");
    }
    intake.stop();
    let account = intake.audit().unwrap().producers.remove(0);
    assert_eq!((account.name.as_str(), account.is_reconciled()), ("topdeck", true), "{account:?}");
}
