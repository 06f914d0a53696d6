//! Two sites that get the same rows at other times: an own rule has alerts of the same keys.

use query::{LabelSet, StoreSource};
use rules::{Alert, AlertState, EvaluatedGroup};

use crate::harness::{MINUTE, SECOND, evaluate_over, group, restarted};
use crate::stored_series::StoredSeries;

const RULES: &str = "
[[rule]]
name = 'Slow'
select = 'latency'
window = '30s'
for = '3s'
[[rule.criteria]]
severity = 1
quantile = 0.9
above = 200
[[rule.criteria]]
severity = 3
count_above = 100
at_least = 2

[[rule]]
name = 'Stopped'
select = 'queue'
window = '10s'
[[rule.criteria]]
severity = 2
absent = true
after = '40s'

[[rule]]
name = 'Both'
formula = 'Slow and Stopped'
severity = 1
";

/// What identifies a notification: labels, begin, number and state.
type AlertKey = (LabelSet, i64, u64, AlertState);

struct Site {
    series: StoredSeries,
    group: EvaluatedGroup,
    keys: Vec<AlertKey>,
}

impl Site {
    /// A site whose clock is ahead by some milliseconds, with rows of two streams. Its rules were
    /// evaluated.
    fn new(ahead_ms: i64) -> Site {
        let mut site = Site { series: StoredSeries::new(), group: group(RULES), keys: Vec::new() };
        site.series.pass(ahead_ms * 1_000_000);
        site.rows(&[10, 10], 0);
        site.evaluate(None);
        site
    }

    /// Rows of the two streams of `latency` that ended some milliseconds ago.
    fn rows(&self, values: &[u8], age_ms: i64) {
        for (instance, value) in (0..).zip(values) {
            self.series.row("latency", instance, age_ms * 1_000_000, *value);
        }
    }

    fn evaluate(&mut self, arrived: Option<usize>) {
        let view = self.series.store.view().expect("a view");
        let (source, now_ns) = (StoreSource::new(&view), self.series.now());
        let arrived = arrived.as_ref().map(std::slice::from_ref);
        evaluate_over(&source, &mut self.group, now_ns, arrived);
        let alerts = self.group.rules().iter().flat_map(|rule| rule.alerts().alerts());
        let key = |(labels, alert): (&LabelSet, &Alert)| {
            (labels.clone(), alert.began_ns, alert.transition, alert.state)
        };
        for key in alerts.filter(|(_, alert)| alert.state != AlertState::Pending).map(key) {
            if !self.keys.contains(&key) {
                self.keys.push(key);
            }
        }
    }

    /// Time passes; rows arrived `late_ms` after they ended, and are evaluated then.
    fn step(&mut self, seconds: i64, values: &[u8], late_ms: i64) {
        self.series.pass(seconds * SECOND);
        self.rows(values, 0);
        self.series.pass(late_ms * 1_000_000);
        self.evaluate(Some(0));
        self.series.pass(-late_ms * 1_000_000);
    }

    fn restart(&mut self) {
        self.group = restarted(&self.group, RULES);
    }
}

/// Keys of a site: an alert of each kind that begins, changes its severity and ends.
fn keys(late_ms: i64, has_restart: bool) -> Vec<AlertKey> {
    let mut site = Site::new(0);
    site.series.pass(SECOND);
    site.series.row("queue", 0, 0, 1);
    site.evaluate(Some(1));
    // Both streams are slow, one of them more so, until both are not.
    for values in [[150, 150], [150, 250], [250, 250], [150, 150], [10, 10], [10, 10]] {
        site.step(5, &values, late_ms);
        if has_restart {
            site.restart();
        }
    }
    // On schedule: what is slow leaves the windows, and a queue is absent.
    for _ in 0..6 {
        site.step(9, &[10, 10], late_ms);
        site.series.pass(SECOND);
        site.evaluate(None);
    }
    site.step(10, &[250, 10], late_ms);
    site.step(5, &[250, 10], late_ms);
    site.keys.sort();
    site.keys
}

