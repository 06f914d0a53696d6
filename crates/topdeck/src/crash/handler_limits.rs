//! How many handlers read a process and walk its stack at a time, and how many crashes of a user
//! have notices.
//!
//! The locks are files in a folder of root, so that neither the agent's user nor that of the
//! process can hold or remove them. A place is taken until the process of the handler has ended: a
//! thread of it may wait for ever, and not even root can end it then.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::process::geteuid;

use super::trusted_file::check_trusted_dir;

/// Folder of the locks.
pub(super) const FOLDER: &str = "/run/topdeck-crash";
/// Places on a host, and those of a user.
const PLACES: u32 = 8;
const PLACES_OF_USER: usize = 3;
/// Crashes of a user that have notices at once, and the time after which there is another one.
const AT_ONCE: u64 = 20;
const PERIOD_NS: u64 = 10_000_000_000;
/// Users with rates of their own; beyond it, some share one.
const USERS_MAX: u32 = 1 << 16;
/// Permissions of a group and of all users.
const OF_OTHERS: u32 = 0o077;

/// Takes a place for a process of a user, until this process has ended; `false` if none is free.
pub(super) fn take_place(folder: &Path, uid: u32) -> io::Result<bool> {
    /// Never dropped.
    static PLACE: OnceLock<File> = OnceLock::new();
    let place = free_place(folder, uid)?;
    Ok(place.is_some_and(|place| PLACE.set(place).is_ok()))
}

fn free_place(folder: &Path, uid: u32) -> io::Result<Option<File>> {
    let dir = open_folder(folder)?;
    let _counting = lock_counting(&dir)?;
    let (mut free, mut of_user) = (None, 0);
    for place in 0..PLACES {
        let file = open_lock(&dir, &format!("place-{place}"))?;
        if file.try_lock().is_ok() {
            free.get_or_insert(file);
        } else {
            let mut taken_by = [0; 4];
            let is_known = file.read_exact_at(&mut taken_by, 0).is_ok();
            of_user += usize::from(is_known && u32::from_le_bytes(taken_by) == uid);
        }
    }
    let free = free.filter(|_| of_user < PLACES_OF_USER);
    if let Some(place) = &free {
        place.write_all_at(&uid.to_le_bytes(), 0)?;
    }
    Ok(free)
}

/// Whether a crash of a user at a time of CLOCK_MONOTONIC has a notice: a loop of crashes uses up
/// neither the places of notices nor the kinds of a day. Those of root always have one.
pub(super) fn has_notice(folder: &Path, uid: u32, now_ns: u64) -> io::Result<bool> {
    if uid == 0 {
        return Ok(true);
    }
    let dir = open_folder(folder)?;
    let _counting = lock_counting(&dir)?;
    let rates = open_lock(&dir, "rates")?;
    let (at, mut word) = (8 * u64::from(uid % USERS_MAX), [0; 8]);
    // The time at which all of `AT_ONCE` are left again; behind the end of the file: now.
    let _ = rates.read_exact_at(&mut word, at);
    let full_ns = u64::from_le_bytes(word).max(now_ns);
    let is_within = full_ns - now_ns <= (AT_ONCE - 1) * PERIOD_NS;
    if is_within {
        rates.write_all_at(&(full_ns + PERIOD_NS).to_le_bytes(), at)?;
    }
    Ok(is_within)
}

/// One handler counts at a time. Who has this lock waits for nobody.
fn lock_counting(dir: &File) -> io::Result<File> {
    let counting = open_lock(dir, "counting")?;
    counting.lock()?;
    Ok(counting)
}

/// Opens the folder, which is created if it is missing.
fn open_folder(folder: &Path) -> io::Result<File> {
    check_trusted_dir(folder.parent().unwrap_or(folder))?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = File::from(open(folder, flags, Mode::empty())?);
    let found = dir.metadata()?;
    let is_own = found.uid() == geteuid().as_raw() && found.mode() & OF_OTHERS == 0;
    if is_own { Ok(dir) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

fn open_lock(dir: &File, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_loop_of_crashes_has_a_rate() {
        let dir = std::env::temp_dir().join(format!("topdeck-rates-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        let folder = fs::canonicalize(&dir).unwrap().join("locks");
        let has = |uid, now_s: u64| has_notice(&folder, uid, now_s * 1_000_000_000).unwrap();
        let count = |uid, now_s| (0..50).filter(|_| has(uid, now_s)).count();
        assert_eq!((count(7, 1_000), count(7, 1_009), count(7, 1_010)), (20, 0, 1));
        // Of other users, and after a long time.
        assert_eq!((count(u32::MAX, 1_010), count(0, 1_010), count(7, 9_000)), (20, 50, 20));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn places_of_a_host_and_of_a_user_are_limited() {
        let dir = std::env::temp_dir().join(format!("topdeck-places-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        let folder = fs::canonicalize(&dir).unwrap().join("locks");
        let take = |uid: u32| free_place(&folder, uid).unwrap();
        let mut of_first: Vec<File> = (0..PLACES_OF_USER).map(|_| take(7).unwrap()).collect();
        assert!(take(7).is_none());
        let others: Vec<File> = (100..105).map(|uid| take(uid).unwrap()).collect();
        assert!(take(8).is_none());
        // A place that was used is another user's now.
        of_first.pop();
        let again = take(8).unwrap();
        assert!(take(7).is_none());
        drop((of_first, others, again));
        assert!(take(7).is_some());
        // It is held until this process ends.
        assert!(take_place(&folder, 7).unwrap());
        let held: Vec<Option<File>> = (0..PLACES).map(|uid| take(100 + uid)).collect();
        assert_eq!(held.iter().flatten().count(), PLACES as usize - 1);

        fs::set_permissions(&folder, Permissions::from_mode(0o770)).unwrap();
        free_place(&folder, 7).unwrap_err();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        symlink(&folder, dir.join("link")).unwrap();
        free_place(&dir.join("link"), 7).unwrap_err();
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        free_place(&folder, 7).unwrap_err();
        fs::remove_dir_all(dir).unwrap();
    }
}
