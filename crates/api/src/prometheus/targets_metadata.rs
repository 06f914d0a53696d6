//! `/api/v1/targets/metadata`: type, unit and description of the metrics of scrape targets.
//!
//! A target's metrics are those whose series have all of its labels.

use std::collections::BTreeMap;

use model::{Selector, Series, SeriesKind};
use store::ReadView;

use super::PrometheusError;
use super::series::match_selector;
use super::status::{data_response, text_json};
use super::targets::field;
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, List, Map, Object, Text};
use crate::parameters::Parameters;
use crate::query::{EntryBudget, for_each_series};

/// Labels of a target.
type MetadataLabels = Vec<(String, String)>;

pub(super) async fn targets_metadata(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let parameters = parameters?;
    let limit = parameters.integer("limit", usize::MAX, usize::MAX)?;
    let metric = parameters.get("metric").filter(|name| !name.is_empty()).map(str::to_owned);
    let wanted = parameters.get("match_target").filter(|text| !text.is_empty());
    let wanted = wanted.map(|text| match_selector("match_target", text)).transpose()?;
    let (queries, intake) = (context.queries.clone(), context.intake.clone());
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let section = queries.status_section("targets");
        let targets = section.as_ref().map(scrape_targets).unwrap_or_default();
        let (mut all, mut entries) = (Vec::new(), EntryBudget::new(active));
        for labels in targets.iter().filter(|labels| is_wanted(labels, wanted.as_ref())) {
            for ((name, kind), unit) in metrics_of(view, labels, metric.as_deref(), active)? {
                if all.len() >= limit {
                    break;
                }
                let help = intake.description(&name).unwrap_or_default();
                let target =
                    labels.iter().map(|(name, value)| (name.clone(), text_json(value.as_str())));
                all.push(Object(vec![
                    ("target", Map(target.collect())),
                    ("metric", text_json(name)),
                    ("type", text_json(kind)),
                    ("help", text_json(&*help)),
                    ("unit", text_json(unit)),
                ]));
                entries.set_count(all.len())?;
            }
        }
        Ok(List(all))
    };
    let all = context.run_light_with_view("prometheus_targets_metadata", None, work).await?;
    data_response(&context, &all)
}

fn scrape_targets(section: &Json) -> Vec<MetadataLabels> {
    let List(all) = section else { panic!("BUG: the section of targets is a list") };
    let scraped = all.iter().filter(|one| *field(one, "kind") == Text("scrape".to_owned()));
    let labels = scraped.map(|target| match field(target, "labels") {
        Map(labels) => labels.iter().filter_map(|(name, value)| match value {
            Text(value) => Some((name.clone(), value.clone())),
            _ => None,
        }),
        _ => panic!("BUG: a target has labels"),
    });
    labels.map(Iterator::collect).collect()
}

fn is_wanted(labels: &MetadataLabels, wanted: Option<&Selector>) -> bool {
    let Some(wanted) = wanted else { return true };
    let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    wanted.matches(&Series::new("target", SeriesKind::Gauge).with_labels(pairs))
}

/// Names and types of the metrics of a target, and their units.
fn metrics_of(
    view: &ReadView,
    labels: &MetadataLabels,
    metric: Option<&str>,
    active: &ActiveQuery,
) -> Result<BTreeMap<(String, &'static str), String>, ApiError> {
    let name = metric.map(|name| Selector::label_equals(model::selector::NAME, name));
    let labels = labels.iter().map(|(name, value)| Selector::label_equals(name, value.as_str()));
    let selector = Selector::and(labels.chain(name).collect());
    let (mut found, mut entries) = (BTreeMap::new(), EntryBudget::new(active));
    for_each_series(view, &selector, active, |series| {
        let kind = match series.kind() {
            SeriesKind::Histogram(_) => "histogram",
            SeriesKind::Counter(_) => "counter",
            SeriesKind::Gauge => "gauge",
            SeriesKind::Text => return Ok(()),
        };
        found.insert((series.name().to_owned(), kind), series.unit().to_owned());
        entries.set_count(found.len())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use hist::codec::header::Temporality;
    use model::{Sample, SampleValue};
    use role::StatusSection;
    use serde_json::Value;

    use super::*;
    use crate::json::integer;
    use crate::test_server::{NOW, START, TestServer};

    /// The list of a target's metrics was 404.
    #[tokio::test]
    async fn metadata_of_a_target_has_its_metrics_only() {
        let server = TestServer::new();
        let labels = |job: &str| Map(vec![("job".to_owned(), Text(job.to_owned()))]);
        let target = |kind: &str, job: &str| {
            Object(vec![
                ("kind", Text(kind.to_owned())),
                ("labels", labels(job)),
                ("interval_ns", integer(1)),
            ])
        };
        let all =
            List(vec![target("scrape", "node"), target("scrape", "app"), target("check", "x")]);
        server
            .context
            .queries
            .set_sections(vec![StatusSection::new("targets", move || all.clone())]);
        let counter = SeriesKind::Counter(Temporality::Cumulative);
        for (job, name, kind) in [
            ("node", "up", SeriesKind::Gauge),
            ("node", "sent_total", counter),
            ("app", "up", SeriesKind::Gauge),
        ] {
            let series = Series::new(name, kind).with_label("job", job).with_unit("By");
            let value = SampleValue::Number(1.0);
            server.send(&series.validate().unwrap(), Sample { start: START, end: NOW, value });
        }
        let found = async |query: &str| -> Vec<String> {
            let answer = server.json(&format!("/api/v1/targets/metadata{query}")).await;
            let all = answer["data"].as_array().unwrap().clone();
            let text = |one: &Value| {
                let of = |name: &str| one[name].as_str().unwrap().to_owned();
                let job = one["target"]["job"].as_str().unwrap();
                [job, &of("metric"), &of("type"), &of("unit")].join(" ")
            };
            all.iter().map(text).collect()
        };
        let expected = ["node sent_total counter B", "node up gauge B", "app up gauge B"];
        assert_eq!(found("").await, expected);
        assert_eq!(found("?match_target={job=\"app\"}").await, expected[2..]);
        assert_eq!(found("?metric=up").await, expected[1..]);
        assert_eq!(found("?limit=1").await, expected[..1]);
        let (_, text) = server.get("/api/v1/targets/metadata?match_target=sum(a)").await;
        assert!(text.contains("match_target"), "{text}");
    }
}
