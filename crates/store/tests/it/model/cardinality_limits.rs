//! Rejected batches have no effect.

use journal::Level;
use model::{BatchWriter, Selector};
use store::{CardinalityError, CardinalityLimits, Error, NewSeries, Resolution, Store};

use crate::fixture::{StoreFixture, histogram, identity, latency, sample};

fn batch(hosts: &[&str]) -> model::Batch {
    let mut batch = BatchWriter::default();
    for host in hosts {
        batch.series(&latency(host));
        batch.sample(&sample(0, 60, histogram(&[1.0]))).unwrap();
    }
    batch.finish()
}

fn hosts(store: &Store) -> Vec<String> {
    let found = store.view().unwrap().select(&Selector::All);
    found.iter().map(|found| found.series.label("host").unwrap_or_default().to_owned()).collect()
}

fn world(limits: CardinalityLimits) -> StoreFixture {
    StoreFixture { limits, ..StoreFixture::new() }
}

#[track_caller]
fn ingest_error(store: &Store, sequence: u64, hosts: &[&str]) -> CardinalityError {
    let end = store.journal().watermarks().end;
    let refused = store.ingest(Some(identity(sequence)), &batch(hosts), Level::Disk).unwrap_err();
    assert_eq!(store.journal().watermarks().end, end, "nothing is journaled");
    match refused {
        Error::Cardinality(refused) => refused,
        other => panic!("{other}"),
    }
}

#[test]
fn series_limit_applies_before_the_journal_is_read() {
    let world = world(CardinalityLimits { max_series: 3, ..CardinalityLimits::default() });
    let store = world.open().unwrap();
    for (sequence, host) in [(1, "a"), (2, "b"), (3, "c")] {
        let _ack = store.ingest(Some(identity(sequence)), &batch(&[host]), Level::Disk).unwrap();
    }
    let refused = ingest_error(&store, 4, &["d"]);
    let series = r#"latency{host="d"}"#.to_owned();
    assert_eq!(refused, CardinalityError::Series { series, found: 4, max: 3 });
    // The same batch without it is new: its sequence was not used.
    let _ack = store.ingest(Some(identity(4)), &batch(&["a", "c"]), Level::Disk).unwrap();
    assert_eq!(hosts(&store), ["a", "b", "c"]);
    drop(store);
    assert_eq!(hosts(&world.open().unwrap()), ["a", "b", "c"]);
}

#[test]
fn value_and_metric_limits_name_themselves() {
    let store = world(CardinalityLimits { max_label_values: 2, ..CardinalityLimits::default() })
        .open()
        .unwrap();
    let _ack = store.ingest(Some(identity(1)), &batch(&["a", "b"]), Level::Disk).unwrap();
    let found = ingest_error(&store, 2, &["a", "c"]);
    assert_eq!(found.limit(), Some("max_label_values"));
    let (metric, label) = ("latency".to_owned(), "host".to_owned());
    assert_eq!(found, CardinalityError::ValuesPerLabel { metric, label, found: 3, max: 2 });
    let store = world(CardinalityLimits { max_metric_series: 2, ..CardinalityLimits::default() })
        .open()
        .unwrap();
    let _ack = store.ingest(Some(identity(1)), &batch(&["a", "b"]), Level::Disk).unwrap();
    let found = ingest_error(&store, 2, &["c"]);
    let metric = "latency".to_owned();
    assert_eq!(found, CardinalityError::SeriesPerMetric { metric, found: 3, max: 2 });
}

#[test]
fn a_store_opened_with_lower_limits_keeps_its_series() {
    let mut world = StoreFixture::new();
    let store = world.open().unwrap();
    let _ack = store.ingest(Some(identity(1)), &batch(&["a", "b", "c"]), Level::Disk).unwrap();
    store.flush().unwrap();
    let _ack = store.ingest(Some(identity(2)), &batch(&["d"]), Level::Disk).unwrap();
    drop(store);
    world.limits.max_series = 1;
    let store = world.open().unwrap();
    world.set_now(3 * store::DAY);
    store.maintain().unwrap();
    assert_eq!(hosts(&store), ["a", "b", "c", "d"]);
    ingest_error(&store, 3, &["e"]);
    assert_eq!(store.stat().unwrap().warnings, [""; 0]);
}

#[test]
fn unknown_series_number_is_rejected() {
    let store = StoreFixture::new().open().unwrap();
    let series = latency("a");
    let by_id = || {
        let mut batch = BatchWriter::default();
        batch.series_by_id(series.id(), &series);
        batch.sample(&sample(0, 60, histogram(&[1.0]))).unwrap();
        batch.finish()
    };
    let end = store.journal().watermarks().end;
    let ingest = |sequence| store.ingest(Some(identity(sequence)), &by_id(), Level::Disk);
    let refused = ingest(1).unwrap_err();
    assert!(matches!(refused, Error::UnknownSeries { id } if id == series.id()), "{refused}");
    assert_eq!(store.journal().watermarks().end, end);
    let _ack = store.ingest(Some(identity(1)), &batch(&["a"]), Level::Disk).unwrap();
    let _ack = ingest(2).unwrap();
    let view = store.view().unwrap();
    let found = view.select(&Selector::All);
    let mut count = 0;
    view.samples(&found[0], 0..100, &mut |_| count += 1).unwrap();
    assert_eq!(count, 1, "two samples of one window, which add up");
}

