//! Axes, scales and cells of pictures, for every output: where a value is drawn, which values are
//! named beside an axis, and how much falls into a cell.
//!
//! Places are shares of an axis, 0 to 1. Values are in the unit of pictures, which is nanoseconds
//! for times ([`ValueFormatter::scale`](crate::value_formatter::ValueFormatter::scale)).

pub mod axis;
pub(crate) mod colour_scale;
pub(crate) mod density_shape;
pub mod heatmap;
pub(crate) mod heatmap_rows;
pub mod percentile_spectrum;
pub(crate) mod time_axis;
