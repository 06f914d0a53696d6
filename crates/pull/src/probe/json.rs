//! JSON probe: a GET request, whose response has numbers.

use std::fmt::{self, Write as _};

use net::{Endpoint, EndpointError};
use role::settings::{SettingsCheck, TableRef};
use serde::Deserialize;
use serde_json::Value;

use crate::probe::http::{self, BODY_BYTES_MAX};
use crate::probe::{Attempt, Probe, ProbeReport, ProbeValue, Statuses};

/// Deepest nesting whose numbers are read.
const DEPTH_MAX: usize = 16;
/// Longest path of a number.
const PATH_BYTES_MAX: usize = 256;

/// `json = "https://…"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct JsonProbe {
    /// `http://` or `https://`.
    pub json: String,
    /// Expected statuses; default: `200-299`.
    #[serde(default)]
    pub status: Statuses,
    /// Paths of numbers, such as `queue.depth`; default: all.
    #[serde(default)]
    pub paths: Vec<String>,
}

impl JsonProbe {
    /// Adds the numbers in `value`, at `path`, to the report. A value with a longer path than
    /// [`PATH_BYTES_MAX`] counts as one that is too many.
    fn add(&self, value: &Value, path: &mut String, depth: usize, report: &mut ProbeReport) {
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
            _ => None,
        };
        if let Some(value) = number
            && (self.paths.is_empty() || self.paths.contains(path))
        {
            match path.len() <= PATH_BYTES_MAX && !report.is_full() {
                true => {
                    let (name, unit) = ("probe_json_value", "");
                    let labels = vec![("json_path", path.clone())];
                    report.add_labelled(ProbeValue { name, unit, labels, value });
                }
                false => report.dropped_values += 1,
            }
        }
        if depth == DEPTH_MAX || path.len() > PATH_BYTES_MAX {
            return;
        }
        let mut add_child = |key: &dyn fmt::Display, value| {
            let length = path.len();
            let dot = if length == 0 { "" } else { "." };
            let _ = write!(path, "{dot}{key}");
            self.add(value, path, depth + 1, report);
            path.truncate(length);
        };
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| add_child(key, value)),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(at, value)| add_child(&at, value));
            }
            _ => {}
        }
    }

    /// Adds the numbers of a response body; the reason if one is missing.
    fn read(&self, body: &[u8], report: &mut ProbeReport) -> Result<(), String> {
        let value: Value = serde_json::from_slice(body).map_err(|error| match body.len() {
            BODY_BYTES_MAX.. => "the response is longer than 1 MiB".to_owned(),
            _ => format!("the response is not JSON: {error}"),
        })?;
        self.add(&value, &mut String::new(), 0, report);
        let found = |path: &String| report.values().iter().any(|value| value.has_path(path));
        match self.paths.iter().find(|path| !found(path)) {
            Some(path) => Err(format!("no number at {path:?} in the response")),
            None => Ok(()),
        }
    }
}

impl ProbeValue {
    fn has_path(&self, path: &str) -> bool {
        self.labels.iter().any(|(name, value)| *name == "json_path" && value == path)
    }
}

impl Probe for JsonProbe {
    const KEY: &'static str = "json";
    const KEYS: &'static [&'static str] = &["json", "status", "paths"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.url(table, "json", &self.json);
    }

    fn url(&self) -> String {
        self.json.clone()
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Endpoint::parse(&self.json)
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let answer = http::get(attempt, "application/json").await?;
        let status = answer.response.status();
        if !self.status.holds(status.as_u16()) {
            return Err(format!("HTTP {status}"));
        }
        self.read(answer.response.body(), attempt.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `path value` of each number.
    fn numbers(body: &str, paths: &[&str]) -> (Vec<String>, Result<(), String>) {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let (probe, mut report) =
            (JsonProbe { paths, ..JsonProbe::default() }, ProbeReport::default());
        let outcome = probe.read(body.as_bytes(), &mut report);
        let text = |value: &ProbeValue| format!("{} {}", value.labels[0].1, value.value);
        (report.values().iter().map(text).collect(), outcome)
    }

    #[test]
    fn numbers_have_the_path_to_them() {
        let body = r#"{"a":1,"b":{"c":[2.5,true,"x",null]},"s":"7"}"#;
        assert_eq!(numbers(body, &[]).0, ["a 1", "b.c.0 2.5", "b.c.1 1"]);
        assert_eq!(numbers(body, &["b.c.0"]), (vec!["b.c.0 2.5".to_owned()], Ok(())));
        assert_eq!(numbers("3", &[]).0, [" 3"]);
        let (_, outcome) = numbers(body, &["a", "s"]);
        assert_eq!(outcome.unwrap_err(), "no number at \"s\" in the response");
        let (_, outcome) = numbers("<html>", &[]);
        assert!(outcome.unwrap_err().starts_with("the response is not JSON: "));
    }

    #[test]
    fn what_is_too_much_is_left_out() {
        let deep = "[".repeat(17) + "1" + &"]".repeat(17);
        assert!(numbers(&deep, &[]).0.is_empty());
        let allowed = "[".repeat(16) + "1" + &"]".repeat(16);
        assert_eq!(numbers(&allowed, &[]).0.len(), 1);
        let mut report = ProbeReport::default();
        let many = format!("[{}1]", "1,".repeat(299));
        JsonProbe::default().read(many.as_bytes(), &mut report).unwrap();
        assert_eq!((report.values().len(), report.dropped_values), (256, 44));
        let long = format!("{{\"{}\":{many}}}", "k".repeat(300));
        let mut report = ProbeReport::default();
        JsonProbe::default().read(long.as_bytes(), &mut report).unwrap();
        assert_eq!(report.values().len(), 0, "nothing below a long key is read");
    }
}
