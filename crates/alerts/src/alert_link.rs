//! Address of the page that shows what an alert measured.

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rules::{Alert, Rule};

/// Time that is shown before and after the begin of the alert, as by the links of the page.
const AROUND_NS: i64 = 30 * 60 * 1_000_000_000;
/// Longest link. Receivers reject addresses above 2,000 bytes or more, and the message with it.
const LINK_BYTES_MAX: usize = 1_500;
/// Version of links with current names (`web/src/lib/link.ts`).
const LINK_VERSION: &str = "2";
/// Characters that stay as they are in the value of a setting.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b':').remove(b',');

/// The series of an alert around its begin: the view Explore, with the threshold of a criterion; of
/// a formula, which has no series, or of a long expression, the view Alerts. `None` if
/// `external_url` is not set.
pub(crate) fn alert_link(external_url: &str, rule: &Rule, alert: &Alert) -> Option<String> {
    let alerts = page_link(external_url)?;
    let page = external_url.trim_end_matches('/');
    let own = rule.condition();
    let series = match own.map_or("promql", |own| own.language()) {
        "formula" => return Some(alerts),
        "selector" => vec![("selector", rule.expression.clone())],
        language => {
            vec![("language", language.to_owned()), ("query", rule.expression.clone())]
        }
    };
    let criterion = alert.matched.as_ref().map(|matched| matched.criterion);
    let threshold = own
        .filter(|own| own.has_selector())
        .and_then(|own| criterion.and_then(|criterion| own.limit_text(criterion)));
    let since_ns = alert.fired_at_ns.unwrap_or(alert.active_at_ns);
    let mut settings = series;
    settings.push(("from", time_text(since_ns.saturating_sub(AROUND_NS))?));
    settings.push(("to", time_text(since_ns.saturating_add(AROUND_NS))?));
    settings.extend(threshold.map(|threshold| ("threshold", threshold)));
    model::sort::by(&mut settings, Ord::cmp);
    settings.push(("v", LINK_VERSION.to_owned()));
    let settings: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, ESCAPED)))
        .collect();
    let link = format!("{page}/#/explore?{}", settings.join("&"));
    Some(if link.len() > LINK_BYTES_MAX { alerts } else { link })
}

/// The view Alerts; `None` if nobody said where the page is.
pub(crate) fn page_link(external_url: &str) -> Option<String> {
    let page = external_url.trim_end_matches('/');
    (!external_url.is_empty()).then(|| format!("{page}/#/alerts"))
}

/// `2026-11-22T05:00:00Z`.
fn time_text(ns: i64) -> Option<String> {
    let seconds = Timestamp::from_second(ns.div_euclid(1_000_000_000)).ok()?;
    Some(seconds.to_string())
}
