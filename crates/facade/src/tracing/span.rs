//! A span while it is open, and what its place in the program, or an event's, has in shared memory.

use shm::{Description, Role, Tag};
use tracing_core::Metadata;

use super::sites::Site;
use crate::lazy::Lazy;

shm::metrics! {
    /// Spans that are open.
    static SPANS: shm::InFlight = "spans", tags &["span", "target"];
}

/// Where spans come from.
pub(super) struct SpanSite {
    metadata: Option<&'static Metadata<'static>>,
    duration: Lazy<shm::Histogram>,
    busy: Lazy<shm::Histogram>,
    tags: Lazy<[Tag; 2]>,
}

impl Site for SpanSite {
    fn new(metadata: Option<&'static Metadata<'static>>) -> SpanSite {
        SpanSite { metadata, duration: Lazy::new(), busy: Lazy::new(), tags: Lazy::new() }
    }
}

impl SpanSite {
    /// No tags where there is no room for them.
    fn tags(&self) -> [Tag; 2] {
        let (span, target) = match self.metadata {
            Some(metadata) => (metadata.name(), metadata.target()),
            None => ("overflow", "overflow"),
        };
        let made = self.tags.get(|| Ok([Tag::new(span)?, Tag::new(target)?]));
        made.copied().unwrap_or_default()
    }

    fn histogram(&self, name: &str, help: &str) -> shm::Result<shm::Histogram> {
        let description = Description::new(name).unit("ns").help(help).role(Role::Timing);
        labelled(description, self.metadata, |metadata| ("span", metadata.name())).histogram()
    }

    fn record(&self, took_ns: u64, busy_ns: Option<u64>) {
        let help = "How long spans took, from their making until they were closed.";
        if let Ok(duration) = self.duration.get(|| self.histogram("span_duration", help)) {
            duration.record(took_ns);
        }
        let Some(busy_ns) = busy_ns else { return };
        let help = "For how long of their time somebody was inside spans.";
        if let Ok(busy) = self.busy.get(|| self.histogram("span_busy", help)) {
            busy.record(busy_ns);
        }
    }
}

/// Where events come from.
pub(super) struct EventSite {
    metadata: Option<&'static Metadata<'static>>,
    counter: Lazy<shm::Counter>,
}

impl Site for EventSite {
    fn new(metadata: Option<&'static Metadata<'static>>) -> EventSite {
        EventSite { metadata, counter: Lazy::new() }
    }
}

impl EventSite {
    /// One more event.
    pub(super) fn count(&self) {
        let made = self.counter.get(|| {
            let help = "Events at the levels error and warn.";
            let description = Description::new("events_total").help(help).role(Role::Error);
            let level = |metadata: &'static Metadata<'static>| {
                ("level", if metadata.level().as_str() == "ERROR" { "error" } else { "warn" })
            };
            labelled(description, self.metadata, level).counter()
        });
        if let Ok(counter) = made {
            counter.add(1);
        }
    }
}

/// With the labels of a place.
fn labelled(
    description: Description,
    metadata: Option<&'static Metadata<'static>>,
    own: impl FnOnce(&'static Metadata<'static>) -> (&'static str, &'static str),
) -> Description {
    let Some(metadata) = metadata else { return description.label("overflow", "true") };
    let (name, value) = own(metadata);
    description.label(name, value).label("target", metadata.target())
}

/// A span that is open. It ends in the table when this is dropped, so also where its subscriber is given up.
pub(super) struct Open {
    site: &'static SpanSite,
    since_ns: u64,
    busy: Option<Busy>,
    _operation: shm::Operation,
}

/// A span may be entered by several threads at once, and often: the time counts in which there was anyone.
#[derive(Default)]
struct Busy {
    inside: u32,
    since_ns: u64,
    total_ns: u64,
}

impl Open {
    pub(super) fn new(site: &'static SpanSite, id: u64, is_busy_taken: bool) -> Open {
        let since_ns = clock::now();
        let operation = SPANS.begin_at(since_ns, id, &site.tags());
        Open { site, since_ns, busy: is_busy_taken.then(Busy::default), _operation: operation }
    }

    pub(super) fn enter(&mut self, now_ns: u64) {
        let Some(busy) = &mut self.busy else { return };
        if busy.inside == 0 {
            busy.since_ns = now_ns;
        }
        busy.inside = busy.inside.saturating_add(1);
    }

    pub(super) fn exit(&mut self, now_ns: u64) {
        let Some(busy) = &mut self.busy else { return };
        if busy.inside == 1 {
            busy.total_ns += now_ns.saturating_sub(busy.since_ns);
        }
        busy.inside = busy.inside.saturating_sub(1);
    }

    /// The span is closed, now.
    pub(super) fn close(self) {
        let took_ns = clock::now().saturating_sub(self.since_ns);
        // The clock is read less strictly for it: it may come out a little longer than the whole.
        let busy_ns = self.busy.as_ref().map(|busy| busy.total_ns.min(took_ns));
        self.site.record(took_ns, busy_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_inside_counts_once() {
        static SITE: SpanSite = SpanSite {
            metadata: None,
            duration: Lazy::new(),
            busy: Lazy::new(),
            tags: Lazy::new(),
        };
        let mut open = Open::new(&SITE, 1, true);
        open.enter(10);
        open.enter(15);
        open.exit(20);
        open.exit(30);
        open.enter(100);
        open.exit(101);
        // More often left than entered, as nobody should.
        open.exit(500);
        assert_eq!(open.busy.map(|busy| (busy.inside, busy.total_ns)), Some((0, 21)));
    }
}
