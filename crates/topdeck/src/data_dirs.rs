//! The data directory, and its directories that were renamed since earlier versions.
//!
//! A directory is renamed at startup, after the store or the journal is locked. A rename is atomic
//! and fsynced before anything is written to the directory: after a crash the directory has either
//! name, and the next start continues.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Directory of the store in the data directory.
pub(crate) const STORE_DIR: &str = "store";

/// Old name, new name.
const RENAMED_DIRS: [(&str, &str); 3] =
    [("boards", "dashboards"), ("refused", "dead-letter"), ("journal/books", "journal/ledgers")];

/// Data directory without settings: from `STATE_DIRECTORY`, `XDG_DATA_HOME` or `HOME`.
pub(crate) fn default_data_dir() -> Option<PathBuf> {
    let of =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    of("STATE_DIRECTORY")
        .or_else(|| of("XDG_DATA_HOME").map(|home| home.join("topdeck")))
        .or_else(|| of("HOME").map(|home| home.join(".local/share/topdeck")))
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
}
