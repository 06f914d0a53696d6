//! Variables of a Grafana dashboard and their values in an expression.
//!
//! A dashboard of topdeck has no variables: each has the value with which the dashboard was saved.
//! "All" is its `allValue`, else any value that is present (`.+`), which is right in a regex only.

use serde_json::Value;

/// Duration for `$__rate_interval`: Grafana's is four scrape intervals or more.
const RATE_INTERVAL: &str = "5m";
/// Duration for `$__interval`, which Grafana derives from the width of the chart.
const INTERVAL: &str = "1m";

/// Variables of a dashboard.
#[derive(Debug, Default)]
pub(crate) struct GrafanaVariables {
    all: Vec<Variable>,
}

#[derive(Debug)]
struct Variable {
    name: String,
    value: VariableValue,
    /// What a user saw as its value.
    label: String,
}

#[derive(Debug)]
enum VariableValue {
    /// One value, as it stands between quotes.
    Text(String),
    /// Several values or all, as a regex between quotes.
    Regex(String),
    /// The file has none; the reason.
    Missing(&'static str),
}

impl GrafanaVariables {
    /// Variables of a dashboard.
    pub(crate) fn parse(dashboard: &Value) -> GrafanaVariables {
        let list = dashboard["templating"]["list"].as_array().map_or(&[][..], Vec::as_slice);
        let mut all: Vec<Variable> = list.iter().filter_map(Variable::parse).collect();
        let range = range_text(dashboard);
        for (name, value) in
            [("__rate_interval", RATE_INTERVAL), ("__interval", INTERVAL), ("__range", range)]
        {
            all.push(Variable {
                name: name.to_owned(),
                value: VariableValue::Text(value.to_owned()),
                label: value.to_owned(),
            });
        }
        GrafanaVariables { all }
    }

    /// Replaces the variables of an expression; adds those that were used to `used`. An error is
    /// the reason why it cannot be imported.
    pub(crate) fn expand(&self, text: &str, used: &mut Vec<String>) -> Result<String, String> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(['$', '[']) {
            let (before, found) = rest.split_at(at);
            expanded.push_str(before);
            let Some((reference, length)) = Reference::parse(found) else {
                let (first, after) = found.split_at(1);
                expanded.push_str(first);
                rest = after;
                continue;
            };
            let variable = self.all.iter().find(|variable| variable.name == reference.name);
            let name = reference.name;
            let variable = variable.ok_or_else(|| format!("unknown variable ${name}"))?;
            expanded.push_str(&variable.value_at(&expanded, &reference)?);
            let note = format!("${name} is {:?}", variable.label);
            if !used.contains(&note) {
                used.push(note);
            }
            rest = &found[length..];
        }
        Ok(expanded + rest)
    }

    /// A title with the values that a user saw.
    pub(crate) fn expand_title(&self, title: &str) -> String {
        let mut expanded = title.to_owned();
        for Variable { name, label, .. } in &self.all {
            let spellings = [format!("${{{name}}}"), format!("[[{name}]]"), format!("${name}")];
            for spelling in spellings {
                expanded = expanded.replace(&spelling, label);
            }
        }
        expanded
    }
}

impl Variable {
    /// `None` if no expression uses it.
    fn parse(json: &Value) -> Option<Variable> {
        let kind = json["type"].as_str().unwrap_or("query");
        if matches!(kind, "datasource" | "adhoc") {
            return None;
        }
        let current = &json["current"]["value"];
        let values: Vec<&str> = match (current.as_array(), current.as_str()) {
            (Some(values), _) => values.iter().filter_map(Value::as_str).collect(),
            (None, Some(value)) => vec![value],
            (None, None) => Vec::new(),
        };
        let query = json["query"].as_str().unwrap_or("");
        let all = || json["allValue"].as_str().filter(|text| !text.is_empty()).unwrap_or(".+");
        let value = match &values[..] {
            ["$__all"] => VariableValue::Regex(all().to_owned()),
            [value] if value.starts_with("$__auto") => VariableValue::Text(INTERVAL.to_owned()),
            [value] => VariableValue::Text(escape_quotes(value)),
            [] if matches!(kind, "constant" | "textbox") => VariableValue::Text(query.to_owned()),
            [] if matches!(kind, "custom" | "interval") && !query.is_empty() => {
                let first = query.split(',').next().unwrap_or("").trim();
                let value = first.rsplit_once(" : ").map_or(first, |(_, value)| value);
                VariableValue::Text(value.to_owned())
            }
            [] if json["includeAll"] == true => VariableValue::Regex(all().to_owned()),
            [] => VariableValue::Missing("the file has no value of it; save it with one"),
            several => {
                let escaped: Vec<String> = several.iter().map(|text| escape(text)).collect();
                VariableValue::Regex(escape_quotes(&format!("({})", escaped.join("|"))))
            }
        };
        let name = json["name"].as_str()?.to_owned();
        let label = match (&value, &values[..]) {
            (_, ["$__all"]) => "All".to_owned(),
            (VariableValue::Text(text) | VariableValue::Regex(text), []) => text.clone(),
            (_, values) => values.join(", "),
        };
        Some(Variable { name, value, label })
    }

