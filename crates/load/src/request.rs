//! Requests of a run: templates with variables, and the weight of each.

use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::rendered_request::RenderedRequest;
use crate::requests_error::RequestsError;
use crate::schedule::SplitMix64;
use crate::target::Target;
use crate::template::Template;

/// Characters percent-encoded in a path or query (RFC 3986, 3.3 and 3.4). The percent sign is not:
/// encoded text stays as it is.
const PATH_ENCODED: &AsciiSet = &CONTROLS
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

/// Template of one kind of request. Each protocol uses its part: HTTP method, path, headers and
/// body; PostgreSQL `body` as SQL and `arguments` as parameters; Redis `arguments` as the command;
/// echo `body`; a command `command`, with `body` as standard input.
#[derive(Clone, Debug, Default)]
pub struct RequestTemplate {
    /// Name in reports.
    pub name: String,
    /// Relative frequency.
    pub weight: f64,
    /// HTTP method.
    pub method: String,
    /// HTTP path with query.
    pub path: Template,
    /// HTTP headers.
    pub headers: Vec<(String, Template)>,
    /// Body, SQL, or standard input.
    pub body: Template,
    /// PostgreSQL parameters or Redis words.
    pub arguments: Vec<Template>,
    /// Program and arguments; empty if the request goes to a server.
    pub command: Vec<Template>,
}

/// Values of a variable; each is equally likely.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum VariableValues {
    /// One of a list.
    OneOf(Vec<String>),
    /// An integer of a closed range.
    Between(i64, i64),
}

/// All requests of a run.
#[derive(Clone, Debug)]
pub struct Requests {
    requests: Vec<RequestTemplate>,
    variables: Vec<(String, VariableValues)>,
    /// Requests without variables, rendered once.
    rendered: Vec<Option<Arc<RenderedRequest>>>,
    /// Running sums of the weights.
    cumulative_weights: Vec<f64>,
}

impl Requests {
    /// A set of one request.
    pub fn single(request: RequestTemplate) -> Requests {
        Requests::new(vec![RequestTemplate { weight: 1.0, ..request }], Vec::new())
    }

    pub(crate) fn new(
        requests: Vec<RequestTemplate>,
        variables: Vec<(String, VariableValues)>,
    ) -> Requests {
        let mut sum = 0.0;
        let cumulative_weights = requests.iter().map(|request| {
            sum += request.weight;
            sum
        });
        let cumulative_weights = cumulative_weights.collect();
        let rendered = requests.iter().enumerate().map(|(index, request)| {
            let rendered = request.is_constant().then(|| request.render(index, &[]));
            rendered.map(Arc::new)
        });
        let rendered = rendered.collect();
        Requests { requests, variables, rendered, cumulative_weights }
    }

    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().map(|request| request.name.as_str())
    }

    /// Checks that the target's protocol, or without a target a command, can represent each request
    /// with each value of each variable; of a range, with both ends.
    pub fn check(&self, target: Option<&Target>) -> Result<(), RequestsError> {
        let check_one = |rendered: &RenderedRequest| match target {
            Some(target) => target.protocol.check(rendered),
            None => rendered.check_command(),
        };
        let first: Vec<String> = self
            .variables
            .iter()
            .map(|(_, values)| values.probe_values().next().unwrap_or_default())
            .collect();
        for (index, request) in self.requests.iter().enumerate() {
            let used: Vec<usize> =
                (0..self.variables.len()).filter(|number| request.uses(*number)).collect();
            let check = |rendered: &RenderedRequest, values: &[String]| {
                check_one(rendered).map_err(|cause| {
                    let with = used.iter().map(|number| {
                        format!(", with {} = {:?}", self.variables[*number].0, values[*number])
                    });
                    RequestsError::NotRepresentable {
                        name: request.name.clone(),
                        cause,
                        with: with.collect(),
                    }
                })
            };
            let mut rendered = request.render(index, &first);
            check(&rendered, &first)?;
            for &number in &used {
                let mut values = first.clone();
                for value in self.variables[number].1.probe_values() {
                    values[number] = value;
                    // A constant body may be long: it is not rendered again.
                    let body = std::mem::take(&mut rendered.body);
                    rendered = match request.body.uses(number) {
                        true => request.render(index, &values),
                        false => RenderedRequest { body, ..request.render_head(index, &values) },
                    };
                    check(&rendered, &values)?;
                }
            }
        }
        Ok(())
    }

    /// Requests in order.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, RequestTemplate> {
        self.requests.iter()
    }

    /// Samples a request by weight, and its variables.
    pub(crate) fn sample(&self, random: &mut SplitMix64) -> Arc<RenderedRequest> {
        let index = match self.cumulative_weights.as_slice() {
            [_] => 0,
            cumulative_weights => {
                let at = random.unit_interval() * cumulative_weights.last().copied().unwrap_or(0.0);
                cumulative_weights
                    .partition_point(|end| *end < at)
                    .min(cumulative_weights.len() - 1)
            }
        };
        if let Some(rendered) = &self.rendered[index] {
            return rendered.clone();
        }
        let values: Vec<String> =
            self.variables.iter().map(|(_, values)| values.sample(random)).collect();
        Arc::new(self.requests[index].render(index, &values))
    }
}

impl RequestTemplate {
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

    fn render(&self, index: usize, values: &[String]) -> RenderedRequest {
        RenderedRequest { body: self.body.fill_bytes(values), ..self.render_head(index, values) }
    }

    /// Renders all but the body.
    fn render_head(&self, index: usize, values: &[String]) -> RenderedRequest {
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.fill(values)));
        let arguments = self.arguments.iter().map(|one| one.fill(values).into_bytes());
        let command = self.command.iter().map(|one| one.fill_bytes(values));
        RenderedRequest {
            index,
            method: self.method.clone(),
            path: utf8_percent_encode(&self.path.fill(values), PATH_ENCODED).to_string(),
            headers: headers.collect(),
            body: Vec::new(),
            arguments: arguments.collect(),
            command: command.collect(),
        }
    }
}

impl VariableValues {
    /// Values to check before a run.
    fn probe_values(&self) -> impl Iterator<Item = String> {
        let (words, ends) = match self {
            VariableValues::OneOf(all) => (all.as_slice(), None),
            VariableValues::Between(low, high) => (&[][..], Some([*low, *high])),
        };
        words.iter().cloned().chain(ends.into_iter().flatten().map(|one| one.to_string()))
    }

    fn sample(&self, random: &mut SplitMix64) -> String {
        match self {
            VariableValues::OneOf(all) => all[(random.next() % all.len() as u64) as usize].clone(),
            VariableValues::Between(low, high) => {
                // The widest range has more than 2^64 − 1 integers.
                let width = (i128::from(*high) - i128::from(*low) + 1) as u128;
                (i128::from(*low) + (u128::from(random.next()) % width) as i128).to_string()
            }
        }
    }
}

#[cfg(test)]
mod tests;
