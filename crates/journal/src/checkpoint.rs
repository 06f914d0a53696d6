//! Named positions that survive everything. A subscriber is one that a reader moves; a mark is one that is
//! set by hand, to come back to.

use disk::{Disk, Mode};

use crate::error::{Doing, Error, Result};
use crate::layout::{CHECKPOINT, CHECKPOINT_MAGIC, Fields};
use crate::places::{self, Places};
use crate::twice::{PAYLOAD_BYTES, Twice};

/// What a checkpoint is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A reader moves it.
    Subscriber,
    /// It is set by hand.
    Mark,
}

/// A named position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its name.
    pub name: String,
    /// The next record to read.
    pub position: u64,
    /// When it was set last, in nanoseconds since the Unix epoch.
    pub moved: i64,
    /// What it is for.
    pub kind: Kind,
    /// Whether a journal that refuses at its limit does so rather than drop what this one has not passed.
    /// One that does not hold is given a gap instead.
    pub holds: bool,
    /// One of its two copies was damaged; the other is shown.
    pub damaged: bool,
}

impl Checkpoint {
    fn payload(&self) -> [u8; PAYLOAD_BYTES] {
        let mut payload = [0; PAYLOAD_BYTES];
        let mut fields = Fields::into(&CHECKPOINT, &mut payload[..]);
        fields.put("position", &self.position.to_le_bytes());
        fields.put("moved", &self.moved.to_le_bytes());
        fields.put(
            "kind",
            &[match self.kind {
                Kind::Subscriber => 0,
                Kind::Mark => 1,
            }],
        );
        fields.put("holds", &[u8::from(self.holds)]);
        payload
    }

    fn of(name: &str, payload: &[u8; PAYLOAD_BYTES], damaged: bool) -> Checkpoint {
        let fields = Fields::of(&CHECKPOINT, payload);
        Checkpoint {
            name: name.to_owned(),
            position: fields.u64("position"),
            moved: fields.i64("moved"),
            kind: if fields.u8("kind") == 0 { Kind::Subscriber } else { Kind::Mark },
            holds: fields.u8("holds") != 0,
            damaged,
        }
    }
}

/// All checkpoints by name, and the names of those whose copies are both damaged.
pub(crate) fn list(disk: &dyn Disk, places: &Places) -> Result<(Vec<Checkpoint>, Vec<String>)> {
    let dir = places.checkpoints();
    let mut names: Vec<String> = disk
        .list(&dir)
        .doing("list it", &dir)?
        .iter()
        .filter_map(|file| places::decode(file))
        .collect();
    names.sort_unstable();
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    for name in names {
        match read(disk, places, &name) {
            Ok(checkpoint) => found.push(checkpoint),
            Err(Error::Checkpoint { .. }) => damaged.push(name),
            // Removed since it was listed.
            Err(Error::NoCheckpoint { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((found, damaged))
}

/// What all checkpoints together still need. One that cannot be read may be anywhere: nothing it could need
/// is taken for passed.
pub(crate) struct Claims {
    pub(crate) checkpoints: Vec<Checkpoint>,
    damaged: Vec<String>,
}

impl Claims {
    pub(crate) fn read(disk: &dyn Disk, places: &Places) -> Result<Claims> {
        let (checkpoints, damaged) = list(disk, places)?;
        Ok(Claims { checkpoints, damaged })
    }

    /// All records below this position have been passed by all.
    pub(crate) fn slowest(&self) -> Option<u64> {
        let unknown = self.damaged.iter().map(|_| 0);
        self.checkpoints.iter().map(|c| c.position).chain(unknown).min()
    }

    /// The furthest behind of those that hold, and its position.
    pub(crate) fn holder(&self) -> Option<(u64, &str)> {
        let unknown = self.damaged.iter().map(|name| (0, name.as_str()));
        let holding = self.checkpoints.iter().filter(|c| c.holds);
        holding.map(|c| (c.position, c.name.as_str())).chain(unknown).min()
    }
}

/// Reads one.
pub(crate) fn read(disk: &dyn Disk, places: &Places, name: &str) -> Result<Checkpoint> {
    let path = places.checkpoint(name)?;
    match Twice::peek(disk, &path, CHECKPOINT_MAGIC) {
        Ok(Some((payload, wounded))) => Ok(Checkpoint::of(name, &payload, wounded)),
        Ok(None) => Err(Error::Checkpoint { path }),
        Err(error) => Err(missing(error, name)),
    }
}

/// Makes one, durably.
pub(crate) fn create(disk: &dyn Disk, places: &Places, checkpoint: &Checkpoint) -> Result<()> {
    let path = places.checkpoint(&checkpoint.name)?;
    Twice::create(disk, &path, CHECKPOINT_MAGIC, &checkpoint.payload()).map(drop)
}

/// Removes one, durably.
pub(crate) fn remove(disk: &dyn Disk, places: &Places, name: &str) -> Result<()> {
    let path = places.checkpoint(name)?;
    disk.remove(&path).doing("remove it", &path).map_err(|error| missing(error, name))?;
    let dir = places.checkpoints();
    disk.sync_dir(&dir).doing("make a removal from it durable", &dir)
}

/// Makes one durable as it is, whoever has set it; no error when it is gone.
pub(crate) fn sync(disk: &dyn Disk, places: &Places, name: &str) -> Result<()> {
    let path = places.checkpoint(name)?;
    match disk.open(&path, Mode::Write) {
        Ok(file) => file.sync().doing("make it durable", &path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).doing("open it", &path),
    }
}

fn missing(error: Error, name: &str) -> Error {
    match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::NoCheckpoint { name: name.to_owned() }
        }
        other => other,
    }
}

/// A checkpoint that is open to be moved, with its lock: nobody else moves it.
#[derive(Debug)]
pub(crate) struct Held {
    name: String,
    file: Twice,
}

impl Held {
    /// Opens and locks one.
    pub(crate) fn open(disk: &dyn Disk, places: &Places, name: &str) -> Result<Held> {
        let path = places.checkpoint(name)?;
        let file = match Twice::open(disk, &path, CHECKPOINT_MAGIC) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(Error::Checkpoint { path }),
            Err(error) => return Err(missing(error, name)),
        };
        if !file.file().try_lock().doing("lock it", &path)? {
            return Err(Error::SubscriberBusy { name: name.to_owned() });
        }
        // Whoever made it may have died before its name was durable.
        let dir = places.checkpoints();
        disk.sync_dir(&dir).doing("make the names in it durable", &dir)?;
        let mut held = Held { name: name.to_owned(), file };
        // It may have been moved between the reading and the lock.
        held.file.refresh()?;
        Ok(held)
    }

    pub(crate) fn get(&self) -> Checkpoint {
        Checkpoint::of(&self.name, self.file.payload(), false)
    }

    /// Sets it; `durably`, or only for other processes to see.
    pub(crate) fn set(&mut self, position: u64, moved: i64, durably: bool) -> Result<()> {
        let checkpoint = Checkpoint { position, moved, ..self.get() };
        self.file.write(&checkpoint.payload())?;
        if durably { self.file.sync() } else { Ok(()) }
    }
}
