//! Values of templates, with the types of Go that the functions and error messages distinguish.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit of maps and lists in each other. Printing and dropping a value recurse.
pub(super) const VALUE_DEPTH_MAX: usize = 32;

/// A value in a template: data, a variable, a result.
#[derive(Clone, Debug)]
pub enum TemplateValue {
    /// No value at all; prints `<no value>`.
    Missing,
    /// A nil of an unknown type; prints `<nil>`.
    Nil,
    /// Boolean.
    Bool(bool),
    /// Integer.
    Int(i64),
    /// Byte of a string, as `index` returns it.
    Byte(u8),
    /// Floating point number.
    Float(f64),
    /// String.
    Text(Arc<str>),
    /// String that needs no escaping in HTML (`safeHtml`). It is no string to other functions.
    Html(Arc<str>),
    /// Point in time, which prints as UTC.
    Time(TemplateTime),
    /// Span of time in nanoseconds, and whether it came from `toDuration`, whose result no
    /// function accepts as a number.
    Duration(i64, bool),
    /// Map with string keys.
    Map(Arc<TemplateMap>),
    /// List.
    List(Arc<TemplateList>),
    /// Element of a query result; `None` is a null pointer.
    Sample(Option<Arc<TemplateSample>>),
    /// Structure with named fields.
    Record(Arc<TemplateRecord>),
}

/// Point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateTime {
    /// Nanoseconds since 1970 (UTC).
    pub time_ns: i64,
    /// Whether it came from `toTime`, whose result no function accepts as a time.
    pub(super) is_pointer: bool,
}

/// Map with string keys. It iterates and prints in the order of its keys.
#[derive(Debug)]
pub struct TemplateMap {
    pub(super) entries: BTreeMap<String, TemplateValue>,
    /// Whether all values are strings, so that a missing one is the empty string.
    pub(super) is_text: bool,
    depth: usize,
}

/// List of values.
#[derive(Debug)]
pub struct TemplateList {
    pub(super) items: Vec<TemplateValue>,
    pub(super) type_name: &'static str,
}

/// Element of an instant vector.
#[derive(Clone, Debug)]
pub struct TemplateSample {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Float or histogram.
    pub value: TemplateValue,
}

/// Structure with named fields.
#[derive(Debug)]
pub struct TemplateRecord {
    type_name: String,
    pub(super) fields: Vec<(String, TemplateValue)>,
    pub(super) text: Option<String>,
}

impl TemplateRecord {
    /// A structure; `type_name` appears in error messages. `text` is how it prints, if not as the
    /// list of its fields.
    pub fn new(
        type_name: &str,
        fields: Vec<(String, TemplateValue)>,
        text: Option<String>,
    ) -> TemplateRecord {
        TemplateRecord { type_name: type_name.to_owned(), fields, text }
    }

    pub(super) fn field(&self, name: &str) -> Option<&TemplateValue> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }
}

impl TemplateValue {
    /// A string.
    pub fn text(text: impl Into<Arc<str>>) -> TemplateValue {
        TemplateValue::Text(text.into())
    }

    /// A map of strings, such as a label set. A missing key reads as the empty string.
    pub fn text_map(entries: &BTreeMap<String, String>) -> TemplateValue {
        let entries =
            entries.iter().map(|(key, value)| (key.clone(), TemplateValue::text(value.as_str())));
        let entries = model::sort::map(entries);
        let map = TemplateMap { entries, is_text: true, depth: 1 };
        TemplateValue::Map(Arc::new(map))
    }

    /// A point in time.
    pub fn time(time_ns: i64) -> TemplateValue {
        TemplateValue::Time(TemplateTime { time_ns, is_pointer: false })
    }

    /// A list, such as the alerts of a message.
    pub fn list(items: Vec<TemplateValue>) -> TemplateValue {
        let list = TemplateList { items, type_name: "[]interface {}" };
        TemplateValue::List(Arc::new(list))
    }

    /// A map of any values; `None` if they nest too deep.
    pub(super) fn map(entries: BTreeMap<String, TemplateValue>) -> Option<TemplateValue> {
        let depth = 1 + entries.values().map(TemplateValue::depth).max().unwrap_or(0);
        let map = TemplateMap { entries, is_text: false, depth };
        (depth <= VALUE_DEPTH_MAX).then(|| TemplateValue::Map(Arc::new(map)))
    }

