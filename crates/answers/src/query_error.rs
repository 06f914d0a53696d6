//! Errors of queries, with the names of command line flags.

use query::Error;

/// Error as one line.
pub fn error_text(error: &Error) -> String {
    with_flags(&error.to_string())
}

/// Limits with the names of their command line flags.
pub fn with_flags(message: &str) -> String {
    let mut message = message.to_owned();
    for limit in ["max_samples", "max_series", "max_bytes", "max_steps"] {
        message = message.replace(limit, &format!("--{}", limit.replace('_', "-")));
    }
    message.replace("raise timeout", "raise --timeout")
}
