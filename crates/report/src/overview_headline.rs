//! Headline of an overview: the row to look at first, how bad it is, since when, and what to do.
//!
//! Rows are sorted by affected requests; the headline names the worst one in relation to its
//! objective, by the lower bound of the burn rate: a small service of which half fails comes before
//! a large one that is a little slower than usual. What is bad now comes before what was bad today.
//! The page has the same headline.

use hist::Bracket;
use serde_json::Value;

use render::number_formatter::NumberFormatter;
use render::text::escape_control;
use render::time::precise_time_text;
use render::value_formatter;

use crate::overview::day_name;

/// Maximum number of further rows that are named.
const OTHERS_MAX: usize = 3;

/// When a row is worst.
#[derive(Clone, Copy, PartialEq)]
enum WorstTime {
    /// In the last five minutes.
    Now,
    /// In an hour of today, and in those next to it.
    Hour,
    /// Today, with no hour that is worse than the others.
    Today,
}

/// What a headline says of a row.
struct Headline<'a> {
    row: &'a Value,
    when: WorstTime,
    /// Values above the threshold, and all, in this time.
    above: Bracket<u64>,
    count: u64,
    /// Share above the threshold as a ratio to the expected one.
    times_expected: f64,
    /// Lower bound of the burn rate now, or in the worst hour.
    least_rate: f64,
}

