//! Rows of a CSV table under construction.

use render::time::time_text;
use serde_json::Value;

/// A column of a field of a row, and whether it has bounds.
pub(super) type FieldColumn = (&'static str, bool);

/// Rows whose columns appear in the order of their first use.
#[derive(Default)]
pub(super) struct CsvRows {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl CsvRows {
    /// Adds columns, in this order.
    pub(super) fn add_columns(&mut self, columns: &[FieldColumn]) {
        for (name, has_bounds) in columns {
            self.columns.push((*name).to_owned());
            if *has_bounds {
                let bounds = ["lower", "upper"].map(|bound| format!("{name}_{bound}"));
                self.columns.extend(bounds);
            }
        }
    }

    pub(super) fn start_row(&mut self) {
        self.rows.push(Vec::new());
    }

    /// Sets a cell of the last row.
    pub(super) fn set(&mut self, column: &str, text: String) {
        let at = self.columns.iter().position(|known| known == column).unwrap_or_else(|| {
            self.columns.push(column.to_owned());
            self.columns.len() - 1
        });
        let row = self.rows.last_mut().expect("BUG: a row was started");
        if row.len() <= at {
            row.resize(at + 1, String::new());
        }
        row[at] = text;
    }

    /// Sets the cells of a value: three of a statistic with bounds, one of another value.
    pub(super) fn set_value(&mut self, column: &str, value: &Value) {
        if value.get("estimate").is_none() {
            return self.set(column, plain_text(value));
        }
        self.set(column, plain_text(&value["estimate"]));
        self.set(&format!("{column}_lower"), plain_text(&value["lower"]));
        self.set(&format!("{column}_upper"), plain_text(&value["upper"]));
    }

    pub(super) fn set_time(&mut self, column: &str, ns: &Value) {
        let text = ns.as_i64().map(|ns| time_text(ns, 1).replace(' ', "T"));
        self.set(column, text.unwrap_or_default());
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |cells: &[String]| {
            let blank = std::iter::repeat_n("", self.columns.len().saturating_sub(cells.len()));
            let cells: Vec<String> =
                cells.iter().map(String::as_str).chain(blank).map(quoted).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        };
        if !self.columns.is_empty() {
            line(&self.columns);
        }
        self.rows.iter().for_each(|row| line(row));
        text
    }
}

/// A cell, in quotes if it needs them.
fn quoted(cell: &str) -> String {
    match cell.contains(['"', ',', '\n', '\r']) || cell.trim() != cell {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

pub(super) fn plain_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
