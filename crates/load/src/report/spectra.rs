//! Chart with the percentile spectra of response and service time. Where they diverge, requests
//! queued before they were sent.

use std::fmt::Write as _;

use crate::Tally;
use hist::Histogram;

use crate::report::statistics::{quantile_or_max, quantile_or_max_name, time_formatter};
use render::chart::axis::{Axis, PercentileAxis};
use render::chart::percentile_spectrum::PercentileSpectrum;
use render::merged_distribution::MergedDistribution;
use render::svg::curve::CurveFrame;
use render::svg::{self, CHAR_WIDTH, LEFT, PLOT, TextAnchor, line, text};

/// Height above the plot: title and legend.
const HEAD: f64 = 96.0;
const HEIGHT: f64 = 300.0;
const FOOT: f64 = 40.0;
const COLUMNS: usize = 282;

/// Style of the service time curve.
pub(crate) const STYLE: &str = ".service{stroke:#8250df;stroke-dasharray:7 4}.serviceband{fill:#8250df;fill-opacity:.18}.servicedot{fill:#8250df}@media(prefers-color-scheme:dark){.service{stroke:#bc8cff}.serviceband{fill:#bc8cff}.servicedot{fill:#bc8cff}}";

/// A curve: name, values, classes of its bounds, line, and maximum.
struct Curve<'a>(&'a str, &'a Histogram, [&'a str; 2], &'a str);

/// The chart as SVG; `None` without values.
pub(crate) fn element(id: &str, tally: &Tally) -> Option<String> {
    let curves = [
        Curve("service time", &tally.service, ["serviceband", "line service"], "servicedot"),
        // Drawn last, so that it stays visible where both coincide.
        Curve("response time", &tally.response, ["band", "line"], "dot"),
    ];
    let formatter = time_formatter();
    let nines =
        PercentileAxis::for_count(curves.iter().map(|curve| curve.1.count()).max().unwrap_or(0));
    let spectra = curves.iter().map(|curve| {
        let mut merged = MergedDistribution::default();
        merged.add(curve.1).ok()?;
        PercentileSpectrum::on_axis(nines, &merged, &formatter, COLUMNS)
    });
    let spectra: Vec<Option<PercentileSpectrum>> = spectra.collect();
    let ends = || spectra.iter().flatten().map(|spectrum| spectrum.axis);
    let low = ends().map(|axis| axis.low).fold(f64::INFINITY, f64::min);
    let high = ends().map(|axis| axis.high).fold(0.0, f64::max);
    if low > high {
        return None;
    }
    let frame =
        CurveFrame { axis: Axis { low, high }, percentiles: nines, top: HEAD, height: HEIGHT };
    let mut body = String::new();
    let title = "Percentile spectra";
    text(&mut body, (24.0, 36.0), "title", TextAnchor::Start, title);
    let about = "logarithmic percentile axis; where the curves diverge, requests queued before \
                 they were sent";
    text(&mut body, (24.0, 58.0), "faint", TextAnchor::Start, about);
    frame.draw(&mut body, &formatter);
    let (mut right, mut words) = (LEFT + PLOT, Vec::new());
    for (curve, spectrum) in curves.iter().zip(&spectra) {
        let Some(spectrum) = spectrum else { continue };
        let Curve(name, of, classes, dot) = curve;
        frame.curve(&mut body, &spectrum.columns, *classes);
        let Some(max) = of.max() else { continue };
        let y = frame.y(formatter.scale(max.estimate));
        let _ = writeln!(
            body,
            "<circle class=\"{dot}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>",
            frame.x(1.0)
        );
        let named = format!("{name}, max {}", formatter.value(max));
        right -= named.chars().count() as f64 * CHAR_WIDTH;
        text(&mut body, (right, HEAD - 14.0), "", TextAnchor::Start, &named);
        right -= 36.0;
        line(&mut body, classes[1], (right, HEAD - 18.0), (right + 28.0, HEAD - 18.0));
        right -= 24.0;
        let values = [0.5, 0.99, 0.999].into_iter().filter_map(|q| {
            let value = formatter.value(quantile_or_max(of, q)?);
            Some(format!("{} {value}", quantile_or_max_name(q)))
        });
        let values: Vec<String> = values.collect();
        words.push(format!("{name}: {}, max {}.", values.join(", "), formatter.value(max)));
    }
    let height = HEAD + HEIGHT + FOOT;
    Some(svg::element(id, title, &words.join(" "), height, "", &body))
}
