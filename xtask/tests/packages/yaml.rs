//! YAML documents as JSON values, as far as manifests need it: no anchors, no tags.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// The documents of a text.
pub(crate) fn parse(text: &str) -> Vec<Value> {
    let mut documents = Vec::new();
    let mut open: Vec<YamlCollection> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let value = match event {
            Event::SequenceStart(..) => {
                open.push(YamlCollection::default());
                continue;
            }
            Event::MappingStart(..) => {
                open.push(YamlCollection { is_map: true, ..YamlCollection::default() });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().unwrap().value(),
            Event::Scalar(text, style, ..) => scalar(&text, style),
            Event::Alias(_) => panic!("an alias in\n{text}"),
            _ => continue,
        };
        match open.last_mut() {
            Some(collection) => collection.items.push(value),
            None => documents.push(value),
        }
    }
    documents
}

/// Items of a sequence, or keys and values of a mapping in turn.
#[derive(Default)]
struct YamlCollection {
    is_map: bool,
    items: Vec<Value>,
}

impl YamlCollection {
    fn value(self) -> Value {
        if !self.is_map {
            return Value::Array(self.items);
        }
        let mut map = Map::new();
        let mut items = self.items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            let key = key.as_str().expect("keys are texts").to_owned();
            assert!(map.insert(key.clone(), value).is_none(), "the key {key} twice");
        }
        Value::Object(map)
    }
}

/// Octal numbers, which YAML 1.1 of Kubernetes reads, become decimal.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::from(text);
    }
    let octal = text.strip_prefix('0').filter(|digits| !digits.is_empty());
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "" | "null" | "~" => Value::Null,
        _ => match octal.map(|digits| i64::from_str_radix(digits, 8)) {
            Some(Ok(number)) => Value::from(number),
            _ => text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from),
        },
    }
}
