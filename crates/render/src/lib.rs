//! What people read: numbers with their units, tables, and pictures of distributions.
//!
//! Numbers: [`value_formatter`], [`number_formatter`], [`time`], [`bytes`], [`text`]. Pictures:
//! [`chart`] has axes, scales and cells, and knows no medium; [`terminal`], [`svg`] and [`json`]
//! are the three outputs. Nothing here reads a clock, a file or an option of the command line; only
//! [`terminal::Terminal::new`] looks at the environment.
#![forbid(unsafe_code)]

pub mod bytes;
pub mod chart;
pub mod decades;
pub mod json;
pub mod merged_distribution;
pub mod number_formatter;
pub mod svg;
pub mod table;
pub mod terminal;
pub mod text;
pub mod threshold_count;
pub mod time;
pub mod value_formatter;
