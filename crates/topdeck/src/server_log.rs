//! Log of a server: a line per change of state, on standard error.
//!
//! A line has the time (UTC, milliseconds), the level and the message, as text or as a JSON object.
//! A full or closed standard error loses lines, but stops nothing.

use std::io::{self, Write as _};
use std::sync::Arc;

use intake::{LogFn, LogLevel};
use render::json::Json::{Object, Text};
use render::text::escape_control;
use render::time::time_text;
use serde::Deserialize;

/// Format of the lines.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// `2026-11-26 09:00:00.000Z info  stopping`.
    #[default]
    Text,
    /// `{"time":"2026-11-26T09:00:00.000Z","level":"info","message":"stopping"}`.
    Json,
}

/// The log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerLog {
    format: LogFormat,
}

impl ServerLog {
    pub(crate) fn new(format: LogFormat) -> ServerLog {
        ServerLog { format }
    }

    /// Logs a start, a stop, a requested change, or a recovery.
    pub(crate) fn info(self, message: impl std::fmt::Display) {
        self.write(LogLevel::Info, &message.to_string());
    }

    /// Logs that something is missing, late or rejected.
    pub(crate) fn warn(self, message: impl std::fmt::Display) {
        self.write(LogLevel::Warn, &message.to_string());
    }

    /// Logs a loss or a failure.
    pub(crate) fn error(self, message: impl std::fmt::Display) {
        self.write(LogLevel::Error, &message.to_string());
    }

    /// The log as a function, for roles.
    pub(crate) fn function(self) -> LogFn {
        Arc::new(move |level, message| self.write(level, message))
    }

    fn write(self, level: LogLevel, message: &str) {
        let line = line(self.format, journal::wall_clock()(), level, message);
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

fn line(format: LogFormat, now: i64, level: LogLevel, message: &str) -> String {
    // Milliseconds also at a whole second, so that all lines have the same width.
    let time = time_text(now, 1);
    match format {
        LogFormat::Text => format!("{time} {:<5} {}\n", level.name(), escape_control(message)),
        LogFormat::Json => {
            let fields = vec![
                ("time", Text(time.replace(' ', "T"))),
                ("level", Text(level.name().to_owned())),
                ("message", Text(message.to_owned())),
            ];
            format!("{:#}\n", Object(fields))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_683_600_000_000_000;

    #[test]
    fn a_line_has_time_and_level_in_both_formats() {
        let check = |format, level, message: &str, expected: &str| {
            assert_eq!(line(format, NOW, level, message), expected);
        };
        let (text, json) = (LogFormat::Text, LogFormat::Json);
        check(text, LogLevel::Info, "stopping", "2026-11-26 09:00:00.000Z info  stopping\n");
        check(text, LogLevel::Error, "a\nb", "2026-11-26 09:00:00.000Z error a\\nb\n");
        check(
            json,
            LogLevel::Warn,
            "scrape \"node\" is down:\n1",
            "{\"time\":\"2026-11-26T09:00:00.000Z\",\"level\":\"warn\",\
             \"message\":\"scrape \\\"node\\\" is down:\\n1\"}\n",
        );
    }
}
