//! Units of systemd: exposure as `systemd-analyze security` computes it, and rights that roles
//! need.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DROP_INS: [&str; 5] = ["bpf", "programs", "wire-tls-admin", "wire-tls", "wire"];

/// Checks the exposure of a unit with drop-ins, in tenths; the test is skipped without systemd.
#[track_caller]
fn check(unit: &str, drop_ins: &[&str], max_tenths: u32) {
    let Some(text) = analyze(unit, drop_ins) else { return };
    let level = text.rsplit_once("exposure level for ").map(|(_, end)| end);
    let level = level.and_then(|end| end.split_once(": ")?.1.split_whitespace().next());
    let (whole, tenth) = level.and_then(|level| level.split_once('.')).expect(&text);
    let tenths = whole.parse::<u32>().unwrap() * 10 + tenth.parse::<u32>().unwrap();
    assert!(tenths <= max_tenths, "{unit} {drop_ins:?}: {tenths} tenths\n{text}");
}

/// Output of `systemd-analyze security`. Drop-ins are appended to the unit: their section is the
/// same.
fn analyze(unit: &str, drop_ins: &[&str]) -> Option<String> {
    let mut text = read(unit);
    for name in drop_ins {
        text.push_str(&read(&format!("drop-ins/{name}.conf")));
    }
    let name = unit.strip_suffix(".service").unwrap();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{name}-{}-{}.service",
        drop_ins.join("-"),
        std::process::id()
    ));
    fs::write(&path, text).unwrap();
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--no-pager"]).arg(&path);
    let output = command.env("LC_ALL", "C.UTF-8").env("COLUMNS", "200").output();
    fs::remove_file(&path).unwrap();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: cannot start systemd-analyze: {error}");
            return None;
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if stderr.contains("unrecognized option") || stderr.contains("Unknown") {
        println!("skipped: systemd-analyze cannot read units offline: {}", stderr.trim());
        return None;
    }
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn read(name: &str) -> String {
    let path = systemd_dir().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn systemd_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd")
}

#[test]
fn server_is_exposed_by_at_most_2_0() {
    check("topdeck.service", &[], 20);
}

#[test]
fn agent_is_exposed_by_at_most_4_0() {
    check("topdeck-agent.service", &[], 40);
}

/// A drop-in must not cost more than the rights that it names.
#[test]
fn drop_ins_stay_below_4_5() {
    check("topdeck.service", &DROP_INS, 45);
    check("topdeck-agent.service", &["programs", "wire", "wire-tls"], 45);
}

#[test]
fn every_drop_in_is_tested() {
    let names = fs::read_dir(systemd_dir().join("drop-ins")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    assert_eq!(names, DROP_INS.map(|name| format!("{name}.conf")));
}

/// What hides /proc from the host's metrics, /tmp from those of JVMs, and what the roles call.
#[test]
fn units_leave_what_roles_need() {
    for unit in ["topdeck.service", "topdeck-agent.service"] {
        let text = read(unit);
        for setting in ["ProcSubset=", "ProtectProc=", "PrivateNetwork=", "PrivateUsers="] {
            let is_set = text.lines().any(|line| line.starts_with(setting));
            assert!(!is_set, "{unit} has {setting}, which blinds the role host");
        }
    }
    let agent = read("topdeck-agent.service");
    assert!(!agent.lines().any(|line| line.starts_with("PrivateTmp=")), "JVMs write to /tmp");
    let bpf = "\nSystemCallFilter=@system-service bpf perf_event_open\n";
    assert!(agent.contains(bpf) && agent.contains("\nAmbientCapabilities=CAP_BPF CAP_PERFMON\n"));
    assert!(read("drop-ins/bpf.conf").contains("\nSystemCallFilter=bpf perf_event_open\n"));
    // Linux 6.18 attaches no uprobe without it.
    let admin = read("drop-ins/wire-tls-admin.conf");
    for setting in ["CapabilityBoundingSet", "AmbientCapabilities"] {
        assert!(admin.contains(&format!("\n{setting}=CAP_SYS_ADMIN\n")), "{setting}");
    }
    let wire = read("drop-ins/wire.conf");
    assert!(wire.contains("CAP_NET_RAW") && wire.contains("RestrictAddressFamilies=AF_PACKET"));
}
