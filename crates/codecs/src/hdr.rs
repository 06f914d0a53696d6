//! HdrHistogram's encodings: V0, V1 and V2, plain or compressed, of whole numbers or of doubles.
//!
//! The decoder keeps every bucket: the position in HdrHistogram's counts array is the index on the
//! histogram's grid (see [`Header`]). HdrHistogram stores no sum and no extremes: they are absent
//! after decoding and omitted when encoding, as are declared thresholds; anything else that the
//! format cannot represent is rejected. Base64 applies to any of these encodings. Offsets in errors
//! refer to the bytes after base64 decoding and decompression.
//!
//! Limits: no input produces more than [`BUCKETS_MAX`] buckets, and no more bytes are inflated than
//! the longest counts array needs. Memory is at most 44 bytes per bucket and a window of 16 KiB
//! beside the input. Layout: `docs/formats/hdr.md`. Source: HdrHistogram 2.2.2 (Gil Tene); the
//! encoded V2 bytes are identical.

mod header;
pub mod layout;
mod stream;

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use hist::codec::bytes::ByteReader;
use hist::{DecodeError, EncodeError, Histogram, HistogramParts};

pub use header::{HdrHeader, HeaderError};
use stream::{HdrStream, put_leb};

use crate::base64;

/// Name of the format in errors.
const FORMAT: &str = "HdrHistogram";

/// Maximum number of non-empty buckets in one histogram. Five digits over 1 ns to 1 h have 3.4
/// million buckets in total; a million of them in use is more than in any known histogram, and
/// keeps decoding under 64 MiB.
pub const BUCKETS_MAX: usize = 1 << 20;

/// A decoder holds `(i32, u64)` pairs in a doubling vector, and then indexes and counts in
/// addition.
const _: () = assert!(BUCKETS_MAX * (2 * size_of::<(i32, u64)>() + 12) <= 48 << 20);

/// HdrHistogram with the header parameters of its encoding.
#[derive(Clone, Debug, PartialEq)]
pub struct HdrHistogramData {
    /// The counts, on the grid of the header.
    pub histogram: Histogram,
    /// Range, precision and unit.
    pub header: HdrHeader,
}

/// Version of the encoding. Java and C read all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HdrVersion {
    /// 2012 to 2014: words of 8 bytes; no doubles.
    V0,
    /// 2014 to 2015: words of 8 bytes.
    V1,
    /// Since 2015: numbers of 1 to 9 bytes, runs of zeros as one number.
    V2,
}

impl HdrHistogramData {
    /// An empty histogram.
    pub fn new(header: HdrHeader) -> HdrHistogramData {
        HdrHistogramData { histogram: Histogram::new(header.scheme()), header }
    }

    /// HdrHistogram's maximum: the largest whole number, or the largest double, of the last bucket
    /// in use; 0 if empty.
    pub fn hdr_max(&self) -> f64 {
        let last = self.histogram.positive().indexes().last();
        let end =
            last.and_then(|&index| self.header.scheme().edges(index)).map_or(0.0, |(_, end)| end);
        match self.header.range() {
            _ if end == 0.0 => 0.0,
            None => end - 1.0,
            Some(_) => end.next_down(),
        }
    }

