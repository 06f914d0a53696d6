//! An answer that says how far it can be off.

/// What is known of a statistic: the true value of the recorded data lies in `lower..=upper`, and
/// `estimate`, between the two, is the likeliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket<T = f64> {
    /// The truth is not below.
    pub lower: T,
    /// The best single number.
    pub estimate: T,
    /// The truth is not above.
    pub upper: T,
}

impl<T: PartialOrd + Copy> Bracket<T> {
    /// A value known exactly.
    pub fn exact(value: T) -> Bracket<T> {
        Bracket { lower: value, estimate: value, upper: value }
    }

    /// `estimate`, moved into `lower..=upper` if it lies outside.
    pub(crate) fn new(lower: T, estimate: T, upper: T) -> Bracket<T> {
        let raised = if estimate < lower { lower } else { estimate };
        Bracket { lower, estimate: if raised > upper { upper } else { raised }, upper }
    }

    /// Whether the bracket has no width.
    pub fn is_exact(&self) -> bool {
        self.lower == self.upper
    }

    /// Whether `value` may be the truth.
    pub fn contains(&self, value: T) -> bool {
        self.lower <= value && value <= self.upper
    }
}

impl Bracket<f64> {
    /// The same answer after a rising function.
    pub(crate) fn map(self, f: impl Fn(f64) -> f64) -> Bracket {
        Bracket::new(f(self.lower), f(self.estimate), f(self.upper))
    }

    /// Bounds moved outwards by a few roundings of a double, for what was computed from them.
    pub(crate) fn widened(self) -> Bracket {
        // An infinite bound has no roundings, and infinity less infinity would be NaN.
        let doubt =
            |bound: f64| if bound.is_finite() { bound.abs() * 4.0 * f64::EPSILON } else { 0.0 };
        Bracket {
            lower: self.lower - doubt(self.lower),
            upper: self.upper + doubt(self.upper),
            ..self
        }
    }
}
