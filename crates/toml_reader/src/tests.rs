//! Values and errors, compared with those of `toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use super::*;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Sample {
    #[serde(default)]
    is_on: bool,
    port: Option<u16>,
    share: Option<f64>,
    names: Option<Vec<String>>,
    path: Option<PathBuf>,
    level: Option<Level>,
    pairs: Option<Vec<(String, i64)>>,
    table: Option<BTreeMap<String, Inner>>,
    here: Option<Spanned<Vec<Spanned<String>>>>,
    either: Option<Either>,
    wrapped: Option<WrappedText>,
    big: Option<u64>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Inner {
    size: u8,
}

#[derive(Debug, Deserialize, PartialEq)]
struct WrappedText(String);

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Level {
    Low,
    High,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged)]
enum Either {
    Switch(bool),
    Number(f64),
    Table(Inner),
}

/// What both readers make of a text.
#[track_caller]
fn read_both(text: &str) -> (Result<Sample, ValueError>, Result<Sample, toml::de::Error>) {
    let parsed = DeTable::parse(text).unwrap();
    (read_table(parsed.clone()), Sample::deserialize(toml::de::Deserializer::from(parsed)))
}

#[test]
fn reads_as_toml_does() {
    let texts = [
        "",
        "is_on = true\nport = 0x1F40\nshare = 3",
        "share = -inf",
        "share = 1_0.5e2",
        "names = ['a', \"b\\n\"]\npath = '/x'",
        "level = 'high'",
        "pairs = [['a', 1], ['b', -2]]",
        "[table.x]\nsize = 1\n[table.y]\nsize = 255",
        "here = ['a',  'b']",
        "either = false",
        "either = 2.5",
        "either = { size = 3 }",
        "wrapped = 'w'",
        "big = 18446744073709551615",
    ];
    for text in texts {
        let (ours, theirs) = read_both(text);
        assert_eq!(ours.as_ref().ok(), theirs.as_ref().ok(), "{text}: {ours:?}, {theirs:?}");
        assert!(ours.is_ok(), "{text}: {ours:?}");
    }
}

#[test]
fn errors_are_those_of_toml() {
    let texts = [
        "is_on = 1",
        "is_on = 'yes'",
        "port = 70000",
        "port = -1",
        "port = 1.5",
        "port = '1'",
        "share = [1]",
        "share = 1e999",
        "names = 'a'",
        "names = ['a', 1]",
        "level = 'middle'",
        "pairs = [['a']]",
        "unknown = 1",
        "[table.x]\nsise = 1",
        "[table.x]\nsize = 256",
        "[table]\nx = true",
        "here = 1",
        "here = ['a', 2]",
        "either = 'a'",
        "path = 3",
        "big = -1",
    ];
    for text in texts {
        let (ours, theirs) = read_both(text);
        let (ours, theirs) = (ours.unwrap_err(), theirs.unwrap_err());
        assert_eq!((ours.message(), ours.span()), (theirs.message(), theirs.span()), "{text}");
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct EvenText(String);

impl TryFrom<String> for EvenText {
    type Error = String;

    fn try_from(text: String) -> Result<EvenText, String> {
        (text.len() % 2 == 0).then(|| EvenText(text)).ok_or_else(|| "odd".to_owned())
    }
}

/// `toml` gives that of the list.
#[test]
fn an_element_that_a_type_rejects_has_its_position() {
    #[derive(Debug, Deserialize)]
    struct Texts {
        texts: Vec<EvenText>,
    }
    let parsed = |text| DeTable::parse(text).unwrap();
    let read = read_table::<Texts>(parsed("texts = ['ab', 'cd']")).unwrap();
    assert_eq!(read.texts[1].0, "cd");
    let error = read_table::<Texts>(parsed("texts = ['ab', 'c']")).unwrap_err();
    assert_eq!((error.message(), error.span()), ("odd", Some(15..18)));
}

/// `toml` reads these: an array as the fields of a struct in order.
#[test]
fn structs_are_tables() {
    let (ours, theirs) = read_both("[table]\nx = [1]");
    assert!(theirs.is_ok());
    let error = ours.unwrap_err();
    assert_eq!(error.message(), "invalid type: sequence, expected struct Inner");
    assert_eq!(error.span(), Some(12..15));
}

#[test]
fn dates_are_no_values() {
    let (ours, _) = read_both("path = 2026-11-28");
    assert_eq!(ours.unwrap_err().to_string(), "invalid type: date or time, expected path string");
}

#[test]
fn numbers_have_64_bits() {
    let (ours, _) = read_both("port = 99999999999999999999");
    let error = ours.unwrap_err();
    assert_eq!((error.message(), error.span()), ("integer number overflowed", Some(7..27)));
}
