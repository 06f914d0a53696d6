//! Client that numbers its batches, retries each until it is accepted, and sends each twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::client::request;

/// Sends until it is stopped.
pub(crate) struct LoadSender {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl LoadSender {
    /// Sends to a port with a producer ID.
    pub(crate) fn start(port: u16, producer: u64) -> LoadSender {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = {
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            thread::spawn(move || run(port, producer, &stop, &sent))
        };
        LoadSender { stop, sent, thread: Some(thread) }
    }

    /// Number of acknowledged values.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Stops after the current batch; returns the number of acknowledged values.
    pub(crate) fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().expect("it runs").join().expect("it does not panic");
        self.acknowledged()
    }
}

fn run(port: u16, producer: u64, stop: &AtomicBool, sent: &AtomicU64) {
    static EPOCH: AtomicU16 = AtomicU16::new(1);
    let epoch = EPOCH.fetch_add(1, Ordering::SeqCst);
    let mut sequence = 0u64;
    while !stop.load(Ordering::SeqCst) {
        sequence += 1;
        let values = 1 + sequence % 7;
        let body: String =
            (0..values).map(|at| format!("{}\n", 1 + (sequence * 31 + at) % 3_000)).collect();
        let batch = format!("{producer:016x}/{epoch}/{sequence}");
        let mut times = 0;
        // The second one is a duplicate, even if a process was restarted in between.
        while times < 2 {
            let path = "/v1/record?metric=took&unit=ms";
            match request(port, "POST", path, &[("Topdeck-Batch", &batch)], body.as_bytes()) {
                Ok(answer) if answer.status == 200 => times += 1,
                Ok(answer) if answer.status == 429 || answer.status == 503 => {
                    assert!(
                        answer.head.to_ascii_lowercase().contains("\nretry-after:"),
                        "{}",
                        answer.head
                    );
                    pause();
                }
                Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
                Err(_) => pause(),
            }
        }
        sent.fetch_add(values, Ordering::SeqCst);
    }
}

fn pause() {
    thread::sleep(Duration::from_millis(20));
}
