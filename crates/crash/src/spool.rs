//! Folders in which the handler of crashes leaves notices, and from which an agent sends them.
//!
//! A file `TIME-PID.partial` is written first, with what the kernel said; the complete notice
//! replaces it and is renamed to `.notice`. The handler locks the partial notice until then, so one
//! that dies leaves one notice, too.
//!
//! The handler writes with the rights of the owner of the data directory ([`Spool::owner`]), and
//! still follows no link at any part of a path, creates files, and sets the owner by descriptor:
//! a command of root that writes here does not lead elsewhere either.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::notice::NOTICE_BYTES_MAX;

/// Name of the folder in a data directory.
const FOLDER: &str = "crash-notices";
/// Notices that wait to be sent; more are only counted.
const NOTICES_MAX: usize = 1_000;
/// Snapshots that are kept; the oldest are removed.
const SNAPSHOTS_MAX: usize = 100;
/// Largest snapshot that is kept.
const SNAPSHOT_BYTES_MAX: usize = 1 << 20;
/// Notices that are kept because they cannot be sent; the oldest are removed.
const REJECTED_MAX: usize = 20;
/// Files of a folder that are looked at.
const FILES_MAX: usize = 10_000;
/// Name of the file that has a byte for each crash without a notice.
const DROPPED: &str = "dropped";
/// Age at which a partial notice is sent although its handler still has it. A handler does not
/// complete it later than [`COMPLETION_MAX`], but its process may stay for as long as a file system
/// does not answer.
const ABANDONED_AGE: Duration = Duration::from_secs(60);
/// Time from the partial to the complete notice, or there is none.
pub const COMPLETION_MAX: Duration = Duration::from_secs(20);
/// Name of that file while it is counted.
const TAKEN: &str = "dropped-taken";
/// Permissions of folders and files.
const DIR_MODE: Mode = Mode::from_raw_mode(0o750);
const FILE_MODE: Mode = Mode::from_raw_mode(0o640);
/// Permissions that nobody but the owner has.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Folders of notices; the first one that can be written is used.
#[derive(Clone, Debug)]
pub struct Spool {
    /// The folder above, and the name of the folder.
    places: [(PathBuf, String); 2],
    /// User and group of the folders and files: those of the data directory, if there is one.
    owner: Option<(u32, u32)>,
}

/// A notice that waits to be sent.
#[derive(Clone, Debug)]
pub struct SpooledNotice {
    dir: Arc<File>,
    /// Name of its file.
    pub name: String,
    /// Its JSON; empty if the file is too large or not a regular one.
    pub bytes: Vec<u8>,
}

/// Opens a folder or a file by its absolute path for reading, following no link. Each part is
/// passed to `is_valid`, with whether it is the last one, and is refused if that is false.
pub fn open_without_links(
    path: &Path,
    is_valid: impl Fn(&Metadata, bool) -> bool,
) -> io::Result<File> {
    let mut parts = path.components().peekable();
    if parts.next() != Some(Component::RootDir) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is not absolute"));
    }
    let mut file = File::open("/")?;
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has .."));
        };
        let is_last = parts.peek().is_none();
        // A pipe would wait for a writer.
        let flags = if is_last { OFlags::NONBLOCK } else { OFlags::PATH | OFlags::DIRECTORY };
        file = openat(&file, name, flags | COMMON, Mode::empty())?.into();
        if !is_valid(&file.metadata()?, is_last) {
            let name = name.to_string_lossy();
            let cause = format!("{name} has a wrong owner, can be written by others, or no file");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, cause));
        }
    }
    Ok(file)
}

const COMMON: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

impl Spool {
    /// The spool in the folder `crash-notices` of a data directory, an absolute path without links;
    /// while it cannot be written, such as on a full disk, in memory.
    pub fn new(data_dir: &Path) -> Spool {
        let name = data_dir.to_string_lossy().replace('/', "-");
        Spool::with_fallback(data_dir, Path::new("/dev/shm"), format!("{FOLDER}{name}"))
    }

    /// The folder in a data directory.
    pub fn folder(data_dir: &Path) -> PathBuf {
        data_dir.join(FOLDER)
    }