    /// Encodes without compression.
    pub fn encode(&self, version: HdrVersion) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        self.put_double_fields(layout::DOUBLE, &mut out);
        self.put_integers(version, &mut out)?;
        Ok(out)
    }

    /// Encodes with zlib compression.
    #[expect(clippy::expect_used, reason = "writing to memory does not fail")]
    pub fn encode_compressed(&self, version: HdrVersion) -> Result<Vec<u8>, EncodeError> {
        let mut plain = Vec::new();
        self.put_integers(version, &mut plain)?;
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        let compressed = encoder
            .write_all(&plain)
            .and_then(|()| encoder.finish())
            .expect("BUG: writing to memory does not fail");
        let cookie = match version {
            HdrVersion::V0 => layout::V0_COMPRESSED | WORD_COOKIE,
            HdrVersion::V1 => layout::V1_COMPRESSED | WORD_COOKIE,
            HdrVersion::V2 => layout::V2_COMPRESSED | layout::LEB_WORDS,
        };
        let mut out = Vec::with_capacity(compressed.len().wrapping_add(24));
        self.put_double_fields(layout::DOUBLE_COMPRESSED, &mut out);
        out.extend(cookie.to_be_bytes());
        out.extend((compressed.len() as u32).to_be_bytes());
        out.extend(compressed);
        Ok(out)
    }

    /// Encodes with compression in padded base64, as in logs.
    pub fn encode_base64(&self, version: HdrVersion) -> Result<String, EncodeError> {
        self.encode_compressed(version).map(|bytes| base64::encode(&bytes))
    }

    fn put_double_fields(&self, cookie: u32, out: &mut Vec<u8>) {
        if let Some(range) = self.header.range() {
            out.extend(cookie.to_be_bytes());
            out.extend(u32::from(self.header.digits()).to_be_bytes());
            out.extend(range.to_be_bytes());
        }
    }

    /// Header and counts of the histogram of whole numbers.
    fn put_integers(&self, version: HdrVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check_lossless(version)?;
        let header = &self.header;
        let start = out.len();
        let cookie = match version {
            HdrVersion::V0 => layout::V0 | WORD_COOKIE,
            HdrVersion::V1 => layout::V1 | WORD_COOKIE,
            HdrVersion::V2 => layout::V2 | layout::LEB_WORDS,
        };
        out.extend(cookie.to_be_bytes());
        if version != HdrVersion::V0 {
            out.extend([0; 4]); // the payload's length, known below
            out.extend(header.index_offset().to_be_bytes());
        }
        out.extend(u32::from(header.digits()).to_be_bytes());
        out.extend(header.lowest().to_be_bytes());
        out.extend(header.highest().to_be_bytes());
        match version {
            HdrVersion::V0 => out.extend(self.histogram.count().to_be_bytes()),
            _ => out.extend(header.ratio().to_be_bytes()),
        }
        let payload = out.len();
        match version {
            HdrVersion::V2 => self.put_numbers(out),
            _ => self.put_words(out),
        }
        if version != HdrVersion::V0 {
            let len = out.len().wrapping_sub(payload) as u32;
            out[start.wrapping_add(4)..start.wrapping_add(8)].copy_from_slice(&len.to_be_bytes());
        }
        Ok(())
    }

    /// Counts up to the last that is not zero; if all are zero, the first.
    fn put_numbers(&self, out: &mut Vec<u8>) {
        let mut next = 0;
        for (index, count) in self.histogram.positive().iter() {
            match i64::from(index.wrapping_sub(next)) {
                0 => {}
                1 => put_leb(out, 0),
                zeros => put_leb(out, zeros.wrapping_neg()),
            }
            put_leb(out, count as i64);
            next = index.wrapping_add(1);
        }
        if next == 0 {
            put_leb(out, 0);
        }
    }

    fn put_words(&self, out: &mut Vec<u8>) {
        let payload = out.len();
        let len = self
            .histogram
            .positive()
            .indexes()
            .last()
            .map_or(1, |&last| (last as usize).wrapping_add(1));
        out.resize(payload.wrapping_add(len.wrapping_mul(WORD_BYTES)), 0);
        for (index, count) in self.histogram.positive().iter() {
            let at = payload.wrapping_add((index as usize).wrapping_mul(WORD_BYTES));
            out[at..at.wrapping_add(WORD_BYTES)].copy_from_slice(&count.to_be_bytes());
        }
    }

    /// Rejects values that the format would lose.
    fn check_lossless(&self, version: HdrVersion) -> Result<(), EncodeError> {
        let (histogram, header) = (&self.histogram, &self.header);
        if *histogram.scheme() != header.scheme() {
            return Err(EncodeError::scheme(FORMAT, histogram.scheme()));
        }
        let last = histogram.positive().indexes().last().map_or(0, |&last| last as u32);
        let homeless = [
            (histogram.overflow(), "values above the grid"),
            (histogram.underflow(), "values below the grid"),
            (histogram.negative().total(), "negative values"),
            (histogram.nan_count(), "NaN"),
            (histogram.zero_count(), "values counted as zero beside the bucket of zero"),
        ];
        let no_place = |what| Err(EncodeError::Unrepresentable { format: FORMAT, detail: what });
        if let Some((count, what)) = homeless.into_iter().find(|&(count, _)| count > 0) {
            return no_place(format!("{what} ({count})"));
        }
        if histogram.zero_threshold() > 0.0 {
            return no_place(format!("a zero threshold ({})", histogram.zero_threshold()));
        }
        if last >= header.counts_len() {
            let highest = header.highest();
            return no_place(format!("bucket {last} above the highest trackable value {highest}"));
        }
        if histogram.count() > COUNT_MAX {
            return no_place(format!("more than 2^63 - 1 values ({})", histogram.count()));
        }
        let is_plain =
            header.range().is_none() && header.index_offset() == 0 && header.ratio() == 1.0;
        if version == HdrVersion::V0 && !is_plain {
            return no_place("doubles, a conversion ratio or an index offset in V0".into());
        }
        Ok(())
    }
}

