//! `--once`: the table as text, for scripts and without a terminal.

use crate::top::app_state::AppState;
use crate::top::column_table::{ColumnTable, TableCell};
use crate::top::columns::{TableColumn, age_text, row_status};
use render::value_formatter;

/// Table of the changes between two samples.
pub fn snapshot_text(board: &AppState) -> String {
    let rows = board.visible_processes();
    let columns: Vec<TableColumn> = TableColumn::process_columns(&rows)
        .into_iter()
        .filter(|column| *column != TableColumn::Spark)
        .collect();
    let table = ColumnTable {
        headings: columns.iter().map(|column| column.heading(None)).collect(),
        rows: rows
            .iter()
            .map(|process| columns.iter().map(|column| column.process_cell(process)).collect())
            .collect(),
    };
    let mut lines = vec![summary_line(board, rows.len())];
    lines.extend(table.text(usize::MAX));
    let is_marked =
        |cell: &TableCell| matches!(cell, TableCell::Text(text, _) if text.starts_with('~'));
    if table.rows.iter().flatten().any(is_marked) {
        lines.push("~ only the bucket of the greatest value is known".to_owned());
    }
    for process in rows {
        if let Some(status) = row_status(process) {
            lines.push(format!("{} {}: {status}", process.pid, process.program));
        }
    }
    lines.join("\n") + "\n"
}

fn summary_line(board: &AppState, rows: usize) -> String {
    let noun = if rows == 1 { "process" } else { "processes" };
    let mut line = format!("{} {noun}", value_formatter::count(rows as u64));
    if let Some(moment) = board.last_sample {
        if let Some(length) = moment.interval_ns {
            let late = if moment.is_late { ", late" } else { "" };
            line.push_str(&format!(", the last {}{late}", age_text(length)));
        }
        line.push_str(&format!(
            ", {}",
            render::time::time_text(moment.unix_ns, render::time::NS_PER_S)
        ));
    }
    line
}
