//! IANA time zones, from the tables compiled into the program.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// A time zone.
pub(crate) struct Zone(TimeZone);

impl Zone {
    /// Time zone with a name such as `Europe/Berlin`, or an error.
    pub(crate) fn find(name: &str) -> Result<Zone, String> {
        TimeZone::get(name).map(Zone).map_err(|_| {
            format!("unknown time zone {name:?}; use a name such as \"UTC\" or \"Europe/Berlin\"")
        })
    }

    /// Local time at a timestamp in nanoseconds since the Unix epoch.
    pub(crate) fn local(&self, time: i64) -> DateTime {
        self.0.to_datetime(Timestamp::from_nanosecond(i128::from(time)).unwrap_or_default())
    }

    /// Timestamp of a local date and time; the earlier one if the local time occurs twice or never.
    pub(crate) fn time_of_local(&self, local: DateTime) -> Option<i64> {
        let timestamp = self.0.to_ambiguous_timestamp(local).compatible().ok()?;
        i64::try_from(timestamp.as_nanosecond()).ok()
    }
}
