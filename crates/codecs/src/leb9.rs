//! LEB128-64b9B numbers of HdrHistogram and DDSketch: eight bytes of seven bits and a ninth of
//! eight, so that any nine bytes are a number.

/// Maximum number of bytes.
pub(crate) const LEB9_BYTES_MAX: usize = 9;

/// Reads a LEB128-64b9B number from the bytes that `next` returns.
#[inline]
pub(crate) fn leb9<E>(mut next: impl FnMut() -> Result<u8, E>) -> Result<u64, E> {
    let mut value = 0;
    for shift in (0..).step_by(7).take(LEB9_BYTES_MAX - 1) {
        let byte = next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Ok(value | u64::from(next()?) << 56)
}

/// Appends a LEB128-64b9B number.
pub(crate) fn put_leb9(out: &mut Vec<u8>, mut value: u64) {
    for _ in 0..LEB9_BYTES_MAX - 1 {
        if value < 0x80 {
            break;
        }
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: u64) {
        let mut out = Vec::new();
        put_leb9(&mut out, value);
        assert_eq!(out.len(), (64 - (value | 1).leading_zeros()).div_ceil(7).min(9) as usize);
        let mut bytes = out.into_iter();
        assert_eq!(leb9(|| bytes.next().ok_or("too short")), Ok(value));
        assert_eq!(bytes.next(), None);
    }

    #[test]
    fn numbers_round_trip() {
        for shift in 0..64 {
            check((1 << shift) - 1);
            check(1 << shift);
        }
        check(u64::MAX);
    }
}
