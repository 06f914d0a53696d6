//! `/v1/slos` and `/v1/slo`: budgets of all SLOs, and one with its history.

use std::cmp::Ordering;

use query::QueryContext;
use role::json::Json::{self, Integer, List, Null, Object, Text};
use role::json::integer;
use role::time_expr::{TIME_SYNTAX, parse_time_parameter};
use role::{Parameter, RouteError, RouteFormat, RouteQuery, RouteSpec};
use rules::slo::{Objective, Quantity, ReportRange};
use store::{DAY, HOUR};

use crate::published_alerts::PublishedAlerts;
use crate::slo_json::{report_fields, slo_fields};
use crate::slo_maintenance::CorrectedSlo;
use crate::slo_service::{SloService, SloStatus};

/// Default length of a history.
const RANGE_NS: i64 = 30 * DAY;
/// Longest history: the period before it is read, too.
const RANGE_MAX_NS: i64 = 400 * DAY;

/// All SLOs.
pub(crate) static SLOS: RouteSpec = RouteSpec {
    name: "slos",
    path: "/v1/slos",
    about: "Service level objectives with their error budgets: unknown budgets first, then the \
            least budget left.",
    parameters: &[],
    format: RouteFormat::Json,
};

/// One SLO.
pub(crate) static SLO: RouteSpec = RouteSpec {
    name: "slo",
    path: "/v1/slo",
    about: "Budget of a service level objective over time, bad events by day, and what other \
            thresholds would have attained.",
    parameters: &[
        Parameter::text("name", "name of the SLO").required(),
        Parameter::text("from", "start of the history; default: 30 days before the end"),
        Parameter::text("to", "end of the history and time of the budget; default: now"),
        Parameter::text("threshold", "another largest good value, such as 250ms"),
        Parameter::text("objective", "another objective, such as 99.9%"),
    ],
    format: RouteFormat::Json,
};

/// Response of `/v1/slos`.
pub(crate) fn slos(service: &SloService, published: &PublishedAlerts) -> Json {
    let mut all = service.all();
    model::sort::by(&mut all, by_budget_left);
    let alerts = published.read();
    let now_ns = service.now();
    let slo = |status: &SloStatus| {
        let corrected = service.corrected(&status.slo, now_ns, now_ns);
        Object(slo_fields(&corrected, status.summary(), status, &alerts))
    };
    Object(vec![
        ("schema", integer(1)),
        ("time_ns", Integer(now_ns.into())),
        ("slos", List(all.iter().map(slo).collect())),
    ])
}

/// Unknown budgets first, then the least budget.
fn by_budget_left(a: &SloStatus, b: &SloStatus) -> Ordering {
    let left = |status: &SloStatus| {
        let remaining = status.summary().and_then(|summary| summary.remaining);
        remaining.map_or(f64::NEG_INFINITY, |remaining| remaining.estimate)
    };
    left(a).total_cmp(&left(b)).then_with(|| a.slo.name.cmp(&b.slo.name))
}

/// Response of `/v1/slo`.
pub(crate) fn slo(
    service: &SloService,
    published: &PublishedAlerts,
    query: &RouteQuery,
    context: &dyn QueryContext,
) -> Result<Json, RouteError> {
    let name = query.get("name").unwrap_or("");
    let all = service.all();
    let Some(status) = all.iter().find(|status| status.slo.name == name) else {
        let expected = expected_name(name, all.iter().map(|status| status.slo.name.as_str()));
        return Err(invalid("name", name, &expected));
    };
    let range = range(query, service.now())?;
    let threshold = match query.get("threshold") {
        None => None,
        Some(text) => Some(
            Quantity::parse(text)
                .ok_or_else(|| invalid("threshold", text, "a value such as 250ms"))?,
        ),
    };
    let objective = match query.get("objective") {
        None => None,
        Some(text) => Some(
            Objective::parse(text)
                .ok_or_else(|| invalid("objective", text, "a share such as 99.9% or 0.999"))?,
        ),
    };
    let corrected = service.corrected(&status.slo, range.from_ns, range.to_ns);
    let slo = corrected.slo.with(threshold, objective);
    let corrected = CorrectedSlo { slo: slo.clone(), ..corrected };
    let report = service.report(&slo, range, context);
    let alerts = published.read();
    let mut fields = vec![
        ("schema", integer(1)),
        ("from_ns", Integer(range.from_ns.into())),
        ("to_ns", Integer(range.to_ns.into())),
    ];
    match &report {
        Ok(report) => {
            fields.extend(slo_fields(&corrected, Some(&report.summary), status, &alerts));
            fields.retain(|(key, _)| *key != "error" && *key != "computed_ns");
            fields.push(("error", Null));
            fields.extend(report_fields(&slo, report));
        }
        Err(error) => {
            fields.extend(slo_fields(&corrected, None, status, &alerts));
            fields.retain(|(key, _)| *key != "error" && *key != "computed_ns");
            fields.push(("error", Text(error.to_string())));
        }
    }
    Ok(Object(fields))
}

/// What was expected instead of an unknown name: the nearest one, if one is near.
fn expected_name<'a>(found: &str, names: impl Iterator<Item = &'a str>) -> String {
    let max = 1 + found.chars().count().min(40) / 3;
    let near = names.filter_map(|name| Some((::query::edit_distance(found, name, max)?, name)));
    match near.min() {
        Some((_, name)) => format!("the name of an SLO; did you mean {name:?}?"),
        None => "the name of an SLO: /v1/slos has them".to_owned(),
    }
}

fn range(query: &RouteQuery, now_ns: i64) -> Result<ReportRange, RouteError> {
    let time = |key: &str, default: i64| match query.get(key) {
        None => Ok(default),
        Some(text) => {
            parse_time_parameter(text, now_ns).ok_or_else(|| invalid(key, text, TIME_SYNTAX))
        }
    };
    let to_ns = time("to", now_ns)?.min(now_ns);
    let from_ns = time("from", to_ns.saturating_sub(RANGE_NS))?;
    let is_valid = (HOUR..=RANGE_MAX_NS).contains(&to_ns.saturating_sub(from_ns));
    // No data is older than 1970.
    if !is_valid || from_ns < 0 {
        let found = query.get("from").unwrap_or("");
        let expected = "a time from 1970 on, 1 hour to 400 days before the end";
        return Err(invalid("from", found, expected));
    }
    Ok(ReportRange { from_ns, to_ns })
}

fn invalid(name: &str, found: &str, expected: &str) -> RouteError {
    RouteError::Parameter {
        name: name.to_owned(),
        found: found.to_owned(),
        expected: expected.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest_one() {
        let names = || ["checkout", "search"].into_iter();
        let near = "the name of an SLO; did you mean \"checkout\"?";
        assert_eq!(expected_name("chekout", names()), near);
        assert_eq!(expected_name("login", names()), "the name of an SLO: /v1/slos has them");
    }

    #[test]
    fn history_has_an_hour_to_400_days() {
        let now = 1_794_225_600_000_000_000;
        let check = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
            range(&RouteQuery::new(pairs.collect()), now)
        };
        assert_eq!(check(&[]), Ok(ReportRange { from_ns: now - 30 * DAY, to_ns: now }));
        let past = check(&[("from", "-3d"), ("to", "-2d")]);
        assert_eq!(past, Ok(ReportRange { from_ns: now - 3 * DAY, to_ns: now - 2 * DAY }));
        let before_time = [("from", "-9223372036854775808ns"), ("to", "-9223372036847575808ns")];
        for bad in
            [[("from", "-500d"), ("to", "now")], [("from", "now"), ("to", "now")], before_time]
        {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }
}
