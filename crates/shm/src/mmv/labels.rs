//! Labels of version 3: a JSON object of at most 244 bytes, parsed into names and values.
//!
//! A PCP label name consists of letters, digits and `_`. Names in a nested object are joined with
//! `.`, as in PCP; an array stays text; a label that is `null` or empty is ignored. If a name
//! occurs twice in one object, the later value wins. `MmvLabels::for_value` defines scopes and
//! precedence.

use std::collections::{BTreeMap, HashMap};

use super::LABELS_MAX;

/// Limit of nesting; 244 bytes could hold more.
const DEPTH_MAX: usize = 8;

/// Label scopes, least specific first: each overrides those before it, as in PCP's
/// pmLookupLabels(3).
const INDOM: u32 = 1 << 2;
const CLUSTER: u32 = 1 << 3;
const ITEM: u32 = 1 << 4;
const INSTANCES: u32 = 1 << 5;
/// Flag: the label is not part of the identity.
const OPTIONAL: u32 = 1 << 7;

type LabelGroup = BTreeMap<String, String>;

/// Labels of an MMV file by scope.
#[derive(Default)]
pub(super) struct MmvLabels {
    groups: HashMap<(u32, u32, i32), LabelGroup>,
}

impl MmvLabels {
    /// Adds a record. Returns `false` if it is malformed or exceeds the limit.
    pub(super) fn add(&mut self, flags: u32, identity: u32, internal: i32, json: &[u8]) -> bool {
        if flags & OPTIONAL != 0 {
            return true;
        }
        let key = match flags {
            // A file is a cluster, whatever number it gets.
            CLUSTER => (CLUSTER, 0, 0),
            INDOM | ITEM => (flags, identity, 0),
            INSTANCES => (INSTANCES, identity, internal),
            _ => return false,
        };
        let Some(labels) = std::str::from_utf8(json).ok().and_then(parse_object) else {
            return false;
        };
        let group = self.groups.entry(key).or_default();
        for (name, value) in labels {
            if group.len() >= LABELS_MAX && !group.contains_key(&name) {
                return false;
            }
            group.insert(name, value);
        }
        true
    }

    /// Label groups of a value; each overrides those before it.
    pub(super) fn for_value(
        &self,
        item: u32,
        instance: Option<(u32, i32)>,
    ) -> impl Iterator<Item = &LabelGroup> {
        let keys = [
            instance.map(|(indom, _)| (INDOM, indom, 0)),
            Some((CLUSTER, 0, 0)),
            Some((ITEM, item, 0)),
            instance.map(|(indom, internal)| (INSTANCES, indom, internal)),
        ];
        keys.into_iter().flatten().filter_map(|key| self.groups.get(&key))
    }
}

/// Parses a text that is one JSON object into names and values.
fn parse_object(text: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    let mut reader = LabelJsonReader { text, at: 0 };
    reader.space();
    reader.members("", DEPTH_MAX, &mut labels)?;
    reader.space();
    (reader.at == text.len()).then_some(labels)
}

struct LabelJsonReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> LabelJsonReader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips this byte and following white space, if it is the next byte.
    fn consume(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.at += 1;
            self.space();
        }
        found
    }

    /// Parses an object; its names get the prefix `prefix`.
    fn members(
        &mut self,
        prefix: &str,
        depth: usize,
        labels: &mut Vec<(String, String)>,
    ) -> Option<()> {
        if depth == 0 || !self.consume(b'{') {
            return None;
        }
        if self.consume(b'}') {
            return Some(());
        }
        loop {
            let name = self.string()?;
            if name.is_empty()
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            {
                return None;
            }
            let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
            if !self.consume(b':') {
                return None;
            }
            match self.peek()? {
                b'{' => self.members(&name, depth - 1, labels)?,
                _ => {
                    let value = self.value(depth)?;
                    if !value.is_empty() {
                        labels.push((name, value));
                    }
                }
            }
            if !self.consume(b',') {
                return self.consume(b'}').then_some(());
            }
        }
    }

    /// A value as label text: none for `null`, an array as written.
    fn value(&mut self, depth: usize) -> Option<String> {
        let start = self.at;
        match self.peek()? {
            b'"' => return self.string(),
            b'[' => self.array(depth)?,
            _ => self.word()?,
        }
        let text = self.text[start..self.at].trim_end();
        Some(if text == "null" { String::new() } else { text.to_owned() })
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        if depth == 0 || !self.consume(b'[') {
            return None;
        }
        if self.consume(b']') {
            return Some(());
        }
        loop {
            match self.peek()? {
                b'{' => self.members("", depth - 1, &mut Vec::new())?,
                b'[' => self.array(depth - 1)?,
                b'"' => self.string().map(drop)?,
                _ => self.word()?,
            }
            if !self.consume(b',') {
                return self.consume(b']').then_some(());
            }
        }
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let length = rest.bytes().take_while(is_word).count();
        let word = &rest[..length];
        let like_number = word.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let number = like_number && word.parse::<f64>().is_ok();
        if !number && !matches!(word, "true" | "false" | "null") {
            return None;
        }
        self.at += length;
        self.space();
        Some(())
    }

    fn string(&mut self) -> Option<String> {
        if self.peek() != Some(b'"') {
            return None;
        }
        let mut chars = self.text[self.at + 1..].char_indices();
        let mut string = String::new();
        while let Some((offset, char)) = chars.next() {
            match char {
                '"' => {
                    self.at += 1 + offset + 1;
                    self.space();
                    return Some(string);
                }
                '\\' => {
                    let escaped = chars.next()?.1;
                    string.push(match escaped {
                        '"' | '\\' | '/' => escaped,
                        'b' => '\u{8}',
                        'f' => '\u{c}',
                        'n' => '\n',
                        'r' => '\r',
                        't' => '\t',
                        'u' => {
                            let first = hex(&mut chars)?;
                            if (0xd800..0xdc00).contains(&first) {
                                let marks = (chars.next()?.1, chars.next()?.1);
                                let second = hex(&mut chars)?;
                                if marks != ('\\', 'u') || !(0xdc00..0xe000).contains(&second) {
                                    return None;
                                }
                                char::from_u32(
                                    0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                                )?
                            } else {
                                char::from_u32(first)?
                            }
                        }
                        _ => return None,
                    });
                }
                _ => string.push(char),
            }
        }
        None
    }
}

