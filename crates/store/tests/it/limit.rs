//! A journal at its limit: rows that the store has only in memory must not keep it full.

use std::path::Path;

use journal::{Level, Limits, StartPosition};
use model::BatchWriter;
use store::{DAY, Error, Store, TimeGrid};

use crate::fixture::{StoreFixture, columns, histogram, identity, latency, sample, settings};

const SMALL: &str = "/small";
/// Values in a batch.
const VALUES: u64 = 50;

struct SmallFixture {
    world: StoreFixture,
    store: Store,
    sequence: u64,
}

impl SmallFixture {
    fn new() -> SmallFixture {
        let world = StoreFixture::new();
        let segment_bytes = settings().segment_bytes;
        let limits = Limits { bytes_max: Some(2 * segment_bytes), ..settings().limits };
        let journal =
            journal::Settings { compression: journal::Compression::None, limits, ..settings() };
        Store::create(&world.disk, Path::new(SMALL), &journal).unwrap();
        let store = world.open_at(SMALL).unwrap();
        SmallFixture { world, store, sequence: 0 }
    }

    /// Ingests batches like a server until they are refused.
    fn fill(&mut self) -> u64 {
        let before = self.sequence;
        loop {
            assert!(self.sequence - before < 10_000, "the limit is no limit");
            let mut batch = BatchWriter::default();
            batch.series(&latency("a"));
            for at in 0..VALUES {
                let end = (self.sequence * VALUES + at + 1) as i64;
                batch.sample(&sample(end - 1, end, histogram(&[end as f64]))).unwrap();
            }
            let identity = identity(self.sequence + 1);
            match self.store.ingest(Some(identity), &batch.finish(), Level::Process) {
                Ok(ack) => assert!(!ack.is_duplicate),
                Err(Error::Journal(journal::Error::Full(_))) => return self.sequence - before,
                Err(error) => panic!("{error}"),
            }
            self.sequence += 1;
        }
    }

    /// Runs maintenance like the thread, ignoring errors; returns whether there is space then.
    fn maintain(&self) -> Result<(), Error> {
        // Another subscriber may keep it full.
        drop(self.store.maintain());
        self.store.journal().flush(Level::Disk)?;
        Ok(())
    }

    #[track_caller]
    fn check(&self) {
        let grid = TimeGrid { start: 0, step: DAY, columns: 1 };
        let count: u64 =
            columns(&self.store, "latency", grid).iter().map(|column| column.value.count()).sum();
        assert_eq!(count, self.sequence * VALUES);
    }

    fn finish(self) {
        let SmallFixture { world, store, sequence } = self;
        drop(store);
        let store = world.open_at(SMALL).unwrap();
        SmallFixture { world, store, sequence }.check();
    }
}

#[test]
fn flush_frees_a_full_journal() {
    let mut small = SmallFixture::new();
    for round in 0..5 {
        assert!(small.fill() > 0, "round {round}");
        small.check();
        small.maintain().unwrap();
        small.check();
    }
    small.finish();
}

#[test]
fn explicit_flush_drains_a_full_journal() {
    let mut small = SmallFixture::new();
    assert!(small.fill() > 0);
    small.store.flush().unwrap();
    assert_eq!(small.store.stat().unwrap().head_rows, 0);
    small.finish();
}

/// The journal retains what another subscriber needs, and continues once it has been read.
#[test]
fn journal_blocked_by_a_remote_resumes_with_it() {
    let mut small = SmallFixture::new();
    small.store.journal().add_subscriber("site", StartPosition::First, true).unwrap();
    for round in 0..5 {
        assert!(small.fill() > 0, "round {round}");
        for _ in 0..3 {
            assert!(small.maintain().is_err(), "nobody has read it");
            small.check();
        }
        let mut site = small.store.journal().subscribe("site").unwrap();
        site.set_level(Level::Disk);
        while site.next().unwrap().is_some() {}
        let position = site.position();
        site.commit(position, Level::Disk).unwrap();
        drop(site);
        small.maintain().unwrap();
        small.check();
    }
    small.finish();
}

