//! The archive and the checksums, read by GNU tar and sha256sum.

use std::process::Command;

use crate::package_fixture::{BINARY, PackageFixture, VERSION, output_of};

fn archive(machine: &str) -> String {
    let name = format!("topdeck-{VERSION}-{machine}-linux.tar.gz");
    PackageFixture::shared().package(&name).to_str().unwrap().to_owned()
}

#[test]
fn archive_has_all_files() {
    let Some(list) = output_of("tar", &["--utc", "-tvzf", &archive("aarch64")]) else { return };
    let found: Vec<String> =
        list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let dir = format!("topdeck-{VERSION}-aarch64-linux/");
    for line in &found {
        assert!(line.contains(" root/root ") && line.contains(" 2026-01-02 03:04 "), "{line}");
    }
    let names: Vec<&str> = found.iter().map(|line| line.rsplit_once(&dir).unwrap().1).collect();
    let expected = [
        "",
        "CHANGELOG.md",
        "INSTALL.md",
        "LICENSE",
        "README.md",
        "completions/",
        "completions/_topdeck",
        "completions/topdeck.bash",
        "completions/topdeck.fish",
        "man/",
        "man/man1/",
        "man/man1/topdeck-serve.1",
        "man/man1/topdeck.1",
        "settings/",
        "settings/agent.toml",
        "settings/all-keys.toml",
        "settings/topdeck.toml",
        "systemd/",
        "systemd/drop-ins/",
        "systemd/drop-ins/bpf.conf",
        "systemd/drop-ins/programs.conf",
        "systemd/drop-ins/wire-tls-admin.conf",
        "systemd/drop-ins/wire-tls.conf",
        "systemd/drop-ins/wire.conf",
        "systemd/topdeck-agent.service",
        "systemd/topdeck.service",
        "topdeck",
    ];
    assert_eq!(names, expected);
    let program = found.last().unwrap();
    assert!(program.starts_with("-rwxr-xr-x"), "{program}");
    assert!(found[1].starts_with("-rw-r--r--"), "{}", found[1]);
    assert!(found[0].starts_with("drwxr-xr-x"), "{}", found[0]);
}

#[test]
fn archive_has_the_program_and_units_that_start_it() {
    let dir = format!("topdeck-{VERSION}-x86_64-linux");
    let read =
        |name: &str| output_of("tar", &["-xOzf", &archive("x86_64"), &format!("{dir}/{name}")]);
    let Some(program) = read("topdeck") else { return };
    assert_eq!(program, format!("{BINARY}# x86_64\n"));
    let unit = read("systemd/topdeck.service").unwrap();
    assert!(unit.contains("\nExecStart=/usr/local/bin/topdeck serve "), "{unit}");
    assert!(!unit.contains("/usr/bin/topdeck"), "{unit}");
}

#[test]
fn checksums_are_those_of_sha256sum() {
    let dir = PackageFixture::shared().package("");
    let mut command = Command::new("sha256sum");
    let output = command.args(["--check", "--strict", "SHA256SUMS"]).current_dir(&dir).output();
    let output = output.unwrap();
    let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    let out = String::from_utf8_lossy(&out);
    assert!(output.status.success(), "{out}{err}");
    for machine in ["x86_64", "aarch64"] {
        assert!(out.contains(&format!("topdeck-{VERSION}-{machine}-linux.tar.gz: OK")), "{out}");
    }
}
