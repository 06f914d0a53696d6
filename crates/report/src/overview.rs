//! Overview as text: a table with a row per metric or service.

use hist::Bracket;
use query::overview::OverviewTimes;
use serde_json::Value;

use render::number_formatter::NumberFormatter;
use render::table::TextTable;
use render::terminal::{Terminal, TextStyle};
use render::text::{escape_control, plural};
use render::time::{duration_text, precise_time_text};
use render::value_formatter;

use crate::overview_alarms::OverviewAlarms;
use crate::overview_headline::{count_bracket, overview_headline};

/// Slots of the drawing of the last hour.
const SLOTS: usize = 20;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII_BLOCKS: [char; 9] = [' ', '_', '.', ',', '-', '=', '+', '*', '#'];
/// A slot without data.
const NO_DATA: char = '·';
const ASCII_NO_DATA: char = ':';

const TODAY: &str = "today";

/// Table of the JSON document of an overview.
pub fn overview_text(document: &Value, alarms: &OverviewAlarms, terminal: &Terminal) -> String {
    let now = document["now_ns"].as_i64().unwrap_or(0);
    let rows = document["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let mut text = terminal.paint(TextStyle::Heading, &precise_time_text(now));
    let (total, day) = (document["total"].as_u64().unwrap_or(0), day_name(document));
    text.push_str(&format!(
        ": {} with distributions; now is the last 5 min, {} since {}\n",
        plural(total, "metric or service", "metrics and services"),
        if day == TODAY { TODAY } else { "yesterday and today" },
        precise_time_text(document["today_start_ns"].as_i64().unwrap_or(0))
    ));
    for line in alarms.summary() {
        text.push_str(&format!("  {line}\n"));
    }
    if rows.is_empty() {
        text.push_str(
            "  no distributions; --group host and --group topdeck show those of topdeck\n",
        );
        return text;
    }
    for line in overview_headline(document) {
        text.push_str(&format!("  {line}\n"));
    }
    let columns = [
        ("metric", false),
        ("state", false),
        ("above now", true),
        (day, true),
        ("threshold", true),
        ("", false),
        ("unusual", true),
        ("rate", true),
        ("p50", true),
        ("p99", true),
        ("max", true),
        ("age", true),
        ("last hour", false),
    ];
    let mut table = TextTable::new(&columns);
    for row in sorted_rows(rows) {
        let alarms = alarms.of_row(row);
        table.row(cells(row, now, !alarms.is_empty(), terminal));
        alarms.into_iter().for_each(|text| table.remark(text));
        let remarks =
            [users_text(row, day), day_text(row, day), hour_text(row), wait_text(row, document)];
        remarks.into_iter().flatten().for_each(|text| table.remark(text));
        let gaps = row["gaps_total"].as_u64().unwrap_or(0);
        if gaps > 0 {
            let reason = row["gaps"][0]["reason"].as_str().unwrap_or("");
            let gaps = plural(gaps, "gap", "gaps");
            table.remark(format!("{gaps} in the data: {}", escape_control(reason)));
        }
    }
    text.push_str(&table.text(terminal));
    text.push_str(&notes(document, rows, total));
    let lacks_data =
        |row: &Value| row["heatmap"]["no_data"].as_array().is_some_and(|of| !of.is_empty());
    if rows.iter().any(lacks_data) {
        let dot = if terminal.ascii { ASCII_NO_DATA } else { NO_DATA };
        text.push_str(&format!("  last hour: {dot} has no data, ? has a known gap\n"));
    }
    text
}

/// What the day of an overview is called, in UTC as all times of a text: before six o'clock it
/// began yesterday.
pub(crate) fn day_name(document: &Value) -> &'static str {
    let time = |name: &str| document[name].as_i64().unwrap_or(0);
    let times = OverviewTimes { now: time("now_ns"), today_start: time("today_start_ns") };
    if times.has_yesterday() { "since yesterday" } else { TODAY }
}

/// Rows in their order, but what is not known now after what is, unless it was affected today; then
/// what has no values now and never had a threshold, as the metrics of a job that has ended; and
/// last what had no values today. The page has the same order.
fn sorted_rows(rows: &[Value]) -> Vec<&Value> {
    let rank = |row: &Value| {
        // Of a row that is not read yet nobody knows.
        let is_read = !row["unusual"].is_null();
        let has_none = row["count_today"] == 0 && row["heatmap"].is_null() && is_read;
        let was_affected = row["state_today"] == "affected" || !row["worst_hour"].is_null();
        let is_unknown = row["state"] == "unknown" && !was_affected;
        let is_idle = is_read && row["threshold"].is_null() && row["count_now"] == 0;
        match (has_none, is_unknown) {
            (true, _) => 3,
            (false, true) if is_idle => 2,
            (false, true) => 1,
            (false, false) => 0,
        }
    };
    let mut sorted: Vec<&Value> = rows.iter().collect();
    model::sort::by_key(&mut sorted, |row| rank(row));
    sorted
}