impl<'a> Headline<'a> {
    /// `None` if the row is not affected, neither now nor today.
    fn of(row: &'a Value) -> Option<Headline<'a>> {
        let (hour, period) = (&row["worst_hour"], worst_period(row));
        let when = match (row["state"].as_str(), row["state_today"].as_str()) {
            (Some("affected"), _) => WorstTime::Now,
            _ if !hour.is_null() => WorstTime::Hour,
            (_, Some("affected")) => WorstTime::Today,
            _ => return None,
        };
        let (above, count, rate) = match when {
            WorstTime::Now => (&row["above_now"], &row["count_now"], &row["burn_rate_now"]),
            WorstTime::Hour => (&period["above"], &period["count"], &hour["burn_rate"]),
            WorstTime::Today => (&row["above_today"], &row["count_today"], &Value::Null),
        };
        let (above, count) = (count_bracket(above)?, count.as_u64()?);
        let share = above.estimate as f64 / count.max(1) as f64;
        // An hour that is significantly worse says more than a day.
        let least_rate = rate["lower"].as_f64().unwrap_or(1.0);
        let times_expected = share / row["expected_share"].as_f64()?;
        Some(Headline { row, when, above, count, times_expected, least_rate })
    }

    fn is_now(&self) -> bool {
        self.when == WorstTime::Now
    }

    /// Service and metric.
    fn name(&self) -> String {
        let labels = self.row["labels"].as_object().into_iter().flatten();
        let service = labels.filter_map(|(_, value)| value.as_str());
        let name = service.chain(self.row["name"].as_str()).collect::<Vec<_>>().join(" ");
        escape_control(&name)
    }

    fn text(&self, day: &str) -> String {
        let Headline { row, above, count, times_expected, .. } = self;
        let (numbers, of) = (NumberFormatter::new(row["unit"].as_str()), &row["threshold"]);
        let threshold = of["value"].as_f64().unwrap_or(0.0);
        let threshold = match of["origin"].as_str() {
            Some("p99" | "hourly_p99") => numbers.estimate(threshold),
            _ => numbers.exact(threshold),
        };
        let when = match self.when {
            WorstTime::Now => format!(" in the last 5 min{}", since_text(&row["affected_since"])),
            WorstTime::Hour => {
                let time = |name: &str| worst_period(row)[name].as_i64().unwrap_or(0);
                let [start, end] = ["start_ns", "end_ns"].map(|name| precise_time_text(time(name)));
                format!(" from {start} to {end}")
            }
            WorstTime::Today => String::new(),
        };
        let expected = row["expected_share"].as_f64().unwrap_or(0.0) * 100.0;
        let whose = match of["slo"].as_str() {
            Some(slo) => format!("SLO {}", escape_control(slo)),
            None => "no SLO".to_owned(),
        };
        format!(
            "{}: {}: {} of {} {} above {} ({}, {} times the expected {} %, {whose}){when}",
            match (self.is_now(), row["state"].as_str()) {
                (true, _) => "worst now".to_owned(),
                (false, Some("usual")) => format!("worst {day}, not now"),
                (false, _) => format!("worst {day}"),
            },
            self.name(),
            value_formatter::count_estimate(*above),
            value_formatter::count(*count),
            row["counts"].as_str().unwrap_or("values"),
            threshold,
            value_formatter::share(above.estimate, *count),
            factor_text(*times_expected),
            (expected * 1e6).round() / 1e6,
        )
    }

    /// The command that tells which labels the values above the threshold have.
    fn command(&self) -> Option<String> {
        let (selector, unit) = (self.row["selector"].as_str()?, self.row["unit"].as_str());
        let threshold = self.row["threshold"]["value"].as_f64()?;
        let threshold = NumberFormatter::new(unit).exact(threshold).replace(' ', "");
        let (range, default) = match self.when {
            WorstTime::Now => (&self.row["affected_since"], "-5m"),
            WorstTime::Hour => (worst_period(self.row), ""),
            WorstTime::Today => (&Value::Null, "-1d"),
        };
        let time = |name: &str| Some(precise_time_text(range[name].as_i64()?).replace(' ', "T"));
        let from = time("start_ns").unwrap_or_else(|| default.to_owned());
        let to = if self.is_now() { None } else { time("end_ns") };
        let to = to.map(|to| format!(" --to {to}")).unwrap_or_default();
        let selector = escape_control(&selector.replace('\'', "'\\''"));
        Some(format!("topdeck breakdown '{selector}' --above {threshold} --from {from}{to}"))
    }
}

/// The worst hour of a row with those next to it that are not much better.
fn worst_period(row: &Value) -> &Value {
    let hour = &row["worst_hour"];
    if hour["period"].is_null() { hour } else { &hour["period"] }
}

/// Lines of the headline of an overview; none if nothing was affected. It is about the worst of all
/// rows, whether they are shown or not; of a server that does not name these, of those it sent.
pub(crate) fn overview_headline(document: &Value) -> Vec<String> {
    let summary = &document["summary"];
    let lists = match summary.is_object() {
        true => vec![&summary["worst_now"], &summary["worst_earlier"]],
        false => vec![&document["rows"]],
    };
    let rows: Vec<&Value> = lists.into_iter().filter_map(Value::as_array).flatten().collect();
    headline(&rows, day_name(document))
}

/// The same of some rows; `day` is what today is called.
fn headline(rows: &[&Value], day: &str) -> Vec<String> {
    let mut all: Vec<Headline<'_>> = rows.iter().filter_map(|row| Headline::of(row)).collect();
    model::sort::by(&mut all, |a, b| {
        let is_later = b.is_now().cmp(&a.is_now());
        is_later.then_with(|| b.least_rate.total_cmp(&a.least_rate))
    });
    let Some((first, others)) = all.split_first() else { return Vec::new() };
    let mut lines = vec![first.text(day)];
    let named = others.iter().filter(|other| other.is_now() == first.is_now()).take(OTHERS_MAX);
    let named: Vec<String> = named
        .map(|other| format!("{} {} times", other.name(), factor_text(other.times_expected)))
        .collect();
    if !named.is_empty() {
        lines.push(format!("then {}", named.join(", ")));
    }
    lines.extend(first.command().map(|command| format!("which labels: {command}")));
    lines
}

/// A count with its bounds.
pub(crate) fn count_bracket(of: &Value) -> Option<Bracket<u64>> {
    let of = |name: &str| of[name].as_u64();
    Some(Bracket { lower: of("lower")?, estimate: of("estimate")?, upper: of("upper")? })
}

/// Since when, with the bounds that are known.
fn since_text(since: &Value) -> String {
    let time = |name: &str| since[name].as_i64();
    match (time("start_ns"), time("end_ns")) {
        (Some(start), Some(end)) if end - start > 2 * store::MINUTE => {
            let [start, end] = [start, end].map(precise_time_text);
            format!(", since between {start} and {end}")
        }
        (Some(start), _) => format!(", since about {}", precise_time_text(start)),
        _ => String::new(),
    }
}

fn factor_text(factor: f64) -> String {
    match factor >= 10.0 {
        true => value_formatter::count(factor.round() as u64),
        false => format!("{factor:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headline(rows: &[&Value]) -> Vec<String> {
        super::headline(rows, "today")
    }

    const NOON: i64 = 1_794_225_600_000_000_000;

    fn count(n: u64) -> Value {
        json!({"lower": n, "estimate": n, "upper": n})
    }

    fn rate(lower: f64, estimate: f64) -> Value {
        json!({"lower": lower, "estimate": estimate, "upper": estimate})
    }

    /// A row with an hour, of values in seconds.
    fn row(service: &str, above: u64, burn_rate: Value) -> Value {
        json!({
            "name": "latency", "labels": {"service": service}, "unit": "s", "counts": "requests",
            "selector": format!("latency{{service=\"{service}\"}}"), "state": "usual",
            "expected_share": 0.005, "threshold": {"value": 0.8, "origin": "slo", "slo": "pay"},
            "worst_hour": {
                "start_ns": NOON, "end_ns": NOON + store::HOUR, "above": count(above),
                "count": 6_500, "burn_rate": burn_rate
            }
        })
    }

    /// The headline named the service with most requests above its threshold over the day.
    #[test]
    fn worst_hour_in_relation_to_its_objective_is_the_headline() {
        let mut rows =
            [row("ledger", 1_041, rate(1.5, 1.9)), row("payment", 900, rate(24.0, 27.7))];
        rows[0]["worst_hour"]["count"] = 109_600.into();
        assert_eq!(
            headline(&rows.each_ref()),
            [
                "worst today, not now: payment latency: 900 of 6,500 requests above 800 ms \
                 (13.85 %, 28 times the expected 0.5 %, SLO pay) from 2026-11-09 12:00:00Z to \
                 2026-11-09 13:00:00Z",
                "then ledger latency 1.9 times",
                "which labels: topdeck breakdown 'latency{service=\"payment\"}' --above 800ms \
                 --from 2026-11-09T12:00:00Z --to 2026-11-09T13:00:00Z",
            ]
        );
        // It did not end with the hour.
        let mut longer = rows[1].clone();
        longer["worst_hour"]["period"] = json!({
            "start_ns": NOON - store::HOUR, "end_ns": NOON + store::HOUR, "above": count(1_500),
            "count": 13_000
        });
        let lines = headline(&[&longer]);
        for expected in ["1,500 of 13,000 requests", "(11.54 %, 23 times", "from 2026-11-09 11:00"]
        {
            assert!(lines[0].contains(expected), "{expected}: {lines:?}");
        }
        assert!(lines[1].contains("--from 2026-11-09T11:00:00Z"), "{lines:?}");
        // A day without such an hour comes last.
        let mut day = row("front", 0, Value::Null);
        (day["worst_hour"], day["state_today"]) = (Value::Null, "affected".into());
        (day["above_today"], day["count_today"]) = (count(700), 50_000.into());
        let lines = headline(&[&day, &rows[1]]);
        assert!(lines[0].contains("payment") && lines[1] == "then front latency 2.8 times");
        let expected = "worst today, not now: front latency: 700 of 50,000 requests above 800 ms \
                        (1.40 %, 2.8 times the expected 0.5 %, SLO pay)";
        assert_eq!(headline(&[&day])[0], expected);
        assert_eq!(headline(&[]), [""; 0]);
    }

    #[test]
    fn what_is_bad_now_comes_before_a_worse_hour_of_today() {
        let mut now = row("cart", 900, rate(24.0, 27.7));
        now["state"] = "affected".into();
        (now["above_now"], now["count_now"]) = (count(40), 1_200.into());
        now["burn_rate_now"] = rate(4.1, 6.7);
        now["affected_since"] = json!({"start_ns": NOON, "end_ns": NOON + store::MINUTE});
        let rows = [row("payment", 900, rate(24.0, 27.7)), now.clone()];
        assert_eq!(
            headline(&rows.each_ref()),
            [
                "worst now: cart latency: 40 of 1,200 requests above 800 ms (3.33 %, 6.7 times \
                 the expected 0.5 %, SLO pay) in the last 5 min, since about 2026-11-09 12:00:00Z",
                "which labels: topdeck breakdown 'latency{service=\"cart\"}' --above 800ms \
                 --from 2026-11-09T12:00:00Z",
            ]
        );
        now["affected_since"] = json!({"start_ns": NOON, "end_ns": NOON + store::HOUR});
        let text = headline(&[&now]).join("\n");
        let since = "since between 2026-11-09 12:00:00Z and 2026-11-09 13:00:00Z";
        assert!(text.contains(since), "{text}");
        now["affected_since"] = Value::Null;
        let text = headline(&[&now]).join("\n");
        assert!(text.contains("last 5 min\n") && text.contains("--from -5m"), "{text}");
    }

    /// The 81st row was the worst, and the headline named the worst of the 80 that were shown.
    #[test]
    fn headline_names_the_worst_of_all_rows_and_not_only_of_those_shown() {
        let mut worst = row("payment", 900, rate(24.0, 27.7));
        let shown = [row("ledger", 1_041, rate(1.5, 1.9))];
        let document = json!({
            "rows": shown, "summary": {"worst_now": [], "worst_earlier": [worst, shown[0]]}
        });
        let lines = overview_headline(&document);
        assert!(lines[0].starts_with("worst today, not now: payment latency"), "{lines:?}");
        assert_eq!(lines[1], "then ledger latency 32 times");
        worst["state"] = "affected".into();
        (worst["above_now"], worst["count_now"]) = (count(40), 1_200.into());
        let document = json!({"rows": shown, "summary": {"worst_now": [worst]}});
        let lines = overview_headline(&document);
        assert!(lines[0].starts_with("worst now: payment latency"), "{lines:?}");
        // Of a server without a summary.
        assert!(overview_headline(&json!({"rows": shown}))[0].contains("ledger"));
    }
}
