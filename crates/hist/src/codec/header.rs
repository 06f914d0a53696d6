//! Common header of frames and blocks: unit, temporality, scheme.
//!
//! ```text
//! size      field
//!    1      magic        0xd1 frame, 0xd2 block
//!    1      version      of a frame 1, of a block 2 or 3; readers reject any other
//!    1      layout       bits 0-3 scheme tag, bit 4 cumulative, the rest 0
//!    1      unit         of the values: 0 none, 1 ns, 2 us, 3 ms, 4 s, 5 bytes
//!    any    scheme       parameters of the scheme, by tag
//! ```
//! Schemes: 0 exponential (scale i8), 1 log-linear base 2 (bits u8, floor zigzag), 2 log-linear
//! base 10 (nothing), 3 logarithmic (gamma f64, offset f64, interpolation u8), 4 explicit (count
//! varint, bounds f64). Numbers are little-endian; varints are LEB128.

use crate::codec::bytes::{ByteReader, put_varint, put_zigzag};
use crate::error::DecodeError;
use crate::scheme::{Exp2, Explicit, Interpolation, LogLinear2, Logarithmic, Scheme};

/// First byte of a frame.
pub const FRAME_MAGIC: u8 = 0xd1;
/// First byte of a block.
pub(crate) const BLOCK_MAGIC: u8 = 0xd2;
/// Version of frames. There is only one.
pub(crate) const FRAME_VERSION: u8 = 1;
/// Version of blocks whose extremes are exact, estimated or unknown.
pub(crate) const BLOCK_VERSION: u8 = 2;
/// Version of blocks that also have bounds of extremes.
pub(crate) const BLOCK_VERSION_WITH_BOUNDS: u8 = 3;
/// Set in `layout` if counts are cumulative.
pub const CUMULATIVE: u8 = 1 << 4;

/// Fixed-size fields at the start of frames and blocks: name, offset, size. The scheme's parameters
/// follow.
pub const FIELDS: [(&str, usize, usize); 4] =
    [("magic", 0, 1), ("version", 1, 1), ("layout", 2, 1), ("unit", 3, 1)];

const SCHEME_TAG: u8 = 0x0f;

/// Unit of the recorded values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FrameUnit {
    /// Dimensionless.
    #[default]
    None,
    /// 10⁻⁹ s.
    Nanoseconds,
    /// 10⁻⁶ s.
    Microseconds,
    /// 10⁻³ s.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl FrameUnit {
    pub(crate) const ALL: [FrameUnit; 6] = [
        FrameUnit::None,
        FrameUnit::Nanoseconds,
        FrameUnit::Microseconds,
        FrameUnit::Milliseconds,
        FrameUnit::Seconds,
        FrameUnit::Bytes,
    ];
}

/// Time range of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Temporality {
    /// The counts of one interval.
    #[default]
    Delta,
    /// The counts since a start time.
    Cumulative,
}

/// Unit and temporality, equal for all histograms of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeriesMeta {
    /// Unit of the values.
    pub unit: FrameUnit,
    /// Temporality of the counts.
    pub temporality: Temporality,
}

/// Appends the header.
pub(crate) fn put_header(
    out: &mut Vec<u8>,
    (magic, version): (u8, u8),
    meta: SeriesMeta,
    scheme: &Scheme,
) {
    let cumulative = if meta.temporality == Temporality::Cumulative { CUMULATIVE } else { 0 };
    // Index in `FrameUnit::ALL`, which has the same order.
    let unit = meta.unit as u8;
    out.extend([magic, version, tag(scheme) | cumulative, unit]);
    match scheme {
        Scheme::Exp2(exp2) => out.push(exp2.scale() as u8),
        Scheme::LogLinear2(log_linear) => {
            out.push(log_linear.bits());
            put_zigzag(out, log_linear.floor().into());
        }
        Scheme::LogLinear10 => {}
        Scheme::Logarithmic(logarithmic) => {
            out.extend(logarithmic.gamma().to_le_bytes());
            out.extend(logarithmic.offset().to_le_bytes());
            out.push(logarithmic.interpolation() as u8);
        }
        Scheme::Explicit(explicit) => {
            put_varint(out, explicit.bounds().len() as u64);
            explicit.bounds().iter().for_each(|bound| out.extend(bound.to_le_bytes()));
        }
        Scheme::Scaled(_) => unreachable!("BUG: no format has a scaled scheme"),
    }
}

fn tag(scheme: &Scheme) -> u8 {
    match scheme {
        Scheme::Exp2(_) => 0,
        Scheme::LogLinear2(_) => 1,
        Scheme::LogLinear10 => 2,
        Scheme::Logarithmic(_) => 3,
        Scheme::Explicit(_) => 4,
        Scheme::Scaled(_) => unreachable!("BUG: no format has a scaled scheme"),
    }
}

/// Reads the header of a frame.
pub(crate) fn read_frame_header(
    reader: &mut ByteReader<'_>,
) -> Result<(SeriesMeta, Scheme), DecodeError> {
    let versions = "1, the version this program reads";
    read_byte(reader, "magic", &[FRAME_MAGIC], "209 (0xd1), a frame")?;
    read_byte(reader, "version", &[FRAME_VERSION], versions)?;
    read_meta(reader)
}

