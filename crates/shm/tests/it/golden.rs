//! A file of version 1 is read the same way for ever, whatever the writer does by now.
//!
//! `testdata/shm/version-1.words` has the nonzero words of a file: an offset of four bytes and a
//! word of eight each.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use expect_test::expect;
use shm::snapshot::{MetricValue, ProcessSeries};
use shm::{MetricBuilder, MetricRole, MetricsFileReader};

use crate::checks::sparse;

fn words() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/shm/version-1.words")
}

fn line(metric: &ProcessSeries) -> String {
    let ProcessSeries { name, labels, unit, help, role, related_metric: link, value } = metric;
    let value = match value {
        MetricValue::Histogram(seen) => format!(
            "{} values, sum {}, from {} to {}, p50 {:?}",
            seen.count(),
            seen.tracked_sum().value().map_or(0.0, |sum| sum.value()),
            seen.tracked_min(),
            seen.tracked_max(),
            seen.quantile(0.5).map(|found| found.estimate.round()),
        ),
        MetricValue::InFlight(table) => {
            let tags = table.operations.iter().map(|one| format!("{} {:?}", one.number, one.tags));
            let (started, ended) = (table.started, table.ended);
            format!("{started} started, {ended} ended, {}", tags.collect::<Vec<_>>().join(", "))
        }
        MetricValue::Heartbeat(beat) => {
            format!("{} beats, one in {} ns", beat.beats, beat.every_ns)
        }
        other => format!("{other:?}"),
    };
    format!("{name} {labels:?} [{unit}] {help:?} {role:?} {link:?}: {value}\n")
}

#[test]
fn version_1_is_read() {
    let dir = std::env::temp_dir().join(format!("topdeck-golden-{}.tdk", std::process::id()));
    sparse(&dir, &std::fs::read(words()).expect("the golden file"), 2);
    let mut all = Vec::new();
    for attach in [MetricsFileReader::attach, MetricsFileReader::attach_copy] {
        let mut reader = attach(&dir).expect("it is read");
        let metrics = reader.metrics().expect("metrics");
        all.push(metrics.iter().map(line).collect::<String>());
        assert!(reader.process().has_exited);
    }
    let _ = std::fs::remove_file(&dir);
    assert_eq!(all[0], all[1]);
    expect![[r#"
        answered_total [("route", "home")] [] "Answers." Other None: Counter(Unsigned(42))
        connections [] [] "" Other None: Gauge(Signed(-3))
        pool_size [] [1] "" Capacity None: Gauge(Signed(16))
        pool_used [] [1] "" Usage Some(2): Gauge(Signed(12))
        load [] [] "" Other None: Gauge(Float(0.75))
        version [] [] "" Other None: Text("1.2.3 – größer")
        answer_duration [] [ns] "" Timing None: 7 values, sum 18446744074710553000, from 0 to 18446744073709552000, p50 Some(991.0)
        work [] [] "" Other None: 3 started, 1 ended, 1 [("device", "sda"), ("operation", "read")], 3 [("device", "sda"), ("operation", "read")]
        alive [] [] "" Other None: 1 beats, one in 1000000000 ns
    "#]].assert_eq(&all[0]);
}

#[test]
fn golden_child() {
    if !std::env::var("TOPDECK_SHM_TEST_ROLE").is_ok_and(|asked| asked == "golden") {
        return;
    }
    let of = |name: &str| MetricBuilder::new(name);
    of("answered_total").help("Answers.").label("route", "home").counter().expect("room").add(42);
    of("connections").up_down_counter().expect("room").add(-3);
    let capacity = of("pool_size").unit("1").role(MetricRole::Capacity).gauge().expect("room");
    capacity.set(16);
    let used = of("pool_used").unit("1").role(MetricRole::Usage).related_to(&capacity).gauge();
    used.expect("room").set(12);
    of("load").float_gauge().expect("room").set(0.75);
    of("version").text().expect("room").set("1.2.3 – größer");
    let took = of("answer_duration").unit("ns").role(MetricRole::Timing).histogram().expect("room");
    for value in [0, 1, 2, 1_000, 1_000_000, 1_000_000_000, u64::MAX] {
        took.record(value);
    }
    let work = of("work").in_flight(&["device", "operation"]).expect("room");
    let tag = |text: &str| shm::Tag::new(text).expect("room");
    for (number, device) in [(1, "sda"), (2, "sdb"), (3, "sda")] {
        let begun = work.begin(number, &[tag(device), tag("read")]);
        if number != 2 {
            std::mem::forget(begun);
        }
    }
    of("alive").heartbeat(1_000_000_000).expect("room").beat();
}

/// Writes the golden file: only for a new version of the format.
#[test]
#[ignore = "writes testdata/shm; for another version of the format"]
fn write_golden() {
    let dir = PathBuf::from(format!("/dev/shm/topdeck-golden-{}", std::process::id()));
    let _ = std::fs::create_dir(&dir);
    let status = std::process::Command::new(std::env::current_exe().expect("this program"))
        // The command line is in the file; it must not contain the path of the build.
        .arg0("it")
        .args(["--exact", "golden::golden_child", "--test-threads=1"])
        .env("TOPDECK_SHM_TEST_ROLE", "golden")
        .env(shm::ENV_VARIABLE, &dir)
        .status();
    assert!(status.expect("a child").success());
    let path = std::fs::read_dir(&dir).expect("the directory").next().expect("a file").expect("it");
    let file = std::fs::File::open(path.path()).expect("the file");
    let bytes = file.metadata().expect("its length").len();
    let mut words = Vec::new();
    let mut block = vec![0; 1 << 20];
    for start in (0..bytes).step_by(block.len()) {
        use std::os::unix::fs::FileExt as _;
        let read = file.read_at(&mut block, start).expect("it can be read");
        for (at, word) in block[..read].chunks(8).enumerate() {
            if word.iter().any(|&byte| byte != 0) {
                words.extend(((start + at as u64 * 8) as u32).to_le_bytes());
                words.extend(word);
            }
        }
    }
    std::fs::create_dir_all(words_dir()).expect("testdata/shm");
    std::fs::write(self::words(), words).expect("the golden file");
    let _ = std::fs::remove_dir_all(&dir);
}

fn words_dir() -> PathBuf {
    words().parent().expect("a directory").to_owned()
}
