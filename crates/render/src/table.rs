//! Text tables: columns as wide as their cells; if a row does not fit, its first cell gets a line
//! of its own.

use crate::terminal::{Terminal, TextStyle};

/// Space between two columns.
const GAP: usize = 2;
/// Header of a first column of timestamps; such cells stay on the line of their row.
pub const TIME: &str = "time";
/// Left margin.
const MARGIN: usize = 2;

/// Text table. Columns without a cell are not shown.
pub struct TextTable {
    head: Vec<String>,
    /// Whether a column is right-aligned (numbers).
    right: Vec<bool>,
    rows: Vec<TextRow>,
}

enum TextRow {
    Cells(Vec<String>),
    /// Line across all columns, between rows.
    Remark(String),
}

impl TextTable {
    /// Table with a header per column, which may be empty, and its alignment (true: right).
    pub fn new(columns: &[(&str, bool)]) -> TextTable {
        let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        TextTable {
            head,
            right: columns.iter().map(|(_, right)| *right).collect(),
            rows: Vec::new(),
        }
    }

    /// Left-aligns a column that contains text.
    pub fn left_align(&mut self, column: usize, is_text: bool) {
        self.right[column] &= !is_text;
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.right.len(), "BUG: a cell for each column");
        self.rows.push(TextRow::Cells(cells));
    }

    /// Adds a line across all columns.
    pub fn remark(&mut self, text: String) {
        self.rows.push(TextRow::Remark(text));
    }

    fn cells(&self) -> impl Iterator<Item = &Vec<String>> {
        self.rows.iter().filter_map(|row| match row {
            TextRow::Cells(cells) => Some(cells),
            TextRow::Remark(_) => None,
        })
    }

    /// Width of each column in characters; 0 if it is not shown.
    fn widths(&self) -> Vec<usize> {
        let of = |at: usize| {
            let widest = self.cells().map(|row| row[at].chars().count()).max().unwrap_or(0);
            if widest == 0 { 0 } else { widest.max(self.head[at].chars().count()) }
        };
        (0..self.right.len()).map(of).collect()
    }

    /// Width of a line in characters.
    pub fn width(&self) -> usize {
        let widths: Vec<usize> = self.widths().into_iter().filter(|width| *width > 0).collect();
        MARGIN + widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
    }

    /// Formatted table. If it is wider than the terminal, first cells get lines of their own,
    /// provided that this makes it fit.
    pub fn text(&self, terminal: &Terminal) -> String {
        let widths = self.widths();
        let first = widths.first().copied().unwrap_or(0);
        let is_named = self.head.first().is_some_and(|head| head != TIME) && widths.len() > 1;
        let is_broken = is_named && self.width() > terminal.width && first > INDENT;
        let mut text = String::new();
        let mut line = |line: &str, paint: Option<TextStyle>| {
            let line = line.trim_end();
            let line = paint.map_or_else(|| line.to_owned(), |paint| terminal.paint(paint, line));
            text.push_str(&line);
            text.push('\n');
        };
        if self.head.iter().zip(&widths).any(|(name, width)| *width > 0 && !name.is_empty()) {
            match is_broken {
                true => line(&self.wrapped_row(&self.head, &widths), Some(TextStyle::Faint)),
                false => line(&self.line(&self.head, &widths), Some(TextStyle::Faint)),
            }
        }
        for row in &self.rows {
            match row {
                TextRow::Remark(aside) => line(&format!("  {aside}"), Some(TextStyle::Faint)),
                TextRow::Cells(cells) if is_broken => {
                    line(&format!("  {}", cells[0]), None);
                    line(&self.wrapped_row(cells, &widths), None);
                }
                TextRow::Cells(cells) => line(&self.line(cells, &widths), None),
            }
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let cell = |at: usize| {
            let blank = " ".repeat(widths[at].saturating_sub(cells[at].chars().count()));
            if self.right[at] { blank + &cells[at] } else { cells[at].clone() + &blank }
        };
        let shown = (0..cells.len()).filter(|at| widths[*at] > 0).map(cell);
        " ".repeat(MARGIN) + &shown.collect::<Vec<_>>().join(&" ".repeat(GAP))
    }

    /// All columns except the first.
    fn wrapped_row(&self, cells: &[String], widths: &[usize]) -> String {
        let (mut cells, mut widths) = (cells.to_vec(), widths.to_vec());
        (cells[0], widths[0]) = (String::new(), INDENT);
        self.line(&cells, &widths)
    }
}

/// Aligns the columns of lines; the last column is not padded.
pub fn format_table<const N: usize>(rows: &[[String; N]], right: [bool; N]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(at, cell)| match right[at] {
            true => format!("{cell:>0$}", widths[at]),
            false => format!("{cell:<0$}", widths[at]),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(&format!("  {}\n", line.trim_end()));
    }
    text
}

/// Indentation of the remaining cells below the first one.
const INDENT: usize = 2;

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::terminal::ColourDepth;

    #[track_caller]
    fn check(width: usize, expected: Expect) {
        let colours = ColourDepth::None;
        let terminal =
            Terminal { width, raw_width: width, height: 24, ascii: false, colour_depth: colours };
        let mut table = TextTable::new(&[("stream", false), ("value", true), ("bounds", false)]);
        table.row(["latency{host=\"web-1\"}", "1.8 s", ""].map(str::to_owned).to_vec());
        table.remark("(no value for 2 min)".to_owned());
        table.row(["all", "12.34 ms", ""].map(str::to_owned).to_vec());
        // The first line has no margin, so the margin of the other lines is visible.
        expected.assert_eq(&format!("{width} wide\n{}", table.text(&terminal)));
    }

    #[test]
    fn columns_fit_their_cells_and_empty_ones_are_hidden() {
        check(
            80,
            expect![[r#"
                80 wide
                  stream                    value
                  latency{host="web-1"}     1.8 s
                  (no value for 2 min)
                  all                    12.34 ms
            "#]],
        );
    }

    #[test]
    fn names_get_their_own_line_when_narrow() {
        check(
            30,
            expect![[r#"
                30 wide
                         value
                  latency{host="web-1"}
                         1.8 s
                  (no value for 2 min)
                  all
                      12.34 ms
            "#]],
        );
    }
}
