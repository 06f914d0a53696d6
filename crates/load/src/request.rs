//! Requests: what is sent, with places that change from one to the next, and which is sent how often.

use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Deserialize;

use crate::protocol::Protocol;
use crate::schedule::Random;

/// What may not stand in a path or a query (RFC 3986, 3.3 and 3.4), but for the percent sign: what is encoded already stays as it is.
const UNFIT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A text with places for variables: `/users/{id}`. Two braces stand for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// What need not be text: only a body has it, and nothing else.
    Bytes(Vec<u8>),
    /// The variable's number.
    Variable(usize),
}

/// One kind of request. Protocols take from it what they have: HTTP method, path, headers and body; Postgres `body` as the SQL and
/// `arguments` as its parameters; Redis `arguments` as the command; an echo `body`; a command
/// itself, and `body` as what it reads.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// As reports name it.
    pub name: String,
    /// How often it is sent, against the others.
    pub weight: f64,
    /// Of HTTP.
    pub method: String,
    /// Of HTTP: with what follows a question mark.
    pub path: Template,
    /// Of HTTP.
    pub headers: Vec<(String, Template)>,
    /// What is sent.
    pub body: Template,
    /// What goes with it.
    pub arguments: Vec<Template>,
    /// A program and its arguments; empty, if the request goes to a server.
    pub command: Vec<Template>,
}

/// A request whose places are filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Which of the set it is.
    pub index: usize,
    /// Of HTTP.
    pub method: String,
    /// Of HTTP.
    pub path: String,
    /// Of HTTP.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Vec<u8>,
    /// What goes with it.
    pub arguments: Vec<Vec<u8>>,
    /// A program and its arguments.
    pub command: Vec<Vec<u8>>,
}

/// What a variable is replaced by.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// One of these, each as likely as any other.
    OneOf(Vec<String>),
    /// A whole number, both ends included, each as likely as any other.
    Between(i64, i64),
}

/// What is sent in a run.
#[derive(Clone, Debug)]
pub struct Requests {
    requests: Vec<Request>,
    variables: Vec<(String, Values)>,
    /// Those without variables, ready.
    ready: Vec<Option<Arc<Rendered>>>,
    /// Sums of the weights.
    until: Vec<f64>,
}

/// All weights together stay below: were their sum no number, only the last would ever be drawn.
const WEIGHT_MAX: f64 = 1e300;

/// What is wrong with a description of requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestsError {
    /// Not TOML, or not of the form that is described.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// There is none.
    #[error("there is no request: write at least one [[request]]")]
    Empty,
    /// A weight that says nothing.
    #[error(
        "request {name:?} has the weight {weight}: it must be above 0, and all together below 1e300"
    )]
    Weight {
        /// Whose.
        name: String,
        /// As it was written.
        weight: f64,
    },
    /// A place whose variable is not described.
    #[error(
        "{{{name}}} stands in a request, but [variables] has no {name}; a brace that is meant as such is written twice"
    )]
    Unknown {
        /// Which.
        name: String,
    },
    /// A brace without its other half.
    #[error(
        "{text:?} has a brace without its other half; a brace that is meant as such is written twice"
    )]
    Brace {
        /// Where.
        text: String,
    },
    /// A body in hexadecimal digits that is none.
    #[error("{text:?} is no body in hexadecimal digits: two of 0-9 and a-f stand for a byte")]
    Hex {
        /// As it was written.
        text: String,
    },
    /// More than one body.
    #[error("request {name:?} has more than one of body, sql, body-file and body-hex: leave one")]
    Bodies {
        /// Whose.
        name: String,
    },
    /// A variable that has no value.
    #[error(
        "variable {name} has no value: write at least one, or a range from a number to a greater one"
    )]
    NoValue {
        /// Which.
        name: String,
    },
    /// The protocol cannot say it.
    #[error("request {name:?}: {why}{with}")]
    Unsayable {
        /// Which.
        name: String,
        /// What is wrong with it.
        why: String,
        /// The values of its variables that it is so with, in words; empty if it has none.
        with: String,
    },
    /// A command with what only requests to a server have.
    #[error(
        "request {name:?} has a command: beside it there may be name, weight and one of body, body-file and body-hex, which the command reads"
    )]
    Command {
        /// Whose.
        name: String,
    },
    /// A file that is named in it.
    #[error("cannot read {path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
}

impl Requests {
    /// One request, as it stands.
    pub fn one(request: Request) -> Requests {
        Requests::new(vec![Request { weight: 1.0, ..request }], Vec::new())
    }

    fn new(requests: Vec<Request>, variables: Vec<(String, Values)>) -> Requests {
        let mut sum = 0.0;
        let until = requests.iter().map(|request| {
            sum += request.weight;
            sum
        });
        let until = until.collect();
        let ready = requests.iter().enumerate().map(|(index, request)| {
            let ready = request.is_constant().then(|| request.render(index, &[]));
            ready.map(Arc::new)
        });
        let ready = ready.collect();
        Requests { requests, variables, ready, until }
    }

