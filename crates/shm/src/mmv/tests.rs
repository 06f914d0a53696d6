//! MMV files written by PCP's library, synthetic ones and hostile ones.

use std::fmt::Write;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::endian::{EndianField, page};
use crate::metric_snapshot::{MetricValue, NumericValue};

const PAGE: &str = include_str!("../../../../docs/formats/mmv.md");
const FILES: [&[u8]; 3] = [
    include_bytes!("../../../../testdata/mmv/v1.mmv"),
    include_bytes!("../../../../testdata/mmv/v2.mmv"),
    include_bytes!("../../../../testdata/mmv/v3.mmv"),
];

/// One line per metric: name{labels} value unit # help.
fn lines(shown: &MmvSnapshot) -> String {
    let mut text = String::new();
    for metric in &shown.metrics {
        let labels: Vec<_> =
            metric.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = write!(text, "{}{{{}}} {:?}", metric.name, labels.join(", "), metric.value);
        let _ = writeln!(text, " {:?} ({})", metric.unit, metric.help);
    }
    let _ = writeln!(text, "refused {}: {:?}", shown.rejected, shown.first_error);
    text
}

#[track_caller]
fn check(bytes: &[u8], expected: Expect) {
    expected.assert_eq(&lines(&parse(bytes, 0).unwrap()));
}

/// Builds a file with the layout of `docs/formats/mmv.md`, in either byte order.
struct MmvBuilder {
    big: bool,
    version: u32,
    flags: u32,
    sections: Vec<(u32, u32, Vec<u8>)>,
}

impl MmvBuilder {
    fn new(version: u32) -> Self {
        Self { big: false, version, flags: 0, sections: Vec::new() }
    }

    fn number(&self, number: u64, size: usize) -> Vec<u8> {
        let mut bytes = number.to_le_bytes()[..size].to_vec();
        if self.big {
            bytes.reverse();
        }
        bytes
    }

    /// Numbers with their sizes, and text padded with zeros.
    fn record(&self, fields: &[(u64, usize)]) -> Vec<u8> {
        fields.iter().flat_map(|(number, size)| self.number(*number, *size)).collect()
    }

    fn section(&mut self, kind: u32, count: u32, bytes: Vec<u8>) {
        self.sections.push((kind, count, bytes));
    }

    /// Offset of the first section; tests know the sizes.
    fn start(sections: u64) -> u64 {
        40 + 16 * sections
    }

    fn build(&self) -> Vec<u8> {
        let mut file = b"MMV\0".to_vec();
        file.extend(self.record(&[(self.version.into(), 4), (9, 8), (9, 8)]));
        file.extend(self.record(&[
            (self.sections.len() as u64, 4),
            (self.flags.into(), 4),
            (77, 4),
            (5, 4),
        ]));
        let mut offset = Self::start(self.sections.len() as u64);
        for (kind, count, bytes) in &self.sections {
            file.extend(self.record(&[((*kind).into(), 4), ((*count).into(), 4), (offset, 8)]));
            offset += bytes.len() as u64;
        }
        self.sections.iter().for_each(|(_, _, bytes)| file.extend(bytes));
        file
    }
}

fn padded(text: &str, size: usize) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(size, 0);
    bytes
}

/// One metric of version 1 with one value; `indom` 0 has no instances.
fn one_value(big: bool, flags: u32, kind: u32, semantics: u32, atom: u64, extra: u64) -> Vec<u8> {
    let mut builder = MmvBuilder { big, flags, ..MmvBuilder::new(1) };
    let mut metric = padded("m", 64);
    metric.extend(builder.record(&[
        (1, 4),
        (kind.into(), 4),
        (semantics.into(), 4),
        (0, 4),
        (0, 4),
        (0, 4),
    ]));
    metric.extend(builder.record(&[(0, 8), (0, 8)]));
    let start = MmvBuilder::start(2);
    // A four-byte number is at the start of the eight bytes.
    let mut value = match kind {
        0 | 1 | 4 if atom != u64::MAX => [builder.number(atom, 4), vec![0; 4]].concat(),
        _ => builder.number(atom, 8),
    };
    value.extend(builder.record(&[(extra, 8), (start, 8), (0, 8)]));
    builder.section(3, 1, metric);
    builder.section(4, 1, value);
    builder.build()
}

#[track_caller]
fn check_value(flags: u32, kind: u32, semantics: u32, atom: u64, expected: MetricValue) {
    for big in [false, true] {
        let shown = parse(&one_value(big, flags, kind, semantics, atom, 0), 0).unwrap();
        assert_eq!(shown.metrics[0].value, expected, "big: {big}");
        assert_eq!((shown.pid, shown.cluster, shown.rejected), (Some(77), 5, 0));
    }
}

