//! Requests files: TOML with requests and variables.

use serde::Deserialize;

use crate::request::{RequestTemplate, Requests, VariableValues};
use crate::requests_error::RequestsError;
use crate::template::Template;

/// Limit of the sum of weights. If the sum overflowed, only the last request would be sampled.
const WEIGHT_MAX: f64 = 1e300;

impl Requests {
    /// Parses a requests file (`docs/load.md`). Relative paths in it are resolved against `dir`.
    pub fn parse(text: &str, dir: &std::path::Path) -> Result<Requests, RequestsError> {
        let config: RequestsConfig = toml::from_str(text)?;
        if config.request.is_empty() {
            return Err(RequestsError::Empty);
        }
        let mut variables = Vec::new();
        for (name, values) in config.variables {
            let values = values.read(&name, dir)?;
            variables.push((name, values));
        }
        let names: Vec<String> = variables.iter().map(|one| one.0.clone()).collect();
        let requests = config.request.into_iter().enumerate();
        let requests = requests.map(|(number, one)| one.read(number, &names, dir));
        let requests: Vec<RequestTemplate> = requests.collect::<Result<_, _>>()?;
        let heaviest = requests.iter().max_by(|a, b| a.weight.total_cmp(&b.weight));
        if let Some(RequestTemplate { name, weight, .. }) =
            heaviest.filter(|_| requests.iter().map(|one| one.weight).sum::<f64>() >= WEIGHT_MAX)
        {
            return Err(RequestsError::Weight { name: name.clone(), weight: *weight });
        }
        Ok(Requests::new(requests, variables))
    }
}

/// Schema of a requests file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestsConfig {
    #[serde(default)]
    request: Vec<RequestConfig>,
    #[serde(default)]
    variables: std::collections::BTreeMap<String, ValuesConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RequestConfig {
    name: Option<String>,
    weight: Option<f64>,
    method: Option<String>,
    path: Option<String>,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, String>,
    body: Option<String>,
    body_file: Option<String>,
    body_hex: Option<String>,
    sql: Option<String>,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    command: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ValuesConfig {
    OneOf(Vec<String>),
    Between { from: i64, to: i64 },
    Lines { file: String },
}

fn file<T>(
    dir: &std::path::Path,
    name: &str,
    read: impl Fn(&std::path::Path) -> std::io::Result<T>,
) -> Result<T, RequestsError> {
    let path = dir.join(name);
    read(&path).map_err(|error| RequestsError::File { path: path.display().to_string(), error })
}

/// Decodes pairs of hexadecimal digits; white space is ignored.
fn hex(text: &str) -> Result<Vec<u8>, RequestsError> {
    let wrong = || RequestsError::Hex { text: text.to_owned() };
    let digits = text.chars().filter(|one| !one.is_whitespace()).map(|one| one.to_digit(16));
    let digits = digits.collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(wrong());
    }
    Ok(pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect())
}

impl ValuesConfig {
    fn read(self, name: &str, dir: &std::path::Path) -> Result<VariableValues, RequestsError> {
        let none = || RequestsError::NoValue { name: name.to_owned() };
        let values = match self {
            ValuesConfig::OneOf(all) => all,
            ValuesConfig::Between { from, to } if from <= to => {
                return Ok(VariableValues::Between(from, to));
            }
            ValuesConfig::Between { .. } => return Err(none()),
            ValuesConfig::Lines { file: name } => {
                let lines = file(dir, &name, |path| std::fs::read_to_string(path))?;
                lines.lines().map(str::to_owned).collect()
            }
        };
        if values.is_empty() { Err(none()) } else { Ok(VariableValues::OneOf(values)) }
    }
}

impl RequestConfig {
    fn read(
        self,
        number: usize,
        names: &[String],
        dir: &std::path::Path,
    ) -> Result<RequestTemplate, RequestsError> {
        let template = |text: &str| Template::parse(text, names);
        let has_more = self.method.is_some()
            || self.path.is_some()
            || self.sql.is_some()
            || !(self.headers.is_empty() && self.arguments.is_empty());
        let bodies = [&self.body, &self.sql, &self.body_file, &self.body_hex];
        let has_bodies = bodies.into_iter().flatten().count() > 1;
        let body = match (self.body.or(self.sql), self.body_file, self.body_hex) {
            (Some(text), _, _) => template(&text)?,
            // A file is sent unchanged: its braces are not variables.
            (None, Some(name), _) => Template::bytes(file(dir, &name, |path| std::fs::read(path))?),
            (None, None, Some(text)) => Template::bytes(hex(&text)?),
            (None, None, None) => Template::default(),
        };
        let path = self.path.unwrap_or_else(|| "/".to_owned());
        let name = self.name.unwrap_or_else(|| match (path.as_str(), self.command.first()) {
            (_, Some(program)) => format!("request {}: {program}", number + 1),
            ("/", None) => format!("request {}", number + 1),
            (path, None) => path.to_owned(),
        });
        if has_bodies {
            return Err(RequestsError::MultipleBodies { name });
        }
        if has_more && !self.command.is_empty() {
            return Err(RequestsError::Command { name });
        }
        let weight = self.weight.unwrap_or(1.0);
        if !(weight > 0.0 && weight.is_finite()) {
            return Err(RequestsError::Weight { name, weight });
        }
        let headers = self.headers.iter().map(|(name, value)| Ok((name.clone(), template(value)?)));
        let arguments = self.arguments.iter().map(|one| template(one));
        let command = self.command.iter().map(|one| template(one));
        Ok(RequestTemplate {
            weight,
            method: self.method.unwrap_or_else(|| {
                if body == Template::default() { "GET" } else { "POST" }.to_owned()
            }),
            path: template(&path)?,
            headers: headers.collect::<Result<_, RequestsError>>()?,
            arguments: arguments.collect::<Result<_, _>>()?,
            command: command.collect::<Result<_, _>>()?,
            body,
            name,
        })
    }
}