/// Length of the header of a frame on a grid that senders use: exponential, or explicit bounds. The
/// header is not checked any further.
pub(crate) fn scheme_end(bytes: &[u8]) -> Option<usize> {
    let mut reader = ByteReader::new(bytes);
    let &[magic, version, layout, _] = reader.read_bytes(4, "header").ok()?.first_chunk()?;
    if (magic, version) != (FRAME_MAGIC, FRAME_VERSION) {
        return None;
    }
    let length = match layout & SCHEME_TAG {
        0 => 1,
        4 => reader.varint("bound count").ok()?.checked_mul(8)?,
        _ => return None,
    };
    let end = reader.offset().checked_add(usize::try_from(length).ok()?)?;
    (end <= bytes.len()).then_some(end)
}

/// Reads the header of a block: its version, and the rest.
pub(crate) fn read_block_header(
    reader: &mut ByteReader<'_>,
) -> Result<(u8, SeriesMeta, Scheme), DecodeError> {
    let versions = "2 or 3, the versions this program reads";
    read_byte(reader, "magic", &[BLOCK_MAGIC], "210 (0xd2), a block")?;
    let readable = &[BLOCK_VERSION, BLOCK_VERSION_WITH_BOUNDS];
    let version = read_byte(reader, "version", readable, versions)?;
    let (meta, scheme) = read_meta(reader)?;
    Ok((version, meta, scheme))
}

fn read_byte(
    reader: &mut ByteReader<'_>,
    name: &'static str,
    expected: &[u8],
    text: &'static str,
) -> Result<u8, DecodeError> {
    let at = reader.offset();
    let found = reader.u8(name)?;
    match expected.contains(&found) {
        true => Ok(found),
        false => Err(ByteReader::invalid_error(at, name, found, text)),
    }
}

fn read_meta(reader: &mut ByteReader<'_>) -> Result<(SeriesMeta, Scheme), DecodeError> {
    let at = reader.offset();
    let layout = reader.u8("layout")?;
    if layout & !(SCHEME_TAG | CUMULATIVE) != 0 {
        return Err(ByteReader::invalid_error(at, "layout", layout, "bits 5 to 7 zero"));
    }
    let temporality =
        if layout & CUMULATIVE != 0 { Temporality::Cumulative } else { Temporality::Delta };
    let at_unit = reader.offset();
    let unit = reader.u8("unit")?;
    let unit = *FrameUnit::ALL
        .get(usize::from(unit))
        .ok_or_else(|| ByteReader::invalid_error(at_unit, "unit", unit, "0 to 5"))?;
    let scheme = match layout & SCHEME_TAG {
        0 => Scheme::Exp2(Exp2::new((reader.u8("scale")? as i8).into())?),
        1 => {
            let bits = reader.u8("bits")?.into();
            let floor = i32::try_from(reader.zigzag("floor")?).unwrap_or(i32::MAX);
            Scheme::LogLinear2(LogLinear2::with_floor(bits, floor)?)
        }
        2 => Scheme::LogLinear10,
        3 => {
            let (gamma, at) = (reader.f64_le("gamma")?, reader.offset());
            let offset = reject_negative_zero(reader.f64_le("offset")?, at, "offset")?;
            Scheme::Logarithmic(Logarithmic::new(gamma, offset, read_interpolation(reader)?)?)
        }
        4 => Scheme::Explicit(read_explicit(reader)?),
        tag => return Err(ByteReader::invalid_error(at, "scheme tag", tag, "0 to 4")),
    };
    Ok((SeriesMeta { unit, temporality }, scheme))
}

fn read_interpolation(reader: &mut ByteReader<'_>) -> Result<Interpolation, DecodeError> {
    let at = reader.offset();
    Ok(match reader.u8("interpolation")? {
        0 => Interpolation::None,
        1 => Interpolation::Linear,
        2 => Interpolation::Quadratic,
        3 => Interpolation::Cubic,
        found => return Err(ByteReader::invalid_error(at, "interpolation", found, "0 to 3")),
    })
}

fn read_explicit(reader: &mut ByteReader<'_>) -> Result<Explicit, DecodeError> {
    let at = reader.offset();
    let count = reader.varint("bound count")?;
    if count > Explicit::BOUNDS_MAX as u64 {
        let limit = Explicit::BOUNDS_MAX as u64;
        return Err(DecodeError::Limit { offset: at, field: "bound count", found: count, limit });
    }
    let bytes = reader.read_bytes((count as usize).wrapping_mul(8), "bounds")?;
    let (bounds, _) = bytes.as_chunks::<8>();
    let bound = |&bytes| reject_negative_zero(f64::from_le_bytes(bytes), at, "bound");
    let bounds = bounds.iter().map(bound).collect::<Result<Vec<f64>, DecodeError>>()?;
    Ok(Explicit::new(&bounds)?)
}

/// Schemes store zero without a sign, so no encoder writes a negative zero.
fn reject_negative_zero(value: f64, at: usize, field: &'static str) -> Result<f64, DecodeError> {
    if value == 0.0 && value.is_sign_negative() {
        return Err(ByteReader::invalid_error(at, field, "-0", "0 without a sign"));
    }
    Ok(value)
}
