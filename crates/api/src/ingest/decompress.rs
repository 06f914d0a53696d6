//! Body decompression: gzip, zstd and snappy.
//!
//! Decompressed bytes are counted while they are produced, so that a small body cannot expand
//! without limit; memory of the decoder is accounted too,
//! because a small zstd frame can request a large window.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use decode::remote_write;
use http::StatusCode;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use crate::body::{BodyLimits, append};
use crate::error_response::ErrorResponse;

/// Content encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentEncoding {
    Identity,
    Gzip,
    Zstd,
    /// Snappy block format.
    Snappy,
}

/// Bytes decompressed at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Memory of a gzip decoder: a window of 32 KiB, and tables.
const GZIP_BYTES: usize = 48 << 10;
/// log2 of the largest zstd window: 16 MiB, the default limit of a body.
const ZSTD_WINDOW_LOG_MAX: u32 = 24;

impl ContentEncoding {
    pub(crate) fn parse(text: &str) -> Result<ContentEncoding, ErrorResponse> {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(ContentEncoding::Identity),
            "gzip" | "x-gzip" => Ok(ContentEncoding::Gzip),
            "zstd" => Ok(ContentEncoding::Zstd),
            "snappy" => Ok(ContentEncoding::Snappy),
            _ => Err(unsupported(text, "gzip, zstd, snappy or none")),
        }
    }
}

/// An unsupported encoding.
pub(crate) fn unsupported(found: &str, expected: &str) -> ErrorResponse {
    let what = format!("unsupported content encoding {found:?}: expected {expected}");
    ErrorResponse::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what)
}

/// The decompressed body.
pub(crate) fn decompress<'a>(
    body: &'a [u8],
    encoding: ContentEncoding,
    limits: &BodyLimits,
) -> Result<Cow<'a, [u8]>, ErrorResponse> {
    match encoding {
        ContentEncoding::Identity => Ok(body.into()),
        ContentEncoding::Gzip => decompress_gzip(body, limits).map(Cow::from),
        ContentEncoding::Zstd => decompress_zstd(body, ZSTD_WINDOW_LOG_MAX, limits).map(Cow::from),
        ContentEncoding::Snappy => {
            let wrong = |error: &dyn fmt::Display| {
                ErrorResponse::bad_request(format!("cannot decompress snappy: {error}"))
            };
            let length = snap::raw::decompress_len(body).map_err(|error| wrong(&error))?;
            limits.reserve_decompressed(length, length)?;
            let out = remote_write::decompress(body, length).map_err(|error| wrong(&error))?;
            Ok(out.into())
        }
    }
}

fn decompress_gzip(body: &[u8], limits: &BodyLimits) -> Result<Vec<u8>, ErrorResponse> {
    let decoding = DecompressorMemory::new(limits, GZIP_BYTES + CHUNK_BYTES)?;
    let mut decoder = flate2::bufread::MultiGzDecoder::new(body);
    let (mut out, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
    loop {
        let more = decoder.read(&mut chunk);
        let more = more.map_err(|error| {
            ErrorResponse::bad_request(format!("cannot decompress gzip: {error}"))
        })?;
        if more == 0 {
            return Ok(out);
        }
        decoding.append(&mut out, &chunk[..more])?;
    }
}

/// Decompresses zstd frames. Frames with a window of more than 2^`window_log_max` bytes are
/// rejected.
pub(crate) fn decompress_zstd(
    body: &[u8],
    window_log_max: u32,
    limits: &BodyLimits,
) -> Result<Vec<u8>, ErrorResponse> {
    let wrong =
        |error: &str| ErrorResponse::bad_request(format!("cannot decompress zstd: {error}"));
    let known = |code| wrong(get_error_name(code));
    let mut decoding = DecompressorMemory::new(limits, CHUNK_BYTES)?;
    let mut context = DCtx::try_create().ok_or_else(|| wrong("out of memory"))?;
    context.set_parameter(DParameter::WindowLogMax(window_log_max)).map_err(known)?;
    let (mut input, mut out, mut chunk) =
        (InBuffer::around(body), Vec::new(), vec![0; CHUNK_BYTES]);
    let mut is_whole = body.is_empty();
    while !is_whole {
        let mut output = OutBuffer::around(&mut chunk[..]);
        let hint = context.decompress_stream(&mut output, &mut input).map_err(known)?;
        let more = output.pos();
        // The frame header, decoded by this call at the latest, determines its memory.
        decoding.hold(CHUNK_BYTES + context.sizeof())?;
        decoding.append(&mut out, &chunk[..more])?;
        let is_read = input.pos() == body.len();
        is_whole = is_read && hint == 0;
        if is_read && !is_whole && more < CHUNK_BYTES {
            return Err(wrong("the last frame is truncated"));
        }
    }
    Ok(out)
}

/// Memory of the decompressor, released when it ends.
struct DecompressorMemory<'a> {
    limits: &'a BodyLimits,
    bytes: usize,
}

