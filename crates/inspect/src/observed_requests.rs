//! Requests in flight that a server observes on the network, from its status. Schema:
//! `docs/wire.md`.

use std::collections::BTreeMap;

use render::json::Json::{self, List, Null, Object, Text};
use render::json::integer;
use render::table::format_table;
use render::text::escape_control;
use render::time::{duration_text, format_ns};
use render::value_formatter::count;
use serde_json::Value;

use crate::error::{InspectError, Result};

const SCHEMA: u64 = 1;
/// Characters of a statement in the table.
const STATEMENT_CHARS_MAX: usize = 100;
/// Names of `--by`.
const TAGS: [&str; 5] = ["service", "protocol", "verb", "statement", "wait"];

/// Requests in flight as of the last interval of the capture.
pub struct ObservedRequests {
    /// End of the interval; `None` before the first one.
    as_of_ns: Option<i64>,
    /// Time since then, by the clock of the server.
    elapsed_ns: i64,
    /// Requests of all services.
    requests: u64,
    /// Oldest first.
    statements: Vec<StatementInFlight>,
    /// Requests left out because their statement has none that is old enough.
    younger: u64,
}

/// Requests of a statement.
struct StatementInFlight {
    /// In the order of [`TAGS`].
    tags: [String; TAGS.len()],
    requests: u64,
    oldest_age_ns: u64,
}

impl ObservedRequests {
    /// Reads the document of `/v1/status`.
    pub fn parse(status: &Value) -> Result<ObservedRequests> {
        let wire = &status["wire"];
        if !wire.is_object() {
            return Err(InspectError::NotObserved(
                "the server does not observe the network; add [wire] to its settings \
                 (docs/wire.md)"
                    .to_owned(),
            ));
        }
        if let (Some(false), Some(error)) = (wire["capturing"].as_bool(), wire["error"].as_str()) {
            let what = format!("the server does not observe the network: {error}");
            return Err(InspectError::NotObserved(what));
        }
        let as_of_ns = wire["as_of_ns"].as_i64();
        let now_ns = status["now_ns"].as_i64();
        let services = list(&wire["services"]).iter();
        let statement = |found: &Value| {
            let text = |name: &str| match &found[name] {
                Value::Bool(value) => value.to_string(),
                value => value.as_str().unwrap_or("").to_owned(),
            };
            let oldest = found["oldest_ns"].as_i64().unwrap_or(i64::MAX);
            StatementInFlight {
                tags: TAGS.map(text),
                requests: found["requests"].as_u64().unwrap_or(0),
                oldest_age_ns: as_of_ns.map_or(0, |at| at.saturating_sub(oldest).max(0) as u64),
            }
        };
        let elapsed = as_of_ns.zip(now_ns).map(|(at, now)| now.saturating_sub(at).max(0));
        Ok(ObservedRequests {
            as_of_ns,
            elapsed_ns: elapsed.unwrap_or(0),
            requests: services.filter_map(|service| service["in_flight"].as_u64()).sum(),
            statements: list(&wire["in_flight"]).iter().map(statement).collect(),
            younger: 0,
        })
    }

    /// Leaves out statements without requests of at least this age.
    pub fn retain_older_than(&mut self, least_ns: u64) {
        let mut younger = 0;
        self.statements.retain(|statement| {
            let is_old = statement.oldest_age_ns >= least_ns;
            younger += if is_old { 0 } else { statement.requests };
            is_old
        });
        self.younger += younger;
    }

    /// The requests, or their numbers by the values of a tag.
    pub fn to_text(&self, by: Option<&str>) -> Result<String> {
        let table = match by {
            Some(by) => self.group_table(by)?,
            None => self.statement_table(),
        };
        let when = match self.as_of_ns {
            None => "before the end of the first interval".to_owned(),
            Some(_) => {
                let elapsed = self.elapsed_ns - self.elapsed_ns.rem_euclid(1_000_000_000);
                format!("as of the last interval, {} ago", duration_text(elapsed))
            }
        };
        let mut text = format!("{} in flight on the network, {when}\n", count(self.requests));
        if !self.statements.is_empty() {
            text = format!("{text}\n{table}");
        }
        let listed: u64 = self.statements.iter().map(|statement| statement.requests).sum();
        let more = self.requests.saturating_sub(listed + self.younger);
        for (requests, what) in [
            (more, "more are of statements that the server does not list: it has the 100 oldest"),
            (self.younger, "are of statements whose requests are all younger"),
        ] {
            if requests > 0 {
                text.push_str(&format!("  {} {what}\n", count(requests)));
            }
        }
        Ok(text)
    }

    fn statement_table(&self) -> String {
        let mut rows =
            vec![["oldest", "requests", "service", "protocol", "statement"].map(str::to_owned)];
        for statement in &self.statements {
            let [service, protocol, verb, text, wait] = &statement.tags;
            let mut name = format!("{verb} {text}").trim().to_owned();
            if name.chars().count() > STATEMENT_CHARS_MAX {
                name = name.chars().take(STATEMENT_CHARS_MAX - 1).chain(['…']).collect();
            }
            if wait == "true" {
                name.push_str(" (waits by design)");
            }
            rows.push([
                format_ns(statement.oldest_age_ns as f64),
                count(statement.requests),
                escape_control(service),
                protocol.clone(),
                escape_control(&name),
            ]);
        }
        format_table(&rows, [true, true, false, false, false])
    }

