//! Attempts to access what a client may not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::hostile::attack_target::AttackTarget;
use crate::hostile::client::KeepAliveConnection;

/// Files outside the directories of dashboards and snapshots.
fn files_outside(dir: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for dir in [dir.to_owned(), dir.join("data")] {
        for entry in fs::read_dir(dir)? {
            found.insert(entry?.path());
        }
    }
    for name in ["dashboards", "snapshots"] {
        found.remove(&dir.join("data").join(name));
    }
    Ok(found)
}

pub(super) fn path_traversal(scene: &AttackTarget) -> Result<String> {
    let before = files_outside(scene.dir())?;
    let ups = [
        "../../topdeck.toml",
        "..%2f..%2ftopdeck.toml",
        "%2e%2e/%2e%2e/topdeck.toml",
        "..%5c..%5ctopdeck.toml",
        "....//....//topdeck.toml",
        "%2fetc%2fpasswd",
        "..%00",
        "x%2f..%2f..%2fy",
        "%c0%ae%c0%ae%c0%af",
    ];
    let mut requests_sent = 0;
    for up in ups {
        let requests = [
            ("GET", format!("/{up}")),
            ("GET", format!("/assets/{up}")),
            ("GET", format!("/v1/dashboards/{up}")),
            ("PUT", format!("/v1/dashboards/{up}")),
            ("DELETE", format!("/v1/dashboards/{up}")),
            ("POST", format!("/v1/snapshots?name={up}")),
            ("DELETE", format!("/v1/snapshots/{up}")),
        ];
        for (method, path) in requests {
            let token = match method {
                "GET" => &scene.read_token,
                _ => &scene.admin_token,
            };
            let board = br#"{"schema":1,"title":"up","panels":[]}"#;
            let answer = scene.request_as(token, method, &path, &[], board)?;
            let is_refused = (400..500).contains(&answer.status);
            ensure!(is_refused, "{method} {path}: {}: {}", answer.status, answer.text());
            requests_sent += 1;
        }
    }
    let after = files_outside(scene.dir())?;
    ensure!(after == before, "files changed: {after:?}, expected {before:?}");
    Ok(format!("{requests_sent} requests"))
}

pub(super) fn invalid_tokens(scene: &AttackTarget) -> Result<String> {
    let tokens = [
        ("ingest", &scene.ingest_token),
        ("read", &scene.read_token),
        ("admin", &scene.admin_token),
    ];
    let routes = [
        ("POST", "/v1/record?metric=wrong", "ingest"),
        ("POST", "/v1/metrics", "ingest"),
        ("POST", "/api/v1/write", "ingest"),
        ("PUT", "/v1/httptrap", "ingest"),
        ("POST", "/write", "ingest"),
        ("POST", "/v1/import", "ingest"),
        ("POST", "/v1/batches", "ingest"),
        ("POST", "/v1/annotations", "ingest"),
        ("GET", "/v1/status", "read"),
        ("GET", "/v1/audit", "read"),
        ("GET", "/v1/metric_names", "read"),
        ("GET", "/v1/query?query=1", "read"),
        ("GET", "/v1/stream?selector=none", "read"),
        ("GET", "/api/v1/labels", "read"),
        ("GET", "/v1/histogram?selector=none", "read"),
        ("GET", "/v1/dashboards", "read"),
        ("PUT", "/v1/dashboards/wrong", "admin"),
        ("DELETE", "/v1/dashboards/wrong", "admin"),
        ("POST", "/v1/snapshots?name=wrong", "admin"),
        ("DELETE", "/v1/snapshots/wrong", "admin"),
    ];
    let mut requests_sent = 0;
    for (method, path, scope) in routes {
        for (has, token) in tokens.iter().filter(|(has, _)| *has != scope) {
            let status = scene.request_as(token, method, path, &[], b"")?.status;
            ensure!(status == 403, "{method} {path} with the scope {has}: {status}");
            requests_sent += 1;
        }
        let secret = tokens.iter().find(|(has, _)| *has == scope).map_or("", |(_, token)| token);
        let long = format!("Bearer {}", "x".repeat(10_000));
        for header in [
            None,
            Some(String::new()),
            Some("Bearer".to_owned()),
            Some("Bearer ".to_owned()),
            Some(format!("Bearer {}", &secret[..secret.len() - 1])),
            Some(format!("Bearer {secret}x")),
            Some(format!("Bearer {}", secret.to_uppercase() + "A")),
            Some(format!("Digest {secret}")),
            Some("Basic ====".to_owned()),
            Some(long),
        ] {
            let headers: Vec<(&str, &str)> =
                header.iter().map(|header| ("Authorization", header.as_str())).collect();
            let mut connection = KeepAliveConnection::open(scene.address())?;
            let status = connection.request(method, path, &headers, b"")?.status;
            ensure!(status == 401, "{method} {path} with {header:?}: {status}");
            requests_sent += 1;
        }
    }
    Ok(format!("{requests_sent} requests"))
}
