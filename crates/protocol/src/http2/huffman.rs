//! Huffman code of HPACK (RFC 7541 appendix B).
//!
//! It is canonical: codes of one length are consecutive, in the order of their symbols.

/// Decodes a string; `None` if its end is not padding.
pub(super) fn decode_huffman(bytes: &[u8], text: &mut Vec<u8>) -> Option<()> {
    let (mut bits, mut count) = (0_u64, 0_u32);
    let mut bytes = bytes.iter();
    loop {
        while count <= 56 {
            let Some(byte) = bytes.next() else { break };
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
        }
        let window = (bits >> 32) as u32;
        let length = LENGTHS.iter().find(|length| window < length.end)?;
        if length.bits > count {
            // The end is padded with at most 7 bits, all ones.
            let is_padding = count < 8 && bits.leading_ones() >= count;
            return is_padding.then_some(());
        }
        let offset = (window - length.start) >> (32 - length.bits);
        text.push(SYMBOLS[usize::from(length.first) + offset as usize]);
        bits <<= length.bits;
        count -= length.bits;
    }
}

/// Codes of a length, aligned to the left of 32 bits.
struct CodeLength {
    bits: u32,
    /// First code, and the first code that is longer.
    start: u32,
    end: u32,
    /// Position of the first symbol.
    first: u16,
}

/// Number of symbols with codes of each length. The last code is that of the end of the string,
/// which no string has.
const COUNTS: [(u32, u16); 21] = [
    (5, 10),
    (6, 26),
    (7, 32),
    (8, 6),
    (10, 5),
    (11, 3),
    (12, 2),
    (13, 6),
    (14, 2),
    (15, 3),
    (19, 3),
    (20, 8),
    (21, 13),
    (22, 26),
    (23, 29),
    (24, 12),
    (25, 4),
    (26, 15),
    (27, 19),
    (28, 29),
    (30, 3),
];

static LENGTHS: [CodeLength; COUNTS.len() + 1] = {
    const NONE: CodeLength = CodeLength { bits: 32, start: 0, end: u32::MAX, first: 0 };
    let mut lengths = [NONE; COUNTS.len() + 1];
    let (mut at, mut start, mut first) = (0, 0, 0);
    while at < COUNTS.len() {
        let (bits, count) = COUNTS[at];
        let end = start + ((count as u32) << (32 - bits));
        lengths[at] = CodeLength { bits, start, end, first };
        (start, first, at) = (end, first + count, at + 1);
    }
    // Padding that is longer than any code.
    lengths[at] = CodeLength { bits: 65, start, end: u32::MAX, first };
    lengths
};

/// Symbols in the order of their codes.
static SYMBOLS: [u8; 256] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116, 32, 37, 45, 46, 47, 51, 52, 53, 54, 55, 56, 57,
    61, 65, 95, 98, 100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58, 66, 67, 68, 69, 70, 71,
    72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89, 106, 107, 113, 118, 119,
    120, 121, 122, 38, 42, 44, 59, 88, 90, 33, 34, 40, 41, 63, 39, 43, 124, 35, 62, 0, 36, 64, 91,
    93, 126, 94, 125, 60, 96, 123, 92, 195, 208, 128, 130, 131, 162, 184, 194, 224, 226, 153, 161,
    167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230, 129, 132, 133, 134, 136, 146, 154, 156,
    160, 163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233, 1,
    135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174,
    175, 180, 182, 183, 188, 191, 197, 231, 239, 9, 142, 144, 145, 148, 159, 171, 206, 215, 225,
    236, 237, 199, 207, 234, 235, 192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242,
    243, 255, 203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252,
    253, 254, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28,
    29, 30, 31, 127, 220, 249, 10, 13, 22,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: Option<&str>) {
        let mut text = Vec::new();
        let result = decode_huffman(bytes, &mut text);
        let text = std::str::from_utf8(&text).unwrap();
        assert_eq!(result.map(|()| text), expected);
    }

    #[test]
    fn strings_end_with_padding() {
        check(b"", Some(""));
        check(&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], {
            Some("www.example.com")
        });
        // `0` has the code 00000, and `\` the longest one but three: 19 bits.
        check(&[0b0000_0111], Some("0"));
        check(&[0b1111_1111, 0b1111_1110, 0b0001_1111], Some("\\"));
        // Padding of a whole byte, with a zero, and the end of the string as a symbol.
        check(&[0b0000_0111, 0xff], None);
        check(&[0b0000_0110], None);
        check(&[0xff, 0xff, 0xff, 0xff], None);
    }
}
