//! Text limits of receivers: a longer text is cut and ends with an ellipsis.

use std::fmt;

/// What a receiver counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthUnit {
    /// Unicode characters (scalar values).
    Characters,
    /// UTF-16 code units.
    Utf16Units,
    /// Bytes of UTF-8.
    Bytes,
}

impl LengthUnit {
    fn of(self, c: char) -> usize {
        match self {
            LengthUnit::Characters => 1,
            LengthUnit::Utf16Units => c.len_utf16(),
            LengthUnit::Bytes => c.len_utf8(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            LengthUnit::Characters => "characters",
            LengthUnit::Utf16Units => "UTF-16 units",
            LengthUnit::Bytes => "bytes",
        }
    }
}

/// Maximum length of one field of a receiver's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLimit {
    /// Name of the field.
    pub field: &'static str,
    /// Maximum length.
    pub length_max: usize,
    /// Unit of the length.
    pub unit: LengthUnit,
}

/// A text that was longer than the receiver allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextCut {
    /// The limit that was exceeded.
    pub limit: TextLimit,
    /// Length of the whole text.
    pub length: usize,
}

impl fmt::Display for TextCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TextLimit { field, length_max, unit } = self.limit;
        write!(f, "{field} cut from {} to {length_max} {}", self.length, unit.name())
    }
}

const ELLIPSIS: char = '…';

impl TextLimit {
    /// A limit in characters.
    pub const fn characters(field: &'static str, length_max: usize) -> TextLimit {
        TextLimit { field, length_max, unit: LengthUnit::Characters }
    }

    /// A limit in bytes.
    pub const fn bytes(field: &'static str, length_max: usize) -> TextLimit {
        TextLimit { field, length_max, unit: LengthUnit::Bytes }
    }

    /// The text, cut between characters if it is too long. A cut is added to `cuts`.
    pub fn apply(self, text: &str, cuts: &mut Vec<TextCut>) -> String {
        let length: usize = text.chars().map(|c| self.unit.of(c)).sum();
        if length <= self.length_max {
            return text.to_owned();
        }
        cuts.push(TextCut { limit: self, length });
        let mut room = self.length_max.saturating_sub(self.unit.of(ELLIPSIS));
        let mut cut = String::new();
        for c in text.chars() {
            let Some(rest) = room.checked_sub(self.unit.of(c)) else { break };
            room = rest;
            cut.push(c);
        }
        cut.truncate(cut.trim_end().len());
        cut.push(ELLIPSIS);
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(unit: LengthUnit, length_max: usize, text: &str, expected: &str) {
        let mut cuts = Vec::new();
        let limit = TextLimit { field: "text", length_max, unit };
        assert_eq!(limit.apply(text, &mut cuts), expected);
        assert_eq!(cuts.is_empty(), text == expected);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        use LengthUnit::*;
        check(Characters, 5, "äöüß€", "äöüß€");
        check(Characters, 4, "äöüß€", "äöü…");
        check(Bytes, 7, "äöüß", "äö…");
        check(Bytes, 8, "äöüß", "äöüß");
        check(Utf16Units, 4, "🔥🔥", "🔥🔥");
        check(Utf16Units, 4, "🔥🔥🔥", "🔥…");
        check(Characters, 6, "word and more", "word…");
    }

    #[test]
    fn a_cut_says_how_much_is_missing() {
        let mut cuts = Vec::new();
        TextLimit::characters("title", 10).apply(&"x".repeat(30), &mut cuts);
        assert_eq!(cuts[0].to_string(), "title cut from 30 to 10 characters");
    }
}
