//! The Debian package, read by dpkg-deb.

use std::fs;

use crate::package_fixture::{BINARY, PackageFixture, VERSION, output_of};

fn package(arch: &str) -> String {
    let name = format!("topdeck_{VERSION}-1_{arch}.deb");
    PackageFixture::shared().package(&name).to_str().unwrap().to_owned()
}

#[test]
fn control_fields_are_those_of_the_package() {
    let fields = ["Package", "Version", "Architecture", "Maintainer", "Depends"];
    for arch in ["amd64", "arm64"] {
        let deb = package(arch);
        let Some(text) = output_of("dpkg-deb", &[&["-f", &deb], &fields[..]].concat()) else {
            return;
        };
        let expected = format!(
            "Package: topdeck\nVersion: {VERSION}-1\nArchitecture: {arch}\nMaintainer: topdeck \
             maintainers <maintainers@topdeck.example>\nDepends: init-system-helpers (>= 1.52), \
             passwd\n"
        );
        assert_eq!(text, expected);
    }
}

#[test]
fn settings_are_conffiles() {
    let Some(text) = output_of("dpkg-deb", &["-I", &package("amd64"), "conffiles"]) else {
        return;
    };
    assert_eq!(text, "/etc/topdeck/agent.toml\n/etc/topdeck/topdeck.toml\n");
}

#[test]
fn files_belong_to_root_and_have_fixed_modes() {
    let Some(list) = output_of("dpkg-deb", &["-c", &package("amd64")]) else { return };
    let lines: Vec<Vec<&str>> =
        list.lines().map(|line| line.split_whitespace().collect()).collect();
    for line in &lines {
        assert_eq!(line[1], "root/root", "{line:?}");
        assert_eq!(line[3..5], ["2026-01-02", "03:04"], "{line:?}");
    }
    let mode = |path: &str| {
        let line = lines.iter().find(|line| line[5] == path);
        line.unwrap_or_else(|| panic!("no {path} in\n{list}"))[0]
    };
    for (path, expected) in [
        ("./", "drwxr-xr-x"),
        ("./usr/bin/topdeck", "-rwxr-xr-x"),
        ("./etc/topdeck/topdeck.toml", "-rw-r--r--"),
        ("./usr/lib/systemd/system/topdeck.service", "-rw-r--r--"),
        ("./usr/lib/systemd/system/topdeck-agent.service", "-rw-r--r--"),
        ("./usr/share/bash-completion/completions/topdeck", "-rw-r--r--"),
        ("./usr/share/zsh/vendor-completions/_topdeck", "-rw-r--r--"),
        ("./usr/share/fish/vendor_completions.d/topdeck.fish", "-rw-r--r--"),
        ("./usr/share/man/man1/topdeck-serve.1.gz", "-rw-r--r--"),
        ("./usr/share/topdeck/drop-ins/wire-tls.conf", "-rw-r--r--"),
        ("./usr/share/topdeck/drop-ins/wire-tls-admin.conf", "-rw-r--r--"),
        ("./usr/share/topdeck/all-keys.toml", "-rw-r--r--"),
    ] {
        assert_eq!(mode(path), expected, "{path}");
    }
}

#[test]
fn data_and_scripts_are_unpacked() {
    let fixture = PackageFixture::shared();
    let dir = fixture.dir.join("unpacked-deb");
    let to = dir.to_str().unwrap();
    if output_of("dpkg-deb", &["-R", &package("arm64"), to]).is_none() {
        return;
    }
    let program = fs::read_to_string(dir.join("usr/bin/topdeck")).unwrap();
    assert_eq!(program, format!("{BINARY}# aarch64\n"));
    for script in ["postinst", "prerm", "postrm"] {
        let path = dir.join("DEBIAN").join(script);
        output_of("sh", &["-n", path.to_str().unwrap()]);
    }
    let changes = dir.join("usr/share/doc/topdeck/changelog.Debian.gz");
    if let Some(text) = output_of("gzip", &["-dc", changes.to_str().unwrap()]) {
        let head = format!("topdeck ({VERSION}-1) stable; urgency=medium\n");
        assert!(text.starts_with(&head), "{text}");
        assert!(text.ends_with("  Fri, 02 Jan 2026 03:04:05 +0000\n"), "{text}");
    }
}

/// A greater release is a greater version for dpkg.
#[test]
fn release_orders_packages() {
    let fixture = PackageFixture::new();
    fixture.make("umask 022", &["--release", "10"]);
    let name = format!("topdeck_{VERSION}-10_amd64.deb");
    assert!(fixture.package(&name).exists());
    let newer = format!("{VERSION}-10");
    output_of("dpkg", &["--compare-versions", &newer, "gt", &format!("{VERSION}-9")]);
}