#[test]
fn sum_with_more_buckets_than_a_block_holds_is_rolled_up() {
    use crate::fixture::{columns, ingest, latency, sample};
    use store::{DAY, HOUR, MINUTE, TimeGrid};

    let world = StoreFixture::new();
    let begin = 20_000 * DAY;
    world.set_now(begin);
    let store = world.open().unwrap();
    // Each has fewer buckets than the limit, all together more.
    let end = begin + HOUR;
    for number in 0..8 {
        let first = 50_000 * (number - 4);
        let parts = hist::HistogramParts {
            positive: (first..first + 50_000).map(|index| (index, 1)).collect(),
            ..hist::HistogramParts::new(hist::Scheme::exp2(8).unwrap())
        };
        let value = hist::Histogram::from_parts(parts).unwrap();
        let start = end - MINUTE + i64::from(number);
        ingest(&store, number as u64 + 1, &[(&latency("a"), sample(start, end, value))]);
    }
    world.set_now(begin + 2 * DAY);
    store.flush().unwrap();
    while store.maintain().unwrap() {}
    assert_eq!(store.stat().unwrap().warnings, Vec::<String>::new());
    let grid = TimeGrid { start: begin, step: DAY, columns: 1 };
    let column = columns(&store, "latency{host=\"a\"}", grid).remove(0);
    assert_eq!(column.value.count(), 400_000);
    // Four buckets of the finer grid are one of the coarser grid.
    let [sum] = column.value.components() else {
        panic!("{} parts", column.value.components().len())
    };
    assert_eq!(sum.positive().indexes().len(), 100_000);
}

#[test]
fn count_overflow_in_a_minute_stops_nothing() {
    use crate::fixture::{columns, histogram, ingest, latency, sample};
    use store::{DAY, HOUR, MINUTE, TimeGrid};

    let world = StoreFixture::new();
    let begin = 20_000 * DAY;
    world.set_now(begin);
    let store = world.open().unwrap();
    // Two senders with different bounds report the same minute: each is within the limit.
    let full = |bounds: &[f64]| {
        let explicit = hist::Explicit::new(bounds).unwrap();
        let parts = hist::HistogramParts {
            positive: vec![(0, model::HISTOGRAM_COUNT_MAX)],
            ..hist::HistogramParts::new(hist::Scheme::Explicit(explicit))
        };
        hist::Histogram::from_parts(parts).unwrap()
    };
    let kinds = [full(&[1.0, 2.0]), full(&[1.0, 3.0])];
    let end = begin + HOUR;
    for at in 0..300 {
        let value = kinds[at as usize % 2].clone();
        let start = end - MINUTE + at;
        ingest(&store, at as u64 + 1, &[(&latency("a"), sample(start, end, value))]);
    }
    ingest(&store, 1000, &[(&latency("b"), sample(end - MINUTE, end, histogram(&[5.0, 6.0])))]);
    let ask = |name: &str| {
        let grid = TimeGrid { start: begin, step: DAY, columns: 1 };
        let column = columns(&store, name, grid).remove(0);
        (column.value.count(), column.gaps)
    };
    for what in ["in memory", "rolled up"] {
        let (count, gaps) = ask("latency{host=\"a\"}");
        assert!(gaps.iter().any(|gap| gap.reason.contains("2^64")), "{what}: {gaps:?}");
        assert_eq!(count, 150 << 56, "{what}: those of one sender fit");
        assert_eq!(ask("latency{host=\"b\"}").0, 2, "{what}");
        world.set_now(begin + 2 * DAY);
        store.flush().unwrap();
        while store.maintain().unwrap() {}
    }
    assert_eq!(store.stat().unwrap().warnings, Vec::<String>::new());
}
