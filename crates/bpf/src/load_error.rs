//! Error texts of BPF: the refused operation, the cause and the remedy.

use std::io;

/// Bytes of the verifier log that are reported: its end has the error.
const LOG_TAIL_BYTES: usize = 1_500;

/// Error text: the refused operation, the cause and the remedy.
pub(crate) fn load_error(doing: &str, error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "; run as root or grant CAP_BPF and CAP_PERFMON, and check kernel lockdown"
        }
        Some(libc::ENOMEM | libc::E2BIG) => "; raise RLIMIT_MEMLOCK",
        Some(libc::ENOSYS) => "; the kernel was built without BPF",
        _ => "",
    };
    format!("cannot {doing}: {error}{remedy}")
}

/// Text for a program that the kernel refused, with the end of the verifier log.
pub(crate) fn program_error(error: &io::Error, log: &str) -> String {
    load_error("load a BPF program", error) + &log_tail(log)
}

fn log_tail(log: &str) -> String {
    let log = log.trim();
    if log.is_empty() {
        return String::new();
    }
    let mut from = log.len().saturating_sub(LOG_TAIL_BYTES);
    while !log.is_char_boundary(from) {
        from += 1;
    }
    format!("; verifier: {}", &log[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_error_names_the_remedy() {
        let text = load_error("load a BPF program", &io::Error::from_raw_os_error(libc::EPERM));
        assert!(text.contains("CAP_BPF"), "{text}");
        assert_eq!(log_tail(" \n"), "");
        let long = "é".repeat(LOG_TAIL_BYTES);
        assert!(log_tail(&long).len() <= LOG_TAIL_BYTES + 30);
    }
}
