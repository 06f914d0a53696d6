//! PCP units in UCUM.
//!
//! A `pmUnits` has 32 bits: from the top four bits each for the dimensions space, time and count
//! (signed), then their scales (space and time unsigned, count a signed power of ten), then eight
//! unused bits. A plain count has no unit, as elsewhere in topdeck.

use std::fmt::Write;

const SPACE: [&str; 9] = ["By", "KiBy", "MiBy", "GiBy", "TiBy", "PiBy", "EiBy", "ZiBy", "YiBy"];
const TIME: [&str; 6] = ["ns", "us", "ms", "s", "min", "h"];

/// Microseconds: the unit of elapsed times, whatever unit the metric has.
pub(super) const ELAPSED: &str = "us";

/// The unit; empty for a plain count and for scales unknown to PCP.
pub(super) fn unit(dimension: u32) -> String {
    let signed = |shift: u32| ((dimension << (28 - shift)) as i32) >> 28;
    let scale = |shift: u32| (dimension >> shift & 15) as usize;
    let [space, time, count] = [signed(28), signed(24), signed(20)];
    if space == 0 && time == 0 && count == 1 && signed(8) == 0 {
        return String::new();
    }
    let count_name = match signed(8) {
        0 => "{count}".to_owned(),
        power => format!("10*{power}"),
    };
    let name = |names: &[&'static str], power: i32, shift: u32| match power {
        0 => Some(""),
        _ => names.get(scale(shift)).copied(),
    };
    let (Some(space_name), Some(time_name)) = (name(&SPACE, space, 16), name(&TIME, time, 12))
    else {
        return String::new();
    };
    let mut unit = String::new();
    let terms = [(space_name, space), (time_name, time), (count_name.as_str(), count)];
    for (name, power) in terms.iter().filter(|term| term.1 > 0) {
        let point = if unit.is_empty() { "" } else { "." };
        let _ = write!(unit, "{point}{name}{}", exponent(name, *power));
    }
    for (name, power) in terms.iter().filter(|term| term.1 < 0) {
        let _ = write!(unit, "/{name}{}", exponent(name, -power));
    }
    unit
}

/// A power of ten or an annotation must not be followed by a digit: UCUM would parse another
/// number.
fn exponent(name: &str, power: i32) -> String {
    match power {
        1 => String::new(),
        _ if name.starts_with("10*") || name.starts_with('{') => {
            format!(".{name}").repeat(power as usize - 1)
        }
        _ => power.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::unit;

    /// Arguments as in `MMV_UNITS(space, time, count, scale of space, of time, of count)`.
    #[track_caller]
    fn check(units: [i32; 6], expected: &str) {
        let packed = units.iter().fold(0u32, |bits, unit| bits << 4 | (*unit as u32 & 15)) << 8;
        assert_eq!(unit(packed), expected, "{units:?}");
    }

    #[test]
    fn units_are_written_as_ucum_does() {
        check([0, 0, 0, 0, 0, 0], "");
        check([0, 0, 1, 0, 0, 0], "");
        check([0, 0, 1, 0, 0, 6], "10*6");
        check([0, 0, 1, 0, 0, -3], "10*-3");
        check([1, 0, 0, 0, 0, 0], "By");
        check([1, 0, 0, 2, 0, 0], "MiBy");
        check([0, 1, 0, 0, 1, 0], "us");
        check([0, 1, 0, 0, 5, 0], "h");
        check([1, -1, 0, 2, 3, 0], "MiBy/s");
        check([0, -1, 1, 0, 3, 0], "{count}/s");
        check([0, 1, -1, 0, 2, 0], "ms/{count}");
        check([0, -1, 0, 0, 3, 0], "/s");
        check([2, -2, 0, 0, 3, 0], "By2/s2");
        check([0, 0, 2, 0, 0, 0], "{count}.{count}");
    }

    #[test]
    fn scales_that_pcp_does_not_have_give_no_unit() {
        check([1, 0, 0, 9, 0, 0], "");
        check([0, 1, 0, 0, 6, 0], "");
        // The scale of an absent dimension is ignored.
        check([1, 0, 0, 0, 15, 0], "By");
    }
}
