//! Bodies that are packed: gzip, zstd and snappy, as `Content-Encoding` or `grpc-encoding` say.
//!
//! What is unpacked counts as it comes out, so that a small body cannot become a large one; so does
//! the memory that unpacking takes meanwhile, of which a small body can ask for much.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use collect::remote_write;
use http::StatusCode;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use crate::body::{Bound, append};
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
/// What a decoder of gzip holds: 32 KiB of what came last, and tables.
const GZIP_BYTES: usize = 48 << 10;
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
        Packing::Gzip => unpack_gzip(body, bound).map(Cow::from),
        Packing::Zstd => unpack_zstd(body, ZSTD_WINDOW_LOG_MAX, bound).map(Cow::from),
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

fn unpack_gzip(body: &[u8], bound: &Bound) -> Result<Vec<u8>, Problem> {
    let decoding = Decoding::new(bound, GZIP_BYTES + STEP_BYTES)?;
    let mut decoder = flate2::bufread::MultiGzDecoder::new(body);
    let (mut out, mut step) = (Vec::new(), vec![0; STEP_BYTES]);
    loop {
        let more = decoder.read(&mut step);
        let more = more.map_err(|error| Problem::bad(format!("cannot unpack gzip: {error}")))?;
        if more == 0 {
            return Ok(out);
        }
        decoding.append(&mut out, &step[..more])?;
    }
}

/// Unpacks frames of zstd. Those that want more memory than 2 to `window_log_max` are refused.
pub(crate) fn unpack_zstd(
    body: &[u8],
    window_log_max: u32,
    bound: &Bound,
) -> Result<Vec<u8>, Problem> {
    let wrong = |error: &str| Problem::bad(format!("cannot unpack zstd: {error}"));
    let known = |code| wrong(get_error_name(code));
    let mut decoding = Decoding::new(bound, STEP_BYTES)?;
    let mut context = DCtx::try_create().ok_or_else(|| wrong("there is no memory for it"))?;
    context.set_parameter(DParameter::WindowLogMax(window_log_max)).map_err(known)?;
    let (mut input, mut out, mut step) = (InBuffer::around(body), Vec::new(), vec![0; STEP_BYTES]);
    let mut is_whole = body.is_empty();
    while !is_whole {
        let mut output = OutBuffer::around(&mut step[..]);
        let wanted = context.decompress_stream(&mut output, &mut input).map_err(known)?;
        let more = output.pos();
        // Its memory is asked for by the head of a frame, which came with this step at the latest.
        decoding.hold(STEP_BYTES + context.sizeof())?;
        decoding.append(&mut out, &step[..more])?;
        let is_read = input.pos() == body.len();
        is_whole = is_read && wanted == 0;
        if is_read && !is_whole && more < STEP_BYTES {
            return Err(wrong("the last frame is not whole"));
        }
    }
    Ok(out)
}

/// What unpacking a body holds beside what comes out, until it is over.
struct Decoding<'a> {
    bound: &'a Bound,
    bytes: usize,
}

impl Decoding<'_> {
    fn new(bound: &Bound, bytes: usize) -> Result<Decoding<'_>, Problem> {
        bound.hold(bytes)?;
        Ok(Decoding { bound, bytes })
    }

    /// It holds as much now, or has held more.
    fn hold(&mut self, bytes: usize) -> Result<(), Problem> {
        let more = bytes.saturating_sub(self.bytes);
        self.bound.hold(more)?;
        self.bytes += more;
        Ok(())
    }

    fn append(&self, out: &mut Vec<u8>, more: &[u8]) -> Result<(), Problem> {
        self.bound.unpacked(out.len() + more.len(), more.len())?;
        append(out, more);
        Ok(())
    }
}

