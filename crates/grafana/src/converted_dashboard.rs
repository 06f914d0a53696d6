//! Conversion of a Grafana dashboard to a dashboard of topdeck.
//!
//! A panel of topdeck shows one query, so each query of a panel becomes a panel. What has no
//! counterpart is listed with the reason; nothing is dropped without a line in that list.

use query::promql;
use render::json::Json::{self, List, Object, Text};
use render::json::integer;
use serde_json::Value;

use crate::grafana_variables::GrafanaVariables;

/// Panel types that are line charts in Grafana too, or heatmaps.
const SAME_TYPES: [&str; 4] = ["timeseries", "graph", "heatmap", "trend"];
/// Maximum nesting of rows.
const DEPTH_MAX: usize = 4;
/// Columns of Grafana's grid (of 24) from which on a panel fills the row here.
const WIDE_COLUMNS: u64 = 18;
/// Rows of Grafana's grid from which on such a panel is twice as high here: 12 is nearer to twice
/// the default of 8 than to 8.
const LARGE_ROWS: u64 = 12;
/// Columns per unit of `span`, of which rows before schema 16 had 12.
const SPAN_COLUMNS: u64 = 2;

/// Converted dashboard.
#[derive(Debug, Default)]
pub struct ConvertedDashboard {
    /// Title in Grafana.
    pub title: String,
    panels: Vec<ConvertedPanel>,
    /// Values of variables: `$job is "node"`.
    pub variables: Vec<String>,
    /// What is shown otherwise than in Grafana.
    pub changed: Vec<ImportNote>,
    /// What is not imported.
    pub left_out: Vec<ImportNote>,
}

#[derive(Debug)]
struct ConvertedPanel {
    title: String,
    expression: String,
    size: PanelSize,
    /// Template of the names of lines, such as `{{host}}`.
    legend: Option<String>,
}

/// Size of a panel; the page has no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PanelSize {
    Normal,
    Wide,
    Large,
}

impl PanelSize {
    /// The nearest size to that of a panel in Grafana.
    fn of_panel(panel: &Value) -> PanelSize {
        let span = panel["span"].as_u64().map(|span| span * SPAN_COLUMNS);
        let columns = panel["gridPos"]["w"].as_u64().or(span).unwrap_or(0);
        let rows = panel["gridPos"]["h"].as_u64().unwrap_or(0);
        match (columns >= WIDE_COLUMNS, rows >= LARGE_ROWS) {
            (false, _) => PanelSize::Normal,
            (true, false) => PanelSize::Wide,
            (true, true) => PanelSize::Large,
        }
    }

    /// Value of `size` in a dashboard; the default is absent.
    fn name(self) -> Option<&'static str> {
        match self {
            PanelSize::Normal => None,
            PanelSize::Wide => Some("wide"),
            PanelSize::Large => Some("large"),
        }
    }
}

/// A part of the dashboard and what applies to it.
#[derive(Debug, PartialEq)]
pub struct ImportNote {
    /// Which part, such as a panel with its title.
    pub part: String,
    /// What applies to it.
    pub reason: String,
}

impl ConvertedDashboard {
    /// Converts the JSON of a dashboard: as exported, as in Grafana's API, or version 2.
    pub fn parse(json: &Value) -> Result<ConvertedDashboard, String> {
        let dashboard = if json["dashboard"].is_object() { &json["dashboard"] } else { json };
        let has_rows = dashboard["rows"].is_array();
        if !dashboard["panels"].is_array() && !has_rows {
            return Err(match dashboard["spec"]["elements"].is_object()
                || dashboard["elements"].is_object()
            {
                true => "it is a dashboard of schema v2; export it in the classic JSON model",
                false => "it has no panels: is it a dashboard of Grafana?",
            }
            .to_owned());
        }
        let variables = GrafanaVariables::parse(dashboard);
        let title = dashboard["title"].as_str().filter(|title| !title.is_empty());
        let mut converted = ConvertedDashboard {
            title: title.unwrap_or("Imported dashboard").to_owned(),
            ..ConvertedDashboard::default()
        };
        // Before schema 16, panels were in rows.
        for row in list(&dashboard["rows"]) {
            converted.add_panels(&variables, list(&row["panels"]), 0);
        }
        converted.add_panels(&variables, list(&dashboard["panels"]), 0);
        converted.note_other_parts(dashboard);
        Ok(converted)
    }

