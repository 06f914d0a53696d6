//! Cardinality as text: metrics, labels and label values with the most series.

use render::table::format_table;
use render::text::{escape_control, plural};
use render::value_formatter;
use store::Cardinality;

/// Tables of the largest metrics, labels and label values. `source` is the directory of the store,
/// or the URL of the server.
pub fn cardinality_text(source: &str, cardinality: &Cardinality) -> String {
    let mut text = format!(
        "{}\n  {} of {}, with {}\n",
        escape_control(source),
        plural(cardinality.series, "series", "series"),
        plural(cardinality.metrics, "metric", "metrics"),
        plural(cardinality.labels, "label", "labels")
    );
    let head = |names: [&str; 2]| names.map(str::to_owned);
    let metrics = cardinality
        .by_metric
        .iter()
        .map(|(name, n)| [escape_control(name), value_formatter::count(*n)]);
    let metrics: Vec<_> = [head(["metric", "series"])].into_iter().chain(metrics).collect();
    let labels = cardinality.by_label.iter().map(|label| {
        [
            escape_control(&label.name),
            value_formatter::count(label.values),
            value_formatter::count(label.series),
        ]
    });
    let labels: Vec<_> =
        [["label", "values", "series"].map(str::to_owned)].into_iter().chain(labels).collect();
    let pairs = cardinality.by_pair.iter().map(|(name, value, n)| {
        [escape_control(&format!("{name}={value:?}")), value_formatter::count(*n)]
    });
    let pairs: Vec<_> = [head(["label and value", "series"])].into_iter().chain(pairs).collect();
    let tables = [
        (metrics.len(), format_table(&metrics, [false, true])),
        (labels.len(), format_table(&labels, [false, true, true])),
        (pairs.len(), format_table(&pairs, [false, true])),
    ];
    for (lines, table) in tables {
        if lines > 1 {
            text.push_str(&format!("\n{table}"));
        }
    }
    text
}
