//! Retention rules as text and JSON.

use model::Selector;
use query::selector_text;
use render::json::Json::{self, List, Null, Object, Text};
use render::table::format_table;
use render::time::duration_text;
use store::{Resolution, RetentionRule};

const YEAR_NS: i64 = 365 * 86_400_000_000_000;

/// A rule as typed: resolution, duration and selector.
pub fn retention_rule_text(keep: &RetentionRule) -> String {
    let written = |ns: i64| match ns % YEAR_NS {
        0 => format!("{}y", ns / YEAR_NS),
        _ => duration_text(ns).replace(' ', ""),
    };
    let duration = keep.duration.map_or_else(|| "forever".to_owned(), written);
    match &keep.selector {
        Selector::All => format!("{} {duration}", keep.resolution),
        selector => format!("{} {duration} {}", keep.resolution, selector_text(selector)),
    }
}

/// Rules as lines.
pub fn retention_text(keep: &[RetentionRule]) -> String {
    if keep.is_empty() {
        return "Retention: unlimited.\n".to_owned();
    }
    let rows: Vec<[String; 1]> = keep.iter().map(|keep| [retention_rule_text(keep)]).collect();
    let all = Resolution::ALL.iter();
    let forever: Vec<&str> = all
        .filter(|&&resolution| {
            let mut rules = keep.iter().filter(|keep| keep.resolution == resolution);
            !rules.any(|keep| keep.selector == Selector::All)
        })
        .map(|resolution| resolution.name())
        .collect();
    let mut text = format!("Retention:\n{}", format_table(&rows, [false]));
    if !forever.is_empty() {
        text.push_str(&format!(
            "The first rule that matches a sample's resolution and series applies; samples \
             without a rule are kept forever ({}).\n",
            forever.join(", ")
        ));
    }
    text
}

/// Rules as JSON.
pub fn retention_json(keep: &[RetentionRule]) -> Json {
    let rule = |keep: &RetentionRule| {
        Object(vec![
            ("rule", Text(retention_rule_text(keep))),
            ("resolution", Text(keep.resolution.name().to_owned())),
            ("duration_ns", keep.duration.map_or(Null, |ns| Json::Integer(ns.into()))),
            ("selector", Text(selector_text(&keep.selector))),
        ])
    };
    List(keep.iter().map(rule).collect())
}
