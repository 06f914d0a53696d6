//! Time zones by their IANA names, as of the tables that the program was built with.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// A time zone.
pub(crate) struct Zone(TimeZone);

impl Zone {
    /// The one of a name, such as `Europe/Berlin`; what is wrong if there is none.
    pub(crate) fn find(name: &str) -> Result<Zone, String> {
        TimeZone::get(name).map(Zone).map_err(|_| {
            format!(
                "there is no time zone {name:?}: write one such as \"UTC\" or \"Europe/Berlin\""
            )
        })
    }

    /// What clocks there show at a moment in nanoseconds since the Unix epoch.
    pub(crate) fn local(&self, time: i64) -> DateTime {
        self.0.to_datetime(Timestamp::from_nanosecond(i128::from(time)).unwrap_or_default())
    }

    /// When clocks there show a date and a time; where they show it twice or never, the earlier
    /// moment.
    pub(crate) fn time_of_local(&self, local: DateTime) -> Option<i64> {
        let moment = self.0.to_ambiguous_timestamp(local).compatible().ok()?;
        i64::try_from(moment.as_nanosecond()).ok()
    }
}
