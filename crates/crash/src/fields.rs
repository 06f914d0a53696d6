//! Little-endian fields of untrusted bytes. Nothing panics: what is outside is `None`.

/// Reads fields one after the other.
pub(crate) struct ByteFields<'a> {
    bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> ByteFields<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> ByteFields<'a> {
        ByteFields { bytes, at }
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    /// An unsigned number of up to 8 bytes.
    pub(crate) fn unsigned(&mut self, count: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..count].copy_from_slice(self.take(count)?);
        Some(u64::from_le_bytes(bytes))
    }

    /// A signed number of up to 8 bytes.
    pub(crate) fn signed(&mut self, count: usize) -> Option<i64> {
        let unused = 64 - 8 * count as u32;
        Some((self.unsigned(count)? << unused).cast_signed() >> unused)
    }

    pub(crate) fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = self.unsigned(1)?;
            if shift < 64 {
                value |= (byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    pub(crate) fn sleb(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0i64, 0);
        loop {
            let byte = self.unsigned(1)?;
            if shift < 64 {
                value |= ((byte & 0x7f) << shift).cast_signed();
            }
            shift += 7;
            if byte & 0x80 == 0 {
                let is_negative = byte & 0x40 != 0 && shift < 64;
                return Some(if is_negative { value | (-1 << shift) } else { value });
            }
        }
    }

    /// Bytes before the next NUL.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|&byte| byte == 0)?;
        self.at += length + 1;
        Some(&rest[..length])
    }
}

/// A number of `count` bytes at an offset.
pub(crate) fn number_at(bytes: &[u8], at: usize, count: usize) -> Option<u64> {
    ByteFields::new(bytes, at).unsigned(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example values of DWARF 5, section 7.6.
    #[test]
    fn leb128_numbers() {
        let unsigned = |bytes: &[u8]| ByteFields::new(bytes, 0).uleb();
        let signed = |bytes: &[u8]| ByteFields::new(bytes, 0).sleb();
        assert_eq!((unsigned(&[2]), unsigned(&[0x80, 1])), (Some(2), Some(128)));
        assert_eq!((signed(&[0x7e]), signed(&[0x80, 0x7f])), (Some(-2), Some(-128)));
        assert_eq!((signed(&[0xff, 0]), signed(&[0x81, 0x7f])), (Some(127), Some(-127)));
        assert_eq!((unsigned(&[0x80]), signed(&[0xff; 40])), (None, None));
    }

    #[test]
    fn numbers_are_inside_the_bytes() {
        assert_eq!(ByteFields::new(&[0xfe, 0xff], 0).signed(2), Some(-2));
        assert_eq!(ByteFields::new(&[1, 2], 1).unsigned(2), None);
        assert_eq!(number_at(&[1, 2], usize::MAX, 2), None);
    }
}
