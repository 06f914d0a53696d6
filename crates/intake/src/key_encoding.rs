//! Encodings of series keys: the name of the decoder that made a key.

/// The decoder that made a series key. Keys of different encodings are never mixed: decoders that
/// map equal bytes to different series have encodings of different names. An encoding belongs to
/// its decoder; the numbers that the series cache assigns to encodings end with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesKeyEncoding(&'static str);

impl SeriesKeyEncoding {
    /// The series' canonical key: for topdeck's own data and sources without a cheaper key.
    pub const CANONICAL: SeriesKeyEncoding = SeriesKeyEncoding::new("canonical");
    /// `decode::mapper`: JSON, HDR logs, single records.
    pub const GENERIC: SeriesKeyEncoding = SeriesKeyEncoding::new("generic");

    /// The encoding of this name.
    pub const fn new(name: &'static str) -> SeriesKeyEncoding {
        SeriesKeyEncoding(name)
    }
}
