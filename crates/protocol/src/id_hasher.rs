//! Hasher of ids that a protocol assigns: stream ids.
//!
//! A peer may choose ids that collide. The tables are small, so that it gains nothing; and the
//! default hasher took half of the time of a request of HTTP/2.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds hashers of ids.
pub(crate) type BuildIdHasher = BuildHasherDefault<IdHasher>;

/// Hasher of one integer (Fibonacci hashing).
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl IdHasher {
    fn add(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }

    fn write_i16(&mut self, number: i16) {
        self.add(u64::from(number as u16));
    }
}