    /// Value after `before`, where it depends on the operator whether it is a regex.
    fn value_at(&self, before: &str, reference: &Reference<'_>) -> Result<String, String> {
        let name = reference.name;
        let is_regex = is_in_regex(before);
        let value = match &self.value {
            VariableValue::Missing(reason) => return Err(format!("variable ${name}: {reason}")),
            VariableValue::Text(text) => text,
            VariableValue::Regex(regex) if is_regex == Some(false) => {
                return Err(format!(
                    "variable ${name} is {:?}, but the query compares it with =: {regex}",
                    self.label
                ));
            }
            VariableValue::Regex(regex) => regex,
        };
        match reference.format {
            "" | "raw" | "regex" | "pipe" => Ok(value.clone()),
            format => Err(format!("variable ${name} has the format {format:?}")),
        }
    }
}

/// Whether the text ends inside the value of a regex matcher; `None` outside a value.
fn is_in_regex(before: &str) -> Option<bool> {
    let quote = before.rfind('"')?;
    let operator = before[..quote].trim_end();
    let is_open = before.matches('"').count() % 2 == 1;
    let is_matcher = is_open && operator.ends_with(['=', '~']);
    is_matcher.then(|| operator.ends_with('~'))
}

/// A backslash in a quoted value is doubled.
fn escape_quotes(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Escapes characters with a meaning in a regex.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if "\\.+*?()|[]{}^$".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Time range of the dashboard, if it ends now.
fn range_text(dashboard: &Value) -> &str {
    let from = dashboard["time"]["from"].as_str().unwrap_or("");
    from.strip_prefix("now-").filter(|text| !text.contains('/')).unwrap_or("1h")
}

/// Reference to a variable: `$name`, `${name}`, `${name:format}`, `[[name]]`.
struct Reference<'a> {
    name: &'a str,
    format: &'a str,
}

impl Reference<'_> {
    /// The reference at the start of a text, and its length. `$1` is a group of `label_replace`.
    fn parse(text: &str) -> Option<(Reference<'_>, usize)> {
        let enclosed = |open: &str, close: &str| {
            let inner = text.strip_prefix(open)?;
            let (inner, _) = inner.split_once(close)?;
            let (name, format) = inner.split_once(':').unwrap_or((inner, ""));
            let is_name = !name.is_empty() && name.chars().all(is_name_char);
            let length = open.len() + inner.len() + close.len();
            is_name.then_some((Reference { name, format }, length))
        };
        if let Some(found) = enclosed("${", "}").or_else(|| enclosed("[[", "]]")) {
            return Some(found);
        }
        let rest = text.strip_prefix('$')?;
        let end = rest.find(|c| !is_name_char(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        is_name.then_some((Reference { name, format: "" }, 1 + end))
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variables() -> GrafanaVariables {
        GrafanaVariables::parse(&json!({
            "time": { "from": "now-6h", "to": "now" },
            "templating": { "list": [
                { "name": "job", "type": "query", "current": { "value": "node" } },
                { "name": "host", "type": "query", "includeAll": true,
                  "current": { "value": ["$__all"] } },
                { "name": "disk", "type": "query",
                  "current": { "value": ["sda", "nvme0.1"] } },
                { "name": "box", "type": "textbox", "query": "vd.+", "current": {} },
                { "name": "step", "type": "custom", "query": "short : 1m, long : 1h" },
                { "name": "lost", "type": "query", "current": {} },
                { "name": "source", "type": "datasource", "current": { "value": "prom" } },
            ] },
        }))
    }

    #[track_caller]
    fn check(expression: &str, expected: Result<&str, &str>) {
        let found = variables().expand(expression, &mut Vec::new());
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{expression}");
    }

    #[test]
    fn variables_have_the_values_with_which_the_dashboard_was_saved() {
        check("a{job=\"$job\"}", Ok("a{job=\"node\"}"));
        check("a{job=\"${job}-x\"}[${step}]", Ok("a{job=\"node-x\"}[1m]"));
        check("a{job=\"[[job]]\"}[5m]", Ok("a{job=\"node\"}[5m]"));
        check("a{host=~\"$host\"}", Ok("a{host=~\".+\"}"));
        check("a{disk=~\"$disk\"}", Ok("a{disk=~\"(sda|nvme0\\\\.1)\"}"));
        check("a{disk!~\"${disk:regex}\"}", Ok("a{disk!~\"(sda|nvme0\\\\.1)\"}"));
        check("a{disk=~\"$box\"}", Ok("a{disk=~\"vd.+\"}"));
        check("rate(a[$__rate_interval])", Ok("rate(a[5m])"));
        check("rate(a[$__range]) > $__interval", Ok("rate(a[6h]) > 1m"));
        check("label_replace(a, \"b\", \"$1\", \"c\", \"(.*)\")", {
            Ok("label_replace(a, \"b\", \"$1\", \"c\", \"(.*)\")")
        });
        check("sum without(b) (a[5m:1m])", Ok("sum without(b) (a[5m:1m])"));
    }

    #[test]
    fn query_whose_variable_has_no_usable_value_is_not_imported() {
        check("a{b=\"$c\"}", Err("unknown variable $c"));
        check("a{b=\"$lost\"}", {
            Err("variable $lost: the file has no value of it; save it with one")
        });
        check("a{b=\"$host\"}", {
            Err("variable $host is \"All\", but the query compares it with =: .+")
        });
        check("a{b=~\"${disk:csv}\"}", Err("variable $disk has the format \"csv\""));
    }

    #[test]
    fn used_variables_are_reported_once() {
        let mut used = Vec::new();
        let text = "a{job=\"$job\",host=~\"$host\"} / b{job=\"$job\"}";
        variables().expand(text, &mut used).unwrap();
        assert_eq!(used, ["$job is \"node\"", "$host is \"All\""]);
        assert_eq!(variables().expand_title("$job on $host"), "node on All");
    }
}
