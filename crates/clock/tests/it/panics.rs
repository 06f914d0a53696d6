//! A panic of the calibrator thread is reported, and the thread restarts.

use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Forwards its events to a channel.
struct Events(Mutex<mpsc::Sender<String>>);

impl Events {
    fn send(&self, event: &str) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = sender.send(event.to_owned());
    }
}

impl clock::CalibratorObserver for Events {
    fn panicked(&self, panic: &(dyn Any + Send)) -> Duration {
        self.send(panic.downcast_ref::<&str>().copied().unwrap_or("another message"));
        Duration::ZERO
    }

    fn restarted(&self) {
        self.send("restarted");
    }
}

#[test]
fn clock_recovers_from_a_calibrator_panic() {
    let before = clock::now();
    let (sender, events) = mpsc::channel();
    clock::observe_calibrator(Arc::new(Events(Mutex::new(sender))));
    for _ in 0..2 {
        clock::CALIBRATOR_FAULT.store(true, Ordering::Relaxed);
        // A reading wakes the calibrator.
        clock::now_coarse();
        // The deadline only ends a hanging test.
        let event = || events.recv_timeout(Duration::from_secs(60));
        assert_eq!(event().as_deref(), Ok("thrown at clock"));
        assert_eq!(event().as_deref(), Ok("restarted"));
        assert!(clock::now() > before);
    }
}
