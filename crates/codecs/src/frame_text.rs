//! Frames in base64, for carriers of text: JSON and cells of tables.

use hist::codec::frame::{self, SeriesMeta};
use hist::{DecodeError, Histogram};

use crate::base64;

/// Writes a frame in padded base64.
pub fn encode(histogram: &Histogram, meaning: SeriesMeta) -> String {
    let mut bytes = Vec::new();
    frame::encode(histogram, meaning, &mut bytes);
    base64::encode(&bytes)
}

/// Reads a frame in base64, padded or not. Offsets in errors past base64 itself are those of the
/// bytes it stands for.
pub fn decode(text: &str) -> Result<(Histogram, SeriesMeta), DecodeError> {
    frame::decode(&base64::decode(text.as_bytes())?)
}
