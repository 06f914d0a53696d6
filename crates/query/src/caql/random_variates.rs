//! Random variates for graphs and tests of queries; not for secrets.

use std::f64::consts::TAU;

/// Random variates (SplitMix64; Steele, Lea and Flood, 2014).
pub(super) struct RandomVariates {
    state: u64,
}

impl RandomVariates {
    pub(super) fn new(seed: u64) -> RandomVariates {
        RandomVariates { state: seed }
    }

    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in [0, 1).
    pub(super) fn unit_interval(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub(super) fn exponential(&mut self) -> f64 {
        -(-self.unit_interval()).ln_1p()
    }

    /// Standard normal (G. E. P. Box and M. E. Muller, 1958).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (TAU * self.unit_interval()).cos()
    }

    /// Gamma with a positive shape and scale 1 (G. Marsaglia and W. W. Tsang, 2000).
    pub(super) fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let more = self.gamma(shape + 1.0);
            return more * (1.0 - self.unit_interval()).powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.unit_interval()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    pub(super) fn beta(&mut self, alpha: f64, beta: f64) -> f64 {
        let (a, b) = (self.gamma(alpha), self.gamma(beta));
        // Both may underflow: then the variate is at one of the ends.
        if a + b > 0.0 {
            a / (a + b)
        } else {
            (self.unit_interval() < alpha / (alpha + beta)).into()
        }
    }

    /// Chi-squared with `df` degrees of freedom, non-central if `noncentrality` is above 0.
    pub(super) fn chi_squared(&mut self, df: f64, noncentrality: f64) -> f64 {
        let more = if noncentrality > 0.0 { self.poisson(noncentrality / 2.0) } else { 0.0 };
        2.0 * self.gamma(df / 2.0 + more)
    }

    /// Binomial: `n` trials of probability `p`. Splits at the median order statistic until few
    /// trials are left (J. H. Ahrens and U. Dieter, 1974).
    pub(super) fn binomial(&mut self, mut n: f64, mut p: f64) -> f64 {
        let mut happened = 0.0;
        while n > 20.0 {
            let middle = (n / 2.0).floor() + 1.0;
            let share = self.beta(middle, n + 1.0 - middle);
            if share <= p {
                happened += middle;
                n -= middle;
                p = ((p - share) / (1.0 - share)).clamp(0.0, 1.0);
            } else {
                n = middle - 1.0;
                p = (p / share).clamp(0.0, 1.0);
            }
            if p.is_nan() {
                return happened;
            }
        }
        happened + (0..n as u32).filter(|_| self.unit_interval() < p).count() as f64
    }

    /// Poisson with rate `rate`. For high rates, jumps to the time of a later event (same source).
    pub(super) fn poisson(&mut self, mut rate: f64) -> f64 {
        let mut happened = 0.0;
        while rate > 20.0 {
            let events = (rate * 0.875).floor();
            let time = self.gamma(events);
            if time > rate {
                return happened + self.binomial(events - 1.0, rate / time);
            }
            happened += events;
            rate -= time;
        }
        let mut time = self.exponential();
        while time < rate {
            happened += 1.0;
            time += self.exponential();
        }
        happened
    }
}

#[cfg(test)]
mod tests {
    use super::RandomVariates;

    /// Mean and variance of many variates are close to the expected ones: the mean within six
    /// standard deviations.
    #[track_caller]
    fn check(of: impl Fn(&mut RandomVariates) -> f64, mean: f64, variance: f64) {
        let mut draw = RandomVariates::new(42);
        let values: Vec<f64> = (0..20_000).map(|_| of(&mut draw)).collect();
        let n = values.len() as f64;
        let found = values.iter().sum::<f64>() / n;
        let spread = values.iter().map(|value| (value - found).powi(2)).sum::<f64>() / n;
        assert!((found - mean).abs() < 6.0 * (variance / n).sqrt(), "mean {found}, not {mean}");
        assert!((spread / variance - 1.0).abs() < 0.15, "variance {spread}, not {variance}");
    }

    #[test]
    fn means_and_variances() {
        check(RandomVariates::unit_interval, 0.5, 1.0 / 12.0);
        check(RandomVariates::exponential, 1.0, 1.0);
        check(RandomVariates::normal, 0.0, 1.0);
        check(|draw| draw.gamma(0.5), 0.5, 0.5);
        check(|draw| draw.gamma(7.5), 7.5, 7.5);
        check(|draw| draw.beta(2.0, 3.0), 0.4, 0.04);
        check(|draw| draw.chi_squared(4.0, 0.0), 4.0, 8.0);
        check(|draw| draw.chi_squared(4.0, 3.0), 7.0, 20.0);
        check(|draw| draw.binomial(10.0, 0.3), 3.0, 2.1);
        check(|draw| draw.binomial(1e9, 0.25), 2.5e8, 1.875e8);
        check(|draw| draw.poisson(3.0), 3.0, 3.0);
        check(|draw| draw.poisson(1e6), 1e6, 1e6);
    }
}
