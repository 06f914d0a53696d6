//! Synthetic and hostile performance data in both byte orders. Data of a real JVM:
//! `tests/it/jvm.rs`.

use std::fmt::Write;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::endian::page;

const PAGE: &str = include_str!("../../../../docs/formats/hsperfdata.md");

/// Builds a file of entries with the layout of `docs/formats/hsperfdata.md`.
struct HsperfBuilder {
    big: bool,
    entries: Vec<Vec<u8>>,
}

impl HsperfBuilder {
    fn new(big: bool) -> Self {
        Self { big, entries: Vec::new() }
    }

    fn number<const N: usize>(&self, mut little: [u8; N]) -> [u8; N] {
        if self.big {
            little.reverse();
        }
        little
    }

    fn entry(&mut self, name: &str, kind: u8, unit: u8, variability: u8, vector: i32, data: &[u8]) {
        let data_offset = (20 + name.len() + 1).next_multiple_of(8);
        let length = (data_offset + data.len()).next_multiple_of(8);
        let mut entry = Vec::new();
        for number in [length as i32, 20, vector] {
            entry.extend(self.number(number.to_le_bytes()));
        }
        entry.extend([kind, 1, unit, variability]);
        entry.extend(self.number((data_offset as i32).to_le_bytes()));
        entry.extend(name.as_bytes());
        entry.resize(data_offset, 0);
        entry.extend(data);
        entry.resize(length, 0);
        self.entries.push(entry);
    }

    fn long(mut self, name: &str, unit: u8, variability: u8, number: i64) -> Self {
        let number = self.number(number.to_le_bytes());
        self.entry(name, b'J', unit, variability, 0, &number);
        self
    }

    fn text(mut self, name: &str, variability: u8, text: &[u8]) -> Self {
        self.entry(name, b'B', 5, variability, text.len() as i32, text);
        self
    }

    fn build(&self) -> Vec<u8> {
        let entries = self.entries.concat();
        let used = 32 + entries.len() as i32;
        let mut file = vec![0xca, 0xfe, 0xc0, 0xc0, u8::from(!self.big), 2, 0, 1];
        for number in [used, 3] {
            file.extend(self.number(number.to_le_bytes()));
        }
        file.extend(self.number(777i64.to_le_bytes()));
        for number in [32, self.entries.len() as i32] {
            file.extend(self.number(number.to_le_bytes()));
        }
        file.extend(entries);
        // The rest of the page is unused.
        file.resize(file.len() + 100, 0);
        file
    }
}

fn sample(big: bool) -> HsperfBuilder {
    HsperfBuilder::new(big)
        .long("sun.os.hrt.frequency", HERTZ, 1, 1_000_000)
        .long("java.cls.loadedClasses", 4, MONOTONIC, 450)
        .long("sun.gc.generation.0.used", BYTES, 3, 4096)
        .long("sun.gc.collector.0.time", TICKS, MONOTONIC, 1_234_567)
        .long("sun.gc.lastEntryTime", TICKS, 3, i64::MAX / 1000 + 1)
        .long("sun.rt.jvmVersion", 1, 1, -5)
        .text("sun.gc.cause", 3, b"No GC\0leftover")
        .text("java.property.java.home", 1, b"/usr/lib/jvm")
}

fn lines(shown: &HsperfSnapshot) -> String {
    let mut text = String::new();
    for metric in &shown.metrics {
        let _ = writeln!(text, "{} {:?} {:?}", metric.name, metric.value, metric.unit);
    }
    let _ = writeln!(text, "refused {}: {:?}", shown.rejected, shown.first_error);
    text
}

#[track_caller]
fn check(bytes: &[u8], expected: Expect) {
    expected.assert_eq(&lines(&parse(bytes).unwrap()));
}

