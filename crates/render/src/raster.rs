//! Raster output: pixels in colours of a palette, as a PNG file (ISO/IEC 15948), for receivers that
//! show no SVG, such as mail programs.
//!
//! The file has one byte per pixel, no filters and no interlacing. Drawing outside of the picture
//! is cut off.

pub mod heatmap;
mod pixel_font;

use std::io::Write as _;
use std::ops::Range;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// Bit depth 8, palette, and the only compression, filter and interlacing that are used.
const PIXEL_FORMAT: [u8; 5] = [8, 3, 0, 0, 0];
/// Size of a dot of the font in pixels: at 1, characters are too small to read.
const FONT_SCALE: usize = 2;
/// Distance from character to character, and their height, in pixels.
pub(crate) const CHAR_WIDTH: usize = (pixel_font::WIDTH + 1) * FONT_SCALE;
pub(crate) const CHAR_HEIGHT: usize = pixel_font::HEIGHT * FONT_SCALE;

/// Picture; a pixel is an index of its palette.
pub(crate) struct RasterImage {
    width: usize,
    height: usize,
    palette: Vec<[u8; 3]>,
    pixels: Vec<u8>,
}

impl RasterImage {
    /// Picture in the first colour of a palette of at most 256 colours.
    pub(crate) fn new(width: usize, height: usize, palette: Vec<[u8; 3]>) -> RasterImage {
        RasterImage { width, height, palette, pixels: vec![0; width * height] }
    }

    /// Colours an area.
    pub(crate) fn fill(&mut self, columns: Range<usize>, rows: Range<usize>, colour: u8) {
        let columns = columns.start.min(self.width)..columns.end.min(self.width);
        for row in rows.start.min(self.height)..rows.end.min(self.height) {
            let start = row * self.width;
            self.pixels[start + columns.start.min(columns.end)..start + columns.end].fill(colour);
        }
    }

    /// Writes text with its top left corner at a pixel. A character without a glyph is a space.
    pub(crate) fn text(&mut self, (left, top): (usize, usize), text: &str, colour: u8) {
        for (at, character) in text.chars().enumerate() {
            let left = left + at * CHAR_WIDTH;
            for (x, dots) in pixel_font::glyph(character).into_iter().enumerate() {
                for y in (0..pixel_font::HEIGHT).filter(|y| dots >> y & 1 == 1) {
                    let (x, y) = (left + x * FONT_SCALE, top + y * FONT_SCALE);
                    self.fill(x..x + FONT_SCALE, y..y + FONT_SCALE, colour);
                }
            }
        }
    }

    /// PNG file.
    pub(crate) fn png(&self) -> Vec<u8> {
        let size = |pixels: usize| u32::try_from(pixels).expect("BUG: a huge picture");
        let mut header = size(self.width).to_be_bytes().to_vec();
        header.extend(size(self.height).to_be_bytes());
        header.extend(PIXEL_FORMAT);
        let mut file = SIGNATURE.to_vec();
        add_chunk(&mut file, *b"IHDR", &header);
        add_chunk(&mut file, *b"PLTE", self.palette.as_flattened());
        add_chunk(&mut file, *b"IDAT", &self.compressed_rows());
        add_chunk(&mut file, *b"IEND", &[]);
        file
    }

    /// Each row begins with its filter: 0, none.
    fn compressed_rows(&self) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        let mut write = |bytes: &[u8]| encoder.write_all(bytes).expect("BUG: memory is no file");
        for row in self.pixels.chunks(self.width.max(1)) {
            write(&[0]);
            write(row);
        }
        encoder.finish().expect("BUG: memory is no file")
    }
}

/// Length, kind, data, and the checksum of kind and data.
fn add_chunk(file: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    let length = u32::try_from(data.len()).expect("BUG: a huge chunk");
    let mut checksum = Crc::new();
    checksum.update(&kind);
    checksum.update(data);
    file.extend(length.to_be_bytes());
    file.extend(kind);
    file.extend(data);
    file.extend(checksum.sum().to_be_bytes());
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read as _;

    use flate2::read::ZlibDecoder;

    use super::*;

    /// Width, height and colours of the pixels of a file, row by row; checks the checksums.
    #[track_caller]
    pub(crate) fn decode(file: &[u8]) -> (usize, usize, Vec<[u8; 3]>) {
        let mut rest = file.strip_prefix(&SIGNATURE).expect("the signature");
        let mut chunks: Vec<(&[u8], &[u8])> = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            let (kind, data) = (&rest[4..8], &rest[8..8 + length]);
            let mut checksum = Crc::new();
            checksum.update(&rest[4..8 + length]);
            assert_eq!(rest[8 + length..12 + length], checksum.sum().to_be_bytes());
            chunks.push((kind, data));
            rest = &rest[12 + length..];
        }
        let [(b"IHDR", header), (b"PLTE", palette), (b"IDAT", rows), (b"IEND", [])] = chunks[..]
        else {
            panic!("{chunks:?}");
        };
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let (width, height) = (number(0) as usize, number(4) as usize);
        assert_eq!(header[8..], PIXEL_FORMAT);
        let mut bytes = Vec::new();
        ZlibDecoder::new(rows).read_to_end(&mut bytes).expect("compressed rows");
        assert_eq!(bytes.len(), (width + 1) * height);
        let colour = |&at: &u8| palette[3 * usize::from(at)..][..3].try_into().expect("a colour");
        let pixels = bytes.chunks(width + 1).flat_map(|row| {
            assert_eq!(row[0], 0);
            row[1..].iter().map(colour)
        });
        (width, height, pixels.collect())
    }

    /// Dots of text, as lines.
    fn drawn(text: &str) -> Vec<String> {
        let mut image = RasterImage::new(2 * CHAR_WIDTH, CHAR_HEIGHT, vec![[255; 3], [0; 3]]);
        image.text((0, 0), text, 1);
        let (width, _, pixels) = decode(&image.png());
        let rows = pixels.chunks(width).step_by(FONT_SCALE);
        let dot = |pixel: &[u8; 3]| if *pixel == [0; 3] { '#' } else { '.' };
        rows.map(|row| row.iter().step_by(FONT_SCALE).map(dot).collect()).collect()
    }

    #[test]
    fn a_picture_is_read_as_drawn() {
        let palette = vec![[255; 3], [1, 2, 3]];
        let mut image = RasterImage::new(5, 4, palette);
        image.fill(1..3, 2..4, 1);
        image.fill(4..9, 3..9, 1);
        image.fill(7..9, 0..1, 1);
        let (width, height, pixels) = decode(&image.png());
        assert_eq!((width, height), (5, 4));
        let found: Vec<usize> = (0..20).filter(|at| pixels[*at] == [1, 2, 3]).collect();
        assert_eq!(found, [11, 12, 16, 17, 19]);
    }

    #[test]
    fn characters_have_their_shape_and_unknown_ones_none() {
        let expected = [
            "...#...###..",
            "..##..#...#.",
            ".#.#......#.",
            "#..#.....#..",
            "#####...#...",
            "...#...#....",
            "...#..#####.",
        ];
        assert_eq!(drawn("42"), expected);
        assert_eq!(drawn("\u{1f600}é"), vec![".".repeat(12); 7]);
    }
}
