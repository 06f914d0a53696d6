//! Progress line on standard error if it is a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use render::bytes::format_bytes;
use render::bytes::format_rate;

/// Refresh interval: visible movement at negligible cost.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);
const BAR_CHARS: u64 = 24;

/// Progress line, overwritten in place and cleared at the end.
pub struct ProgressLine {
    terminal: bool,
    started: Instant,
    last_shown: Option<Instant>,
}

impl Default for ProgressLine {
    fn default() -> ProgressLine {
        ProgressLine::new()
    }
}

impl ProgressLine {
    /// A line that is not shown yet; rates are measured from now on.
    pub fn new() -> ProgressLine {
        ProgressLine {
            terminal: io::stderr().is_terminal(),
            started: Instant::now(),
            last_shown: None,
        }
    }

    /// Starts measuring rates anew.
    pub fn restart(&mut self) {
        self.started = Instant::now();
    }

    /// Time since the start of the measurement.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the line is shown on a terminal.
    pub fn is_visible(&self) -> bool {
        self.terminal
    }

    /// Shows a line if the refresh interval has passed.
    pub fn show(&mut self, line: impl FnOnce(Duration) -> String) {
        if !self.terminal || self.last_shown.unwrap_or(self.started).elapsed() < REFRESH_INTERVAL {
            return;
        }
        self.last_shown = Some(Instant::now());
        // Progress output errors are ignored.
        let _ = write!(io::stderr(), "\r{}\x1b[K", line(self.started.elapsed()));
    }

    /// Shows a bar for bytes.
    pub fn bar(&mut self, done_bytes: u64, total_bytes: u64) {
        self.show(|elapsed| bar_text(done_bytes, total_bytes, (done_bytes, elapsed)));
    }

    /// Clears the line before other output.
    pub fn clear(&mut self) {
        if self.last_shown.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A bar with the rate of recent bytes, and the time left at that rate.
pub fn bar_text(
    done_bytes: u64,
    total_bytes: u64,
    (recent_bytes, recent_time): (u64, Duration),
) -> String {
    // A journal in use grows while it is read.
    let total_bytes = total_bytes.max(done_bytes).max(1);
    let share = done_bytes as f64 / total_bytes as f64;
    let full = (share * BAR_CHARS as f64) as usize;
    let left = match recent_bytes {
        0 => String::new(),
        recent_bytes => {
            let ratio = (total_bytes - done_bytes) as f64 / recent_bytes as f64;
            format!(", {} left", time_left(recent_time.mul_f64(ratio)))
        }
    };
    format!(
        "[{}{}] {:3.0} %  {} of {}, {}{left}",
        "#".repeat(full),
        "-".repeat(BAR_CHARS as usize - full),
        share * 100.0,
        format_bytes(done_bytes),
        format_bytes(total_bytes),
        format_rate(recent_bytes, recent_time)
    )
}

/// Whole hours and minutes, or minutes and seconds.
fn time_left(left: Duration) -> String {
    let seconds = left.as_secs_f64().ceil() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, _) => format!("{minutes} min {seconds} s"),
        _ => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_size_speed_and_time_left() {
        assert_eq!(
            bar_text(512 << 20, 2 << 30, (512 << 20, Duration::from_secs(2))),
            "[######------------------]  25 %  512 MiB of 2 GiB, 256 MiB/s, 6 s left"
        );
        assert_eq!(
            bar_text(0, 0, (0, Duration::ZERO)),
            "[------------------------]   0 %  0 B of 1 B, 0 B/s"
        );
        let left =
            [59.2, 60.0, 3599.5, 3600.0, 90_000.0].map(Duration::from_secs_f64).map(time_left);
        assert_eq!(left, ["1 min 0 s", "1 min 0 s", "1 h 0 min", "1 h 0 min", "25 h 0 min"]);
    }
}