fn cells(row: &Value, now: i64, is_alarmed: bool, terminal: &Terminal) -> Vec<String> {
    let numbers = NumberFormatter::new(row["unit"].as_str());
    let value = |name: &str| bracket(&row[name]).map_or("–".to_owned(), |of| numbers.value(of));
    let count = |name: &str| match count_bracket(&row[name]) {
        Some(of) => value_formatter::count_estimate(of),
        None => "unknown".to_owned(),
    };
    let labels = row["labels"].as_object().into_iter().flatten();
    let service = labels.map(|(_, value)| value.as_str().unwrap_or("").to_owned());
    let name = row["name"].as_str().unwrap_or("").to_owned();
    let name = service.chain([name]).collect::<Vec<_>>().join(" ");
    let threshold = row["threshold"]["value"].as_f64();
    let origin = match row["threshold"]["origin"].as_str() {
        Some("p99") => learned_text("p99", &row["threshold"]),
        Some("hourly_p99") => learned_text("hourly p99", &row["threshold"]),
        Some("slo") => {
            let name = row["threshold"]["slo"].as_str().unwrap_or("");
            format!("SLO {}", escape_control(name))
        }
        Some("slo_of_part") => {
            let name = row["threshold"]["slo_of_part"].as_str().unwrap_or("");
            format!("SLO {} of some series", escape_control(name))
        }
        None if row["unusual"].is_null() => "not read yet".to_owned(),
        origin => origin.unwrap_or("too few values").to_owned(),
    };
    let age = row["latest_ns"].as_i64().map(|latest| duration_text(rounded_age(now - latest)));
    vec![
        escape_control(&name),
        match row["state"].as_str() {
            // Nothing is above the threshold, which is not that of the alert then.
            Some("usual") if is_alarmed && row["above_now"]["upper"] == 0 => "uncertain".to_owned(),
            Some("usual") if is_alarmed => "affected".to_owned(),
            // What is known is said: values, but nothing to compare them with.
            _ if lacks_threshold(row) => "–".to_owned(),
            Some("usual") if is_provisional(row) => "unknown".to_owned(),
            state => state.unwrap_or("unknown").to_owned(),
        },
        match row["state"].as_str() {
            Some("unknown") if row["count_now"] == 0 => "no data".to_owned(),
            _ if lacks_threshold(row) => "–".to_owned(),
            // Either bound may be right: the estimate would be a guess.
            Some("uncertain") => count_bracket(&row["above_now"])
                .map_or(String::new(), value_formatter::count_bounds),
            _ => count("above_now"),
        },
        match row["above_today"].is_null() && lacks_threshold(row) {
            true => "–".to_owned(),
            false => count("above_today"),
        },
        match (threshold, row["threshold"]["origin"].as_str()) {
            (Some(value), Some("p99" | "hourly_p99")) => numbers.estimate(value),
            (Some(value), _) => numbers.exact(value),
            (None, _) => "none".to_owned(),
        },
        origin,
        unusual_text(&row["unusual"]),
        format!("{:.1}/s", row["rate"].as_f64().unwrap_or(0.0)),
        value("p50"),
        value("p99"),
        value("max"),
        age.unwrap_or("–".to_owned()),
        strip(&row["heatmap"], terminal),
    ]
}

/// Whether a row has values now, but no threshold although it was read: there are too few to learn
/// one.
fn lacks_threshold(row: &Value) -> bool {
    row["threshold"].is_null() && row["count_now"].as_u64() > Some(0) && !row["unusual"].is_null()
}

/// Whether the threshold was learned from so little that its own values cannot be above it.
fn is_provisional(row: &Value) -> bool {
    let threshold = &row["threshold"];
    let time = |name: &str| threshold[name].as_i64();
    let length = time("end_ns").zip(time("start_ns")).map(|(end, start)| end - start);
    threshold["origin"] == "p99" && length.is_some_and(|length| length < store::HOUR)
}

