//! Key bindings.

use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::top::app_state::KeyAction;

/// Key and its description.
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

/// Rows per page key.
const PAGE_ROWS: isize = 10;

/// Action of a key, if it has one.
pub fn key_action(key: KeyEvent, is_editing: bool) -> Option<KeyAction> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(KeyAction::Quit),
            KeyCode::Char('u') if is_editing => Some(KeyAction::Clear),
            _ => None,
        };
    }
    if is_editing {
        return Some(match key.code {
            KeyCode::Esc => KeyAction::Clear,
            KeyCode::Enter => KeyAction::Accept,
            KeyCode::Backspace => KeyAction::Erase,
            KeyCode::Up => KeyAction::Move(-1),
            KeyCode::Down => KeyAction::Move(1),
            KeyCode::Char(c) => KeyAction::Char(c),
            _ => return None,
        });
    }
    Some(match key.code {
        KeyCode::Up | KeyCode::Char('k') => KeyAction::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => KeyAction::Move(1),
        KeyCode::PageUp => KeyAction::Move(-PAGE_ROWS),
        KeyCode::PageDown => KeyAction::Move(PAGE_ROWS),
        KeyCode::Home | KeyCode::Char('g') => KeyAction::First,
        KeyCode::End | KeyCode::Char('G') => KeyAction::Last,
        KeyCode::Enter | KeyCode::Right => KeyAction::Open,
        KeyCode::Left | KeyCode::Char('q') => KeyAction::Back,
        KeyCode::Esc => KeyAction::Escape,
        KeyCode::Char('s') => KeyAction::Sort,
        KeyCode::Char('r') => KeyAction::Reverse,
        KeyCode::Char('/') => KeyAction::Filter,
        KeyCode::Char(' ') => KeyAction::Pause,
        KeyCode::Char('+' | '=') => KeyAction::Longer,
        KeyCode::Char('-') => KeyAction::Shorter,
        KeyCode::Char('w') => KeyAction::Window,
        KeyCode::Char('?' | 'h') => KeyAction::Help,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_accepts_all_letters() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert_eq!(key_action(key(KeyCode::Char('q')), true), Some(KeyAction::Char('q')));
        assert_eq!(key_action(key(KeyCode::Char('q')), false), Some(KeyAction::Back));
        assert_eq!(key_action(key(KeyCode::Esc), true), Some(KeyAction::Clear));
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(key_action(control, true), Some(KeyAction::Quit));
    }
}
