//! Parser of `/proc/PID/stat`. Source: proc_pid_stat(5).

use std::sync::LazyLock;

use rustix::param::page_size;
use shm::process_table::ProcessRow;

/// Ticks per second.
pub(super) static TICKS: LazyLock<u64> =
    LazyLock::new(|| rustix::param::clock_ticks_per_second().max(1));
const SECOND: u64 = 1_000_000_000;

/// Nanoseconds per tick.
pub(super) fn tick_ns() -> u64 {
    SECOND / *TICKS
}

/// Parses a line; `None` if it is malformed. The line does not contain the user.
pub(super) fn parse(line: &[u8]) -> Option<ProcessRow> {
    // The name may contain any bytes, including parentheses.
    let open = line.iter().position(|&byte| byte == b'(')?;
    let close = line.iter().rposition(|&byte| byte == b')')?;
    let name = line.get(open + 1..close)?;
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let pid = text(&line[..open])?.trim().parse().ok()?;
    let mut words = text(&line[close + 1..])?.split_ascii_whitespace();
    let [state] = words.next()?.as_bytes() else { return None };
    // The next field is number 4 in the manual.
    let mut next = 4;
    let mut word = |number: usize| {
        let word = words.nth(number - next);
        next = number + 1;
        word
    };
    let ppid = word(4)?.parse().ok()?;
    let mut number = |at| word(at)?.parse::<u64>().ok();
    let (minor_faults, major_faults) = (number(10)?, number(12)?);
    let (user, system) = (number(14)?, number(15)?);
    let (threads, start) = (number(20)?, number(22)?);
    // Negative only because of a race in the kernel.
    let rss = number(24).unwrap_or(0);
    let mut comm = [0; 16];
    // The kernel reports longer names for its own threads than `comm` holds.
    let length = name.len().min(comm.len() - 1);
    comm[..length].copy_from_slice(&name[..length]);
    Some(ProcessRow {
        pid,
        ppid,
        uid: 0,
        threads: u32::try_from(threads).ok()?,
        start,
        comm,
        state: *state,
        user_ns: user.saturating_mul(tick_ns()),
        system_ns: system.saturating_mul(tick_ns()),
        minor_faults,
        major_faults,
        rss_bytes: rss.saturating_mul(page_size() as u64),
        voluntary_switches: None,
        involuntary_switches: None,
        run_delay_ns: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "17 (a) (b) S 3 17 17 0 -1 4194304 10 20 30 40 250 70 5 6 20 0 4 0 1234 \
                        99999 3 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";

    #[test]
    fn all_fields_are_found() {
        let process = parse(LINE.as_bytes()).unwrap();
        assert_eq!((process.pid, process.ppid, process.threads, process.start), (17, 3, 4, 1_234));
        assert_eq!((process.name().as_ref(), process.state), ("a) (b", b'S'));
        assert_eq!((process.minor_faults, process.major_faults), (10, 30));
        let ticks = [process.user_ns, process.system_ns].map(|ns| ns / tick_ns());
        assert_eq!(ticks, [250, 70]);
        assert_eq!(process.rss_bytes, 3 * page_size() as u64);
        let long = LINE.replace("a) (b", "kworker/u8:2-events_unbound");
        assert_eq!(parse(long.as_bytes()).unwrap().name(), "kworker/u8:2-ev");
    }

    #[test]
    fn mutated_line_does_not_panic() {
        for at in 0..LINE.len() {
            let _ = parse(&LINE.as_bytes()[..at]);
            for byte in [0, b' ', b'(', b')', b'9', 0xff] {
                let mut changed = LINE.as_bytes().to_vec();
                changed[at] = byte;
                let _ = parse(&changed);
            }
        }
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b") ("), None);
    }
}
