//! Service level objectives and their budgets as text.

use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::{duration_text, precise_time_text};
use serde_json::Value;

/// The response of `/v1/slos`; `None` if it is another document.
pub fn slos_text(answer: &Value) -> Option<String> {
    let slos = answer["slos"].as_array()?;
    if slos.is_empty() {
        return Some("no SLOs: [[slo]] of the settings has them\n".to_owned());
    }
    let columns = [
        ("slo", false),
        ("state", false),
        ("budget left", true),
        ("at", false),
        ("good", true),
        ("objective", true),
        ("period", false),
        ("bad", true),
        ("allowed", true),
        ("alerts", false),
    ];
    let mut table = TextTable::new(&columns);
    let mut problems = String::new();
    for slo in slos {
        let budget = &slo["budget"];
        let name = escape_control(slo["name"].as_str()?);
        let alerts = &slo["alerts"];
        let counts = ["firing", "unknown", "pending"].iter().filter_map(|key| {
            alerts[*key].as_u64().filter(|count| *count > 0).map(|count| format!("{count} {key}"))
        });
        let allowed = budget["allowed"].as_f64();
        table.row(vec![
            name.clone(),
            slo["state"].as_str()?.to_owned(),
            bounded(&budget["remaining"], percent),
            slo["computed_ns"].as_i64().map_or_else(String::new, second_text),
            bounded(&budget["attained"], percent),
            percent(slo["objective"].as_f64()?),
            slo["period"].as_str()?.to_owned(),
            bounded(&budget["events"]["bad"], events),
            allowed.map_or_else(|| "unknown".to_owned(), events),
            counts.collect::<Vec<_>>().join(", "),
        ]);
        if let Some(error) = slo["error"].as_str() {
            problems.push_str(&format!("{name}: {}\n", escape_control(error)));
        } else if let Some(warning) = slo["warning"].as_str() {
            problems.push_str(&format!("{}\n", escape_control(warning)));
        } else if slo["computed_ns"].is_null() {
            problems.push_str(&format!("{name}: not computed yet\n"));
        }
    }
    Some(format!("{}{problems}", table.text(&Terminal::new(false))))
}

/// The response of `/v1/slo`; `None` if it is another document.
pub fn slo_text(answer: &Value) -> Option<String> {
    let name = escape_control(answer["name"].as_str()?);
    if let Some(error) = answer["error"].as_str() {
        return Some(format!("{name}: unknown: {}\n", escape_control(error)));
    }
    let budget = &answer["budget"];
    let mut text = format!(
        "{name}: {} of the budget left{}; {} good, objective {} in {}\n",
        bounded(&budget["remaining"], percent),
        answer["to_ns"].as_i64().map_or_else(String::new, |at| format!(" at {}", second_text(at))),
        bounded(&budget["attained"], percent),
        percent(answer["objective"].as_f64()?),
        answer["period"].as_str()?,
    );
    if let Some(threshold) = answer["threshold"].as_str() {
        text.push_str(&format!("  good: at most {threshold}\n"));
    }
    text.push_str(&format!(
        "  bad: {} of {} events, {} allowed\n",
        bounded(&budget["events"]["bad"], events),
        events(budget["events"]["total"].as_f64()?),
        events(budget["allowed"].as_f64()?),
    ));
    if answer["people"].is_object() {
        let people = &answer["people"];
        let (affected, all) = (bounded(&people["affected"], events), people["total"].as_f64()?);
        text.push_str(&format!("  users affected: {affected} of {}\n", events(all)));
    }
    match budget["missing_ns"].as_i64()? {
        0 => {}
        ns => text.push_str(&format!("  data missing: {}\n", duration_text(ns))),
    }
    match budget["corrected_ns"].as_i64() {
        None | Some(0) => {}
        Some(ns) => text.push_str(&format!(
            "  taken out in all: {} with {} events, {} bad\n",
            duration_text(ns),
            events(budget["corrected"]["total"].as_f64()?),
            bounded(&budget["corrected"]["bad"], events),
        )),
    }
    for correction in answer["corrections"].as_array()? {
        let time = |key: &str| correction[key].as_i64().map(precise_time_text);
        let reason = escape_control(correction["reason"].as_str()?);
        text.push_str(&format!(
            "  taken out: {} to {}: {reason}\n",
            time("from_ns")?,
            time("to_ns")?
        ));
    }
    text.push_str(&days_text(answer)?);
    text.push_str(&burn_text(answer)?);
    Some(text)
}

/// Time to the second: two budgets of different times differ.
fn second_text(ns: i64) -> String {
    precise_time_text(ns - ns.rem_euclid(store::SECOND))
}

