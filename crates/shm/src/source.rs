//! File source: mapped for files of the same user, copied otherwise.

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::layout::{self, header, state};
use crate::map::Map;
use crate::sync::Ordering;

/// Open metrics file, mapped or copied.
#[derive(Debug)]
pub(crate) struct FileSource {
    path: PathBuf,
    file: File,
    access: SourceAccess,
}

#[derive(Debug)]
enum SourceAccess {
    Mapped {
        head: Map,
        lanes: Vec<Map>,
    },
    /// Copied by `refresh`.
    Copied {
        /// Header and table of lanes.
        head: Vec<u64>,
        /// Small cells of each lane.
        lanes: Vec<Vec<u64>>,
        /// Memory of the file in bytes.
        bytes: u64,
    },
}

/// Tolerance between the claimed size of the cells and the memory of the file: a copy may have left
/// out pages of zeros.
const COPY_SLACK: u64 = 1 << 20;

/// Read budget of one file. It bounds the cost of forged contents: cells that change during all
/// eight read attempts, holes, or operations that all have the longest tags.
#[derive(Debug)]
pub(crate) struct ReadBudget {
    /// Words of cells that may be read.
    words: Cell<u64>,
    /// Bytes of unbounded results that may be kept.
    bytes: Cell<usize>,
}

/// Budget as a multiple of the file's memory: a histogram that changes all the time needs about
/// twelve reads.
const READS_MAX: u64 = 32;
/// Additional words: a copy may lack some pages.
const READS_SLACK: u64 = 1 << 20;
/// Cost of a system call in words.
const CALL_WORDS: u64 = 16;
/// Limit of in-flight operations of all tables with their texts, in bytes.
const RETAINED_BYTES_MAX: usize = 64 << 20;

impl ReadBudget {
    /// Charges the budget; returns whether the bytes may be kept.
    pub(crate) fn charge_bytes(&self, bytes: usize) -> bool {
        let remaining = self.bytes.get().checked_sub(bytes);
        remaining.is_some_and(|remaining| {
            self.bytes.set(remaining);
            true
        })
    }

    fn charge_words(&self, words: usize) -> bool {
        let remaining = self.words.get().checked_sub(words as u64 + CALL_WORDS);
        remaining.is_some_and(|remaining| {
            self.words.set(remaining);
            true
        })
    }
}

/// Header of a file in topdeck's format.
pub(crate) fn read_header_at(path: &Path) -> Result<[u64; header::WORDS]> {
    let (file, _) = open(path)?;
    read_header(path, &file)
}

fn open(path: &Path) -> Result<(File, Metadata)> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path);
    let file = file.map_err(Error::io("opening", path))?;
    let found = file.metadata().map_err(Error::io("looking at", path))?;
    if !found.is_file() {
        return Err(damaged_error(path, "not a regular file"));
    }
    Ok((file, found))
}

fn damaged_error(path: &Path, problem: impl Into<String>) -> Error {
    Error::Damaged { path: path.to_owned(), reason: problem.into() }
}

fn read(path: &Path, file: &File, offset: usize, bytes: &mut [u8]) -> Result<()> {
    let end = offset + bytes.len();
    file.read_exact_at(bytes, offset as u64).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged_error(path, format!("ends before byte {end}")),
        _ => Error::Io { action: "reading", path: path.to_owned(), cause },
    })
}

fn copy(path: &Path, file: &File, offset: usize, words: &mut [u64]) -> Result<()> {
    let mut bytes = vec![0; words.len() * 8];
    read(path, file, offset, &mut bytes)?;
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Ok(())
}

