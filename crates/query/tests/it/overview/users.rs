//! Users above the threshold of a row.

use query::overview::affected_users::AffectedUsers;

use super::*;

const NOON: i64 = MIDNIGHT + 9 * DAY + 12 * HOUR;
const UNLIMITED: (Duration, &dyn Fn() -> Duration) = (Duration::MAX, &|| Duration::ZERO);

/// A request of a session in the minute that ends at `end`.
fn send(fixture: &Fixture, session: &str, end: i64, ms: f64) {
    fixture.send_labelled(("latency", &[("session", session)]), end, [ms]);
}

/// Users above 500 ms of the only row, and whether all have been read.
fn count(
    fixture: &Fixture,
    overview: &mut Overview,
    label: Option<&str>,
    limit: (Duration, &dyn Fn() -> Duration),
) -> (Option<AffectedUsers>, bool) {
    let mut page = overview.page(ALL, &|_| Some(RowThreshold::of_user(500.0)));
    let view = fixture.store.view().unwrap();
    let label = |_: &_| label.map(str::to_owned);
    let is_complete = overview.count_users(&view, &mut page, &label, limit).unwrap();
    assert_eq!(page.rows.len(), 1);
    (page.rows.remove(0).users, is_complete)
}

/// Numbers of now and today that are known exactly.
#[track_caller]
fn numbers(users: Option<AffectedUsers>) -> (Option<u64>, Option<u64>) {
    let users = users.expect("a label tells users apart");
    let exact = |of: hist::Bracket<u64>| {
        assert!(of.is_exact(), "{of:?}");
        of.estimate
    };
    (users.now.map(exact), users.today.map(exact))
}

fn refreshed(fixture: &Fixture, now: i64) -> Overview {
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    fixture.refresh(&mut overview, now);
    overview
}

#[test]
fn row_with_sessions_says_how_many_had_a_slow_request_now_and_today() {
    let fixture = Fixture::new();
    // Two slow requests of one session are one user; a session may be slow in the morning only.
    for (session, end, ms) in [
        ("ann", NOON, 900.0),
        ("ann", NOON - MINUTE, 800.0),
        ("ben", NOON - 5 * HOUR, 900.0),
        ("ben", NOON, 20.0),
        ("cem", NOON, 30.0),
        ("dan", NOON - DAY, 900.0),
    ] {
        send(&fixture, session, end, ms);
    }
    let mut overview = refreshed(&fixture, NOON);
    assert!(!overview.has_users());
    let (users, is_complete) = count(&fixture, &mut overview, None, UNLIMITED);
    assert_eq!(users.as_ref().map(|users| &users.label[..]), Some("session"));
    assert_eq!((numbers(users), is_complete), ((Some(1), Some(2)), true));
    assert!(overview.has_users());
    // The label that the settings name has no values.
    let (users, is_complete) = count(&fixture, &mut overview, Some("customer"), UNLIMITED);
    assert_eq!((users, is_complete), (None, true));
}

#[test]
fn row_without_a_label_of_users_has_no_number_of_them() {
    let fixture = Fixture::new();
    fixture.send_labelled(("latency", &[("user", "postgres")]), NOON, [900.0]);
    let mut overview = refreshed(&fixture, NOON);
    assert_eq!(count(&fixture, &mut overview, None, UNLIMITED), (None, true));
    // The setting of an SLO names it.
    let (users, _) = count(&fixture, &mut overview, Some("user"), UNLIMITED);
    assert_eq!(numbers(users), (Some(1), Some(1)));
}

#[test]
fn users_of_a_refreshed_overview_are_those_of_one_that_is_read_anew() {
    let fixture = Fixture::new();
    let mut kept = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    let mut seen = std::collections::BTreeSet::new();
    // Past midnight: a session is slow in each seventh minute.
    for minute in 0..180 {
        let end = MIDNIGHT + 9 * DAY + 22 * HOUR + minute * MINUTE;
        let ms = if minute % 7 == 0 { 900.0 } else { 20.0 };
        send(&fixture, &format!("session-{}", minute % 20), end, ms);
        if minute % 4 == 1 {
            let now = end + 17 * store::SECOND;
            fixture.refresh(&mut kept, now);
            let (of_kept, _) = count(&fixture, &mut kept, None, UNLIMITED);
            let mut anew = refreshed(&fixture, now);
            let (of_anew, _) = count(&fixture, &mut anew, None, UNLIMITED);
            assert_eq!(of_kept, of_anew, "minute {minute}");
            seen.insert(numbers(of_kept));
        }
    }
    assert!(seen.contains(&(Some(1), Some(1))) && seen.len() > 5, "{seen:?}");
}

