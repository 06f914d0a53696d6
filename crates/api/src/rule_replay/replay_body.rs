//! Body of a replay: a rule file, or JSON with a rule file and the files that its rules name, such
//! as saved baselines.

use std::collections::BTreeMap;

use axum::body::Body;
use rules::{RuleFile, parse_rule_file_with};
use serde_json::Value;

use super::TOML;
use crate::api_error::ApiError;
use crate::route::JSON;

/// Maximum size of a rule file in bytes.
const RULES_BYTES_MAX: usize = 1 << 20;
/// Maximum size of a rule file with the files that its rules name: a day of windows of five minutes
/// of some streams.
const FILES_BYTES_MAX: usize = 16 << 20;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    Yaml,
    Toml,
    /// With other files.
    Json,
}

impl BodyKind {
    /// That of a content type; a rule file of Prometheus by default.
    pub(super) fn of(content_type: Option<&http::HeaderValue>) -> BodyKind {
        let starts = |kind: &str| {
            content_type.is_some_and(|found| found.as_bytes().starts_with(kind.as_bytes()))
        };
        match (starts(TOML), starts(JSON)) {
            (true, _) => BodyKind::Toml,
            (_, true) => BodyKind::Json,
            _ => BodyKind::Yaml,
        }
    }

    fn bytes_max(self) -> usize {
        match self {
            BodyKind::Yaml | BodyKind::Toml => RULES_BYTES_MAX,
            BodyKind::Json => FILES_BYTES_MAX,
        }
    }
}

/// A rule file with what it names.
#[derive(Debug, Default)]
pub(super) struct ReplayBody {
    rules: String,
    /// Texts by the names that the rules write.
    files: BTreeMap<String, String>,
    /// Name of the file, if the request has none.
    default_name: &'static str,
}

impl ReplayBody {
    /// Reads the text of a body.
    pub(super) async fn read(kind: BodyKind, body: Body) -> Result<String, ApiError> {
        let bytes_max = kind.bytes_max();
        let bytes = axum::body::to_bytes(body, bytes_max).await.map_err(|error| {
            let limit = format!("the size limit is {bytes_max} bytes");
            ApiError::BadRequest(format!("cannot read the rule file: {error}; {limit}"))
        })?;
        String::from_utf8(bytes.into())
            .map_err(|_| ApiError::BadRequest("the rule file is not UTF-8".to_owned()))
    }

    pub(super) fn parse_text(kind: BodyKind, text: String) -> Result<ReplayBody, ApiError> {
        let default_name = if kind == BodyKind::Yaml { "rules.yaml" } else { "rules.toml" };
        let found = match kind {
            BodyKind::Yaml | BodyKind::Toml => ReplayBody { rules: text, ..ReplayBody::default() },
            BodyKind::Json => ReplayBody::parse_json(&text).map_err(|found| {
                let expected = r#"{"rules": "TEXT", "files": {"NAME": "TEXT"}}"#;
                ApiError::BadRequest(format!("invalid body: found {found}, expected {expected}"))
            })?,
        };
        if found.rules.len() > RULES_BYTES_MAX {
            return Err(ApiError::BadRequest(format!(
                "cannot read the rule file: it has {} bytes; the size limit is {RULES_BYTES_MAX} \
                 bytes",
                found.rules.len()
            )));
        }
        Ok(ReplayBody { default_name, ..found })
    }

    /// The error is what was found.
    fn parse_json(text: &str) -> Result<ReplayBody, String> {
        let body: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Value::Object(fields) = body else { return Err("no object".to_owned()) };
        let mut found = ReplayBody::default();
        let mut has_rules = false;
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("rules", Value::String(rules)) => (found.rules, has_rules) = (rules, true),
                ("files", Value::Object(files)) => {
                    for (name, text) in files {
                        let Value::String(text) = text else {
                            return Err(format!("a file {name:?} that is no text"));
                        };
                        found.files.insert(name, text);
                    }
                }
                ("rules" | "files", _) => return Err(format!("field {name:?} of another type")),
                _ => return Err(format!("unknown field {name:?}")),
            }
        }
        if has_rules { Ok(found) } else { Err("no field \"rules\"".to_owned()) }
    }

    /// Parses the rule file, which has this name.
    pub(super) fn parse(&self, name: Option<&str>) -> RuleFile {
        let read = |named: &str| match self.files.get(named) {
            Some(text) => Ok(text.clone().into_bytes()),
            None => Err("the request does not have the file".to_owned()),
        };
        let (name, options) = (name.unwrap_or(self.default_name), query::promql::Options::all());
        parse_rule_file_with(name, &self.rules, &options, &read)
    }
}
