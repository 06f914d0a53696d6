//! Frames in base64.

use codecs::frame_text;
use hist::Histogram;
use hist::codec::frame::{FrameUnit, SeriesMeta, Temporality};

#[test]
fn frames_round_trip_with_and_without_padding() {
    let mut histogram = Histogram::default();
    histogram.record_n(17.0, 3);
    let meta = SeriesMeta { unit: FrameUnit::Milliseconds, temporality: Temporality::Cumulative };
    let text = frame_text::encode(&histogram, meta);
    assert!(text.len().is_multiple_of(4), "{text}");
    assert_eq!(frame_text::decode(&text), Ok((histogram.clone(), meta)));
    assert_eq!(frame_text::decode(text.trim_end_matches('=')), Ok((histogram, meta)));
}

#[test]
fn bad_text_is_named() {
    let error = frame_text::decode("0Q!=").unwrap_err().to_string();
    assert_eq!(error, "at byte 2: base64 is byte 0x21, expected base64 of the standard alphabet");
    let error = frame_text::decode("0g==").unwrap_err().to_string();
    assert_eq!(error, "at byte 0: magic is 210, expected 209 (0xd1), a frame");
}
