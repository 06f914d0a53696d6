//! Messages for unknown names, with the nearest known one.

use query::edit_distance;

/// "unknown key "reciever"; did you mean "receiver"?".
pub(crate) fn unknown_name<'a>(
    what: &str,
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let max = 1 + found.chars().count().min(40) / 3;
    let near = known.iter().filter_map(|name| Some((edit_distance(found, name, max)?, name)));
    match (near.min(), known.is_empty()) {
        (Some((_, name)), _) => format!("unknown {what} {found:?}; did you mean {name:?}?"),
        (None, false) => format!("unknown {what} {found:?}; known: {}", known.join(", ")),
        (None, true) => format!("unknown {what} {found:?}; there is none"),
    }
}

/// Rewrites serde's "unknown field `x`, expected one of `a`, `b`" with the nearest key; `more` are
/// known, too.
pub(crate) fn with_nearest_key(message: &str, more: &[&str]) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    match quoted.next().filter(|_| message.starts_with("unknown field")) {
        Some(found) => unknown_name("key", found, quoted.chain(more.iter().copied())),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_key_is_named_with_the_nearest_one() {
        let message = "unknown field `reciever`, expected one of `receiver`, `routes`";
        let expected = "unknown key \"reciever\"; did you mean \"receiver\"?";
        assert_eq!(with_nearest_key(message, &[]), expected);
        let message = "unknown field `colour`, expected `name` or `steps`";
        assert_eq!(with_nearest_key(message, &[]), "unknown key \"colour\"; known: name, steps");
        assert_eq!(with_nearest_key("invalid type", &[]), "invalid type");
        assert_eq!(unknown_name("receiver", "x", []), "unknown receiver \"x\"; there is none");
    }
}
