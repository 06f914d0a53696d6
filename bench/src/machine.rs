//! Machine and build of a run, without which its numbers cannot be interpreted.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Peers and codecs whose versions are listed.
const PACKAGES: [&str; 13] = [
    "fjall",
    "flate2",
    "hdrhistogram",
    "histogram",
    "openhistogram",
    "opentelemetry_sdk",
    "prometheus-client",
    "raft-engine",
    "sketches-ddsketch",
    "topdeck-codecs",
    "topdeck-hist",
    "zstd",
    "zstd-sys",
];
const LOCK: &str = include_str!("../Cargo.lock");

/// Description as a list for the report.
pub(crate) fn describe() -> String {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let kernel = format!("{} {}", text(uname.sysname()), text(uname.release()));
    let unknown = || "not known".to_owned();
    let virtual_machine = cpu_info("flags").is_some_and(|flags| flags.contains("hypervisor"));
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let siblings = read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let lines = [
        ("date", date()),
        ("processor", cpu_info("model name").unwrap_or_else(unknown)),
        ("model", model().unwrap_or_else(unknown)),
        ("CPUs available", processors.to_string()),
        ("hardware threads on the core of CPU 0", siblings.unwrap_or_else(unknown)),
        ("virtual machine", if virtual_machine { "yes" } else { "no" }.to_owned()),
        ("frequency governor", governor.unwrap_or_else(unknown)),
        ("load before the run", read("/proc/loadavg").unwrap_or_else(unknown)),
        ("kernel", kernel),
        ("compiler", output("rustc", &["--version"]).unwrap_or_else(unknown)),
        ("built with", "release, fat LTO, one codegen unit, generic x86-64".to_owned()),
        ("topdeck", commit().unwrap_or_else(unknown)),
        ("versions", versions()),
    ];
    lines.map(|(name, value)| format!("- {name}: {value}")).join("\n")
}

fn versions() -> String {
    let of = |name: &&str| {
        let entry = LOCK.split(&format!("name = \"{name}\"\nversion = \"")).nth(1);
        let version = entry.and_then(|rest| rest.split('"').next()).unwrap_or("?");
        format!("{name} {version}")
    };
    PACKAGES.iter().map(of).collect::<Vec<_>>().join(", ")
}

fn cpu_info(key: &str) -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.split(':').next().map(str::trim) == Some(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// In a virtual machine the model name alone does not identify the CPU generation.
fn model() -> Option<String> {
    let [family, model, stepping] = ["cpu family", "model", "stepping"].map(cpu_info);
    Some(format!("family {} model {} stepping {}", family?, model?, stepping?))
}

fn commit() -> Option<String> {
    let dir = env!("CARGO_MANIFEST_DIR");
    let commit = output("git", &["-C", dir, "rev-parse", "--short=12", "HEAD"])?;
    let crates = format!("{dir}/../crates");
    let changed = output("git", &["-C", dir, "status", "--porcelain", "--", &crates])?;
    Some(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Current date as year-month-day.
fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// Gregorian date of a day counted from 1970 (Howard Hinnant, “chrono-compatible low-level date
/// algorithms”): years start in March, so that the leap day is the last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(20_777), (2026, 11, 20));
    }
}
