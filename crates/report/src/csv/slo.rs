//! SLOs: a row per SLO, and a row per point of the history of one.

use serde_json::Value;

use super::{CsvRows, list, plain_text};

pub(super) fn add_slos(document: &Value, rows: &mut CsvRows) {
    rows.add_columns(&[("name", false), ("state", false), ("objective", false)]);
    rows.add_columns(&[("period", false), ("threshold", false)]);
    rows.add_columns(&[("remaining", true), ("attained", true), ("bad", true)]);
    rows.add_columns(&[("total", false), ("allowed", false), ("missing_seconds", false)]);
    rows.add_columns(&[("firing", false)]);
    for slo in list(&document["slos"]) {
        rows.start_row();
        for column in ["name", "state", "objective", "period", "threshold"] {
            rows.set(column, plain_text(&slo[column]));
        }
        let budget = &slo["budget"];
        for column in ["remaining", "attained"] {
            rows.set_value(column, &budget[column]);
        }
        rows.set_value("bad", &budget["events"]["bad"]);
        rows.set("total", plain_text(&budget["events"]["total"]));
        rows.set("allowed", plain_text(&budget["allowed"]));
        let missing = budget["missing_ns"].as_i64();
        rows.set(
            "missing_seconds",
            missing.map_or(String::new(), |ns| (ns / 1_000_000_000).to_string()),
        );
        rows.set("firing", plain_text(&slo["alerts"]["firing"]));
    }
}

pub(super) fn add_history(document: &Value, rows: &mut CsvRows) {
    rows.add_columns(&[("time", false), ("remaining", true), ("bad", true)]);
    rows.add_columns(&[("total", false), ("has_gap", false)]);
    for point in list(&document["points"]) {
        rows.start_row();
        rows.set_time("time", &point["time_ns"]);
        rows.set_value("remaining", &point["remaining"]);
        rows.set_value("bad", &point["bad"]);
        rows.set("total", plain_text(&point["total"]));
        rows.set("has_gap", plain_text(&point["has_gap"]));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{CsvTable, csv_text};

    #[test]
    fn slos_and_a_history_are_tables() {
        let bracket =
            |lower: f64, upper: f64| json!({"lower": lower, "estimate": lower, "upper": upper});
        let slos = json!({"slos": [
            {"name": "checkout", "state": "remaining", "objective": 0.999, "period": "30 d",
             "threshold": "250 ms", "alerts": {"firing": 1}, "budget": {
                "remaining": bracket(0.5, 0.6), "attained": bracket(0.9995, 0.9996),
                "events": {"bad": bracket(4.0, 5.0), "total": 10000.0}, "allowed": 10.0,
                "missing_ns": 60_000_000_000_i64}},
            {"name": "search", "state": "unknown", "objective": 0.99, "period": "30 d",
             "alerts": {"firing": 0}, "budget": null},
        ]});
        let text = csv_text(CsvTable::Slos, &slos);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "name,state,objective,period,threshold,remaining,remaining_lower,remaining_upper,\
             attained,attained_lower,attained_upper,bad,bad_lower,bad_upper,total,allowed,\
             missing_seconds,firing"
        );
        assert_eq!(
            lines[1],
            "checkout,remaining,0.999,30 d,250 ms,0.5,0.5,0.6,0.9995,0.9995,0.9996,4.0,4.0,5.0,10000.0,\
             10.0,60,1"
        );
        assert_eq!(lines[2], "search,unknown,0.99,30 d,,,,,,,,,,,,,,0");
        let point = json!({
            "time_ns": 1_794_225_600_000_000_000_i64, "remaining": null,
            "bad": bracket(0.0, 0.0), "total": 0.0, "has_gap": true
        });
        let text = csv_text(CsvTable::SloHistory, &json!({"points": [point]}));
        assert_eq!(
            text,
            "time,remaining,remaining_lower,remaining_upper,bad,bad_lower,bad_upper,total,has_gap\n\
             2026-11-09T12:00:00.000Z,,,,0.0,0.0,0.0,0.0,true\n"
        );
    }
}
