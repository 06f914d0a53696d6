//! What keys mean.

use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::top::board::Action;

/// A key, what is said of it.
pub(crate) const HELP: [(&str, &str); 12] = [
    ("up down, k j", "another row; page up and down, home, end"),
    ("Enter", "open the process, then the histogram"),
    ("q", "back; from the list of processes, out"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    ("/", "filter: words that are in program, pid or metric; Esc takes it away"),
    ("space", "pause"),
    ("+ -", "longer or shorter interval, 100 ms to 10 s"),
    ("w", "pictures of a histogram: last minute, since the start, last interval"),
    ("?", "this help"),
    ("~", "an estimate: only the bucket of the greatest value is known"),
    ("? in a row", "not known; the line below the table says why"),
];

/// Rows of a page up or down.
const PAGE: isize = 10;

/// What a key means; `None` if nothing.
pub(crate) fn action(key: KeyEvent, is_editing: bool) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Action::Quit),
            KeyCode::Char('u') if is_editing => Some(Action::Clear),
            _ => None,
        };
    }
    if is_editing {
        return Some(match key.code {
            KeyCode::Esc => Action::Clear,
            KeyCode::Enter => Action::Accept,
            KeyCode::Backspace => Action::Erase,
            KeyCode::Up => Action::Move(-1),
            KeyCode::Down => Action::Move(1),
            KeyCode::Char(c) => Action::Char(c),
            _ => return None,
        });
    }
    Some(match key.code {
        KeyCode::Up | KeyCode::Char('k') => Action::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => Action::Move(1),
        KeyCode::PageUp => Action::Move(-PAGE),
        KeyCode::PageDown => Action::Move(PAGE),
        KeyCode::Home | KeyCode::Char('g') => Action::First,
        KeyCode::End | KeyCode::Char('G') => Action::Last,
        KeyCode::Enter | KeyCode::Right => Action::Open,
        KeyCode::Left | KeyCode::Char('q') => Action::Back,
        KeyCode::Esc => Action::Escape,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char('r') => Action::Reverse,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char(' ') => Action::Pause,
        KeyCode::Char('+' | '=') => Action::Longer,
        KeyCode::Char('-') => Action::Shorter,
        KeyCode::Char('w') => Action::Window,
        KeyCode::Char('?' | 'h') => Action::Help,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_takes_all_letters() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert_eq!(action(key(KeyCode::Char('q')), true), Some(Action::Char('q')));
        assert_eq!(action(key(KeyCode::Char('q')), false), Some(Action::Back));
        assert_eq!(action(key(KeyCode::Esc), true), Some(Action::Clear));
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(control, true), Some(Action::Quit));
    }
}