#[test]
fn version_1_of_pcp() {
    check(
        FILES[0],
        expect![[r#"
            requests{} Counter(Unsigned(12345678901)) "" (requests since the start)
            queue{} Gauge(Signed(-3)) "" (only short)
            limit{} Gauge(Unsigned(512)) "MiBy" ()
            balance{} Gauge(Signed(-5000000000)) "" ()
            load{} Gauge(Float(0.75)) "" ()
            rate{} Gauge(Float(1.5)) "KiBy/s" ()
            version{} Text("1.2.3") "" ()
            busy{} Counter(Signed(2500)) "us" ()
            io.bytes{instance=sda} Counter(Unsigned(4096)) "By" (bytes read and written)
            io.bytes{instance=sdb} Counter(Unsigned(8192)) "By" (bytes read and written)
            refused 0: None
        "#]],
    );
    let shown = parse(FILES[0], 0).unwrap();
    assert_eq!((shown.version, shown.cluster, shown.only_while_running), (1, 42, true));
    assert!(!shown.no_prefix && shown.pid.is_some());
}

#[test]
fn version_2_of_pcp() {
    check(
        FILES[1],
        expect![[r#"
            requests{} Counter(Unsigned(12345678901)) "" (requests since the start)
            queue{} Unknown("not set by the program") "" (only short)
            limit{} Gauge(Unsigned(512)) "MiBy" ()
            balance{} Gauge(Signed(-5000000000)) "" ()
            load{} Gauge(Float(0.75)) "" ()
            rate{} Gauge(Float(1.5)) "KiBy/s" ()
            version{} Unknown("not set by the program") "" ()
            busy{} Counter(Signed(2500)) "us" ()
            a.name.that.is.longer.than.the.sixty.four.bytes.which.version.one.has.room.for{instance=sda} Counter(Unsigned(4096)) "By" (bytes read and written)
            a.name.that.is.longer.than.the.sixty.four.bytes.which.version.one.has.room.for{instance=sdb} Counter(Unsigned(8192)) "By" (bytes read and written)
            refused 0: None
        "#]],
    );
    let shown = parse(FILES[1], 0).unwrap();
    assert_eq!((shown.version, shown.cluster, shown.only_while_running), (2, 0, false));
    assert!(shown.no_prefix);
}

#[test]
fn version_3_of_pcp() {
    check(
        FILES[2],
        expect![[r#"
            requests{canary=true, service=shop, shard=12} Counter(Unsigned(12345678901)) "" (requests since the start)
            queue{service=shop} Gauge(Signed(-3)) "" (only short)
            limit{service=shop} Gauge(Unsigned(512)) "MiBy" ()
            balance{service=shop} Gauge(Signed(-5000000000)) "" ()
            load{service=shop} Gauge(Float(0.75)) "" ()
            rate{service=shop} Gauge(Float(1.5)) "KiBy/s" ()
            version{service=shop} Text("1.2.3") "" ()
            busy{service=shop} Counter(Signed(2500)) "us" ()
            io.bytes{instance=sda, kind.bus=nvme, kind.lanes=[1,2], service=shop} Counter(Unsigned(4096)) "By" (bytes read and written)
            io.bytes{instance=sdb, kind.bus=nvme, kind.lanes=[1,2], service=backup} Counter(Unsigned(8192)) "By" (bytes read and written)
            refused 0: None
        "#]],
    );
}

#[test]
fn every_type_in_both_byte_orders() {
    use NumericValue::{Float, Signed, Unsigned};
    let float = |number: f32| u64::from(number.to_bits());
    check_value(0, 0, 1, 0xffff_fffd, MetricValue::Counter(Signed(-3)));
    check_value(0, 1, 0, 0xffff_fffd, MetricValue::Counter(Unsigned(0xffff_fffd)));
    check_value(0, 2, 3, -3i64 as u64, MetricValue::Gauge(Signed(-3)));
    check_value(0, 3, 4, u64::MAX, MetricValue::Gauge(Unsigned(u64::MAX)));
    check_value(0, 4, 3, float(0.75), MetricValue::Gauge(Float(0.75)));
    check_value(0, 5, 1, 1.5f64.to_bits(), MetricValue::Counter(Float(1.5)));
    check_value(0, 9, 3, 2500, MetricValue::Counter(Signed(2500)));
    check_value(0, -1i32 as u32, 1, 0, MetricValue::Unknown("not supported by the program"));
    check_value(0, 7, 1, 0, MetricValue::Unknown("of a type that MMV does not have"));
    check_value(0, 6, 1, 0, MetricValue::Unknown("text outside the file"));
}

#[test]
fn unset_value_is_unknown() {
    let unset = MetricValue::Unknown("not set by the program");
    for kind in [0, 1, 2, 3, 4, 5, 9] {
        check_value(4, kind, 1, u64::MAX, unset.clone());
    }
    check_value(4, 3, 1, 0, MetricValue::Counter(NumericValue::Unsigned(0)));
    check_value(4, 2, 1, u64::MAX - 1, MetricValue::Counter(NumericValue::Signed(-2)));
}

#[test]
fn time_inside_a_section_counts() {
    let elapsed = |extra: i64, wall_us| {
        let shown = parse(&one_value(false, 0, 9, 1, 100, extra as u64), wall_us).unwrap();
        assert_eq!(shown.metrics[0].unit, "us");
        shown.metrics[0].value.clone()
    };
    let micros = |us| MetricValue::Counter(NumericValue::Signed(us));
    assert_eq!(elapsed(0, 5_000), micros(100));
    assert_eq!(elapsed(-4_000, 5_000), micros(1_100));
    assert_eq!(elapsed(-6_000, 5_000), micros(100), "a clock that went back takes nothing away");
    assert_eq!(elapsed(i64::MIN, i64::MAX), micros(100));
}

#[test]
fn file_being_written_is_transient() {
    let whole = one_value(false, 0, 3, 1, 7, 0);
    assert_eq!(read_generation(&whole[..GENERATION_BYTES]), Ok(9));
    let mut begun = whole.clone();
    begun[16] = 0;
    assert_eq!(parse(&begun, 0), Err(Error::BeingWritten { first: 9, second: 0 }));
    begun[8] = 0;
    assert_eq!(read_generation(&begun), Err(Error::BeingWritten { first: 0, second: 0 }));
    for bytes in [&whole[..0], &whole[..39], &[0; 4096], &whole[..whole.len() - 1], &whole[..60]] {
        let error = parse(bytes, 0).unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
}

#[track_caller]
fn check_error(change: impl FnOnce(&mut Vec<u8>), expected: Expect) {
    let mut bytes = one_value(false, 0, 3, 1, 7, 0);
    change(&mut bytes);
    let error = parse(&bytes, 0).unwrap_err();
    assert!(!error.is_transient() || matches!(error, Error::Truncated { .. }));
    expected.assert_eq(&error.to_string());
}

#[test]
fn errors_name_the_value_found() {
    check_error(
        |bytes| bytes[0] = b'm',
        expect![[r#"not an MMV file: starts with [6d, 4d, 56, 00], expected "MMV\0""#]],
    );
    check_error(|bytes| bytes[4] = 4, expect!["unsupported MMV version 4: expected 1 to 3"]);
    check_error(|bytes| bytes[24] = 200, expect!["200 sections, limit 64"]);
    check_error(|bytes| bytes[24] = 1, expect!["missing section values"]);
    check_error(
        |bytes| bytes[24] = 60,
        expect!["file has 208 bytes, sections would end at 216; try again"],
    );
    check_error(|bytes| bytes[46] = 2, expect!["131073 metrics, limit 65536"]);
    check_error(
        |bytes| bytes[44] = 9,
        expect!["file has 208 bytes, metrics would end at 1008; try again"],
    );
    check_error(
        |bytes| bytes[56] = 3,
        expect!["file has 208 bytes, metrics would end at 280; try again"],
    );
    check_error(
        |bytes| bytes[48..56].fill(0xff),
        expect!["file has 208 bytes, metrics would end at 18446744073709551615; try again"],
    );
}

#[track_caller]
fn check_rejected(change: impl FnOnce(&mut Vec<u8>), expected: Expect) {
    let mut bytes = one_value(false, 0, 3, 1, 7, 0);
    change(&mut bytes);
    let shown = parse(&bytes, 0).unwrap();
    assert_eq!((shown.metrics.len(), shown.rejected), (0, 1));
    expected.assert_eq(&shown.first_error.unwrap().to_string());
}

#[test]
fn bad_value_is_skipped() {
    let value = 72 + 104;
    check_rejected(|bytes| bytes[72] = 0, expect!["value 0 has no valid name"]);
    check_rejected(|bytes| bytes[72] = 7, expect!["value 0 has no valid name"]);
    check_rejected(|bytes| bytes[73] = 0xff, expect!["value 0 has no valid name"]);
    check_rejected(|bytes| bytes[value + 16] += 1, expect!["value 0: offset 73 is not a metric"]);
    check_rejected(
        |bytes| bytes[value + 16..value + 24].fill(0xff),
        expect!["value 0: offset 18446744073709551615 is not a metric"],
    );
    // The metric has instances, the value has none.
    check_rejected(|bytes| bytes[72 + 80] = 7, expect!["value 0: offset 0 is not a instance"]);
}

/// Version 3 with one metric and that many values, labels and strings; all references are equal,
/// which no writer does.
fn hostile(values: u32, labels: u32, label_of: impl Fn(u32) -> String) -> Vec<u8> {
    let mut builder = MmvBuilder::new(3);
    let start = MmvBuilder::start(4);
    let name = start + 48 + u64::from(values) * 32 + u64::from(labels) * 256;
    let metric = builder.record(&[
        (name, 8),
        (1, 4),
        (3, 4),
        (1, 4),
        (0, 4),
        (0, 4),
        (0, 4),
        (0, 8),
        (name, 8),
    ]);
    let value = builder.record(&[(1, 8), (0, 8), (start, 8), (0, 8)]);
    let label = |number| {
        let mut label = builder.record(&[(8, 4), (0, 4), (u32::MAX.into(), 4)]);
        label.extend(padded(&label_of(number), 244));
        label
    };
    let label_bytes = (0..labels).flat_map(label).collect();
    builder.section(3, 1, metric);
    builder.section(4, values, value.repeat(values as usize));
    builder.section(6, labels, label_bytes);
    builder.section(5, 1, padded(&"x".repeat(255), 256));
    builder.build()
}

#[test]
fn many_values_that_share_one_text_are_cut_off() {
    let bytes = hostile(COUNT_MAX as u32, 32, |number| {
        format!("{{\"l{number}\":\"{}\"}}", "y".repeat(200))
    });
    let shown = parse(&bytes, 0).unwrap();
    // All have one identity, so one remains; the text limit was reached before.
    assert_eq!(shown.metrics.len(), 1);
    assert!(
        matches!(shown.first_error, Some(Error::Text { index: 1.. })),
        "{:?}",
        shown.first_error
    );
    assert_eq!(shown.rejected, COUNT_MAX - 1);
}

#[test]
fn values_of_one_identity_are_one_value() {
    let shown = parse(&hostile(3, 0, |_| String::new()), 0).unwrap();
    assert_eq!((shown.metrics.len(), shown.first_error), (1, Some(Error::Duplicates { count: 2 })));
}

#[test]
fn unreadable_labels_are_counted() {
    let shown = parse(&hostile(1, 40, |number| format!("{{\"l{number}\":1}}")), 0).unwrap();
    assert_eq!(shown.metrics[0].labels.len(), LABELS_MAX);
    assert_eq!((shown.rejected, shown.first_error), (8, Some(Error::Label { index: 32 })));
    let shown = parse(&hostile(1, 1, |_| "nonsense".to_owned()), 0).unwrap();
    assert_eq!((shown.rejected, shown.metrics.len()), (1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever bytes change, the parser does not panic, and metrics have distinct identities.
    #[test]
    fn mutated_files_do_not_panic(
        file in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        length in any::<prop::sample::Index>(),
        cut in any::<bool>(),
        wall_us in any::<i64>(),
    ) {
        let mut bytes = FILES[file].to_vec();
        for (place, byte) in changes {
            // Half of the changes hit the offsets.
            let end = if byte % 2 == 0 { bytes.len() } else { 300 };
            let place = place.index(end);
            bytes[place] = byte;
        }
        if cut {
            bytes.truncate(length.index(bytes.len()));
        }
        if let Ok(shown) = parse(&bytes, wall_us) {
            prop_assert_eq!(shown.rejected == 0, shown.first_error.is_none());
            prop_assert!(shown.metrics.iter().all(|metric| metric.labels.is_sorted()));
        }
    }
}

#[track_caller]
fn check_table(heading: &str, fields: &[EndianField]) {
    page::check_fields(PAGE, heading, fields);
}

#[test]
fn page_matches_the_layout() {
    check_table("## Header", &layout::HEADER);
    check_table("## Sections", &layout::SECTION);
    check_table("### Metric, version 1", &layout::METRIC_1);
    check_table("### Metric, versions 2 and 3", &layout::METRIC_2);
    check_table("### Instance, version 1", &layout::INSTANCE_1);
    check_table("### Instance, versions 2 and 3", &layout::INSTANCE_2);
    check_table("### Value", &layout::VALUE);
    check_table("### Label, version 3", &layout::LABEL);
    for limit in [
        format!("{COUNT_MAX} entries per section"),
        format!("{SECTIONS_MAX} sections"),
        format!("{LABELS_MAX} labels"),
        format!("{} MiB of strings", TEXT_MAX >> 20),
    ] {
        assert!(PAGE.contains(&limit), "{limit}");
    }
}
