//! Chart of query cost by size: a panel per varied parameter, both axes logarithmic.
//!
//! Contenders differ in colour and in the shape of their points. The chart supports a dark and a
//! light theme.

use std::fmt::Write as _;

use super::query_results::{QueryResults, samples};
use super::range_query::Sweep;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 330.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 270.0;
/// Distance of the left edges of two panels, and the width of a panel.
const LEFT: f64 = 70.0;
const PANEL_DISTANCE: f64 = 300.0;
const PANEL: f64 = 250.0;

const STYLE: &str = "text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#24292f}.heading{font-weight:600}.faint{fill:#57606a}.paper{fill:#fff}.grid{stroke:#d8dee4}path{fill:none;stroke-width:2.5;stroke-linejoin:round}path.c0{stroke:#1f6fb2}.m0,text.c0{fill:#1f6fb2}path.c1{stroke:#bc4c00}.m1,text.c1{fill:#bc4c00}text.c0,text.c1{font-weight:600}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#9da7b1}.paper{fill:#0d1117}.grid{stroke:#262c34}path.c0{stroke:#79c0ff}.m0,text.c0{fill:#79c0ff}path.c1{stroke:#ffa657}.m1,text.c1{fill:#ffa657}}";

/// The chart of at most two contenders, because there are two colours.
pub(super) fn svg(lanes: &[&QueryResults]) -> String {
    let lanes = &lanes[..lanes.len().min(2)];
    let decades = decades(lanes);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-labelledby=\"title\">\n<title \
         id=\"title\">CPU time of a query by span, series and \
         step</title>\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" \
         height=\"100%\" rx=\"6\"/>\n"
    );
    let _ =
        writeln!(out, "<text x=\"{LEFT}\" y=\"24\" class=\"heading\">CPU time of a query</text>");
    for (at, lane) in lanes.iter().enumerate() {
        let x = LEFT + PANEL_DISTANCE + 300.0 * at as f64;
        marker(&mut out, at, x - 12.0, 20.0);
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"24\" class=\"c{at}\">{}</text>",
            escaped(&lane.name)
        );
    }
    for (panel, sweep) in Sweep::ALL.into_iter().enumerate() {
        draw(&mut out, LEFT + PANEL_DISTANCE * panel as f64, sweep, lanes, decades);
    }
    out + "</svg>\n"
}

/// Powers of ten of a millisecond that enclose all points.
fn decades(lanes: &[&QueryResults]) -> (i32, i32) {
    let all = || lanes.iter().flat_map(|one| &one.sweep_points).map(|one| cost(&one.query.cpu_ms));
    let least = all().fold(f64::INFINITY, f64::min).min(1e6);
    let greatest = all().fold(0.0, f64::max).max(least);
    let (low, high) = (least.log10().floor() as i32, greatest.log10().ceil() as i32);
    (low, high.max(low + 1))
}

/// The plotted cost; with clock ticks of 10 ms, one tick may not differ from 0.
fn cost(cpu_ms: &[f64]) -> f64 {
    let median = samples(cpu_ms).median();
    if median > 0.0 { median } else { 1.0 }
}

fn draw(
    out: &mut String,
    left: f64,
    sweep: Sweep,
    lanes: &[&QueryResults],
    (low, high): (i32, i32),
) {
    let y_of = |ms: f64| {
        let part = (ms.log10() - f64::from(low)) / f64::from(high - low);
        BOTTOM - part * (BOTTOM - TOP)
    };
    for decade in low..=high {
        let (y, right) = (y_of(10f64.powi(decade)), left + PANEL);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>"
        );
        if sweep == Sweep::ALL[0] {
            let (x, y, text) = (left - 8.0, y + 4.0, duration(decade));
            let _ = writeln!(
                out,
                "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\" class=\"faint\">{text}</text>"
            );
        }
    }
    let of = |lane: &QueryResults| -> Vec<(f64, f64)> {
        let swept = lane.sweep_points.iter().filter(|one| one.sweep == sweep);
        swept.map(|one| (one.size, cost(&one.query.cpu_ms))).collect()
    };
    let sizes: Vec<f64> =
        lanes.first().map(|lane| of(lane)).unwrap_or_default().iter().map(|one| one.0).collect();
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return };
    let wide = (last / first).ln();
    // Points keep a distance from the edges of their panel.
    let x_of = |size: f64| {
        let part = if wide > 0.0 { (size / first).ln() / wide } else { 0.5 };
        left + 18.0 + part * (PANEL - 36.0)
    };
    for &size in &sizes {
        let (x, y, text) = (x_of(size), BOTTOM + 20.0, sweep.size(size));
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\" class=\"faint\">{text}</text>"
        );
    }
    let (middle, y) = (left + PANEL / 2.0, BOTTOM + 42.0);
    let about = sweep.description();
    let _ = writeln!(out, "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\">{about}</text>");
    for (at, lane) in lanes.iter().enumerate() {
        let points: Vec<(f64, f64)> =
            of(lane).into_iter().map(|(size, ms)| (x_of(size), y_of(ms))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(out, "<path class=\"c{at}\" d=\"M{}\"/>", path.join("L"));
        for (x, y) in points {
            marker(out, at, x, y);
        }
    }
}

/// A circle or a square.
fn marker(out: &mut String, at: usize, x: f64, y: f64) {
    let _ = match at {
        0 => writeln!(out, "<circle class=\"m0\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        _ => {
            let (x, y) = (x - 4.0, y - 4.0);
            writeln!(out, "<rect class=\"m1\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"8\" height=\"8\"/>")
        }
    };
}

/// Formats a power of ten of a millisecond.
fn duration(decade: i32) -> String {
    match decade {
        3.. => format!("{} s", 10f64.powi(decade - 3)),
        0..3 => format!("{} ms", 10f64.powi(decade)),
        _ => format!("{} µs", 10f64.powi(decade + 3)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::query_results::SweepPoint;
    use crate::store::QueryCost;

    fn lane(name: &str, ms: f64) -> QueryResults {
        let mut results = QueryResults::new(name);
        for sweep in Sweep::ALL {
            for size in [1.0, 2.0, 4.0] {
                let cpu_ms = vec![ms * size];
                let wall_ms = cpu_ms.clone();
                let query =
                    QueryCost { key: "sweep", cpu_ms, wall_ms, answer_bytes: 0, memory_bytes: 0 };
                results.sweep_points.push(SweepPoint { sweep, size, query });
            }
        }
        results
    }

    #[test]
    fn every_point_is_drawn_within_the_picture() {
        let (one, other) = (lane("a", 0.3), lane("b < c", 800.0));
        let svg = svg(&[&one, &other]);
        assert_eq!(svg.matches("<path").count(), 6);
        // Nine points of each, and one in the legend.
        assert_eq!(svg.matches("<circle").count(), 10);
        assert_eq!(svg.matches("<rect class=\"m1\"").count(), 10);
        assert!(svg.contains("b &lt; c") && svg.contains(">100 µs<") && svg.contains(">10 s<"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
