//! Folders in which the handler of crashes leaves notices, and from which an agent sends them.
//!
//! A file `TIME-PID.partial` is written first, with what the kernel said; the complete notice
//! replaces it and is renamed to `.notice`. So a handler that dies leaves a notice too, which is
//! read after 10 s. Files belong to the owner of the data directory, which the agent is.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Notices that wait to be sent; more are only counted.
const NOTICES_MAX: usize = 1_000;
/// Snapshots that are kept; the oldest are removed.
const SNAPSHOTS_MAX: usize = 100;
/// Largest notice that is read.
const NOTICE_BYTES_MAX: u64 = 256 << 10;
/// Handlers that walk stacks at a time; others send a notice without a stack.
const HANDLERS_MAX: u32 = 8;
/// Age at which a partial notice is complete: its handler has ended.
const PARTIAL_AGE: Duration = Duration::from_secs(10);
/// Name of the file that has a byte for each crash without a notice.
const DROPPED: &str = "dropped";

/// Folders of notices; the first one that can be written is used.
#[derive(Clone, Debug)]
pub struct Spool {
    dirs: Vec<PathBuf>,
    /// User and group of the folders and files: those of the folder above the first one.
    owner: (u32, u32),
}

/// A notice that waits to be sent.
#[derive(Clone, Debug)]
pub struct SpooledNotice {
    path: PathBuf,
    /// Its JSON.
    pub bytes: Vec<u8>,
}

impl Spool {
    /// The spool in the folder `crashes` of a data directory; while it cannot be written, such as
    /// on a full disk, in memory.
    pub fn new(data_dir: &Path) -> Spool {
        let dir = data_dir.join("crashes");
        let name = dir.to_string_lossy().replace('/', "-");
        let fallback = Path::new("/dev/shm").join(format!("topdeck{name}"));
        Spool::with_fallback(&dir, &fallback)
    }

    /// A spool in a folder, with another one.
    fn with_fallback(dir: &Path, fallback: &Path) -> Spool {
        let above = dir.parent().and_then(|above| fs::metadata(above).ok());
        let owner = above.map_or((0, 0), |above| (above.uid(), above.gid()));
        Spool { dirs: vec![dir.to_owned(), fallback.to_owned()], owner }
    }

    /// The folder, which is created if it is missing.
    pub fn create(&self) -> io::Result<&Path> {
        let dir = &self.dirs[0];
        self.make(dir).map(|()| dir.as_path())
    }

    fn make(&self, dir: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o750).create(dir) {
            Ok(()) => {
                self.own(dir);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // In a directory of all users, another one may have created it.
                let found = fs::symlink_metadata(dir)?;
                let is_own = found.is_dir() && (found.uid() == 0 || found.uid() == self.owner.0);
                if is_own { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a file or folder to the agent.
    fn own(&self, path: &Path) {
        // Without the right it stays with the caller, who may read it.
        let _ = chown(path, Some(self.owner.0), Some(self.owner.1));
    }

    /// Writes a file completely or not at all.
    fn write(&self, dir: &Path, name: &str, extension: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        self.make(dir)?;
        let temporary = dir.join(format!("{name}.tmp"));
        let path = dir.join(format!("{name}.{extension}"));
        let file = options().write(true).create_new(true).open(&temporary);
        let written = file.and_then(|mut file| {
            file.write_all(bytes)?;
            self.own(&temporary);
            fs::rename(&temporary, &path)
        });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map(|()| path)
    }

    /// Waits for nothing: a lock of one of the places for handlers that walk stacks, or `None`.
    pub fn handler_slot(&self) -> Option<File> {
        self.first(|dir| {
            let mut free = (0..HANDLERS_MAX).filter_map(|slot| {
                let file = options().append(true).open(dir.join(format!("handler-{slot}"))).ok()?;
                file.try_lock().is_ok().then_some(file)
            });
            free.next().ok_or_else(|| io::ErrorKind::WouldBlock.into())
        })
        .ok()
    }

    /// Writes a partial notice, unless too many wait: then the crash is only counted. Returns
    /// whether it was written.
    pub fn begin(&self, name: &str, notice: &[u8]) -> io::Result<bool> {
        self.first(|dir| {
            self.make(dir)?;
            let waiting = fs::read_dir(dir)?.filter_map(|entry| extension(&entry.ok()?.path()));
            if waiting.filter(|found| is_notice(found)).count() >= NOTICES_MAX {
                options().append(true).open(dir.join(DROPPED))?.write_all(b"\n")?;
                self.own(&dir.join(DROPPED));
                return Ok(false);
            }
            self.write(dir, name, "partial", notice)?;
            Ok(true)
        })
    }

    /// Replaces a partial notice by the complete one.
    pub fn finish(&self, name: &str, notice: &[u8]) -> io::Result<()> {
        self.first(|dir| {
            let partial = self.write(dir, name, "partial", notice)?;
            fs::rename(partial, dir.join(format!("{name}.notice")))
        })?;
        // The partial notice may be in the other folder.
        self.dirs.iter().for_each(|dir| _ = fs::remove_file(dir.join(format!("{name}.partial"))));
        Ok(())
    }

    /// Keeps a snapshot on this host, and removes the oldest.
    pub fn keep_snapshot(&self, name: &str, snapshot: &[u8]) -> io::Result<PathBuf> {
        self.first(|dir| {
            let path = self.write(dir, name, "snapshot", snapshot)?;
            let paths = fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path()));
            let mut kept: Vec<PathBuf> =
                paths.filter(|path| extension(path).as_deref() == Some("snapshot")).collect();
            kept.sort_unstable();
            let excess = kept.len().saturating_sub(SNAPSHOTS_MAX);
            kept[..excess].iter().for_each(|path| _ = fs::remove_file(path));
            Ok(path)
        })
    }

    /// Notices that wait, the oldest first, at most `count`.
    pub fn waiting(&self, count: usize, now: SystemTime) -> Vec<SpooledNotice> {
        let mut paths = Vec::new();
        for entry in self.dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten() {
            let path = entry.path();
            let is_complete = match extension(&path).as_deref() {
                Some("notice") => true,
                Some("partial") => {
                    let written = entry.metadata().and_then(|metadata| metadata.modified());
                    let age = written.ok().and_then(|written| now.duration_since(written).ok());
                    age.is_some_and(|age| age >= PARTIAL_AGE)
                }
                _ => false,
            };
            if is_complete {
                paths.push(path);
            }
        }
        paths.sort_unstable_by(|a, b| a.file_name().cmp(&b.file_name()));
        paths.truncate(count);
        let read = |path: PathBuf| {
            let (mut bytes, file) = (Vec::new(), options_for_read().open(&path).ok()?);
            file.take(NOTICE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
            Some(SpooledNotice { path, bytes })
        };
        paths.into_iter().filter_map(read).collect()
    }

    /// Takes the number of crashes without a notice.
    pub fn take_dropped(&self) -> u64 {
        let take = |dir: &PathBuf| {
            let taken = dir.join("dropped-taken");
            fs::rename(dir.join(DROPPED), &taken).ok()?;
            let size = fs::metadata(&taken).ok()?.len();
            fs::remove_file(&taken).ok().map(|()| size)
        };
        self.dirs.iter().filter_map(take).sum()
    }

    /// The result in the first folder in which it succeeds, or the first error.
    fn first<T>(&self, act: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
        let mut results = self.dirs.iter().map(|dir| act(dir));
        let first = results.next().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
        first.or_else(|error| results.find_map(Result::ok).ok_or(error))
    }
}

impl SpooledNotice {
    /// Removes the notice, which was sent.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_owned())
}

fn is_notice(extension: &str) -> bool {
    matches!(extension, "notice" | "partial")
}

/// A file in a folder of another user: no link is followed.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o640).custom_flags(NO_FOLLOW);
    options
}

fn options_for_read() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(NO_FOLLOW);
    options
}

