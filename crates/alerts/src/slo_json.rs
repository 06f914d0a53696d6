//! SLOs as JSON. Shares and counts with bounds are `lower`, `estimate` and `upper`.

use model::Gap;
use role::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use role::json::statistics::{bracket, statistic};
use role::json::{integer, number};
use rules::AlertState;
use rules::slo::{
    BudgetStatus, BurnState, DayReport, EventTotals, Indicator, Slo, SloPoint, SloReport,
    SloSummary,
};

use crate::prometheus_api::map_json;
use crate::published_alerts::PublishedState;
use crate::slo_maintenance::CorrectedSlo;
use crate::slo_service::SloStatus;
use crate::unmatched_rules::slo_warning;

/// Maximum number of gaps that are listed.
const GAPS_MAX: usize = 20;
/// Maximum number of corrections that are listed.
const CORRECTIONS_MAX: usize = 100;

type JsonFields = Vec<(&'static str, Json)>;

/// Definition and budget of an SLO.
pub(crate) fn slo_fields(
    corrected: &CorrectedSlo,
    summary: Option<&SloSummary>,
    status: &SloStatus,
    alerts: &PublishedState,
) -> JsonFields {
    let slo = &corrected.slo;
    let mut fields = definition_fields(slo);
    fields.extend(budget_fields(slo, summary));
    let error = match status.result.as_deref() {
        Some(Err(error)) => Text(error.to_string()),
        _ => Null,
    };
    fields.push(("computed_ns", status.computed_ns.map_or(Null, time)));
    fields.push(("error", error));
    let warning = slo_warning(alerts, &slo.name).or_else(|| corrected.warning());
    fields.push(("warning", warning.map_or(Null, Text)));
    fields.push(("alerts", alerts_json(&slo.name, alerts)));
    fields
}

fn definition_fields(slo: &Slo) -> JsonFields {
    let text = |text: &str| Text(text.to_owned());
    let mut fields = vec![("name", text(&slo.name)), ("description", text(&slo.description))];
    match &slo.indicator {
        Indicator::Threshold { selector, threshold } => {
            fields.push(("kind", text("threshold")));
            fields.push(("selector", text(selector)));
            fields.push(("threshold", Text(threshold.to_string())));
        }
        Indicator::Ratio { part, is_good, total } => {
            fields.push(("kind", text("ratio")));
            fields.push((if *is_good { "good" } else { "bad" }, text(part)));
            fields.push(("total", text(total)));
        }
    }
    let correction = |it: &rules::slo::Correction| {
        Object(vec![
            ("from_ns", time(it.start_ns)),
            ("to_ns", time(it.end_ns)),
            ("reason", text(&it.reason)),
        ])
    };
    // The newest maintenance windows follow those of the settings.
    let shown = slo.corrections.iter().rev().take(CORRECTIONS_MAX).rev();
    fields.extend([
        ("objective", number(slo.objective.share())),
        ("period", Text(slo.period.to_string())),
        ("labels", map_json(&slo.labels)),
        ("corrections_total", integer(slo.corrections.len() as u64)),
        ("corrections", List(shown.map(correction).collect())),
    ]);
    fields
}

fn budget_fields(slo: &Slo, summary: Option<&SloSummary>) -> JsonFields {
    let Some(summary) = summary else {
        return vec![("state", Text(BudgetStatus::Unknown.text().to_owned())), ("budget", Null)];
    };
    let gaps = summary.gaps.iter().take(GAPS_MAX).map(gap_json).collect();
    let budget = Object(vec![
        ("from_ns", time(summary.period.start)),
        ("to_ns", time(summary.period.end)),
        ("attained", statistic(summary.attained)),
        ("remaining", statistic(summary.remaining)),
        ("events", events_json(&summary.events)),
        ("allowed", number(summary.events.budget(slo.objective))),
        ("remaining_uncorrected", statistic(summary.remaining_uncorrected)),
        ("uncorrected", events_json(&summary.uncorrected)),
        ("corrected", events_json(&summary.corrected)),
        ("corrected_ns", time(summary.corrected_ns)),
        ("last_hour", events_json(&summary.recent)),
        ("missing_ns", time(summary.missing_ns)),
        ("gaps_total", integer(summary.gaps.len() as u64)),
        ("gaps", List(gaps)),
        ("unit", summary.unit.as_ref().map_or(Null, |unit| Text(unit.clone()))),
        ("threshold_value", number(summary.limit)),
    ]);
    vec![("state", Text(summary.state.text().to_owned())), ("budget", budget)]
}

/// History, days, thresholds and windows.
pub(crate) fn report_fields(slo: &Slo, report: &SloReport) -> JsonFields {
    let curve = report.curve.points.iter().map(|point| {
        let threshold = ("threshold", number(point.threshold));
        Object(vec![threshold, ("attained", bracket(point.attained))])
    });
    let people = report.people.map_or(Null, |people| {
        Object(vec![
            ("affected", bracket(people.affected)),
            ("total", number(people.total)),
            ("is_counted", Bool(people.is_counted)),
        ])
    });
    vec![
        ("points", List(report.points.iter().map(point_json).collect())),
        ("days", List(report.days.iter().map(|day| day_json(slo, day)).collect())),
        ("curve", List(curve.collect())),
        ("threshold_of_objective", statistic(report.curve.threshold_of_objective)),
        ("burn", List(report.burn.iter().map(burn_json).collect())),
        ("people", people),
    ]
}

fn point_json(point: &SloPoint) -> Json {
    Object(vec![
        ("time_ns", time(point.time_ns)),
        ("remaining", statistic(point.remaining)),
        ("bad", bracket(point.events.bad)),
        ("total", number(point.events.total)),
        ("has_gap", Bool(point.has_gap)),
    ])
}

fn day_json(slo: &Slo, day: &DayReport) -> Json {
    let share = day.events.burn_rate(slo.objective);
    Object(vec![
        ("start_ns", time(day.start_ns)),
        ("end_ns", time(day.end_ns)),
        ("bad", bracket(day.events.bad)),
        ("total", number(day.events.total)),
        ("burn_rate", statistic(share)),
        ("missing_ns", time(day.missing_ns)),
        ("corrected_ns", time(day.corrected_ns)),
    ])
}

fn burn_json(burn: &BurnState) -> Json {
    Object(vec![
        ("window", Text(burn.window.name.to_owned())),
        ("severity", Text(burn.window.severity.to_owned())),
        ("factor", number(burn.factor)),
        ("formula", Text(burn.formula.clone())),
        ("long_ns", time(burn.window.long_ns)),
        ("short_ns", time(burn.window.short_ns())),
        ("long", statistic(burn.long)),
        ("short", statistic(burn.short)),
        ("is_burning", burn.is_burning.map_or(Null, Bool)),
    ])
}

/// Numbers of the SLO's alerts.
fn alerts_json(name: &str, published: &PublishedState) -> Json {
    let own = || {
        let active = published.active_alerts();
        active.filter(|active| active.report.group.file() == rules::slo::SLO_ALERT_FILE)
    };
    let count = |matches: fn(&rules::Alert) -> bool| {
        let matching = own().filter(|active| active.report.group.name() == name);
        integer(matching.filter(|active| matches(active.alert)).count() as u64)
    };
    Object(vec![
        ("firing", count(|alert| alert.state == AlertState::Firing && !alert.is_unknown())),
        ("pending", count(|alert| alert.state == AlertState::Pending && !alert.is_unknown())),
        ("unknown", count(|alert| alert.is_unknown())),
    ])
}

fn events_json(events: &EventTotals) -> Json {
    Object(vec![("bad", bracket(events.bad)), ("total", number(events.total))])
}

fn gap_json(gap: &Gap) -> Json {
    Object(vec![
        ("start_ns", time(gap.start)),
        ("end_ns", time(gap.end)),
        ("lost", gap.lost.map_or(Null, integer)),
        ("reason", Text(gap.reason.clone())),
    ])
}

fn time(ns: i64) -> Json {
    Integer(ns.into())
}
