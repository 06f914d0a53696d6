//! Metrics file writer: created atomically, space reserved before use.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, ftruncate, openat, renameat};

use crate::cells::U64Cells;
use crate::entry::SeriesDefinition;
use crate::error::{Error, Result};
use crate::identity::ProcessIdentity;
use crate::lanes::LaneAllocator;
use crate::layout::{self, PAGE, header, state};
use crate::map::Map;
use crate::registry::{FileSpace, Registry};
use crate::sync::{AtomicU64, Ordering};
use crate::{cleanup, metrics_dir};

/// Writer of this process' metrics file.
#[derive(Debug)]
pub(crate) struct MetricsFileWriter {
    path: PathBuf,
    file: File,
    head: Map,
    pub(crate) lanes: LaneAllocator,
    maps: [OnceLock<Map>; layout::LANES_MAX],
    state: Mutex<WriterState>,
    /// Page whose first word is 0 in a forked process; `None` if the system does not support such
    /// pages.
    fork_mark: Option<Map>,
    is_inherited: AtomicBool,
}

/// Writer state under the lock: registry and reserved space.
#[derive(Debug)]
struct WriterState {
    registry: Registry,
    registry_reserved: usize,
    strings_reserved: usize,
    /// Reserved bytes of small cells, by lane.
    small_reserved: Box<[usize; layout::LANES_MAX]>,
    lanes_used: usize,
}

