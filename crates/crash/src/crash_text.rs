//! Crash texts: the error file of the JVM (`hs_err_pid*.log`), and what Go prints when it panics.
//!
//! Of their messages only those of the runtime are kept: those of a program may have data of users.

use crate::notice::{CrashNotice, CrashOrigin};
use crate::signature::Frame;

/// Lines that are read, bytes of one, and frames that are kept.
const LINES_MAX: usize = 100_000;
const LINE_BYTES_MAX: usize = 512;
const FRAMES_MAX: usize = 64;

/// Parses a crash text; `None` if it is not of the JVM or of Go. Program and host are unknown.
pub fn parse_crash_text(text: &[u8]) -> Option<CrashNotice> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().take(LINES_MAX).map(shortened).collect();
    parse_jvm(&lines).or_else(|| parse_go(&lines))
}

fn shortened(line: &str) -> &str {
    &line[..line.floor_char_boundary(LINE_BYTES_MAX)]
}

fn notice(reason: &str, thread: &str, frames: Vec<Frame>) -> CrashNotice {
    let origin = CrashOrigin { thread: thread.to_owned(), ..CrashOrigin::default() };
    CrashNotice { origin, reason: reason.to_owned(), frames, ..CrashNotice::default() }
}

fn parse_jvm(lines: &[&str]) -> Option<CrashNotice> {
    let heading = "# A fatal error has been detected by the Java Runtime Environment:";
    let start = lines.iter().position(|line| line.trim_end() == heading)?;
    let mut of_error = lines[start + 1..].iter().filter_map(|line| line.strip_prefix("#  "));
    let error = of_error.next()?;
    let reason = error.split([' ', '(']).next().filter(|word| word.starts_with("SIG"));
    let section = |name: &str| {
        let at = lines.iter().position(|line| line.starts_with(name))?;
        let lines = lines[at + 1..].iter().take_while(|line| !line.trim().is_empty());
        let frames: Vec<Frame> =
            lines.filter_map(|line| jvm_frame(line)).take(FRAMES_MAX).collect();
        (!frames.is_empty()).then_some(frames)
    };
    let frames = section("Native frames:").or_else(|| section("Java frames:"));
    let frames = frames.or_else(|| {
        let at = lines.iter().position(|line| line.starts_with("# Problematic frame:"))?;
        Some(vec![jvm_frame(lines.get(at + 1)?.strip_prefix("# ")?)?])
    });
    let thread = lines.iter().find(|line| line.starts_with("Current thread"));
    let thread = thread.and_then(|line| line.split('"').nth(1)).unwrap_or("");
    let mut notice = notice(reason.unwrap_or("JVM error"), thread, frames.unwrap_or_default());
    let pid = error.split("pid=").nth(1).and_then(|rest| rest.split([',', ' ']).next());
    notice.origin.pid = pid.and_then(|pid| pid.parse().ok()).unwrap_or(0);
    notice.origin.program = "java".to_owned();
    Some(notice)
}

/// `C  [libfoo.so+0x1139]  boom+0x9`, `j  Shop.pay(I)V+3`, `J 12 c2 Shop.pay(I)V (9 bytes) @ …`.
fn jvm_frame(line: &str) -> Option<Frame> {
    let (kind, rest) = line.split_once(' ')?;
    let rest = rest.trim_start();
    match kind {
        "C" | "V" => {
            let (module, after) = rest.strip_prefix('[')?.split_once(']')?;
            let (module, offset) = module.rsplit_once("+0x").unwrap_or((module, "0"));
            let name = after.trim().rsplit_once("+0x").map_or("", |(name, _)| name);
            let name = name.split('(').next().unwrap_or(name);
            let address = u64::from_str_radix(offset, 16).unwrap_or(0);
            Some(Frame { module: module.to_owned(), address, ..Frame::named(name) })
        }
        "j" | "J" => {
            let method = rest.split(' ').find(|word| word.contains('(') && word.contains('.'))?;
            let name = method.split('(').next()?;
            // Generated classes have a number of the process: `Shop$$Lambda$14/0x0000000800c03a18`.
            let name = name.split("/0x").next()?;
            Some(Frame { function: name.to_owned(), ..Frame::default() })
        }
        _ => None,
    }
}

fn parse_go(lines: &[&str]) -> Option<CrashNotice> {
    let is_error = |line: &str| line.starts_with("panic: ") || line.starts_with("fatal error: ");
    let start = lines.iter().position(|line| is_error(line))?;
    let is_goroutine = |line: &str| line.starts_with("goroutine ") && line.ends_with("]:");
    let goroutine = start + lines[start..].iter().position(|line| is_goroutine(line))?;
    let signal = lines[start..goroutine].iter().find_map(|line| line.strip_prefix("[signal "));
    let of_runtime = lines[start].strip_prefix("panic: runtime error: ");
    let reason = match (signal, lines[start].strip_prefix("fatal error: "), of_runtime) {
        (Some(signal), ..) => {
            let mut words = signal.split([':', ' ']);
            words.find(|word| !word.is_empty()).unwrap_or("panic").to_owned()
        }
        (None, Some(error), _) => format!("fatal error: {error}"),
        (None, None, Some(error)) => format!("panic: {}", without_numbers(error)),
        (None, None, None) => "panic".to_owned(),
    };
    let mut frames = Vec::new();
    for line in &lines[goroutine + 1..] {
        if line.trim().is_empty() || line.starts_with("created by ") || frames.len() == FRAMES_MAX {
            break;
        }
        if !line.starts_with(['\t', ' ', '.'])
            && let Some((name, _)) = line.rsplit_once('(')
        {
            frames.push(Frame { function: name.to_owned(), ..Frame::default() });
        }
    }
    let name = lines[goroutine].split(" [").next().unwrap_or("");
    Some(notice(&reason, name, frames))
}

/// `index out of range [7] with length 3` of each index is the same.
fn without_numbers(error: &str) -> String {
    error
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect::<String>()
        .replace("00", "0")
}
