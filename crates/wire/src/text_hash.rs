//! Hash of texts of up to 16 KiB: statements are hashed for each operation, and the default hasher
//! took a third of the time of a long one.
//!
//! Folded products of 16 bytes, in two lanes (wyhash and foldhash multiply so too). Clients choose
//! the texts: without the seeds they cannot choose texts that collide.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Bytes that a step takes.
const STEP_BYTES: usize = 32;

/// Secrets of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashSeeds([u64; 2]);

impl HashSeeds {
    /// Seeds that are equal in each run, for tables in which a collision costs nothing.
    pub(crate) const CONSTANT: HashSeeds =
        HashSeeds([0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f]);

    fn random() -> HashSeeds {
        // Each state has keys of its own, which the operating system has drawn.
        HashSeeds([0, 1].map(|number| RandomState::new().hash_one(number)))
    }

    /// Hash of bytes after those of `state`.
    pub(crate) fn hash(self, state: u64, bytes: &[u8]) -> u64 {
        let [first, second] = self.0;
        let mut lanes = [first ^ state, second];
        let mut step = |block: &[u8; STEP_BYTES]| {
            let (words, _) = block.as_chunks::<8>();
            let word = |at: usize| u64::from_le_bytes(words[at]);
            lanes = [
                fold(lanes[0] ^ word(0), second ^ word(1)),
                fold(lanes[1] ^ word(2), first ^ word(3)),
            ];
        };
        let (blocks, rest) = bytes.as_chunks::<STEP_BYTES>();
        blocks.iter().for_each(&mut step);
        if !rest.is_empty() {
            let mut last = [0; STEP_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            step(&last);
        }
        // Last: a text could cancel a length that is in a lane before it.
        fold(lanes[0] ^ second, lanes[1] ^ first ^ bytes.len() as u64)
    }
}

/// Both halves of a product.
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product as u64) ^ (product >> 64) as u64
}

/// Builds hashers of a table with keys that are texts.
#[derive(Clone, Debug)]
pub(crate) struct BuildTextHasher(HashSeeds);

impl Default for BuildTextHasher {
    fn default() -> BuildTextHasher {
        BuildTextHasher(HashSeeds::random())
    }
}

impl BuildHasher for BuildTextHasher {
    type Hasher = TextHasher;

    fn build_hasher(&self) -> TextHasher {
        TextHasher { seeds: self.0, state: 0 }
    }
}

/// Hasher of a text.
pub(crate) struct TextHasher {
    seeds: HashSeeds,
    state: u64,
}

impl Hasher for TextHasher {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        self.state = self.seeds.hash(self.state, bytes);
    }

    /// The end of a text. One write has its length, and a key is one text.
    fn write_u8(&mut self, byte: u8) {
        self.state ^= u64::from(byte);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn texts_that_differ_in_any_byte_or_their_length_have_other_hashes() {
        let mut found = HashSet::new();
        let hashes = |bytes: &[u8]| HashSeeds::CONSTANT.hash(0, bytes);
        for length in 0..100 {
            assert!(found.insert(hashes(&vec![0; length])), "{length} zeros");
            for at in 0..length {
                for byte in [1, 0x80] {
                    let mut text = vec![0; length];
                    text[at] = byte;
                    assert!(found.insert(hashes(&text)), "byte {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn tables_have_seeds_of_their_own() {
        let hash = |build: &BuildTextHasher| build.hash_one("select $1");
        let [one, other] = [0; 2].map(|_| BuildTextHasher::default());
        assert_eq!(hash(&one), hash(&one));
        assert_ne!(hash(&one), hash(&other));
    }

    #[test]
    fn hashes_use_all_places_of_a_table() {
        const PLACES: u64 = 1 << 10;
        // The lowest and the highest bits: a table uses both.
        for shift in [0, 54] {
            let place = |n: u64| {
                HashSeeds::CONSTANT.hash(0, format!("select {n}").as_bytes()) >> shift
                    & (PLACES - 1)
            };
            let mut counts = vec![0_u32; PLACES as usize];
            (0..16 * PLACES).for_each(|n| counts[place(n) as usize] += 1);
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(least >= Some(&2) && most <= Some(&48), "{least:?} to {most:?} of 16");
        }
    }
}
