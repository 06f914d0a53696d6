//! Rendering for people: numbers with units, tables, and charts of distributions.
//!
//! Numbers: [`value_formatter`], [`number_formatter`], [`time`], [`bytes`], [`text`]. Charts:
//! [`chart`] has axes, scales and cells, independent of the output; [`terminal`], [`svg`],
//! [`raster`] and [`json`] are the outputs. Nothing here reads a clock, a file or a command line
//! option; only [`terminal::Terminal::new`] reads the environment.
#![forbid(unsafe_code)]

pub mod bytes;
pub mod chart;
pub mod decades;
pub mod json;
pub mod merged_distribution;
pub mod number_formatter;
pub mod raster;
pub mod svg;
pub mod table;
pub mod terminal;
pub mod text;
pub mod threshold_count;
pub mod time;
pub mod value_formatter;
