//! Distributions of values in files: `topdeck hist`.
//!
//! [`collect`] reads files through `collect` into groups of one merged distribution each. The
//! reports draw the groups: as text with charts, as a table over time, as heatmaps, as a comparison
//! of two files, and as JSON.

mod collected_input;
mod distribution_document;
mod group;
mod group_comparison;
mod heatmap;
mod intervals;
mod number_recorder;
mod text;
mod threshold_count;

use std::path::PathBuf;

use ::decode::{InputFormat, Quantity, Unit};

use crate::error::{Result, bail};

pub use collected_input::{CollectedInput, HEAD_BYTES, collect, collect_snapshot, display_name};
pub use distribution_document::distribution_json;
pub use group::DistributionGroup;
pub use group_comparison::comparison_text;
pub use heatmap::{heatmap_svg, heatmap_text};
pub use number_recorder::NumberRecorder;
pub use text::{distribution_svg, distribution_text};

/// What to read and to report.
#[derive(Clone, Debug, Default)]
pub struct DistributionOptions {
    /// Input files; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Unit of values without one.
    pub unit: Option<Unit>,
    /// Input format; detected by content if absent.
    pub format: Option<InputFormat>,
    /// Thresholds whose exceedances are counted.
    pub above: Vec<Quantity>,
    /// Quantiles to report; the default ones if empty.
    pub quantile: Vec<f64>,
    /// What separates groups: `tag`, `file`, `series` or a label.
    pub by: Option<String>,
    /// Only this metric.
    pub metric: Option<String>,
    /// Row length of a table over time.
    pub interval: Option<Quantity>,
    /// Whether groups are drawn as heatmaps.
    pub heatmap: bool,
    /// Maximum number of columns of a heatmap.
    pub columns: Option<u16>,
    /// Whether two files are compared.
    pub compare: bool,
    /// Whether the readable part of a damaged input is reported.
    pub keep_going: bool,
}

/// Remedy for an unknown format: an option with the known ones.
pub fn format_remedy() -> String {
    let names = InputFormat::ALL.map(InputFormat::name);
    format!("set the format with --format: {}", names.join(", "))
}

/// Quantiles shown by default.
const DEFAULT_QUANTILES: [f64; 8] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999];

impl DistributionOptions {
    fn quantiles(&self) -> &[f64] {
        if self.quantile.is_empty() { &DEFAULT_QUANTILES } else { &self.quantile }
    }
}

/// Row length of the table over time, in nanoseconds.
pub fn interval_ns(quantity: &Quantity) -> Result<i64> {
    let ns = quantity.unit().and_then(|_| quantity.value_in(Some(&Unit::Nanoseconds)));
    match ns {
        Some(ns) if (1.0..1e18).contains(&ns) => Ok(ns as i64),
        _ => bail!("--interval {quantity}: expected a duration with a unit, such as 10s"),
    }
}
