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

use anyhow::{Context as _, Result, ensure};

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

    /// Directory of the packages, emptied first; default: packages in the directory of --from
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

/// Removes packages of an earlier run. A directory with anything else is left alone.
fn recreate_dir(dir: &Path) -> Result<()> {
    if dir.exists() {
        let is_empty = fs::read_dir(dir)?.next().is_none();
        ensure!(
            is_empty || dir.join(checksums::FILE).exists(),
            "cannot empty {}: it has no {}, so its files are not packages; choose another \
             directory with --out",
            dir.display(),
            checksums::FILE
        );
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}
