//! Files and mapped buffer of an open journal, which other processes have open too.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, IoContext, OpenMode};

use crate::buffer::{AppendLockGuard, Buffer};
use crate::checkpoint::CheckpointSet;
use crate::compression;
use crate::error::{Error, FullReason, Result};
use crate::handle_locks::{HandleLocks, LivenessProbe};
use crate::layout::{FieldTable, SETTINGS, SETTINGS_MAGIC};
use crate::paths::Paths;
use crate::segment::{self, SegmentHeader};
use crate::settings::{Compression, LimitPolicy, Limits, Settings};
use crate::superblock::{PAYLOAD_BYTES, Superblock};
use crate::supervisor::Supervisor;
use crate::wall_clock::WallClock;

/// Contents of the settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredSettings {
    pub(crate) id: u128,
    pub(crate) created: i64,
    pub(crate) settings: Settings,
}

impl StoredSettings {
    fn payload(&self) -> [u8; PAYLOAD_BYTES] {
        let mut payload = [0; PAYLOAD_BYTES];
        let mut fields = FieldTable::into(&SETTINGS, &mut payload[..]);
        let Settings { compression, buffer_bytes, segment_bytes, dedup_producers, limits } =
            self.settings;
        let age_max = limits
            .age_max
            .map_or(u64::MAX, |age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        fields.put("journal_id", &self.id.to_le_bytes());
        fields.put("created", &self.created.to_le_bytes());
        fields.put("buffer_bytes", &buffer_bytes.to_le_bytes());
        fields.put("segment_bytes", &segment_bytes.to_le_bytes());
        fields.put("bytes_max", &limits.bytes_max.unwrap_or(u64::MAX).to_le_bytes());
        fields.put("age_max", &age_max.to_le_bytes());
        fields.put("dedup_producers", &dedup_producers.to_le_bytes());
        fields.put("compression", &[compression::compression_number(compression)]);
        fields.put(
            "on_full",
            &[match limits.on_full {
                LimitPolicy::Reject => 0,
                LimitPolicy::DropOldest => 1,
            }],
        );
        payload
    }

    fn from_payload(payload: &[u8; PAYLOAD_BYTES]) -> StoredSettings {
        let fields = FieldTable::read_only(&SETTINGS, payload);
        let some = |name| Some(fields.u64(name)).filter(|&value| value != u64::MAX);
        StoredSettings {
            id: fields.u128("journal_id"),
            created: fields.i64("created"),
            settings: Settings {
                compression: compression::compression_from_number(fields.u8("compression"))
                    .unwrap_or(Compression::None),
                buffer_bytes: fields.u64("buffer_bytes"),
                segment_bytes: fields.u64("segment_bytes"),
                dedup_producers: fields.u32("dedup_producers"),
                limits: Limits {
                    bytes_max: some("bytes_max"),
                    age_max: some("age_max").map(Duration::from_nanos),
                    on_full: if fields.u8("on_full") == 0 {
                        LimitPolicy::Reject
                    } else {
                        LimitPolicy::DropOldest
                    },
                },
            },
        }
    }

    /// Writes a new settings file.
    pub(crate) fn create(&self, disk: &dyn Disk, paths: &Paths) -> Result<()> {
        Superblock::create(disk, &paths.settings(), SETTINGS_MAGIC, &self.payload()).map(drop)
    }

    /// Reads the file; returns whether one copy is corrupt.
    pub(crate) fn read(disk: &dyn Disk, paths: &Paths) -> Result<(StoredSettings, bool)> {
        let path = paths.settings();
        match Superblock::read_only(disk, &path, SETTINGS_MAGIC) {
            Ok(Some((payload, is_degraded))) => {
                let stored_settings = StoredSettings::from_payload(&payload);
                // The checksum is right: a newer program wrote it.
                stored_settings.settings.check()?;
                Ok((stored_settings, is_degraded))
            }
            Ok(None) => Err(Error::SettingsLost { path }),
            Err(error) if error.is_not_found() => Err(match segment::list(disk, paths) {
                // Segments belong to the lost id: a new journal in this place could not read them.
                Ok(firsts) if !firsts.is_empty() => Error::SettingsLost { path },
                _ => Error::NotFound { dir: paths.dir.clone() },
            }),
            Err(error) => Err(error),
        }
    }

    /// Identity of the journal from the first segment with a valid header, with replacements for
    /// the lost settings. Without such a segment nothing in the journal can be read.
    pub(crate) fn from_segments(
        disk: &dyn Disk,
        paths: &Paths,
        settings: Settings,
    ) -> Result<Option<StoredSettings>> {
        for first in segment::list(disk, paths)? {
            let path = paths.segment(first);
            let file = disk.open(&path, OpenMode::Read).io_context("open", &path)?;
            if let Some(head) = SegmentHeader::read_any(&*file, &path)? {
                return Ok(Some(StoredSettings {
                    id: head.journal_id,
                    created: head.created,
                    settings,
                }));
            }
        }
        Ok(None)
    }
}

/// Files and mapped buffer of a journal: what writer, readers and background thread share, also
/// with other processes.
pub(crate) struct MappedJournal {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) paths: Paths,
    pub(crate) stored_settings: StoredSettings,
    pub(crate) buffer: Buffer,
    pub(crate) handle_locks: HandleLocks,
    pub(crate) clock: WallClock,
    /// Maximum wait for other processes.
    pub(crate) append_timeout: Duration,
    pub(crate) supervisor: Supervisor,
}

impl MappedJournal {
    /// Takes the append lock.
    #[inline]
    pub(crate) fn lock_append(&self) -> Result<AppendLockGuard<'_>> {
        let waited = self.append_timeout;
        let guard = self.buffer.lock(self.handle_locks.slot, &self.liveness(), waited);
        guard.ok_or(Error::AppendTimeout { waited })
    }

    pub(crate) fn liveness(&self) -> LivenessProbe<'_> {
        LivenessProbe { disk: &*self.disk, paths: &self.paths }
    }

    pub(crate) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// Size of the segments in bytes.
    pub(crate) fn segment_bytes(&self) -> Result<u64> {
        segment::total_bytes(&*self.disk, &self.paths)
    }

    /// Why no segment can be created.
    pub(crate) fn full_reason(&self) -> Result<FullReason> {
        let limits = self.stored_settings.settings.limits;
        let used_bytes = self.segment_bytes()?;
        match limits.bytes_max {
            Some(max_bytes)
                if used_bytes + self.stored_settings.settings.segment_bytes > max_bytes =>
            {
                let checkpoints = CheckpointSet::read(&*self.disk, &self.paths)?;
                let holder = checkpoints.oldest_pinned().map(|(_, name)| name.to_owned());
                Ok(FullReason::RetentionLimit {
                    used_bytes,
                    max_bytes,
                    holder,
                    policy: limits.on_full,
                })
            }
            _ => Ok(FullReason::NoSpace),
        }
    }
}

impl fmt::Debug for MappedJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("places", &self.paths)
            .field("stored_settings", &self.stored_settings)
            .finish_non_exhaustive()
    }
}
