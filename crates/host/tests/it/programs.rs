//! Metrics that programs record into shared memory are complete and counted once, across kills and
//! restarts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use host::Settings;
use model::SampleValue;

use crate::recording_program::{MemoryDir, NAME, READY, RecordingProgram};
use crate::{HostFixture, JournalContents, only, unlimited, wait};

/// Directory of the journal of a collector in a process of its own.
const COLLECTOR: &str = "TOPDECK_HOST_IT_COLLECTOR";

fn frequent_settings() -> Settings {
    settings("shm_short_lived = '1ns'")
}

fn settings(keys: &str) -> Settings {
    only(&format!("shm_metrics = true\nshm_scrape_interval = '100ms'\n{keys}"))
}

/// Sum of the samples of a counter, as the store computes it: a cumulative sample with a start
/// time after the previous sample counts whole. By the label `generation`.
fn counter_totals(
    told: &JournalContents,
    name: &str,
    process: &str,
    of: impl Fn(&SampleValue) -> f64,
) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut before: BTreeMap<String, (i64, f64)> = BTreeMap::new();
    for (series, sample) in told.series(name, &[("process", process)]) {
        assert!(!series.to_string().contains("pid"), "{series} has a label that never ends");
        let (key, now) = (series.to_string(), of(&sample.value));
        let generation = series.label("generation").unwrap().to_owned();
        if now.is_nan() {
            // The marker of a series that has ended.
            continue;
        }
        assert!(sample.start < sample.end, "{key}: it does not say since when");
        let last = match series.kind().is_cumulative() {
            true => before.insert(key.clone(), (sample.end, now)),
            false => None,
        };
        let grown = match last {
            Some((end, last)) if sample.start < end => {
                // The same scrape by another collector is the same row.
                assert!(
                    (sample.end > end || now == last) && now >= last,
                    "{key}: {sample:?} after {end} {last}"
                );
                now - last
            }
            _ => now,
        };
        *sums.entry(generation).or_default() += grown;
    }
    sums
}

fn number(value: &SampleValue) -> f64 {
    match value {
        SampleValue::Number(number) => *number,
        SampleValue::Histogram(histogram) => histogram.count() as f64,
        SampleValue::Text(_) => panic!("a text"),
    }
}

/// Compares the sum of all generations, of counters and of distributions. Returns the sums.
#[track_caller]
fn check(place: &HostFixture, memory: &MemoryDir, truth: f64) -> BTreeMap<String, f64> {
    let told = place.contents();
    let [counted, took] = ["total", "took"].map(|what| {
        let found = counter_totals(&told, &format!("{NAME}_{what}"), memory.name(), number);
        assert_eq!(found.values().sum::<f64>(), truth, "{what}: {found:?}");
        found
    });
    assert_eq!(counted, took);
    counted
}

#[test]
fn killed_program_loses_and_repeats_nothing() {
    let Some(memory) = MemoryDir::new() else { return };
    let place = HostFixture::new(unlimited(), Duration::from_secs(1));
    // Started before the collector.
    let mut early = RecordingProgram::start(&memory);
    early.record(200);
    let host = place.start(frequent_settings());
    early.record(7);
    let mut killed = RecordingProgram::start(&memory);
    killed.record(150);
    let of = [("process", memory.name()), ("generation", "2")];
    wait("it is told of", || place.contents().series(&format!("{NAME}_total"), &of).count() > 0);
    killed.record(31);
    killed.kill();
    // Restarted, and exited before a scrape.
    let mut short = RecordingProgram::start(&memory);
    short.record(3);
    short.end();
    host.stop().unwrap();
    // Records while no collector runs.
    early.record(11);
    let mut unseen = RecordingProgram::start(&memory);
    unseen.record(250);
    unseen.kill();
    let host = place.start(frequent_settings());
    early.record(1);
    host.stop().unwrap();
    let truth = (219 + 181 + 3 + 250).into();
    let sums = check(&place, &memory, truth);
    assert!(sums.len() <= 3, "the fourth process has a free generation: {sums:?}");
    assert_eq!(sums["1"], 219.0);
    // Another collector reports the dead program again, which counts nothing.
    place.start(frequent_settings()).stop().unwrap();
    check(&place, &memory, truth);
    early.end();
}

