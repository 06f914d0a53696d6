//! Questions that Grafana asks for a dashboard.

use serde_json::Value;

use super::scrape_page::{END_SECONDS, START_SECONDS};

/// Step of range queries.
const STEP_SECONDS: i64 = 300;

/// A dashboard of Grafana, as JSON.
pub(super) struct GrafanaDashboard(Value);

/// A request, and what identifies it.
pub(super) struct DashboardQuestion {
    pub(super) title: String,
    pub(super) path: String,
    /// Regex of Grafana's `metrics()`, as a prefix: Grafana filters the names itself.
    pub(super) prefix: Option<String>,
}

impl GrafanaDashboard {
    pub(super) fn parse(text: &str) -> GrafanaDashboard {
        GrafanaDashboard(serde_json::from_str(text).unwrap())
    }

    pub(super) fn questions(&self) -> Vec<DashboardQuestion> {
        let mut all = Vec::new();
        for variable in list(&self.0["templating"]["list"]) {
            if variable["type"] == "query" {
                all.extend(variable_questions(&self.expand(text(&variable["query"]["query"]))));
            }
        }
        for target in list(&self.0["panels"]).iter().flat_map(|panel| list(&panel["targets"])) {
            all.extend(expression_questions(&self.expand(text(&target["expr"]))));
        }
        all.sort_by(|a, b| a.title.cmp(&b.title));
        all.dedup_by(|a, b| a.title == b.title);
        all
    }

    /// Replaces variables as Grafana does; "All" is any value that is present.
    fn expand(&self, expression: &str) -> String {
        let mut expanded = expression.to_owned();
        for variable in list(&self.0["templating"]["list"]) {
            let (name, value) = (text(&variable["name"]), &variable["current"]["value"]);
            let values: Vec<&str> = match value.as_array() {
                Some(values) => values.iter().map(text).collect(),
                None => vec![text(value)],
            };
            let value = match &values[..] {
                ["$__all"] => variable["allValue"].as_str().unwrap_or(".+").to_owned(),
                [one] => (*one).to_owned(),
                several => format!("({})", several.join("|")),
            };
            expanded = expanded.replace(&format!("${{{name}}}"), &value);
            expanded = expanded.replace(&format!("${name}"), &value);
        }
        assert!(!expanded.replace("\"$1\"", "").contains('$'), "unknown variable: {expanded}");
        expanded
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

fn expression_questions(expression: &str) -> [DashboardQuestion; 2] {
    let query = percent_encode(expression);
    let start = END_SECONDS - 1200;
    [
        question("query", expression, format!("query?query={query}&time={END_SECONDS}")),
        question(
            "query_range",
            expression,
            format!(
                "query_range?query={query}&start={start}&end={END_SECONDS}&step={STEP_SECONDS}"
            ),
        ),
    ]
}

/// Current versions of Grafana read the values of a label, older ones the series.
fn variable_questions(query: &str) -> Vec<DashboardQuestion> {
    let range = format!("start={START_SECONDS}&end={END_SECONDS}");
    if let Some(regex) = query.strip_prefix("metrics(") {
        let prefix = regex.strip_suffix(".*)").expect("a prefix");
        let names = question("values", query, format!("label/__name__/values?{range}"));
        return vec![DashboardQuestion { prefix: Some(prefix.to_owned()), ..names }];
    }
    let arguments = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
    let (selector, label) = arguments.and_then(|text| text.rsplit_once(", ")).expect("a query");
    let matched = format!("match[]={}&{range}", percent_encode(selector));
    vec![
        question("values", query, format!("label/{label}/values?{matched}")),
        question("series", selector, format!("series?{matched}")),
        question("labels", selector, format!("labels?{matched}")),
    ]
}

fn question(endpoint: &str, query: &str, path: String) -> DashboardQuestion {
    DashboardQuestion {
        title: format!("{endpoint} {query}"),
        path: format!("/api/v1/{path}"),
        prefix: None,
    }
}

pub(super) fn percent_encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
