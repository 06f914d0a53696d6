//! `--once`: the table as text, for scripts and whoever has no terminal.

use crate::hist::intervals;
use crate::hist::show;
use crate::top::board::Board;
use crate::top::columns::{Column, age_text, trouble};
use crate::top::table::{Cell, Table};

/// What was seen between two looks.
pub(crate) fn text(board: &Board) -> String {
    let rows = board.rows();
    let columns: Vec<Column> =
        Column::of_processes(&rows).into_iter().filter(|column| *column != Column::Spark).collect();
    let table = Table {
        headings: columns.iter().map(|column| column.heading(None)).collect(),
        rows: rows
            .iter()
            .map(|process| columns.iter().map(|column| column.of_process(process)).collect())
            .collect(),
    };
    let mut lines = vec![about(board, rows.len())];
    lines.extend(table.text(usize::MAX));
    let is_marked = |cell: &Cell| matches!(cell, Cell::Text(text, _) if text.starts_with('~'));
    if table.rows.iter().flatten().any(is_marked) {
        lines.push("~ only the bucket of the greatest value is known".to_owned());
    }
    for process in rows {
        if let Some(trouble) = trouble(process) {
            lines.push(format!("{} {}: {trouble}", process.pid, process.program));
        }
    }
    lines.join("\n") + "\n"
}

fn about(board: &Board, rows: usize) -> String {
    let noun = if rows == 1 { "process" } else { "processes" };
    let mut line = format!("{} {noun}", show::count(rows as u64));
    if let Some(moment) = board.moment {
        if let Some(length) = moment.length_ns {
            let late = if moment.is_late { ", late" } else { "" };
            line.push_str(&format!(", the last {}{late}", age_text(length)));
        }
        line.push_str(&format!(", {}", intervals::time(moment.unix_ns, intervals::NS_PER_S)));
    }
    line
}
