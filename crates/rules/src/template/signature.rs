//! Signatures of functions and methods: what Go checks before it calls them.

use super::value::{TemplateList, TemplateValue};
use std::sync::Arc;

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterType {
    /// Any value; no value is nil.
    Any,
    /// Any value as it is (`reflect.Value`).
    Raw,
    Text,
    Vector,
    Sample,
    Time,
    Duration,
}

impl ParameterType {
    /// The type's name in Go.
    pub(super) fn name(self) -> &'static str {
        match self {
            ParameterType::Any => "interface {}",
            ParameterType::Raw => "reflect.Value",
            ParameterType::Text => "string",
            ParameterType::Vector => "template.queryResult",
            ParameterType::Sample => "*template.sample",
            ParameterType::Time => "time.Time",
            ParameterType::Duration => "time.Duration",
        }
    }

    /// The value of the type that stands for nil.
    pub(super) fn nil(self) -> Option<TemplateValue> {
        match self {
            ParameterType::Any => Some(TemplateValue::Nil),
            ParameterType::Raw => Some(TemplateValue::Missing),
            ParameterType::Vector => Some(TemplateValue::vector(Vec::new())),
            ParameterType::Sample => Some(TemplateValue::Sample(None)),
            ParameterType::Text | ParameterType::Time | ParameterType::Duration => None,
        }
    }

    /// `value` as an argument of this type, or the message.
    pub(super) fn accept(self, value: TemplateValue) -> Result<TemplateValue, String> {
        use TemplateValue as Value;
        match (self, value) {
            (ParameterType::Raw, value) => Ok(value),
            (_, Value::Missing) => {
                self.nil().ok_or_else(|| format!("invalid value; expected {}", self.name()))
            }
            (ParameterType::Any, value)
            | (ParameterType::Text, value @ Value::Text(_))
            | (ParameterType::Sample, value @ Value::Sample(_))
            | (ParameterType::Time, value @ Value::Time(_)) => Ok(value),
            (ParameterType::Duration, Value::Duration(span_ns, _)) => {
                Ok(Value::Duration(span_ns, false))
            }
            (ParameterType::Vector, Value::List(list))
                if list.type_name == ParameterType::Vector.name() =>
            {
                Ok(Value::List(list))
            }
            (_, value) => {
                let (expected, found) = (self.name(), value.type_name());
                Err(format!("wrong type for value; expected {expected}; got {found}"))
            }
        }
    }
}

/// Parameters of a function: fixed ones, then any number of one type.
#[derive(Clone, Copy, Debug)]
pub(super) struct GoSignature {
    pub(super) fixed: &'static [ParameterType],
    pub(super) variadic: Option<ParameterType>,
}

impl GoSignature {
    /// Checks the number of arguments: `written` after the name, and one more from the pipe.
    pub(super) fn check(&self, name: &str, written: usize, is_piped: bool) -> Result<(), String> {
        let found = written + usize::from(is_piped);
        let wanted = self.fixed.len();
        if self.variadic.is_some() {
            return match found < wanted {
                true => Err(format!(
                    "wrong number of args for {name}: want at least {wanted} got {written}"
                )),
                false => Ok(()),
            };
        }
        match found == wanted {
            true => Ok(()),
            false => Err(format!("wrong number of args for {name}: want {wanted} got {found}")),
        }
    }

    /// The type of the argument at `index`. [`GoSignature::check`] has passed.
    pub(super) fn parameter(&self, index: usize) -> ParameterType {
        self.fixed.get(index).copied().or(self.variadic).unwrap_or(ParameterType::Any)
    }
}

/// The list of an argument that [`ParameterType::Vector`] accepted.
pub(super) fn list_of(value: &TemplateValue) -> Option<&Arc<TemplateList>> {
    match value {
        TemplateValue::List(list) => Some(list),
        _ => None,
    }
}