    /// Reads a description, as `docs/load.md` tells of it. Files that it names are looked for beside `folder`.
    pub fn parse(text: &str, folder: &std::path::Path) -> Result<Requests, RequestsError> {
        let written: Written = toml::from_str(text)?;
        if written.request.is_empty() {
            return Err(RequestsError::Empty);
        }
        let mut variables = Vec::new();
        for (name, values) in written.variables {
            let values = values.read(&name, folder)?;
            variables.push((name, values));
        }
        let names: Vec<String> = variables.iter().map(|one| one.0.clone()).collect();
        let requests = written.request.into_iter().enumerate();
        let requests = requests.map(|(number, one)| one.read(number, &names, folder));
        let requests: Vec<Request> = requests.collect::<Result<_, _>>()?;
        let heaviest = requests.iter().max_by(|a, b| a.weight.total_cmp(&b.weight));
        if let Some(Request { name, weight, .. }) =
            heaviest.filter(|_| requests.iter().map(|one| one.weight).sum::<f64>() >= WEIGHT_MAX)
        {
            return Err(RequestsError::Weight { name: name.clone(), weight: *weight });
        }
        Ok(Requests::new(requests, variables))
    }

    /// What they are called, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().map(|request| request.name.as_str())
    }

    /// Whether a protocol can say each of them, with each value of each variable; of whole numbers with the ends.
    pub fn check(&self, protocol: &Protocol) -> Result<(), RequestsError> {
        let first: Vec<String> = self
            .variables
            .iter()
            .map(|(_, values)| values.tried().next().unwrap_or_default())
            .collect();
        for (index, request) in self.requests.iter().enumerate() {
            let used: Vec<usize> =
                (0..self.variables.len()).filter(|number| request.uses(*number)).collect();
            let check = |rendered: &Rendered, values: &[String]| {
                protocol.check(rendered).map_err(|why| {
                    let with = used.iter().map(|number| {
                        format!(", with {} = {:?}", self.variables[*number].0, values[*number])
                    });
                    RequestsError::Unsayable {
                        name: request.name.clone(),
                        why,
                        with: with.collect(),
                    }
                })
            };
            let mut rendered = request.render(index, &first);
            check(&rendered, &first)?;
            for &number in &used {
                let mut values = first.clone();
                for value in self.variables[number].1.tried() {
                    values[number] = value;
                    // A body that stays the same may be long.
                    let body = std::mem::take(&mut rendered.body);
                    rendered = match request.body.uses(number) {
                        true => request.render(index, &values),
                        false => Rendered { body, ..request.render_head(index, &values) },
                    };
                    check(&rendered, &values)?;
                }
            }
        }
        Ok(())
    }

    /// All of them, in their order.
    pub(crate) fn all(&self) -> &[Request] {
        &self.requests
    }

    /// Whether each of them is a command: none needs a server.
    pub fn are_commands(&self) -> bool {
        self.requests.iter().all(|request| !request.command.is_empty())
    }

    /// The next one of those that `random` draws.
    pub(crate) fn draw(&self, random: &mut Random) -> Arc<Rendered> {
        let index = match self.until.as_slice() {
            [_] => 0,
            until => {
                let at = random.share() * until.last().copied().unwrap_or(0.0);
                until.partition_point(|end| *end < at).min(until.len() - 1)
            }
        };
        if let Some(ready) = &self.ready[index] {
            return ready.clone();
        }
        let values: Vec<String> =
            self.variables.iter().map(|(_, values)| values.draw(random)).collect();
        Arc::new(self.requests[index].render(index, &values))
    }
}

impl Request {
    fn templates(&self) -> impl Iterator<Item = &Template> {
        let headers = self.headers.iter().map(|header| &header.1);
        [&self.path, &self.body]
            .into_iter()
            .chain(headers)
            .chain(&self.arguments)
            .chain(&self.command)
    }

    fn is_constant(&self) -> bool {
        self.templates().all(Template::is_constant)
    }

    fn uses(&self, variable: usize) -> bool {
        self.templates().any(|one| one.uses(variable))
    }

    fn render(&self, index: usize, values: &[String]) -> Rendered {
        Rendered { body: self.body.fill_bytes(values), ..self.render_head(index, values) }
    }

    /// All but its body.
    fn render_head(&self, index: usize, values: &[String]) -> Rendered {
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.fill(values)));
        let arguments = self.arguments.iter().map(|one| one.fill(values).into_bytes());
        let command = self.command.iter().map(|one| one.fill_bytes(values));
        Rendered {
            index,
            method: self.method.clone(),
            path: utf8_percent_encode(&self.path.fill(values), UNFIT).to_string(),
            headers: headers.collect(),
            body: Vec::new(),
            arguments: arguments.collect(),
            command: command.collect(),
        }
    }
}

impl Template {
    /// A text without places.
    pub fn text(text: impl Into<String>) -> Template {
        Template { pieces: vec![Piece::Text(text.into())] }
    }

