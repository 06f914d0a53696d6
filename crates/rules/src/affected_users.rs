//! Numbers of values above a limit, and of the users who have one.

use std::collections::BTreeMap;

use hist::{Bracket, LimitInclusion, Mixture};
use query::SeriesHandle;

use crate::evaluator::RuleQueryError;

/// Labels that tell sessions or users apart. `user` is not one of them: it is often an account of a
/// database, which many people share.
const USER_LABELS: [&str; 4] = ["session", "session_id", "sessionId", "user_id"];
/// Maximum number of users that are counted; each one is a read.
const USERS_MAX: usize = 10_000;

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

/// Number of users with a value above a limit; `None` without users.
pub(crate) fn count_users(
    users: BTreeMap<&str, Vec<&SeriesHandle>>,
    above: &impl Fn(&[&SeriesHandle]) -> Result<Option<Bracket>, RuleQueryError>,
) -> Result<Option<Bracket>, RuleQueryError> {
    let mut count = None;
    for series in users.into_values() {
        let found = above(&series)?.unwrap_or(Bracket::exact(0.0));
        let affected = found.map(|count| f64::from(u8::from(count >= 1.0)));
        let sum: &mut Bracket = count.get_or_insert(Bracket::exact(0.0));
        sum.lower += affected.lower;
        sum.estimate += affected.estimate;
        sum.upper += affected.upper;
    }
    Ok(count)
}

/// Series by user; `None` if no label tells users apart. The error is that there are too many.
pub(crate) fn users_of<'a>(
    handles: &'a [SeriesHandle],
    user_label: Option<&str>,
) -> Result<Option<BTreeMap<&'a str, Vec<&'a SeriesHandle>>>, RuleQueryError> {
    let has = |label: &str| handles.iter().any(|handle| !handle.labels.get(label).is_empty());
    let label = match user_label {
        Some(label) => Some(label).filter(|label| has(label)),
        None => USER_LABELS.into_iter().find(|label| has(label)),
    };
    let Some(label) = label else { return Ok(None) };
    let mut users: BTreeMap<&str, Vec<&SeriesHandle>> = BTreeMap::new();
    for handle in handles {
        let user = handle.labels.get(label);
        if !user.is_empty() {
            users.entry(user).or_default().push(handle);
        }
    }
    match users.len() <= USERS_MAX {
        true => Ok(Some(users)),
        false => Err(RuleQueryError(format!(
            "{} values of label {label:?} exceed limit {USERS_MAX}; select fewer series",
            users.len()
        ))),
    }
}
