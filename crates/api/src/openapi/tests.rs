//! The table equals the registered routes, and the document equals the table. A test of `topdeck`,
//! which has the routes of roles, compares the document with the one in `docs/`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request, StatusCode};
use intake::WriteTarget;
use role::{Parameter, RouteFormat, RouteSpec};

use super::all_routes;
use super::document;
use crate::json::{Json, integer};
use crate::query_service::QueryServiceSettings;
use crate::test_server::{TestServer, empty_store};

#[test]
fn document_matches_the_route_table() {
    let read: serde_json::Value = serde_json::from_str(&document([], [])).unwrap();
    assert_eq!(read["openapi"], "3.1.0");
    for route in all_routes() {
        let operation = &read["paths"][route.path][route.method];
        let named = |parameter: &serde_json::Value| parameter["name"].as_str().unwrap().to_owned();
        let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        // References are to headers.
        let (headers, parameters): (Vec<_>, Vec<_>) =
            parameters.iter().partition(|parameter| parameter["$ref"].is_string());
        assert_eq!(headers.len(), if route.takes_batches { 2 } else { 0 }, "{}", route.path);
        let own: Vec<&str> = route.parameters.iter().map(|parameter| parameter.name).collect();
        assert_eq!(parameters.into_iter().map(named).collect::<Vec<_>>(), own, "{}", route.path);
    }
}

#[test]
fn routes_are_listed_once() {
    let mut seen = BTreeSet::new();
    for route in all_routes() {
        assert!(seen.insert((route.path, route.method)), "{} {}", route.method, route.path);
        let variables = route.path.matches('{').count();
        let named =
            route.parameters.iter().filter(|of| route.path.contains(&format!("{{{}}}", of.name)));
        assert_eq!(named.count(), variables, "{}: variable parts are parameters", route.path);
    }
}

#[tokio::test]
async fn listed_routes_are_handled() {
    let server = TestServer::with_store(empty_store(), QueryServiceSettings::default());
    for route in all_routes().filter(|route| route.handler.is_some() && route.path != "/v1/stream")
    {
        let method = Method::from_bytes(route.method.to_uppercase().as_bytes()).unwrap();
        let path = route.path.replace("{name}", "host").replace("{id}", "0123");
        let request = Request::builder().method(method).uri(&path).body(Body::empty()).unwrap();
        let (status, text) = server.send_request(request).await;
        assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        // An unknown path has an empty body.
        assert!(status != StatusCode::NOT_FOUND || !text.is_empty(), "{path}");
    }
}

static DOORS: RouteSpec = RouteSpec {
    name: "doors",
    path: "/v1/doors",
    about: "Doors that are open.",
    parameters: &[Parameter::integer("limit", "as many doors")],
    format: RouteFormat::Json,
};

#[tokio::test]
async fn role_route_is_served_and_documented() {
    let doors = role::Route::new(&DOORS, |query| Ok(integer(query.integer("limit", 3, 9)?)));
    let server = TestServer::with_routes(
        WriteTarget::Store(empty_store()),
        QueryServiceSettings::default(),
        vec![doors],
    );
    assert_eq!(server.json("/v1/doors").await, 3);
    assert_eq!(server.json("/v1/doors?limit=7").await, 7);
    for (wrong, said) in [
        (
            "/v1/doors?limit=10",
            "parameter limit: found \\\"10\\\", expected a whole number up to 9",
        ),
        ("/v1/doors?colour=red", "unknown parameter \\\"colour\\\"; allowed: limit"),
    ] {
        let (status, text) = server.get(wrong).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.contains(said), "{text}");
    }
    let described = server.json("/v1/openapi.json").await;
    let route = &described["paths"]["/v1/doors"]["get"];
    assert_eq!(route["summary"], "Doors that are open.");
    assert_eq!(route["parameters"][0]["name"], "limit");
    assert_eq!(route["security"][0]["token"][0], "read");
    assert!(described["paths"]["/v1/status"]["get"].is_object());
}

static COLOR: RouteSpec = RouteSpec {
    name: "color",
    path: "/api/v1/color",
    about: "A color.",
    parameters: &[Parameter::integer("limit", "as many colors")],
    format: RouteFormat::Text,
};

#[tokio::test]
async fn a_role_can_answer_with_text_and_like_prometheus() {
    let color = role::Route::new(&COLOR, |query| {
        query.integer("limit", 3, 9)?;
        Ok(Json::Text("green".to_owned()))
    });
    let target = WriteTarget::Store(empty_store());
    let server = TestServer::with_routes(target, QueryServiceSettings::default(), vec![color]);
    // Prometheus ignores unknown parameters.
    let (status, text) = server.get("/api/v1/color?unknown=1").await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "green\n"));
    let (status, text) = server.get("/api/v1/color?limit=x").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.starts_with("{\"status\":\"error\",\"errorType\":\"bad_data\""), "{text}");
    let described = server.json("/v1/openapi.json").await;
    let response = &described["paths"]["/api/v1/color"]["get"]["responses"]["200"];
    assert!(response["content"]["text/plain"].is_object(), "{response}");
}

#[tokio::test]
async fn a_long_poll_waits_for_the_change_or_the_stop() {
    let changes = Arc::new(tokio::sync::Notify::new());
    let own = Arc::clone(&changes);
    let doors = role::Route::new(&DOORS, |_| Ok(integer(1))).with_wait(move |_| {
        let own = Arc::clone(&own);
        async move { own.notified().await }
    });
    let target = WriteTarget::Store(empty_store());
    let server = TestServer::with_routes(target, QueryServiceSettings::default(), vec![doors]);
    changes.notify_one();
    assert_eq!(server.json("/v1/doors").await, 1);
    server.context.queries.stop();
    assert_eq!(server.json("/v1/doors").await, 1);
}

/// Routes registered with a literal path in the sources of this crate.
#[test]
fn registered_routes_are_listed() {
    fn walk(dir: &Path, each: &mut dyn FnMut(&Path, &str)) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, each),
                false => each(&path, &std::fs::read_to_string(&path).unwrap()),
            }
        }
    }
    let known: BTreeSet<&str> = all_routes().map(|route| route.path).collect();
    let mut lines = 0;
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut |file, text| {
        lines += text.lines().count();
        // Split, so that this line does not match itself.
        for after in text.split(concat!(".rou", "te(\"")).skip(1) {
            let path = after.split('"').next().unwrap();
            assert!(
                known.contains(path),
                "{}: {path} is not in the table of openapi.rs",
                file.display()
            );
        }
    });
    assert!(lines > 1000, "the sources were read");
}
