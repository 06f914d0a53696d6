//! Label hash of `limit_ratio`, which selects the same series as Prometheus.
//!
//! XXH64 with seed 0 (Yann Collet; the specification is `doc/xxhash_spec.md` of the xxHash project)
//! of the labels as Prometheus encodes them: names and values in the order of the names, each
//! preceded by its length: one byte below 255, otherwise a byte 255 and three more, little-endian.

use crate::labels::LabelSet;

const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME_5: u64 = 0x27d4_eb2f_1656_67c5;

/// Hash of the labels as a number from 0 to 1.
pub(super) fn label_offset(labels: &LabelSet) -> f64 {
    let mut bytes = Vec::with_capacity(labels.bytes());
    for (name, value) in labels.iter() {
        for text in [name, value] {
            match text.len() {
                length @ 0..255 => bytes.push(length as u8),
                length => {
                    bytes.push(255);
                    bytes.extend(&(length as u32).to_le_bytes()[..3]);
                }
            }
            bytes.extend(text.as_bytes());
        }
    }
    xxh64(&bytes) as f64 / u64::MAX as f64
}

fn xxh64(bytes: &[u8]) -> u64 {
    let (stripes, rest) = bytes.as_chunks::<32>();
    let mut hash = PRIME_5;
    if !stripes.is_empty() {
        let mut lanes = [PRIME_1.wrapping_add(PRIME_2), PRIME_2, 0, PRIME_1.wrapping_neg()];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<8>().0) {
                *lane = round(*lane, u64::from_le_bytes(*word));
            }
        }
        let [a, b, c, d] = lanes;
        hash = a
            .rotate_left(1)
            .wrapping_add(b.rotate_left(7))
            .wrapping_add(c.rotate_left(12))
            .wrapping_add(d.rotate_left(18));
        for lane in lanes {
            hash = (hash ^ round(0, lane)).wrapping_mul(PRIME_1).wrapping_add(PRIME_4);
        }
    }
    hash = hash.wrapping_add(bytes.len() as u64);
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        hash ^= round(0, u64::from_le_bytes(*word));
        hash = hash.rotate_left(27).wrapping_mul(PRIME_1).wrapping_add(PRIME_4);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(PRIME_1);
        hash = hash.rotate_left(23).wrapping_mul(PRIME_2).wrapping_add(PRIME_3);
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(PRIME_5);
        hash = hash.rotate_left(11).wrapping_mul(PRIME_1);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(PRIME_2);
    hash = (hash ^ hash >> 29).wrapping_mul(PRIME_3);
    hash ^ hash >> 32
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: u64) {
        assert_eq!(xxh64(text.as_bytes()), expected, "{:x}", xxh64(text.as_bytes()));
    }

    #[test]
    fn hashes_are_those_of_the_specification() {
        check("", 0xef46_db37_51d8_e999);
        check("a", 0xd24e_c4f1_a98c_6e5b);
        check("abc", 0x44bc_2cf5_ad77_0999);
        check("Nobody inspects the spammish repetition", 0xfbce_a83c_8a37_8bf1);
    }
    #[track_caller]
    fn check_offset(pairs: &[(&str, &str)], expected: f64) {
        assert_eq!(label_offset(&LabelSet::new(pairs.iter().copied())), expected);
    }

    /// Values from Prometheus 3.15.
    #[test]
    fn label_offsets_match_prometheus() {
        check_offset(&[], 0.934_674_931_531_705_9);
        check_offset(&[("__name__", "up")], 0.925_161_306_571_719_2);
        let series = [
            ("__name__", "http_requests"),
            ("group", "canary"),
            ("instance", "histogram_1"),
            ("job", "api-server"),
        ];
        check_offset(&series, 0.529_845_078_862_090_8);
        check_offset(&[("a", &"x".repeat(300))], 0.450_019_039_050_974_8);
    }
}