/// Other implementations count in signed 64-bit words.
const COUNT_MAX: u64 = i64::MAX as u64;
/// Size of the words written in V0 and V1, and its bits in the cookie.
const WORD_BYTES: usize = 8;
const WORD_COOKIE: u32 = (WORD_BYTES as u32) << 4;

/// Decodes any of the encodings, selected by the cookie.
pub fn decode(bytes: &[u8]) -> Result<HdrHistogramData, DecodeError> {
    let (parts, header) = decode_parts(bytes)?;
    Ok(HdrHistogramData { histogram: Histogram::from_parts(parts)?, header })
}

/// Decodes any of the encodings in base64, with or without padding.
pub fn decode_base64(text: impl AsRef<[u8]>) -> Result<HdrHistogramData, DecodeError> {
    decode(&base64::decode(text.as_ref())?)
}

/// Decodes base64 to bytes, without parsing the histogram.
pub(crate) fn decode_base64_parts(text: &[u8]) -> Result<(HistogramParts, HdrHeader), DecodeError> {
    decode_parts(&base64::decode(text)?)
}

fn decode_parts(bytes: &[u8]) -> Result<(HistogramParts, HdrHeader), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let cookie = reader.u32_be("cookie")?;
    if cookie != layout::DOUBLE && cookie != layout::DOUBLE_COMPRESSED {
        return decode_integers(bytes, None);
    }
    let digits = reader.u32_be("digits")?;
    let (field, offset, _) = layout::DOUBLE_FIELDS[2];
    let range = reader.i64_be(field)?;
    if range < 2 {
        return Err(ByteReader::invalid_error(offset, field, range, "at least 2"));
    }
    let start = reader.offset();
    let integers = reader.read_bytes(reader.remaining(), "histogram of whole numbers")?;
    decode_integers(integers, Some((digits, range))).map_err(|error| shift_offset(error, start))
}

/// Adds `start` to the offset of an error in a part of the bytes.
fn shift_offset(mut error: DecodeError, start: usize) -> DecodeError {
    if let DecodeError::Truncated { offset, .. }
    | DecodeError::Invalid { offset, .. }
    | DecodeError::Limit { offset, .. } = &mut error
    {
        *offset = offset.wrapping_add(start);
    }
    error
}

/// Reads a histogram of whole numbers, compressed or not; `double` has the parameters of its
/// wrapper.
fn decode_integers(
    bytes: &[u8],
    double: Option<(u32, i64)>,
) -> Result<(HistogramParts, HdrHeader), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let cookie = reader.u32_be("cookie")? & !layout::WORD_SIZE_MASK;
    if ![layout::V0_COMPRESSED, layout::V1_COMPRESSED, layout::V2_COMPRESSED].contains(&cookie) {
        return decode_plain(HdrStream::plain(bytes), double);
    }
    let len = reader.u32_be("compressed length")? as usize;
    let compressed = reader.read_bytes(len, "zlib stream")?;
    reader.finish()?;
    decode_plain(HdrStream::inflate(compressed), double)
}

