//! Run queue latency: at least as many waits as the kernel counts for this process's own threads.

use std::fs;
use std::sync::mpsc;

use crate::{HostFixture, bpf_works, only};

const TURNS: u64 = 2_000;

/// Nanoseconds waited and timeslices of the calling thread.
fn schedstat() -> Option<(f64, u64)> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut words = text.split_ascii_whitespace().skip(1);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[test]
fn waits_match_schedstat() {
    let place = HostFixture::single_reading();
    let host = place.start(only("run_queue = true"));
    if !bpf_works(&host) {
        return;
    }
    // Two threads that wake each other up in turn.
    let (to, from_here) = mpsc::sync_channel::<()>(0);
    let (back, from_there) = mpsc::sync_channel::<()>(0);
    let there = std::thread::spawn(move || {
        while from_here.recv().is_ok() && back.send(()).is_ok() {}
        schedstat()
    });
    let before = schedstat();
    for _ in 0..TURNS {
        to.send(()).unwrap();
        from_there.recv().unwrap();
    }
    let after = schedstat();
    drop(to);
    let there = there.join().unwrap();
    host.stop().unwrap();
    let (Some(before), Some(after), Some(there)) = (before, after, there) else {
        return println!("skipped: the kernel keeps no /proc/PID/schedstat");
    };
    let waited = after.0 - before.0 + there.0;
    let turns = after.1 - before.1 + there.1;
    let told = place.contents();
    let (count, sum) = told.distribution_totals("host_run_queue_latency", &[]);
    println!(
        "{count} waits of {sum} ns counted, {turns} of {waited} ns in schedstat of two threads"
    );
    assert!(turns >= TURNS / 2, "the threads did not take turns: {turns}");
    assert!(count >= turns && sum >= waited);
    assert_eq!(told.number("host_run_queue_unmeasured_total", &[]), Some(0.0));
}
