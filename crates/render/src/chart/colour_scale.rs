//! Colour scale: count to colour, by the logarithm of the count.
//!
//! On a light background the ramp goes from pale green over blue to navy (after ColorBrewer's
//! YlGnBu by Cynthia Brewer, whose lightness falls evenly): higher counts contrast more with the
//! background. On a dark background the ramp is reversed. The background of a terminal is unknown:
//! its ramp is viridis (Nathaniel Smith and Stéfan van der Walt) without the darkest fifth, so both
//! ends are visible on either background.

/// Logarithmic scale of counts: 1 maps to 0, the maximum count to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColourScale {
    max: u64,
}

/// Background of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Background {
    Light,
    Dark,
    /// Terminal: light or dark.
    Any,
}

type Rgb = [u8; 3];

const ON_LIGHT: [Rgb; 7] = [
    [0xc3, 0xe6, 0xb2],
    [0x7f, 0xcd, 0xbb],
    [0x41, 0xb6, 0xc4],
    [0x1d, 0x91, 0xc0],
    [0x22, 0x5e, 0xa8],
    [0x25, 0x34, 0x94],
    [0x08, 0x1d, 0x58],
];
const ON_DARK: [Rgb; 7] = [
    [0x25, 0x34, 0x94],
    [0x22, 0x5e, 0xa8],
    [0x1d, 0x91, 0xc0],
    [0x41, 0xb6, 0xc4],
    [0x7f, 0xcd, 0xbb],
    [0xc7, 0xe9, 0xb4],
    [0xff, 0xff, 0xcc],
];

const ON_EITHER: [Rgb; 5] = [
    [0x41, 0x44, 0x87],
    [0x2a, 0x78, 0x8e],
    [0x22, 0xa8, 0x84],
    [0x7a, 0xd1, 0x51],
    [0xfd, 0xe7, 0x25],
];

impl ColourScale {
    pub(crate) fn up_to(most: u64) -> ColourScale {
        ColourScale { max: most }
    }

    /// Heat of a count, 0 to 1; `None` for a count of 0.
    pub(crate) fn heat(self, count: u64) -> Option<f64> {
        match (count, self.max) {
            (0, _) => None,
            (_, 0 | 1) => Some(1.0),
            (count, most) => Some(((count as f64).ln() / (most as f64).ln()).min(1.0)),
        }
    }

    /// Level of a count, from 0: the levels have equal ratios. `None` for a count of 0.
    pub(crate) fn level(self, count: u64, levels: usize) -> Option<usize> {
        self.heat(count).map(|heat| ((heat * levels as f64) as usize).min(levels - 1))
    }

    /// Lowest count of each level that is in use.
    pub(crate) fn levels(self, levels: usize) -> Vec<(usize, u64)> {
        let mut all: Vec<(usize, u64)> = Vec::new();
        for level in 0..levels {
            // Binary search for the lowest count on this level or above.
            let (mut least, mut greatest) = (1, self.max.max(1));
            while least < greatest {
                let middle = least.midpoint(greatest);
                if self.level(middle, levels) >= Some(level) {
                    greatest = middle;
                } else {
                    least = middle + 1;
                }
            }
            if self.level(least, levels) == Some(level) {
                all.push((level, least));
            }
        }
        all
    }

    /// Counts for a legend: powers of ten, thinned to about `most_marks`, and the maximum.
    pub(crate) fn marks(self, most_marks: usize) -> Vec<u64> {
        let powers = self.max.checked_ilog10().map_or(0, |power| power as usize + 1);
        let stride = powers.div_ceil(most_marks.max(1)).max(1);
        let mut marks: Vec<u64> =
            (0..powers).step_by(stride).map(|p| 10u64.pow(p as u32)).collect();
        // The last power of ten is dropped if it is close to the maximum.
        if marks.last().is_some_and(|&last| self.max / last < 3 && self.max > last && last > 1) {
            marks.pop();
        }
        if self.max > 0 && marks.last() != Some(&self.max) {
            marks.push(self.max);
        }
        marks
    }
}

/// Colour of a heat from 0 to 1.
pub(crate) fn colour(heat: f64, ground: Background) -> Rgb {
    let ramp: &[Rgb] = match ground {
        Background::Light => &ON_LIGHT,
        Background::Dark => &ON_DARK,
        Background::Any => &ON_EITHER,
    };
    let position = heat.clamp(0.0, 1.0) * (ramp.len() - 1) as f64;
    let at = (position as usize).min(ramp.len() - 2);
    let part = position - at as f64;
    std::array::from_fn(|i| {
        let (from, to) = (f64::from(ramp[at][i]), f64::from(ramp[at + 1][i]));
        (from + (to - from) * part).round() as u8
    })
}

/// Colour of a heat in the 256-colour palette: close to the ramp, with rising lightness.
pub(crate) fn palette_256(heat: f64) -> u8 {
    const STEPS: [u8; 9] = [54, 60, 31, 36, 77, 113, 149, 191, 226];
    STEPS[((heat.clamp(0.0, 1.0) * STEPS.len() as f64) as usize).min(STEPS.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_bounds_are_exact() {
        for most in [1, 2, 3, 9, 10, 100, 12_345, u64::MAX] {
            for levels in [1, 4, 5, 9, 16] {
                let ramp = ColourScale::up_to(most);
                let all = ramp.levels(levels);
                assert_eq!(all.last().unwrap().0, levels - 1, "the fullest, of {most}");
                assert_eq!(all[0].1, 1);
                for (level, least) in all {
                    assert_eq!(ramp.level(least, levels), Some(level));
                    let before = ramp.level(least - 1, levels);
                    assert!(before.is_none_or(|before| before < level), "{least} of {most}");
                }
            }
        }
        assert_eq!(ColourScale::up_to(0).heat(0), None);
    }

    #[test]
    fn marks_are_round_and_end_with_the_greatest() {
        assert_eq!(ColourScale::up_to(12_345).marks(8), [1, 10, 100, 1000, 12_345]);
        assert_eq!(ColourScale::up_to(52_345).marks(8), [1, 10, 100, 1000, 10_000, 52_345]);
        assert_eq!(ColourScale::up_to(1_000_000).marks(3), [1, 1000, 1_000_000]);
        assert_eq!(ColourScale::up_to(1).marks(3), [1]);
        assert_eq!(ColourScale::up_to(2).marks(3), [1, 2]);
        assert!(ColourScale::up_to(0).marks(3).is_empty());
    }

    #[test]
    fn colours_go_from_end_to_end() {
        assert_eq!(colour(0.0, Background::Light), ON_LIGHT[0]);
        assert_eq!(colour(1.0, Background::Light), ON_LIGHT[6]);
        assert_eq!((palette_256(0.0), palette_256(1.0)), (54, 226));
    }
}
