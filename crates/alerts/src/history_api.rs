//! `/v1/alerts/history`: changes of state of alerts, the newest first.

use role::json::Json::{self, Integer, List, Null, Object, Text};
use role::json::{integer, number};
use role::time_expr::{TIME_SYNTAX, parse_time_parameter};
use role::{Parameter, RouteError, RouteFormat, RouteQuery, RouteSpec};

use crate::alert_filter::{AlertFilter, MATCHER, SEVERITY, TEXT};
use crate::alert_selection::fingerprint;
use crate::history_entry::{HistoryEntry, HistoryEvent};
use crate::prometheus_api::map_json;
use crate::published_alerts::PublishedAlerts;

/// Changes in a response, if the request sets no limit, and at most.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// Changes of state.
pub(crate) static HISTORY: RouteSpec = RouteSpec {
    name: "alert_history",
    path: "/v1/alerts/history",
    about: "Changes of state of alerts, the newest first: when, how long, who acknowledged.",
    parameters: &[
        TEXT,
        MATCHER,
        Parameter::text(
            "event",
            "pending, ended (pending, and did not fire), firing, severity, resolved, unknown (no \
             data), known (data again), acknowledged or unacknowledged; default: all",
        )
        .many(),
        SEVERITY,
        Parameter::text("from", "earliest time; default: no limit"),
        Parameter::text("to", "latest time; default: no limit"),
        Parameter::integer("limit", "number of changes, at most 1000; default: 100"),
        Parameter::integer(
            "before",
            "changes with a number below this one; `next` of a response for the next page; \
             default: all",
        ),
    ],
    format: RouteFormat::Json,
};

/// What a request asks for.
#[derive(Debug)]
struct HistorySearch {
    filter: AlertFilter,
    events: Vec<HistoryEvent>,
    from_ns: i64,
    to_ns: i64,
    before: u64,
    limit: usize,
}

impl HistorySearch {
    fn read(query: &RouteQuery, now_ns: i64) -> Result<HistorySearch, RouteError> {
        let invalid = |name: &str, found: &str, expected: &str| RouteError::Parameter {
            name: name.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
        };
        let event = |name: &str| {
            let names = HistoryEvent::ALL.map(HistoryEvent::name).join(", ");
            HistoryEvent::parse(name).ok_or_else(|| invalid("event", name, &names))
        };
        let time = |name: &str, default: i64| match query.get(name) {
            None => Ok(default),
            Some(text) => {
                parse_time_parameter(text, now_ns).ok_or_else(|| invalid(name, text, TIME_SYNTAX))
            }
        };
        let events = query.all("event").filter(|name| !name.is_empty());
        Ok(HistorySearch {
            filter: AlertFilter::read(query)?,
            events: events.map(event).collect::<Result<_, _>>()?,
            from_ns: time("from", i64::MIN)?,
            to_ns: time("to", i64::MAX)?,
            before: query.integer("before", u64::MAX, u64::MAX)?,
            limit: query.integer("limit", LIMIT, LIMIT_MAX)?.max(1),
        })
    }

    fn accepts(&self, entry: &HistoryEntry) -> bool {
        entry.number < self.before
            && (self.from_ns..=self.to_ns).contains(&entry.time_ns)
            && (self.events.is_empty() || self.events.contains(&entry.event))
            && accepts(&self.filter, entry)
    }
}

/// Whether a search selects a change.
pub(crate) fn accepts(filter: &AlertFilter, entry: &HistoryEntry) -> bool {
    filter.accepts(&entry.labels, entry.severity, &[&entry.name, &entry.by, &entry.note])
}

/// Response of `/v1/alerts/history`.
pub(crate) fn history(published: &PublishedAlerts, query: &RouteQuery) -> Result<Json, RouteError> {
    let search = HistorySearch::read(query, published.now_ns())?;
    let all = published.history().read().map_err(|cause| {
        RouteError::Unavailable(format!("cannot read the history of alerts: {cause}"))
    })?;
    let mut found = all.iter().rev().filter(|entry| search.accepts(entry)).peekable();
    let mut page = Vec::new();
    let mut last = 0;
    while page.len() < search.limit
        && let Some(entry) = found.next()
    {
        last = entry.number;
        page.push(entry_json(entry));
    }
    let next = found.peek().map_or(Null, |_| integer(last));
    Ok(Object(vec![("schema", integer(1)), ("history", List(page)), ("next", next)]))
}

/// A change as JSON.
pub(crate) fn entry_json(entry: &HistoryEntry) -> Json {
    let time = |ns: i64| Integer(ns.into());
    let text = |text: &str| Text(text.to_owned());
    let duration = match entry.event {
        HistoryEvent::Resolved | HistoryEvent::Ended => {
            time(entry.time_ns.saturating_sub(entry.since_ns))
        }
        _ => Null,
    };
    Object(vec![
        ("number", integer(entry.number)),
        ("time_ns", time(entry.time_ns)),
        ("event", text(entry.event.name())),
        ("name", text(&entry.name)),
        ("labels", map_json(&entry.labels)),
        ("fingerprint", Text(fingerprint(&entry.labels))),
        ("source", text(if entry.is_received { "received" } else { "rule" })),
        ("severity", integer(entry.severity.into())),
        ("value", entry.value.map_or(Null, number)),
        ("since_ns", time(entry.since_ns)),
        ("duration_ns", duration),
        ("by", text(&entry.by)),
        ("note", text(&entry.note)),
        ("until_ns", entry.until_ns.map_or(Null, time)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history_entry::tests::entry;

    #[track_caller]
    fn check(pairs: &[(&str, &str)], expected: bool) {
        let now_ns = 1_700_000_100_000_000_000;
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let search = HistorySearch::read(&RouteQuery::new(owned.collect()), now_ns);
        let search = search.expect("valid parameters");
        assert_eq!(search.accepts(&entry(HistoryEvent::Firing)), expected, "{pairs:?}");
    }

    #[test]
    fn a_search_has_events_times_and_a_number() {
        check(&[], true);
        check(&[("event", "firing")], true);
        check(&[("event", "resolved"), ("event", "pending")], false);
        check(&[("from", "-1min")], true);
        check(&[("from", "-30s")], false);
        check(&[("to", "-40s")], true);
        check(&[("to", "-1min")], false);
        check(&[("before", "18")], true);
        check(&[("before", "17")], false);
        check(&[("text", "diskfull"), ("severity", "2"), ("matcher", "host=\"db 1\"")], true);
    }

    #[test]
    fn invalid_parameters_are_reported() {
        for pair in [("event", "red"), ("from", "soon"), ("limit", "1001"), ("before", "-1")] {
            let query = RouteQuery::new(vec![(pair.0.to_owned(), pair.1.to_owned())]);
            assert!(HistorySearch::read(&query, 0).is_err(), "{pair:?}");
        }
    }

    #[test]
    fn a_resolved_alert_has_a_duration() {
        let json = entry_json(&entry(HistoryEvent::Resolved)).to_string();
        assert!(json.contains("\"duration_ns\": 60000000000"), "{json}");
        let json = entry_json(&entry(HistoryEvent::Firing)).to_string();
        assert!(json.contains("\"duration_ns\": null"), "{json}");
    }
}
