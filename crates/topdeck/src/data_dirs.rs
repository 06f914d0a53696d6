//! Access to the data directory, and its directories that were renamed since earlier versions.
//!
//! A directory is renamed at startup, after the store or the journal is locked. A rename is atomic
//! and fsynced before anything is written to the directory: after a crash the directory has either
//! name, and the next start continues.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Result, bail};
use client::STORE_DIR;
use rustix::fs::{Access, access};
use rustix::io::Errno;

/// Old name, new name.
const RENAMED_DIRS: [(&str, &str); 3] =
    [("boards", "dashboards"), ("refused", "dead-letter"), ("journal/books", "journal/ledgers")];

/// Checks that this user may read and write the data directory, or create it. Other errors are
/// found by whoever opens it.
pub(crate) fn check_access(data: &Path) -> Result<()> {
    let within = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    let above = Access::WRITE_OK | Access::EXEC_OK;
    for dir in [data.to_owned(), data.join(STORE_DIR), data.join("journal")] {
        for path in dir.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            match access(path, if path == dir { within } else { above }) {
                // The nearest directory that exists decides.
                Err(Errno::NOENT) => {}
                Err(Errno::ACCESS) => {
                    let owner = path.metadata().ok().map(|it| (it.uid(), it.mode() & 0o7777));
                    bail!(denied_text(data, path, rustix::process::getuid().as_raw(), owner));
                }
                _ => break,
            }
        }
    }
    Ok(())
}

/// Who may not access which directory, whose it is, and what to do.
fn denied_text(data: &Path, denied: &Path, user: u32, owner: Option<(u32, u32)>) -> String {
    let owner = owner.map_or_else(String::new, |(owner, mode)| {
        format!(", which belongs to user {owner} with mode {mode:o}")
    });
    format!(
        "cannot use data directory {}: permission denied for user {user} at {}{owner}; run topdeck \
         as the owner, give the directory to user {user} (chown -R {user} DIR), or choose another \
         one with --data-dir",
        data.display(),
        denied.display()
    )
}

/// Renames directories with old names. Returns log lines.
pub(crate) fn rename_old_dirs(data: &Path) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for (old, new) in RENAMED_DIRS {
        let (from, to) = (data.join(old), data.join(new));
        if !from.is_dir() {
            continue;
        }
        // rename(2) replaces an empty directory of the new name and fails for any other.
        match std::fs::rename(&from, &to) {
            Ok(()) => {
                File::open(to.parent().unwrap_or(data))?.sync_all()?;
                lines.push(format!("renamed {} to {}", from.display(), to.display()));
            }
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => lines.push(format!(
                "cannot rename {} to {}: the directory exists and is not empty; move the files of \
                 {old} there by hand",
                from.display(),
                to.display()
            )),
            Err(error) => return Err(error),
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::*;

    struct DataDir(PathBuf);

    impl DataDir {
        fn new() -> DataDir {
            let name = format!("topdeck-data-directories-{:x}", journal::random_id());
            let dir = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&dir).unwrap();
            DataDir(dir)
        }

        fn write(&self, path: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }

        /// Log lines without the path of the data directory.
        fn rename(&self) -> Vec<String> {
            let lines = rename_old_dirs(&self.0).unwrap().into_iter();
            lines.map(|line| line.replace(&format!("{}/", self.0.display()), "")).collect()
        }

        fn has(&self, path: &str) -> bool {
            self.0.join(path).exists()
        }
    }

    impl Drop for DataDir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn old_directories_are_renamed_once() {
        let data = DataDir::new();
        data.write("boards/shop.json");
        data.write("refused/north/00000000000000000001.parcel");
        data.write("journal/books/books");
        // State after a crash: the new directory exists and is empty.
        std::fs::create_dir(data.0.join("dashboards")).unwrap();
        assert_eq!(
            data.rename(),
            [
                "renamed boards to dashboards",
                "renamed refused to dead-letter",
                "renamed journal/books to journal/ledgers"
            ]
        );
        assert!(data.has("dashboards/shop.json") && !data.has("boards"));
        assert!(data.has("dead-letter/north/00000000000000000001.parcel") && !data.has("refused"));
        assert!(data.has("journal/ledgers/books") && !data.has("journal/books"));
        assert_eq!(data.rename(), [""; 0]);
    }

    #[test]
    fn a_directory_that_is_in_use_is_not_replaced() {
        let data = DataDir::new();
        data.write("boards/old.json");
        data.write("dashboards/new.json");
        let line = "cannot rename boards to dashboards: the directory exists and is not empty; \
                    move the files of boards there by hand";
        assert_eq!(data.rename(), [line]);
        assert!(data.has("boards/old.json") && data.has("dashboards/new.json"));
    }

    /// "Permission denied (os error 13)" named neither the user nor a remedy.
    #[test]
    fn a_data_directory_of_another_user_is_named_with_its_owner_and_what_to_do() {
        let (data, store) = (Path::new("/srv/deck"), Path::new("/srv/deck/store"));
        assert_eq!(
            denied_text(data, store, 1000, Some((0, 0o700))),
            "cannot use data directory /srv/deck: permission denied for user 1000 at \
             /srv/deck/store, which belongs to user 0 with mode 700; run topdeck as the owner, \
             give the directory to user 1000 (chown -R 1000 DIR), or choose another one with \
             --data-dir"
        );
        let dir = DataDir::new();
        assert!(check_access(&dir.0).is_ok());
        assert!(check_access(&dir.0.join("is/missing")).is_ok());
        let mode = |mode| {
            std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o500);
        let denied =
            [dir.0.clone(), dir.0.join("is/missing")].map(|dir| check_access(&dir).is_err());
        mode(0o700);
        // Root may write everywhere.
        assert_eq!(denied, [!rustix::process::getuid().is_root(); 2]);
    }
}
