//! Forecasts in words: `full in 3 d 4 h (p10 2 d 1 h, p90 6 d)`.

use hist::Bracket;
use render::time::duration_text;
use rules::{Alert, Rule};

/// What the forecast of an alert tells; `None` for other criteria.
pub(crate) fn forecast_text(rule: &Rule, alert: &Alert) -> Option<String> {
    let matched = alert.matched.as_ref()?;
    let event = rule.condition()?.forecast_event(matched.criterion)?;
    Some(outcomes_text(event, matched.value))
}

/// Times in seconds of a tenth, half and nine tenths of the outcomes; infinity is never.
fn outcomes_text(event: &str, Bracket { lower, estimate, upper }: Bracket) -> String {
    let [p10, p50, p90] = [lower, estimate, upper].map(time_text);
    match (p50, p90) {
        (_, Some(_)) if upper <= 0.0 => format!("{event} now"),
        (Some(p50), p90) => {
            let p10 = p10.unwrap_or_else(|| p50.clone());
            let p90 = p90.unwrap_or_else(|| "never".to_owned());
            format!("{event} in {p50} (p10 {p10}, p90 {p90})")
        }
        (None, _) => match p10 {
            Some(p10) => format!("{event} in {p10} at the earliest (p10; p50 never)"),
            None => format!("never {event}"),
        },
    }
}

/// Two units: days and hours, hours and minutes, or less. `None` for never.
fn time_text(seconds: f64) -> Option<String> {
    let unit_s = match seconds {
        86_400.0.. => 3600.0,
        3600.0.. => 60.0,
        _ => 1.0,
    };
    let ns = (seconds / unit_s).round() * unit_s * 1e9;
    ns.is_finite().then(|| duration_text(ns as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(hours: [f64; 3], expected: &str) {
        let [lower, estimate, upper] = hours.map(|hours| hours * 3600.0);
        assert_eq!(outcomes_text("full", Bracket { lower, estimate, upper }), expected);
    }

    #[test]
    fn forecast_is_a_sentence() {
        let never = f64::INFINITY;
        check([49.0, 76.2, 144.0], "full in 3 d 4 h (p10 2 d 1 h, p90 6 d)");
        check([0.5, 1.51, never], "full in 1 h 31 min (p10 30 min, p90 never)");
        check([49.0, never, never], "full in 2 d 1 h at the earliest (p10; p50 never)");
        check([0.0, 0.0, 0.0], "full now");
        check([never, never, never], "never full");
    }
}