fn hex(chars: &mut std::str::CharIndices<'_>) -> Option<u32> {
    (0..4).try_fold(0, |number, _| Some(number << 4 | chars.next()?.1.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<&[(&str, &str)]>) {
        let found = parse_object(json);
        let found: Option<Vec<(&str, &str)>> = found
            .as_ref()
            .map(|labels| labels.iter().map(|(name, value)| (&**name, &**value)).collect());
        assert_eq!(found.as_deref(), expected, "{json}");
    }

    #[test]
    fn objects_become_labels() {
        check("{}", Some(&[]));
        check(r#"{"role":"web"}"#, Some(&[("role", "web")]));
        check(r#" { "a" : 1.5e3 , "b" : true } "#, Some(&[("a", "1.5e3"), ("b", "true")]));
        check(r#"{"a":null,"b":"","c":"x"}"#, Some(&[("c", "x")]));
        check(r#"{"a":{"b":{"c":1},"d":2}}"#, Some(&[("a.b.c", "1"), ("a.d", "2")]));
        check(r#"{"a":[1,"}",{"b":[]}]}"#, Some(&[("a", r#"[1,"}",{"b":[]}]"#)]));
        check(r#"{"a":"\"\\\/\n\u00e9\ud83d\ude00é"}"#, Some(&[("a", "\"\\/\né😀é")]));
    }

    #[test]
    fn non_objects_are_no_labels() {
        for json in [
            "",
            "1",
            "[]",
            "{",
            "{}x",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a b":1}"#,
            r#"{"a":"}"#,
            r#"{"a":"\ud800x"}"#,
            r#"{"a":"\u12"}"#,
            r#"{"a":inf}"#,
            r#"{"a":nan}"#,
            r#"{"":1}"#,
            r#"{"é":1}"#,
        ] {
            check(json, None);
        }
        check(&format!("{}1{}", r#"{"a":"#.repeat(9), "}".repeat(9)), None);
        check(&format!(r#"{{"a":{}{}}}"#, "[".repeat(30), "]".repeat(30)), None);
    }

    #[test]
    fn the_more_particular_wins() {
        let mut labels = MmvLabels::default();
        for (flags, identity, internal, json) in [
            (INSTANCES, 7, 1, r#"{"a":"instance"}"#),
            (ITEM, 3, -1, r#"{"a":"item","b":"item"}"#),
            (CLUSTER, 99, -1, r#"{"b":"cluster","c":"cluster"}"#),
            (INDOM, 7, -1, r#"{"c":"indom","d":"indom"}"#),
            (ITEM | OPTIONAL, 3, -1, r#"{"note":"not part of the identity"}"#),
        ] {
            assert!(labels.add(flags, identity, internal, json.as_bytes()));
        }
        let merged = |item, instance| {
            let mut merged = BTreeMap::new();
            labels.for_value(item, instance).for_each(|group| merged.extend(group.clone()));
            merged
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(merged(3, Some((7, 1))), "a=instance b=item c=cluster d=indom");
        assert_eq!(merged(3, Some((7, 2))), "a=item b=item c=cluster d=indom");
        assert_eq!(merged(4, None), "b=cluster c=cluster");
        assert!(!labels.add(1, 0, 0, b"{}"), "a kind that MMV does not have");
    }

    #[test]
    fn there_is_an_end_to_labels() {
        let mut labels = MmvLabels::default();
        let taken = (0..LABELS_MAX + 5)
            .filter(|number| labels.add(ITEM, 1, -1, format!("{{\"a{number}\":1}}").as_bytes()))
            .count();
        assert_eq!(taken, LABELS_MAX);
    }
}
