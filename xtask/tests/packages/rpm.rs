//! The rpm package: its headers, read here; digests and files as rpm itself reads them.

use std::fs;

use crate::package_fixture::{PackageFixture, VERSION, output_of};

fn package(machine: &str) -> String {
    let name = format!("topdeck-{VERSION}-1.{machine}.rpm");
    PackageFixture::shared().package(&name).to_str().unwrap().to_owned()
}

#[test]
fn lead_names_the_architecture() {
    for (machine, number) in [("x86_64", 1), ("aarch64", 19)] {
        let bytes = fs::read(package(machine)).unwrap();
        assert_eq!(&bytes[..10], &[0xed, 0xab, 0xee, 0xdb, 3, 0, 0, 0, 0, number]);
        let name = format!("topdeck-{VERSION}-1\0");
        assert_eq!(&bytes[10..10 + name.len()], name.as_bytes());
        assert_eq!(&bytes[96..100], &[0x8e, 0xad, 0xe8, 1]);
    }
}

#[test]
fn rpm_finds_the_digests_correct() {
    for machine in ["x86_64", "aarch64"] {
        let rpm = package(machine);
        let Some(text) = output_of("rpm", &["-K", "--nosignature", &rpm]) else { return };
        assert!(text.contains("digests OK"), "{text}");
    }
}

#[test]
fn files_have_owners_modes_and_flags() {
    let format = "[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME} %{FILEFLAGS:fflags}\n]";
    let arguments = ["-qp", "--nosignature", "--queryformat", format, &package("x86_64")];
    let Some(text) = output_of("rpm", &arguments) else { return };
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    for expected in [
        "/etc/topdeck drwxr-xr-x root",
        "/etc/topdeck/topdeck.toml -rw-r--r-- root cn",
        "/usr/bin/topdeck -rwxr-xr-x root",
        "/usr/lib/systemd/system/topdeck.service -rw-r--r-- root",
        "/usr/share/doc/topdeck/README.md -rw-r--r-- root d",
        "/usr/share/licenses/topdeck/LICENSE -rw-r--r-- root l",
        "/usr/share/zsh/site-functions/_topdeck -rw-r--r-- root",
        "/var/lib/topdeck drwxr-x--- topdeck",
    ] {
        assert!(lines.contains(&expected), "no {expected:?} in\n{text}");
    }
    assert!(!lines.iter().any(|line| line.starts_with("/usr/bin ")), "{text}");
}

#[test]
fn description_and_scripts_are_those_of_the_tree() {
    let format = "%{NAME} %{VERSION} %{RELEASE} %{ARCH} %{LICENSE} %{BUILDTIME}\n[%{REQUIRES}\n]";
    let arguments = ["-qp", "--nosignature", "--queryformat", format, &package("aarch64")];
    let Some(text) = output_of("rpm", &arguments) else { return };
    let head = format!("topdeck {VERSION} 1 aarch64 Apache-2.0 1767323045\n");
    assert!(text.starts_with(&head), "{text}");
    assert!(text.contains("\n/usr/sbin/useradd\n"), "{text}");
    let scripts = output_of("rpm", &["-qp", "--nosignature", "--scripts", &package("aarch64")]);
    let scripts = scripts.unwrap();
    for head in ["preinstall", "postinstall", "preuninstall", "postuninstall"] {
        assert!(scripts.contains(&format!("{head} scriptlet (using /bin/sh):")), "{scripts}");
    }
    assert!(scripts.contains("useradd --system --user-group"), "{scripts}");
}
