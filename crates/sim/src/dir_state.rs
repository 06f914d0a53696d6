//! Directory state of a simulated disk: current and durable names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::rng::Rng;

/// Inode number, independent of names.
pub(super) type InodeId = u64;

/// Directory entry: directory or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirEntry {
    Dir,
    File(InodeId),
}

/// Order in which directory changes survive a power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameOrder {
    /// As in a journalling file system: in each directory, the changes up to some time. Renames are
    /// atomic, also between directories.
    #[default]
    Journal,
    /// Each name as of some time, independent of the others: after a rename both names or neither
    /// may exist.
    Arbitrary,
}

/// Change of one name, to `None` if it was removed.
type NameChange = (PathBuf, Option<DirEntry>);
type NameTable = BTreeMap<PathBuf, DirEntry>;

/// Directory state: current, durable, and the log between. Paths are absolute, without `.` and
/// `..`; `/` always exists and is not listed.
#[derive(Clone, Debug, Default)]
pub(super) struct DirState {
    current: NameTable,
    durable: NameTable,
    /// Changes that are not durable, oldest first; those of one entry are atomic.
    log: Vec<Vec<NameChange>>,
}

impl DirState {
    pub(super) fn get(&self, path: &Path) -> Option<DirEntry> {
        match path.parent() {
            None => Some(DirEntry::Dir),
            Some(_) => self.current.get(path).copied(),
        }
    }

    pub(super) fn change(&mut self, changes: Vec<NameChange>) {
        apply(&mut self.current, &changes);
        self.log.push(changes);
    }

    /// All files.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, InodeId)> {
        self.current.iter().filter_map(|(path, entry)| match entry {
            DirEntry::File(id) => Some((path.as_path(), *id)),
            DirEntry::Dir => None,
        })
    }

    /// Files that have a name now, or may have one after a power loss.
    pub(super) fn reachable(&self) -> BTreeSet<InodeId> {
        let log = self.log.iter().flatten().filter_map(|(_, entry)| entry.as_ref());
        let entries = self.current.values().chain(self.durable.values()).chain(log);
        let file = |entry: &DirEntry| match entry {
            DirEntry::File(id) => Some(*id),
            DirEntry::Dir => None,
        };
        entries.filter_map(file).collect()
    }

    /// Whether a file is one of them.
    pub(super) fn is_reachable(&self, id: InodeId) -> bool {
        let log = self.log.iter().flatten().filter_map(|(_, entry)| entry.as_ref());
        let mut entries = self.current.values().chain(self.durable.values()).chain(log);
        entries.any(|entry| *entry == DirEntry::File(id))
    }

    /// Makes the names in a directory durable, and others only as far as [`NameOrder`] requires.
    pub(super) fn sync(&mut self, dir: &Path, order: NameOrder) {
        let (durable, log) = (&mut self.durable, &mut self.log);
        match order {
            NameOrder::Arbitrary => {
                for changes in &mut *log {
                    let (here, elsewhere): (Vec<_>, Vec<_>) =
                        changes.drain(..).partition(|(path, _)| parent(path) == dir);
                    apply(durable, &here);
                    *changes = elsewhere;
                }
            }
            NameOrder::Journal => {
                // A rename from another directory includes the earlier changes there.
                let mut directories = BTreeSet::from([dir.to_owned()]);
                let mut is_due = vec![false; log.len()];
                for (changes, is_due) in log.iter().zip(&mut is_due).rev() {
                    *is_due = changes.iter().any(|(path, _)| directories.contains(parent(path)));
                    if *is_due {
                        directories.extend(changes.iter().map(|(path, _)| parent(path).to_owned()));
                    }
                }
                for (changes, is_due) in log.iter_mut().zip(is_due) {
                    if is_due {
                        apply(durable, changes);
                        changes.clear();
                    }
                }
            }
        }
        log.retain(|changes| !changes.is_empty());
    }

    /// Names after a power loss.
    pub(super) fn power_cut(&mut self, order: NameOrder, rng: &mut Rng) {
        let log = std::mem::take(&mut self.log);
        match order {
            NameOrder::Arbitrary => {
                let mut count = BTreeMap::<&Path, usize>::new();
                for (path, _) in log.iter().flatten() {
                    *count.entry(path).or_default() += 1;
                }
                for left in count.values_mut() {
                    *left = rng.up_to(*left);
                }
                for change @ (path, _) in log.iter().flatten() {
                    let left = count.get_mut(path.as_path()).expect("was counted");
                    if *left > 0 {
                        *left -= 1;
                        apply(&mut self.durable, std::slice::from_ref(change));
                    }
                }
            }
            NameOrder::Journal => {
                let mut count = BTreeMap::<&Path, usize>::new();
                for changes in &log {
                    parent_dirs(changes)
                        .into_iter()
                        .for_each(|dir| *count.entry(dir).or_default() += 1);
                }
                for left in count.values_mut() {
                    *left = rng.up_to(*left);
                }
                for changes in &log {
                    let dirs = parent_dirs(changes);
                    let arrives = dirs.iter().all(|dir| count[dir] > 0);
                    for dir in dirs {
                        let left = count.get_mut(dir).expect("was counted");
                        *left = if arrives { *left - 1 } else { 0 };
                    }
                    if arrives {
                        apply(&mut self.durable, changes);
                    }
                }
            }
        }
        // The contents of a lost directory are lost. Parents come before their children.
        let mut left = NameTable::new();
        for (path, entry) in std::mem::take(&mut self.durable) {
            let above = parent(&path);
            if above.parent().is_none() || left.get(above) == Some(&DirEntry::Dir) {
                left.insert(path, entry);
            }
        }
        self.current = left.clone();
        self.durable = left;
    }
}