    /// User and group of the data directory, with whose rights the folders are written.
    pub fn owner(&self) -> io::Result<(u32, u32)> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "cannot open the data directory");
        self.owner.ok_or_else(missing)
    }

    /// With a folder in another one as the second.
    fn with_fallback(data_dir: &Path, above: &Path, name: String) -> Spool {
        let places = [(data_dir.to_owned(), FOLDER.to_owned()), (above.to_owned(), name)];
        let found = open_without_links(data_dir, |_, _| true).and_then(|dir| dir.metadata());
        Spool { places, owner: found.map(|found| (found.uid(), found.gid())).ok() }
    }

    /// The folder, which is created if it is missing.
    pub fn create(&self) -> io::Result<PathBuf> {
        let (above, name) = &self.places[0];
        self.open(0, true).map(|_| above.join(name))
    }

    fn open(&self, place: usize, is_created: bool) -> io::Result<File> {
        let owner = self.owner()?;
        let (above, name) = &self.places[place];
        let above = open_without_links(above, |_, _| true)?;
        let open = || openat(&above, name, OFlags::DIRECTORY | COMMON, Mode::empty());
        let (dir, is_new) = match open() {
            Err(Errno::NOENT) if is_created => {
                match mkdirat(&above, name, DIR_MODE) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                (open()?, true)
            }
            found => (found?, false),
        };
        let dir = File::from(dir);
        // In a directory of all users, another one may have created it.
        let found = dir.metadata()?;
        let is_trusted = found.uid() == 0 || found.uid() == owner.0;
        if !is_trusted || found.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if is_new {
            self.own(&dir);
        }
        Ok(dir)
    }

    /// Gives a file or folder to the agent.
    fn own(&self, file: &File) {
        if let Ok((uid, gid)) = self.owner() {
            // Without the right it stays with the caller, who may read it.
            let _ = fchown(file, Some(uid), Some(gid));
        }
    }

    /// Writes a file completely or not at all, and returns it, locked.
    fn write(&self, dir: &File, name: &str, extension: &str, bytes: &[u8]) -> io::Result<File> {
        let temporary = format!("{name}.tmp");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | COMMON;
        let mut file = File::from(openat(dir, &temporary, flags, FILE_MODE)?);
        let written = file.write_all(bytes).and_then(|()| {
            let _ = file.try_lock();
            self.own(&file);
            Ok(renameat(dir, &temporary, dir, format!("{name}.{extension}"))?)
        });
        if written.is_err() {
            let _ = unlinkat(dir, &temporary, AtFlags::empty());
        }
        written.map(|()| file)
    }

    /// A file of the folder that may exist, for appending.
    fn open_shared(&self, dir: &File, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | COMMON;
        let file = match openat(dir, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                match openat(dir, name, flags | OFlags::CREATE | OFlags::EXCL, FILE_MODE) {
                    Ok(new) => {
                        let new = File::from(new);
                        self.own(&new);
                        return Ok(new);
                    }
                    Err(Errno::EXIST) => openat(dir, name, flags, Mode::empty())?,
                    Err(error) => return Err(error.into()),
                }
            }
            found => found?,
        };
        let file = File::from(file);
        let found = file.metadata()?;
        // Not a file of another user, which was moved or linked here.
        if !found.is_file() || found.uid() != self.owner()?.0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(file)
    }

    /// Writes a partial notice, unless too many wait: then the crash is only counted, and the
    /// result is `None`. The agent does not send it while the file is held.
    pub fn begin(&self, name: &str, notice: &[u8]) -> io::Result<Option<File>> {
        self.first(|dir| {
            let waiting = names(dir)?.filter(|name| is_notice(name)).count();
            if waiting >= NOTICES_MAX {
                self.open_shared(dir, DROPPED)?.write_all(b"\n")?;
                return Ok(None);
            }
            self.write(dir, name, "partial", notice).map(Some)
        })
    }

    /// Counts a crash that has no notice.
    pub fn count_dropped(&self) -> io::Result<()> {
        self.first(|dir| self.open_shared(dir, DROPPED)?.write_all(b"\n"))
    }

    /// Replaces a partial notice by the complete one.
    pub fn finish(&self, name: &str, notice: &[u8]) -> io::Result<()> {
        let partial = format!("{name}.partial");
        self.first(|dir| {
            // Locked until it has its last name, or the agent would send it under both.
            let held = self.write(dir, name, "partial", notice)?;
            renameat(dir, &partial, dir, format!("{name}.notice"))?;
            drop(held);
            Ok(())
        })?;
        // The partial notice may be in the other folder.
        for dir in (0..self.places.len()).filter_map(|place| self.open(place, false).ok()) {
            let _ = unlinkat(&dir, &partial, AtFlags::empty());
        }
        Ok(())
    }

    /// Keeps a snapshot on this host, and removes the oldest.
    pub fn keep_snapshot(&self, name: &str, snapshot: &[u8]) -> io::Result<()> {
        if snapshot.len() > SNAPSHOT_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.first(|dir| {
            self.write(dir, name, "snapshot", snapshot)?;
            remove_oldest(dir, ".snapshot", SNAPSHOTS_MAX)
        })
    }

    /// Time of the last change of the folders; cheaper than [`Spool::waiting`].
    pub fn changed(&self) -> Option<SystemTime> {
        let open = |place| self.open(place, false).ok();
        let changed = |dir: File| dir.metadata().and_then(|found| found.modified()).ok();
        (0..self.places.len()).filter_map(open).filter_map(changed).max()
    }

    /// Names of notices that wait, the oldest first, with their folders.
    fn waiting_names(&self) -> Vec<(String, Arc<File>)> {
        let mut found = Vec::new();
        for dir in (0..self.places.len()).filter_map(|place| self.open(place, false).ok()) {
            let dir = Arc::new(dir);
            let names = names(&dir).into_iter().flatten().filter(|name| is_notice(name));
            found.extend(names.map(|name| (name, Arc::clone(&dir))));
        }
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        found
    }

    /// Number of notices that wait, at most some thousands.
    pub fn waiting_count(&self) -> usize {
        self.waiting_names().len()
    }

    /// Notices that wait and are wanted by their names, the oldest first, at most `count`. Partial
    /// ones are among them once their handler has ended.
    pub fn waiting(&self, count: usize, is_wanted: impl Fn(&str) -> bool) -> Vec<SpooledNotice> {
        let read = |(name, dir): (String, Arc<File>)| {
            let flags = OFlags::NONBLOCK | COMMON;
            let file = match openat(&dir, &name, flags, Mode::empty()) {
                Ok(file) => File::from(file),
                // It is complete now, or was removed.
                Err(Errno::NOENT) => return None,
                // A link, for example.
                Err(_) => return Some(SpooledNotice { dir, name, bytes: Vec::new() }),
            };
            let found = file.metadata().ok()?;
            if name.ends_with(".partial") && file.try_lock().is_err() && !is_abandoned(&found) {
                return None;
            }
            let mut bytes = Vec::new();
            if found.is_file() && found.len() <= NOTICE_BYTES_MAX as u64 {
                // It may have grown: then it is no JSON.
                let _ = file.take(NOTICE_BYTES_MAX as u64).read_to_end(&mut bytes);
            }
            Some(SpooledNotice { dir, name, bytes })
        };
        let wanted = self.waiting_names().into_iter().filter(|(name, _)| is_wanted(name));
        wanted.filter_map(read).take(count).collect()
    }

    /// Takes the number of crashes without a notice.
    pub fn take_dropped(&self) -> u64 {
        let take = |place: usize| {
            let dir = self.open(place, false).ok()?;
            renameat(&dir, DROPPED, &dir, TAKEN).ok()?;
            let file = openat(&dir, TAKEN, OFlags::NONBLOCK | COMMON, Mode::empty()).ok()?;
            let size = File::from(file).metadata().ok()?.len();
            unlinkat(&dir, TAKEN, AtFlags::empty()).ok().map(|()| size)
        };
        (0..self.places.len()).filter_map(take).sum()
    }

    /// The result in the first folder in which it succeeds, or the first error.
    fn first<T>(&self, act: impl Fn(&File) -> io::Result<T>) -> io::Result<T> {
        let mut results = (0..self.places.len()).map(|place| act(&self.open(place, true)?));
        let first = results.next().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
        first.or_else(|error| results.find_map(Result::ok).ok_or(error))
    }
}

