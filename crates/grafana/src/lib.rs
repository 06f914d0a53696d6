//! Conversion of Grafana's dashboards to those of topdeck (`docs/formats/dashboard.md`).
#![forbid(unsafe_code)]

mod converted_dashboard;
mod grafana_variables;

pub use converted_dashboard::{ConvertedDashboard, ImportNote};
