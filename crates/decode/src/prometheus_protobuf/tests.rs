//! Tests with a scrape written by Prometheus' own library
//! (`testdata/decode/prometheus/make/main.go`) and with corrupted copies.

use super::*;
use crate::decoded_sample::RecordingSink;

const SCRAPE: &[u8] = include_bytes!("../../../../testdata/decode/prometheus/scrape.pb");

fn record(body: &[u8]) -> RecordingSink {
    let mut sink = RecordingSink::default();
    read_scrape(body, &mut sink);
    sink
}

#[test]
fn client_golang_scrape_is_read() {
    let sink = record(SCRAPE);
    assert_eq!(
        sink.dump_samples(),
        include_str!("../../../../testdata/decode/prometheus/scrape.txt")
    );
    assert_eq!(sink.error_texts(), [""; 0]);
    assert_eq!(sink.skipped, [""; 0]);
    let line = |(metric, exemplar): &(String, DecodedExemplar)| {
        let of = exemplar.as_ref().unwrap();
        let attributes: Vec<(&str, &str)> = of.attributes.iter().collect();
        let trace = u128::from_be_bytes(of.trace_id);
        format!("{metric} {} {trace:x} {attributes:?} {}\n", of.value, of.time > 0)
    };
    let exemplars: String = sink.exemplars.iter().map(line).collect();
    let expected = [
        "classic_seconds 0.05 0 [(\"trace_id\", \"1\")] true\n",
        "classic_seconds 0.5 0 [(\"trace_id\", \"1\")] true\n",
        "classic_seconds 3 0 [(\"trace_id\", \"1\")] true\n",
        "sent_total 1 0 [(\"job\", \"api\")] false\n",
    ];
    assert_eq!(exemplars, expected.concat());
}

/// A family of less than 128 bytes with its length prefix.
fn family(fields: &[&[u8]]) -> Vec<u8> {
    let fields = fields.concat();
    [&[fields.len() as u8][..], &fields].concat()
}

const NAME: &[u8] = &[0x0a, 1, b'g'];
const GAUGE: &[u8] = &[0x18, 1];
/// A metric with a gauge of value 1.
const ONE: &[u8] = &[0x22, 11, 0x12, 9, 9, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f];

#[track_caller]
fn check(body: &[u8], samples: usize, errors: &[&str]) {
    let sink = record(body);
    assert_eq!(sink.error_texts(), errors);
    assert_eq!(sink.samples.len(), samples);
}

#[test]
fn damaged_family_is_reported_and_others_are_read() {
    let good = family(&[NAME, GAUGE, ONE]);
    check(&good, 1, &[]);
    for (damage, error) in [
        (family(&[GAUGE, ONE]), "byte 0: expected the name of a family, found none"),
        (family(&[NAME, &[0x18, 6], ONE]), "byte 0: expected a type from 0 to 5, found 6 in \"g\""),
        (
            family(&[NAME, ONE]),
            "byte 4: expected a value of the family's type, found none in \"g\"",
        ),
        (
            family(&[NAME, GAUGE, &[0x22, 2, 0x12, 9]]),
            "byte 8: expected the rest of a field, found the end of the message",
        ),
        (
            family(&[
                NAME,
                &[0x18, 4, 0x22, 22, 0x3a, 20, 8, 1],
                &[0x11, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
                &[0x31, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
            ]),
            "byte 6: expected a histogram, found count is 1, expected 0, the sum of the bucket \
             counts in \"g\"",
        ),
    ] {
        check(&[damage.clone(), good.clone()].concat(), 1, &[error]);
    }
    let cut =
        format!("byte {}: expected the rest of a message, found the end of the input", good.len());
    check(&[good.clone(), good[..5].to_vec()].concat(), 1, &[&cut]);
    check(
        &good[..good.len() - 1],
        0,
        &["byte 0: expected the rest of a message, found the end of the input"],
    );
}

#[test]
fn truncated_bodies_never_panic() {
    for end in 0..SCRAPE.len() {
        let sink = record(&SCRAPE[..end]);
        assert!(sink.errors.len() <= 1, "{:?}", sink.error_texts());
    }
}
