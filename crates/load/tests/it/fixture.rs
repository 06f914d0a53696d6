//! Settings of a minimal run: one request, one thread. Tests override what they need.

use load::{RequestTemplate, Requests, Schedule, Settings, Target, Template};

const MS: u64 = 1_000_000;

pub(crate) fn settings(target: &str, schedule: Schedule) -> Settings {
    let (target, path) = Target::parse(target).unwrap();
    let request = RequestTemplate {
        name: "a".to_owned(),
        method: "GET".to_owned(),
        path: Template::text(path),
        ..RequestTemplate::default()
    };
    Settings {
        target: Some(target),
        tls: net::tls::ClientTls::default(),
        schedule,
        requests: Requests::single(request),
        seed: 1,
        threads: 1,
        processors: 2,
        connections: 16,
        max_connections: 4_000,
        timeout_ns: 60_000 * MS,
        grace_period_ns: 5_000 * MS,
        abort: std::sync::Arc::default(),
    }
}