impl SpooledNotice {
    /// Removes the notice, which was sent.
    pub fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.dir, &self.name, AtFlags::empty())?)
    }

    /// Renames a notice that cannot be sent to `.rejected`: it is kept for a while and not read
    /// again. Also a folder or a link.
    pub fn reject(&self) -> io::Result<()> {
        renameat(&self.dir, &self.name, &self.dir, format!("{}.rejected", self.name))?;
        remove_oldest(&self.dir, ".rejected", REJECTED_MAX)
    }
}

/// Removes the files with an extension whose names are the first, but for `count`.
fn remove_oldest(dir: &File, extension: &str, count: usize) -> io::Result<()> {
    let mut kept: Vec<String> = names(dir)?.filter(|name| name.ends_with(extension)).collect();
    kept.sort_unstable();
    let excess = kept.len().saturating_sub(count);
    kept[..excess].iter().for_each(|name| _ = unlinkat(dir, name, AtFlags::empty()));
    Ok(())
}

fn is_abandoned(partial: &Metadata) -> bool {
    let age = partial.modified().map(|time| time.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age > ABANDONED_AGE)
}

/// Names of the files of a folder.
fn names(dir: &File) -> io::Result<impl Iterator<Item = String>> {
    let entries = Dir::read_from(dir)?.map_while(Result::ok).take(FILES_MAX);
    Ok(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()))
}

