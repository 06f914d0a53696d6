//! The examples of docs/selectors.md are valid.

use model::Selector;
use model::selector::{DEPTH_MAX, KINDS, LENGTH_MAX, REGEX_BYTES_MAX, REGEXES_MAX};

const PAGE: &str = include_str!("../../../../docs/selectors.md");

/// Lines of all code blocks of a language.
fn lines(kind: &str) -> Vec<&'static str> {
    let opening = format!("```{kind}\n");
    let blocks = PAGE.split(&opening).skip(1);
    blocks.flat_map(|block| block.split("```").next().unwrap().lines()).collect()
}

#[test]
fn examples_are_read() {
    let examples = lines("selectors");
    assert!(examples.len() > 15, "{examples:?}");
    for example in examples {
        let selector =
            Selector::parse(example).unwrap_or_else(|error| panic!("{example}: {error}"));
        assert_eq!(Selector::parse(&selector.to_string()), Ok(selector), "{example}");
    }
}

#[test]
fn documented_errors_match() {
    let examples = lines("refused");
    assert!(examples.len() >= 6 && examples.len().is_multiple_of(2), "{examples:?}");
    for example in examples.chunks(2) {
        let error = Selector::parse(example[0]).expect_err(example[0]);
        assert_eq!(error.to_string(), example[1], "{}", example[0]);
    }
}

#[test]
fn documented_kinds_and_limits_match() {
    let words = KINDS.map(|(_, word)| format!("`{word}`")).join(", ");
    assert!(PAGE.contains(&words), "{words}");
    let limits = format!(
        "{} KiB, {DEPTH_MAX} levels of `and`, `or`, `not`, and {REGEXES_MAX} regexes of at most \
         {} MiB",
        LENGTH_MAX >> 10,
        REGEX_BYTES_MAX >> 20
    );
    assert!(PAGE.contains(&limits), "{limits}");
}
