//! What the commands that look at processes have in common: [`find`] gets from what a person types to a process, [`values`] and
//! [`derived`] write what it shows, [`operations`] is about what is in flight, [`moment`] about as of when that is told,
//! [`change`] about what happened between two looks; [`alarm`] waits for the next.

pub(crate) mod derived;
pub(crate) mod find;
pub(crate) mod listing;
pub(crate) mod metric_patterns;
pub(crate) mod operations;
pub(crate) mod process_waiter;
pub(crate) mod reference_time;
pub(crate) mod report;
pub(crate) mod value_change;
pub(crate) mod values;
