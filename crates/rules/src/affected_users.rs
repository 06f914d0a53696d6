//! Numbers of values above a limit, and of the users who have one.

use std::collections::BTreeMap;
use std::ops::Range;

use hist::{Bracket, LimitInclusion, Mixture};
use query::overview::affected_users;
use query::{SeriesHandle, Source};

use crate::evaluator::RuleQueryError;

/// Maximum number of users with values that are counted.
pub(crate) const USERS_MAX: usize = 10_000;
/// Maximum number of users of a rule whose values are read, with those whose sessions are over as
/// far as that is not known: each one is a read.
pub(crate) const USER_READS_MAX: usize = 100_000;

/// Series of the users of a stream.
pub(crate) struct UserSeries<'a> {
    label: &'a str,
    users: BTreeMap<&'a str, Vec<&'a SeriesHandle>>,
}

/// Number of values above a limit; `None` without values.
pub(crate) fn count_above(values: &Mixture, limit: f64) -> Option<Bracket> {
    if values.count() == 0 {
        return None;
    }
    let found = values.count_above(limit, LimitInclusion::Exclusive);
    let number = |count: u64| count as f64;
    Some(Bracket {
        lower: number(found.lower),
        estimate: number(found.estimate),
        upper: number(found.upper),
    })
}

/// Series that may have rows in a range. A session that is over has none, and there may be very
/// many of them: each one that is left out is a read less.
pub(crate) fn with_rows(
    source: &dyn Source,
    mut handles: Vec<SeriesHandle>,
    range: &Range<i64>,
) -> Vec<SeriesHandle> {
    if let Some(windows) = source.windows(range.clone()) {
        handles.retain(|handle| {
            windows.rows(&[handle]).is_none_or(|rows| rows.newest_end().is_some())
        });
    }
    handles
}

/// Label that tells users apart: the one of the settings, or one of sessions that a series has.
pub(crate) fn label_of_users<'a>(
    handles: &[SeriesHandle],
    user_label: Option<&'a str>,
) -> Option<&'a str> {
    affected_users::label_of_users(user_label, |label| {
        handles.iter().any(|handle| !handle.labels.get(label).is_empty())
    })
}

impl<'a> UserSeries<'a> {
    /// Series by user; `None` if no label tells users apart.
    pub(crate) fn of(
        handles: &'a [SeriesHandle],
        user_label: Option<&'a str>,
    ) -> Option<UserSeries<'a>> {
        let label = label_of_users(handles, user_label)?;
        let mut users: BTreeMap<&str, Vec<&SeriesHandle>> = BTreeMap::new();
        for handle in handles {
            let user = handle.labels.get(label);
            if !user.is_empty() {
                users.entry(user).or_default().push(handle);
            }
        }
        Some(UserSeries { label, users })
    }

    /// Number of users with a value above a limit; `above` has the number of such values, `None`
    /// without values. The error is that there are too many users, or too many with values.
    pub(crate) fn count(
        self,
        reads_max: usize,
        above: &impl Fn(&[&SeriesHandle]) -> Result<Option<Bracket>, RuleQueryError>,
    ) -> Result<Bracket, RuleQueryError> {
        let exceeded = |limit: usize| {
            let cause = format!("limit of {limit} users (label {:?}) exceeded", self.label);
            Err(RuleQueryError(cause + "; select fewer series"))
        };
        if self.users.len() > reads_max {
            return exceeded(reads_max);
        }
        let mut count = Bracket::exact(0.0);
        let mut active: usize = 0;
        for series in self.users.into_values() {
            let Some(found) = above(&series)? else { continue };
            active += 1;
            if active > USERS_MAX {
                return exceeded(USERS_MAX);
            }
            let affected = found.map(|count| f64::from(u8::from(count >= 1.0)));
            count.lower += affected.lower;
            count.estimate += affected.estimate;
            count.upper += affected.upper;
        }
        Ok(count)
    }
}
