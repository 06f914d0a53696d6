//! The words of a file as a reader gets them: out of a mapping where the file is our own, by copying where it is somebody else's, who
//! could cut it off under our feet (SIGBUS).

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::layout::{self, header, state};
use crate::map::Map;
use crate::sync::Ordering;

/// A file that is read.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: File,
    how: How,
}

/// Bytes of cells that a file may say it has beyond those that it takes.
const COPY_SLACK: u64 = 1 << 20;

#[derive(Debug)]
enum How {
    Mapped {
        head: Map,
        lanes: Vec<Map>,
    },
    /// Copied by `refresh`: what stands before the lanes as far as it is used, and the small cells of each lane.
    Copied {
        head: Vec<u64>,
        lanes: Vec<Vec<u64>>,
    },
}

/// The header of a file that is one of ours.
pub(crate) fn header_of(path: &Path) -> Result<[u64; header::WORDS]> {
    let file = open(path)?;
    read_header(path, &file)
}

fn open(path: &Path) -> Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path);
    let file = file.map_err(Error::io("opening", path))?;
    let found = file.metadata().map_err(Error::io("looking at", path))?;
    if !found.is_file() {
        return Err(damaged(path, "it is no regular file"));
    }
    Ok(file)
}

fn damaged(path: &Path, problem: impl Into<String>) -> Error {
    Error::Damaged { path: path.to_owned(), problem: problem.into() }
}

fn copy(path: &Path, file: &File, offset: usize, words: &mut [u64]) -> Result<()> {
    let mut bytes = vec![0; words.len() * 8];
    file.read_exact_at(&mut bytes, offset as u64).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged(path, format!("it ends before byte {}", offset + bytes.len())),
        _ => Error::Io { doing: "reading", path: path.to_owned(), cause },
    })?;
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Ok(())
}

/// The header, checked: this topdeck knows the version, and everything lies where this version has it.
fn read_header(path: &Path, file: &File) -> Result<[u64; header::WORDS]> {
    let mut words = [0; header::WORDS];
    copy(path, file, 0, &mut words)?;
    let magic = words[header::MAGIC];
    if magic == layout::MAGIC.swap_bytes() {
        return Err(damaged(path, "it was written by a machine of the other byte order"));
    }
    if magic != layout::MAGIC {
        return Err(damaged(path, format!("it begins with {magic:#018x}, not with {:#018x}", layout::MAGIC)));
    }
    let (found, features) = (words[header::VERSION], words[header::INCOMPATIBLE]);
    if found != layout::VERSION || features != 0 {
        let path = path.to_owned();
        return Err(Error::Version { path, found, features, known: layout::VERSION });
    }
    let places = [
        ("registry", header::REGISTRY, layout::REGISTRY),
        ("registry_capacity", header::REGISTRY_CAPACITY, layout::ENTRIES_MAX),
        ("texts", header::TEXTS, layout::TEXTS),
        ("texts_capacity", header::TEXTS_CAPACITY, layout::TEXTS_BYTES),
        ("lanes", header::LANES, layout::LANES),
        ("lane_stride", header::LANE_STRIDE, layout::LANE_STRIDE),
        ("lane_capacity", header::LANE_CAPACITY, layout::LANES_MAX),
        ("small_capacity", header::SMALL_CAPACITY, layout::SMALL_BYTES),
    ];
    for (name, at, expected) in places {
        if words[at] != expected as u64 {
            return Err(damaged(path, format!("{name} is {}, which must be {expected}", words[at])));
        }
    }
    if words[header::STATE] == state::BUILDING {
        return Err(damaged(path, "it is being made just now: try again"));
    }
    let most = [
        ("registry_count", header::REGISTRY_COUNT, layout::ENTRIES_MAX),
        ("texts_used", header::TEXTS_USED, layout::TEXTS_BYTES),
        ("lanes_used", header::LANES_USED, layout::LANES_MAX),
    ];
    for (name, at, most) in most {
        if words[at] > most as u64 {
            return Err(damaged(path, format!("{name} is {}, more than {most}", words[at])));
        }
    }
    let length = file.metadata().map_err(Error::io("looking at", path))?.len();
    let needed = layout::LANES as u64 + words[header::LANES_USED] * layout::LANE_STRIDE as u64;
    if length < needed {
        return Err(damaged(path, format!("it has {length} bytes, its lanes need {needed}")));
    }
    Ok(words)
}

impl Source {
    /// Opens a file; one of another user is copied, and one of our own if that is asked for.
    pub(crate) fn open(path: &Path, is_copied: bool) -> Result<Source> {
        let file = open(path)?;
        let owner = file.metadata().map_err(Error::io("looking at", path))?.uid();
        let how = if owner == rustix::process::geteuid().as_raw() && !is_copied {
            let head = Map::new(&file, 0, layout::LANES, false).map_err(Error::io("mapping", path))?;
            How::Mapped { head, lanes: Vec::new() }
        } else {
            How::Copied { head: Vec::new(), lanes: Vec::new() }
        };
        Ok(Source { path: path.to_owned(), file, how })
    }

