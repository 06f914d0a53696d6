//! Directory operations of simulated processes.

use std::io;
use std::path::Path;

use disk::OpenMode;
use rustix::io::Errno;

use super::{OpenFile, SimMachine};
use crate::dir_state::{DirEntry, InodeId, parent};
use crate::fault::DiskOperation;
use crate::inode::{Inode, OpenId, Pid};

impl SimMachine {
    pub(crate) fn create_dir(&mut self, pid: Pid, path: &Path) -> io::Result<()> {
        self.live_process(pid)?;
        let mut missing = Vec::new();
        for directory in path.ancestors() {
            match self.names.get(directory) {
                Some(DirEntry::Dir) => break,
                Some(DirEntry::File(_)) if missing.is_empty() => return Err(Errno::EXIST.into()),
                Some(DirEntry::File(_)) => return Err(Errno::NOTDIR.into()),
                None => missing.push(directory.to_owned()),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        self.operate(pid, DiskOperation::CreateDir, &[path], |machine| {
            for directory in missing.into_iter().rev() {
                machine.names.change(vec![(directory, Some(DirEntry::Dir))]);
            }
            Ok(())
        })
    }

    pub(crate) fn open(&mut self, pid: Pid, path: &Path, mode: OpenMode) -> io::Result<OpenId> {
        self.live_process(pid)?;
        let node = match (self.find(path)?, mode) {
            (Some(_), OpenMode::CreateNew) => return Err(Errno::EXIST.into()),
            (Some(DirEntry::Dir), _) => return Err(Errno::ISDIR.into()),
            (Some(DirEntry::File(node)), _) => {
                self.operate(pid, DiskOperation::Open, &[path], |_| Ok(node))?
            }
            (None, OpenMode::Read | OpenMode::Write) => return Err(Errno::NOENT.into()),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                self.operate(pid, DiskOperation::Create, &[path], |machine| machine.create(path))?
            }
        };
        let id = self.new_id();
        self.open_files.insert(id, OpenFile { inode: node, pid, writable: mode != OpenMode::Read });
        Ok(id)
    }

    fn create(&mut self, path: &Path) -> io::Result<InodeId> {
        if self.free_pages() == 0 {
            return Err(Errno::NOSPC.into());
        }
        let id = self.new_id();
        self.inodes.insert(id, Inode::default());
        self.names.change(vec![(path.to_owned(), Some(DirEntry::File(id)))]);
        Ok(id)
    }

    pub(crate) fn list(&mut self, pid: Pid, dir: &Path) -> io::Result<Vec<String>> {
        self.live_process(pid)?;
        self.directory(dir)?;
        self.operate(pid, DiskOperation::List, &[dir], |machine| {
            let here = machine.names.files().filter(|(path, _)| parent(path) == dir);
            let name = |(path, _): (&Path, _)| path.file_name()?.to_str().map(str::to_owned);
            let mut names: Vec<_> = here.filter_map(name).collect();
            machine.rng.shuffle(&mut names);
            Ok(names)
        })
    }

    pub(crate) fn rename(&mut self, pid: Pid, from: &Path, to: &Path) -> io::Result<()> {
        self.live_process(pid)?;
        let node = self.file(from)?;
        if let Some(DirEntry::Dir) = self.find(to)? {
            return Err(Errno::ISDIR.into());
        }
        self.operate(pid, DiskOperation::Rename, &[from, to], |machine| {
            if from != to {
                let gone = (from.to_owned(), None);
                machine.names.change(vec![gone, (to.to_owned(), Some(DirEntry::File(node)))]);
            }
            machine.drop_unreferenced();
            Ok(())
        })
    }

    pub(crate) fn link(&mut self, pid: Pid, from: &Path, to: &Path) -> io::Result<()> {
        self.live_process(pid)?;
        let node = self.file(from)?;
        if self.find(to)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.operate(pid, DiskOperation::Link, &[from, to], |machine| {
            machine.names.change(vec![(to.to_owned(), Some(DirEntry::File(node)))]);
            Ok(())
        })
    }

    pub(crate) fn remove(&mut self, pid: Pid, path: &Path) -> io::Result<()> {
        self.live_process(pid)?;
        self.file(path)?;
        self.operate(pid, DiskOperation::Remove, &[path], |machine| {
            machine.names.change(vec![(path.to_owned(), None)]);
            machine.drop_unreferenced();
            Ok(())
        })
    }

    pub(crate) fn sync_dir(&mut self, pid: Pid, dir: &Path) -> io::Result<()> {
        self.live_process(pid)?;
        self.directory(dir)?;
        self.operate(pid, DiskOperation::SyncDir, &[dir], |machine| {
            if !machine.is_powered_off {
                machine.names.sync(dir, machine.name_order);
                machine.drop_unreferenced();
            }
            Ok(())
        })
    }

    /// Entry of this name, in an existing directory.
    fn find(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        self.directory(parent(path))?;
        Ok(self.names.get(path))
    }

    fn file(&self, path: &Path) -> io::Result<InodeId> {
        match self.find(path)? {
            Some(DirEntry::File(node)) => Ok(node),
            Some(DirEntry::Dir) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn directory(&self, path: &Path) -> io::Result<()> {
        let deepest = path.ancestors().find_map(|path| Some((path, self.names.get(path)?)));
        match deepest {
            Some((_, DirEntry::File(_))) => Err(Errno::NOTDIR.into()),
            Some((found, DirEntry::Dir)) if found == path => Ok(()),
            _ => Err(Errno::NOENT.into()),
        }
    }
}
