//! The inputs that a fuzzer changes.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use allocation_counter::AllocationInfo;

use crate::random_draws::RandomDraws;

/// Changed inputs may be this long, or as long as the longest seed.
const LENGTH_MAX: usize = 4096;

/// Seeds, and changed inputs that were kept.
pub(crate) struct InputPool {
    seeds: Vec<Vec<u8>>,
    kept: Vec<Vec<u8>>,
    shapes: HashSet<AllocationShape>,
}

/// How much a check allocates, in classes of similar numbers: what it does with an input, seen from
/// outside.
#[derive(PartialEq, Eq, Hash)]
struct AllocationShape {
    allocations: u32,
    bytes: u32,
}

impl InputPool {
    /// Reads the files of a directory; without any, the empty input is the only seed.
    pub(crate) fn read(dir: &Path) -> io::Result<InputPool> {
        let mut seeds = Vec::new();
        match fs::read_dir(dir) {
            Ok(entries) => {
                for entry in entries {
                    seeds.push(fs::read(entry?.path())?);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(InputPool::new(seeds))
    }

    pub(crate) fn new(mut seeds: Vec<Vec<u8>>) -> InputPool {
        if seeds.is_empty() {
            seeds.push(Vec::new());
        }
        InputPool { seeds, kept: Vec::new(), shapes: HashSet::new() }
    }

    /// All seeds in random order.
    pub(crate) fn shuffled_seeds(&self, draws: &mut RandomDraws) -> Vec<Vec<u8>> {
        let mut seeds = self.seeds.clone();
        for end in (1..seeds.len()).rev() {
            seeds.swap(end, draws.below(end + 1));
        }
        seeds
    }

    /// Length limit of changed inputs.
    pub(crate) fn length_max(&self) -> usize {
        self.seeds.iter().map(Vec::len).max().unwrap_or(0).max(LENGTH_MAX)
    }

    /// Whether no earlier check allocated like this one.
    pub(crate) fn is_new(&mut self, used: &AllocationInfo) -> bool {
        let allocations = size_class(used.count_total);
        self.shapes.insert(AllocationShape { allocations, bytes: size_class(used.bytes_total) })
    }

    pub(crate) fn keep(&mut self, input: Vec<u8>) {
        self.kept.push(input);
    }

    pub(crate) fn kept_count(&self) -> usize {
        self.kept.len()
    }

    /// A seed or, every other time, a kept input.
    pub(crate) fn pick(&self, draws: &mut RandomDraws) -> &[u8] {
        let is_kept = !self.kept.is_empty() && draws.below(2) == 0;
        let inputs: &[Vec<u8>] = if is_kept { &self.kept } else { &self.seeds };
        draws.pick(inputs).as_slice()
    }
}

/// Numbers below 16 have a class each, larger ones four per power of two.
fn size_class(number: u64) -> u32 {
    if number < 16 {
        return number as u32;
    }
    let power = number.ilog2();
    4 * power + ((number >> (power - 2)) & 3) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_sizes_ascend_without_gaps() {
        let classes: Vec<u32> = (0..40).map(size_class).collect();
        assert_eq!(classes[14..22], [14, 15, 16, 16, 16, 16, 17, 17]);
        assert!(classes.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1));
        assert_eq!(size_class(u64::MAX), 4 * 63 + 3);
    }

    #[test]
    fn only_the_first_input_of_a_shape_is_new() {
        let mut pool = InputPool::new(Vec::new());
        let mut is_new = |count_total, bytes_total| {
            pool.is_new(&AllocationInfo { count_total, bytes_total, ..AllocationInfo::default() })
        };
        assert!(is_new(0, 0) && !is_new(0, 0));
        assert!(is_new(1, 8) && is_new(1, 9) && !is_new(1, 8));
        assert!(is_new(1, 1000) && !is_new(1, 1001));
    }

    #[test]
    fn without_files_the_empty_input_is_a_seed() {
        let pool = InputPool::read(Path::new("/nonexistent/seeds")).unwrap();
        assert_eq!(pool.shuffled_seeds(&mut RandomDraws::new(1)), [Vec::<u8>::new()]);
        assert_eq!(pool.length_max(), LENGTH_MAX);
    }

    #[test]
    fn kept_inputs_are_picked_like_seeds() {
        let mut pool = InputPool::new(vec![b"seed".to_vec()]);
        pool.keep(b"kept".to_vec());
        let mut draws = RandomDraws::new(1);
        let kept = (0..100).filter(|_| pool.pick(&mut draws) == b"kept").count();
        assert!((20..80).contains(&kept), "{kept}");
    }
}