    /// Requests and age of the oldest one by value of a tag, those with the most requests first.
    fn groups(&self, by: &str) -> Result<Vec<(&str, u64, u64)>> {
        let Some(tag) = TAGS.iter().position(|tag| *tag == by) else {
            let what = format!("--by {by}: expected {} with --wire", TAGS.join(", "));
            return Err(InspectError::NotObserved(what));
        };
        let mut groups: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for statement in &self.statements {
            let (requests, oldest) = groups.entry(&statement.tags[tag]).or_default();
            *requests += statement.requests;
            *oldest = statement.oldest_age_ns.max(*oldest);
        }
        let mut groups: Vec<_> =
            groups.into_iter().map(|(value, (n, oldest))| (value, n, oldest)).collect();
        model::sort::by_key(&mut groups, |(_, requests, _)| std::cmp::Reverse(*requests));
        Ok(groups)
    }

    fn group_table(&self, by: &str) -> Result<String> {
        let mut rows = vec![[by, "requests", "oldest"].map(str::to_owned)];
        for (value, requests, oldest) in self.groups(by)? {
            let oldest = format_ns(oldest as f64);
            rows.push([escape_control(value), count(requests), oldest]);
        }
        Ok(format_table(&rows, [false, true, true]))
    }

    /// The same as JSON.
    pub fn to_json(&self, by: Option<&str>) -> Result<Json> {
        let mut fields = vec![
            ("schema", integer(SCHEMA)),
            ("as_of_ns", self.as_of_ns.map_or(Null, |ns| Json::Integer(ns.into()))),
            ("count", integer(self.requests)),
            ("younger_count", integer(self.younger)),
        ];
        if let Some(by) = by {
            let groups = self.groups(by)?.into_iter().map(|(value, requests, oldest)| {
                Object(vec![
                    ("value", Text(value.to_owned())),
                    ("count", integer(requests)),
                    ("oldest_age_ns", integer(oldest)),
                ])
            });
            fields.extend([("by", Text(by.to_owned())), ("groups", List(groups.collect()))]);
            return Ok(Object(fields));
        }
        let statements = self.statements.iter().map(|statement| {
            let [service, protocol, verb, text, wait] = &statement.tags;
            Object(vec![
                ("service", Text(service.clone())),
                ("protocol", Text(protocol.clone())),
                ("verb", Text(verb.clone())),
                ("statement", Text(text.clone())),
                ("wait", Json::Bool(wait == "true")),
                ("requests", integer(statement.requests)),
                ("oldest_age_ns", integer(statement.oldest_age_ns)),
            ])
        });
        fields.push(("statements", List(statements.collect())));
        Ok(Object(fields))
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requests() -> ObservedRequests {
        let statement = |service: &str, statement: &str, wait: bool, requests: u64, oldest: u64| {
            json!({
                "service": service, "protocol": "postgres", "verb": "Query",
                "statement": statement, "wait": wait, "requests": requests, "oldest_ns": oldest,
            })
        };
        let status = json!({
            "now_ns": 103_500_000_000_u64,
            "wire": {
                "capturing": true,
                "error": null,
                "as_of_ns": 100_000_000_000_u64,
                "services": [{"in_flight": 4}, {"in_flight": 5}],
                "in_flight": [
                    statement("shop", "select $1", false, 1, 40_000_000_000),
                    statement("queue", "select \u{1b}", true, 5, 98_000_000_000),
                    statement("shop", "begin", false, 2, 99_500_000_000),
                ],
            },
        });
        ObservedRequests::parse(&status).unwrap()
    }

    #[test]
    fn statements_are_listed_with_the_age_of_their_oldest_request() {
        let text = requests().to_text(None).unwrap();
        let expected = "\
9 in flight on the network, as of the last interval, 3 s ago

    oldest  requests  service  protocol  statement
   60.00 s         1  shop     postgres  Query select $1
   2.000 s         5  queue    postgres  Query select \\u{1b} (waits by design)
  500.0 ms         2  shop     postgres  Query begin
  1 more are of statements that the server does not list: it has the 100 oldest
";
        assert_eq!(text, expected);
    }

    #[test]
    fn requests_are_counted_by_a_tag() {
        let mut requests = requests();
        requests.retain_older_than(1_000_000_000);
        assert_eq!(
            requests.groups("service").unwrap(),
            [("queue", 5, 2_000_000_000), ("shop", 1, 60_000_000_000)]
        );
        let text = requests.to_text(Some("wait")).unwrap();
        assert!(text.contains("2 are of statements whose requests are all younger"), "{text}");
        let json = requests.to_json(Some("wait")).unwrap().to_string();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["younger_count"], &json["groups"][0]["count"]), (&json!(2), &json!(5)));
        let error = requests.to_text(Some("metric")).err().unwrap().to_string();
        assert_eq!(
            error,
            "--by metric: expected service, protocol, verb, statement, wait with --wire"
        );
    }

    #[test]
    fn a_server_that_captures_nothing_says_why() {
        let error = |status: Value| ObservedRequests::parse(&status).err().unwrap().to_string();
        assert!(error(json!({"wire": null})).contains("add [wire] to its settings"));
        let failed = json!({"wire": {"capturing": false, "error": "cannot capture packets: no"}});
        let expected = "the server does not observe the network: cannot capture packets: no";
        assert_eq!(error(failed), expected);
    }
}
