//! What all parts of an open journal share: where it is, what it was created with, its buffer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, Mode};

use crate::buffer::{Buffer, Turn};
use crate::checkpoint::Claims;
use crate::codec;
use crate::error::{Doing, Error, Full, Result};
use crate::layout::{Fields, SETTINGS, SETTINGS_MAGIC};
use crate::places::Places;
use crate::presence::{Presence, Present};
use crate::segment::{self, SegmentHead};
use crate::settings::{AtLimit, Codec, Limits, Settings};
use crate::twice::{PAYLOAD_BYTES, Twice};

/// Tells the time in nanoseconds since the Unix epoch. It may step; nothing but the times shown and the age
/// limit depends on it.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The system's wall clock as of its last tick, some milliseconds old: a tenth of the cost of the exact one.
pub fn wall_clock() -> Clock {
    Arc::new(|| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
    })
}

/// The settings file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Born {
    pub(crate) id: u128,
    pub(crate) created: i64,
    pub(crate) settings: Settings,
}

impl Born {
    fn payload(&self) -> [u8; PAYLOAD_BYTES] {
        let mut payload = [0; PAYLOAD_BYTES];
        let mut fields = Fields::into(&SETTINGS, &mut payload[..]);
        let Settings { codec, buffer_bytes, segment_bytes, producers_max, limits } = self.settings;
        let age_max = limits
            .age_max
            .map_or(u64::MAX, |age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        fields.put("journal_id", &self.id.to_le_bytes());
        fields.put("created", &self.created.to_le_bytes());
        fields.put("buffer_bytes", &buffer_bytes.to_le_bytes());
        fields.put("segment_bytes", &segment_bytes.to_le_bytes());
        fields.put("bytes_max", &limits.bytes_max.unwrap_or(u64::MAX).to_le_bytes());
        fields.put("age_max", &age_max.to_le_bytes());
        fields.put("producers_max", &producers_max.to_le_bytes());
        fields.put("codec", &[codec::number(codec)]);
        fields.put(
            "at_limit",
            &[match limits.at_limit {
                AtLimit::Refuse => 0,
                AtLimit::DropOldest => 1,
            }],
        );
        payload
    }

    fn of(payload: &[u8; PAYLOAD_BYTES]) -> Born {
        let fields = Fields::of(&SETTINGS, payload);
        let some = |name| Some(fields.u64(name)).filter(|&value| value != u64::MAX);
        Born {
            id: fields.u128("journal_id"),
            created: fields.i64("created"),
            settings: Settings {
                codec: codec::numbered(fields.u8("codec")).unwrap_or(Codec::None),
                buffer_bytes: fields.u64("buffer_bytes"),
                segment_bytes: fields.u64("segment_bytes"),
                producers_max: fields.u32("producers_max"),
                limits: Limits {
                    bytes_max: some("bytes_max"),
                    age_max: some("age_max").map(Duration::from_nanos),
                    at_limit: if fields.u8("at_limit") == 0 {
                        AtLimit::Refuse
                    } else {
                        AtLimit::DropOldest
                    },
                },
            },
        }
    }

    /// Writes the settings file anew.
    pub(crate) fn create(&self, disk: &dyn Disk, places: &Places) -> Result<()> {
        Twice::create(disk, &places.settings(), SETTINGS_MAGIC, &self.payload()).map(drop)
    }

    /// Reads it; also whether one of its copies is damaged.
    pub(crate) fn read(disk: &dyn Disk, places: &Places) -> Result<(Born, bool)> {
        let path = places.settings();
        match Twice::peek(disk, &path, SETTINGS_MAGIC) {
            Ok(Some((payload, wounded))) => {
                let born = Born::of(&payload);
                // Its checksum is right: whoever wrote it knows what this program does not.
                born.settings.check()?;
                Ok((born, wounded))
            }
            Ok(None) => Err(Error::Settings { path }),
            Err(error) if error.is_not_found() => Err(match segment::list(disk, places) {
                // They say which journal it is: a new one in its place could read none of them.
                Ok(firsts) if !firsts.is_empty() => Error::Settings { path },
                _ => Error::Missing { dir: places.dir.clone() },
            }),
            Err(error) => Err(error),
        }
    }

    /// What the first segment whose head is sound says of the journal, with settings in the place
    /// of those that were lost. Without such a segment nothing in the journal can be read.
    pub(crate) fn of_segments(
        disk: &dyn Disk,
        places: &Places,
        settings: Settings,
    ) -> Result<Option<Born>> {
        for first in segment::list(disk, places)? {
            let path = places.segment(first);
            let file = disk.open(&path, Mode::Read).doing("open it", &path)?;
            if let Some(head) = SegmentHead::read_any(&*file, &path)? {
                return Ok(Some(Born { id: head.journal_id, created: head.created, settings }));
            }
        }
        Ok(None)
    }
}

/// An open journal's parts that are the same for its writer, readers and background thread.
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) places: Places,
    pub(crate) born: Born,
    pub(crate) buffer: Buffer,
    pub(crate) presence: Presence,
    pub(crate) clock: Clock,
    /// How long to wait for others.
    pub(crate) wait_max: Duration,
}

impl Store {
    /// Takes the append lock.
    #[inline]
    pub(crate) fn turn(&self) -> Result<Turn<'_>> {
        let waited = self.wait_max;
        let turn = self.buffer.lock(self.presence.slot, &self.present(), waited);
        turn.ok_or(Error::Stalled { waited })
    }

    pub(crate) fn present(&self) -> Present<'_> {
        Present { disk: &*self.disk, places: &self.places }
    }

    pub(crate) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// Bytes that segments take.
    pub(crate) fn segment_bytes(&self) -> Result<u64> {
        segment::total_bytes(&*self.disk, &self.places)
    }

    /// Why no segment can be begun.
    pub(crate) fn why_full(&self) -> Result<Full> {
        let limits = self.born.settings.limits;
        let used_bytes = self.segment_bytes()?;
        match limits.bytes_max {
            Some(max_bytes) if used_bytes + self.born.settings.segment_bytes > max_bytes => {
                let claims = Claims::read(&*self.disk, &self.places)?;
                let holder = claims.holder().map(|(_, name)| name.to_owned());
                Ok(Full::Limit { used_bytes, max_bytes, holder, policy: limits.at_limit })
            }
            _ => Ok(Full::Disk),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("places", &self.places)
            .field("born", &self.born)
            .finish_non_exhaustive()
    }
}
