//! Converts text with topdeck's own escape sequences to screen lines.

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};

/// Converts a line; unknown sequences are dropped.
pub(crate) fn parse_line(text: &str) -> Line<'static> {
    let mut spans = Vec::new();
    let mut style = Style::new();
    for (at, part) in text.split("\x1b[").enumerate() {
        let shown = match part.split_once('m').filter(|_| at > 0) {
            Some((codes, shown)) if codes.bytes().all(|b| b.is_ascii_digit() || b == b';') => {
                style = apply_codes(style, codes);
                shown
            }
            _ => part,
        };
        if !shown.is_empty() {
            spans.push(Span::styled(shown.to_owned(), style));
        }
    }
    Line::from(spans)
}

fn apply_codes(mut style: Style, codes: &str) -> Style {
    let mut codes = codes.split(';').map(|code| code.parse::<u8>().unwrap_or(0));
    while let Some(code) = codes.next() {
        style = match code {
            0 => Style::new(),
            1 => style.add_modifier(Modifier::BOLD),
            2 => style.add_modifier(Modifier::DIM),
            30..=37 => style.fg(Color::Indexed(code - 30)),
            38 => parse_colour(&mut codes).map_or(style, |colour| style.fg(colour)),
            48 => parse_colour(&mut codes).map_or(style, |colour| style.bg(colour)),
            _ => style,
        };
    }
    style
}

fn parse_colour(codes: &mut impl Iterator<Item = u8>) -> Option<Color> {
    match codes.next()? {
        5 => Some(Color::Indexed(codes.next()?)),
        2 => Some(Color::Rgb(codes.next()?, codes.next()?, codes.next()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_begin_and_end() {
        let line = parse_line("a\x1b[1;33mb\x1b[0;38;5;203;48;2;1;2;3mc\x1b[0md");
        let looks: Vec<(&str, Style)> =
            line.spans.iter().map(|span| (span.content.as_ref(), span.style)).collect();
        let plain = Style::new();
        assert_eq!(
            looks,
            [
                ("a", plain),
                ("b", plain.add_modifier(Modifier::BOLD).fg(Color::Indexed(3))),
                ("c", plain.fg(Color::Indexed(203)).bg(Color::Rgb(1, 2, 3))),
                ("d", plain),
            ]
        );
    }

    #[test]
    fn truncated_sequences_are_ignored() {
        for text in ["\x1b[", "\x1b[38;5m", "\x1b[38;2;1mx", "\x1b[2Jx", "\x1b"] {
            let _ = parse_line(text);
        }
    }
}
