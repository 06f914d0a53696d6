//! Files of a package with their modes and owners, sorted by path.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Files and directories of a package. Directories above a file are added with it.
#[derive(Clone, Default)]
pub(super) struct FileTree {
    files: BTreeMap<String, PackageFile>,
}

/// A file or directory of a package.
#[derive(Clone)]
pub(super) struct PackageFile {
    pub(super) content: FileContent,
    /// Permission bits.
    pub(super) mode: u32,
    /// Number of the owning user and group.
    pub(super) owner: u32,
    /// Whether it is a settings file, which an upgrade does not replace if it was changed.
    pub(super) is_settings: bool,
}

#[derive(Clone)]
pub(super) enum FileContent {
    Directory,
    Regular(Arc<[u8]>),
}

const DIR_MODE: u32 = 0o755;
const ROOT: u32 = 0;

impl FileTree {
    /// Adds a file that all users can read. `path` is relative to the root of the package.
    pub(super) fn add(&mut self, path: &str, content: impl Into<Arc<[u8]>>) {
        self.add_file(path, 0o644, content);
    }

    /// Adds a file that all users can run.
    pub(super) fn add_program(&mut self, path: &str, content: impl Into<Arc<[u8]>>) {
        self.add_file(path, 0o755, content);
    }

    /// Adds a file that an upgrade does not replace if it was changed.
    pub(super) fn add_settings(&mut self, path: &str, content: impl Into<Arc<[u8]>>) {
        self.add(path, content);
        self.files.get_mut(path).expect("BUG: it was added").is_settings = true;
    }

    /// Adds a directory; its parents belong to root.
    pub(super) fn add_dir(&mut self, path: &str, mode: u32, owner: u32) {
        self.add_parents(path);
        let content = FileContent::Directory;
        let file = PackageFile { content, mode, owner, is_settings: false };
        self.files.insert(path.to_owned(), file);
    }

    /// Paths and files, parents before their children.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &PackageFile)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// Adds a file of another tree.
    pub(super) fn insert(&mut self, path: &str, file: PackageFile) {
        self.add_parents(path);
        self.files.insert(path.to_owned(), file);
    }

    fn add_file(&mut self, path: &str, mode: u32, content: impl Into<Arc<[u8]>>) {
        self.add_parents(path);
        let content = FileContent::Regular(content.into());
        let file = PackageFile { content, mode, owner: ROOT, is_settings: false };
        assert!(
            self.files.insert(path.to_owned(), file).is_none(),
            "BUG: the package has two files {path}"
        );
    }

    fn add_parents(&mut self, path: &str) {
        for (end, _) in path.match_indices('/') {
            self.files.entry(path[..end].to_owned()).or_insert(PackageFile {
                content: FileContent::Directory,
                mode: DIR_MODE,
                owner: ROOT,
                is_settings: false,
            });
        }
    }
}

impl PackageFile {
    /// The bytes of a file; none of a directory.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.content {
            FileContent::Directory => &[],
            FileContent::Regular(bytes) => bytes,
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self.content, FileContent::Directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_before_their_files() {
        let mut tree = FileTree::default();
        tree.add_dir("var/lib/x", 0o750, 7);
        tree.add("usr/b", *b"b");
        tree.add_program("usr/a/c", *b"c");
        let found: Vec<_> = tree.iter().map(|(path, file)| (path, file.mode, file.owner)).collect();
        let expected = [
            ("usr", 0o755, 0),
            ("usr/a", 0o755, 0),
            ("usr/a/c", 0o755, 0),
            ("usr/b", 0o644, 0),
            ("var", 0o755, 0),
            ("var/lib", 0o755, 0),
            ("var/lib/x", 0o750, 7),
        ];
        assert_eq!(found, expected);
    }
}
