//! Routing of alerts on a simulated clock.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use notify::{
    AlertGroups, AlertMatcher, AlertRoute, GroupBy, GroupReason, InhibitRule, RoutedAlert,
    RoutingError, RoutingTree, Silence, SilenceSet, TimeInterval,
};

use crate::alerts::{SECOND_NS, START_NS};

/// Severity of an alert unless a test sets one.
const SEVERITY: u8 = 2;

fn matchers(texts: &[&str]) -> Vec<AlertMatcher> {
    texts.iter().map(|text| AlertMatcher::parse(text).unwrap()).collect()
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn group_by(names: &[&str]) -> Option<GroupBy> {
    Some(GroupBy::Labels(names.iter().map(|name| name.to_string()).collect()))
}

fn route(receiver: &str, texts: &[&str]) -> AlertRoute {
    AlertRoute {
        receiver: Some(receiver.to_owned()),
        matchers: matchers(texts),
        ..AlertRoute::default()
    }
}

/// The example of Alertmanager's documentation, shortened.
fn tree() -> RoutingTree {
    let mut root = route("mails", &[]);
    root.group_by = group_by(&["alertname", "cluster"]);
    let mut files = route("files", &["service=~\"foo1|foo2|baz\""]);
    files.routes.push(route("files-pager", &["severity=\"critical\""]));
    let mut log = route("log", &["team=db"]);
    log.continues = true;
    let mut db = route("db", &["team=db"]);
    db.group_by = Some(GroupBy::All);
    root.routes = vec![files, log, db];
    RoutingTree { root, ..RoutingTree::default() }
}

/// Groups with a clock.
struct RoutingBench {
    groups: AlertGroups,
    second: i64,
}

impl RoutingBench {
    fn new(tree: RoutingTree) -> RoutingBench {
        tree.check().unwrap();
        RoutingBench { groups: AlertGroups::new(tree), second: 0 }
    }

    fn set(&mut self, id: &str, pairs: &[(&str, &str)], is_resolved: bool) {
        let now_ns = START_NS + self.second * SECOND_NS;
        let (id, labels) = (id.to_owned(), labels(pairs));
        let severity = SEVERITY;
        let alert =
            RoutedAlert { id, labels, severity, since_ns: now_ns, transition: 1, is_resolved };
        self.groups.update(&alert, now_ns);
    }

    /// A change of an alert, at the current second.
    fn change(&mut self, id: &str, pairs: &[(&str, &str)], severity: u8, transition: u64) {
        let now_ns = START_NS + self.second * SECOND_NS;
        let (id, labels) = (id.to_owned(), labels(pairs));
        let (since_ns, is_resolved) = (now_ns, false);
        let alert = RoutedAlert { id, labels, severity, since_ns, transition, is_resolved };
        self.groups.update(&alert, now_ns);
    }

    /// Runs until a second; returns what was sent: second, receiver, firing and resolved ids.
    fn run_until(&mut self, second: i64) -> Vec<(i64, String, String, GroupReason)> {
        let mut sent = Vec::new();
        while let Some(next_ns) = self.groups.next_due_ns() {
            let next = next_ns.saturating_sub(START_NS) / SECOND_NS;
            if next > second {
                break;
            }
            self.second = self.second.max(next);
            let (second, now_ns) = (self.second, START_NS + self.second * SECOND_NS);
            let flushed = self.groups.flush_due(now_ns, |group| {
                let join = |ids: &BTreeSet<String>| {
                    ids.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
                };
                let ids = format!("{}/{}", join(&group.firing), join(&group.resolved));
                sent.push((second, group.receiver.clone(), ids, group.reason));
                Ok::<i64, Infallible>(now_ns)
            });
            flushed.unwrap();
        }
        self.second = second;
        sent
    }
}

fn notice(
    second: i64,
    to: &str,
    ids: &str,
    reason: GroupReason,
) -> (i64, String, String, GroupReason) {
    (second, to.to_owned(), ids.to_owned(), reason)
}

#[test]
fn the_deepest_route_receives_an_alert_and_continue_adds_siblings() {
    let tree = tree();
    let check = |pairs: &[(&str, &str)], expected: &[&str]| {
        assert_eq!(tree.receivers(&labels(pairs)), expected, "{pairs:?}");
    };
    check(&[("service", "other")], &["mails"]);
    check(&[("service", "foo1")], &["files"]);
    check(&[("service", "foo1"), ("severity", "critical")], &["files-pager"]);
    check(&[("team", "db")], &["log", "db"]);
    check(&[("service", "baz"), ("team", "db")], &["files"]);
}

#[test]
fn a_group_waits_for_more_alerts_and_then_reports_changes_at_its_interval() {
    use GroupReason::*;
    let mut bench = RoutingBench::new(tree());
    let alert = [("alertname", "Slow"), ("cluster", "a")];
    bench.set("1", &alert, false);
    assert_eq!(bench.run_until(10), []);
    bench.set("2", &alert, false);
    bench.set("3", &[("alertname", "Slow"), ("cluster", "b")], false);
    let expected = [
        notice(30, "mails", "1 2/", FirstNotification),
        notice(40, "mails", "3/", FirstNotification),
    ];
    assert_eq!(bench.run_until(60), expected);
    bench.set("4", &alert, false);
    bench.set("1", &alert, true);
    assert_eq!(bench.run_until(400), [notice(330, "mails", "2 4/1", NewAlerts)]);
    bench.set("2", &alert, true);
    assert_eq!(bench.run_until(700), [notice(630, "mails", "4/2", SomeResolved)]);
    bench.set("4", &alert, true);
    assert_eq!(bench.run_until(1000), [notice(930, "mails", "/4", AllResolved)]);
}

#[test]
fn a_group_that_does_not_change_is_repeated_after_the_repeat_interval() {
    let mut bench = RoutingBench::new(tree());
    bench.set("1", &[("alertname", "Slow")], false);
    assert_eq!(bench.run_until(4 * 3600).len(), 1);
    let sent = bench.run_until(5 * 3600);
    // The first look after 30 s + 4 h.
    let expected = notice(30 + 49 * 300, "mails", "1/", GroupReason::RepeatInterval);
    assert_eq!(sent, [expected]);
}

#[test]
fn an_alert_that_ends_within_the_wait_is_not_sent() {
    let mut bench = RoutingBench::new(tree());
    bench.set("1", &[("alertname", "Slow")], false);
    bench.set("1", &[("alertname", "Slow")], true);
    assert_eq!(bench.run_until(10_000), []);
    assert_eq!(bench.groups.next_due_ns(), None);
}

#[test]
fn an_alert_older_than_the_wait_is_sent_at_once_after_a_restart() {
    let mut bench = RoutingBench::new(tree());
    let now_ns = START_NS + 100 * SECOND_NS;
    let alert = RoutedAlert {
        id: "1".to_owned(),
        labels: labels(&[("alertname", "Slow")]),
        severity: SEVERITY,
        since_ns: START_NS,
        transition: 1,
        is_resolved: false,
    };
    bench.groups.update(&alert, now_ns);
    assert_eq!(bench.run_until(100).len(), 1);
}

#[test]
fn a_cluster_that_is_down_inhibits_its_alerts_and_never_resolves_them() {
    let mut tree = tree();
    tree.inhibit_rules.push(InhibitRule {
        source_matchers: matchers(&["alertname=ClusterDown"]),
        target_matchers: matchers(&["severity=~\"warning|page\""]),
        equal: vec!["cluster".to_owned()],
    });
    let mut bench = RoutingBench::new(tree);
    let slow = [("alertname", "Slow"), ("cluster", "a"), ("severity", "warning")];
    let down = [("alertname", "ClusterDown"), ("cluster", "a"), ("severity", "page")];
    let other = [("alertname", "Slow"), ("cluster", "b"), ("severity", "warning")];
    bench.set("slow", &slow, false);
    bench.set("other", &other, false);
    let receivers = |sent: Vec<(i64, String, String, GroupReason)>| {
        sent.into_iter().map(|(_, _, ids, _)| ids).collect::<Vec<_>>()
    };
    assert_eq!(receivers(bench.run_until(30)), ["slow/", "other/"]);
    // The source matches the target too, but does not inhibit itself.
    bench.set("down", &down, false);
    assert_eq!(receivers(bench.run_until(5000)), ["down/"]);
    bench.set("down", &down, true);
    bench.set("slow", &slow, true);
    assert_eq!(receivers(bench.run_until(5400)), ["/slow", "/down"]);
}

#[test]
fn a_muted_route_sends_what_is_left_after_the_interval() {
    // 22:13 UTC is in the interval, which ends at 23:00.
    let mut night = TimeInterval::new("UTC").unwrap();
    night.times.push((22 * 60, 23 * 60));
    let mut tree = tree();
    tree.time_intervals.insert("night".to_owned(), vec![night]);
    tree.root.mute_time_intervals.push("night".to_owned());
    let mut bench = RoutingBench::new(tree.clone());
    bench.set("1", &[("alertname", "Slow")], false);
    let sent = bench.run_until(3600);
    assert_eq!(sent.len(), 1);
    // 2,800 s until 23:00; the looks are at 30 s + n × 300 s.
    assert_eq!(sent[0], notice(3030, "mails", "1/", GroupReason::FirstNotification));

    tree.root.active_time_intervals = std::mem::take(&mut tree.root.mute_time_intervals);
    let mut bench = RoutingBench::new(tree);
    bench.set("1", &[("alertname", "Slow")], false);
    assert_eq!(bench.run_until(3600).len(), 1);
}

#[test]
fn an_incomplete_tree_is_rejected() {
    let mut tree = tree();
    tree.root.routes[0].mute_time_intervals.push("lunch".to_owned());
    assert_eq!(tree.check(), Err(RoutingError::UnknownTimeInterval("lunch".to_owned())));
    tree.root.matchers = matchers(&["a=b"]);
    assert_eq!(tree.check(), Err(RoutingError::RootMatchers));
    tree.root.receiver = None;
    assert_eq!(tree.check(), Err(RoutingError::NoReceiver));
}

#[test]
fn intervals_are_inherited_by_child_routes() {
    let mut tree = tree();
    tree.root.group_wait = Some(Duration::from_secs(5));
    let mut bench = RoutingBench::new(tree);
    bench.set("1", &[("service", "foo1")], false);
    assert_eq!(bench.run_until(10)[0].0, 5);
}

#[test]
fn an_alert_in_a_new_state_is_reported_at_the_next_interval() {
    let mut bench = RoutingBench::new(tree());
    bench.set("1", &[("alertname", "Slow")], false);
    assert_eq!(bench.run_until(60).len(), 1);
    let alert = RoutedAlert {
        id: "1".to_owned(),
        labels: labels(&[("alertname", "Slow")]),
        severity: SEVERITY,
        since_ns: START_NS,
        transition: 2,
        is_resolved: false,
    };
    bench.groups.update(&alert, START_NS + 60 * SECOND_NS);
    assert_eq!(bench.run_until(400), [notice(330, "mails", "1/", GroupReason::NewAlerts)]);
}

#[test]
fn a_more_severe_alert_is_sent_at_once_and_moves_no_look() {
    use GroupReason::*;
    let mut bench = RoutingBench::new(tree());
    let alert = [("alertname", "Slow")];
    bench.change("1", &alert, 3, 1);
    bench.run_until(10);
    bench.change("2", &alert, 2, 1);
    assert_eq!(bench.run_until(20), [notice(10, "mails", "1 2/", FirstNotification)]);
    // Neither is it repeated by the look that was planned, nor does another one wait longer.
    bench.change("3", &alert, 2, 1);
    assert_eq!(bench.run_until(60), [notice(30, "mails", "1 2 3/", NewAlerts)]);
    bench.change("1", &alert, 1, 2);
    assert_eq!(bench.run_until(100), [notice(60, "mails", "1 2 3/", NewAlerts)]);
    // As severe as one that was sent, or less severe: with the others.
    bench.change("2", &alert, 1, 2);
    bench.change("1", &alert, 3, 3);
    assert_eq!(bench.run_until(400), [notice(330, "mails", "1 2 3/", NewAlerts)]);
}

#[test]
fn a_silenced_alert_makes_no_other_one_less_severe() {
    use GroupReason::*;
    let mut bench = RoutingBench::new(tree());
    bench.groups.set_silences(SilenceSet::new(vec![silence("host=a", 0, 1000)]));
    bench.change("1", &[("alertname", "Slow"), ("host", "a")], 1, 1);
    bench.change("2", &[("alertname", "Slow"), ("host", "b")], 3, 1);
    assert_eq!(bench.run_until(60), [notice(30, "mails", "2/", FirstNotification)]);
    bench.change("2", &[("alertname", "Slow"), ("host", "b")], 2, 2);
    assert_eq!(bench.run_until(100), [notice(60, "mails", "2/", NewAlerts)]);
}

#[test]
fn an_alert_with_another_label_of_its_severity_moves_to_another_route() {
    use GroupReason::*;
    let mut root = route("mails", &[]);
    root.routes = vec![route("pager", &["severity=1"])];
    let mut bench = RoutingBench::new(RoutingTree { root, ..RoutingTree::default() });
    let with_severity = |text: &'static str| [("alertname", "Slow"), ("severity", text)];
    bench.change("1", &with_severity("3"), 3, 1);
    assert_eq!(bench.run_until(60), [notice(30, "mails", "1/", FirstNotification)]);
    bench.change("1", &with_severity("1"), 1, 2);
    assert_eq!(bench.run_until(100), [notice(60, "pager", "1/", FirstNotification)]);
    // The former group neither repeats it nor reports its end.
    assert_eq!(bench.groups.next_due_ns(), Some(START_NS + 390 * SECOND_NS));
    bench.set("1", &with_severity("1"), true);
    assert_eq!(bench.run_until(50_000), [notice(390, "pager", "/1", AllResolved)]);
}

#[test]
fn a_clock_that_steps_back_an_hour_delays_no_group_by_an_hour() {
    let mut bench = RoutingBench::new(tree());
    bench.second = 3600;
    bench.set("1", &[("alertname", "Slow")], false);
    let mut sent = 0;
    let mut flush = |now_ns: i64| {
        let flushed = bench.groups.flush_due(now_ns, |_| {
            sent += 1;
            Ok::<i64, Infallible>(now_ns)
        });
        flushed.unwrap();
    };
    flush(START_NS + SECOND_NS);
    assert_eq!(sent, 1);
}

#[test]
fn a_group_that_could_not_be_written_is_sent_5_s_later() {
    let mut bench = RoutingBench::new(tree());
    bench.set("1", &[("alertname", "Slow")], false);
    let at_ns = START_NS + 30 * SECOND_NS;
    assert_eq!(bench.groups.flush_due(at_ns, |_| Err("disk full")), Err("disk full"));
    let expected = notice(35, "mails", "1/", GroupReason::FirstNotification);
    assert_eq!(bench.run_until(100), [expected]);
}

fn silence(matcher: &str, from: i64, to: i64) -> Silence {
    Silence {
        id: matcher.to_owned(),
        matchers: matchers(&[matcher]),
        starts_ns: START_NS + from * SECOND_NS,
        ends_ns: START_NS + to * SECOND_NS,
        recurrences: Vec::new(),
        created_by: "ann".to_owned(),
        comment: String::new(),
        annotations: BTreeMap::new(),
        updated_ns: START_NS,
    }
}

#[test]
fn a_silenced_alert_is_sent_when_the_silence_ends_if_it_still_fires() {
    use GroupReason::*;
    let mut bench = RoutingBench::new(tree());
    bench.groups.set_silences(SilenceSet::new(vec![silence("host=a", 0, 1000)]));
    bench.set("1", &[("alertname", "Slow"), ("host", "a")], false);
    bench.set("2", &[("alertname", "Slow"), ("host", "b")], false);
    assert_eq!(bench.run_until(900), [notice(30, "mails", "2/", FirstNotification)]);
    assert_eq!(bench.run_until(1500), [notice(1230, "mails", "1 2/", NewAlerts)]);
}

#[test]
fn an_alert_that_ends_while_it_is_silenced_is_left_to_those_who_know_it() {
    use GroupReason::*;
    let mut bench = RoutingBench::new(tree());
    bench.set("1", &[("alertname", "Slow"), ("host", "a")], false);
    assert_eq!(bench.run_until(60), [notice(30, "mails", "1/", FirstNotification)]);
    bench.groups.set_silences(SilenceSet::new(vec![silence("host=a", 60, 1000)]));
    let ended = RoutedAlert {
        id: "1".to_owned(),
        labels: labels(&[("alertname", "Slow"), ("host", "a")]),
        severity: SEVERITY,
        since_ns: START_NS,
        transition: 2,
        is_resolved: true,
    };
    assert!(!bench.groups.update(&ended, START_NS + 100 * SECOND_NS), "no group reports it");
    assert_eq!(bench.run_until(2000), []);
    // Many short alerts during a long silence leave nothing behind.
    bench.groups.set_silences(SilenceSet::new(vec![silence("host=a", 0, 100_000)]));
    for id in 10..20 {
        bench.set(&id.to_string(), &[("alertname", "Slow"), ("host", "a")], false);
        bench.set(&id.to_string(), &[("alertname", "Slow"), ("host", "a")], true);
    }
    assert_eq!(bench.groups.next_due_ns(), None);
}
