//! Column tables: columns are dropped by rank when space is short.

use ratatui_core::text::Span;

use render::terminal::TextStyle;
use render::terminal::sparkline::Sparkline;

/// Heading and layout of a column.
#[derive(Clone, Debug)]
pub(crate) struct ColumnHeading {
    pub(crate) text: String,
    /// Right-aligned, for numbers.
    pub(crate) is_right: bool,
    /// Columns of higher rank are dropped first.
    pub(crate) rank: u8,
    /// Minimum useful width; shorter contents take less.
    pub(crate) least: usize,
    /// Maximum width.
    pub(crate) most: usize,
}

/// Cell content.
#[derive(Clone, Debug)]
pub(crate) enum TableCell {
    Text(String, Option<TextStyle>),
    Spark(Sparkline),
}

/// Rows of cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnTable {
    pub(crate) headings: Vec<ColumnHeading>,
    pub(crate) rows: Vec<Vec<TableCell>>,
}

/// Visible column and its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VisibleColumn {
    column: usize,
    width: usize,
}

/// Screens narrower than this have gaps of one cell, not two.
const WIDE_GAP_MIN: usize = 100;

impl TableCell {
    pub(crate) fn text(text: impl Into<String>) -> TableCell {
        TableCell::Text(text.into(), None)
    }

    fn width(&self) -> usize {
        match self {
            TableCell::Text(text, _) => display_width(text),
            TableCell::Spark(_) => usize::MAX,
        }
    }
}

impl ColumnTable {
    /// Columns that fit, with their widths.
    pub(crate) fn fit_columns(&self, room: usize) -> Vec<VisibleColumn> {
        let gap = gap(room);
        let natural: Vec<usize> =
            self.headings.iter().enumerate().map(|(at, _)| self.natural_width(at)).collect();
        let least = |at: usize| {
            natural[at].min(self.headings[at].least.max(display_width(&self.headings[at].text)))
        };
        let mut columns: Vec<usize> = (0..self.headings.len()).collect();
        let taken = |columns: &[usize], of: &dyn Fn(usize) -> usize| {
            columns.iter().map(|&at| of(at) + gap).sum::<usize>().saturating_sub(gap)
        };
        while columns.len() > 1 && taken(&columns, &least) > room {
            let last = columns.iter().copied().max_by_key(|&at| self.headings[at].rank);
            columns.retain(|at| Some(*at) != last);
        }
        let mut rest = room.saturating_sub(taken(&columns, &least));
        // The last column stays even if it does not fit.
        let mut widths: Vec<usize> = columns.iter().map(|&at| least(at).min(room)).collect();
        // Remaining space goes to the most important columns first.
        let mut order: Vec<usize> = (0..columns.len()).collect();
        model::sort::by_key(&mut order, |&at| self.headings[columns[at]].rank);
        for at in order {
            let more = (natural[columns[at]] - widths[at]).min(rest);
            widths[at] += more;
            rest -= more;
        }
        columns
            .into_iter()
            .zip(widths)
            .map(|(column, width)| VisibleColumn { column, width })
            .collect()
    }

    fn natural_width(&self, column: usize) -> usize {
        let heading = &self.headings[column];
        let widest = self.rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
        widest.max(display_width(&heading.text)).min(heading.most)
    }

    /// Line of headings.
    pub(crate) fn head(&self, placed: &[VisibleColumn], room: usize) -> String {
        let cells = placed.iter().map(|place| {
            let heading = &self.headings[place.column];
            pad(&heading.text, place.width, heading.is_right)
        });
        cells.collect::<Vec<_>>().join(&" ".repeat(gap(room)))
    }

    /// Cells of a row: texts and styles, including gaps.
    pub(crate) fn row_cells(
        &self,
        row: usize,
        placed: &[VisibleColumn],
        room: usize,
    ) -> Vec<(String, Option<TextStyle>)> {
        let mut parts = Vec::with_capacity(placed.len() * 2);
        for (at, width) in placed.iter().enumerate() {
            if at > 0 {
                parts.push((" ".repeat(gap(room)), None));
            }
            let is_right = self.headings[width.column].is_right;
            parts.push(match &self.rows[row][width.column] {
                TableCell::Text(text, paint) => (pad(text, width.width, is_right), *paint),
                TableCell::Spark(spark) => (spark.text(width.width), Some(TextStyle::Bar)),
            });
        }
        parts
    }

    /// The table as text without colours.
    pub(crate) fn text(&self, room: usize) -> Vec<String> {
        let placed = self.fit_columns(room);
        let mut lines = vec![self.head(&placed, room)];
        lines.extend((0..self.rows.len()).map(|row| {
            self.row_cells(row, &placed, room).into_iter().map(|(text, _)| text).collect::<String>()
        }));
        lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
    }
}

fn gap(room: usize) -> usize {
    if room >= WIDE_GAP_MIN { 2 } else { 1 }
}

/// Width in terminal cells.
pub(crate) fn display_width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Truncates to a width; a mark shows the truncation.
pub(crate) fn truncate(text: &str, room: usize) -> String {
    if display_width(text) <= room {
        return text.to_owned();
    }
    let (mut prefix, mut taken) = (String::new(), 0);
    for c in text.chars() {
        let wide = display_width(c.encode_utf8(&mut [0; 4]));
        if taken + wide + 1 > room {
            break;
        }
        taken += wide;
        prefix.push(c);
    }
    if room > 0 {
        prefix.push('…');
    }
    prefix
}

fn pad(text: &str, room: usize, is_right: bool) -> String {
    let text = truncate(text, room);
    let blank = " ".repeat(room.saturating_sub(display_width(&text)));
    if is_right { blank + &text } else { text + &blank }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn table() -> ColumnTable {
        let heading = |text: &str, is_right, rank, least| ColumnHeading {
            text: text.into(),
            is_right,
            rank,
            least,
            most: 30,
        };
        let row = |cells: [&str; 4]| cells.map(TableCell::text).to_vec();
        ColumnTable {
            headings: vec![
                heading("program", false, 0, 7),
                heading("metric", false, 3, 8),
                heading("p99", true, 2, 9),
                heading("max", true, 1, 9),
            ],
            rows: vec![
                row(["shop", "answer_duration", "1.203 ms", "~81.20 ms"]),
                row(["日本語のプログラム", "x", "5 ns", "7 ns"]),
            ],
        }
    }

    #[test]
    fn columns_are_dropped_by_rank() {
        let at = |room| table().text(room).join("\n");
        expect![[r#"
            program            metric               p99       max
            shop               answer_duration 1.203 ms ~81.20 ms
            日本語のプログラム x                   5 ns      7 ns"#]]
        .assert_eq(&at(60));
        expect![[r#"
            program        metric        p99       max
            shop           answer_… 1.203 ms ~81.20 ms
            日本語のプロ…  x            5 ns      7 ns"#]]
        .assert_eq(&at(42));
        expect![[r#"
            program      p99       max
            shop    1.203 ms ~81.20 ms
            日本語…     5 ns      7 ns"#]]
        .assert_eq(&at(26));
        assert_eq!(table().text(3)[1], "sh…");
        assert_eq!(table().text(0)[1], "");
    }
}
