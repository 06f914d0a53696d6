//! Stores of every released version are readable. `write_golden` created the snapshots under
//! `testdata/store/`; recreating those of the current version is allowed only before it is
//! released.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, OpenMode};
use hist::codec::header::Temporality;
use journal::BatchIdentity;
use model::{BatchWriter, Gap, Sample, SampleValue, Selector, Series, SeriesKind};
use sim::SimDisk;
use store::layout::{CHUNK_MAGIC, PART_HEADER_BYTES};
use store::{
    DAY, Error, HOUR, MINUTE, NumberAggregate, Resolution, RetentionRule, SECOND, Store, TimeGrid,
};

use crate::fixture::{
    StoreFixture, columns, histogram, identity, ingest, latency, sample, settings,
};

/// The closed day; the next has an hour and is rolled up with it, because cumulative values start
/// in the day before.
const START: i64 = 19_700 * DAY;
/// Samples of a host at the start of the day, frequent enough for a rollup of minutes.
const QUICK: i64 = 20;
const QUICK_STEP: i64 = 30 * SECOND;
/// Samples of the day, and one of the next.
const HOURS: i64 = 25;

/// Version 1 in its first form, and since chunks record predecessors; versions 2 and 3.
const DIRS: [&str; 4] = ["v1", "v1-predecessors", "v2", "v3"];

/// Second producer of the texts, in version 3.
const OTHER_PRODUCER: u64 = 8;

fn dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/store").join(name)
}

fn series(name: &str, kind: SeriesKind) -> Series {
    Series::new(name, kind).with_label("host", "a").validate().unwrap()
}

fn total() -> Series {
    series("total", SeriesKind::Histogram(Temporality::Cumulative))
}

fn requests() -> Series {
    series("requests", SeriesKind::Counter(Temporality::Cumulative))
}

fn hits() -> Series {
    series("hits", SeriesKind::Counter(Temporality::Delta))
}

fn load() -> Series {
    series("load", SeriesKind::Gauge)
}

fn release() -> Series {
    series("release", SeriesKind::Text)
}

/// Values recorded at the end of an hour, except texts.
fn hour_ends(hour: i64) -> i64 {
    START + (hour + 1) * HOUR
}

fn latencies(hour: i64) -> [f64; 2] {
    [100.0 * hour as f64 + 50.0, 7.0]
}

fn totals(hour: i64) -> Vec<f64> {
    (0..=hour).map(|hour| 3.0 * hour as f64 + 1.0).collect()
}