/// Encoding of the counts.
#[derive(Clone, Copy)]
enum CountEncoding {
    /// V0: up to the end of the bytes, and the sum of the counts.
    ToEnd { size: usize, total: u64 },
    /// V1: this number of bytes.
    Fixed { size: usize, len: usize },
    /// V2: this number of bytes.
    Leb128 { len: usize },
}

fn decode_plain(
    mut stream: HdrStream<'_>,
    double: Option<(u32, i64)>,
) -> Result<(HistogramParts, HdrHeader), DecodeError> {
    let cookie = stream.u32("cookie")?;
    let size = ((cookie & layout::WORD_SIZE_MASK) >> 4) as usize;
    let base = cookie & !layout::WORD_SIZE_MASK;
    let fixed = matches!(base, layout::V0 | layout::V1) && [2, 4, 8].contains(&(size & 0xe));
    if !fixed && base != layout::V2 {
        let expected = "a cookie of HdrHistogram V0, V1 or V2 with words of 2, 4 or 8 bytes";
        return Err(ByteReader::invalid_error(
            0,
            "cookie",
            format_args!("{cookie:#010x}"),
            expected,
        ));
    }
    // The lowest bit of the word size is the LEB128 mark, not part of the size.
    let size = size & 0xe;
    let (header, words) = match base {
        layout::V0 => read_v0_fields(&mut stream, size, double)?,
        _ => read_fields(&mut stream, (base == layout::V1).then_some(size), double)?,
    };
    let mut parts = HistogramParts::new(header.scheme());
    parts.positive = match words {
        CountEncoding::ToEnd { size, total } => {
            read_words_to_end(&mut stream, &header, size, total)?
        }
        CountEncoding::Fixed { size, len } => read_words(&mut stream, &header, size, len)?,
        CountEncoding::Leb128 { len } => read_numbers(&mut stream, &header, len)?,
    };
    stream.finish()?;
    Ok((parts, header))
}

fn read_fields(
    stream: &mut HdrStream<'_>,
    word_size: Option<usize>,
    double: Option<(u32, i64)>,
) -> Result<(HdrHeader, CountEncoding), DecodeError> {
    let len = stream.u32("payload length")? as usize;
    let index_offset = stream.u32("normalizing index offset")? as i32;
    let digits = stream.u32("digits")?;
    let lowest = stream.i64("lowest discernible value")?;
    let highest = stream.i64("highest trackable value")?;
    let ratio = stream.f64("conversion ratio")?;
    let range = double.map(|(_, range)| range);
    let header = HdrHeader::read(digits, lowest, highest, ratio, index_offset, range);
    let header = locate_header_error(header, &layout::FIELDS, double)?;
    Ok((
        header,
        word_size.map_or(CountEncoding::Leb128 { len }, |size| CountEncoding::Fixed { size, len }),
    ))
}

fn read_v0_fields(
    stream: &mut HdrStream<'_>,
    size: usize,
    double: Option<(u32, i64)>,
) -> Result<(HdrHeader, CountEncoding), DecodeError> {
    let digits = stream.u32("digits")?;
    let lowest = stream.i64("lowest discernible value")?;
    let highest = stream.i64("highest trackable value")?;
    let total = stream.i64("total count")? as u64;
    let range = double.map(|(_, range)| range);
    let header = HdrHeader::read(digits, lowest, highest, 1.0, 0, range);
    Ok((
        locate_header_error(header, &layout::V0_FIELDS, double)?,
        CountEncoding::ToEnd { size, total },
    ))
}

/// Parses the header, whose digits must equal those of its wrapper; on failure returns the offset
/// of the invalid field.
fn locate_header_error(
    header: Result<HdrHeader, HeaderError>,
    fields: &[layout::Field],
    double: Option<(u32, i64)>,
) -> Result<HdrHeader, DecodeError> {
    let offset = |name| fields.iter().find(|field| field.0 == name).map_or(0, |field| field.1);
    let header = header.map_err(|error| DecodeError::Invalid {
        offset: offset(error.field),
        field: error.field,
        found: error.found,
        expected: error.expected,
    })?;
    match double {
        Some((digits, _)) if digits != u32::from(header.digits()) => {
            let expected = "the digits of the wrapper around it";
            Err(ByteReader::invalid_error(offset("digits"), "digits", header.digits(), expected))
        }
        _ => Ok(header),
    }
}

