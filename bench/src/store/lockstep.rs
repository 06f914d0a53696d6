//! Senders that stay within one request of each other: Prometheus rejects samples an hour behind
//! others.

use std::sync::{Barrier, Mutex};

use anyhow::Result;

use super::http::BenchConnection;

/// Headers of a remote-write request.
pub(crate) const REMOTE_WRITE_HEADERS: &str = concat!(
    "Content-Type: application/x-protobuf\r\n",
    "Content-Encoding: snappy\r\n",
    "X-Prometheus-Remote-Write-Version: 0.1.0\r\n",
);

/// Calls `send` with the lane of each connection and each step, one thread per connection. The
/// first failure ends all.
pub(crate) fn send_in_lockstep(
    connections: Vec<BenchConnection>,
    steps: usize,
    send: impl Fn(usize, usize, &mut BenchConnection) -> Result<()> + Sync,
) -> Result<()> {
    let failed: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let barrier = Barrier::new(connections.len());
    std::thread::scope(|scope| {
        for (lane, mut connection) in connections.into_iter().enumerate() {
            let (barrier, failed, send) = (&barrier, &failed, &send);
            scope.spawn(move || {
                for step in 0..steps {
                    if let Err(error) = send(lane, step, &mut connection) {
                        failed.lock().expect("no panic").get_or_insert(error);
                    }
                    // All threads leave together, also after a failure.
                    barrier.wait();
                    if failed.lock().expect("no panic").is_some() {
                        return;
                    }
                    barrier.wait();
                }
            });
        }
    });
    failed.into_inner().expect("no panic").map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anyhow::bail;

    use super::*;

    #[test]
    fn senders_stay_within_a_step_and_a_failure_ends_all() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = || (0..3).map(|_| BenchConnection::open(port).unwrap()).collect();
        let sent = [const { AtomicUsize::new(0) }; 3];
        send_in_lockstep(connections(), 20, |lane, step, _| {
            let own = sent[lane].fetch_add(1, Ordering::SeqCst);
            assert_eq!(own, step);
            for other in &sent {
                let other = other.load(Ordering::SeqCst);
                assert!((own..=own + 1).contains(&other), "step {step}: {other}");
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(sent.map(AtomicUsize::into_inner), [20; 3]);
        let calls = AtomicUsize::new(0);
        let failed = send_in_lockstep(connections(), 20, |lane, step, _| {
            calls.fetch_add(1, Ordering::SeqCst);
            if lane == 1 && step == 2 { bail!("lane 1") } else { Ok(()) }
        });
        assert_eq!(failed.unwrap_err().to_string(), "lane 1");
        assert_eq!(calls.into_inner(), 9);
    }
}
