//! Frames in base64, for text formats: JSON and table cells.

use hist::codec::frame::{self, SeriesMeta};
use hist::{DecodeError, Histogram};

use crate::base64;

/// Writes a frame in padded base64.
pub fn encode(histogram: &Histogram, meta: SeriesMeta) -> String {
    let mut bytes = Vec::new();
    frame::encode(histogram, meta, &mut bytes);
    base64::encode(&bytes)
}

/// Reads a frame in base64, padded or not. Offsets in errors of the frame refer to the decoded
/// bytes.
pub fn decode(text: &str) -> Result<(Histogram, SeriesMeta), DecodeError> {
    frame::decode(&base64::decode(text.as_bytes())?)
}
