//! Scrape targets, checks and sources of a server, as text and as JSON.

use render::json::Json::{self, List, Object, Text};
use render::json::{integer, number};
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;

/// One target or source.
#[derive(Clone, Debug)]
pub struct ListedTarget {
    /// `scrape`, `check` or `source`.
    pub kind: &'static str,
    /// Labels as text.
    pub labels: String,
    /// `up`, `down`, `sending`, `absent` or `unknown`.
    pub state: &'static str,
    /// Whether it is up or sends.
    pub is_ok: bool,
    /// Share of successful attempts of the last hour; `None` for a source.
    pub success_share: Option<f64>,
    /// Longest attempt of the last hour.
    pub longest: String,
    /// Latest failure of the last hour, or how long a source is absent.
    pub failure: String,
}

/// Targets as a table.
pub fn targets_text(targets: &[ListedTarget]) -> String {
    let columns = [
        ("state", false),
        ("kind", false),
        ("target", false),
        ("successes, 1 h", true),
        ("longest, 1 h", true),
        ("latest failure", false),
    ];
    let mut table = TextTable::new(&columns);
    for target in targets {
        table.row(vec![
            target.state.to_owned(),
            target.kind.to_owned(),
            target.labels.clone(),
            target.success_share.map_or(String::new(), |of| format!("{:.2} %", of * 100.0)),
            target.longest.clone(),
            escape_control(&target.failure),
        ]);
    }
    table.text(&Terminal::new(false))
}

/// Targets as a JSON document.
pub fn targets_json(targets: &[ListedTarget]) -> Json {
    let targets = targets.iter().map(|target| {
        Object(vec![
            ("state", Text(target.state.to_owned())),
            ("kind", Text(target.kind.to_owned())),
            ("target", Text(target.labels.clone())),
            ("success_share", target.success_share.map_or(Json::Null, number)),
            ("longest", Text(target.longest.clone())),
            ("latest_failure", Text(target.failure.clone())),
        ])
    });
    Object(vec![("schema", integer(1)), ("targets", List(targets.collect()))])
}