impl Drop for Decoding<'_> {
    fn drop(&mut self) {
        self.bound.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;
    use std::time::Duration;

    use allocation_counter::measure;

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
        // What they are unpacked with finds room too.
        check(&gzip(&fits), Packing::Gzip, 1_200_000, Ok(1_000_000));
        check(&zstd(&fits), Packing::Zstd, 4_000_000, Ok(1_000_000));
        check(&gzip(&large), Packing::Gzip, 9_000_000, Err((413, "unpacked too")));
        check(&zstd(&large), Packing::Zstd, 9_000_000, Err((413, "unpacked too")));
        check(&gzip(&fits), Packing::Gzip, 999_999, Err((429, "no room")));
        check(&zstd(&fits), Packing::Zstd, 1_000_000, Err((429, "no room")));
        check(&gzip(&fits)[..900], Packing::Gzip, 1_200_000, Err((400, "cannot unpack gzip")));
        check(b"abc", Packing::Zstd, 4_000_000, Err((400, "cannot unpack zstd")));
        let cut = zstd(&fits);
        let cut = &cut[..cut.len() - 1];
        check(cut, Packing::Zstd, 4_000_000, Err((400, "the last frame is not whole")));
        check(b"", Packing::Zstd, 4_000_000, Ok(0));
        let frames = [zstd(b"a"), zstd(&fits[..STEP_BYTES]), zstd(b"b")].concat();
        check(&frames, Packing::Zstd, 4_000_000, Ok(STEP_BYTES + 2));
        let snappy = snap::raw::Encoder::new().compress_vec(&fits).unwrap();
        check(&snappy, Packing::Snappy, 1_000_000, Ok(1_000_000));
        check(&snappy, Packing::Snappy, 999_999, Err((429, "no room")));
        check(b"\xff\xff\xff\x7f", Packing::Snappy, 1_000_000, Err((413, "unpacked too")));
        check(b"", Packing::Snappy, 1_000_000, Err((400, "cannot unpack snappy")));
        let two = [gzip(b"a"), gzip(b"b")].concat();
        check(&two, Packing::Gzip, 1_000_000, Ok(2));
    }

    /// What is held when a body is unpacked, and, of small ones, at the most meanwhile. What zstd
    /// itself allocates is none of Rust's; it is counted as zstd says.
    #[test]
    fn unpacking_takes_no_more_than_is_counted() {
        let snappy = |bytes: &[u8]| snap::raw::Encoder::new().compress_vec(bytes).unwrap();
        for bytes in [1, 999, 65_536, 300_001, 5_000_000] {
            let body: Vec<u8> =
                (0..bytes).map(|at: u32| (at.wrapping_mul(at) >> 9) as u8).collect();
            let zstd = zstd::encode_all(&body[..], 1).unwrap();
            for (packed, packing) in [
                (gzip(&body), Packing::Gzip),
                (zstd, Packing::Zstd),
                (snappy(&body), Packing::Snappy),
            ] {
                let about = format!("{packing:?} of {bytes} bytes");
                let room = Room::new(64 << 20);
                let refused = Arc::new(Refused::new(&intake::Meter::default()));
                let held = Held::new(&room);
                let bound = Bound::new(held, &refused, 16 << 20, Duration::from_secs(60));
                let mut out = None;
                let real = measure(|| out = Some(unpack(&packed, packing, &bound)));
                assert_eq!(out.unwrap().unwrap().len(), body.len(), "{about}");
                let counted = room.used() as f64 * 1.2;
                assert!(counted >= real.bytes_current as f64, "{about}: {real:?}, not {counted}");
                if bytes < 1_000 && packing != Packing::Snappy {
                    let room = (real.bytes_max as f64 / 1.2) as usize;
                    check(&packed, packing, room, Err((429, "no room")));
                }
            }
        }
    }

    /// 22 bytes that ask for 16 MiB.
    #[test]
    fn a_window_is_counted_before_it_is_filled() {
        use zstd::zstd_safe::CParameter;
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW_LOG_MAX)).unwrap();
        encoder.write_all(b"a few bytes").unwrap();
        let packed = encoder.finish().unwrap();
        check(&packed, Packing::Zstd, 16 << 20, Err((429, "no room")));
        check(&packed, Packing::Zstd, 18 << 20, Ok(11));
    }

    #[test]
    fn packings_have_names() {
        assert_eq!(Packing::parse(" GZIP"), Ok(Packing::Gzip));
        assert_eq!(Packing::parse("identity"), Ok(Packing::None));
        assert!(Packing::parse("br").unwrap_err().what.contains("\"br\""));
    }
}
