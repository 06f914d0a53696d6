//! The four cases of Prometheus' alert generator compliance suite, as its alerts arrive at
//! `/api/v2/alerts`: on a simulated clock, with an evaluation each 30 s and a resend delay of
//! 1 min. `compliance.rs` of `rules` has what is sent; this is what topdeck makes of it.

use std::sync::Arc;

use sim::SimDisk;

use super::tests::{open_on, sim_disk};
use super::*;

const SECOND: i64 = 1_000_000_000;
const INTERVAL: i64 = 30 * SECOND;
/// The first evaluation.
const START: i64 = 1_700_000_000 * SECOND;
/// Evaluations until a notice is due again: the first one more than the resend delay later.
const RESEND_STEPS: usize = 3;

/// Alert: name, and its state at each evaluation. `.` nothing, `p` pending, `f` firing, `r`
/// resolved, which Prometheus sends, too.
type SentAlert<'a> = (&'a str, &'a str);

/// What Prometheus sends of an alert at an evaluation, if anything.
fn notice((name, states): SentAlert<'_>, step: usize) -> Option<SubmittedAlert> {
    let states = states.as_bytes();
    let state = states[step];
    let begin = (0..=step).rev().take_while(|&at| states[at] == state).last()?;
    let is_due = matches!(state, b'f' | b'r') && (step - begin).is_multiple_of(RESEND_STEPS);
    // The begin of a resolved alert is that of when it fired.
    let fired = (0..=step).rev().skip_while(|&at| states[at] == b'r');
    let fired = fired.take_while(|&at| states[at] == b'f').last()?;
    let (time_ns, at) = (START + step as i64 * INTERVAL, |step| START + step as i64 * INTERVAL);
    is_due.then(|| SubmittedAlert {
        labels: [("alertname".to_owned(), name.to_owned())].into(),
        annotations: BTreeMap::new(),
        starts_ns: at(fired),
        ends_ns: if state == b'r' { at(begin) } else { time_ns + 240 * SECOND },
        is_timeout: false,
        generator_url: String::new(),
    })
}

/// Checks the alerts after each evaluation: those that fire, each with one change of state for
/// each one that Prometheus tells. A kill after each second evaluation changes nothing.
#[track_caller]
fn check(alerts: &[SentAlert<'_>]) {
    let disk: SimDisk = sim_disk();
    let mut received = open_on(&disk.process(), START).0;
    let mut changes = vec![0; alerts.len()];
    for step in 0..alerts[0].1.len() {
        let now_ns = START + step as i64 * INTERVAL;
        let sent: Vec<SubmittedAlert> =
            alerts.iter().filter_map(|alert| notice(*alert, step)).collect();
        received.put(sent, now_ns).unwrap();
        received.apply_due_changes(now_ns).unwrap();
        if step % 2 == 1 {
            received = open_on(&disk.process(), now_ns).0;
        }
        let known = received.alerts();
        for ((name, states), count) in alerts.iter().zip(&mut changes) {
            let state = |at: usize| states.as_bytes()[at];
            let is_told = |state: u8| matches!(state, b'f' | b'r');
            let is_change = is_told(state(step)) && (step == 0 || state(step - 1) != state(step));
            *count += u64::from(is_change);
            let find = |alert: &&Arc<ReceivedAlert>| alert.labels["alertname"] == *name;
            let found = known.iter().find(find);
            let at = format!("{name} at step {step}");
            assert_eq!(found.is_some_and(|alert| alert.is_firing), state(step) == b'f', "{at}");
            assert_eq!(found.map_or(0, |alert| alert.transition), *count, "{at}");
            // Its end was told.
            assert!(found.is_none_or(|alert| alert.is_firing || !alert.ended_by_itself()), "{at}");
        }
    }
}

#[test]
fn pending_and_firing_and_resolved() {
    check(&[
        ("Simple", "..ppppfffffffffffffffrrrrrrrrrrr"),
        ("Twice", "...pfffrrr..pfffffffffrrrrrrrrrr"),
    ]);
}

#[test]
fn pending_and_resolved_always_inactive() {
    check(&[("Short", "..ppp....ppp...."), ("Never", "................")]);
}

#[test]
fn zero_for_and_small_for() {
    check(&[("Zero", "..ffffffffffffrrrrrrrr"), ("Small", "..pfffffffffffrrrrrrrr")]);
}

#[test]
fn new_alerts_and_order_of_rules() {
    let alerts = [
        ("a", ".pffffffffffrrrrrrrrrr"),
        ("b", "...pffffffffffrrrrrrrr"),
        ("c", ".....pfffffffffrrrrrrr"),
        ("Chained a", "..ffffffffffrrrrrrrrrr"),
    ];
    check(&alerts);
}
