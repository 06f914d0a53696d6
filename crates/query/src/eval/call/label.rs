//! `label_replace` and `label_join`.

use regex::{Captures, Regex};

use crate::error::{Error, Result};
use crate::eval::{Evaluation, merge_equal_labels};
use crate::labels::{LabelSet, NAME};
use crate::plan::PlanNode;
use crate::promql::anchored_regex;
use crate::stream::Stream;

use super::{FunctionCall, text_argument};

pub(crate) fn replace(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let [_, to, replacement, from, regex] = call.args else {
        panic!("BUG: label_replace has five arguments");
    };
    let (to_label, replacement, from) =
        (text_argument(to), text_argument(replacement), text_argument(from));
    let regex = anchored_regex(text_argument(regex)).map_err(|_| {
        let message =
            format!("invalid regular expression in label_replace(): {}", text_argument(regex));
        Error::Execution { span: regex.span, message }
    })?;
    check_label_name(to, "destination", "label_replace")?;
    relabel(evaluation, call, to_label, |labels| {
        regex
            .captures(labels.get(from))
            .map(|captures| expand_replacement(&regex, replacement, &captures))
            .transpose()
    })
}

pub(crate) fn join(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let [_, to, separator, from @ ..] = call.args else {
        panic!("BUG: label_join has three arguments and more");
    };
    for label in from {
        check_label_name(label, "source", "label_join")?;
    }
    check_label_name(to, "destination", "label_join")?;
    let from: Vec<&str> = from.iter().map(text_argument).collect();
    relabel(evaluation, call, text_argument(to), |labels| {
        let values: Vec<&str> = from.iter().map(|label| labels.get(label)).collect();
        let length: usize =
            values.iter().map(|value| value.len() + text_argument(separator).len()).sum();
        if length > LABEL_BYTES_MAX + text_argument(separator).len() {
            return Err(LabelTooLong);
        }
        Ok(Some(values.join(text_argument(separator))))
    })
}

/// Maximum length in bytes of a computed value: repeated joins double the length each time.
const LABEL_BYTES_MAX: usize = 64 << 10;

/// Error for a value longer than [`LABEL_BYTES_MAX`].
struct LabelTooLong;

/// Sets a label of the streams for which there is a value.
fn relabel(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
    label: &str,
    value: impl Fn(&LabelSet) -> Result<Option<String>, LabelTooLong>,
) -> Result<Vec<Stream>> {
    let mut streams = evaluation.streams(&call.args[0], call.steps)?;
    for stream in &mut streams {
        let value = value(&stream.labels).map_err(|LabelTooLong| {
            let message = format!("value of label {label:?} exceeds {LABEL_BYTES_MAX} bytes");
            Error::Execution { span: call.span, message }
        })?;
        if let Some(value) = value {
            stream.labels = stream.labels.with(label, &value);
            // A name set by this function is kept.
            stream.drops_name &= label != NAME;
        }
    }
    merge_equal_labels(streams, call.span)
}

/// Any non-empty string is a label name, except one with invalid UTF-8, which was decoded as
/// U+FFFD.
fn check_label_name(label: &PlanNode, which: &str, function: &str) -> Result<()> {
    let name = text_argument(label);
    if !name.is_empty() && !name.contains(char::REPLACEMENT_CHARACTER) {
        return Ok(());
    }
    let message =
        format!("invalid {which} label name in {function}(): {name}").trim_end().to_owned();
    Err(Error::Execution { span: label.span, message })
}

/// Expands `$1`, `$name` and `${name}` as in Go: the longest possible name is taken, `$$` is a
/// dollar sign, and anything else is literal.
fn expand_replacement(
    regex: &Regex,
    replacement: &str,
    captures: &Captures<'_>,
) -> Result<String, LabelTooLong> {
    let mut out = String::new();
    let mut rest = replacement;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        if out.len() > LABEL_BYTES_MAX {
            return Err(LabelTooLong);
        }
        match reference(rest) {
            Some((name, after)) => {
                out.push_str(captured_text(regex, name, captures));
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out.push_str(rest);
    if out.len() > LABEL_BYTES_MAX { Err(LabelTooLong) } else { Ok(out) }
}

/// Name after a dollar sign, and the remaining text.
fn reference(text: &str) -> Option<(&str, &str)> {
    let (braced, inner) = match text.strip_prefix('{') {
        Some(inner) => (true, inner),
        None => (false, text),
    };
    let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
    let (name, after) = inner.split_at(end);
    let after = if braced { after.strip_prefix('}')? } else { after };
    (!name.is_empty()).then_some((name, after))
}

/// Text matched by a group; empty if the group does not exist. Go allows duplicate group names.
fn captured_text<'a>(regex: &Regex, name: &str, captures: &Captures<'a>) -> &'a str {
    let is_number =
        name.bytes().all(|c| c.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    let found = match is_number {
        true => name.parse().ok().and_then(|number: usize| captures.get(number)),
        false => regex
            .capture_names()
            .enumerate()
            .filter(|(_, held)| *held == Some(name))
            .find_map(|(at, _)| captures.get(at)),
    };
    found.map_or("", |found| found.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(regex: &str, replacement: &str, value: &str, expected: &str) {
        let regex = anchored_regex(regex).unwrap();
        let captures = regex.captures(value).unwrap();
        assert_eq!(
            expand_replacement(&regex, replacement, &captures).ok().as_deref(),
            Some(expected)
        );
    }

    #[test]
    fn replacements() {
        check("(.*)-(?P<n>.*)", "$2-$1", "a-b", "b-a");
        check("(.*)-(?P<n>.*)", "${n}x$n.$0", "a-b", "bxb.a-b");
        check("(.*)-(?P<n>.*)", "$1x|$01|$9|${1}x", "a-b", "|||ax");
        check("(.*)", "$$1 $ ${1 $", "a", "$1 $ ${1 $");
        check("a|(b)", "[$1]", "a", "[]");
        check(".*", "ä$ä-", "a", "ä-");
    }
}
