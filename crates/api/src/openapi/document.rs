//! The table of routes as an OpenAPI document, version 3.1 (spec.openapis.org/oas/v3.1.0).

use std::collections::BTreeMap;

use super::all_routes;
use crate::json::Json::{self, Bool, List, Map, Object, Text};
use crate::route::{ApiRoute, Parameter};

/// Headers of ingest requests: component name, header, description.
const HEADERS: [(&str, &str, &str); 2] = [
    (
        "Batch",
        "Topdeck-Batch",
        "PRODUCER/EPOCH/SEQUENCE: a retry with the same value is counted once (docs/serve.md)",
    ),
    (
        "BatchSecret",
        "Topdeck-Batch-Secret",
        "16 to 256 random characters, the same with each batch: authenticates the producer",
    ),
];

/// The document, including routes of roles.
pub(super) fn document_text(offered: &[ApiRoute]) -> String {
    let mut paths: BTreeMap<&str, Vec<&ApiRoute>> = BTreeMap::new();
    for route in all_routes() {
        paths.entry(route.path).or_default().push(route);
    }
    for route in offered {
        paths.entry(route.path).or_default().push(route);
    }
    let path = |(path, routes): (&str, Vec<&ApiRoute>)| {
        let operations =
            routes.into_iter().map(|route| (route.method.to_owned(), operation_json(route)));
        (path.to_owned(), Map(operations.collect()))
    };
    let document = Object(vec![
        ("openapi", string("3.1.0")),
        ("info", info_json()),
        ("paths", Map(paths.into_iter().map(path).collect())),
        ("components", components()),
    ]);
    format!("{document}\n")
}

fn string(text: &str) -> Json {
    Text(text.to_owned())
}

fn info_json() -> Json {
    let about = "Latency distributions: ingestion and queries. Examples: docs/api.md. A time is \
                 RFC 3339, Unix seconds, nanoseconds (1794225600000000000ns), now, or relative \
                 (-2h); a duration is 5m, 250ms, or seconds. Times in responses are nanoseconds \
                 since 1970.";
    Object(vec![
        ("title", string("topdeck")),
        ("version", string(env!("CARGO_PKG_VERSION"))),
        ("description", string(about)),
        ("license", Object(vec![("name", string("Apache-2.0"))])),
    ])
}

fn operation_json(route: &ApiRoute) -> Json {
    let variable = |name: &str| route.path.contains(&format!("{{{name}}}"));
    let mut fields = vec![("summary", string(route.description))];
    let mut parameters: Vec<Json> =
        route.parameters.iter().map(|of| parameter_json(of, variable(of.name))).collect();
    if route.takes_batches {
        let header = |(name, ..): &(&str, &str, &str)| {
            Object(vec![("$ref", Text(format!("#/components/parameters/{name}")))])
        };
        parameters.extend(HEADERS.iter().map(header));
    }
    if !parameters.is_empty() {
        fields.push(("parameters", List(parameters)));
    }
    if let Some((kind, about)) = route.body {
        let body = vec![("description", string(about)), ("content", content(kind))];
        fields.push(("requestBody", Object(body)));
    }
    fields.push(("responses", responses(route)));
    let security = match route.scope {
        None => List(Vec::new()),
        Some(scope) => List(vec![security_json(scope.name())]),
    };
    fields.push(("security", security));
    Object(fields)
}

fn security_json(scope: &str) -> Json {
    Map(vec![("token".to_owned(), List(vec![string(scope)]))])
}

fn parameter_json(parameter: &Parameter, is_variable: bool) -> Json {
    let single = Object(vec![("type", string(parameter.kind))]);
    let schema = match parameter.is_many {
        true => Object(vec![("type", string("array")), ("items", single)]),
        false => single,
    };
    Object(vec![
        ("name", string(parameter.name)),
        ("in", string(if is_variable { "path" } else { "query" })),
        ("required", Bool(parameter.is_required || is_variable)),
        ("description", string(parameter.about)),
        ("schema", schema),
    ])
}

fn content(kind: &str) -> Json {
    // The first of several descriptions is used; each names its media types.
    Map(kind.split(", ").map(|kind| (kind.to_owned(), Map(Vec::new()))).collect())
}

fn responses(route: &ApiRoute) -> Json {
    let (status, kind, about) = route.response;
    let mut success = vec![("description", string(about))];
    if !kind.is_empty() {
        success.push(("content", content(kind)));
    }
    let failure = Object(vec![("$ref", string("#/components/responses/Error"))]);
    Map(vec![(status.to_string(), Object(success)), ("default".to_owned(), failure)])
}

fn components() -> Json {
    let text = Object(vec![("type", string("string"))]);
    let schema = Object(vec![
        ("type", string("object")),
        ("properties", Map(vec![("error".to_owned(), text)])),
        ("required", List(vec![string("error")])),
    ]);
    let json = Map(vec![("application/json".to_owned(), Object(vec![("schema", schema)]))]);
    let about = "Error message with cause and remedy.";
    let problem = Object(vec![("description", string(about)), ("content", json)]);
    let scheme = Object(vec![("type", string("http")), ("scheme", string("bearer"))]);
    let header = |&(name, header, about): &(&str, &str, &str)| {
        let schema = Object(vec![("type", string("string"))]);
        let fields = vec![
            ("name", string(header)),
            ("in", string("header")),
            ("required", Bool(false)),
            ("description", string(about)),
            ("schema", schema),
        ];
        (name.to_owned(), Object(fields))
    };
    Object(vec![
        ("parameters", Map(HEADERS.iter().map(header).collect())),
        ("responses", Map(vec![("Error".to_owned(), problem)])),
        ("securitySchemes", Map(vec![("token".to_owned(), scheme)])),
    ])
}
