//! What absence is called.

use crate::labels::{Labels, NAME};
use crate::plan::{Ranged, RangedOf};
use crate::promql::{MatchOp, Matcher};

/// Labels of what `absent_over_time` gives: those that the selector names with `=`. A subquery names none.
pub(super) fn labels_of_absence(of: &Ranged) -> Labels {
    match &of.of {
        RangedOf::Series(fetch) => named(&fetch.matchers),
        RangedOf::Subquery { .. } => Labels::default(),
    }
}

/// Labels that matchers name with `=`. One that more than one of them is about is left out, unless its first `=`
/// comes after all the others: so Prometheus has it.
fn named(matchers: &[Matcher]) -> Labels {
    let mut seen: Vec<&str> = Vec::new();
    let mut labels = Labels::default();
    for Matcher { name, op, value, .. } in matchers {
        if name == NAME {
            continue;
        }
        let is_first = *op == MatchOp::Equal && !seen.contains(&name.as_str());
        if is_first {
            seen.push(name);
        }
        labels = labels.with(name, if is_first { value } else { "" });
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(matchers: &[(&str, MatchOp, &str)], expected: &str) {
        let matcher = |(name, op, value): &(&str, MatchOp, &str)| {
            Matcher::new(*name, *op, *value).expect("a good matcher")
        };
        let matchers: Vec<Matcher> = matchers.iter().map(matcher).collect();
        assert_eq!(named(&matchers).to_string(), expected);
    }

    #[test]
    fn as_prometheus_calls_it() {
        use MatchOp::{Equal, Regex};
        check(&[(NAME, Equal, "x"), ("job", Equal, "a")], r#"{job="a"}"#);
        check(&[("job", Equal, "a"), ("job", Equal, "b"), ("foo", Equal, "c")], r#"{foo="c"}"#);
        check(&[("job", Equal, "a"), ("job", Regex, ".+")], "{}");
        check(&[("job", Regex, ".+"), ("job", Equal, "a")], r#"{job="a"}"#);
        check(&[("job", Equal, "a"), ("job", Regex, ".+"), ("job", Equal, "a")], "{}");
        check(&[("job", Equal, "")], "{}");
    }
}