#[test]
fn the_same_rows_have_the_same_keys_at_sites_that_get_them_at_other_times() {
    let expected = keys(0, false);
    let states = |wanted| expected.iter().filter(|key| key.3 == wanted).count();
    assert!(states(AlertState::Firing) >= 6, "{expected:?}");
    assert!(states(AlertState::Inactive) >= 2, "{expected:?}");
    for late_ms in [1, 20, 300, 900] {
        assert_eq!(keys(late_ms, false), expected, "{late_ms} ms late");
    }
    // The keys survive a restart of a site, which only sees the absence later.
    let without_formula = |mut keys: Vec<AlertKey>| {
        keys.retain(|(labels, ..)| labels.get("alertname") != "Both");
        keys
    };
    assert_eq!(without_formula(keys(20, true)), without_formula(expected));
}

#[test]
fn an_alert_that_begins_again_with_the_same_rows_is_another_one() {
    let mut site = Site::new(0);
    site.step(5, &[250, 10], 0);
    site.step(5, &[250, 10], 0);
    let began = |site: &Site| {
        let alerts = site.group.rules()[0].alerts().alerts();
        alerts.map(|(_, alert)| (alert.began_ns, alert.state)).collect::<Vec<_>>()
    };
    let [(before_ns, AlertState::Firing)] = began(&site)[..] else { panic!("{:?}", began(&site)) };
    // The rule was gone for a moment: contacts were told that the alert ended.
    site.group = group(RULES);
    site.series.pass(SECOND);
    site.evaluate(Some(0));
    site.series.pass(3 * SECOND);
    site.evaluate(Some(0));
    let [(after_ns, AlertState::Firing)] = began(&site)[..] else { panic!("{:?}", began(&site)) };
    assert!(after_ns > before_ns + SECOND, "{before_ns} {after_ns}");
}

#[test]
fn late_rows_have_no_key_of_the_past() {
    let mut site = Site::new(0);
    site.group = group(&RULES.replace("30s", "10min"));
    site.evaluate(None);
    site.series.pass(4 * MINUTE);
    site.rows(&[250, 10], 200_000);
    site.rows(&[250, 10], 190_000);
    site.rows(&[250, 10], 180_000);
    site.evaluate(Some(0));
    let alerts = site.group.rules()[0].alerts().alerts();
    let began: Vec<i64> = alerts.map(|(_, alert)| alert.began_ns).collect();
    assert_eq!(began, [site.series.now()]);
}

/// Keys of the alert of a query that is evaluated when rows arrive.
fn keys_of_query(late_ms: i64) -> Vec<AlertKey> {
    let rules = "[[rule]]\nname = 'Deep'\npromql = 'max by (instance) (queue)'\n\
                 [[rule.criteria]]\nseverity = 1\nabove = 100\n\
                 [[rule.criteria]]\nseverity = 3\nabove = 5\n";
    let mut site = Site { series: StoredSeries::new(), group: group(rules), keys: Vec::new() };
    site.evaluate(None);
    for value in [1, 9, 200, 9, 1] {
        site.series.pass(5 * SECOND);
        site.series.row("queue", 0, 0, value);
        site.series.pass(late_ms * 1_000_000);
        // Rows of other streams are another matter.
        site.series.row("queue", 1, 0, 1);
        site.evaluate(Some(0));
        site.series.pass(-late_ms * 1_000_000);
    }
    site.keys
}

#[test]
fn the_same_rows_have_the_same_keys_if_a_query_reads_them() {
    let expected = keys_of_query(0);
    assert_eq!(expected.len(), 4, "{expected:?}");
    for late_ms in [1, 20, 300, 900] {
        assert_eq!(keys_of_query(late_ms), expected, "{late_ms} ms late");
    }
}

#[test]
fn late_rows_of_a_query_count_within_what_it_reads() {
    let rules = "[[rule]]\nname = 'Deep'\npromql = 'max_over_time(queue[1m])'\n\
                 [[rule.criteria]]\nseverity = 1\nabove = 5\n";
    let mut site = Site { series: StoredSeries::new(), group: group(rules), keys: Vec::new() };
    site.series.row("queue", 0, 0, 1);
    site.evaluate(None);
    // Too late, then within the minute.
    for (age_s, expected) in [(70, 0), (50, 1)] {
        site.series.row("queue", 0, age_s * SECOND, 9);
        site.evaluate(Some(0));
        assert_eq!(site.keys.len(), expected, "{age_s} s late: {:?}", site.keys);
    }
}