/// A user saw a series per run of each command that a build starts, kept for ever.
#[test]
fn short_lived_programs_are_summed_under_their_name() {
    let Some(memory) = MemoryDir::new() else { return };
    let place = HostFixture::new(unlimited(), Duration::from_secs(1));
    let settings = || settings("shm_short_lived = '5m'");
    let (mut truth, mut count) = (0.0, 0.0);
    for round in 0..3 {
        let host = place.start(settings());
        for run in 0..4 {
            let mut program = RecordingProgram::start(&memory);
            program.record(10 * round + run);
            (truth, count) = (truth + f64::from(10 * round + run), count + 1.0);
            match run % 2 {
                0 => program.kill(),
                _ => program.end(),
            }
        }
        host.stop().unwrap();
        let sums = check(&place, &memory, truth);
        assert_eq!(sums.into_keys().collect::<Vec<_>>(), ["short"]);
    }
    let told = place.contents();
    let of = [("process", memory.name()), ("generation", "short")];
    let summed = told.series("process_summed_total", &of).map(|row| number(&row.1.value));
    assert_eq!(summed.sum::<f64>(), count);
    let started = told.series("process_operations_started_total", &of);
    assert_eq!(started.map(|row| number(&row.1.value)).sum::<f64>(), truth + count);
    let ends: Vec<_> = told.series("process_exit_info", &of).collect();
    assert!(!ends.is_empty() && ends.iter().all(|row| {
        matches!(&row.1.value, SampleValue::Text(text) if text.contains("1 operation in flight"))
    }));
    assert_eq!(told.series(&format!("{NAME}_many"), &of).count(), 0, "gauges are not added up");
}

/// An idle host had the source "programs" as absent, in red, although nothing was left to read.
#[test]
fn source_of_programs_is_not_absent_when_no_program_is_left() {
    let Some(memory) = MemoryDir::new() else { return };
    let place = HostFixture::new(unlimited(), Duration::from_secs(1));
    let host = place.start(frequent_settings());
    let is_listed = |name: &str| place.intake.sources().iter().any(|source| source.name == name);
    let mut program = RecordingProgram::start(&memory);
    wait("it is a source", || is_listed("programs"));
    program.record(3);
    program.end();
    let programs = || {
        let (files, _) = shm::list_metrics_files();
        files.iter().filter(|file| matches!(file.state, shm::ProcessState::Running { .. })).count()
    };
    // Other tests have programs, too.
    let is_over = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        !is_listed("programs")
    });
    if !is_over && programs() > 0 {
        println!("skipped: other programs of this host record into shared memory");
    } else {
        assert!(is_over, "no program is left, and the source is still expected to send");
    }
    host.stop().unwrap();
}

/// It was absent when no program had exited for a while.
#[test]
fn source_of_exited_programs_is_not_expected_to_send_again() {
    let Some(memory) = MemoryDir::new() else { return };
    let place = HostFixture::new(unlimited(), Duration::from_secs(1));
    let host = place.start(settings("shm_short_lived = '5m'"));
    let mut program = RecordingProgram::start(&memory);
    program.record(3);
    program.end();
    let of = [("process", memory.name()), ("generation", "short")];
    wait("it is summed", || place.contents().series("process_summed_total", &of).count() > 0);
    host.stop().unwrap();
    let names: Vec<String> = place.intake.sources().into_iter().map(|one| one.name).collect();
    assert!(!names.iter().any(|name| name == "programs that exited"), "{names:?}");
}

