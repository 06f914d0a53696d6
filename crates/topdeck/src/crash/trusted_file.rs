//! Files that name a program which the handler starts as root, and programs that the kernel starts.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ::crash::open_without_links;
use rustix::process::geteuid;

/// Bytes that are read.
const BYTES_MAX: u64 = 4 << 10;
/// Permissions to write of a group and of all users.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Opens a regular file that only root can change: the file and the folders above are root's, and
/// nobody else can write them. No link is followed. A process without rights of root may have its
/// own files, too.
pub(super) fn open_trusted(path: &Path) -> io::Result<File> {
    open_valid(path, 1, Metadata::is_file)
}

/// Checks that only root can replace what is in a folder.
pub(super) fn check_trusted_dir(path: &Path) -> io::Result<()> {
    // The root directory has no parts.
    if path == Path::new("/") { Ok(()) } else { open_valid(path, 0, Metadata::is_dir).map(|_| ()) }
}

/// The last folders, `own_folders` of them, have nothing of others.
fn open_valid(path: &Path, own_folders: usize, is_kind: fn(&Metadata) -> bool) -> io::Result<File> {
    let shared_max = path.components().count() - own_folders;
    let own = geteuid().as_raw();
    let at = std::cell::Cell::new(1);
    let is_valid = |found: &Metadata, is_last: bool| {
        at.set(at.get() + 1);
        // In a sticky folder, such as /tmp, others cannot replace folders of root.
        let is_shared = found.mode() & STICKY != 0 && at.get() < shared_max;
        let is_owned = found.uid() == 0 || found.uid() == own;
        let is_writable = found.mode() & WRITABLE_BY_OTHERS != 0;
        is_owned && (!is_writable || is_shared) && (!is_last || is_kind(found))
    };
    open_without_links(path, is_valid)
}

/// Reads such a file.
pub(super) fn read_trusted(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_trusted(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[track_caller]
    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_files_that_others_cannot_change_are_read() {
        let dir = std::env::temp_dir().join(format!("topdeck-trusted-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (dir, file) = (fs::canonicalize(&dir).unwrap(), dir.join("f"));
        set_mode(&dir, 0o755);
        fs::write(&file, "|/bin/true %P").unwrap();
        set_mode(&file, 0o644);
        assert_eq!(read_trusted(&file).unwrap(), "|/bin/true %P");
        for (path, mode, before) in [
            (&file, 0o646, 0o644),
            (&file, 0o664, 0o644),
            (&dir, 0o757, 0o755),
            (&dir, 0o775, 0o755),
            (&dir, 0o1777, 0o755),
        ] {
            set_mode(path, mode);
            let error = read_trusted(&file).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
            set_mode(path, before);
        }
        check_trusted_dir(&dir).unwrap();
        check_trusted_dir(Path::new("/")).unwrap();
        // Others can add folders there, though not replace this one.
        check_trusted_dir(&std::env::temp_dir()).unwrap_err();
        symlink(&file, dir.join("link")).unwrap();
        symlink(&dir, dir.join("folder")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("pipe"), 0o600.into()).unwrap();
        for refused in ["link", "folder/f", "pipe", ".", "../f", "none"] {
            read_trusted(&dir.join(refused)).unwrap_err();
        }
        // Only root can give it to another user, whose file is then refused.
        if std::os::unix::fs::chown(&file, Some(4242), None).is_ok() {
            read_trusted(&file).unwrap_err();
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