    /// Bytes without places.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Template {
        Template { pieces: vec![Piece::Bytes(bytes.into())] }
    }

    fn parse(text: &str, names: &[String]) -> Result<Template, RequestsError> {
        let broken = || RequestsError::Brace { text: text.to_owned() };
        let (mut pieces, mut literal) = (Vec::new(), String::new());
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match (c, rest.clone().next()) {
                ('{', Some('{')) | ('}', Some('}')) => {
                    literal.push(c);
                    rest.next();
                }
                ('{', _) => {
                    let (name, after) = rest.as_str().split_once('}').ok_or_else(broken)?;
                    let found = names.iter().position(|one| one == name);
                    let unknown = || RequestsError::Unknown { name: name.to_owned() };
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                    pieces.push(Piece::Variable(found.ok_or_else(unknown)?));
                    rest = after.chars();
                }
                ('}', _) => return Err(broken()),
                _ => literal.push(c),
            }
        }
        pieces.push(Piece::Text(literal));
        Ok(Template { pieces })
    }

    fn uses(&self, variable: usize) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Variable(one) if *one == variable))
    }

    /// All of it, if it has no places.
    pub(crate) fn constant(&self) -> Option<Vec<u8>> {
        self.is_constant().then(|| self.fill_bytes(&[]))
    }

    fn is_constant(&self) -> bool {
        self.pieces.iter().all(|piece| !matches!(piece, Piece::Variable(_)))
    }

    fn fill(&self, values: &[String]) -> String {
        // Text, but for bytes in a place where only text is meant.
        String::from_utf8(self.fill_bytes(values))
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    fn fill_bytes(&self, values: &[String]) -> Vec<u8> {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_bytes(),
            Piece::Bytes(bytes) => bytes,
            Piece::Variable(number) => values[*number].as_bytes(),
        });
        pieces.collect::<Vec<_>>().concat()
    }
}

impl Values {
    /// Those that something can be wrong with.
    fn tried(&self) -> impl Iterator<Item = String> {
        let (words, ends) = match self {
            Values::OneOf(all) => (all.as_slice(), None),
            Values::Between(low, high) => (&[][..], Some([*low, *high])),
        };
        words.iter().cloned().chain(ends.into_iter().flatten().map(|one| one.to_string()))
    }

    fn draw(&self, random: &mut Random) -> String {
        match self {
            Values::OneOf(all) => all[(random.next() % all.len() as u64) as usize].clone(),
            Values::Between(low, high) => {
                // Of all whole numbers there are more than 2^64 − 1 between the ends of the widest range.
                let width = (i128::from(*high) - i128::from(*low) + 1) as u128;
                (i128::from(*low) + (u128::from(random.next()) % width) as i128).to_string()
            }
        }
    }
}

/// A description as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    request: Vec<WrittenRequest>,
    #[serde(default)]
    variables: std::collections::BTreeMap<String, WrittenValues>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenRequest {
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
enum WrittenValues {
    OneOf(Vec<String>),
    Between { from: i64, to: i64 },
    Lines { file: String },
}

fn file<T>(
    folder: &std::path::Path,
    name: &str,
    read: impl Fn(&std::path::Path) -> std::io::Result<T>,
) -> Result<T, RequestsError> {
    let path = folder.join(name);
    read(&path).map_err(|error| RequestsError::File { path: path.display().to_string(), error })
}

/// Bytes that are written as pairs of digits; white space may stand anywhere.
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

impl WrittenValues {
    fn read(self, name: &str, folder: &std::path::Path) -> Result<Values, RequestsError> {
        let none = || RequestsError::NoValue { name: name.to_owned() };
        let values = match self {
            WrittenValues::OneOf(all) => all,
            WrittenValues::Between { from, to } if from <= to => {
                return Ok(Values::Between(from, to));
            }
            WrittenValues::Between { .. } => return Err(none()),
            WrittenValues::Lines { file: name } => {
                let lines = file(folder, &name, |path| std::fs::read_to_string(path))?;
                lines.lines().map(str::to_owned).collect()
            }
        };
        if values.is_empty() { Err(none()) } else { Ok(Values::OneOf(values)) }
    }
}

impl WrittenRequest {
    fn read(
        self,
        number: usize,
        names: &[String],
        folder: &std::path::Path,
    ) -> Result<Request, RequestsError> {
        let template = |text: &str| Template::parse(text, names);
        let has_more = self.method.is_some()
            || self.path.is_some()
            || self.sql.is_some()
            || !(self.headers.is_empty() && self.arguments.is_empty());
        let bodies = [&self.body, &self.sql, &self.body_file, &self.body_hex];
        let has_bodies = bodies.into_iter().flatten().count() > 1;
        let body = match (self.body.or(self.sql), self.body_file, self.body_hex) {
            (Some(text), _, _) => template(&text)?,
            // A file is sent as it is: its braces are its own.
            (None, Some(name), _) => {
                Template::bytes(file(folder, &name, |path| std::fs::read(path))?)
            }
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
            return Err(RequestsError::Bodies { name });
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
        Ok(Request {
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

#[cfg(test)]
mod tests;