/// Reads and checks the header: the version is supported, and all parts are at the offsets of this
/// version.
fn read_header(path: &Path, file: &File) -> Result<[u64; header::WORDS]> {
    let mut words = [0; header::WORDS];
    copy(path, file, 0, &mut words)?;
    let magic = words[header::MAGIC];
    if magic == layout::MAGIC.swap_bytes() {
        return Err(damaged_error(path, "written with another byte order"));
    }
    if magic != layout::MAGIC {
        return Err(damaged_error(
            path,
            format!("invalid magic {magic:#018x}, expected {:#018x}", layout::MAGIC),
        ));
    }
    let (found, features) = (words[header::VERSION], words[header::INCOMPATIBLE]);
    if found != layout::VERSION || features != 0 {
        let path = path.to_owned();
        return Err(Error::Version { path, found, features, supported: layout::VERSION });
    }
    let places = [
        ("registry", header::REGISTRY, layout::REGISTRY_OFFSET),
        ("registry_capacity", header::REGISTRY_CAPACITY, layout::ENTRIES_MAX),
        ("strings", header::STRINGS, layout::STRINGS),
        ("strings_capacity", header::STRINGS_CAPACITY, layout::STRINGS_BYTES),
        ("lanes", header::LANES, layout::LANES_OFFSET),
        ("lane_stride", header::LANE_STRIDE, layout::LANE_STRIDE),
        ("lane_capacity", header::LANE_CAPACITY, layout::LANES_MAX),
        ("small_capacity", header::SMALL_CAPACITY, layout::SMALL_BYTES),
    ];
    for (name, at, expected) in places {
        if words[at] != expected as u64 {
            return Err(damaged_error(
                path,
                format!("{name} is {}, expected {expected}", words[at]),
            ));
        }
    }
    if words[header::STATE] == state::BUILDING {
        return Err(damaged_error(path, "file is being created; try again"));
    }
    let most = [
        ("registry_count", header::REGISTRY_COUNT, layout::ENTRIES_MAX),
        ("strings_used", header::STRINGS_USED, layout::STRINGS_BYTES),
        ("lanes_used", header::LANES_USED, layout::LANES_MAX),
    ];
    for (name, at, most) in most {
        if words[at] > most as u64 {
            return Err(damaged_error(path, format!("{name} is {}, limit {most}", words[at])));
        }
    }
    let length = file.metadata().map_err(Error::io("looking at", path))?.len();
    let needed =
        layout::LANES_OFFSET as u64 + words[header::LANES_USED] * layout::LANE_STRIDE as u64;
    if length < needed {
        return Err(damaged_error(path, format!("file has {length} bytes, lanes need {needed}")));
    }
    Ok(words)
}