/// Ingests a batch of one producer; returns the rejected part.
fn ingest_series(
    store: &Store,
    producer: u64,
    sequence: u64,
    hosts: &[&str],
) -> Vec<CardinalityError> {
    let (mut new, mut refused) = (NewSeries::default(), Vec::new());
    let mut left = Vec::new();
    for host in hosts {
        match store.check_batch(&latency(host).canonical_key(), producer, &mut new) {
            Ok(()) => left.push(*host),
            Err(Error::Cardinality(why)) => refused.push(why),
            Err(other) => panic!("{other}"),
        }
    }
    let identity = journal::BatchIdentity { producer, epoch: 1, sequence };
    let _ack = store.ingest_checked(Some(identity), &batch(&left), Level::Disk).unwrap();
    refused
}

#[test]
fn producer_limit_blocks_no_other_after_restart() {
    let world = world(CardinalityLimits { max_producer_series: 3, ..CardinalityLimits::default() });
    let mut store = world.open().unwrap();
    assert_eq!(ingest_series(&store, 1, 1, &["a", "b", "c", "d", "e"]).len(), 2);
    for (restart, other) in [(false, "f"), (true, "g"), (true, "h")] {
        if restart {
            drop(store);
            store = world.open().unwrap();
        }
        let sequence = 10 + store.stat().unwrap().series;
        // Known series are accepted; new ones of this producer are rejected, another producer's
        // accepted.
        let refused = ingest_series(&store, 1, sequence, &["a", "z", "c"]);
        assert!(matches!(
            refused[..],
            [CardinalityError::SeriesPerProducer { found: 4, max: 3, .. }]
        ));
        assert_eq!(ingest_series(&store, 2, sequence, &[other]), []);
        // From the journal the first time, then from the series file.
        if restart {
            store.flush().unwrap();
        }
    }
    assert_eq!(hosts(&store), ["a", "b", "c", "f", "g", "h"]);
    assert_eq!(ingest_series(&store, 2, 99, &["i"]).len(), 1);
    assert_eq!(store.stat().unwrap().warnings, [""; 0]);
}

#[test]
fn deletion_frees_limits_after_restart() {
    let limits = CardinalityLimits { max_label_values: 3, ..CardinalityLimits::default() };
    let world = world(limits);
    let mut store = world.open().unwrap();
    assert_eq!(ingest_series(&store, 1, 1, &["a", "b", "c", "d"]).len(), 1);
    store.flush().unwrap();
    let all = i64::MIN..i64::MAX;
    let selector = Selector::Or(vec![
        Selector::label_equals("host", "a"),
        Selector::label_equals("host", "b"),
    ]);
    let deleted = store.delete(&selector, 0..50).unwrap();
    assert_eq!(deleted.series, 0, "their rows ended later");
    let deleted = store.delete(&Selector::label_equals("host", "a"), all.clone()).unwrap();
    assert_eq!((deleted.rows, deleted.series), (1, 1));
    assert_eq!(hosts(&store), ["b", "c"]);
    assert_eq!(ingest_series(&store, 1, 2, &["d", "e"]).len(), 1);
    for restart in 0..3 {
        drop(store);
        store = world.open().unwrap();
        assert_eq!(hosts(&store), ["b", "c", "d"], "restart {restart}");
        assert_eq!(store.stat().unwrap().series, 3);
        assert_eq!(ingest_series(&store, 1, 10 + restart, &["e"]).len(), 1);
        store.flush().unwrap();
    }
    assert_eq!(store.stat().unwrap().warnings, [""; 0]);
    // A deleted series is sent again by id by a producer that does not know of the deletion.
    let deleted = store.delete(&Selector::label_equals("host", "c"), all).unwrap();
    assert_eq!(deleted.series, 1);
    let mut again = BatchWriter::default();
    again.series_by_id(latency("c").id(), &latency("c"));
    again.sample(&sample(60, 120, histogram(&[1.0]))).unwrap();
    let refused = store.ingest_checked(None, &again.finish(), Level::Disk).unwrap_err();
    assert!(matches!(refused, Error::UnknownSeries { .. }), "{refused}");
    assert_eq!(ingest_series(&store, 1, 20, &["c"]), []);
    assert_eq!(hosts(&store), ["b", "d", "c"]);
    let view = store.view().unwrap();
    let found = view.select(&Selector::label_equals("host", "c"));
    let mut count = 0;
    view.samples(&found[0], 0..i64::MAX, &mut |_| count += 1).unwrap();
    assert_eq!(count, 1, "the deleted one did not come back");
}

#[test]
fn expired_rows_remove_their_series() {
    let world = world(CardinalityLimits { max_series: 2, ..CardinalityLimits::default() });
    let store = world.open().unwrap();
    assert_eq!(ingest_series(&store, 1, 1, &["a", "b", "c"]).len(), 1);
    let rule = |resolution| store::RetentionRule {
        resolution,
        duration: Some(store::DAY),
        selector: Selector::label_equals("host", "a"),
    };
    let all = [Resolution::Base, Resolution::Minute, Resolution::FiveMinutes];
    let all = all.into_iter().chain([Resolution::Hour, Resolution::Day]);
    store.set_retention(all.map(rule).collect()).unwrap();
    world.set_now(900 * store::DAY);
    while store.maintain().unwrap() {}
    assert_eq!(hosts(&store), ["b"]);
    assert_eq!(ingest_series(&store, 1, 2, &["c"]), []);
}
