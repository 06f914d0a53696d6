//! Workers that are late, stopped, or wait.

use std::sync::mpsc;

use super::*;
use crate::protocols::EchoProtocol;
use crate::request::RequestTemplate;

/// Reports of a worker that starts this late. With a grace period there is a server that
/// accepts connections and never responds.
fn reports(
    due: Vec<u64>,
    is_stopped: bool,
    late_ns: u64,
    grace_period_ns: u64,
) -> Vec<WorkerReport> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let _listener = (grace_period_ns > 0).then_some(listener);
    let worker = Worker::new(WorkerConfig {
        connect_options: Some(ConnectOptions {
            protocol: Arc::new(EchoProtocol),
            addresses: vec![address],
            tls: None,
        }),
        programs: Arc::default(),
        number: 0,
        threads: 1,
        due: Box::new(due.into_iter()),
        requests: Requests::single(RequestTemplate::default()),
        seed: 1,
        connections: 0,
        max_connections: 10,
        timeout_ns: 8 * SECOND_NS,
        duration_ns: SECOND_NS,
        grace_period_ns,
        has_dedicated_cpu: false,
        stop: Arc::new(AtomicBool::new(is_stopped)),
        abort: Arc::default(),
    });
    let (tell, reports) = mpsc::channel();
    worker.unwrap().run(clock::now() - late_ns, &tell);
    drop(tell);
    reports.into_iter().collect()
}

#[test]
fn late_times_count_if_exact_to_a_bucket() {
    assert!(is_known(0, 0) && is_known(1, 0));
    assert!(!is_known(10, 10) && !is_known(10, 20));
    // A bucket is 2.19 % wide.
    assert!(is_known(470_000_000, 10_000_000) && !is_known(460_000_000, 10_000_000));
}

#[test]
fn late_polls_end() {
    assert_eq!([0, 1, 2, 9].map(|polls| late_polls_left(polls, 0)), [0, 0, 1, 1]);
    assert_eq!([0, 1, 2, 9].map(|polls| late_polls_left(polls, Poller::EVENTS_MAX)), [0, 0, 1, 8]);
}

/// Also more requests than are dequeued at once.
#[test]
fn stopped_worker_counts_due_requests() {
    let mut due = vec![0; DUE_BATCH_MAX + 3];
    due.push(30 * SECOND_NS);
    let all = reports(due, true, 0, 0);
    let [WorkerReport::Final(end)] = &all[..] else { panic!("{} reports", all.len()) };
    let all = DUE_BATCH_MAX as u64 + 3;
    assert_eq!((end.tally.scheduled, end.tally.accounted()), (all, all));
    assert!(end.tally.not_sent >= 3, "{}", end.tally.not_sent);
}

#[test]
fn late_worker_reports_each_second() {
    let all = reports(vec![0], false, 3 * SECOND_NS + SECOND_NS / 2, 0);
    let second = |one: &WorkerReport| match one {
        WorkerReport::Interval(end_ns, _) => Some(end_ns / SECOND_NS),
        WorkerReport::Final(_) => None,
    };
    let seconds: Vec<Option<u64>> = all.iter().map(second).collect();
    assert_eq!(seconds[..3], [Some(1), Some(2), Some(3)]);
    assert_eq!(seconds.last(), Some(&None));
}
/// All is sent: a stop ends the wait for responses.
#[test]
fn stop_ends_the_grace_period() {
    let all = reports(vec![0], true, SECOND_NS * 5 / 4, 60 * SECOND_NS);
    let Some(WorkerReport::Final(end)) = all.last() else { panic!("{} reports", all.len()) };
    assert_eq!((end.tally.unfinished, end.tally.accounted()), (1, 1));
}

#[test]
fn long_requests_are_in_flight_in_each_second() {
    let all = reports(vec![0, 0], false, 0, SECOND_NS);
    let Some(WorkerReport::Final(end)) = all.last() else { panic!("{} reports", all.len()) };
    let most = all.iter().map(|one| match one {
        WorkerReport::Interval(_, tally) => tally.in_flight_peak,
        WorkerReport::Final(end) => end.tally.in_flight_peak,
    });
    let most: Vec<u64> = most.collect();
    assert!(most.len() >= 3 && most.iter().all(|most| *most == end.tally.unfinished), "{most:?}");
    let not_sent = all.iter().map(|one| match one {
        WorkerReport::Interval(_, tally) => tally.not_sent,
        WorkerReport::Final(end) => end.tally.not_sent,
    });
    assert_eq!(end.tally.unfinished + not_sent.sum::<u64>(), 2);
}