fn texts() -> [(i64, &'static str); 3] {
    [(5, "1.2.3"), (6, "1.2.4 \u{e9}"), (24, "")].map(|(hour, text)| (hour_ends(hour), text))
}

fn gap() -> Gap {
    let start = START + 2 * HOUR;
    let reason = "the producer's queue was full".to_owned();
    Gap { start, end: start + MINUTE, producer: Some(7), lost: Some(3), reason }
}

fn filled_store(world: &StoreFixture) -> Store {
    world.set_now(START);
    let store = world.open().unwrap();
    for at in 0..QUICK {
        let (start, end) = (START + at * QUICK_STEP, START + (at + 1) * QUICK_STEP);
        let value = histogram(&[at as f64 + 1.0]);
        ingest(&store, at as u64, &[(&latency("b"), sample(start, end, value))]);
    }
    for hour in 0..HOURS {
        let end = hour_ends(hour);
        let rows = [
            (&latency("a"), sample(end - MINUTE, end, histogram(&latencies(hour)))),
            (&total(), sample(START, end, histogram(&totals(hour)))),
            (&requests(), sample(START, end, (hour + 1) as f64 * 10.0)),
            (&hits(), sample(end - HOUR, end, hour as f64 + 0.5)),
            (&load(), sample(end, end, hour as f64 - 12.0)),
        ];
        ingest(&store, 100 + hour as u64, &rows);
    }
    let (first, others) = texts().split_first().map(|(&a, rest)| (vec![a], rest.to_vec())).unwrap();
    for (texts, producer) in [(first, identity(200).producer), (others, OTHER_PRODUCER)] {
        let mut batch = BatchWriter::default();
        batch.series(&release());
        for (end, text) in texts {
            batch.sample(&sample(end, end, text)).unwrap();
        }
        batch.gap(gap());
        let identity = BatchIdentity { producer, ..identity(200) };
        let _ack = store.ingest(Some(identity), &batch.finish(), journal::Level::Disk).unwrap();
    }
    store.flush().unwrap();
    world.set_now(START + DAY + 2 * HOUR);
    store.maintain().unwrap();
    store
}

#[test]
#[ignore = "writes the newest directory, which is right only before it has been in anybody's hands"]
fn write_golden() {
    let disk = SimDisk::new(1);
    let world = StoreFixture::on_disk(Arc::new(disk.process()));
    let store = filled_store(&world);
    // Minute rollups of one series are dropped, those of others stay.
    let selector = Selector::parse(r#"latency{host="b"}"#).unwrap();
    let rule = RetentionRule { resolution: Resolution::Minute, duration: Some(HOUR), selector };
    store.set_retention(vec![rule]).unwrap();
    while store.maintain().unwrap() {}
    store.snapshot(&world.disk, Path::new("/snapshot")).unwrap();
    let dir = dir(DIRS[DIRS.len() - 1]);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("parts")).unwrap();
    for (path, _) in disk.files() {
        // The copy of the manifest equals the manifest, and the lock is empty.
        match path.strip_prefix("/snapshot") {
            Ok(name) if !name.ends_with("manifest.copy") && !name.ends_with("lock") => {
                std::fs::write(dir.join(name), disk.contents(&path).unwrap()).unwrap();
            }
            _ => {}
        }
    }
}

/// Files by name in the directory.
type GoldenFiles = Vec<(PathBuf, Vec<u8>)>;

fn golden() -> GoldenFiles {
    golden_of(DIRS[0])
}

fn golden_of(name: &str) -> GoldenFiles {
    let dir = dir(name);
    let mut files = Vec::new();
    for name in ["manifest", "series"] {
        files.push((name.into(), std::fs::read(dir.join(name)).unwrap()));
    }
    for entry in std::fs::read_dir(dir.join("parts")).unwrap() {
        let path = entry.unwrap().path();
        files.push((
            Path::new("parts").join(path.file_name().unwrap()),
            std::fs::read(path).unwrap(),
        ));
    }
    files.sort();
    files
}

/// Restores a store from these files.
fn restore_store(files: &GoldenFiles) -> store::Result<(StoreFixture, Store)> {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
    disk.create_dir(Path::new("/golden/parts")).unwrap();
    for (name, bytes) in files {
        let file = disk.open(&Path::new("/golden").join(name), OpenMode::CreateNew).unwrap();
        file.write_all_at(bytes, 0).unwrap();
    }
    let world = StoreFixture::on_disk(disk);
    world.set_now(START + DAY + 2 * HOUR);
    Store::restore(&world.disk, Path::new("/golden"), Path::new("/restored"), &settings())?;
    let store = world.open_at("/restored")?;
    Ok((world, store))
}

fn samples(store: &Store, series: &Series) -> Vec<Sample> {
    let view = store.view().unwrap();
    let found = view.select(&Selector::parse(&series.to_string()).unwrap());
    assert_eq!(found.len(), 1, "{series}");
    assert_eq!(*found[0].series, *series);
    let mut samples = Vec::new();
    let range = START..START + 2 * DAY;
    let gaps = view.samples(&found[0], range, &mut |sample| samples.push(sample)).unwrap();
    assert_eq!(gaps, [gap()], "{series}");
    samples
}

fn by_hour(value: impl Fn(i64) -> f64) -> Vec<(i64, SampleValue)> {
    (0..HOURS).map(|hour| (hour_ends(hour), SampleValue::Number(value(hour)))).collect()
}

fn ends(samples: Vec<Sample>) -> Vec<(i64, SampleValue)> {
    samples.into_iter().map(|sample| (sample.end, sample.value)).collect()
}

#[test]
fn samples_of_every_version_are_read() {
    DIRS.iter().for_each(|name| check_samples(name));
}

fn check_samples(dir: &str) {
    let (_world, store) = restore_store(&golden_of(dir)).unwrap();
    let report = store.verify(None, &mut |_| {}).unwrap();
    assert_eq!((report.damage, store.stat().unwrap().warnings), (vec![], vec![]));
    let parts = store.stat().unwrap().parts;
    for resolution in Resolution::ALL {
        assert!(parts.iter().any(|part| part.resolution == resolution), "{resolution}");
    }

    let distribution = |values: &[f64]| SampleValue::Histogram(Box::new(histogram(values)));
    let expected: Vec<_> =
        (0..HOURS).map(|hour| (hour_ends(hour), distribution(&latencies(hour)))).collect();
    assert_eq!(ends(samples(&store, &latency("a"))), expected);
    let quick = |at| (START + (at + 1) * QUICK_STEP, distribution(&[at as f64 + 1.0]));
    assert_eq!(ends(samples(&store, &latency("b"))), (0..QUICK).map(quick).collect::<Vec<_>>());
    let expected: Vec<_> =
        (0..HOURS).map(|hour| (hour_ends(hour), distribution(&totals(hour)))).collect();
    assert_eq!(ends(samples(&store, &total())), expected);
    assert_eq!(ends(samples(&store, &requests())), by_hour(|hour| (hour + 1) as f64 * 10.0));
    assert_eq!(ends(samples(&store, &hits())), by_hour(|hour| hour as f64 + 0.5));
    assert_eq!(ends(samples(&store, &load())), by_hour(|hour| hour as f64 - 12.0));
    let expected = texts().map(|(end, text)| (end, SampleValue::Text(text.to_owned())));
    assert_eq!(ends(samples(&store, &release())), expected);
    assert!(samples(&store, &requests()).iter().all(|sample| sample.start == START));
}

fn numbers(store: &Store, series: &Series, grid: TimeGrid) -> Vec<Option<NumberAggregate>> {
    let view = store.view().unwrap();
    let found = view.select(&Selector::parse(series.name()).unwrap());
    let columns = view.numbers(&found, grid).unwrap();
    columns.map(|column| column.unwrap().value).collect()
}

/// Hours in a column of a grid.
fn hours(grid: TimeGrid, column: u64) -> impl Iterator<Item = i64> + Clone {
    let range = grid.column(column);
    (0..HOURS).filter(move |&hour| range.contains(&(hour_ends(hour) - 1)))
}

/// Each step is answered from another resolution, the last from the base.
#[test]
fn rollups_of_every_version_are_read() {
    DIRS.iter().for_each(|name| check_rollups(name));
}

fn check_rollups(dir: &str) {
    let (_world, store) = restore_store(&golden_of(dir)).unwrap();
    for step in [DAY, HOUR, 5 * MINUTE, MINUTE, 30 * SECOND] {
        let grid =
            TimeGrid { start: START, step, columns: ((DAY + HOUR) as u64).div_ceil(step as u64) };
        let (latencies_found, totals_found) =
            (columns(&store, "latency", grid), columns(&store, "total", grid));
        let [requests, hits, load] =
            [requests(), hits(), load()].map(|series| numbers(&store, &series, grid));
        for column in 0..grid.columns {
            let (at, range) = (column as usize, grid.column(column));
            let hours = hours(grid, column);
            let quick = (0..QUICK)
                .filter(|at| range.contains(&(START + (at + 1) * QUICK_STEP - 1)))
                .map(|at| at as f64 + 1.0);
            let expected: Vec<f64> = quick.chain(hours.clone().flat_map(latencies)).collect();
            let found = &latencies_found[at];
            let context = format!("{dir}: columns of {step} ns, the one of {}", range.start);
            assert_eq!(found.value.count(), expected.len() as u64, "{context}");
            assert_eq!(found.value.sum().estimate, expected.iter().sum::<f64>(), "{context}");
            let is_in_gap = gap().start < range.end && range.start < gap().end;
            assert_eq!(found.gaps, Vec::from_iter(is_in_gap.then(gap)), "{context}");

            let expected: Vec<f64> = hours.clone().map(|hour| 3.0 * hour as f64 + 1.0).collect();
            assert_eq!(totals_found[at].value.count(), expected.len() as u64, "{context}");
            let sum =
                |found: &Option<NumberAggregate>| found.map_or(0.0, |found| found.sum.value());
            assert_eq!(sum(&requests[at]), hours.clone().count() as f64 * 10.0, "{context}");
            let expected: f64 = hours.clone().map(|hour| hour as f64 + 0.5).sum();
            assert_eq!(sum(&hits[at]), expected, "{context}");
            let expected: Vec<f64> = hours.map(|hour| hour as f64 - 12.0).collect();
            let found = load[at].map(|found| {
                let NumberAggregate { count, nan, sum, min, max, first, last } = found;
                (count, nan, sum.value(), [min, max, first, last])
            });
            let expected = expected.first().zip(expected.last()).map(|(&first, &last)| {
                let count = expected.len() as u64;
                (count, 0, expected.iter().sum::<f64>(), [first, last, first, last])
            });
            assert_eq!(found, expected, "{context}");
        }
    }
}

/// The newest golden store has no minute rollups of one series.
#[test]
fn a_manifest_of_version_2_says_of_which_parts_a_rule_dropped_rows() {
    let (_world, store) = restore_store(&golden_of("v2")).unwrap();
    let parts = store.stat().unwrap().parts;
    let dropped = parts.iter().filter(|part| part.has_dropped_series);
    let dropped: Vec<Resolution> = dropped.map(|part| part.resolution).collect();
    assert_eq!(dropped, [Resolution::Minute]);
}

/// Changes the bytes of the first base part.
fn with_part(change: impl Fn(&mut Vec<u8>)) -> GoldenFiles {
    let mut files = golden();
    let part = files.iter_mut().find(|(name, _)| name.starts_with("parts"));
    change(&mut part.unwrap().1);
    files
}

/// Up to version 2, all that is known is the producer that a series counts for.
#[test]
fn producers_of_every_version_are_read() {
    for (dir_name, with_gap) in [("v2", vec![]), ("v3", vec!["release"])] {
        let (_world, store) = restore_store(&golden_of(dir_name)).unwrap();
        let mut batch = BatchWriter::default();
        let killed = Gap {
            producer: Some(OTHER_PRODUCER),
            reason: Gap::UNCLEAN_SHUTDOWN.to_owned(),
            ..gap()
        };
        batch.gap(killed.clone());
        let identity = BatchIdentity { producer: 9, ..identity(1) };
        let _ack = store.ingest(Some(identity), &batch.finish(), journal::Level::Disk).unwrap();
        let view = store.view().unwrap();
        let mut found = view.select(&Selector::All);
        let range = START..START + DAY;
        found.retain(|series| view.gaps_of(&[series], &range).contains(&killed));
        let names: Vec<&str> = found.iter().map(|found| found.series.name()).collect();
        assert_eq!(names, with_gap, "{dir_name}");
    }
}

/// Reasons of the gaps of `files`.
fn reasons(files: &GoldenFiles) -> Vec<String> {
    let (_world, store) = restore_store(files).unwrap();
    let damage = store.verify(None, &mut |_| {}).unwrap().damage;
    assert!(damage.iter().any(|damage| damage.rows.is_some()), "{damage:?}");
    let view = store.view().unwrap();
    let mut gaps = Vec::new();
    for found in view.select(&Selector::All) {
        gaps.extend(view.samples(&found, START..START + DAY, &mut |_| {}).unwrap());
    }
    gaps.retain(|found| *found != gap());
    gaps.into_iter().map(|gap| gap.reason).collect()
}

#[test]
fn part_of_another_version_is_rejected() {
    let files = with_part(|bytes| {
        bytes[8] = 2;
        let checksum = crc32c::crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
    });
    let reasons = reasons(&files);
    let expected = "format version 2, supported 1";
    assert!(!reasons.is_empty() && reasons.iter().all(|why| why.contains(expected)), "{reasons:?}");
    assert!(reasons[0].contains(".part"), "{reasons:?}");
}

#[test]
fn chunk_of_another_version_is_rejected() {
    let files = with_part(|bytes| {
        assert!(bytes[PART_HEADER_BYTES..].starts_with(&CHUNK_MAGIC));
        bytes[PART_HEADER_BYTES + 4] = 2;
    });
    let reasons = reasons(&files);
    let expected = "chunk version 2, supported 1";
    assert!(reasons.len() == 1 && reasons[0].contains(expected), "{reasons:?}");
    assert!(reasons[0].contains(".part"), "{reasons:?}");
}

#[test]
fn manifest_of_another_version_is_rejected() {
    let mut files = golden();
    let (_, bytes) = files.iter_mut().find(|(name, _)| name == Path::new("manifest")).unwrap();
    let sound = bytes.clone();
    let text =
        String::from_utf8(bytes.clone()).unwrap().replace("topdeck store 1", "topdeck store 5");
    let body = &text[..text.trim_end().rfind('\n').unwrap() + 1];
    *bytes = format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes())).into_bytes();
    // An older copy beside it does not count: its content may be outdated.
    for copy in [None, Some(sound)] {
        files.retain(|(name, _)| name != Path::new("manifest.copy"));
        files.extend(copy.map(|bytes| ("manifest.copy".into(), bytes)));
        let error = restore_store(&files).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Version { found: 5, supported: 4, .. }), "{error}");
        let expected = "cannot read /golden/manifest: format version 5, supported 4; use a newer \
                        topdeck";
        assert_eq!(error.to_string(), expected);
    }
}
