//! Base64 with the standard alphabet: written with padding, read with or without it, because
//! writers differ.

use base64::DecodeError::{InvalidByte, InvalidLastSymbol, InvalidLength, InvalidPadding};
use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, PAD_INDIFFERENT};
use hist::DecodeError;
use hist::codec::bytes::ByteReader;

const BASE64: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, PAD_INDIFFERENT);

pub(crate) fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes `text`, or returns the first invalid character.
pub(crate) fn decode(text: &[u8]) -> Result<Vec<u8>, DecodeError> {
    BASE64.decode(text).map_err(|error| {
        let (offset, found) = match error {
            InvalidByte(at, byte) => (at, format!("byte {byte:#04x}")),
            InvalidLastSymbol { .. } => (text.len(), "a last letter with stray bits".into()),
            InvalidLength(len) => (text.len(), format!("{len} letters")),
            InvalidPadding => (text.len(), "wrong padding".into()),
        };
        ByteReader::invalid_error(offset, "base64", found, "base64 of the standard alphabet")
    })
}
