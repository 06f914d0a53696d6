//! Bodies that are packed: gzip, zstd and snappy, as `Content-Encoding` or `grpc-encoding` say.
//!
//! What is unpacked counts as it comes out, so that a small body cannot become a large one.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use collect::remote_write;
use http::StatusCode;

use crate::body::Bound;
use crate::problem::Problem;

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Gzip,
    Zstd,
    /// Snappy's block format.
    Snappy,
}

/// Bytes that are unpacked at a time.
const STEP_BYTES: usize = 64 << 10;
/// The memory that unpacking zstd may take is 2 to this; no body is longer by default.
const ZSTD_WINDOW_LOG_MAX: u32 = 24;

impl Packing {
    pub(crate) fn parse(text: &str) -> Result<Packing, Problem> {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Packing::None),
            "gzip" | "x-gzip" => Ok(Packing::Gzip),
            "zstd" => Ok(Packing::Zstd),
            "snappy" => Ok(Packing::Snappy),
            _ => Err(unsupported(text, "gzip, zstd, snappy or nothing")),
        }
    }
}

/// A packing that is not read here.
pub(crate) fn unsupported(found: &str, expected: &str) -> Problem {
    let what = format!("the body is packed as {found:?}: expected {expected}");
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what)
}

/// The body as it was before it was packed.
pub(crate) fn unpack<'a>(
    body: &'a [u8],
    packing: Packing,
    bound: &Bound,
) -> Result<Cow<'a, [u8]>, Problem> {
    match packing {
        Packing::None => Ok(body.into()),
        Packing::Gzip => read(&mut flate2::bufread::MultiGzDecoder::new(body), "gzip", bound),
        Packing::Zstd => {
            let wrong = |error| Problem::bad(format!("cannot unpack zstd: {error}"));
            let mut decoder = zstd::Decoder::with_buffer(body).map_err(wrong)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(wrong)?;
            read(&mut decoder, "zstd", bound)
        }
        Packing::Snappy => {
            let wrong =
                |error: &dyn fmt::Display| Problem::bad(format!("cannot unpack snappy: {error}"));
            let length = snap::raw::decompress_len(body).map_err(|error| wrong(&error))?;
            bound.unpacked(length, length)?;
            let out = remote_write::decompress(body, length).map_err(|error| wrong(&error))?;
            Ok(out.into())
        }
    }
}

fn read(from: &mut dyn Read, name: &str, bound: &Bound) -> Result<Cow<'static, [u8]>, Problem> {
    let mut out = Vec::new();
    loop {
        let before = out.len();
        let more = from.take(STEP_BYTES as u64).read_to_end(&mut out);
        let more = more.map_err(|error| Problem::bad(format!("cannot unpack {name}: {error}")))?;
        bound.unpacked(out.len(), out.len() - before)?;
        if more == 0 {
            return Ok(out.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::limits::{Held, Refused, Room};

    fn bound(bytes: usize, room: usize) -> Bound {
        let refused = Arc::new(Refused::new(&intake::Meter::default()));
        Bound::new(Held::new(&Room::new(room)), &refused, bytes, Duration::from_secs(60))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    #[track_caller]
    fn check(packed: &[u8], packing: Packing, room: usize, expected: Result<usize, (u16, &str)>) {
        match (unpack(packed, packing, &bound(1_000_000, room)), expected) {
            (Ok(found), Ok(length)) => assert_eq!(found.len(), length),
            (Err(problem), Err((status, part))) => {
                assert_eq!(problem.status.as_u16(), status);
                assert!(problem.what.contains(part), "{}", problem.what);
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn bodies_are_unpacked_within_limits() {
        let (fits, large) = (vec![7; 1_000_000], vec![7; 1_000_001]);
        let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
        check(b"abc", Packing::None, 0, Ok(3));
        check(&gzip(&fits), Packing::Gzip, 1_000_000, Ok(1_000_000));
        check(&zstd(&fits), Packing::Zstd, 1_000_000, Ok(1_000_000));
        check(&gzip(&large), Packing::Gzip, 9_000_000, Err((413, "unpacked too")));
        check(&zstd(&large), Packing::Zstd, 9_000_000, Err((413, "unpacked too")));
        check(&gzip(&fits), Packing::Gzip, 999_999, Err((429, "no room")));
        check(&gzip(&fits)[..900], Packing::Gzip, 1_000_000, Err((400, "cannot unpack gzip")));
        check(b"abc", Packing::Zstd, 1_000_000, Err((400, "cannot unpack zstd")));
        let snappy = snap::raw::Encoder::new().compress_vec(&fits).unwrap();
        check(&snappy, Packing::Snappy, 1_000_000, Ok(1_000_000));
        check(&snappy, Packing::Snappy, 999_999, Err((429, "no room")));
        check(b"\xff\xff\xff\x7f", Packing::Snappy, 1_000_000, Err((413, "unpacked too")));
        check(b"", Packing::Snappy, 1_000_000, Err((400, "cannot unpack snappy")));
        let two = [gzip(b"a"), gzip(b"b")].concat();
        check(&two, Packing::Gzip, 10, Ok(2));
    }

    #[test]
    fn packings_have_names() {
        assert_eq!(Packing::parse(" GZIP"), Ok(Packing::Gzip));
        assert_eq!(Packing::parse("identity"), Ok(Packing::None));
        assert!(Packing::parse("br").unwrap_err().what.contains("\"br\""));
    }
}
