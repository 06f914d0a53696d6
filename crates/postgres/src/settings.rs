//! Settings of a server.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::session::SessionSettings;

/// Allowed intervals of views.
pub(crate) const INTERVALS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(600);
/// Allowed intervals of samples.
pub(crate) const SAMPLE_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_secs(60);
/// Default intervals.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// A server and how often it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PostgresServer {
    /// Value of the label `instance`.
    pub(crate) name: String,
    pub(crate) session: SessionSettings,
    pub(crate) interval: Duration,
    pub(crate) sample_interval: Duration,
}