/// When a row has a threshold, if it has values but none yet.
fn wait_text(row: &Value, document: &Value) -> Option<String> {
    let (needed, name) = (document["threshold_values_min"].as_u64()?, row["name"].as_str()?);
    if !lacks_threshold(row) {
        return None;
    }
    let (today, rate) = (row["count_today"].as_u64()?, row["rate"].as_f64()?);
    // Values count when they are five minutes old.
    let seconds = needed.saturating_sub(today) as f64 / rate.max(f64::MIN_POSITIVE);
    let wait = match seconds < 86_400.0 {
        true => format!(", in about {:.0} min", (seconds / 60.0).ceil() + 5.0),
        false => String::new(),
    };
    let needed = match today < needed {
        true => {
            let today = value_formatter::count(today);
            format!(" from {needed} on ({today} {})", day_name(document))
        }
        false => String::new(),
    };
    let (one, many, example) = match row["counts"].as_str() {
        Some("requests") => ("request", "requests", "250ms"),
        _ => ("value", "values", "LIMIT"),
    };
    Some(format!(
        "{} in the last 5 min; a threshold is learned{needed}{wait}, or set one: --threshold \
         {}={example}",
        plural(row["count_now"].as_u64()?, one, many),
        escape_control(name),
    ))
}

/// Users with a value above the threshold; `None` if no label tells users apart.
fn users_text(row: &Value, day: &str) -> Option<String> {
    let users = &row["users"];
    let label = escape_control(users["label"].as_str()?);
    let number = |name: &str| match count_bracket(&users[name]) {
        Some(of) if of.lower == of.upper => value_formatter::count_estimate(of),
        Some(of) => value_formatter::count_bounds(of),
        None => "unknown".to_owned(),
    };
    let (now, today) = (number("now"), number("today"));
    let reason = users["reason"].as_str().map(|why| format!(" ({})", escape_control(why)));
    let reason = reason.unwrap_or_default();
    Some(format!("users above, by {label}: {now} now, {today} {day}{reason}"))
}

/// How many values of today are above the threshold; `None` if that is usual.
fn day_text(row: &Value, day: &str) -> Option<String> {
    let above = count_bracket(&row["above_today"])?;
    let (state, above) = match row["state_today"].as_str()? {
        "affected" => ("affected", value_formatter::count_estimate(above)),
        "uncertain" => ("uncertain", value_formatter::count_bounds(above)),
        _ => return None,
    };
    Some(format!(
        "{day} {state}: {above} of {} {} above, {} expected",
        value_formatter::count(row["count_today"].as_u64()?),
        row["counts"].as_str().unwrap_or("values"),
        value_formatter::count(row["expected_today"].as_f64()?.round() as u64),
    ))
}

/// The worst hour of today; `None` if all were usual.
fn hour_text(row: &Value) -> Option<String> {
    let hour = &row["worst_hour"];
    let above = count_bracket(&hour["above"])?;
    let time = |name: &str| hour[name].as_i64().map(precise_time_text);
    Some(format!(
        "worst hour: {} to {}: {} of {}",
        time("start_ns")?,
        time("end_ns")?,
        value_formatter::count_estimate(above),
        value_formatter::count(hour["count"].as_u64()?),
    ))
}

/// `p99 of 7 d`.
fn learned_text(statistic: &str, threshold: &Value) -> String {
    let ns = |name: &str| threshold[name].as_i64().unwrap_or(0);
    let range = ns("end_ns").saturating_sub(ns("start_ns"));
    // Half a day of history is not 673 min.
    let units = [store::DAY, store::HOUR];
    let range = match units.into_iter().find(|unit| range >= 2 * unit) {
        Some(unit) => range - range.rem_euclid(unit),
        None => rounded_age(range),
    };
    format!("{statistic} of {}", duration_text(range))
}

fn unusual_text(unusual: &Value) -> String {
    if unusual.is_null() {
        return "not read yet".to_owned();
    }
    match (bracket(&unusual["ratio"]), unusual["reason"].as_str()) {
        (Some(ratio), _) => format!("{:.1}x", ratio.estimate),
        (None, Some(reason @ "history too short")) => match unusual["days_min"].as_u64() {
            Some(days) => {
                let missing = days.saturating_sub(unusual["days"].as_u64().unwrap_or(0)).max(1);
                format!("{reason}: known in {missing} d")
            }
            // Of an older server.
            None => reason.to_owned(),
        },
        (None, _) => "unknown".to_owned(),
    }
}

/// Whole seconds, or whole minutes from two minutes on.
fn rounded_age(ns: i64) -> i64 {
    let unit = if ns >= 2 * store::MINUTE { store::MINUTE } else { store::SECOND };
    ns.max(0) - ns.max(0).rem_euclid(unit)
}

