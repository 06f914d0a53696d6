//! Hand-written encoders of hostile bytes: libraries refuse to write malformed data.

// Protocol buffers: <https://protobuf.dev/programming-guides/encoding/>.

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_integer(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

pub(super) fn put_double(out: &mut Vec<u8>, field: u64, value: f64) {
    put_varint(out, field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// `prometheus.WriteRequest` with one sample of one series.
pub(super) fn remote_write(labels: &[(&[u8], &[u8])], ms: u64) -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        put_bytes(&mut label, 1, name);
        put_bytes(&mut label, 2, value);
        put_bytes(&mut series, 1, &label);
    }
    let mut sample = Vec::new();
    put_double(&mut sample, 1, 1.0);
    put_integer(&mut sample, 2, ms);
    put_bytes(&mut series, 2, &sample);
    let mut request = Vec::new();
    put_bytes(&mut request, 1, &series);
    request
}

/// An uncompressed Snappy block (literals; `format_description.txt` of Snappy).
pub(super) fn snappy(bytes: &[u8]) -> Vec<u8> {
    const LITERAL_OF_TWO_BYTES: u8 = 61 << 2;
    let mut out = Vec::new();
    put_varint(&mut out, bytes.len() as u64);
    for piece in bytes.chunks(1 << 16) {
        out.push(LITERAL_OF_TWO_BYTES);
        out.extend_from_slice(&((piece.len() - 1) as u16).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out
}

/// A Snappy block that declares `claimed` bytes and decompresses to `size`: one literal, then
/// copies of 64 bytes with offset 1.
pub(super) fn snappy_bomb(claimed: u64, size: usize) -> Vec<u8> {
    const COPY_OF_64: [u8; 3] = [63 << 2 | 2, 1, 0];
    let mut out = Vec::new();
    put_varint(&mut out, claimed);
    out.extend_from_slice(&[0, b'1']);
    (0..size / 64).for_each(|_| out.extend_from_slice(&COPY_OF_64));
    out
}

/// A gzip member that decompresses to about `size` zeros: fixed codes, one literal 0, then copies
/// of 258 bytes with distance 1 (RFC 1951, 3.2.6).
pub(super) fn gzip_bomb(size: usize) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let (mut bits, mut n) = (0u64, 0);
    let mut put = |value: u64, width: u32| {
        bits |= value << n;
        n += width;
        while n >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            n -= 8;
        }
    };
    let reversed = |value: u64, width: u32| value.reverse_bits() >> (64 - width);
    put(0b011, 3);
    put(reversed(0x30, 8), 8);
    for _ in 0..size / 258 {
        // Length 258 is symbol 285, the sixth 8-bit code from 280; distance 1 is code 0.
        put(reversed(0b1100_0101, 8), 8);
        put(0, 5);
    }
    put(0, 15);
    out.extend_from_slice(&[0; 8]);
    out
}

/// A zstd frame that decompresses to `blocks` × 128 KiB of one byte (RFC 8878, RLE blocks), with a
/// window of 2^`window_log` bytes.
pub(super) fn zstd_bomb(blocks: usize, window_log: u8) -> Vec<u8> {
    const BLOCK_BYTES: u32 = 128 << 10;
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
    for at in 0..blocks {
        let is_last = u32::from(at + 1 == blocks);
        out.extend_from_slice(&(BLOCK_BYTES << 3 | 1 << 1 | is_last).to_le_bytes()[..3]);
        out.push(b'1');
    }
    out
}

// HTTP/2: RFC 9113.

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

#[derive(Clone, Copy)]
pub(super) enum FrameKind {
    Headers = 1,
    ResetStream = 3,
    Settings = 4,
    Continuation = 9,
}

pub(super) fn frame(kind: FrameKind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend_from_slice(&[kind as u8, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// A `SETTINGS` frame with an initial window of 0: the server may not send response bytes.
pub(super) fn zero_window_settings() -> Vec<u8> {
    const INITIAL_WINDOW_SIZE: u8 = 4;
    frame(FrameKind::Settings, 0, 0, &[0, INITIAL_WINDOW_SIZE, 0, 0, 0, 0])
}

/// `GET path` as an HPACK block without the dynamic table (RFC 7541): `:method: GET`,
/// `:scheme: http`, and two literals.
pub(super) fn hpack_get(path: &str, authority: &str) -> Vec<u8> {
    let mut out = vec![0x82, 0x86];
    for (name, value) in [(4, path), (1, authority)] {
        out.extend_from_slice(&[name, value.len() as u8]);
        out.extend_from_slice(value.as_bytes());
    }
    out
}

// Forward requests and batches: docs/formats/forward.md, docs/formats/batch.md.

/// A forward request with one batch: value 1 of a gauge at time 0.
pub(super) fn forward_request(journal: u128, sequence: u64) -> Vec<u8> {
    const GAUGE: u8 = 2;
    const CANONICAL_KEY: u8 = 1;
    let name = b"forged";
    // Kind, name, no unit, no labels.
    let mut form = vec![GAUGE, name.len() as u8];
    form.extend_from_slice(name);
    form.extend_from_slice(&[0, 0]);
    let mut batch = vec![0xd3, 1, CANONICAL_KEY, form.len() as u8];
    batch.extend_from_slice(&form);
    // One sample: its start and its span.
    batch.extend_from_slice(&[1, 0, 0]);
    batch.extend_from_slice(&1f64.to_le_bytes());

    let mut entry = sequence.to_le_bytes().to_vec();
    entry.extend_from_slice(&(batch.len() as u32).to_le_bytes());
    let crc = crc32c(&[entry.as_slice(), &batch].concat());
    let mut out = b"tdparcel".to_vec();
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&journal.to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&entry);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&batch);
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

/// CRC-32C (Castagnoli), bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32| (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_the_castagnoli_polynomial() {
        // RFC 3720, B.4, and the usual check value.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_frame_begins_with_its_length_kind_and_stream() {
        let found = frame(FrameKind::Headers, END_STREAM | END_HEADERS, 3, &hpack_get("/", "a"));
        assert_eq!(found, [0, 0, 8, 1, 5, 0, 0, 0, 3, 0x82, 0x86, 4, 1, b'/', 1, 1, b'a']);
    }
}
