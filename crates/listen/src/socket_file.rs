//! Unix socket files.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::listen_address::ListenAddress;

/// All users of this host may send, as on the loopback address.
const MODE: u32 = 0o666;

/// Unix socket file, removed on drop unless replaced by another process.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if file_id(&self.path).is_ok_and(|id| id == self.id) {
            // Errors are ignored: a leftover file without a listener is replaced at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Binds a datagram socket.
pub(crate) fn bind_datagram(path: &Path) -> Result<(UnixDatagram, SocketFile)> {
    let wrong = |source| Error::Bind { address: ListenAddress::Unix(path.to_owned()), source };
    remove_stale_socket(path).map_err(|error| match error {
        Error::System(source) => wrong(source),
        error => error,
    })?;
    let socket = UnixDatagram::bind(path).map_err(wrong)?;
    let file = SocketFile { path: path.to_owned(), id: file_id(path).map_err(wrong)? };
    fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(wrong)?;
    Ok((socket, file))
}

/// Removes the socket file of a dead process.
fn remove_stale_socket(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(Error::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    // Connecting with the wrong socket type fails with a distinct error only if the socket is
    // alive.
    let tried = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    let tried = tried.or_else(|_| UnixStream::connect(path).map(drop));
    match tried {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok(fs::remove_file(path)?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error.into()),
        _ => Err(Error::AddressInUse { path: path.to_owned() }),
    }
}
