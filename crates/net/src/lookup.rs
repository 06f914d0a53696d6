//! Name resolution.
//!
//! `getaddrinfo` runs on a thread and cannot be cancelled: while name servers do not answer, each
//! lookup occupies its thread for the resolver's timeout, even after its caller gave up. A limit on
//! concurrent lookups keeps most of the runtime's threads free.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Maximum concurrent lookups of the process; a runtime has 512 blocking threads.
const LOOKUPS_MAX: usize = 32;

static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// Up to `max` addresses of a host. An IP address needs no lookup.
pub(crate) async fn resolve_addresses(
    host: &str,
    port: u16,
    max: usize,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    let look_up = move || Ok((host.as_str(), port).to_socket_addrs()?.take(max).collect());
    spawn_blocking_with_permit(&LOOKUPS, look_up).await
}

/// Runs `work` on a thread. The work holds its permit until it ends, also if its caller gave up.
async fn spawn_blocking_with_permit<T: Send + 'static>(
    permits: &'static Semaphore,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let permit = permits.acquire().await.expect("BUG: the semaphore is never closed");
    let work = move || {
        let _permit = permit;
        work()
    };
    // The work does not panic; a runtime that shuts down rejects it.
    spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn address_resolves_to_itself() {
        let found = resolve_addresses("::1", 7, 8).await.unwrap();
        assert_eq!(found, ["[::1]:7".parse().unwrap()]);
        let found = resolve_addresses("127.0.0.1", 7, 8).await.unwrap();
        assert_eq!(found, ["127.0.0.1:7".parse().unwrap()]);
    }

    #[tokio::test]
    async fn abandoned_lookup_keeps_its_permit() {
        static PERMITS: Semaphore = Semaphore::const_new(1);
        let ((began, begun), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
        let work = move || {
            began.send(()).unwrap();
            ended.recv().map_err(io::Error::other)
        };
        let waiting = tokio::spawn(spawn_blocking_with_permit(&PERMITS, work));
        while begun.try_recv().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert!(PERMITS.try_acquire().is_err(), "the abandoned lookup still runs");
        end.send(()).unwrap();
        assert_eq!(spawn_blocking_with_permit(&PERMITS, || Ok(2)).await.unwrap(), 2);
    }
}