    /// The result of a query.
    pub(super) fn vector(samples: Vec<TemplateValue>) -> TemplateValue {
        let list = TemplateList { items: samples, type_name: "template.queryResult" };
        TemplateValue::List(Arc::new(list))
    }

    fn depth(&self) -> usize {
        match self {
            TemplateValue::Map(map) => map.depth,
            // Lists and records are made outside templates, or hold samples.
            TemplateValue::List(_) | TemplateValue::Sample(_) | TemplateValue::Record(_) => 2,
            _ => 0,
        }
    }

    /// The name of the type in Go.
    pub(super) fn type_name(&self) -> &str {
        match self {
            TemplateValue::Missing | TemplateValue::Nil => "interface {}",
            TemplateValue::Bool(_) => "bool",
            TemplateValue::Int(_) => "int",
            TemplateValue::Byte(_) => "uint8",
            TemplateValue::Float(_) => "float64",
            TemplateValue::Text(_) => "string",
            TemplateValue::Html(_) => "template.HTML",
            TemplateValue::Time(time) if time.is_pointer => "*time.Time",
            TemplateValue::Time(_) => "time.Time",
            TemplateValue::Duration(_, true) => "*time.Duration",
            TemplateValue::Duration(_, false) => "time.Duration",
            TemplateValue::Map(map) if map.is_text => "map[string]string",
            TemplateValue::Map(_) => "map[string]interface {}",
            TemplateValue::List(list) => list.type_name,
            TemplateValue::Sample(_) => "*template.sample",
            TemplateValue::Record(record) => &record.type_name,
        }
    }

    /// Whether `if` and `and` take the value for true.
    pub(super) fn is_true(&self) -> bool {
        match self {
            TemplateValue::Missing | TemplateValue::Nil => false,
            TemplateValue::Bool(value) => *value,
            TemplateValue::Int(value) => *value != 0,
            TemplateValue::Byte(value) => *value != 0,
            TemplateValue::Float(value) => *value != 0.0,
            TemplateValue::Text(text) | TemplateValue::Html(text) => !text.is_empty(),
            TemplateValue::Duration(value, is_pointer) => *is_pointer || *value != 0,
            TemplateValue::Map(map) => !map.entries.is_empty(),
            TemplateValue::List(list) => !list.items.is_empty(),
            TemplateValue::Sample(sample) => sample.is_some(),
            TemplateValue::Time(_) | TemplateValue::Record(_) => true,
        }
    }

    /// The value that an action prints: without a pointer, and a text for no value.
    pub(super) fn printable(&self) -> TemplateValue {
        match self {
            TemplateValue::Missing | TemplateValue::Nil => TemplateValue::text("<no value>"),
            TemplateValue::Sample(Some(sample)) => {
                let fields = ["Labels", "Value"].into_iter();
                let fields = fields.filter_map(|name| Some((name.to_owned(), sample.field(name)?)));
                let record = TemplateRecord::new("template.sample", fields.collect(), None);
                TemplateValue::Record(Arc::new(record))
            }
            TemplateValue::Duration(span_ns, _) => TemplateValue::Duration(*span_ns, false),
            value => value.clone(),
        }
    }

    /// Bytes that the value itself occupies, for the limits of an expansion.
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            TemplateValue::Text(text) | TemplateValue::Html(text) => text.len(),
            TemplateValue::Map(map) => map.entries.len() * 64,
            TemplateValue::List(list) => list.items.len() * 32,
            _ => 0,
        }
    }
}

impl TemplateSample {
    pub(super) fn field(&self, name: &str) -> Option<TemplateValue> {
        match name {
            "Labels" => Some(TemplateValue::text_map(&self.labels)),
            "Value" => Some(self.value.clone()),
            _ => None,
        }
    }
}

impl TemplateMap {
    /// The value of a key, or what stands for a missing one.
    pub(super) fn get(&self, key: &str) -> TemplateValue {
        match self.entries.get(key) {
            Some(value) => value.clone(),
            None if self.is_text => TemplateValue::text(""),
            None => TemplateValue::Nil,
        }
    }
}