impl FileSource {
    /// Opens a file. It is copied if it belongs to another user, or on request.
    pub(crate) fn open(path: &Path, is_copied: bool) -> Result<FileSource> {
        let (file, found) = open(path)?;
        let how = if found.uid() == rustix::process::geteuid().as_raw() && !is_copied {
            let head = Map::new(&file, 0, layout::REGISTRY_OFFSET, false)
                .map_err(Error::io("mapping", path))?;
            SourceAccess::Mapped { head, lanes: Vec::new() }
        } else {
            SourceAccess::Copied { head: Vec::new(), lanes: Vec::new(), bytes: 0 }
        };
        Ok(FileSource { path: path.to_owned(), file, access: how })
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Memory of the file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.blocks() * 512)
    }

    /// Current header, unchecked and without a system call; `None` for a copied file.
    pub(crate) fn live_header(&self) -> Option<[u64; header::WORDS]> {
        let SourceAccess::Mapped { head, .. } = &self.access else { return None };
        let mut words = [0; header::WORDS];
        load(&self.path, head, 0, &mut words).ok()?;
        Some(words)
    }

    /// Maps or copies everything that the current header refers to; returns the checked header.
    pub(crate) fn refresh(&mut self) -> Result<[u64; header::WORDS]> {
        let words = read_header(&self.path, &self.file)?;
        let lanes_used = words[header::LANES_USED] as usize;
        match &mut self.access {
            SourceAccess::Mapped { lanes, .. } => {
                while lanes.len() < lanes_used {
                    let offset = layout::lane_offset(lanes.len()) as u64;
                    let lane = Map::new(&self.file, offset, layout::LANE_STRIDE, false)
                        .map_err(Error::io("mapping", &self.path))?;
                    lanes.push(lane);
                }
            }
            SourceAccess::Copied { head, lanes, bytes } => {
                head.resize((layout::HEADER_BYTES + lanes_used * layout::LANE_BYTES) / 8, 0);
                copy(&self.path, &self.file, 0, head)?;
                let found = self.file.metadata().map_err(Error::io("looking at", &self.path))?;
                *bytes = found.blocks() * 512;
                let reserved =
                    |lane| head[lane_word(lane)].min(layout::SMALL_BYTES as u64) as usize;
                let claimed = (0..lanes_used).map(reserved).sum::<usize>() as u64;
                if claimed > *bytes + COPY_SLACK {
                    let problem = format!("lanes claim {claimed} bytes, file has {bytes}");
                    return Err(damaged_error(&self.path, problem));
                }
                lanes.resize_with(lanes_used, Vec::new);
                for (lane, cells) in lanes.iter_mut().enumerate() {
                    cells.resize(reserved(lane) / 8, 0);
                    copy(&self.path, &self.file, layout::lane_offset(lane), cells)?;
                }
            }
        }
        Ok(words)
    }

    /// Budget of one read. A mapped file has no other writers and needs no bound.
    pub(crate) fn budget(&self) -> ReadBudget {
        let words = match &self.access {
            SourceAccess::Mapped { .. } => u64::MAX,
            SourceAccess::Copied { bytes, .. } => bytes / 8 * READS_MAX + READS_SLACK,
        };
        ReadBudget { words: Cell::new(words), bytes: Cell::new(RETAINED_BYTES_MAX) }
    }

    /// Reads bytes that never change once written.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        read(&self.path, &self.file, offset, bytes)
    }

    /// Current value of a header word.
    pub(crate) fn word(&self, number: usize) -> Result<u64> {
        if let SourceAccess::Mapped { head, .. } = &self.access {
            return load_one(&self.path, head, number * 8);
        }
        let mut word = [0];
        copy(&self.path, &self.file, number * 8, &mut word)?;
        Ok(word[0])
    }

    /// Bytes of small cells with space in a lane.
    pub(crate) fn reserved_small_cells(&self, lane: usize) -> usize {
        self.lane_entry(lane, 0).min(layout::SMALL_BYTES as u64) as usize
    }

    /// Whether a thread recorded in the shared lane.
    pub(crate) fn uses_shared_lane(&self) -> bool {
        self.lane_entry(0, 2) != 0
    }

    /// Word of an entry of the table of lanes; 0 for an unknown lane.
    fn lane_entry(&self, lane: usize, word: usize) -> u64 {
        let at = lane_word(lane) + word;
        match &self.access {
            SourceAccess::Mapped { head, .. } => load_one(&self.path, head, at * 8).unwrap_or(0),
            SourceAccess::Copied { head, .. } => head.get(at).copied().unwrap_or(0),
        }
    }

    /// Current words of a lane.
    pub(crate) fn lane(
        &self,
        budget: &ReadBudget,
        lane: usize,
        offset: usize,
        words: &mut [u64],
    ) -> Result<()> {
        if !budget.charge_words(words.len()) {
            let problem = "read aborted: the file claims more data than it holds";
            return Err(damaged_error(&self.path, problem));
        }
        match &self.access {
            SourceAccess::Mapped { lanes, .. } => match lanes.get(lane) {
                Some(map) => load(&self.path, map, offset, words),
                None => Err(lane_error(&self.path, lane)),
            },
            SourceAccess::Copied { .. } if offset + words.len() * 8 <= layout::LANE_STRIDE => {
                copy(&self.path, &self.file, layout::lane_offset(lane) + offset, words)
            }
            SourceAccess::Copied { .. } => Err(damaged_error(&self.path, "offset beyond its lane")),
        }
    }

    /// Adds consecutive small cells of a lane to `sums`, or stores them there.
    pub(crate) fn add_small_cells(
        &self,
        lane: usize,
        offset: usize,
        sums: &mut [u64],
        is_first: bool,
    ) -> Result<()> {
        let SourceAccess::Mapped { lanes, .. } = &self.access else {
            for (at, sum) in sums.iter_mut().enumerate() {
                let held = if is_first { 0 } else { *sum };
                *sum = held.wrapping_add(self.small(lane, offset + at * 8)?);
            }
            return Ok(());
        };
        let cells = lanes.get(lane).and_then(|map| map.words(offset, sums.len()));
        let cells = cells.ok_or_else(|| damaged_error(&self.path, "offset beyond its lane"))?;
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

    /// Small cell of a lane: the current or copied value; 0 if it has no space.
    pub(crate) fn small(&self, lane: usize, offset: usize) -> Result<u64> {
        match &self.access {
            SourceAccess::Mapped { lanes, .. } => match lanes.get(lane) {
                Some(map) => load_one(&self.path, map, offset),
                None => Err(lane_error(&self.path, lane)),
            },
            SourceAccess::Copied { lanes, .. } => {
                Ok(lanes.get(lane).and_then(|cells| cells.get(offset / 8)).copied().unwrap_or(0))
            }
        }
    }
}

/// Index of the entry of a lane in header and lane table, in words.
fn lane_word(lane: usize) -> usize {
    (layout::HEADER_BYTES + lane * layout::LANE_BYTES) / 8
}

fn lane_error(path: &Path, lane: usize) -> Error {
    damaged_error(path, format!("lane {lane} does not exist"))
}

fn load_one(path: &Path, map: &Map, offset: usize) -> Result<u64> {
    let mut word = [0];
    load(path, map, offset, &mut word)?;
    Ok(word[0])
}

fn load(path: &Path, map: &Map, offset: usize, words: &mut [u64]) -> Result<()> {
    let cells = map
        .words(offset, words.len())
        .ok_or_else(|| damaged_error(path, format!("no cells at offset {offset}")))?;
    for (cell, word) in cells.iter().zip(words) {
        *word = cell.load(Ordering::Acquire);
    }
    Ok(())
}