#[test]
fn users_that_were_not_read_in_time_are_unknown_until_a_later_refresh() {
    let fixture = Fixture::new();
    for user in 0..5 {
        send(&fixture, &format!("user-{user}"), NOON, 900.0);
        send(&fixture, &format!("user-{user}"), NOON - 3 * HOUR, 900.0);
    }
    let mut overview = refreshed(&fixture, NOON);
    let calls = std::cell::Cell::new(0_u32);
    let elapsed = || {
        calls.set(calls.get() + 1);
        Duration::from_secs(calls.get().into())
    };
    // Time for two users.
    let limit = |seconds| (Duration::from_secs(seconds), &elapsed as &dyn Fn() -> Duration);
    let (users, is_complete) = count(&fixture, &mut overview, None, limit(3));
    let users = users.unwrap();
    assert_eq!((users.now, users.today, is_complete), (None, None, false));
    assert_eq!(users.reason.as_deref(), Some("not read yet: out of time"));
    // For the last minutes of all, but not for the day.
    calls.set(0);
    let (users, is_complete) = count(&fixture, &mut overview, None, limit(5));
    let reason = users.as_ref().and_then(|users| users.reason.clone());
    assert_eq!((numbers(users), is_complete), ((Some(5), None), false));
    assert_eq!(reason.as_deref(), Some("today not read whole yet: out of time"));
    let (users, is_complete) = count(&fixture, &mut overview, None, UNLIMITED);
    assert_eq!((numbers(users), is_complete), ((Some(5), Some(5)), true));
}

#[test]
fn more_users_than_are_read_are_unknown_with_the_limit() {
    let fixture = Fixture::new();
    for user in 0..1_001 {
        send(&fixture, &format!("user-{user}"), NOON, 900.0);
    }
    let mut overview = refreshed(&fixture, NOON);
    let (users, is_complete) = count(&fixture, &mut overview, None, UNLIMITED);
    let users = users.unwrap();
    assert_eq!((users.now, users.today, is_complete), (None, None, true));
    assert_eq!(users.reason.as_deref(), Some("users limit (1000) exceeded: there are 1001"));
}

/// Numbers of now and today of each row at a time, with time for two reads.
fn count_in_short_time(
    fixture: &Fixture,
    overview: &mut Overview,
    now: i64,
) -> Vec<(Option<u64>, Option<u64>)> {
    fixture.refresh(overview, now);
    let mut page = overview.page(ALL, &|_| Some(RowThreshold::of_user(500.0)));
    let view = fixture.store.view().unwrap();
    let calls = std::cell::Cell::new(0_u64);
    let elapsed = || {
        calls.set(calls.get() + 1);
        Duration::from_secs(calls.get())
    };
    let limit = (Duration::from_secs(3), &elapsed as &dyn Fn() -> Duration);
    overview.count_users(&view, &mut page, &|_| None, limit).unwrap();
    page.rows.into_iter().map(|row| numbers(row.users)).collect()
}

/// Each refresh began with the first users again, and never reached the last ones.
#[test]
fn users_are_counted_by_refreshes_that_each_have_time_for_few_of_them() {
    let fixture = Fixture::new();
    for user in 0..5 {
        send(&fixture, &format!("user-{user}"), NOON, 900.0);
        send(&fixture, &format!("user-{user}"), NOON - 3 * HOUR, 900.0);
    }
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    let mut found = Vec::new();
    for refresh in 0..9 {
        let now = NOON + refresh * 10 * store::SECOND;
        if refresh == 1 {
            // After the time of the pass.
            send(&fixture, "user-5", now, 900.0);
        }
        found.extend(count_in_short_time(&fixture, &mut overview, now));
    }
    // Of six users, one read of the last minutes each, and two of the day.
    let (unread, recent, whole) = ((None, None), (Some(5), None), (Some(5), Some(5)));
    let expected = [unread, unread, recent, recent, recent, recent, recent, recent, whole];
    assert_eq!(found, expected);
    let (users, is_complete) = count(&fixture, &mut overview, None, UNLIMITED);
    assert_eq!((numbers(users), is_complete), ((Some(6), Some(6)), true));
}

/// The row whose users were never all read was first at each refresh, and took the time of all
/// others.
#[test]
fn users_of_each_row_are_reached_although_each_row_takes_several_refreshes() {
    let fixture = Fixture::new();
    for (name, user) in ["a", "b", "c"].into_iter().flat_map(|name| [(name, "1"), (name, "2")]) {
        fixture.send_labelled((name, &[("session", user)]), NOON, [900.0]);
    }
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    let mut whole_at = [None; 3];
    for refresh in 0..15 {
        let now = NOON + refresh * 10 * store::SECOND;
        let found = count_in_short_time(&fixture, &mut overview, now);
        for (whole_at, of_row) in whole_at.iter_mut().zip(found) {
            if of_row == (Some(2), Some(2)) {
                whole_at.get_or_insert(refresh);
            }
        }
    }
    assert_eq!(whole_at, [Some(6), Some(7), Some(8)]);
}
