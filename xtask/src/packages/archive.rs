//! The archive `topdeck-VERSION-MACHINE-linux.tar.gz`: everything in one directory, to be copied by
//! hand.

use anyhow::Result;

use super::PackageDir;
use super::file_tree::FileTree;
use super::package_source::{COMPLETIONS, PackageSource, repo_file, repo_text};
use super::tar_writer::{gzip, tar};

/// Texts and settings: file of the repository, and its name in the archive.
const FILES: [(&str, &str); 7] = [
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("docs/install.md", "INSTALL.md"),
    ("docs/topdeck.toml", "settings/all-keys.toml"),
    ("packaging/settings/topdeck.toml", "settings/topdeck.toml"),
    ("packaging/settings/agent.toml", "settings/agent.toml"),
];

/// Units of systemd, and examples of drop-ins, in `packaging/systemd`.
pub(super) const UNITS: [&str; 7] = [
    "topdeck.service",
    "topdeck-agent.service",
    "drop-ins/bpf.conf",
    "drop-ins/programs.conf",
    "drop-ins/wire.conf",
    "drop-ins/wire-tls.conf",
    "drop-ins/wire-tls-admin.conf",
];

/// Where units of a package and of an archive expect the program.
const PACKAGED_PROGRAM: &str = "/usr/bin/topdeck";
const COPIED_PROGRAM: &str = "/usr/local/bin/topdeck";

pub(super) fn write(source: &PackageSource, files: &mut PackageDir) -> Result<()> {
    let name = format!("topdeck-{}-{}-linux", source.version, source.arch.machine);
    let mut tree = FileTree::default();
    tree.add_program("topdeck", source.binary.clone());
    for (from, to) in FILES {
        tree.add(to, repo_file(from)?);
    }
    for unit in UNITS {
        let text = repo_text(&format!("packaging/systemd/{unit}"))?;
        let text = text.replace(PACKAGED_PROGRAM, COPIED_PROGRAM);
        tree.add(&format!("systemd/{unit}"), text.into_bytes());
    }
    for (page, bytes) in &source.man_pages {
        tree.add(&format!("man/man1/{page}"), bytes.clone());
    }
    for (name, bytes) in COMPLETIONS.iter().zip(&source.completions) {
        tree.add(&format!("completions/{name}"), bytes.clone());
    }
    let mut named = FileTree::default();
    named.add_dir(&name, 0o755, 0);
    for (path, file) in tree.iter() {
        named.insert(&format!("{name}/{path}"), file.clone());
    }
    files.write(&format!("{name}.tar.gz"), &gzip(&tar(&named, "", source.time_s)?))
}
