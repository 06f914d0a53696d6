//! `/api/v1/targets`: scrape targets, from the section `targets` of the status; and, beyond
//! Prometheus, the sources that send by themselves.

use intake::SourceActivity;

use super::PrometheusError;
use super::status::{data_response, rfc3339, text_json};
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Integer, List, Map, Null, Number, Object, Text};
use crate::parameters::Parameters;

pub(super) async fn targets(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let parameters = parameters?;
    let pool = parameters.get("scrapePool").map(str::to_owned);
    let is_shown = match parameters.get("state") {
        None | Some("active" | "any") => true,
        Some("dropped") => false,
        Some(other) => {
            let expected = "active, dropped or any";
            return Err(ApiError::invalid_parameter("state", other, expected).into());
        }
    };
    let queries = context.queries.clone();
    let work = move |_: &_| Ok::<_, ApiError>(queries.status_section("targets"));
    let section = context.run_light("prometheus_targets", None, work).await?;
    let List(all) = section.unwrap_or(List(Vec::new())) else {
        panic!("BUG: the section of targets is a list")
    };
    let is_wanted = |target: &&Json| {
        is_shown
            && *field(target, "kind") == Text("scrape".to_owned())
            && pool.as_ref().is_none_or(|pool| *field(target, "name") == Text(pool.clone()))
    };
    let active = all.iter().filter(is_wanted).map(target_json).collect();
    let sources = context.intake.sources();
    let fields = vec![
        ("activeTargets", List(active)),
        ("droppedTargets", List(Vec::new())),
        ("droppedTargetCounts", Map(Vec::new())),
        // Clients of Prometheus ignore a field that they do not know.
        ("sources", List(sources.iter().map(source_json).collect())),
    ];
    data_response(&context, &Object(fields))
}

/// A source in the manner of a target.
fn source_json(source: &SourceActivity) -> Json {
    Object(vec![
        ("name", text_json(&*source.name)),
        ("health", text_json(source.state.name())),
        ("lastBatch", rfc3339(source.last)),
        ("interval", source.interval.map_or(Null, |(ns, _)| seconds_json(ns))),
        ("absentAfter", source.interval.map_or(Null, |(_, ns)| seconds_json(ns))),
    ])
}

fn seconds_json(ns: i64) -> Json {
    text_json(format!("{}s", ns as f64 / 1e9))
}

/// A target in the shape of Prometheus.
fn target_json(target: &Json) -> Json {
    let text = |name: &str| match field(target, name) {
        Text(text) => text.clone(),
        _ => String::new(),
    };
    let ns = |name: &str| match field(target, name) {
        Integer(ns) => i64::try_from(*ns).unwrap_or(i64::MAX),
        _ => 0,
    };
    let health = text("state");
    // Prometheus has an error only while the target is down.
    let error = match (&*health, field(target, "last_error")) {
        ("down", error @ Object(_)) => field(error, "reason").clone(),
        _ => text_json(""),
    };
    let url = text("url");
    let (scheme, rest) = url.split_once("://").unwrap_or(("", &url));
    let (address, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let discovered = [
        ("__address__", address),
        ("__metrics_path__", path),
        ("__scheme__", scheme),
        ("job", &text("name")),
    ];
    let discovered = discovered.map(|(name, value)| (name.to_owned(), text_json(value)));
    let last = match field(target, "last_ns") {
        Integer(_) => rfc3339(ns("last_ns")),
        // The zero time of Go.
        _ => text_json("0001-01-01T00:00:00Z"),
    };
    Object(vec![
        ("discoveredLabels", Map(discovered.into())),
        ("labels", field(target, "labels").clone()),
        ("scrapePool", text_json(text("name"))),
        ("scrapeUrl", text_json(&*url)),
        ("globalUrl", text_json(&*url)),
        ("lastError", error),
        ("lastScrape", last),
        ("lastScrapeDuration", Number(ns("last_duration_ns") as f64 / 1e9)),
        ("health", text_json(health)),
        ("scrapeInterval", seconds_json(ns("interval_ns"))),
        ("scrapeTimeout", seconds_json(ns("timeout_ns"))),
    ])
}

/// A field of an object, or null.
pub(super) fn field<'a>(of: &'a Json, name: &str) -> &'a Json {
    match of {
        Object(fields) => {
            fields.iter().find(|(known, _)| *known == name).map_or(&Null, |field| &field.1)
        }
        _ => &Null,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use role::StatusSection;

    use super::*;
    use crate::json::integer;
    use crate::test_server::TestServer;

    #[tokio::test]
    async fn targets_that_are_down_say_why() {
        let server = TestServer::new();
        let target = |kind: &str, name: &str, state: &str| {
            Object(vec![
                ("kind", Text(kind.to_owned())),
                ("name", Text(name.to_owned())),
                ("url", Text("http://web-1:9100/metrics".to_owned())),
                ("labels", Map(vec![("job".to_owned(), Text(name.to_owned()))])),
                ("interval_ns", integer(15_000_000_000)),
                ("timeout_ns", integer(2_500_000_000)),
                ("state", Text(state.to_owned())),
                ("last_ns", integer(1_600_000_000_000_000_000)),
                ("last_duration_ns", integer(2_500_000)),
                ("last_error", Object(vec![("reason", Text("HTTP 500".to_owned()))])),
            ])
        };
        let all = List(vec![
            target("scrape", "node", "down"),
            target("scrape", "app", "up"),
            target("check", "front", "up"),
        ]);
        let section = StatusSection::new("targets", move || all.clone());
        server.context.queries.set_sections(vec![section]);
        let (_, text) = server.get("/api/v1/targets?state=active&scrapePool=node").await;
        expect![[r#"
            {"status":"success","data":{"activeTargets":[{"discoveredLabels":{"__address__":"web-1:9100","__metrics_path__":"/metrics","__scheme__":"http","job":"node"},"labels":{"job":"node"},"scrapePool":"node","scrapeUrl":"http://web-1:9100/metrics","globalUrl":"http://web-1:9100/metrics","lastError":"HTTP 500","lastScrape":"2020-09-13T12:26:40Z","lastScrapeDuration":0.0025,"health":"down","scrapeInterval":"15s","scrapeTimeout":"2.5s"}],"droppedTargets":[],"droppedTargetCounts":{},"sources":[{"name":"server","health":"unknown","lastBatch":"2020-09-13T13:30:00Z","interval":null,"absentAfter":null}]}}"#]]
        .assert_eq(&text.to_string());
        let names = |answer: serde_json::Value| {
            let targets = answer["data"]["activeTargets"].as_array().unwrap().clone();
            targets.iter().map(|of| of["scrapePool"].to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(server.json("/api/v1/targets").await), r#""node" "app""#);
        assert_eq!(names(server.json("/api/v1/targets?state=dropped").await), "");
        // The status has the checks too.
        let status = server.json("/v1/status").await;
        assert_eq!(status["targets"].as_array().unwrap().len(), 3);
    }
}