/// The last hour in slots of three minutes: the height of the largest value on the axis of the row.
/// A slot without values is a `?` if data is known to be missing, and a dot if it has no data.
fn strip(heatmap: &Value, terminal: &Terminal) -> String {
    let Some(cells) = heatmap["cells"].as_str() else { return "no data".to_owned() };
    let number = |name: &str| heatmap[name].as_u64().unwrap_or(1).max(1) as usize;
    let (bins, columns) = (number("bins"), number("columns"));
    let cells: Vec<&[u8]> = cells.as_bytes().chunks(bins).collect();
    let list = |name: &str| -> Vec<u64> {
        heatmap[name].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    let (missing, no_data) = (list("missing"), list("no_data"));
    let (blocks, dot) =
        if terminal.ascii { (ASCII_BLOCKS, ASCII_NO_DATA) } else { (BLOCKS, NO_DATA) };
    let per_slot = columns.div_ceil(SLOTS);
    let slot = |(at, some): (usize, &[&[u8]])| {
        let highest =
            some.iter().filter_map(|column| column.iter().rposition(|cell| *cell != b'0'));
        let mut range = (at * per_slot) as u64..((at + 1) * per_slot).min(columns) as u64;
        match highest.max() {
            Some(bin) => blocks[1 + bin * (blocks.len() - 2) / (bins - 1).max(1)],
            None if missing.iter().any(|column| range.contains(column)) => '?',
            None if range.all(|column| no_data.contains(&column)) => dot,
            None => ' ',
        }
    };
    cells.chunks(per_slot).enumerate().map(slot).collect()
}

fn notes(document: &Value, rows: &[Value], total: u64) -> String {
    let mut text = String::new();
    let more = total.saturating_sub(rows.len() as u64);
    if more > 0 {
        text.push_str(&format!("  {} more: --limit\n", value_formatter::count(more)));
    }
    let incomplete = document["incomplete"].as_u64().unwrap_or(0);
    if incomplete > 0 {
        text.push_str(&format!("  {} of {total} not read whole yet: ask again\n", incomplete));
    }
    for one in document["unranked"].as_array().into_iter().flatten() {
        let of = |name: &str| escape_control(one[name].as_str().unwrap_or(""));
        text.push_str(&format!("  not ranked: {}: {}\n", of("name"), of("reason")));
    }
    let is_any =
        |state: &str| rows.iter().any(|row| row["state"] == state || row["state_today"] == state);
    if is_any("affected") {
        text.push_str(
            "  affected: more than expected above the threshold (1 %, or what the objective of \
             the SLO allows), and not by chance (p < 0.001)\n",
        );
    }
    if is_any("uncertain") {
        text.push_str(
            "  uncertain: the buckets are too wide to tell whether more than expected are\n",
        );
    }
    text
}

fn bracket(of: &Value) -> Option<Bracket> {
    let estimate = of["estimate"].as_f64()?;
    Some(Bracket {
        lower: of["lower"].as_f64().unwrap_or(f64::NEG_INFINITY),
        estimate,
        upper: of["upper"].as_f64().unwrap_or(f64::INFINITY),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text_of(document: &Value) -> String {
        overview_text(document, &OverviewAlarms::default(), &Terminal::new(true))
    }

    /// A user saw `too few values` beside a service that has had values for a week.
    #[test]
    fn row_that_is_not_read_yet_says_so() {
        let row = json!({"name": "latency", "state": "unknown", "count_now": 5, "unusual": null});
        let document = json!({"total": 1, "rows": [row]});
        let text = text_of(&document);
        assert!(text.contains("not read yet") && !text.contains("too few values"), "{text}");
    }

    #[test]
    fn users_are_beside_the_requests_and_unknown_ones_say_why() {
        let check = |users: Value, expected: &str| {
            let row = json!({"name": "latency", "state": "affected", "users": users});
            let text = text_of(&json!({"total": 1, "rows": [row]}));
            assert!(text.contains(expected), "{text}");
        };
        let count = |lower: u64, upper: u64| json!({"lower": lower, "estimate": 9, "upper": upper});
        check(
            json!({"label": "session", "now": count(9, 9), "today": count(7, 40)}),
            "users above, by session: 9 now, 7 to 40 today\n",
        );
        check(
            json!({
                "label": "session", "now": null, "today": null,
                "reason": "users limit (1000) exceeded: there are 2000"
            }),
            "by session: unknown now, unknown today (users limit (1000) exceeded: there are 2000)",
        );
        let none = json!({"name": "latency", "state": "usual", "users": null});
        let text = text_of(&json!({"total": 1, "rows": [none]}));
        assert!(!text.contains("users"), "{text}");
    }

    /// A job of one minute per hour had the picture of a service without requests.
    #[test]
    fn slots_without_data_are_dots_in_the_picture_of_the_last_hour() {
        let columns: Vec<String> =
            (0..9).map(|at| if at == 4 { "09" } else { "00" }.into()).collect();
        let heatmap = json!({
            "cells": columns.concat(), "bins": 2, "columns": 9, "missing": [],
            "no_data": [0, 1, 2, 3, 5, 6, 7]
        });
        // Twenty slots of at least a column.
        assert_eq!(strip(&heatmap, &Terminal::new(true)), "::::#::: ");
        let row = json!({"name": "job", "heatmap": heatmap, "latest_ns": 5, "unusual": null});
        let document = json!({"now_ns": 5, "total": 1, "rows": [row]});
        let text = text_of(&document);
        for expected in ["last hour: : has no data", " 0 s  "] {
            assert!(text.contains(expected), "{text}");
        }
    }

    /// Three hours after an incident every row was usual, and nothing told of it.
    #[test]
    fn an_incident_this_morning_is_told_with_its_hour_and_the_expected_number() {
        let count = |n: u64| json!({"lower": n, "estimate": n, "upper": n});
        let row = json!({
            "name": "request_duration", "counts": "requests", "state": "usual", "count_now": 5,
            "state_today": "affected", "above_today": count(1875), "expected_today": 1480.0,
            "count_today": 148_000, "worst_hour": {
                "start_ns": 1_794_225_600_000_000_000_i64, "end_ns": 1_794_229_200_000_000_000_i64,
                "above": count(700), "count": 6000
            }
        });
        let text = text_of(&json!({"total": 1, "rows": [row]}));
        for expected in [
            "today affected: 1,875 of 148,000 requests above, 1,480 expected",
            "worst hour: 2026-11-09 12:00:00Z to 2026-11-09 13:00:00Z: 700 of 6,000",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }

    /// "p99 of 25 min", learned from the incident itself, was usual.
    #[test]
    fn row_with_a_threshold_of_minutes_is_unknown() {
        let state = |minutes: i64| {
            let end_ns = minutes * store::MINUTE;
            let threshold =
                json!({"value": 0.25, "origin": "p99", "start_ns": 0, "end_ns": end_ns});
            let row = json!({"name": "latency", "state": "usual", "threshold": threshold});
            cells(&row, 0, false, &Terminal::new(true))[1].clone()
        };
        assert_eq!([state(25), state(90)], ["unknown", "usual"]);
    }

    /// "affected" stood beside 0 requests above a threshold of 1 s: the alert was for 250 ms.
    #[test]
    fn row_with_an_alert_and_nothing_above_its_threshold_is_uncertain() {
        let state = |above: u64| {
            let above = json!({"lower": above, "estimate": above, "upper": above});
            let row = json!({"name": "latency", "state": "usual", "above_now": above});
            cells(&row, 0, true, &Terminal::new(true))[1].clone()
        };
        assert_eq!([state(0), state(3)], ["uncertain", "affected"]);
    }

    /// At 00:17 an incident from 21:26 to 22:12 was not told.
    #[test]
    fn before_six_o_clock_the_day_is_since_yesterday() {
        let midnight = 20_000 * store::DAY;
        let of = |now_ns: i64, today_start_ns: i64| {
            let count = json!({"lower": 667, "estimate": 667, "upper": 667});
            let row = json!({
                "name": "latency", "counts": "requests", "state": "usual", "count_now": 5,
                "state_today": "affected", "above_today": count, "expected_today": 434.6,
                "count_today": 43_455, "expected_share": 0.01, "threshold": {"value": 0.25}
            });
            let document = json!({
                "total": 1, "now_ns": now_ns, "today_start_ns": today_start_ns, "rows": [row]
            });
            text_of(&document)
        };
        let text = of(midnight + 17 * store::MINUTE, midnight - store::DAY);
        for expected in [
            "yesterday and today since 2024-10-03",
            "worst since yesterday, not now: latency: 667 of 43,455 requests",
            "since yesterday affected: 667 of 43,455 requests above, 435 expected",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let text = of(midnight, midnight - store::DAY);
        assert!(text.contains("worst today") && !text.contains("yesterday"), "{text}");
        // After a day of 23 hours it is 00:17, too.
        let text = of(midnight + 17 * store::MINUTE, midnight - 23 * store::HOUR);
        assert!(text.contains("worst since yesterday"), "{text}");
    }

    /// The first rows were services without data, above those that were affected.
    #[test]
    fn what_is_not_known_is_after_what_is() {
        let row = |name: &str, state: &str, today: &str, count: u64| {
            let heatmap = if count > 0 { json!({"cells": "0", "bins": 1}) } else { Value::Null };
            json!({
                "name": name, "state": state, "state_today": today, "count_today": count,
                "heatmap": heatmap, "unusual": {"ratio": null, "reason": "no data"}
            })
        };
        let mut unread = row("unread", "unknown", "unknown", 0);
        unread["unusual"] = Value::Null;
        let mut idle = row("idle", "unknown", "unknown", 5);
        idle["count_now"] = 0.into();
        let rows = [
            row("empty", "unknown", "unknown", 0),
            idle,
            unread,
            row("quiet", "unknown", "usual", 5),
            row("affected", "unknown", "affected", 5),
            row("usual", "usual", "usual", 5),
            row("uncertain", "uncertain", "usual", 5),
        ];
        let sorted = sorted_rows(&rows);
        let names: Vec<&str> = sorted.iter().filter_map(|row| row["name"].as_str()).collect();
        assert_eq!(names, ["affected", "usual", "uncertain", "unread", "quiet", "idle", "empty"]);
        let text = text_of(&json!({"total": 6, "rows": rows}));
        assert!(text.find("affected") < text.find("empty"), "{text}");
    }

    /// On a new server, rate and percentiles were there, but what stood out was "unknown".
    #[test]
    fn row_with_few_values_says_what_is_known_and_when_it_has_a_threshold() {
        let one = |x: f64| json!({"lower": x, "estimate": x, "upper": x});
        let row = json!({
            "name": "latency", "labels": {"service": "cart"}, "unit": "s", "counts": "requests",
            "state": "unknown", "state_today": "unknown", "count_now": 90, "count_today": 200,
            "above_now": null, "above_today": null, "threshold": null, "rate": 0.5,
            "p50": one(0.012), "p99": one(0.25), "max": one(0.3), "latest_ns": 0,
            "unusual": {"ratio": null, "reason": "history too short", "days": 0, "days_min": 3}
        });
        let document = |row: &Value| json!({"total": 1, "now_ns": 0, "threshold_values_min": 500, "rows": [row]});
        let text = text_of(&document(&row));
        for expected in [
            "0.5/s",
            "12 ms",
            "250 ms",
            "90 requests in the last 5 min; a threshold is learned from 500 on (200 today), in \
             about 15 min, or set one: --threshold latency=250ms",
            "history too short: known in 3 d",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("unknown"), "{text}");
        // "1 requests", and bytes with a threshold of 250ms; 956 requests had to reach 500.
        let mut bytes = row.clone();
        bytes["unit"] = "B".into();
        (bytes["counts"], bytes["count_now"]) = ("values".into(), 1.into());
        bytes["count_today"] = 956.into();
        let text = text_of(&document(&bytes));
        let expected = "1 value in the last 5 min; a threshold is learned, in about 5 min, or set \
                        one: --threshold latency=LIMIT";
        assert!(text.contains(expected), "{text}");
        // A silent one is unknown.
        let mut silent = row.clone();
        (silent["count_now"], silent["rate"]) = (0.into(), 0.0.into());
        let text = text_of(&document(&silent));
        assert!(text.contains("unknown") && !text.contains("learned from"), "{text}");
    }

    /// "p99 of 673 min" and "history too short (0 d)".
    #[test]
    fn short_history_is_in_hours_and_names_what_is_needed() {
        let learned = |minutes: i64| {
            let end_ns = minutes * store::MINUTE;
            learned_text("p99", &json!({"start_ns": 0, "end_ns": end_ns}))
        };
        assert_eq!(
            [learned(673), learned(7 * 24 * 60), learned(90)],
            ["p99 of 11 h", "p99 of 7 d", "p99 of 1 h 30 min"]
        );
        let unusual = |days_min: Option<u64>| {
            let reason = "history too short";
            unusual_text(&json!({"ratio": null, "reason": reason, "days": 1, "days_min": days_min}))
        };
        assert_eq!(unusual(Some(5)), "history too short: known in 4 d");
        assert_eq!(unusual(None), "history too short");
    }
}
