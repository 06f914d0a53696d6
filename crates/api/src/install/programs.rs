//! Programs that hosts fetch: this program for its own architecture, others from a directory.
//!
//! A program is in memory while clients download it, in one copy for all of them: at most 25 MB for
//! each architecture. Its digest is kept until the file changes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use bytes::Bytes;
use ring::digest::{SHA256, digest};

/// Architectures as `uname -m` names them.
pub(super) const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];
/// This program. The file may have been replaced by an upgrade; this is the running one.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Size and time of a file, which tell whether it changed.
type FileStamp = (u64, Option<SystemTime>);

/// A program as it was last loaded.
struct LoadedProgram {
    stamp: FileStamp,
    digest: String,
    bytes: Weak<Vec<u8>>,
}

/// A copy that clients share.
struct SharedProgram(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedProgram {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

static LOADED: LazyLock<Mutex<HashMap<PathBuf, LoadedProgram>>> = LazyLock::new(Mutex::default);

/// Name of a program, in its URL.
pub(super) fn program_name(machine: &str) -> String {
    format!("topdeck-{machine}")
}

/// The program for an architecture.
pub(super) fn load_program(machine: &str, dir: Option<&Path>) -> io::Result<Bytes> {
    load(machine, dir).map(|(_, bytes)| Bytes::from_owner(SharedProgram(bytes)))
}

/// SHA-256 of the program for an architecture, in hexadecimal digits.
pub(super) fn program_digest(machine: &str, dir: Option<&Path>) -> io::Result<String> {
    let path = program_path(machine, dir)?;
    let stamp = file_stamp(&File::open(&path)?)?;
    let known = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.get(&path).filter(|known| known.stamp == stamp) {
        return Ok(known.digest.clone());
    }
    drop(known);
    load(machine, dir).map(|(digest, _)| digest)
}

/// A program of the directory precedes this one, which may need a C library.
fn program_path(machine: &str, dir: Option<&Path>) -> io::Result<PathBuf> {
    let built = dir.map(|dir| dir.join(format!("{machine}-unknown-linux-musl")).join("topdeck"));
    if let Some(path) = built.as_ref().filter(|path| path.is_file()) {
        return Ok(path.clone());
    }
    if machine == std::env::consts::ARCH {
        return Ok(PathBuf::from(OWN_PROGRAM));
    }
    Err(io::Error::other(match built {
        Some(path) => format!("{} is missing; build it with `make dist`", path.display()),
        None => "set `binaries` in [install] of the server's settings to the directory of `make \
                 dist`"
            .to_owned(),
    }))
}

fn load(machine: &str, dir: Option<&Path>) -> io::Result<(String, Arc<Vec<u8>>)> {
    let path = program_path(machine, dir)?;
    let mut file = File::open(&path)?;
    let stamp = file_stamp(&file)?;
    // Held while it is read: a second client gets the same copy.
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = loaded.get(&path).filter(|known| known.stamp == stamp)
        && let Some(bytes) = known.bytes.upgrade()
    {
        return Ok((known.digest.clone(), bytes));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.0).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    let digest: String =
        digest(&SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let bytes = Arc::new(bytes);
    let known = LoadedProgram { stamp, digest: digest.clone(), bytes: Arc::downgrade(&bytes) };
    loaded.insert(path, known);
    Ok((digest, bytes))
}

fn file_stamp(file: &File) -> io::Result<FileStamp> {
    let found = file.metadata()?;
    Ok((found.len(), found.modified().ok()))
}