    /// The dashboard as JSON.
    pub fn to_json(&self) -> Json {
        let panels = self.panels.iter().map(|panel| {
            let mut fields = vec![
                ("title", Text(panel.title.clone())),
                ("text", Text(panel.expression.clone())),
                ("language", Text("promql".to_owned())),
            ];
            fields.extend(panel.legend.clone().map(|legend| ("legend", Text(legend))));
            fields.extend(panel.size.name().map(|size| ("size", Text(size.to_owned()))));
            Object(fields)
        });
        Object(vec![
            ("schema", integer(2)),
            ("title", Text(self.title.clone())),
            ("panels", List(panels.collect())),
        ])
    }

    /// Number of panels, one for each query.
    pub fn panel_count(&self) -> u64 {
        self.panels.len() as u64
    }

    fn add_panels(&mut self, variables: &GrafanaVariables, panels: &[Value], depth: usize) {
        for panel in by_position(panels) {
            let title = panel["title"].as_str().unwrap_or("");
            let part = format!("panel {:?}", variables.expand_title(title));
            if depth == DEPTH_MAX {
                self.leave_out(part, "rows are nested too deeply");
                continue;
            }
            match panel["type"].as_str().unwrap_or("") {
                "row" => self.add_panels(variables, list(&panel["panels"]), depth + 1),
                _ => self.add_panel(variables, panel, &part),
            }
        }
    }

    fn add_panel(&mut self, variables: &GrafanaVariables, panel: &Value, part: &str) {
        let kind = panel["type"].as_str().unwrap_or("");
        let targets = list(&panel["targets"]);
        if targets.is_empty() {
            let reason = match panel["libraryPanel"].is_object() {
                true => "is in the library; export it \"for sharing externally\"".to_owned(),
                false => format!("type {kind:?} has no query"),
            };
            self.leave_out(part.to_owned(), &reason);
            return;
        }
        let before = self.panels.len();
        for target in targets {
            self.add_target(variables, panel, target, (part, targets.len() > 1));
        }
        if self.panels.len() == before {
            return;
        }
        let mut change = |reason: String| {
            self.changed.push(ImportNote { part: part.to_owned(), reason });
        };
        if !SAME_TYPES.contains(&kind) {
            change(format!("type {kind:?} is shown as lines"));
        }
        if kind == "heatmap" {
            change(
                "series of buckets are shown as lines; for a heatmap, query the histogram: \
                 sum(increase(NAME[5m])) without _bucket and le, unless it came as buckets by \
                 remote write"
                    .to_owned(),
            );
        }
        if let Some(variable) = panel["repeat"].as_str().filter(|name| !name.is_empty()) {
            change(format!("is not repeated for each value of ${variable}"));
        }
        if !list(&panel["transformations"]).is_empty() {
            change("transformations are not applied".to_owned());
        }
        if panel["alert"].is_object() {
            change("its alert is not imported".to_owned());
        }
    }

    fn add_target(
        &mut self,
        variables: &GrafanaVariables,
        panel: &Value,
        target: &Value,
        (part, is_one_of_many): (&str, bool),
    ) {
        let letter = target["refId"].as_str().unwrap_or("A");
        let part = if is_one_of_many { format!("{part}, query {letter}") } else { part.to_owned() };
        match convert_expression(variables, panel, target, &mut self.variables) {
            Err(reason) => self.leave_out(part, &reason),
            Ok(expression) => {
                let title = variables.expand_title(panel["title"].as_str().unwrap_or(""));
                let legend = target["legendFormat"].as_str().unwrap_or("");
                let is_fixed = !legend.is_empty() && !legend.contains("{{") && legend != "__auto";
                let title = match (is_one_of_many, is_fixed) {
                    (false, _) => title,
                    (true, true) => format!("{title}: {}", variables.expand_title(legend)),
                    (true, false) => format!("{title} ({letter})"),
                };
                let size = PanelSize::of_panel(panel);
                let title = title.trim().to_owned();
                let has_labels = legend.contains("{{");
                let legend = has_labels.then(|| variables.expand_title(legend));
                self.panels.push(ConvertedPanel { title, expression, size, legend });
            }
        }
    }