    /// Whether what is read is what is there at that very moment, without a call.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.how, How::Mapped { .. })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of memory that the file takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.blocks() * 512)
    }

    /// The header as it is now, checked.
    pub(crate) fn header(&self) -> Result<[u64; header::WORDS]> {
        read_header(&self.path, &self.file)
    }

    /// Has at hand what this header speaks of.
    pub(crate) fn refresh(&mut self, words: &[u64; header::WORDS]) -> Result<()> {
        let lanes_used = (words[header::LANES_USED] as usize).min(layout::LANES_MAX);
        match &mut self.how {
            How::Mapped { lanes, .. } => {
                while lanes.len() < lanes_used {
                    let offset = layout::lane_offset(lanes.len()) as u64;
                    let lane = Map::new(&self.file, offset, layout::LANE_STRIDE, false)
                        .map_err(Error::io("mapping", &self.path))?;
                    lanes.push(lane);
                }
            }
            How::Copied { head, lanes } => {
                let entries = (words[header::REGISTRY_COUNT] as usize).min(layout::ENTRIES_MAX);
                let texts = (words[header::TEXTS_USED] as usize).min(layout::TEXTS_BYTES);
                let parts = [
                    (0, layout::REGISTRY + entries * layout::ENTRY_BYTES),
                    (layout::TEXTS, layout::TEXTS + texts.next_multiple_of(8)),
                ];
                head.resize(parts[1].1 / 8, 0);
                for (start, end) in parts {
                    copy(&self.path, &self.file, start, &mut head[start / 8..end / 8])?;
                }
                let claimed = (0..lanes_used)
                    .map(|lane| head[(layout::HEADER_BYTES + lane * layout::LANE_BYTES) / 8])
                    .fold(0u64, u64::saturating_add);
                let blocks = self.file.metadata().map_err(Error::io("looking at", &self.path))?.blocks();
                // A copy may have left out pages of zeros.
                if claimed > blocks * 512 + COPY_SLACK {
                    let problem = format!("its lanes say that they have {claimed} bytes, it has {}", blocks * 512);
                    return Err(damaged(&self.path, problem));
                }
                lanes.resize_with(lanes_used, Vec::new);
                for (number, cells) in lanes.iter_mut().enumerate() {
                    let reserved = head[(layout::HEADER_BYTES + number * layout::LANE_BYTES) / 8];
                    cells.resize((reserved as usize).min(layout::SMALL_BYTES) / 8, 0);
                    copy(&self.path, &self.file, layout::lane_offset(number), cells)?;
                }
            }
        }
        Ok(())
    }

    /// Words of what stands before the lanes; zeros where nothing was used when it was copied.
    pub(crate) fn head(&self, offset: usize, words: &mut [u64]) -> Result<()> {
        match &self.how {
            How::Mapped { head, .. } => load(&self.path, head, offset, words),
            How::Copied { head, .. } => {
                for (at, word) in words.iter_mut().enumerate() {
                    *word = head.get(offset / 8 + at).copied().unwrap_or(0);
                }
                Ok(())
            }
        }
    }

    /// Words of a lane as they are now.
    pub(crate) fn lane(&self, lane: usize, offset: usize, words: &mut [u64]) -> Result<()> {
        match &self.how {
            How::Mapped { lanes, .. } => match lanes.get(lane) {
                Some(map) => load(&self.path, map, offset, words),
                None => Err(damaged(&self.path, format!("there is no lane {lane} yet"))),
            },
            How::Copied { .. } if offset + words.len() * 8 <= layout::LANE_STRIDE => {
                copy(&self.path, &self.file, layout::lane_offset(lane) + offset, words)
            }
            How::Copied { .. } => Err(damaged(&self.path, "something points behind its lane")),
        }
    }

    /// Adds small cells of a lane that lie one behind the other to `sums`, or puts them there.
    pub(crate) fn add_small(
        &self,
        lane: usize,
        offset: usize,
        sums: &mut [u64],
        is_first: bool,
    ) -> Result<()> {
        let How::Mapped { lanes, .. } = &self.how else {
            for (at, sum) in sums.iter_mut().enumerate() {
                let held = if is_first { 0 } else { *sum };
                *sum = held.wrapping_add(self.small(lane, offset + at * 8)?);
            }
            return Ok(());
        };
        let cells = lanes.get(lane).and_then(|map| map.words(offset, sums.len()));
        let cells = cells.ok_or_else(|| damaged(&self.path, "something points behind its lane"))?;
        if is_first {
            for (cell, sum) in cells.iter().zip(sums) {
                *sum = cell.load(Ordering::Relaxed);
            }
        } else {
            for (cell, sum) in cells.iter().zip(sums) {
                *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
            }
        }
        Ok(())
    }

    /// A small cell of a lane: as it is now, or as it was when it was copied; 0 where it has no room.
    pub(crate) fn small(&self, lane: usize, offset: usize) -> Result<u64> {
        match &self.how {
            How::Mapped { .. } => {
                let mut word = [0];
                self.lane(lane, offset, &mut word)?;
                Ok(word[0])
            }
            How::Copied { lanes, .. } => {
                Ok(lanes.get(lane).and_then(|cells| cells.get(offset / 8)).copied().unwrap_or(0))
            }
        }
    }
}

fn load(path: &Path, map: &Map, offset: usize, words: &mut [u64]) -> Result<()> {
    let cells = map
        .words(offset, words.len())
        .ok_or_else(|| damaged(path, format!("nothing is at offset {offset}")))?;
    for (cell, word) in cells.iter().zip(words) {
        *word = cell.load(Ordering::Acquire);
    }
    Ok(())
}