impl MetricsFileWriter {
    /// Creates the file of this process. A forked process starts with the registrations of its
    /// parent.
    pub(crate) fn create(parent: Option<&MetricsFileWriter>) -> Result<MetricsFileWriter> {
        let (dir_path, dir) = metrics_dir::open_own_dir()?;
        cleanup::remove_expired(&dir_path, cleanup::FileRetention::default());
        let identity = ProcessIdentity::current();
        let created = clock::now();
        let name = format!("{}-{created:x}.{}", identity.pid, layout::EXTENSION);
        let path = dir_path.join(&name);
        let temporary = format!(".{name}");
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&dir, &temporary, flags, Mode::from_raw_mode(0o640))
            .map_err(|cause| Error::io("making", &path)(cause.into()))?;
        let result = MetricsFileWriter::fill(&path, file, &identity, created, parent);
        let result = result.and_then(|writer| {
            renameat(&dir, &temporary, &dir, &name)
                .map_err(|cause| Error::io("naming", &path)(cause.into()))?;
            Ok(writer)
        });
        if result.is_err() {
            // An incomplete file is useless and may have filled the file system.
            let _ = rustix::fs::unlinkat(&dir, &temporary, rustix::fs::AtFlags::empty());
        }
        result
    }

    fn fill(
        path: &Path,
        file: OwnedFd,
        identity: &ProcessIdentity,
        created: u64,
        parent: Option<&MetricsFileWriter>,
    ) -> Result<MetricsFileWriter> {
        let file = File::from(file);
        extend_file(path, &file, layout::LANES_OFFSET as u64)?;
        reserve_space(path, &file, 0, layout::REGISTRY_OFFSET)?;
        let head =
            Map::new(&file, 0, layout::LANES_OFFSET, true).map_err(Error::io("mapping", path))?;
        let writer = MetricsFileWriter {
            path: path.to_owned(),
            file,
            head,
            lanes: LaneAllocator::new(),
            maps: [const { OnceLock::new() }; layout::LANES_MAX],
            state: Mutex::new(WriterState {
                registry: Registry::new(),
                registry_reserved: 0,
                strings_reserved: 0,
                small_reserved: Box::new([0; layout::LANES_MAX]),
                lanes_used: 0,
            }),
            fork_mark: Map::map_wiped_on_fork().ok(),
            is_inherited: AtomicBool::new(false),
        };
        if let Some(mark) = writer.fork_mark() {
            mark.store(1, Ordering::Relaxed);
        }
        writer.describe(identity, created)?;
        let mut inside = writer.lock_state();
        writer.open_lane(&mut inside, 0)?;
        if let Some(parent) = parent {
            // Another thread of the parent may have held the lock at the time of the fork.
            let parent_state = parent.state.try_lock();
            let empty = Registry::new();
            let of = parent_state.as_deref().map_or(&empty, |inside| &inside.registry);
            inside.with_space(&writer, |registry, room| {
                registry.copy_from_parent(room, &parent.head, of)
            })?;
        }
        let (program, command) = program();
        for (at, text) in [(header::PROGRAM, program), (header::COMMAND, command)] {
            let text = inside
                .with_space(&writer, |registry, room| registry.intern(room, text.as_bytes()))?;
            writer.word(at).store(text, Ordering::Relaxed);
        }
        drop(inside);
        writer.word(header::STATE).store(state::LIVE, Ordering::Release);
        Ok(writer)
    }

    fn describe(&self, identity: &ProcessIdentity, created: u64) -> Result<()> {
        let mut id = [0; 16];
        rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|cause| Error::io("naming", &self.path)(cause.into()))?;
        let id = u128::from_le_bytes(id);
        let words = [
            (header::MAGIC, layout::MAGIC),
            (header::VERSION, layout::VERSION),
            (header::ID, id as u64),
            (header::ID + 1, (id >> 64) as u64),
            (header::BOOT, identity.boot as u64),
            (header::BOOT + 1, (identity.boot >> 64) as u64),
            (header::PID, identity.pid.into()),
            (header::PID_NAMESPACE, identity.pid_namespace),
            (header::START_TICKS, identity.start_ticks),
            (header::UID, rustix::process::geteuid().as_raw().into()),
            (header::CREATED, created),
            (header::CREATED_UNIX, clock::wall().unix_ns as u64),
            (header::STATE, state::BUILDING),
            (header::REGISTRY, layout::REGISTRY_OFFSET as u64),
            (header::REGISTRY_CAPACITY, layout::ENTRIES_MAX as u64),
            (header::STRINGS, layout::STRINGS as u64),
            (header::STRINGS_CAPACITY, layout::STRINGS_BYTES as u64),
            (header::LANES, layout::LANES_OFFSET as u64),
            (header::LANE_STRIDE, layout::LANE_STRIDE as u64),
            (header::LANE_CAPACITY, layout::LANES_MAX as u64),
            (header::SMALL_CAPACITY, layout::SMALL_BYTES as u64),
        ];
        for (at, word) in words {
            self.word(at).store(word, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether an ancestor created the file and this process was forked.
    pub(crate) fn is_inherited(&self) -> bool {
        // Relaxed: a forked process starts with one thread.
        self.is_inherited.load(Ordering::Relaxed)
            || self.fork_mark().is_some_and(|mark| mark.load(Ordering::Relaxed) == 0)
    }

    /// Whether the writer detects forks without handlers.
    pub(crate) fn detects_fork(&self) -> bool {
        self.fork_mark.is_some()
    }

    /// Marks the writer as inherited; returns whether it was not marked before.
    pub(crate) fn mark_forked(&self) -> bool {
        !self.is_inherited.swap(true, Ordering::Relaxed)
    }

    fn fork_mark(&self) -> Option<&AtomicU64> {
        self.fork_mark.as_ref()?.at(0)
    }

    /// Word of the header.
    pub(crate) fn word(&self, number: usize) -> &AtomicU64 {
        self.head.at(number * 8).expect("BUG: outside the header")
    }

    /// An open lane.
    pub(crate) fn lane(&self, lane: usize) -> Option<&Map> {
        self.maps[lane].get()
    }

    /// Cells of a series, which is registered if it is new.
    pub(crate) fn register(&self, series: &SeriesDefinition) -> Result<u64> {
        self.lock_state().with_space(self, |registry, room| registry.find_or_add(room, series))
    }

    /// Cells of the first series of a family, one for each value of a label.
    pub(crate) fn register_family(
        &self,
        series: &SeriesDefinition,
        label: &str,
        values: &[&str],
    ) -> Result<u64> {
        self.lock_state().with_space(self, |registry, room| {
            registry.find_or_add_family(room, series, label, values)
        })
    }

    /// Position of a text.
    pub(crate) fn intern(&self, text: &str) -> Result<u64> {
        let text = text.as_bytes();
        let text = &text[..text.len().min(layout::STRING_MAX)];
        self.lock_state().with_space(self, |registry, room| registry.intern(room, text))
    }

    /// Allocates a free lane for this thread, if there is one; also returns its reserved bytes of
    /// small cells.
    pub(crate) fn allocate_lane(&self) -> Result<Option<(usize, usize)>> {
        let Some(lane) = self.lanes.allocate() else {
            self.word(header::SHARED_LANE_THREADS).fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        let mut inside = self.lock_state();
        let opened = self.open_lane(&mut inside, lane).and_then(|()| {
            let end = inside.registry.small_used();
            inside.reserve_small(self, lane, end)
        });
        if let Err(error) = opened {
            drop(inside);
            self.lanes.release(lane);
            return Err(error);
        }
        let entry = self.lane_entry(lane);
        entry.0[1].store(rustix::thread::gettid().as_raw_nonzero().get() as u64, Ordering::Relaxed);
        Ok(Some((lane, inside.small_reserved[lane])))
    }

    /// Releases a lane: its counts stay, and the next thread continues with them.
    pub(crate) fn release_lane(&self, lane: usize) {
        self.lane_entry(lane).0[1].store(0, Ordering::Relaxed);
        self.lanes.release(lane);
    }

    /// Reserves space for all registered small cells; returns the reserved bytes.
    pub(crate) fn reserve_small(&self, lane: usize) -> Result<usize> {
        let mut inside = self.lock_state();
        let end = inside.registry.small_used();
        inside.reserve_small(self, lane, end)?;
        Ok(inside.small_reserved[lane])
    }

    /// Reserves space for large cells.
    pub(crate) fn reserve_large(&self, lane: usize, offset: usize, bytes: usize) -> Result<()> {
        let (start, end) = (offset / PAGE * PAGE, (offset + bytes).next_multiple_of(PAGE));
        let end = end.min(layout::LANE_STRIDE);
        reserve_space(&self.path, &self.file, layout::lane_offset(lane) + start, end - start)?;
        if let Some(map) = self.lane(lane) {
            map.populate(start, end - start);
        }
        Ok(())
    }

    /// Counts a recorded value without space for its cells.
    pub(crate) fn count_lost_value(&self) {
        self.word(header::LOST_VALUES).fetch_add(1, Ordering::Relaxed);
    }

    /// Marks the shared lane as used.
    pub(crate) fn mark_shared_lane_used(&self) {
        self.lane_entry(0).0[2].store(1, Ordering::Relaxed);
    }

    /// Marks the process as exited regularly.
    pub(crate) fn mark_exited(&self) {
        self.word(header::ENDED).store(clock::now(), Ordering::Relaxed);
        self.word(header::STATE).store(state::EXITED, Ordering::Release);
    }

    fn lane_entry(&self, lane: usize) -> &U64Cells<4> {
        self.head
            .at(layout::HEADER_BYTES + lane * layout::LANE_BYTES)
            .expect("BUG: outside the table of lanes")
    }

    fn lock_state(&self) -> std::sync::MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Extends the file and maps the lane.
    fn open_lane(&self, inside: &mut WriterState, lane: usize) -> Result<()> {
        if self.maps[lane].get().is_some() {
            return Ok(());
        }
        let doing = |doing| move |cause: std::io::Error| Error::io(doing, &self.path)(cause);
        if lane >= inside.lanes_used {
            extend_file(&self.path, &self.file, layout::lane_offset(lane + 1) as u64)?;
        }
        let offset = layout::lane_offset(lane) as u64;
        let map =
            Map::new(&self.file, offset, layout::LANE_STRIDE, true).map_err(doing("mapping"))?;
        let _ = self.maps[lane].set(map);
        inside.lanes_used = inside.lanes_used.max(lane + 1);
        self.word(header::LANES_USED).store(inside.lanes_used as u64, Ordering::Release);
        Ok(())
    }
}

impl WriterState {
    fn with_space<T>(
        &mut self,
        writer: &MetricsFileWriter,
        work: impl FnOnce(&mut Registry, &mut FileSpace<'_>) -> Result<T>,
    ) -> Result<T> {
        let WriterState { registry, registry_reserved, strings_reserved, small_reserved, .. } =
            self;
        let mut reserve = |offset, bytes| reserve_space(&writer.path, &writer.file, offset, bytes);
        let mut reserve_small = |end| reserve_small_cells(small_reserved, writer, 0, end);
        let mut room = FileSpace {
            head: &writer.head,
            reserve: &mut reserve,
            reserve_small: &mut reserve_small,
            registry_reserved,
            strings_reserved,
        };
        work(registry, &mut room)
    }

    fn reserve_small(&mut self, writer: &MetricsFileWriter, lane: usize, end: usize) -> Result<()> {
        reserve_small_cells(&mut self.small_reserved, writer, lane, end)
    }
}

fn reserve_small_cells(
    reserved: &mut [usize; layout::LANES_MAX],
    writer: &MetricsFileWriter,
    lane: usize,
    end: usize,
) -> Result<()> {
    let end = end.next_multiple_of(PAGE);
    if end > reserved[lane] {
        let (start, bytes) = (reserved[lane], end - reserved[lane]);
        reserve_space(&writer.path, &writer.file, layout::lane_offset(lane) + start, bytes)?;
        if let Some(map) = writer.lane(lane) {
            map.populate(start, bytes);
        }
        reserved[lane] = end;
        writer.lane_entry(lane).0[0].store(end as u64, Ordering::Release);
    }
    Ok(())
}

/// Extends the file, which allocates no memory. Beyond the file size limit the kernel would kill
/// the process (SIGXFSZ).
fn extend_file(path: &Path, file: &File, bytes: u64) -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < bytes) {
        let cause = std::io::ErrorKind::FileTooLarge.into();
        return Err(Error::NoSpace { path: path.to_owned(), bytes: bytes as usize, cause });
    }
    ftruncate(file, bytes).map_err(|cause| Error::io("reserve space in", path)(cause.into()))
}

/// The file system allocates the space now or fails: a later access would raise SIGBUS.
fn reserve_space(path: &Path, file: &File, offset: usize, bytes: usize) -> Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), offset as u64, bytes as u64) {
            Err(rustix::io::Errno::INTR) => {}
            result => return result.map_err(metrics_dir::no_space_error(path, bytes)),
        }
    }
}

/// Name and command line of this program.
fn program() -> (String, String) {
    let name = std::env::current_exe()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_default();
    let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let mut command = command.collect::<Vec<_>>().join(" ");
    let mut end = command.len().min(layout::STRING_MAX);
    while !command.is_char_boundary(end) {
        end -= 1;
    }
    command.truncate(end);
    (name, command)
}