fn days_text(answer: &Value) -> Option<String> {
    let columns = [("day", false), ("bad", true), ("events", true), ("remarks", false)];
    let mut rows: Vec<DayRow> = Vec::new();
    for day in answer["days"].as_array()? {
        let start = precise_time_text(day["start_ns"].as_i64()?);
        let total = day["total"].as_f64()?;
        let mut remarks = Vec::new();
        if total == 0.0 {
            remarks.push("no events".to_owned());
        }
        for (key, what) in [("missing_ns", "missing"), ("corrected_ns", "taken out")] {
            match day[key].as_i64()? {
                0 => {}
                ns => remarks.push(format!("{} {what}", duration_text(ns))),
            }
        }
        let row = DayRow {
            first: start.chars().take(10).collect(),
            last: None,
            is_empty: total == 0.0,
            cells: [bounded(&day["bad"], events), events(total), remarks.join(", ")],
        };
        match rows.last_mut() {
            Some(before) if row.is_empty && before.is_empty && before.cells == row.cells => {
                before.last = Some(row.first);
            }
            _ => rows.push(row),
        }
    }
    let mut table = TextTable::new(&columns);
    for DayRow { first, last, cells: [bad, total, remarks], .. } in rows {
        let day = last.map_or_else(|| first.clone(), |last| format!("{first} to {last}"));
        table.row(vec![day, bad, total, remarks]);
    }
    Some(table.text(&Terminal::new(false)))
}

/// A day, or adjacent days without events that have the same remarks.
struct DayRow {
    first: String,
    /// `None`: it is one day.
    last: Option<String>,
    is_empty: bool,
    /// Bad events, all events, remarks.
    cells: [String; 3],
}

fn burn_text(answer: &Value) -> Option<String> {
    let burn = answer["burn"].as_array()?;
    if burn.is_empty() {
        return Some("no burn-rate alerts\n".to_owned());
    }
    let columns = [
        ("window", false),
        ("burn rate", true),
        ("short window", true),
        ("fires above", true),
        ("formula", false),
        ("burns", false),
    ];
    let mut table = TextTable::new(&columns);
    let rate = |rate: f64| format!("{rate:.2}");
    for window in burn {
        table.row(vec![
            window["window"].as_str()?.to_owned(),
            bounded(&window["long"], rate),
            bounded(&window["short"], rate),
            window["factor"].as_f64()?.to_string(),
            window["formula"].as_str()?.to_owned(),
            match window["is_burning"].as_bool() {
                Some(true) => "yes".to_owned(),
                Some(false) => "no".to_owned(),
                None => "unknown".to_owned(),
            },
        ]);
    }
    Some(table.text(&Terminal::new(false)))
}

