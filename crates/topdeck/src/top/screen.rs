//! Terminal setup and event loop.

use std::io::{Stdout, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{panic, process, thread};

use anyhow::{Context as _, Result};
use ratatui_core::terminal::Terminal as Screen;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::event::{self, Event};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::background;
use inspect::top::app_state::AppState;
use inspect::top::process_monitor::ProcessMonitor;
use inspect::top::{keys, page_view, sample_all};
use render::terminal::Terminal;

/// Maximum delay until a signal is handled.
const WAIT_NS: u64 = 200_000_000;
/// Time to exit after a signal.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// Shows the board until the user quits.
pub(crate) fn run_screen(board: &mut AppState, watch: &mut ProcessMonitor) -> Result<()> {
    let is_told = Arc::new(AtomicBool::new(false));
    install_signal_handlers(Arc::clone(&is_told)).context("cannot handle signals")?;
    let mut terminal = enter_screen().context("cannot set up the terminal")?;
    let shown = event_loop(board, watch, &mut terminal, &is_told);
    let restored = terminal.show_cursor().and_then(|()| leave_screen());
    shown?;
    // After a hang-up there is no terminal to restore.
    if is_told.load(Ordering::Relaxed) {
        Ok(())
    } else {
        restored.context("cannot restore the terminal")
    }
}

/// Sets up the terminal: raw mode and the alternate screen, so that the main screen is preserved.
fn enter_screen() -> std::io::Result<Screen<CrosstermBackend<Stdout>>> {
    // A panic message must appear on the main screen.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let _ = leave_screen();
        hook(info);
    }));
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen)?;
    Screen::new(CrosstermBackend::new(stdout()))
}

fn leave_screen() -> std::io::Result<()> {
    disable_raw_mode()?;
    execute!(stdout(), LeaveAlternateScreen)
}

/// Ends the view on a signal.
fn install_signal_handlers(is_told: Arc<AtomicBool>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let wait = move || {
        let _restored = RestoreOnPanic;
        if signals.forever().next().is_some() {
            is_told.store(true, Ordering::Relaxed);
            // After a hang-up of the terminal, crossterm 0.29 reads nothing forever and does not
            // return.
            thread::sleep(EXIT_GRACE);
            let _ = leave_screen();
            process::exit(1);
        }
    };
    background::spawn("signals", wait).map(drop)
}

/// Restores the terminal while a panic unwinds.
struct RestoreOnPanic;

impl Drop for RestoreOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = leave_screen();
        }
    }
}

fn event_loop(
    board: &mut AppState,
    watch: &mut ProcessMonitor,
    terminal: &mut Screen<CrosstermBackend<Stdout>>,
    is_told: &AtomicBool,
) -> Result<()> {
    let colours = Terminal::new(false).colour_depth;
    let mut next_ns = clock::now();
    let (mut is_new, mut was_paused) = (true, false);
    while !board.is_done && !is_told.load(Ordering::Relaxed) {
        let now_ns = clock::now();
        if !board.is_paused && now_ns >= next_ns {
            sample_all(board, watch, &board.detail_selection(), was_paused);
            // Missed ticks are skipped.
            let due_ns = next_ns + board.interval_ns;
            next_ns = if due_ns > now_ns { due_ns } else { now_ns + board.interval_ns };
            (is_new, was_paused) = (true, false);
        }
        if is_new {
            terminal
                .draw(|frame| page_view::draw(board, colours, frame.area(), frame.buffer_mut()))
                .context("cannot draw on the terminal")?;
            is_new = false;
        }
        let until_ns = next_ns.saturating_sub(clock::now()).min(WAIT_NS);
        let mut wait = Duration::from_nanos(if board.is_paused { WAIT_NS } else { until_ns });
        while event::poll(wait).context("cannot read the terminal")? {
            wait = Duration::ZERO;
            is_new = true;
            if let Event::Key(key) = event::read().context("cannot read the terminal")?
                && let Some(action) = keys::key_action(key, board.is_editing)
            {
                let interval_ns = board.interval_ns;
                board.apply(action);
                was_paused |= board.is_paused;
                if board.interval_ns != interval_ns {
                    next_ns = clock::now() + board.interval_ns;
                }
            }
            if board.is_done {
                break;
            }
        }
    }
    Ok(())
}