#[test]
fn both_byte_orders_are_read_equally() {
    let shown = parse(&sample(true).build()).unwrap();
    assert_eq!(parse(&sample(false).build()).unwrap(), shown);
    assert_eq!((shown.modified, shown.overflow), (777, 3));
    check(
        &sample(true).build(),
        expect![[r#"
        sun.os.hrt.frequency Gauge(Signed(1000000)) "Hz"
        java.cls.loadedClasses Counter(Signed(450)) ""
        sun.gc.generation.0.used Gauge(Signed(4096)) "By"
        sun.gc.collector.0.time Counter(Signed(1234567000)) "ns"
        sun.gc.lastEntryTime Gauge(Signed(9223372036854776)) "{tick}"
        sun.rt.jvmVersion Gauge(Signed(-5)) ""
        sun.gc.cause Text("No GC") ""
        java.property.java.home Text("/usr/lib/jvm") ""
        refused 0: None
    "#]],
    );
}

#[test]
fn ticks_without_a_frequency_stay_ticks() {
    for frequency in [0, -1, i64::MIN] {
        let file = HsperfBuilder::new(false).long("t", TICKS, MONOTONIC, 7).long(
            "sun.os.hrt.frequency",
            HERTZ,
            1,
            frequency,
        );
        let shown = parse(&file.build()).unwrap();
        assert_eq!(shown.metrics[0].unit, "{tick}");
        assert_eq!(shown.metrics[0].value, MetricValue::Counter(NumericValue::Signed(7)));
    }
}

#[test]
fn ticks_of_linux_are_nanoseconds_to_the_last() {
    let file = HsperfBuilder::new(false).long("t", TICKS, 3, i64::MIN).long(
        "sun.os.hrt.frequency",
        HERTZ,
        1,
        1_000_000_000,
    );
    let shown = parse(&file.build()).unwrap();
    assert_eq!(shown.metrics[0].unit, "ns");
    assert_eq!(shown.metrics[0].value, MetricValue::Gauge(NumericValue::Signed(i64::MIN)));
}

#[track_caller]
fn check_error(change: impl FnOnce(&mut Vec<u8>), again: bool, expected: Expect) {
    let mut bytes = sample(false).build();
    change(&mut bytes);
    let error = parse(&bytes).unwrap_err();
    assert_eq!(error.is_transient(), again, "{error}");
    expected.assert_eq(&error.to_string());
}

#[test]
fn errors_name_the_value_found() {
    check_error(
        |bytes| bytes[0] = 0,
        false,
        expect![
            "not a JVM performance file: starts with [00, fe, c0, c0], expected [ca, fe, c0, c0]"
        ],
    );
    check_error(
        |bytes| bytes[4] = 2,
        false,
        expect!["invalid byte order 2: expected 0 (big) or 1 (little)"],
    );
    check_error(
        |bytes| bytes[5] = 1,
        false,
        expect!["unsupported performance data version 1.0: expected 2.0"],
    );
    check_error(
        |bytes| bytes[6] = 1,
        false,
        expect!["unsupported performance data version 2.1: expected 2.0"],
    );
    check_error(|bytes| bytes[7] = 0, true, expect!["the JVM is not ready; try again"]);
    check_error(|bytes| bytes.fill(0), true, expect!["the JVM is not ready; try again"]);
    check_error(
        |bytes| bytes.truncate(0),
        true,
        expect!["file has 0 bytes, prologue would end at 32; try again"],
    );
    check_error(
        |bytes| bytes.truncate(31),
        true,
        expect!["file has 31 bytes, prologue would end at 32; try again"],
    );
    check_error(
        |bytes| bytes.truncate(100),
        true,
        expect!["file has 100 bytes, entries would end at 480; try again"],
    );
    check_error(|bytes| bytes[31] = 0x80, false, expect!["2147483656 entries, limit 65536"]);
    check_error(
        |bytes| bytes[27] = 0x80,
        true,
        expect!["file has 580 bytes, entries would end at 2147483680; try again"],
    );
}

/// Three entries; the second one is modified.
fn three(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut builder = HsperfBuilder::new(false)
        .long("first", 1, 1, 1)
        .text("second", 3, b"text")
        .long("third", 1, 1, 3);
    change(&mut builder.entries[1]);
    builder.build()
}

#[track_caller]
fn check_second(change: impl FnOnce(&mut Vec<u8>), expected: Expect) {
    check(&three(change), expected);
}

/// The second entry is rejected with this error; the others are read.
#[track_caller]
fn check_rejected(change: impl FnOnce(&mut Vec<u8>), expected: Expect) {
    let shown = parse(&three(change)).unwrap();
    let names: Vec<&str> = shown.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!((&names[..], shown.rejected), (&["first", "third"][..], 1));
    expected.assert_eq(&shown.first_error.unwrap().to_string());
}

#[test]
fn bad_entry_is_skipped() {
    check_rejected(|entry| entry[4] = 19, expect!["entry 1 has no valid name"]);
    check_rejected(|entry| entry[4] = 255, expect!["entry 1 has no valid name"]);
    check_rejected(|entry| entry[20] = 7, expect!["entry 1 has no valid name"]);
    check_rejected(|entry| entry[8] = 200, expect!["entry 1 has no valid text"]);
    check_rejected(|entry| entry[11] = 0xff, expect!["entry 1 has no valid text"]);
    check_rejected(|entry| entry[19] = 0xff, expect!["entry 1 has no valid text"]);
    check_rejected(
        |entry| entry[20..26].copy_from_slice(b"first\0"),
        expect!["1 entries with duplicate names"],
    );
    check_second(
        |entry| entry[12] = b'D',
        expect![[r#"
        first Gauge(Signed(1)) ""
        second Unknown("of a type that HotSpot does not write") ""
        third Gauge(Signed(3)) ""
        refused 0: None
    "#]],
    );
}

#[test]
fn an_entry_that_is_not_filled_in_yet_ends_the_list() {
    check_second(
        |entry| entry.fill(0),
        expect![[r#"
            first Gauge(Signed(1)) ""
            refused 2: Some(Entry { index: 1, length: 0, available: 80 })
        "#]],
    );
    check_second(
        |entry| entry[0] = 19,
        expect![[r#"
            first Gauge(Signed(1)) ""
            refused 2: Some(Entry { index: 1, length: 19, available: 80 })
        "#]],
    );
    check_second(
        |entry| entry[3] = 0xff,
        expect![[r#"
            first Gauge(Signed(1)) ""
            refused 2: Some(Entry { index: 1, length: 4278190120, available: 80 })
        "#]],
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever bytes change, the parser does not panic, and each entry is read or rejected.
    #[test]
    fn mutated_files_do_not_panic(
        big in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        length in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = sample(big).build();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if cut {
            bytes.truncate(length.index(bytes.len()));
        }
        if let Ok(shown) = parse(&bytes) {
            prop_assert_eq!(shown.rejected == 0, shown.first_error.is_none());
        }
    }
}

#[test]
fn page_matches_the_layout() {
    page::check_fields(PAGE, "## Prologue", &layout::PROLOGUE);
    page::check_fields(PAGE, "## Entry", &layout::ENTRY);
    assert!(PAGE.contains(&format!("At most {ENTRIES_MAX} entries")));
    assert!(PAGE.contains(FREQUENCY));
}
