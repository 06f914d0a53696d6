//! Where memory is shared: a folder on a tmpfs that nobody but its owner can put anything into.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FileType, Mode, OFlags, access, fstat, fstatfs, mkdir, open};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The folder that the system has for it, if an administrator has made it.
const OF_THE_SYSTEM: &str = "/run/topdeck";
/// `f_type` of a tmpfs: kernel, include/uapi/linux/magic.h.
pub(crate) const TMPFS: u64 = 0x0102_1994;

/// `/run/topdeck`, if it is there, on a tmpfs and may be written to; else `/dev/shm/topdeck-UID`, which is made if it is not
/// there, for its owner and his group to see.
pub fn folder() -> io::Result<PathBuf> {
    let of_the_system = Path::new(OF_THE_SYSTEM);
    if access(of_the_system, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        && check(of_the_system).is_ok()
    {
        return Ok(of_the_system.to_owned());
    }
    let own = PathBuf::from(format!("/dev/shm/topdeck-{}", geteuid().as_raw()));
    make(&own).map_err(|error| {
        let text = format!("cannot use {} for shared memory: {error}", own.display());
        io::Error::new(error.kind(), text)
    })?;
    Ok(own)
}

fn make(path: &Path) -> io::Result<()> {
    match mkdir(path, Mode::RWXU | Mode::RGRP | Mode::XGRP) {
        Ok(()) | Err(Errno::EXIST) => check(path),
        Err(error) => Err(error.into()),
    }
}

/// Whether it is a folder (no link to one) on a tmpfs, of this user or root, into which nobody else puts anything.
fn check(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    let about = fstat(&folder)?;
    let refused = |text: &str| Err(io::Error::other(text.to_owned()));
    if FileType::from_raw_mode(about.st_mode) != FileType::Directory {
        return refused("it is no folder");
    }
    if about.st_uid != geteuid().as_raw() && about.st_uid != 0 {
        return refused(&format!("it belongs to user {}", about.st_uid));
    }
    if Mode::from_raw_mode(about.st_mode).contains(Mode::WOTH) {
        return refused("anybody may write to it; take that right away with chmod o-w");
    }
    if fstatfs(&folder)?.f_type as u64 != TMPFS {
        return refused("it is on no tmpfs");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_and_open_folders_are_refused() {
        let base = PathBuf::from(format!("/dev/shm/topdeck-folder-{}", std::process::id()));
        if fs::create_dir(&base).is_err() || check(&base).is_err() {
            return println!("skipped: there is no tmpfs at /dev/shm");
        }
        make(&base.join("a")).unwrap();
        make(&base.join("a")).unwrap();
        symlink(base.join("a"), base.join("link")).unwrap();
        assert!(make(&base.join("link")).is_err());
        fs::write(base.join("file"), "").unwrap();
        assert!(make(&base.join("file")).is_err());
        fs::set_permissions(base.join("a"), fs::Permissions::from_mode(0o777)).unwrap();
        let error = make(&base.join("a")).unwrap_err().to_string();
        assert!(error.contains("chmod o-w"), "{error}");
        fs::remove_dir_all(&base).unwrap();
    }
}
