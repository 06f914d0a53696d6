//! Losses are reported as gaps.

use std::sync::Arc;

use forward::Forward;
use journal::{Level, LimitPolicy, Limits};

use crate::agent::{TestDir, create, latencies, open, put, settings, stop_all, wait_caught_up};
use crate::remote::{ResponseFault, TestRemote};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permanently_rejected_batch_is_dead_lettered() {
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let remote = TestRemote::start(|| ResponseFault::None).await;
    remote.state().rejects = Some(3);
    let settings = settings(&dir.0, &[("a", &remote.url)]);
    let intake = open(&dir.0, journal::wall_clock());
    (0..5).for_each(|_| put(&intake, 7));
    // A record that is not a batch, written by another program.
    intake.write_target().journal().append(b"what is this", Level::Disk).unwrap().level.to_string();
    put(&intake, 7);
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    let status = wait_caught_up(&forward, 7).await;
    assert_eq!((status.records, status.dead_lettered, status.missing, status.lag), (5, 2, 0, 0));
    let producer = intake.producer("test").id();
    let audit = intake.audit().unwrap();
    let account = audit.producers.iter().find(|account| account.id == Some(producer)).unwrap();
    let line = account.stages.last().unwrap();
    assert_eq!((&*line.stage, line.received.values, line.stored.values), ("remote a", 42, 35));
    assert_eq!((line.discrepancy, line.is_reconciled), (7, true));
    assert_eq!(line.reason, "1 batch missing at the remote; see the losses");
    assert_eq!(line.losses[0].reason, "rejected by remote a, dead-lettered: 400: so!");
    stop_all(forward, intake).await;

    let state = remote.state();
    assert_eq!(state.count, 5 * 7);
    assert_eq!(state.order, [1, 2, 3, 4, 5, 6, 7]);
    let gaps: Vec<_> =
        state.gaps.iter().map(|gap| (gap.producer, gap.lost, &*gap.reason)).collect();
    let expected = [
        (Some(producer), Some(1), "rejected by remote a, dead-lettered: 400: so!"),
        (
            None,
            None,
            "rejected by remote a, dead-lettered: not a batch: magic at byte 0 is 119, expected \
             211 (0xd3), the magic of a batch",
        ),
    ];
    assert_eq!(gaps, expected);
    assert_eq!((state.gaps[0].start, state.gaps[0].end), (10, 20));
    let kept = std::fs::read(dir.0.join("dead-letter/a/00000000000000000003.request")).unwrap();
    let kept = model::ForwardRequest::decode(&kept).unwrap();
    assert_eq!((kept.entries.len(), kept.entries[0].0), (1, 3));
    assert_eq!(model::Batch::decode(kept.entries[0].1.to_owned()).unwrap().samples(), 1);
    let raw = std::fs::read(dir.0.join("dead-letter/a/00000000000000000006.batch")).unwrap();
    assert_eq!(raw, b"what is this");
    let why =
        std::fs::read_to_string(dir.0.join("dead-letter/a/00000000000000000003.reason")).unwrap();
    assert_eq!(why, "400: so!\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_records_are_reported_as_a_gap() {
    let dir = TestDir::new();
    let small = journal::Settings {
        buffer_bytes: 4096,
        segment_bytes: 16 << 10,
        limits: Limits {
            bytes_max: Some(48 << 10),
            age_max: None,
            on_full: LimitPolicy::DropOldest,
        },
        ..journal::Settings::default()
    };
    create(&dir.0, &small);
    let remote = TestRemote::start(|| ResponseFault::None).await;
    let settings = settings(&dir.0, &[("a", &remote.url)]);
    let intake = open(&dir.0, journal::wall_clock());
    // Creates the subscriber, then stops the forwarder.
    Forward::start(settings.clone(), Arc::clone(&intake)).unwrap().stop().await;
    let written = 600;
    for n in 0..written {
        put(&intake, 50 + n % 100);
        // The ledger has read the records that are dropped next, on any machine.
        let _read = intake.audit().unwrap();
    }
    let first = intake.write_target().journal().watermarks().first;
    assert!(first > 0, "nothing was dropped");
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    let status = wait_caught_up(&forward, written).await;
    assert_eq!((status.records, status.dead_lettered), (written - first, 0));
    assert_eq!((status.missing, status.lag), (first, 0));
    let audit = intake.audit().unwrap();
    let line = audit.producers[0].stages.last().unwrap();
    assert_eq!((line.stored.batches, line.stored.missing), (written - first, first));
    assert!(audit.producers.iter().all(|account| account.is_reconciled()), "{audit:?}");
    stop_all(forward, intake).await;

    let state = remote.state();
    let lost: u64 = state.gaps.iter().filter_map(|gap| gap.lost).sum();
    assert_eq!(lost, first, "{:?}", state.gaps);
    assert_eq!(state.samples + lost, written);
    assert!(state.gaps.iter().all(|gap| gap.producer.is_some() && gap.start <= gap.end));
    assert_eq!(state.gaps[0].reason, "missing in the journal of an agent: dropped: size retention");
    // A gap has the sequence of the last missing record. Records dropped while the first gap is
    // sent are a second gap.
    assert_eq!(state.order.get(state.gaps.len() - 1), Some(&first), "{:?}", state.gaps);
    assert!(state.order.is_sorted());
}

/// A remote of an earlier release rejected all batches with exemplars, which were lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remote_that_reads_no_exemplars_gets_the_samples() {
    use decode::SeriesSink as _;
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let remote = TestRemote::start(|| ResponseFault::None).await;
    remote.state().reads_no_exemplars = true;
    let settings = settings(&dir.0, &[("a", &remote.url)]);
    let intake = open(&dir.0, journal::wall_clock());
    put(&intake, 7);
    for _ in 0..2 {
        let mut writer = intake.writer(intake::SeriesKeyEncoding::GENERIC);
        let mut series = || Ok(latencies());
        let exemplar = model::Exemplar {
            time: 15,
            value: 1000.0,
            trace_id: [1; 16],
            span_id: [0; 8],
            attributes: model::ExemplarAttributes::default(),
            source: model::ExemplarSource::Otlp,
        };
        assert!(writer.exemplar(b"latency", &mut series, &exemplar));
        intake.append(&intake.producer("test"), writer).unwrap().wait_durable().unwrap();
    }
    put(&intake, 7);
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    let status = wait_caught_up(&forward, 4).await;
    assert_eq!((status.records, status.dead_lettered, status.missing), (4, 0, 0));
    stop_all(forward, intake).await;
    let state = remote.state();
    assert_eq!((state.count, &state.order[..]), (14, &[1, 2, 3, 4][..]));
    assert!(state.gaps.is_empty(), "{:?}", state.gaps);
}
