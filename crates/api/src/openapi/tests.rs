//! The table is what is registered, and the document in `docs/` is the table.

use std::collections::BTreeSet;
use std::path::Path;

use axum::body::Body;
use expect_test::expect_file;
use http::{Method, Request, StatusCode};

use super::all;
use super::document::text as document;
use crate::desk::DeskSettings;
use crate::trial::{Trial, store};

#[test]
fn the_document_is_the_table() {
    expect_file!["../../../../docs/openapi.json"].assert_eq(&document());
    let read: serde_json::Value = serde_json::from_str(&document()).unwrap();
    assert_eq!(read["openapi"], "3.1.0");
    for route in all() {
        let operation = &read["paths"][route.path][route.method];
        let named = |parameter: &serde_json::Value| parameter["name"].as_str().unwrap().to_owned();
        let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        // References are to headers.
        let (headers, parameters): (Vec<_>, Vec<_>) =
            parameters.iter().partition(|parameter| parameter["$ref"].is_string());
        assert_eq!(headers.len(), if route.takes_batches() { 2 } else { 0 }, "{}", route.path);
        let own: Vec<&str> = route.parameters.iter().map(|parameter| parameter.name).collect();
        assert_eq!(parameters.into_iter().map(named).collect::<Vec<_>>(), own, "{}", route.path);
    }
}

#[test]
fn routes_stand_in_the_table_once() {
    let mut seen = BTreeSet::new();
    for route in all() {
        assert!(seen.insert((route.path, route.method)), "{} {}", route.method, route.path);
        let variables = route.path.matches('{').count();
        let named =
            route.parameters.iter().filter(|of| route.path.contains(&format!("{{{}}}", of.name)));
        assert_eq!(named.count(), variables, "{}: variable parts are parameters", route.path);
    }
}

#[tokio::test]
async fn routes_of_the_table_are_answered() {
    let trial = Trial::over(store(), DeskSettings::default());
    for route in all().filter(|route| route.handler.is_some() && route.path != "/v1/stream") {
        let method = Method::from_bytes(route.method.to_uppercase().as_bytes()).unwrap();
        let path = route.path.replace("{name}", "host");
        let request = Request::builder().method(method).uri(&path).body(Body::empty()).unwrap();
        let (status, text) = trial.send_request(request).await;
        assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        // A path that nobody answers has no body.
        assert!(status != StatusCode::NOT_FOUND || !text.is_empty(), "{path}");
    }
}

/// Routes that are registered by their names in the sources of this crate.
#[test]
fn all_that_is_registered_is_in_the_table() {
    fn walk(folder: &Path, each: &mut dyn FnMut(&Path, &str)) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, each),
                false => each(&path, &std::fs::read_to_string(&path).unwrap()),
            }
        }
    }
    let known: BTreeSet<&str> = all().map(|route| route.path).collect();
    let mut lines = 0;
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut |file, text| {
        lines += text.lines().count();
        // In two pieces, so that this line is none.
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