/// A user lost the final values of some programs at a stop: those of one scrape did not fit in one
/// batch.
#[test]
fn sums_of_one_reading_may_take_several_batches() {
    let Some(memory) = MemoryDir::new() else { return };
    let place = HostFixture::single_reading();
    for number in 1..=3 {
        let mut program = RecordingProgram::start_as(&format!("wide {number}"), &memory);
        program.record(number);
        program.end();
    }
    place.start(settings("shm_short_lived = '5m'")).stop().unwrap();
    let sums = check(&place, &memory, 6.0);
    assert_eq!(sums.into_keys().collect::<Vec<_>>(), ["short"]);
    let told = place.contents();
    let name = format!("{NAME}_wide_total");
    let wide = told.series(&name, &[("generation", "short")]);
    assert_eq!(wide.map(|row| number(&row.1.value)).sum::<f64>(), 120.0);
}

#[test]
fn programs_above_the_limit_of_generations_are_summed_as_other() {
    let Some(memory) = MemoryDir::new() else { return };
    let place = HostFixture::new(unlimited(), Duration::from_secs(1));
    let settings = settings("shm_short_lived = '1ns'\nshm_generations = 1");
    let mut first = RecordingProgram::start(&memory);
    first.record(1);
    let host = place.start(settings);
    let of = |generation| [("process", memory.name()), ("generation", generation)];
    let above = || place.contents().number("process_above_limit", &of("other"));
    let has_rows = |generation, value| {
        let name = format!("{NAME}_total");
        let told = place.contents();
        told.series(&name, &of(generation)).any(|row| number(&row.1.value) == value)
    };
    wait("it holds the generation", || has_rows("1", 1.0));
    let mut second = RecordingProgram::start(&memory);
    second.record(20);
    wait("one is above the limit", || above() == Some(1.0));
    let warnings = [("collector", "shm")];
    let warned = place.contents().series("host_collector_warning", &warnings).any(|row| {
        let expected = "generations limit (1) reached";
        matches!(&row.1.value, SampleValue::Text(text) if text.contains(expected)
            && text.contains(memory.name()))
    });
    assert!(warned);
    second.kill();
    wait("it is added to the others", || has_rows("other", 20.0));
    let mut third = RecordingProgram::start(&memory);
    third.record(200);
    wait("one is above the limit again", || above() == Some(1.0));
    first.end();
    // All that it has counted counts, though the generation was not free then.
    wait("the third has the generation", || has_rows("1", 200.0));
    wait("none is above the limit", || above() == Some(0.0));
    host.stop().unwrap();
    let sums = check(&place, &memory, 221.0);
    assert_eq!(sums, BTreeMap::from([("1".to_owned(), 201.0), ("other".to_owned(), 20.0)]));
    third.end();
}

/// A collector in a process of its own.
#[test]
#[ignore = "a program that another test starts"]
fn collector() {
    let Some(directory) = std::env::var_os(COLLECTOR) else { return };
    let place = HostFixture::open(directory.into(), Duration::from_millis(300));
    let _host = place.start(settings("shm_short_lived = '150ms'\nshm_generations = 2"));
    println!("\n{READY}");
    // Until it is killed.
    let _ = std::io::stdin().lock().bytes().next();
    std::process::exit(1);
}

