//! Logarithm and power to base 2 with Prometheus' rounding.
//!
//! A quantile between two exponential bounds uses both. The platform's functions round differently
//! in the last place, so these follow the reductions and polynomials that Go's `math` shares with
//! FreeBSD's msun (`e_log.c`, `e_exp.c`, Sun Microsystems 1993), each a few operations in a fixed
//! order. No multiplication is fused with an addition.

/// ln 2 in two parts: the first has trailing zero bits, so that small multiples of it are exact.
const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Coefficients of the even function `(ln(1 + f) - 2s) / s` in `s²`, with `s = f / (2 + f)`.
const LOG: [f64; 7] = [
    6.666_666_666_666_735e-1,
    3.999_999_999_940_942e-1,
    2.857_142_874_366_239e-1,
    2.222_219_843_214_978_4e-1,
    1.818_357_216_161_805e-1,
    1.531_383_769_920_937_3e-1,
    1.479_819_860_511_658_6e-1,
];

/// Coefficients of `r (e^r + 1) / (e^r - 1)` in `r²`, without the constant 2.
const EXP: [f64; 5] = [
    1.666_666_666_666_666_6e-1,
    -2.777_777_777_701_559_3e-3,
    6.613_756_321_437_934e-5,
    -1.653_390_220_546_525_2e-6,
    4.138_136_797_057_238_5e-8,
];

/// Logarithm of a non-negative value.
pub(crate) fn log2(value: f64) -> f64 {
    if value.is_nan() || value == f64::INFINITY {
        return value;
    }
    if value <= 0.0 {
        return if value == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    }
    let (fraction, exponent) = fraction_and_exponent(value);
    if fraction == 0.5 {
        return f64::from(exponent - 1);
    }
    natural(fraction) * std::f64::consts::LOG2_E + f64::from(exponent)
}

/// Natural logarithm of a value between a half and one.
fn natural(fraction: f64) -> f64 {
    let (f, k) = if fraction < std::f64::consts::FRAC_1_SQRT_2 {
        (fraction * 2.0 - 1.0, -1.0)
    } else {
        (fraction - 1.0, 0.0)
    };
    let [l1, l2, l3, l4, l5, l6, l7] = LOG;
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let odd = s2 * (l1 + s4 * (l3 + s4 * (l5 + s4 * l7)));
    let even = s4 * (l2 + s4 * (l4 + s4 * l6));
    let half_square = 0.5 * f * f;
    k * LN2_HIGH - ((half_square - (s * (half_square + (odd + even)) + k * LN2_LOW)) - f)
}

/// Two to the power of `exponent`.
pub(crate) fn exp2(exponent: f64) -> f64 {
    if exponent.is_nan() {
        return exponent;
    }
    if exponent > 1023.9999999999999 {
        return f64::INFINITY;
    }
    if exponent < -1074.0 {
        return 0.0;
    }
    let integer = (exponent + 0.5f64.copysign(exponent)).trunc();
    let rest = exponent - integer;
    let (high, low) = (rest * LN2_HIGH, -rest * LN2_LOW);
    let r = high - low;
    let t = r * r;
    let [p1, p2, p3, p4, p5] = EXP;
    let c = r - t * (p1 + t * (p2 + t * (p3 + t * (p4 + t * p5))));
    let power = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
    let (fraction, more) = fraction_and_exponent(power);
    super::bound::scaled(fraction, more as i64 + integer as i64)
}

/// Splits a positive finite value into a fraction in [½, 1) and a power of two.
fn fraction_and_exponent(value: f64) -> (f64, i32) {
    let (value, shift) =
        if value < f64::MIN_POSITIVE { (value * 2f64.powi(52), 52) } else { (value, 0) };
    let bits = value.to_bits();
    let exponent = (bits >> 52) as i32 - 1022 - shift;
    (f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52), exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_exact() {
        for exponent in -1074..1024 {
            let power = exp2(exponent.into());
            assert_eq!(
                power,
                2f64.powi(exponent.max(-1022)) * 2f64.powi(exponent.min(-1022) + 1022)
            );
            assert_eq!(log2(power), f64::from(exponent));
        }
    }

    #[test]
    fn other_values_are_nearly_exact() {
        for i in 1..10_000 {
            let value = f64::from(i) * 0.37;
            assert!((log2(value) - value.log2()).abs() <= 4e-15);
            let exponent = value / 10.0;
            assert!((exp2(exponent) / exponent.exp2() - 1.0).abs() <= 1e-13);
        }
    }

    #[test]
    fn ends() {
        assert_eq!(log2(0.0), f64::NEG_INFINITY);
        assert_eq!(log2(f64::INFINITY), f64::INFINITY);
        assert!(log2(-1.0).is_nan() && log2(f64::NAN).is_nan() && exp2(f64::NAN).is_nan());
        assert_eq!((exp2(f64::INFINITY), exp2(f64::NEG_INFINITY)), (f64::INFINITY, 0.0));
    }
}