/// A share in percent.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if size >= 10.0 && share < 0.9 => {
            let sign = if percent < 0.0 { "-" } else { "" };
            format!("{sign}{} %", render::value_formatter::count(size.round() as u64))
        }
        _ => {
            let text = format!("{percent:.3}");
            format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

/// A value, with its bounds if they differ.
fn bounded(value: &Value, format: impl Fn(f64) -> String) -> String {
    let text = |bound: &str| value[bound].as_f64().map(&format);
    match (text("lower"), text("estimate"), text("upper")) {
        (Some(lower), Some(estimate), Some(upper)) if lower != upper => {
            format!("{estimate} ({lower} to {upper})")
        }
        (_, Some(estimate), _) => estimate,
        _ => "unknown".to_owned(),
    }
}

/// A whole number of events.
fn events(count: f64) -> String {
    render::value_formatter::count(count.max(0.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_budgets_are_no_numbers() {
        let exact = |value: f64| json!({"lower": value, "estimate": value, "upper": value});
        let answer = json!({"slos": [
            {"name": "search", "state": "unknown", "objective": 0.99, "period": "30 d",
             "budget": null, "computed_ns": null, "error": null, "alerts": {}},
            {"name": "checkout", "state": "remaining", "objective": 0.999, "period": "30 d",
             "budget": {"remaining": exact(0.7), "attained": exact(0.9997), "allowed": 1000.0,
                        "events": {"bad": exact(300.0), "total": 1e6}},
             "computed_ns": 1, "error": null, "alerts": {"firing": 1, "pending": 0}},
        ]});
        let text = slos_text(&answer).unwrap();
        assert_eq!(text.matches("unknown").count(), 5, "{text}");
        for part in ["70 %", "99.97 %", "99.9 %", "300", "1,000", "1 firing"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.lines().last(), Some("search: not computed yet"));
        let unmatched = json!({"slos": [
            {"name": "rw", "state": "unknown", "objective": 0.99, "period": "30 d", "budget": null,
             "computed_ns": 1, "error": null, "warning": "SLO \"rw\" matches nothing",
             "alerts": {}},
        ]});
        assert!(slos_text(&unmatched).unwrap().ends_with("\nSLO \"rw\" matches nothing\n"));
        assert!(slos_text(&json!({"slos": []})).unwrap().contains("[[slo]]"));
    }

    /// `topdeck slo` said -5346 %, and `topdeck slo show` a minute later -7032 %, without a time.
    #[test]
    fn budgets_have_the_time_at_which_they_were_computed() {
        let exact = |value: f64| json!({"lower": value, "estimate": value, "upper": value});
        let budget = json!({
            "remaining": exact(-70.32), "attained": exact(0.93), "allowed": 1.0, "missing_ns": 0,
            "events": {"bad": exact(97.0), "total": 1_360.0}
        });
        let slo = json!({
            "name": "checkout", "state": "spent", "objective": 0.999, "period": "30 d",
            "budget": budget, "computed_ns": 1_794_225_600_123_000_000_i64,
            "to_ns": 1_794_225_660_123_000_000_i64, "error": null, "alerts": {}, "days": [],
            "corrections": [], "burn": []
        });
        let all = slos_text(&json!({"slos": [slo]})).unwrap();
        assert!(all.contains("-7,032 %  2026-11-09 12:00:00Z"), "{all}");
        let one = slo_text(&slo).unwrap();
        let expected = "checkout: -7,032 % of the budget left at 2026-11-09 12:01:00Z; 93 % good";
        assert!(one.starts_with(expected), "{one}");
    }

    #[test]
    fn report_has_gaps_corrections_and_windows() {
        let exact = |value: f64| json!({"lower": value, "estimate": value, "upper": value});
        let answer = json!({
            "name": "checkout", "error": null, "state": "remaining", "objective": 0.999,
            "period": "30 d", "threshold": "250 ms", "people": null,
            "budget": {"remaining": {"lower": 0.5, "estimate": 0.6, "upper": 0.7},
                       "attained": exact(0.9995), "allowed": 100.0, "missing_ns": 60_000_000_000_i64,
                       "events": {"bad": exact(40.0), "total": 100_000.0},
                       "corrected_ns": 3_600_000_000_000_i64,
                       "corrected": {"bad": exact(7.0), "total": 1_200.0}},
            "corrections": [{"from_ns": 0, "to_ns": 3_600_000_000_000_i64, "reason": "a move"}],
            "days": [{"start_ns": 1_794_182_400_000_000_000_i64, "bad": exact(0.0), "total": 0.0,
                      "missing_ns": 0, "corrected_ns": 0}],
            "burn": [{"window": "1h", "long": exact(20.0), "short": null, "factor": 14.4,
                      "formula": "2 % × 30 d / 1 h = 14.4", "is_burning": null}],
        });
        let text = slo_text(&answer).unwrap();
        for part in [
            "checkout: 60 % (50 % to 70 %) of the budget left; 99.95 % good, objective 99.9 %",
            "good: at most 250 ms",
            "bad: 40 of 100,000 events, 100 allowed",
            "data missing: 1 min",
            "taken out in all: 1 h with 1,200 events, 7 bad",
            "a move",
            "2026-11-09",
            "no events",
            "2 % × 30 d / 1 h = 14.4",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // A user saw 30 lines without events of a store that was a day old.
        let day = |number: i64, total: f64, missing_ns: i64| {
            let start_ns = 1_794_182_400_000_000_000_i64 + number * 86_400_000_000_000;
            json!({"start_ns": start_ns, "bad": exact(0.0), "total": total,
                   "missing_ns": missing_ns, "corrected_ns": 0})
        };
        let mut folded = answer.clone();
        let empty = (0..5).map(|number| day(number, 0.0, 0));
        let others = [day(5, 0.0, 60_000_000_000), day(6, 7.0, 0), day(7, 0.0, 0)];
        folded["days"] = empty.chain(others).collect();
        let text = slo_text(&folded).unwrap();
        let rows: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .filter(|line| line.starts_with("2026-"))
            .collect();
        let expected = [
            "2026-11-09 to 2026-11-13 0 0 no events",
            "2026-11-14 0 0 no events, 1 min missing",
            "2026-11-15 0 7",
            "2026-11-16 0 0 no events",
        ];
        assert_eq!(rows, expected, "{text}");
        let failed = json!({"name": "checkout", "error": "the store is closed"});
        assert_eq!(slo_text(&failed).unwrap(), "checkout: unknown: the store is closed\n");
    }

    #[test]
    fn shares_are_percentages_with_their_bounds() {
        assert_eq!(percent(0.724), "72 %");
        assert_eq!(percent(0.9995), "99.95 %");
        assert_eq!(percent(-1.5), "-150 %");
        assert_eq!(percent(-53.46), "-5,346 %");
        assert_eq!(percent(0.0), "0 %");
        let value = json!({"lower": 0.5, "estimate": 0.6, "upper": 0.7});
        assert_eq!(bounded(&value, percent), "60 % (50 % to 70 %)");
        assert_eq!(bounded(&Value::Null, percent), "unknown");
        assert_eq!(events(12_345.2), "12,345");
    }
}
