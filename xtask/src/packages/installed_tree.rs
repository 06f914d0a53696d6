//! Files as packages of distributions install them, and texts that describe the package.

use anyhow::Result;

use super::archive::UNITS;
use super::file_tree::FileTree;
use super::package_source::{COMPLETIONS, PackageSource, repo_file};
use super::tar_writer::gzip;

pub(super) const SUMMARY: &str = "latency observability that keeps whole distributions";

/// Paragraphs, in lines of at most 80 columns.
pub(super) const DESCRIPTION: &[&str] = &[
    "topdeck keeps the whole distribution of every latency, end to end: no step\n\
     reduces it to percentiles. It tells how many requests were slow, when, where,\n\
     and which ones, with the bounds of each answer.",
    "It ingests OTLP, Prometheus remote write, StatsD, Influx, Graphite and\n\
     HdrHistogram, scrapes targets, observes its own host, and answers PromQL and\n\
     CAQL. This package has the server and the agent as one program.",
];

pub(super) const HOMEPAGE: &str = "https://github.com/topdeck/topdeck";

/// Directories where distributions look for something.
pub(super) struct InstallDirs {
    /// Completions, in the order of `COMPLETIONS`, with the names that the shells expect.
    pub(super) completions: [&'static str; 3],
}

pub(super) const DEBIAN_DIRS: InstallDirs = InstallDirs {
    completions: [
        "usr/share/bash-completion/completions/topdeck",
        "usr/share/zsh/vendor-completions/_topdeck",
        "usr/share/fish/vendor_completions.d/topdeck.fish",
    ],
};

/// Where packages put what no program looks for: examples of drop-ins, all settings.
const SHARE: &str = "usr/share/topdeck";

/// The files that the packages of all distributions have.
pub(super) fn installed_tree(source: &PackageSource, dirs: &InstallDirs) -> Result<FileTree> {
    let mut tree = FileTree::default();
    tree.add_program("usr/bin/topdeck", source.binary.clone());
    for name in ["topdeck.toml", "agent.toml"] {
        let text = repo_file(&format!("packaging/settings/{name}"))?;
        tree.add_settings(&format!("etc/topdeck/{name}"), text);
    }
    for unit in UNITS {
        let text = repo_file(&format!("packaging/systemd/{unit}"))?;
        match unit.strip_suffix(".service") {
            Some(_) => tree.add(&format!("usr/lib/systemd/system/{unit}"), text),
            None => tree.add(&format!("{SHARE}/{unit}"), text),
        }
    }
    tree.add(&format!("{SHARE}/all-keys.toml"), repo_file("docs/topdeck.toml")?);
    for (page, bytes) in &source.man_pages {
        tree.add(&format!("usr/share/man/man1/{page}.gz"), gzip(bytes));
    }
    for (path, bytes) in dirs.completions.iter().zip(&source.completions) {
        tree.add(path, bytes.clone());
    }
    assert_eq!(source.completions.len(), COMPLETIONS.len(), "BUG: a completion is missing");
    tree.add("usr/share/doc/topdeck/README.md", repo_file("README.md")?);
    tree.add("usr/share/doc/topdeck/administration.md", repo_file("docs/install.md")?);
    Ok(tree)
}
