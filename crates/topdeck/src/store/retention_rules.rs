//! Text form of retention rules: `base 30d`, `1h forever {host="x"}`.

use model::Selector;
use store::{Resolution, RetentionRule};

use crate::time;
use render::table::format_table;
use render::time::whole_duration_text;

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

/// Inverse of [`parse_rule`].
pub(crate) fn format_rule(keep: &RetentionRule) -> String {
    let duration = keep.duration.map_or_else(|| FOREVER.to_owned(), whole_duration_text);
    match &keep.selector {
        Selector::All => format!("{} {duration}", keep.resolution),
        selector => format!("{} {duration} {selector}", keep.resolution),
    }
}

/// Rules as lines.
pub(crate) fn rules_text(keep: &[RetentionRule]) -> String {
    if keep.is_empty() {
        return "Retention: unlimited.\n".to_owned();
    }
    let rows: Vec<[String; 1]> = keep.iter().map(|keep| [format_rule(keep)]).collect();
    let all = Resolution::ALL.iter();
    let forever: Vec<&str> = all
        .filter(|&&resolution| {
            let mut rules = keep.iter().filter(|keep| keep.resolution == resolution);
            !rules.any(|keep| keep.selector == Selector::All)
        })
        .map(|resolution| resolution.name())
        .collect();
    let mut text = format!("Retention:\n{}", format_table(&rows, [false]));
    if !forever.is_empty() {
        text.push_str(&format!(
            "The first rule that matches a row's resolution and series applies; rows without a \
             rule are kept forever ({}).\n",
            forever.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str) {
        let keep = parse_rule(text).unwrap();
        assert_eq!(format_rule(&keep), shown);
        assert_eq!(parse_rule(shown).as_ref(), Ok(&keep), "what is shown is read back");
    }

    #[test]
    fn rules_round_trip() {
        check("base 30d", "base 30d");
        check("5m 1y", "5m 1y");
        check("  1h   forever  {host=\"x\"}", "1h forever and(host:x)");
        check("1d 2w latency{a=\"b c\"}", "1d 14d and(__name:latency,a:\"b c\")");
        for text in ["", "base", "30d base", "base 30", "2m 1d", "base 1d {", "base -1d"] {
            assert!(parse_rule(text).is_err(), "{text}");
        }
    }
}
