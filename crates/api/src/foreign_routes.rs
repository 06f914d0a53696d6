//! Paths of Prometheus and of servers like it that topdeck does not serve, and what to use instead.

use http::Uri;

/// Views of the page that have what a page of Prometheus has.
const VIEWS: [(&str, &str); 5] = [
    ("/alerts", "/#/alerts"),
    ("/graph", "/#/explore"),
    ("/rules", "/#/alerts"),
    ("/status", "/#/status"),
    ("/targets", "/#/sources"),
];
/// File that browsers ask for without a link to it, and ours.
const ICON: (&str, &str) = ("/favicon.ico", "/icon.svg");

/// Path, and the remedy. A path with a slash at its end stands for all that begin with it.
const REMEDIES: [(&str, &str); 18] = [
    ("/-/quit", "SIGTERM stops the server"),
    ("/-/reload", "SIGHUP reads the settings again"),
    ("/alerts", "open /#/alerts"),
    ("/graph", "open /#/explore"),
    ("/rules", "open /#/alerts"),
    ("/status", "open /#/status"),
    ("/targets", "open /#/sources"),
    ("/api/v1/admin/tsdb/clean_tombstones", "deleted samples leave no tombstones to clean"),
    ("/api/v1/admin/tsdb/delete_series", "use `topdeck delete`, or POST to /v1/series/delete"),
    ("/api/v1/admin/tsdb/snapshot", "use `topdeck snapshot`, or POST to /v1/snapshots"),
    ("/api/v1/import/", "POST to /v1/import, which detects the format"),
    ("/api/v1/parse_query", "/api/v1/format_query says whether an expression is valid"),
    ("/api/v1/push", "Prometheus' remote write is received at /api/v1/write"),
    ("/api/v1/scrape_pools", "/api/v1/targets has the scrapePool of each target"),
    ("/api/v1/targets/relabel_steps", "topdeck does not relabel targets"),
    ("/ping", "/health says whether the server is well"),
    ("/query", "databases need not be created; PromQL is answered at /api/v1/query"),
    ("/metrics/job/", "topdeck is no Pushgateway: POST the text to /v1/import"),
];

/// Where a browser finds what it asks for, so that links of runbooks work: with the expression and
/// the duration of the graph of Prometheus. Other clients are told by [`remedy`].
pub(crate) fn browser_address(uri: &Uri, accepts_html: bool) -> Option<String> {
    if uri.path() == ICON.0 {
        return Some(ICON.1.to_owned());
    }
    let (_, view) = VIEWS.iter().find(|(path, _)| accepts_html && *path == uri.path())?;
    let setting = |name: &str| {
        let mut pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|pair| pair.0 == name && !pair.1.is_empty()).map(|pair| pair.1)
    };
    let Some(expression) = setting("g0.expr") else { return Some((*view).to_owned()) };
    let from = setting("g0.range_input").map_or_else(String::new, |of| format!("&from=-{of}"));
    Some(format!("{view}?language=promql&query={expression}{from}&v=2"))
}

/// What to use instead of a path.
pub(crate) fn remedy(path: &str) -> &'static str {
    let is_meant = |known: &str| match known.ends_with('/') {
        true => path.starts_with(known),
        false => path == known,
    };
    let found = REMEDIES.iter().find(|(known, _)| is_meant(known));
    found.map_or("see /v1/openapi.json", |(_, remedy)| remedy)
}
