//! Files of the demonstration: settings, alert rules and a dashboard.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use client::private_dir;
use render::json::Json::{self, List, Object, Text};
use render::json::integer;

use crate::alert_history::{OBJECTIVES, RULE_FILE, RULES, ShopObjective};

/// Writes the files that the settings name, and the dashboard.
pub fn write_files(directory: &Path) -> Result<()> {
    write_dashboard(directory)?;
    write_file(&directory.join(RULE_FILE), RULES)
}

/// Settings of the server, which listens on a port of 127.0.0.1.
///
/// The server scrapes and checks itself, so that these views have something to show. It does not
/// collect the programs of this host: their metrics would be series of the shop.
pub fn settings_text(port: u16) -> String {
    let slos: String = OBJECTIVES.iter().map(ShopObjective::settings_text).collect();
    format!(
        r#"durability = "memory"

[http]
listen = ["127.0.0.1:{port}"]

[host]
shm_metrics = false

[[scrape]]
name = "topdeck"
url = "http://127.0.0.1:{port}/metrics"
interval = "5s"

[[check]]
name = "topdeck is healthy"
http = "http://127.0.0.1:{port}/health"
interval = "5s"

[alerts]
rule_files = ["{RULE_FILE}"]

{slos}"#
    )
}

/// Writes a file, and the directory that contains it.
fn write_file(path: &Path, text: &str) -> Result<()> {
    path.parent().map_or(Ok(()), private_dir)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn write_dashboard(directory: &Path) -> Result<()> {
    // Legend and unit, if there are any.
    let panel = |title: &str, text: &str, language: &str, more: &[(&'static str, &str)]| {
        let fields = [("title", title), ("text", text), ("language", language)];
        let fields = fields.iter().chain(more);
        Object(fields.map(|(name, value)| (*name, Text((*value).to_owned()))).collect())
    };
    let panels = vec![
        panel("Orders", "request_duration{service=\"orders\"}", "metric", &[]),
        panel(
            "p99 by service",
            "histogram_quantile(0.99, sum by (service) (exact_increase(request_duration[5m])))",
            "promql",
            &[("legend", "{{service}}")],
        ),
        panel(
            "Payments above 800 ms by host",
            "sum by (host) (histogram_count_above(800ms, \
             exact_increase(request_duration{service=\"payment\"}[5m])))",
            "promql",
            &[("legend", "{{host}}"), ("unit", "payments")],
        ),
        panel(
            "Orders per second",
            "sum by (region) (rate(orders_total[5m]))",
            "promql",
            &[("legend", "{{region}}"), ("unit", "/s")],
        ),
        panel(
            "Payments that wait",
            "payment_queue_depth",
            "promql",
            &[("legend", "{{region}}"), ("unit", "payments")],
        ),
    ];
    let dashboard: Json = Object(vec![
        ("schema", integer(2)),
        ("title", Text("The shop".to_owned())),
        ("panels", List(panels)),
    ]);
    write_file(&directory.join("dashboards/shop.json"), &format!("{dashboard}\n"))
}
