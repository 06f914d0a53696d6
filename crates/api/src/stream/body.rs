//! Event stream body with heartbeats.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Heartbeat interval.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Events sent to one client.
pub(crate) struct EventStream {
    events: mpsc::Receiver<Arc<str>>,
    queued_bytes: Arc<AtomicUsize>,
    /// The first tick is immediate: the client sees that the stream is open.
    heartbeat: Interval,
}

impl EventStream {
    pub(crate) fn new(events: mpsc::Receiver<Arc<str>>, waiting: Arc<AtomicUsize>) -> EventStream {
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        EventStream { events, queued_bytes: waiting, heartbeat }
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if self.heartbeat.poll_tick(context).is_ready() {
            return frame(Bytes::from_static(b": topdeck\n\n"));
        }
        match self.events.poll_recv(context) {
            Poll::Ready(Some(text)) => {
                self.queued_bytes.fetch_sub(text.len(), Ordering::Relaxed);
                frame(Bytes::copy_from_slice(text.as_bytes()))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
