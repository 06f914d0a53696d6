//! Lists of literals in a fingerprint: their number says nothing of the statement.

use super::lexer::{SqlToken, SqlTokenKind};

/// Maximum depth of parentheses in which lists are found.
const DEPTH_MAX: usize = 64;

/// Open parentheses and brackets, and rows of VALUES.
#[derive(Debug, Default)]
pub(super) struct LiteralLists {
    open: Vec<LiteralList>,
    /// Open parentheses beyond the limit.
    beyond: u32,
    /// Rows of VALUES that have ended.
    rows: Option<RowList>,
}

#[derive(Debug)]
struct LiteralList {
    kind: ListKind,
    /// Whether it has only literals, placeholders, and rows of them.
    is_simple: bool,
    is_empty: bool,
    /// Length of the text, and the number of the next literal, after the first element.
    first_end: Option<(usize, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListKind {
    /// `IN (...)` or `ARRAY[...]`.
    Elements,
    /// The first row of VALUES, or one after it.
    Row,
    Other,
}

#[derive(Clone, Copy, Debug)]
struct RowList {
    /// Length of the text, and the number of the next literal, after the first row.
    first_end: (usize, u32),
    is_cut: bool,
    /// Whether a comma follows, so that another row may start.
    has_comma: bool,
}

impl LiteralLists {
    pub(super) fn clear(&mut self) {
        self.open.clear();
        (self.beyond, self.rows) = (0, None);
    }

    /// Handles a token before it is appended to `text`. `before` is the last word, if it is the
    /// last token. `number` is the number of the next literal.
    pub(super) fn open(&mut self, symbol: &str, before: &str, text: &str, number: u32) {
        match symbol {
            "(" | "[" => {
                let is_word = |word: &str| before.eq_ignore_ascii_case(word);
                let is_next_row = self.rows.is_some_and(|rows| rows.has_comma);
                let kind = match symbol {
                    "(" if is_word("in") => ListKind::Elements,
                    "[" if is_word("array") => ListKind::Elements,
                    "(" if is_word("values") || is_next_row => ListKind::Row,
                    _ => ListKind::Other,
                };
                if kind != ListKind::Row || !is_next_row {
                    self.rows = None;
                }
                if self.open.len() == DEPTH_MAX {
                    self.beyond += 1;
                    return;
                }
                let list = LiteralList { kind, is_simple: true, is_empty: true, first_end: None };
                self.open.push(list);
            }
            "," => {
                if let Some(list) = self.open.last_mut() {
                    list.first_end.get_or_insert((text.len(), number));
                }
                // Within the next row, the comma is one of its own.
                if let Some(rows) = self.rows.as_mut().filter(|rows| !rows.has_comma) {
                    rows.has_comma = true;
                }
            }
            _ => {}
        }
    }

    /// Handles a token that is no parenthesis, bracket or comma. `is_cast`: whether it is a cast or
    /// the type of one.
    pub(super) fn element(&mut self, token: &SqlToken<'_>, is_literal: bool, is_cast: bool) {
        let is_simple = is_literal
            || is_cast
            || token.kind == SqlTokenKind::Placeholder
            || token.kind == SqlTokenKind::Word && token.text.eq_ignore_ascii_case("default")
            || matches!(token.text, "-" | "+");
        if let Some(list) = self.open.last_mut() {
            list.is_simple &= is_simple;
            list.is_empty = false;
        }
        if self.rows.is_some() && !self.is_in_row() {
            self.rows = None;
        }
    }

    /// Handles a closing parenthesis or bracket before it is appended to `text`. A list is cut
    /// after its first element.
    pub(super) fn close(&mut self, symbol: &str, text: &mut String, number: &mut u32) {
        if self.beyond > 0 {
            self.beyond -= 1;
            self.mark_complex();
            return text.push_str(symbol);
        }
        let Some(list) = self.open.pop() else { return text.push_str(symbol) };
        if !list.is_simple || list.is_empty {
            self.mark_complex();
            self.rows = None;
            return text.push_str(symbol);
        }
        if let Some(parent) = self.open.last_mut() {
            parent.is_empty = false;
        }
        match list.kind {
            ListKind::Elements => {
                if let Some((length, first_number)) = list.first_end {
                    text.truncate(length);
                    *number = first_number;
                }
                text.push_str(", ...");
                text.push_str(symbol);
            }
            ListKind::Row => match &mut self.rows {
                Some(rows) => {
                    text.truncate(rows.first_end.0);
                    *number = rows.first_end.1;
                    if !rows.is_cut {
                        text.push_str(", ...");
                    }
                    *rows = RowList {
                        first_end: (text.len(), *number),
                        is_cut: true,
                        has_comma: false,
                    };
                }
                None => {
                    text.push_str(symbol);
                    let first_end = (text.len(), *number);
                    self.rows = Some(RowList { first_end, is_cut: false, has_comma: false });
                }
            },
            ListKind::Other => text.push_str(symbol),
        }
    }

    fn is_in_row(&self) -> bool {
        self.open.iter().any(|list| list.kind == ListKind::Row)
    }

    fn mark_complex(&mut self) {
        if let Some(list) = self.open.last_mut() {
            (list.is_simple, list.is_empty) = (false, false);
        }
    }
}
