//! What processes do to names.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::{Machine, Open};
use crate::Mode;
use crate::sim::fault::Operation;
use crate::sim::names::{Entry, NodeId, parent};
use crate::sim::node::{Node, OpenId, Pid};

impl Machine {
    pub(in crate::sim) fn create_dir(&mut self, pid: Pid, path: &Path) -> io::Result<()> {
        self.alive(pid)?;
        let mut missing = Vec::new();
        for folder in path.ancestors() {
            match self.names.get(folder) {
                Some(Entry::Folder) => break,
                Some(Entry::File(_)) if missing.is_empty() => return Err(Errno::EXIST.into()),
                Some(Entry::File(_)) => return Err(Errno::NOTDIR.into()),
                None => missing.push(folder.to_owned()),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        self.operate(pid, Operation::CreateDir, &[path], |machine| {
            for folder in missing.into_iter().rev() {
                machine.names.change(vec![(folder, Some(Entry::Folder))]);
            }
            Ok(())
        })
    }

    pub(in crate::sim) fn open(&mut self, pid: Pid, path: &Path, mode: Mode) -> io::Result<OpenId> {
        self.alive(pid)?;
        let node = match (self.find(path)?, mode) {
            (Some(_), Mode::CreateNew) => return Err(Errno::EXIST.into()),
            (Some(Entry::Folder), _) => return Err(Errno::ISDIR.into()),
            (Some(Entry::File(node)), _) => {
                self.operate(pid, Operation::Open, &[path], |_| Ok(node))?
            }
            (None, Mode::Read | Mode::Write) => return Err(Errno::NOENT.into()),
            (None, Mode::Create | Mode::CreateNew) => {
                self.operate(pid, Operation::Create, &[path], |machine| machine.create(path))?
            }
        };
        let id = self.new_id();
        self.opens.insert(id, Open { node, pid, writable: mode != Mode::Read });
        Ok(id)
    }

    fn create(&mut self, path: &Path) -> io::Result<NodeId> {
        if self.free_pages() == 0 {
            return Err(Errno::NOSPC.into());
        }
        let id = self.new_id();
        self.nodes.insert(id, Node::default());
        self.names.change(vec![(path.to_owned(), Some(Entry::File(id)))]);
        Ok(id)
    }

    pub(in crate::sim) fn list(&mut self, pid: Pid, dir: &Path) -> io::Result<Vec<String>> {
        self.alive(pid)?;
        self.folder(dir)?;
        self.operate(pid, Operation::List, &[dir], |machine| {
            let here = machine.names.files().filter(|(path, _)| parent(path) == dir);
            let name = |(path, _): (&Path, _)| path.file_name()?.to_str().map(str::to_owned);
            let mut names: Vec<_> = here.filter_map(name).collect();
            machine.rng.shuffle(&mut names);
            Ok(names)
        })
    }

    pub(in crate::sim) fn rename(&mut self, pid: Pid, from: &Path, to: &Path) -> io::Result<()> {
        self.alive(pid)?;
        let node = self.file(from)?;
        if let Some(Entry::Folder) = self.find(to)? {
            return Err(Errno::ISDIR.into());
        }
        self.operate(pid, Operation::Rename, &[from, to], |machine| {
            if from != to {
                let gone = (from.to_owned(), None);
                machine.names.change(vec![gone, (to.to_owned(), Some(Entry::File(node)))]);
            }
            machine.sweep();
            Ok(())
        })
    }

    pub(in crate::sim) fn link(&mut self, pid: Pid, from: &Path, to: &Path) -> io::Result<()> {
        self.alive(pid)?;
        let node = self.file(from)?;
        if self.find(to)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.operate(pid, Operation::Link, &[from, to], |machine| {
            machine.names.change(vec![(to.to_owned(), Some(Entry::File(node)))]);
            Ok(())
        })
    }

    pub(in crate::sim) fn remove(&mut self, pid: Pid, path: &Path) -> io::Result<()> {
        self.alive(pid)?;
        self.file(path)?;
        self.operate(pid, Operation::Remove, &[path], |machine| {
            machine.names.change(vec![(path.to_owned(), None)]);
            machine.sweep();
            Ok(())
        })
    }

    pub(in crate::sim) fn sync_dir(&mut self, pid: Pid, dir: &Path) -> io::Result<()> {
        self.alive(pid)?;
        self.folder(dir)?;
        self.operate(pid, Operation::SyncDir, &[dir], |machine| {
            if !machine.dark {
                machine.names.sync(dir, machine.order);
                machine.sweep();
            }
            Ok(())
        })
    }

    /// What has this name, in a folder that exists.
    fn find(&self, path: &Path) -> io::Result<Option<Entry>> {
        self.folder(parent(path))?;
        Ok(self.names.get(path))
    }

    fn file(&self, path: &Path) -> io::Result<NodeId> {
        match self.find(path)? {
            Some(Entry::File(node)) => Ok(node),
            Some(Entry::Folder) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn folder(&self, path: &Path) -> io::Result<()> {
        let deepest = path.ancestors().find_map(|path| Some((path, self.names.get(path)?)));
        match deepest {
            Some((_, Entry::File(_))) => Err(Errno::NOTDIR.into()),
            Some((found, Entry::Folder)) if found == path => Ok(()),
            _ => Err(Errno::NOENT.into()),
        }
    }
}
