//! Picture of an alert: heatmap of its series in the last hour, with the threshold.

use decode::Unit;
use journal::supervisor::catch_panic;
use notify::Picture;
use query::Source;
use render::chart::heatmap::{Heatmap, HeatmapColumn};
use render::merged_distribution::MergedDistribution;
use render::raster;
use render::time::format_time;
use render::value_formatter::ValueFormatter;
use rules::AffectedSeries;
use store::TimeGrid;

/// Width of a column, and their number.
const COLUMN_NS: i64 = 60 * 1_000_000_000;
const COLUMNS: u16 = 60;

/// Picture of the hour before a time; `None` without values, or if they cannot be read. A bug in
/// the drawing costs the picture, not the message.
pub(crate) fn alert_picture(
    series: &AffectedSeries,
    source: &dyn Source,
    now_ns: i64,
) -> Option<Picture> {
    // The last column has the minute that is not over yet.
    let end_ns = now_ns.div_euclid(COLUMN_NS).saturating_add(1).saturating_mul(COLUMN_NS);
    let start_ns = end_ns.saturating_sub(i64::from(COLUMNS) * COLUMN_NS);
    let grid = TimeGrid { start: start_ns, step: COLUMN_NS, columns: u64::from(COLUMNS) };
    let found = series.columns(source, grid).ok()??;
    let column = |(start, values)| HeatmapColumn {
        start,
        end: start + COLUMN_NS,
        values: MergedDistribution::from(values),
        gaps: Vec::new(),
    };
    let starts = (0..i64::from(COLUMNS)).map(|at| start_ns + at * COLUMN_NS);
    let map = Heatmap {
        title: String::new(),
        unit: found.unit,
        columns: starts.zip(found.values).map(column).collect(),
        thresholds: found.threshold.into_iter().collect(),
        warnings: Vec::new(),
    };
    if map.columns.iter().all(|column| column.values.is_empty()) {
        return None;
    }
    let alt = alt_text(map.unit.as_ref(), found.threshold, now_ns);
    let drawn = catch_panic(|| raster::heatmap::picture(&map).ok());
    Some(Picture { png: drawn.ok()??, alt })
}

/// "Heatmap of the hour before 2023-11-14 22:18:20Z, threshold 250 ms".
fn alt_text(unit: Option<&Unit>, threshold: Option<f64>, now_ns: i64) -> String {
    let hour = format!("Heatmap of the hour before {}", format_time(now_ns));
    match threshold {
        Some(threshold) => {
            format!("{hour}, threshold {}", ValueFormatter::new(unit).exact(threshold))
        }
        None => hour,
    }
}
