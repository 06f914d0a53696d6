//! `cargo xtask packages`: packages of the binaries that `cargo xtask dist` built.
//!
//! Packages are reproducible: their bytes depend on the inputs only. Entries are sorted, owned by
//! root, and have the time of the commit (`SOURCE_DATE_EPOCH` sets another); modes do not depend
//! on the umask, and no time is formatted in a time zone. Everything is written here, without
//! packaging tools, so that any Linux machine makes the same packages.

mod archive;
mod calendar;
mod checksums;
mod deb;
mod file_tree;
mod installed_tree;
mod oci;
mod package_source;
mod rpm;
mod sbom;
mod signature;
mod tar_writer;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};

use self::package_source::PackageSource;
pub(crate) use self::package_source::{COMPLETION_SHELLS, COMPLETIONS};
pub(crate) use self::sbom::BUNDLED;
use crate::command_line::root;
use crate::part_log::PartLog;

/// Package the binaries of `cargo xtask dist`, with checksums and a signature, into
/// target/dist/packages
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Directory with TARGET/topdeck of each target, man and completions; default: target/dist
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,

    /// Directory of the packages, those of an earlier run are removed; default: packages in the
    /// directory of --from
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Number of the package among those of this version; a greater one replaces a smaller one
    #[arg(long, value_name = "N", default_value_t = 1)]
    release: u32,

    /// Who is responsible for the packages
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = MAINTAINER)]
    maintainer: String,

    /// Secret key that signs the checksums, made if it is missing; default:
    /// topdeck/signing-key.pem in $XDG_CONFIG_HOME or ~/.config
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// The top-level domain is reserved: nobody receives mail there.
const MAINTAINER: &str = "topdeck maintainers <maintainers@topdeck.example>";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let from = options.from.clone().unwrap_or_else(|| root().join("target/dist"));
    let out = options.out.clone().unwrap_or_else(|| from.join("packages"));
    let key = options.key.clone().map_or_else(signature::default_key, Ok)?;
    make_by(&from, &out, options.release, &options.maintainer, &key)?;
    Ok(ExitCode::SUCCESS)
}

/// Packages what `cargo xtask dist` left in `from`.
pub(crate) fn make(from: &Path, out: &Path, release: u32, key: &Path) -> Result<()> {
    make_by(from, out, release, MAINTAINER, key)
}

fn make_by(from: &Path, out: &Path, release: u32, maintainer: &str, key: &Path) -> Result<()> {
    let sources = PackageSource::read_all(from, release, maintainer)?;
    recreate_dir(out)?;
    let mut files = PackageDir { dir: out.to_owned(), names: Vec::new() };
    for source in &sources {
        archive::write(source, &mut files)?;
        deb::write(source, &mut files)?;
        rpm::write(source, &mut files)?;
        sbom::write(source, &mut files)?;
    }
    oci::write(&sources, &mut files)?;
    checksums::write(&mut files)?;
    signature::write(&mut files, key, sources[0].time_s)
}

/// The directory to which packages are written.
struct PackageDir {
    dir: PathBuf,
    /// Names of the written files.
    names: Vec<String>,
}

impl PackageDir {
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        let size = bytes.len() as f64 / 1e6;
        PartLog::console("packages").note(&format!("{}: {size:.1} MB", path.display()));
        self.names.push(name.to_owned());
        Ok(())
    }
}

/// Removes packages of an earlier run, one by one. A directory with anything else is left alone.
fn recreate_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let cannot_read = || format!("cannot read {}", dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(cannot_read)? {
        found.push(entry.with_context(cannot_read)?.file_name());
    }
    if found.is_empty() {
        return Ok(());
    }
    let sums = dir.join(checksums::FILE);
    ensure!(
        sums.exists(),
        "cannot empty {}: it has no {}, so its files are not packages; choose another directory \
         with --out",
        dir.display(),
        checksums::FILE
    );
    let text = fs::read_to_string(&sums);
    let text = text.with_context(|| format!("cannot read {}", sums.display()))?;
    let mut packages: Vec<&str> = checksums::names(&text).collect();
    packages.extend([signature::FILE, signature::PUBLIC_KEY, checksums::FILE]);
    let other = found.iter().find(|name| !packages.iter().any(|package| name == package));
    if let Some(other) = other {
        bail!(
            "cannot empty {}: {} is not among its packages ({}); remove it, or choose another \
             directory with --out",
            dir.display(),
            other.display(),
            checksums::FILE
        );
    }
    // The list is removed last: a run that is interrupted is repeated.
    for package in packages.into_iter().filter(|package| found.iter().any(|name| name == package)) {
        let path = dir.join(package);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::TempDir;

    #[test]
    fn packages_alone_are_removed_from_a_directory() {
        let dir = TempDir::new("package-dir").unwrap();
        let path = |name: &str| dir.0.join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        write("notes", "of somebody");
        let refusal = recreate_dir(&dir.0).unwrap_err().to_string();
        assert!(refusal.contains("it has no SHA256SUMS"), "{refusal}");
        let sums = format!("{0}  a.deb\n{0}  ../outside\n", "0".repeat(64));
        for (name, text) in [("SHA256SUMS", &*sums), ("SHA256SUMS.minisig", ""), ("a.deb", "")] {
            write(name, text);
        }
        let refusal = recreate_dir(&dir.0).unwrap_err().to_string();
        assert!(refusal.contains("notes is not among its packages"), "{refusal}");
        assert!(path("notes").exists() && path("a.deb").exists() && path("SHA256SUMS").exists());
        fs::remove_file(path("notes")).unwrap();
        recreate_dir(&dir.0).unwrap();
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 0);
        fs::create_dir(path("a.deb")).unwrap();
        write("SHA256SUMS", &sums);
        recreate_dir(&dir.0).unwrap_err();
        assert!(path("a.deb").exists());
    }
}
