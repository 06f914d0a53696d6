//! Axes, scales and cells of charts, shared by all outputs: position of a value, tick values, and
//! counts per cell.
//!
//! Positions are fractions of an axis, 0 to 1. Values are in the chart unit, which is nanoseconds
//! for times ([`ValueFormatter::scale`](crate::value_formatter::ValueFormatter::scale)).

pub mod axis;
pub(crate) mod colour_scale;
pub(crate) mod distribution_columns;
pub mod heatmap;
pub(crate) mod heatmap_rows;
pub mod percentile_spectrum;
pub(crate) mod time_axis;