    /// Parts besides panels that have no counterpart.
    fn note_other_parts(&mut self, dashboard: &Value) {
        for variable in list(&dashboard["templating"]["list"]) {
            if variable["type"] == "adhoc" {
                let name = variable["name"].as_str().unwrap_or("");
                self.leave_out(format!("variable ${name}"), "ad hoc filters are not supported");
            }
        }
        for annotation in list(&dashboard["annotations"]["list"]) {
            // The annotations that Grafana itself stores.
            if annotation["builtIn"] != 1 {
                let name = annotation["name"].as_str().unwrap_or("");
                self.leave_out(format!("annotation {name:?}"), "annotations have no query");
            }
        }
    }

    fn leave_out(&mut self, part: String, reason: &str) {
        self.left_out.push(ImportNote { part, reason: reason.to_owned() });
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Panels as they are read on the screen: from the top, then from the left. The order of the list
/// is that in which they were added. Panels without a position stay behind the one before them.
fn by_position(panels: &[Value]) -> Vec<&Value> {
    let mut position = (0, 0);
    let mut placed: Vec<((u64, u64), &Value)> = Vec::new();
    for panel in panels {
        let at = |axis: &str| panel["gridPos"][axis].as_u64();
        if let (Some(x), Some(y)) = (at("x"), at("y")) {
            position = (y, x);
        }
        placed.push((position, panel));
    }
    placed.sort_by_key(|(position, _)| *position);
    placed.into_iter().map(|(_, panel)| panel).collect()
}

/// Expression of a target with the values of its variables, or why it cannot be shown.
fn convert_expression(
    variables: &GrafanaVariables,
    panel: &Value,
    target: &Value,
    used: &mut Vec<String>,
) -> Result<String, String> {
    let source = [&target["datasource"], &panel["datasource"]].into_iter().find_map(|source| {
        let kind = source["type"].as_str().filter(|kind| *kind != "datasource");
        kind.filter(|kind| !kind.starts_with('$'))
    });
    if let Some(kind) = source.filter(|kind| !kind.contains("prometheus")) {
        return Err(format!("data source {kind:?} is not Prometheus"));
    }
    let expression = target["expr"].as_str().map(str::trim).filter(|text| !text.is_empty());
    let expression = expression.ok_or("it has no PromQL expression")?;
    if target["hide"] == true {
        return Err("it is hidden in Grafana".to_owned());
    }
    let mut own = Vec::new();
    let expanded = variables.expand(expression, &mut own)?;
    let options = promql::Options::all();
    promql::parse(&expanded, &options)
        .map_err(|error| format!("cannot parse the expression {expanded:?}: {error}"))?;
    // A panel that every query rejects would show an error for ever.
    promql::check_range_query(&expanded, &options)
        .map_err(|error| format!("cannot show the expression {expanded:?}: {error}"))?;
    for note in own {
        if !used.contains(&note) {
            used.push(note);
        }
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn convert(dashboard: &Value) -> ConvertedDashboard {
        ConvertedDashboard::parse(dashboard).unwrap()
    }

    #[track_caller]
    fn check_panel(panel: Value, titles: &[&str], notes: &[&str]) {
        let converted = convert(&json!({ "title": "T", "panels": [panel] }));
        let found: Vec<&str> = converted.panels.iter().map(|panel| &panel.title[..]).collect();
        assert_eq!(found, titles);
        let all = converted.changed.iter().chain(&converted.left_out);
        let found: Vec<String> =
            all.map(|note| format!("{}: {}", note.part, note.reason)).collect();
        assert_eq!(found, notes);
    }

    #[test]
    fn each_query_of_a_panel_becomes_a_panel() {
        check_panel(
            json!({ "type": "timeseries", "title": "CPU", "targets": [
                { "refId": "A", "expr": "up", "legendFormat": "up" },
                { "refId": "B", "expr": "rate(a[5m])", "legendFormat": "{{host}}" },
                { "refId": "C", "expr": "b", "hide": true },
            ] }),
            &["CPU: up", "CPU (B)"],
            &["panel \"CPU\", query C: it is hidden in Grafana"],
        );
    }

    /// The lines of an imported panel were named `{handler="/"}` instead of `/`.
    #[test]
    fn names_of_lines_are_those_of_grafana() {
        let json = json!({ "title": "T", "panels": [{ "type": "timeseries", "title": "Rate",
            "targets": [{ "expr": "rate(a[5m])", "legendFormat": "{{handler}}" }] }] });
        let text = format!("{:#}", convert(&json).to_json());
        assert!(text.contains("\"language\":\"promql\",\"legend\":\"{{handler}}\""), "{text}");
    }

    #[test]
    fn what_cannot_be_shown_is_listed_with_the_reason() {
        check_panel(
            json!({ "type": "text", "title": "Help" }),
            &[],
            &["panel \"Help\": type \"text\" has no query"],
        );
        check_panel(
            json!({ "type": "stat", "title": "Up", "repeat": "host", "transformations": [{}],
                    "targets": [{ "expr": "up" }] }),
            &["Up"],
            &[
                "panel \"Up\": type \"stat\" is shown as lines",
                "panel \"Up\": is not repeated for each value of $host",
                "panel \"Up\": transformations are not applied",
            ],
        );
        check_panel(
            json!({ "type": "graph", "title": "L", "datasource": { "type": "loki" },
                    "targets": [{ "expr": "{a=\"b\"}" }] }),
            &[],
            &["panel \"L\": data source \"loki\" is not Prometheus"],
        );
        check_panel(
            json!({ "type": "graph", "title": "Q", "targets": [{ "expr": "sum(" }] }),
            &[],
            &["panel \"Q\": cannot parse the expression \"sum(\": unclosed left parenthesis"],
        );
    }

    /// The panel was imported without a remark, and showed an error for ever.
    #[test]
    fn expression_that_every_query_rejects_is_listed_with_the_suggested_one() {
        let expression = "avg(histogram_quantile(0.99, sum by (le, h) (rate(x_bucket[5m]))))";
        let panel =
            json!({ "type": "timeseries", "title": "Q", "targets": [{ "expr": expression }] });
        let converted = convert(&json!({ "title": "T", "panels": [panel] }));
        assert!(converted.panels.is_empty());
        let reason = &converted.left_out[0].reason;
        let remedy = "histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m])))";
        assert!(reason.contains("cannot average quantiles") && reason.contains(remedy), "{reason}");
    }

    #[test]
    fn panels_of_rows_are_imported() {
        let inner = json!({ "type": "timeseries", "title": "In", "gridPos": { "w": 24 },
                            "targets": [{ "expr": "a" }] });
        let old = convert(&json!({ "title": "Old", "rows": [{ "panels": [inner] }] }));
        let row = json!({ "type": "row", "title": "R", "panels": [inner] });
        let new = convert(&json!({ "dashboard": { "title": "New", "panels": [row] } }));
        for converted in [old, new] {
            assert_eq!(converted.left_out, []);
            assert_eq!(
                format!("{:#}", converted.to_json()),
                format!(
                    "{{\"schema\":2,\"title\":\"{}\",\"panels\":[{{\"title\":\"In\",\"text\":\"a\",\
                     \"language\":\"promql\",\"size\":\"wide\"}}]}}",
                    converted.title
                )
            );
        }
    }

    #[test]
    fn panels_are_in_the_order_of_the_screen_and_have_the_nearest_size() {
        let panel = |title: &str, [x, y, w, h]: [u64; 4]| {
            json!({ "type": "timeseries", "title": title, "targets": [{ "expr": "a" }],
                    "gridPos": { "x": x, "y": y, "w": w, "h": h } })
        };
        // Grafana stores them in the order in which they were added.
        let panels = [
            panel("third", [12, 8, 12, 16]),
            panel("large", [0, 16, 24, 14]),
            panel("second", [0, 8, 12, 8]),
            panel("first", [0, 0, 24, 8]),
        ];
        let converted = convert(&json!({ "title": "T", "panels": panels }));
        let shown: Vec<(&str, Option<&str>)> =
            converted.panels.iter().map(|panel| (&*panel.title, panel.size.name())).collect();
        let expected =
            [("first", Some("wide")), ("second", None), ("third", None), ("large", Some("large"))];
        assert_eq!(shown, expected);
        let old =
            json!({ "type": "graph", "title": "O", "span": 12, "targets": [{ "expr": "a" }] });
        let old = convert(&json!({ "title": "Old", "rows": [{ "panels": [old] }] }));
        assert_eq!(old.panels[0].size, PanelSize::Wide);
    }

    #[test]
    fn json_that_is_no_dashboard_is_refused_with_the_reason() {
        let error = |json: Value| ConvertedDashboard::parse(&json).unwrap_err();
        assert!(error(json!({ "a": 1 })).contains("no panels"));
        assert!(error(json!({ "spec": { "elements": {} } })).contains("schema v2"));
    }
}
