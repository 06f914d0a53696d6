//! Packages of Debian: `topdeck_VERSION-RELEASE_ARCH.deb`.
//!
//! Format: deb(5), version 2.0: an `ar` archive of `debian-binary`, `control.tar.gz` and
//! `data.tar.gz`. gzip, because dpkg before 1.21.18 (Debian 11) does not read zstd. Settings are
//! conffiles: dpkg asks before it replaces a changed one.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::PackageDir;
use super::calendar::UtcTime;
use super::file_tree::FileTree;
use super::installed_tree::{DEBIAN_DIRS, DESCRIPTION, HOMEPAGE, SUMMARY, installed_tree};
use super::package_source::{PackageSource, repo_file};
use super::tar_writer::{gzip, tar};

/// Commands of the maintainer scripts: useradd, and deb-systemd-helper with `debian-installed`.
const DEPENDS: &str = "init-system-helpers (>= 1.52), passwd";
const SCRIPTS: [&str; 3] = ["postinst", "postrm", "prerm"];
const LINTIAN_OVERRIDES: &str = "\
# It runs on any Linux.
topdeck: statically-linked-binary [usr/bin/topdeck]
# It can be loaded at any address (static-pie), and lintian takes it for a library.
topdeck: shared-library-lacks-prerequisites [usr/bin/topdeck]
# It is not uploaded to Debian.
topdeck: initial-upload-closes-no-bugs
";

pub(super) fn write(source: &PackageSource, files: &mut PackageDir) -> Result<()> {
    let version = format!("{}-{}", source.version, source.release);
    let mut data = installed_tree(source, &DEBIAN_DIRS)?;
    let doc = "usr/share/doc/topdeck";
    data.add(&format!("{doc}/copyright"), repo_file("packaging/debian/copyright")?);
    let changes = changelog(source, &version);
    data.add(&format!("{doc}/changelog.Debian.gz"), gzip(changes.as_bytes()));
    data.add("usr/share/lintian/overrides/topdeck", LINTIAN_OVERRIDES.as_bytes());

    let mut control = FileTree::default();
    control.add("control", control_file(source, &version, &data).into_bytes());
    let settings = data.iter().filter(|(_, file)| file.is_settings);
    let settings: String = settings.map(|(path, _)| format!("/{path}\n")).collect();
    control.add("conffiles", settings.into_bytes());
    for script in SCRIPTS {
        control.add_program(script, repo_file(&format!("packaging/debian/{script}"))?);
    }
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&tar(&control, "./", source.time_s)?)),
        ("data.tar.gz", gzip(&tar(&data, "./", source.time_s)?)),
    ];
    let name = format!("topdeck_{version}_{}.deb", source.arch.debian);
    files.write(&name, &ar(&members, source.time_s)?)
}

fn control_file(source: &PackageSource, version: &str, data: &FileTree) -> String {
    let kib = |bytes: &[u8]| bytes.len().div_ceil(1024).max(1);
    let size_kib: usize = data.iter().map(|(_, file)| kib(file.bytes())).sum();
    let mut text = format!(
        "Package: topdeck\nVersion: {version}\nArchitecture: {}\nMaintainer: {}\n\
         Installed-Size: {size_kib}\nDepends: {DEPENDS}\nRecommends: ca-certificates\n\
         Section: admin\nPriority: optional\nHomepage: {HOMEPAGE}\nDescription: {SUMMARY}\n",
        source.arch.debian, source.maintainer
    );
    for (index, paragraph) in DESCRIPTION.iter().enumerate() {
        if index > 0 {
            text.push_str(" .\n");
        }
        for line in paragraph.lines() {
            let _ = writeln!(text, " {line}");
        }
    }
    text
}

/// The changelog that Debian's policy requires. That of topdeck is not in its format.
fn changelog(source: &PackageSource, version: &str) -> String {
    format!(
        "topdeck ({version}) stable; urgency=medium\n\n  * Release {}: {HOMEPAGE} has the \
         changes.\n\n -- {}  {}\n",
        source.version,
        source.maintainer,
        UtcTime::new(source.time_s).rfc_2822()
    )
}

/// An archive of `ar`: a header of 60 bytes before each member, which begins at an even offset.
fn ar(members: &[(&str, Vec<u8>)], time_s: u64) -> Result<Vec<u8>> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let size = content.len();
        let header = format!("{name:<16}{time_s:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, "100644");
        ensure!(header.len() == 60, "cannot archive {name}: its size or time is too large");
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(2), b'\n');
    }
    Ok(bytes)
}
