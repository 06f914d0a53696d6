//! New series beyond a limit: rejected samples, and stored samples of the same batch.

use journal::BatchIdentity;
use model::{Batch, BatchWriter};
use sim::SimDisk;

use crate::fixture::*;

fn batch_of(hosts: &[&str]) -> Batch {
    let mut batch = BatchWriter::default();
    for host in hosts {
        batch.series(&latency(host));
        batch.sample(&sample(0, 3)).unwrap();
        batch.sample(&sample(10, 2)).unwrap();
    }
    batch.finish()
}

#[test]
fn producer_at_its_series_limit_does_not_affect_others() {
    let now = Default::default();
    let (intake, store) = new_store_intake(&SimDisk::new(1), &now, |options| {
        options.limits.max_producer_series = 2;
    });
    let send = |producer, sequence, hosts: &[&str]| {
        let identity = BatchIdentity { producer, epoch: 1, sequence };
        let pending_ack = intake.append_encoded(identity, "agent", &batch_of(hosts)).unwrap();
        pending_ack.wait_durable().unwrap();
        pending_ack.is_duplicate()
    };
    assert!(!send(7, 1, &["a", "x", "b", "y"]) && send(7, 1, &["a", "x", "b", "y"]));
    assert!(!send(8, 1, &["c", "a", "d"]));
    let stat = store.stat().unwrap();
    assert_eq!((stat.series, stat.head_rows), (4, 10));
    let [gap] = &stat.gaps[..] else { panic!("{:?}", stat.gaps) };
    assert_eq!((gap.producer, gap.lost, gap.start, gap.end), (Some(7), Some(4), 0, 11));
    assert_eq!(
        gap.reason,
        "new series of metric latency rejected: limit max_producer_series reached"
    );
    let audit = intake.audit().unwrap();
    assert!(audit.producers.iter().all(|account| account.is_reconciled()));
    let account = audit.producers.iter().find(|account| account.id == Some(7)).unwrap();
    assert_eq!((account.losses[0].samples_lost, account.stages[0].stored.samples), (4, 4));
    intake.stop();
}

#[test]
fn samples_of_a_rejected_series_are_rejected_and_the_rest_accepted() {
    use decode::SeriesSink as _;

    let now = Default::default();
    let (intake, store) = new_store_intake(&SimDisk::new(1), &now, |options| {
        options.limits.max_label_values = 1;
    });
    let producer = intake.producer("p");
    for round in 0..3 {
        let mut writer = intake.writer_for(producer.id(), KEY_ENCODING);
        for host in ["a", "b", "a"] {
            writer.series(host.as_bytes(), &mut || Ok(latency(host))).unwrap();
            let taken = writer.sample(&sample(round, 1)).map_err(|error| error.to_string());
            assert_eq!(taken.is_ok(), host == "a", "{taken:?}");
        }
        intake.append(&producer, writer).unwrap().wait_durable().unwrap();
    }
    assert_eq!(store.stat().unwrap().head_rows, 6);
    // Deleted series free their places.
    store.delete(&model::Selector::label_equals("host", "a"), i64::MIN..i64::MAX).unwrap();
    let mut writer = intake.writer_for(producer.id(), KEY_ENCODING);
    write(&mut writer, "b", 1);
    intake.append(&producer, writer).unwrap().wait_durable().unwrap();
    // A writer with a stale cache sends the canonical key again.
    let mut writer = intake.writer_for(producer.id(), KEY_ENCODING);
    writer.series(b"a", &mut || Ok(latency("a"))).unwrap();
    writer.sample(&sample(9, 1)).unwrap();
    intake.append(&producer, writer).unwrap().wait_durable().unwrap();
    assert_eq!(store.stat().unwrap().series, 2);
    intake.checkpoint_ledger().unwrap();
    let gaps = store.stat().unwrap().gaps;
    let reason =
        "new values of label host of metric latency rejected: limit max_label_values reached";
    assert_eq!((gaps.len(), gaps[0].lost, gaps[0].reason.as_str()), (1, Some(3), reason));
    intake.stop();
}