const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty data directory.
    fn data_dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("topdeck-spool-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn texts(spool: &Spool, now: SystemTime) -> Vec<String> {
        let waiting = spool.waiting(10, now);
        waiting.iter().map(|one| String::from_utf8_lossy(&one.bytes).into_owned()).collect()
    }

    #[test]
    fn complete_notice_replaces_the_partial_one() {
        let dir = data_dir("replaces");
        let spool = Spool::new(&dir);
        let (now, later) = (SystemTime::now(), SystemTime::now() + 2 * PARTIAL_AGE);
        spool.begin("2-7", b"signal").unwrap();
        assert!(texts(&spool, now).is_empty());
        // The handler died.
        assert_eq!(texts(&spool, later), ["signal"]);
        spool.finish("2-7", b"all").unwrap();
        spool.finish("1-7", b"earlier").unwrap();
        assert_eq!(texts(&spool, now), ["earlier", "all"]);
        spool.waiting(10, later).iter().for_each(|one| one.remove().unwrap());
        assert!(texts(&spool, later).is_empty());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn second_folder_is_used_if_the_first_cannot_be_written() {
        let dir = data_dir("fallback");
        // A file stands where the folder should be: also root cannot write there.
        fs::write(dir.join("full"), "").unwrap();
        let spool = Spool::with_fallback(&dir.join("full"), &dir.join("other"));
        spool.begin("1-1", b"signal").unwrap();
        spool.finish("1-1", b"all").unwrap();
        assert_eq!(texts(&spool, SystemTime::now()), ["all"]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn crashes_beyond_the_limit_are_counted() {
        let dir = data_dir("limit");
        let spool = Spool::new(&dir);
        assert!(spool.begin("0", b"").unwrap());
        for index in 1..NOTICES_MAX {
            fs::write(dir.join(format!("crashes/{index}.notice")), "").unwrap();
        }
        assert!(!spool.begin("a", b"").unwrap() && !spool.begin("b", b"").unwrap());
        assert_eq!((spool.take_dropped(), spool.take_dropped()), (2, 0));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn only_some_handlers_walk_stacks_at_a_time() {
        let dir = data_dir("slots");
        let spool = Spool::new(&dir);
        spool.begin("1", b"").unwrap();
        let held: Vec<File> = (0..HANDLERS_MAX).map(|_| spool.handler_slot().unwrap()).collect();
        assert!(spool.handler_slot().is_none());
        drop(held);
        assert!(spool.handler_slot().is_some());
        fs::remove_dir_all(dir).unwrap();
    }
}