/// A user lost counts, or saw them twice, after `kill -9` of topdeck.
#[test]
fn killed_collector_loses_and_repeats_nothing() {
    let Some(memory) = MemoryDir::new() else { return };
    let place = HostFixture::new(unlimited(), Duration::from_millis(300));
    let dir = place.close();
    let mut early = RecordingProgram::start(&memory);
    let mut truth = 0.0;
    let mut others: Vec<RecordingProgram> = Vec::new();
    for round in 0..10_u8 {
        let mut collector = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "programs::collector", "--ignored", "--nocapture"])
            .env(COLLECTOR, &dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(collector.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.starts_with(READY)), "no collector");
        for run in 0..3 {
            let mut program = RecordingProgram::start(&memory);
            program.record(round + run);
            early.record(1);
            truth += f64::from(round + run + 1);
            match (round + run) % 4 {
                0 => program.kill(),
                1 => program.end(),
                _ => others.push(program),
            }
        }
        if round % 3 == 2 {
            others.drain(..2).for_each(RecordingProgram::kill);
        }
        // At another point of the scrape each time.
        std::thread::sleep(Duration::from_millis(u64::from(round) * 37));
        collector.kill().unwrap();
        collector.wait().unwrap();
    }
    others.into_iter().for_each(RecordingProgram::kill);
    let place = HostFixture::open(dir, Duration::from_millis(300));
    let host = place.start(settings("shm_short_lived = '150ms'\nshm_generations = 2"));
    let total = || {
        let told = place.contents();
        let found = counter_totals(&told, &format!("{NAME}_total"), memory.name(), number);
        found.values().sum::<f64>()
    };
    wait("all that exited is told of", || total() >= truth);
    host.stop().unwrap();
    let sums = check(&place, &memory, truth);
    assert!(sums.keys().all(|share| ["1", "2", "short", "other"].contains(&&**share)), "{sums:?}");
    early.end();
}

#[test]
fn names_labels_texts_and_in_flight_are_read() {
    let Some(memory) = MemoryDir::new() else { return };
    let place = HostFixture::single_reading();
    let mut program = RecordingProgram::start(&memory);
    program.record(5);
    let mut other = RecordingProgram::start(&memory);
    let of = [("process", memory.name()), ("generation", "1"), ("host", "box")];
    let stuck_since_ns = program.stuck_since_ns;
    let age_s = || (clock::now() - stuck_since_ns) as f64 / 1e9;
    let least_s = age_s();
    place.start(frequent_settings()).stop().unwrap();
    // Tolerance between the clocks of two processes.
    let ages_s = least_s - 0.001..=age_s() + 0.001;
    let told = place.contents();
    let (series, sample) = told.series(&format!("{NAME}_total"), &of).next().unwrap();
    assert_eq!(series.label("exported_host"), Some("theirs"));
    assert_eq!(series.label("kind"), Some("a"));
    assert_eq!(sample.value, SampleValue::Number(5.0));
    let (series, sample) = told.series(&format!("{NAME}_took"), &of).next().unwrap();
    assert_eq!((series.unit(), number(&sample.value)), ("ns", 5.0));
    assert_eq!(told.series(&format!("{NAME}_many"), &of).count(), 300);
    let texts: Vec<_> = told.series(&format!("{NAME}_text"), &of).map(|row| &row.1.value).collect();
    assert_eq!(texts, [&SampleValue::Text("first".to_owned())]);
    let operation = format!("{NAME}_work");
    let work = [of[0], of[1], ("operation", &*operation), ("device", "sda")];
    // In exactly one of the ages.
    let stuck = [("0s-1s", 0.0), ("1s-10s", 1.0), ("10s-60s", 10.0), ("60s+", 60.0)];
    let stuck = stuck.map(|(age, from_s)| {
        let found = told.number("process_in_flight", &[&work[..], &[("age", age)]].concat());
        (from_s, found.unwrap_or(0.0))
    });
    assert_eq!(stuck.iter().map(|(_, found)| found).sum::<f64>(), 1.0, "{stuck:?}");
    let from_s = stuck.iter().find(|(_, found)| *found == 1.0).unwrap().0;
    let to_s = stuck.iter().map(|one| one.0).find(|next| *next > from_s).unwrap_or(f64::MAX);
    assert!(*ages_s.end() >= from_s && *ages_s.start() < to_s, "{stuck:?} {ages_s:?}");
    assert_eq!(told.number("process_operations_started_total", &work[..3]), Some(6.0));
    assert_eq!(told.number("process_operations_finished_total", &work[..3]), Some(5.0));
    let oldest = told.number("process_in_flight_oldest_seconds", &work[..3]).unwrap();
    assert!(ages_s.contains(&oldest), "{oldest} {ages_s:?}");
    assert_eq!(told.number("process_up", &of), Some(1.0));
    // The exit is reported.
    program.kill();
    place.start(frequent_settings()).stop().unwrap();
    let told = place.contents();
    assert_eq!(told.number("process_up", &of), Some(0.0));
    let SampleValue::Text(end) = &told.series("process_exit_info", &of).next().unwrap().1.value
    else {
        panic!()
    };
    let said_s = end.strip_prefix("terminated with 1 operation in flight for ").expect(end);
    let said_s: f64 = said_s.strip_suffix(" s").expect(end).parse().unwrap();
    assert!((*ages_s.start()..=age_s() + 0.001).contains(&said_s), "{end} {ages_s:?}");
    // This process itself is not reported, nor are processes without metrics.
    let own = std::env::current_exe().unwrap();
    let own = own.file_name().unwrap().to_str().unwrap();
    assert_eq!(told.series("process_up", &[("process", own)]).count(), 0);
    other.record(0);
    other.end();
}

