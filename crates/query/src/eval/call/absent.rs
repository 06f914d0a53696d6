//! `absent`: 1 where there is nothing.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::eval::Evaluation;
use crate::labels::{Labels, NAME};
use crate::plan::{Node, Op};
use crate::promql::{MatchOp, Matcher};
use crate::stream::Stream;
use crate::value::Value;

use super::{Call, unwrapped};

pub(super) fn absent(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    let streams = evaluation.streams(&call.args[0], call.steps)?;
    let held = super::samples(&streams);
    let mut points = vec![Some(Value::Number(1.0)); call.steps.count];
    for stream in &streams {
        for (point, held) in points.iter_mut().zip(&stream.points) {
            if held.is_some() {
                *point = None;
            }
        }
    }
    let mut result = vec![Stream::new(labels_of(&call.args[0]), points)];
    evaluation.exchange(held, &mut result)?;
    Ok(result)
}

fn labels_of(node: &Node) -> Labels {
    match &unwrapped(node).op {
        Op::Latest(fetch) => labels_of_absent(&fetch.matchers),
        _ => Labels::default(),
    }
}

/// What a series would be called that matchers describe: labels that one `=` names, and nothing else does.
pub(crate) fn labels_of_absent(matchers: &[Matcher]) -> Labels {
    let mut values: BTreeMap<&str, &str> = BTreeMap::new();
    for matcher in matchers.iter().filter(|matcher| matcher.name != NAME) {
        // An empty value is no label: what was named twice stays out.
        let is_first = !values.contains_key(matcher.name.as_str());
        let is_plain = matcher.op == MatchOp::Equal;
        let value = if is_plain && is_first { matcher.value.as_str() } else { "" };
        values.insert(&matcher.name, value);
    }
    Labels::new(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(matchers: &[(&str, MatchOp, &str)], expected: &str) {
        let matcher = |&(name, op, value): &(&str, MatchOp, &str)| Matcher::new(name, op, value);
        let matchers: Vec<Matcher> =
            matchers.iter().map(matcher).collect::<Result<_, _>>().unwrap();
        assert_eq!(labels_of_absent(&matchers).to_string(), expected);
    }

    #[test]
    fn labels_that_are_named_once() {
        use MatchOp::{Equal, NotEqual, Regex};
        check(&[("job", Equal, "a"), (NAME, Equal, "x")], r#"{job="a"}"#);
        check(&[("job", Equal, "a"), ("job", Equal, "b"), ("foo", Equal, "c")], r#"{foo="c"}"#);
        check(&[("job", Equal, "a"), ("job", Regex, ".+")], "{}");
        check(&[("job", NotEqual, "a")], "{}");
    }
}
