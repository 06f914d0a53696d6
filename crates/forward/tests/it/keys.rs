//! The agent's key: permanent, also in a copy of its directory; a missing key is created.

use std::path::Path;
use std::sync::Arc;

use forward::Forward;

use crate::agent::{TestDir, create, open, put, settings, stop_all, wait_caught_up};
use crate::remote::{ResponseFault, TestRemote};

/// Sends a batch from a directory's journal; returns the key of the last request.
async fn send(dir: &Path, remote: &TestRemote, position: u64) -> [u8; 32] {
    let intake = open(dir, journal::wall_clock());
    let settings = settings(dir, &[("a", &remote.url)]);
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    put(&intake, 10);
    wait_caught_up(&forward, position).await;
    stop_all(forward, intake).await;
    *remote.state().keys.last().unwrap()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_keeps_its_key_after_restart_or_restore() {
    let (dir, restored, bare) = (TestDir::new(), TestDir::new(), TestDir::new());
    create(&dir.0, &journal::Settings::default());
    let remote = TestRemote::start(|| ResponseFault::None).await;
    let first = send(&dir.0, &remote, 1).await;
    assert_eq!(send(&dir.0, &remote, 2).await, first, "started anew");
    copy(&dir.0, &restored.0);
    assert_eq!(send(&restored.0, &remote, 3).await, first, "from a copy");
    copy(&dir.0, &bare.0);
    std::fs::remove_file(bare.0.join("producer-key")).unwrap();
    assert_ne!(send(&bare.0, &remote, 3).await, first, "from a copy without the key");
}