fn parent_dirs(changes: &[NameChange]) -> BTreeSet<&Path> {
    changes.iter().map(|(path, _)| parent(path)).collect()
}

fn apply(table: &mut NameTable, changes: &[NameChange]) {
    for (path, entry) in changes {
        match entry {
            Some(entry) => table.insert(path.clone(), *entry),
            None => table.remove(path),
        };
    }
}

/// Parent directory of a name; `/` for `/`.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Absolute path; relative paths start at the root.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let mut absolute_path = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => absolute_path.push(name),
            Component::ParentDir => drop(absolute_path.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    absolute_path
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All sets of names that power losses may leave after `make`.
    #[track_caller]
    fn check(order: NameOrder, make: impl Fn(&mut DirState), expected: &[&str]) {
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let mut names = DirState::default();
            make(&mut names);
            names.power_cut(order, &mut Rng::new(seed));
            let name = |(path, id): (&Path, InodeId)| format!("{}={id}", path.display());
            seen.insert(names.files().map(name).collect::<Vec<_>>().join(" "));
        }
        assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    fn put(names: &mut DirState, path: &str, id: InodeId) {
        names.change(vec![(path.into(), Some(DirEntry::File(id)))]);
    }

    fn rename(names: &mut DirState, from: &str, to: &str, id: InodeId) {
        names.change(vec![(from.into(), None), (to.into(), Some(DirEntry::File(id)))]);
    }

    fn directory(names: &mut DirState, path: &str) {
        names.change(vec![(path.into(), Some(DirEntry::Dir))]);
    }

    #[test]
    fn a_journal_keeps_a_prefix() {
        let make = |names: &mut DirState| {
            put(names, "/a", 1);
            put(names, "/b", 2);
            rename(names, "/b", "/a", 2);
        };
        check(NameOrder::Journal, make, &["", "/a=1", "/a=1 /b=2", "/a=2"]);
    }

    #[test]
    fn arbitrary_order_keeps_any_version_of_each_name() {
        let make = |names: &mut DirState| {
            put(names, "/a", 1);
            names.sync(Path::new("/"), NameOrder::Arbitrary);
            rename(names, "/a", "/b", 1);
        };
        check(NameOrder::Arbitrary, make, &["", "/a=1", "/a=1 /b=1", "/b=1"]);
    }

    #[test]
    fn a_sync_is_for_one_directory() {
        let make = |names: &mut DirState| {
            directory(names, "/x");
            directory(names, "/y");
            names.sync(Path::new("/"), NameOrder::Journal);
            put(names, "/x/a", 1);
            put(names, "/y/a", 2);
            names.sync(Path::new("/y"), NameOrder::Journal);
        };
        check(NameOrder::Journal, make, &["/x/a=1 /y/a=2", "/y/a=2"]);
    }

    #[test]
    fn a_rename_between_directories_takes_both_with_it() {
        let base = |names: &mut DirState| {
            directory(names, "/x");
            directory(names, "/y");
            names.sync(Path::new("/"), NameOrder::Journal);
        };
        let make = |names: &mut DirState| {
            base(names);
            put(names, "/x/a", 1);
            rename(names, "/x/a", "/y/a", 1);
            put(names, "/x/b", 2);
        };
        check(NameOrder::Journal, make, &["", "/x/a=1", "/x/b=2 /y/a=1", "/y/a=1"]);
        let synced = |names: &mut DirState| {
            make(names);
            names.sync(Path::new("/y"), NameOrder::Journal);
        };
        check(NameOrder::Journal, synced, &["/x/b=2 /y/a=1", "/y/a=1"]);
    }

    #[test]
    fn a_file_goes_with_its_directory() {
        let make = |names: &mut DirState| {
            directory(names, "/x");
            put(names, "/x/a", 1);
            names.sync(Path::new("/x"), NameOrder::Journal);
        };
        for order in [NameOrder::Journal, NameOrder::Arbitrary] {
            check(order, make, &["", "/x/a=1"]);
        }
    }

    #[test]
    fn paths_begin_at_the_root() {
        let check = |path: &str, expected: &str| {
            assert_eq!(absolute(Path::new(path)), Path::new(expected), "{path}");
        };
        check("", "/");
        check("a", "/a");
        check("./a//b/../c/", "/a/c");
        check("/../a", "/a");
    }
}
