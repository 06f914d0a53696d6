//! Model and pages of `topdeck top`: every process of this host with metrics, over time.
//!
//! [`process_monitor`] finds processes and samples them, in the detail requested by
//! [`detail_selection`]; `metric_interval` is the change between two samples; `series_history`,
//! `process_history` and [`app_state`] keep the changes and the selection; `columns` and
//! `column_table` format them, [`page_view`] draws the screen and [`once`] the text. Only
//! [`process_monitor`] reads files; this module does not write to the terminal.

mod ansi;
pub mod app_state;
mod column_table;
mod columns;
pub mod detail_selection;
mod distribution;
#[cfg(test)]
mod fixtures;
pub mod keys;
mod metric_interval;
pub mod once;
pub mod page_view;
mod partial_value;
mod process_history;
pub mod process_monitor;
mod process_sample;
mod series_history;
mod sort_order;

use crate::top::app_state::AppState;
use crate::top::detail_selection::DetailSelection;
use crate::top::process_monitor::ProcessMonitor;

/// Samples all processes now.
pub fn sample_all(
    board: &mut AppState,
    watch: &mut ProcessMonitor,
    detail: &DetailSelection,
    after_pause: bool,
) {
    let samples = watch.sample_all(detail);
    let (at_ns, wall) = (clock::now(), clock::wall());
    board.errors.clone_from(&watch.errors);
    board.record_samples(samples, at_ns, wall.unix_ns, after_pause);
}

/// Message if there are no processes, with advice.
pub fn no_process_message(pattern: Option<&str>) -> String {
    match pattern {
        None => "no process of this host exposes metrics in shared memory that may be read: a \
                 program does once it uses the crate shm, or runs on a Java virtual machine"
            .to_owned(),
        Some(pattern) => format!(
            "no process with {pattern:?} in the name of its program, or as its id, exposes \
             metrics in shared memory that may be read; `topdeck ls` lists those that do"
        ),
    }
}