/// A user saw the metrics of each topdeck on the host twice: its own rows, and those of the others.
#[test]
fn metrics_of_other_topdecks_are_collected_only_if_asked() {
    let (Some(memory), Some(other_memory)) = (MemoryDir::new(), MemoryDir::new()) else {
        return;
    };
    let mut topdeck = RecordingProgram::start_as("topdeck", &memory);
    let mut other = RecordingProgram::start(&other_memory);
    topdeck.record(1);
    other.record(1);
    let rows = |keys: &str, memory: &MemoryDir| {
        let place = HostFixture::single_reading();
        let keys = format!("shm_metrics = true\nshm_short_lived = '1ns'\n{keys}");
        place.start(only(&keys)).stop().unwrap();
        place.contents().series("process_up", &[("process", memory.name())]).count()
    };
    assert_eq!(rows("", &memory), 0);
    assert!(rows("", &other_memory) > 0);
    assert!(rows("shm_other_topdecks = true", &memory) > 0);
    topdeck.end();
    other.end();
}

#[test]
fn unchanged_series_are_refreshed() {
    let Some(memory) = MemoryDir::new() else { return };
    let place = HostFixture::new(unlimited(), Duration::from_secs(365 * 86_400));
    let program = RecordingProgram::start(&memory);
    let host = place.start(frequent_settings());
    let scrapes = |told: &JournalContents| {
        told.series("process_in_flight_oldest_seconds", &[("process", memory.name())]).count()
    };
    wait("five scrapes", || scrapes(&place.contents()) >= 5);
    host.stop().unwrap();
    // The age of the stuck operation changes each time; a count of 0 does not.
    let told = place.contents();
    let of = [("process", memory.name())];
    assert_eq!(told.series(&format!("{NAME}_total"), &of).count(), 1);
    program.end();
}

#[test]
fn invalid_file_is_reported_and_skipped() {
    let Some(memory) = MemoryDir::new() else { return };
    let path = memory.path.join(format!("1-{}.tdk", std::process::id()));
    fs::write(&path, vec![7; 10_000]).unwrap();
    let place = HostFixture::single_reading();
    let mut program = RecordingProgram::start(&memory);
    program.record(9);
    place.start(frequent_settings()).stop().unwrap();
    fs::remove_file(&path).unwrap();
    let told = place.contents();
    let of = [("process", memory.name())];
    assert_eq!(told.number(&format!("{NAME}_total"), &of), Some(9.0));
    let name = path.to_string_lossy().into_owned();
    let notes = told.series("host_collector_warning", &[("collector", "shm")]);
    let said =
        notes.filter(|row| matches!(&row.1.value, SampleValue::Text(text) if text.contains(&name)));
    assert_eq!(said.count(), 1);
    program.end();
}