impl DecompressorMemory<'_> {
    fn new(limits: &BodyLimits, bytes: usize) -> Result<DecompressorMemory<'_>, ErrorResponse> {
        limits.hold(bytes)?;
        Ok(DecompressorMemory { limits, bytes })
    }

    /// Reserves up to this much in total.
    fn hold(&mut self, bytes: usize) -> Result<(), ErrorResponse> {
        let more = bytes.saturating_sub(self.bytes);
        self.limits.hold(more)?;
        self.bytes += more;
        Ok(())
    }

    fn append(&self, out: &mut Vec<u8>, more: &[u8]) -> Result<(), ErrorResponse> {
        self.limits.reserve_decompressed(out.len() + more.len(), more.len())?;
        append(out, more);
        Ok(())
    }
}

impl Drop for DecompressorMemory<'_> {
    fn drop(&mut self) {
        self.limits.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;
    use std::time::Duration;

    use allocation_counter::measure;

    use super::*;
    use crate::limits::{BodyBudget, BodyReservation, RejectCounters};

    fn test_limits(bytes: usize, room: usize) -> BodyLimits {
        let rejects = Arc::new(RejectCounters::new(&intake::Meter::default()));
        BodyLimits::new(
            BodyReservation::new(&BodyBudget::new(room)),
            &rejects,
            bytes,
            Duration::from_secs(60),
        )
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[track_caller]
    fn check(
        compressed: &[u8],
        encoding: ContentEncoding,
        room: usize,
        expected: Result<usize, (u16, &str)>,
    ) {
        match (decompress(compressed, encoding, &test_limits(1_000_000, room)), expected) {
            (Ok(found), Ok(length)) => assert_eq!(found.len(), length),
            (Err(problem), Err((status, part))) => {
                assert_eq!(problem.status.as_u16(), status);
                assert!(problem.message.contains(part), "{}", problem.message);
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn bodies_are_decompressed_within_limits() {
        let (fits, large) = (vec![7; 1_000_000], vec![7; 1_000_001]);
        let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
        check(b"abc", ContentEncoding::Identity, 0, Ok(3));
        // The decoder's memory fits too.
        check(&gzip(&fits), ContentEncoding::Gzip, 1_200_000, Ok(1_000_000));
        check(&zstd(&fits), ContentEncoding::Zstd, 4_000_000, Ok(1_000_000));
        check(
            &gzip(&large),
            ContentEncoding::Gzip,
            9_000_000,
            Err((413, "compressed and decompressed")),
        );
        check(
            &zstd(&large),
            ContentEncoding::Zstd,
            9_000_000,
            Err((413, "compressed and decompressed")),
        );
        check(
            &gzip(&fits),
            ContentEncoding::Gzip,
            999_999,
            Err((429, "body memory limit reached")),
        );
        check(
            &zstd(&fits),
            ContentEncoding::Zstd,
            1_000_000,
            Err((429, "body memory limit reached")),
        );
        check(
            &gzip(&fits)[..900],
            ContentEncoding::Gzip,
            1_200_000,
            Err((400, "cannot decompress gzip")),
        );
        check(b"abc", ContentEncoding::Zstd, 4_000_000, Err((400, "cannot decompress zstd")));
        let cut = zstd(&fits);
        let cut = &cut[..cut.len() - 1];
        check(cut, ContentEncoding::Zstd, 4_000_000, Err((400, "the last frame is truncated")));
        check(b"", ContentEncoding::Zstd, 4_000_000, Ok(0));
        let frames = [zstd(b"a"), zstd(&fits[..CHUNK_BYTES]), zstd(b"b")].concat();
        check(&frames, ContentEncoding::Zstd, 4_000_000, Ok(CHUNK_BYTES + 2));
        let snappy = snap::raw::Encoder::new().compress_vec(&fits).unwrap();
        check(&snappy, ContentEncoding::Snappy, 1_000_000, Ok(1_000_000));
        check(&snappy, ContentEncoding::Snappy, 999_999, Err((429, "body memory limit reached")));
        check(
            b"\xff\xff\xff\x7f",
            ContentEncoding::Snappy,
            1_000_000,
            Err((413, "compressed and decompressed")),
        );
        check(b"", ContentEncoding::Snappy, 1_000_000, Err((400, "cannot decompress snappy")));
        let two = [gzip(b"a"), gzip(b"b")].concat();
        check(&two, ContentEncoding::Gzip, 1_000_000, Ok(2));
    }

    /// Reserved memory after decompression, and the peak for small bodies. zstd does not use Rust's
    /// allocator; its memory is counted as zstd reports it.
    #[test]
    fn memory_of_decompression_is_accounted() {
        let snappy = |bytes: &[u8]| snap::raw::Encoder::new().compress_vec(bytes).unwrap();
        for bytes in [1, 999, 65_536, 300_001, 5_000_000] {
            let body: Vec<u8> =
                (0..bytes).map(|at: u32| (at.wrapping_mul(at) >> 9) as u8).collect();
            let zstd = zstd::encode_all(&body[..], 1).unwrap();
            for (compressed, encoding) in [
                (gzip(&body), ContentEncoding::Gzip),
                (zstd, ContentEncoding::Zstd),
                (snappy(&body), ContentEncoding::Snappy),
            ] {
                let about = format!("{encoding:?} of {bytes} bytes");
                let budget = BodyBudget::new(64 << 20);
                let rejects = Arc::new(RejectCounters::new(&intake::Meter::default()));
                let reservation = BodyReservation::new(&budget);
                let limits =
                    BodyLimits::new(reservation, &rejects, 16 << 20, Duration::from_secs(60));
                let mut out = None;
                let real = measure(|| out = Some(decompress(&compressed, encoding, &limits)));
                assert_eq!(out.unwrap().unwrap().len(), body.len(), "{about}");
                let counted = budget.used() as f64 * 1.2;
                assert!(counted >= real.bytes_current as f64, "{about}: {real:?}, not {counted}");
                if bytes < 1_000 && encoding != ContentEncoding::Snappy {
                    let room = (real.bytes_max as f64 / 1.2) as usize;
                    check(&compressed, encoding, room, Err((429, "body memory limit reached")));
                }
            }
        }
    }

    /// 22 bytes that request 16 MiB.
    #[test]
    fn a_zstd_window_is_accounted_before_it_is_filled() {
        use zstd::zstd_safe::CParameter;
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW_LOG_MAX)).unwrap();
        encoder.write_all(b"a few bytes").unwrap();
        let compressed = encoder.finish().unwrap();
        check(
            &compressed,
            ContentEncoding::Zstd,
            16 << 20,
            Err((429, "body memory limit reached")),
        );
        check(&compressed, ContentEncoding::Zstd, 18 << 20, Ok(11));
    }

    #[test]
    fn content_encodings_are_parsed() {
        assert_eq!(ContentEncoding::parse(" GZIP"), Ok(ContentEncoding::Gzip));
        assert_eq!(ContentEncoding::parse("identity"), Ok(ContentEncoding::Identity));
        assert!(ContentEncoding::parse("br").unwrap_err().message.contains("\"br\""));
    }
}
