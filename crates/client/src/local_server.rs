//! The server of this machine: its data directory and its address.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Directory of the store in the data directory.
pub const STORE_DIR: &str = "store";

/// Lock file of a store: a running server writes its address to it, and with TLS the pin of its
/// public key on a second line.
pub const LOCK_FILE: &str = "lock";

/// Data directory without settings: from `STATE_DIRECTORY`, `XDG_DATA_HOME` or `HOME`.
pub fn default_data_dir() -> Option<PathBuf> {
    let of =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    of("STATE_DIRECTORY")
        .or_else(|| of("XDG_DATA_HOME").map(|home| home.join("topdeck")))
        .or_else(|| of("HOME").map(|home| home.join(".local/share/topdeck")))
}

/// Address of the server that uses a store, from the store's lock file. After a crash the file has
/// the address of a server that no longer runs.
pub fn server_of(store: &Path) -> Option<String> {
    let text = std::fs::read_to_string(store.join(LOCK_FILE)).ok()?;
    let url = text.lines().next()?.trim();
    url.starts_with("http").then(|| url.to_owned())
}

/// Pin of the public key of the server that uses a store, if it has TLS.
pub fn server_pin_of(store: &Path) -> Option<String> {
    let text = std::fs::read_to_string(store.join(LOCK_FILE)).ok()?;
    text.lines().nth(1).map(str::to_owned)
}

/// Creates a directory and its parents with access for the owner only, because it holds
/// measurements and tokens. An existing directory is not changed. Durable on return.
pub fn private_dir(dir: &Path) -> Result<()> {
    use std::fs::{DirBuilder, File};
    use std::os::unix::fs::DirBuilderExt as _;
    let missing: Vec<&Path> =
        dir.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    let make = || -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        for above in missing.iter().filter_map(|made| made.parent()) {
            // The parent of a relative path of one component is the empty path.
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            match File::open(above) {
                // A directory may allow the creation of directories without being readable.
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
                opened => opened?.sync_all()?,
            }
        }
        Ok(())
    };
    make().with_context(|| format!("cannot create directory {}", dir.display()))
}
