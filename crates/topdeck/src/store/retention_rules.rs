//! Retention rules as typed: `base 30d`, `1h forever {host="x"}`.

use model::Selector;
use store::{Resolution, RetentionRule};

use crate::time;

const FOREVER: &str = "forever";

/// Parses resolution, duration and selector.
pub(crate) fn parse_rule(text: &str) -> Result<RetentionRule, String> {
    let expected = "expected a resolution (base, 1m, 5m, 1h or 1d), a duration (such as 30d, 1y \
                    or forever) and optionally a selector, as in 'base 30d' or '5m 1y \
                    {host=\"x\"}'";
    let (resolution, rest) = text.trim().split_once(' ').ok_or(expected)?;
    let (duration, selector) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
    let resolution = Resolution::parse(resolution)
        .ok_or_else(|| format!("{resolution:?} is not a resolution; {expected}"))?;
    let duration = match duration {
        FOREVER => None,
        duration => {
            let length = time::parse_duration(duration);
            Some(length.map_err(|reason| format!("{duration:?}: {reason}, or forever"))?)
        }
    };
    let selector = match selector.trim() {
        "" => Selector::All,
        selector => Selector::parse(selector).map_err(|reason| format!("{selector}: {reason}"))?,
    };
    Ok(RetentionRule { resolution, duration, selector })
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::retention_rule_text;

    #[track_caller]
    fn check(text: &str, shown: &str) {
        let keep = parse_rule(text).unwrap();
        assert_eq!(retention_rule_text(&keep), shown);
        assert_eq!(parse_rule(shown).as_ref(), Ok(&keep), "what is shown is read back");
    }

    #[test]
    fn rules_round_trip() {
        check("base 30d", "base 30d");
        check("5m 1y", "5m 1y");
        check("  1h   forever  {host=\"x\"}", "1h forever {host=\"x\"}");
        check("1d 2w latency{a=\"b c\"}", "1d 14d latency{a=\"b c\"}");
        for text in ["", "base", "30d base", "base 30", "2m 1d", "base 1d {", "base -1d"] {
            assert!(parse_rule(text).is_err(), "{text}");
        }
    }
}