fn is_notice(name: &str) -> bool {
    name.ends_with(".notice") || name.ends_with(".partial")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// An empty data directory.
    fn data_dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("topdeck-spool-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        fs::canonicalize(dir).unwrap()
    }

    fn texts(spool: &Spool) -> Vec<String> {
        let waiting = spool.waiting(10, |_| true);
        waiting.iter().map(|one| String::from_utf8_lossy(&one.bytes).into_owned()).collect()
    }

    #[test]
    fn complete_notice_replaces_the_partial_one() {
        let dir = data_dir("replaces");
        let spool = Spool::new(&dir);
        let held = spool.begin("2-7", b"signal").unwrap().unwrap();
        assert!(texts(&spool).is_empty());
        // A handler that does not end.
        held.set_modified(SystemTime::now() - 2 * ABANDONED_AGE).unwrap();
        assert_eq!(texts(&spool), ["signal"]);
        held.set_modified(SystemTime::now()).unwrap();
        assert!(texts(&spool).is_empty());
        // The handler died.
        drop(held);
        assert_eq!(texts(&spool), ["signal"]);
        spool.finish("2-7", b"all").unwrap();
        spool.finish("1-7", b"earlier").unwrap();
        assert_eq!(texts(&spool), ["earlier", "all"]);
        assert_eq!(spool.waiting_count(), 2);
        spool.waiting(10, |name| !name.starts_with('1')).iter().for_each(|it| it.remove().unwrap());
        assert_eq!(texts(&spool), ["earlier"]);
        fs::remove_dir_all(dir).unwrap();
    }

    /// A handler that waits for a slow former handler still has its partial notice.
    #[test]
    fn a_notice_is_read_under_one_name_only() {
        let dir = data_dir("once");
        let spool = Spool::new(&dir);
        let held = spool.begin("1-7", b"signal").unwrap().unwrap();
        spool.finish("1-7", b"all").unwrap();
        let sent = spool.waiting(10, |_| true);
        assert_eq!((sent.len(), sent[0].name.as_str()), (1, "1-7.notice"));
        sent[0].remove().unwrap();
        drop(held);
        assert_eq!(spool.waiting_count(), 0);
        // An agent has looked for the name while the notice was complete but not renamed.
        let first = spool.open(0, false).unwrap();
        let held = spool.write(&first, "2-7", "partial", b"all").unwrap();
        assert!(texts(&spool).is_empty());
        drop(held);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_cannot_be_sent_is_set_aside() {
        let dir = data_dir("rejected");
        let spool = Spool::new(&dir);
        spool.finish("9-1", b"good").unwrap();
        let folder = Spool::folder(&dir);
        fs::write(folder.join("1-1.notice"), vec![b'x'; NOTICE_BYTES_MAX + 1]).unwrap();
        fs::create_dir(folder.join("2-1.notice")).unwrap();
        symlink("9-1.notice", folder.join("3-1.notice")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("4-1.notice"), 0o600.into()).unwrap();
        for index in 10..10 + REJECTED_MAX {
            fs::write(folder.join(format!("{index}.notice")), "").unwrap();
        }
        let waiting = spool.waiting(100, |_| true);
        assert_eq!(waiting.len(), 5 + REJECTED_MAX);
        for one in waiting.iter().filter(|one| one.bytes.is_empty()) {
            one.reject().unwrap();
        }
        assert_eq!(texts(&spool), ["good"]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1 + REJECTED_MAX);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_large_snapshot_is_not_kept() {
        let dir = data_dir("snapshot");
        let spool = Spool::new(&dir);
        assert!(spool.keep_snapshot("1-1", &vec![b'x'; SNAPSHOT_BYTES_MAX + 1]).is_err());
        spool.keep_snapshot("1-1", b"{}").unwrap();
        assert_eq!(fs::read_dir(Spool::folder(&dir)).unwrap().count(), 1);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn second_folder_is_used_if_the_first_cannot_be_written() {
        let dir = data_dir("fallback");
        // A file stands where the folder should be: also root cannot write there.
        fs::write(dir.join(FOLDER), "").unwrap();
        let spool = Spool::with_fallback(&dir, &dir, "other".to_owned());
        let held = spool.begin("1-1", b"signal").unwrap();
        spool.finish("1-1", b"all").unwrap();
        drop(held);
        assert_eq!(texts(&spool), ["all"]);
        // A folder that others can write is not used.
        fs::set_permissions(dir.join("other"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(spool.begin("2-1", b"").is_err() && texts(&spool).is_empty());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn no_link_is_followed() {
        let dir = data_dir("links");
        let (victim, data) = (dir.join("victim"), dir.join("data"));
        fs::create_dir(&victim).unwrap();
        fs::create_dir(&data).unwrap();
        fs::write(victim.join("file"), "before").unwrap();
        let with_fallback = |data: &Path| Spool::with_fallback(data, data, "other".to_owned());
        // The folder, the folder above, and files in it.
        symlink(&victim, data.join(FOLDER)).unwrap();
        let spool = with_fallback(&data);
        drop(spool.begin("1-1", b"signal").unwrap());
        assert!(data.join("other/1-1.partial").exists());
        symlink(&data, dir.join("link")).unwrap();
        assert!(with_fallback(&dir.join("link")).begin("2-1", b"").is_err());
        fs::remove_file(data.join(FOLDER)).unwrap();
        fs::create_dir(data.join(FOLDER)).unwrap();
        for name in ["3-1.tmp", "dropped", "4-1.notice", "5-1.partial"] {
            symlink(victim.join("file"), data.join(FOLDER).join(name)).unwrap();
        }
        spool.finish("3-1", b"third").unwrap();
        // What the two links lead to is not read.
        assert_eq!(texts(&spool), ["signal", "third", "", ""]);
        // The link itself is replaced.
        spool.finish("4-1", b"fourth").unwrap();
        assert_eq!(texts(&spool), ["signal", "third", "fourth", ""]);
        let first = spool.open(0, false).unwrap();
        assert!(spool.open_shared(&first, DROPPED).is_err());
        assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "before");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn files_belong_to_the_owner_of_the_data_directory() {
        let dir = data_dir("owner");
        // Only root can give a file to another user.
        if std::os::unix::fs::chown(&dir, Some(4242), Some(4242)).is_err() {
            println!("skipped: not root");
            return;
        }
        let spool = Spool::new(&dir);
        drop(spool.begin("1-1", b"signal").unwrap());
        spool.keep_snapshot("1-1", b"{}").unwrap();
        for name in ["", "1-1.partial", "1-1.snapshot"] {
            let found = fs::metadata(dir.join(FOLDER).join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (4242, 4242), "{name}");
            assert_eq!(found.mode() & 0o7027, 0, "{name}");
        }
        // A hard link to a file of root is not written.
        fs::write(dir.join("secret"), "before").unwrap();
        fs::hard_link(dir.join("secret"), dir.join(FOLDER).join(DROPPED)).unwrap();
        // Nor a file of root that was moved there.
        fs::write(dir.join(FOLDER).join("moved"), "before").unwrap();
        let first = spool.open(0, false).unwrap();
        for name in [DROPPED, "moved"] {
            assert!(spool.open_shared(&first, name).is_err(), "{name}");
        }
        assert_eq!(fs::metadata(dir.join(FOLDER).join("moved")).unwrap().uid(), 0);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn crashes_beyond_the_limit_are_counted() {
        let dir = data_dir("limit");
        let spool = Spool::new(&dir);
        assert!(spool.begin("0", b"").unwrap().is_some());
        for index in 1..NOTICES_MAX {
            fs::write(dir.join(FOLDER).join(format!("{index}.notice")), "").unwrap();
        }
        assert!(spool.begin("a", b"").unwrap().is_none());
        assert!(spool.begin("b", b"").unwrap().is_none());
        spool.count_dropped().unwrap();
        assert_eq!((spool.take_dropped(), spool.take_dropped()), (3, 0));
        fs::remove_dir_all(dir).unwrap();
    }

    /// Not in memory either: nobody would read it there.
    #[test]
    fn without_a_data_directory_nothing_is_written() {
        let dir = data_dir("missing");
        let spool = Spool::with_fallback(&dir.join("none"), &dir, "other".to_owned());
        let error = spool.owner().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(spool.begin("1-1", b"signal").is_err() && spool.finish("1-1", b"all").is_err());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir_all(dir).unwrap();
    }

    /// The agent's user may replace the folder, or another user that in memory.
    #[test]
    fn a_folder_of_others_has_no_time() {
        let dir = data_dir("time");
        let spool = Spool::with_fallback(&dir, &dir, "other".to_owned());
        assert_eq!(spool.changed(), None);
        fs::create_dir(dir.join("other")).unwrap();
        fs::set_permissions(dir.join("other"), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(spool.changed().is_some());
        fs::set_permissions(dir.join("other"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(spool.changed(), None);
        fs::remove_dir_all(dir).unwrap();
    }
}
