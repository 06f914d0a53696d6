//! Access to files with the rights of another user than root.

use std::io;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// From now on the calling thread, and none other, opens files with the rights of a user: it has no
/// capability of root. Its real user stays root, so the user can neither trace nor signal it.
/// Without rights of root, nothing changes.
pub(super) fn take_file_rights((uid, gid): (u32, u32)) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    // -1 means "unchanged" to the kernel.
    let is_valid = uid != u32::MAX && gid != u32::MAX;
    if !is_valid {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let gid = Gid::from_raw(gid);
    set_thread_groups(&[gid])?;
    set_thread_res_gid(None, Some(gid), None)?;
    set_thread_res_uid(None, Some(Uid::from_raw(uid)), None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn files_are_opened_with_the_rights_of_the_user() {
        if !geteuid().is_root() {
            println!("skipped: not root");
            return;
        }
        let dir = std::env::temp_dir().join(format!("topdeck-rights-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("secret"), "").unwrap();
        fs::set_permissions(dir.join("secret"), Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        let path = dir.clone();
        let thread = std::thread::spawn(move || {
            take_file_rights((4242, 4343)).unwrap();
            let error = fs::read(path.join("secret")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            fs::write(path.join("own"), "").unwrap();
            let found = fs::metadata(path.join("own")).unwrap();
            assert_eq!((found.uid(), found.gid()), (4242, 4343));
            // Real and saved user: root.
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(status.contains("\nUid:\t0\t4242\t0\t4242\n"), "{status}");
            assert!(status.contains("\nCapEff:\t0000000000000000\n"), "{status}");
            assert!(status.contains("\nGroups:\t4343 \n"), "{status}");
        });
        thread.join().unwrap();
        // This thread is still root's.
        fs::read(dir.join("secret")).unwrap();
        take_file_rights((u32::MAX, 0)).unwrap_err();
        fs::remove_dir_all(dir).unwrap();
    }
}