/// Builds buckets from a stream of counts.
struct BucketBuilder {
    buckets: Vec<(i32, u64)>,
    next: u32,
    len: u32,
    total: u64,
}

impl BucketBuilder {
    fn new(header: &HdrHeader) -> BucketBuilder {
        BucketBuilder { buckets: Vec::new(), next: 0, len: header.counts_len(), total: 0 }
    }

    /// Adds the count of the next bucket, which was read at `offset`.
    #[inline]
    fn push(&mut self, count: i64, offset: usize) -> Result<(), DecodeError> {
        let Ok(count) = u64::try_from(count) else {
            return Err(ByteReader::invalid_error(offset, "count", count, "at least 0"));
        };
        self.skip(1, offset)?;
        if count == 0 {
            return Ok(());
        }
        if self.buckets.len() == BUCKETS_MAX {
            return Err(DecodeError::Limit {
                offset,
                field: "buckets in use",
                found: (BUCKETS_MAX as u64).wrapping_add(1),
                limit: BUCKETS_MAX as u64,
            });
        }
        self.total = self.total.checked_add(count).filter(|&total| total <= COUNT_MAX).ok_or(
            ByteReader::invalid_error(offset, "count", count, "a total of at most 2^63 - 1 values"),
        )?;
        self.buckets.push(((self.next as i32).wrapping_sub(1), count));
        Ok(())
    }

    /// Skips `zeros` buckets, at least one.
    fn skip(&mut self, zeros: u64, offset: usize) -> Result<(), DecodeError> {
        if zeros > u64::from(self.len.wrapping_sub(self.next)) {
            return Err(DecodeError::Limit {
                offset,
                field: "end of the counts",
                found: u64::from(self.next).saturating_add(zeros),
                limit: self.len.into(),
            });
        }
        self.next = self.next.wrapping_add(zeros as u32);
        Ok(())
    }
}

fn read_words_to_end(
    stream: &mut HdrStream<'_>,
    header: &HdrHeader,
    size: usize,
    total: u64,
) -> Result<Vec<(i32, u64)>, DecodeError> {
    let mut counts = BucketBuilder::new(header);
    loop {
        let offset = stream.offset();
        match stream.word(size, "count")? {
            Some(count) => counts.push(count, offset)?,
            None => break,
        }
    }
    // V0 has no length field: without this check a truncation would not be detected.
    if counts.total != total {
        let (_, offset, _) = layout::V0_FIELDS[4];
        return Err(ByteReader::invalid_error(
            offset,
            "total count",
            total,
            "the sum of the counts",
        ));
    }
    Ok(counts.buckets)
}

fn read_words(
    stream: &mut HdrStream<'_>,
    header: &HdrHeader,
    size: usize,
    len: usize,
) -> Result<Vec<(i32, u64)>, DecodeError> {
    if !len.is_multiple_of(size) {
        return Err(payload_length_error(len, "a multiple of the word size"));
    }
    let mut counts = BucketBuilder::new(header);
    for _ in 0..len.checked_div(size).unwrap_or(0) {
        let offset = stream.offset();
        let truncated = DecodeError::Truncated { offset, field: "count" };
        counts.push(stream.word(size, "count")?.ok_or(truncated)?, offset)?;
    }
    Ok(counts.buckets)
}

fn read_numbers(
    stream: &mut HdrStream<'_>,
    header: &HdrHeader,
    len: usize,
) -> Result<Vec<(i32, u64)>, DecodeError> {
    let mut counts = BucketBuilder::new(header);
    let end = stream.offset().wrapping_add(len);
    while stream.offset() < end {
        let offset = stream.offset();
        match stream.leb("count")? {
            run @ ..0 => counts.skip(run.unsigned_abs(), offset)?,
            count => counts.push(count, offset)?,
        }
    }
    if stream.offset() > end {
        return Err(payload_length_error(len, "where a count ends"));
    }
    Ok(counts.buckets)
}

fn payload_length_error(len: usize, expected: &'static str) -> DecodeError {
    let (field, offset, _) = layout::FIELDS[1];
    ByteReader::invalid_error(offset, field, len, expected)
}
