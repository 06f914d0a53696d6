//! Open spans and the metrics of callsites.

use shm::{MetricBuilder, MetricRole, Tag};
use tracing_core::Metadata;

use super::callsites::CallsiteMetrics;
use crate::lazy::LazyMetric;

shm::metrics! {
    /// Open spans.
    static SPANS: shm::InFlight = "spans", tags &["span", "target"];
}

/// Metrics of a span callsite.
pub(super) struct SpanCallsite {
    metadata: Option<&'static Metadata<'static>>,
    duration: LazyMetric<shm::Histogram>,
    busy: LazyMetric<shm::Histogram>,
    tags: LazyMetric<[Tag; 2]>,
}

impl CallsiteMetrics for SpanCallsite {
    fn new(metadata: Option<&'static Metadata<'static>>) -> SpanCallsite {
        SpanCallsite {
            metadata,
            duration: LazyMetric::new(),
            busy: LazyMetric::new(),
            tags: LazyMetric::new(),
        }
    }
}

impl SpanCallsite {
    /// No tags if there is no space for them.
    fn tags(&self) -> [Tag; 2] {
        let (span, target) = match self.metadata {
            Some(metadata) => (metadata.name(), metadata.target()),
            None => ("overflow", "overflow"),
        };
        let tags = self.tags.get(|| Ok([Tag::new(span)?, Tag::new(target)?]));
        tags.copied().unwrap_or_default()
    }

    fn histogram(&self, name: &str, help: &str) -> shm::Result<shm::Histogram> {
        let description = MetricBuilder::new(name).unit("ns").help(help).role(MetricRole::Timing);
        add_labels(description, self.metadata, |metadata| ("span", metadata.name())).histogram()
    }

    fn record(&self, took_ns: u64, busy_ns: Option<u64>) {
        let help = "Span duration, from creation to close.";
        if let Ok(duration) = self.duration.get(|| self.histogram("span_duration", help)) {
            duration.record(took_ns);
        }
        let Some(busy_ns) = busy_ns else { return };
        let help = "Time during which at least one thread was inside the span.";
        if let Ok(busy) = self.busy.get(|| self.histogram("span_busy_duration", help)) {
            busy.record(busy_ns);
        }
    }
}

/// Metrics of an event callsite.
pub(super) struct EventCallsite {
    metadata: Option<&'static Metadata<'static>>,
    counter: LazyMetric<shm::Counter>,
}

impl CallsiteMetrics for EventCallsite {
    fn new(metadata: Option<&'static Metadata<'static>>) -> EventCallsite {
        EventCallsite { metadata, counter: LazyMetric::new() }
    }
}

impl EventCallsite {
    /// Counts an event.
    pub(super) fn count(&self) {
        let call_counter = self.counter.get(|| {
            let help = "Events at level error or warn.";
            let description = MetricBuilder::new("events_total").help(help).role(MetricRole::Error);
            let level = |metadata: &'static Metadata<'static>| {
                ("level", if metadata.level().as_str() == "ERROR" { "error" } else { "warn" })
            };
            add_labels(description, self.metadata, level).counter()
        });
        if let Ok(counter) = call_counter {
            counter.add(1);
        }
    }
}

/// Adds the labels of a callsite.
fn add_labels(
    description: MetricBuilder,
    metadata: Option<&'static Metadata<'static>>,
    callsite_label: impl FnOnce(&'static Metadata<'static>) -> (&'static str, &'static str),
) -> MetricBuilder {
    let Some(metadata) = metadata else { return description.label("overflow", "true") };
    let (name, value) = callsite_label(metadata);
    description.label(name, value).label("target", metadata.target())
}

/// Open span with its in-flight operation. Drop ends the operation, also when the subscriber is
/// dropped.
pub(super) struct OpenSpan {
    callsite: &'static SpanCallsite,
    since_ns: u64,
    busy: Option<BusyTimer>,
    _operation: shm::Operation,
}

/// Measures the time during which at least one thread is inside a span.
#[derive(Default)]
struct BusyTimer {
    active: u32,
    since_ns: u64,
    total_ns: u64,
}

impl OpenSpan {
    pub(super) fn new(site: &'static SpanCallsite, id: u64, is_busy_taken: bool) -> OpenSpan {
        let since_ns = clock::now();
        let operation = SPANS.begin_at(since_ns, id, &site.tags());
        OpenSpan {
            callsite: site,
            since_ns,
            busy: is_busy_taken.then(BusyTimer::default),
            _operation: operation,
        }
    }

    pub(super) fn enter(&mut self, now_ns: u64) {
        let Some(busy) = &mut self.busy else { return };
        if busy.active == 0 {
            busy.since_ns = now_ns;
        }
        busy.active = busy.active.saturating_add(1);
    }

    pub(super) fn exit(&mut self, now_ns: u64) {
        let Some(busy) = &mut self.busy else { return };
        if busy.active == 1 {
            busy.total_ns += now_ns.saturating_sub(busy.since_ns);
        }
        busy.active = busy.active.saturating_sub(1);
    }

    /// Closes the span now.
    pub(super) fn close(self) {
        let took_ns = clock::now().saturating_sub(self.since_ns);
        // The busy time uses a less strict clock: it may exceed the total slightly.
        let busy_ns = self.busy.as_ref().map(|busy| busy.total_ns.min(took_ns));
        self.callsite.record(took_ns, busy_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_inside_counts_once() {
        static CALLSITE: SpanCallsite = SpanCallsite {
            metadata: None,
            duration: LazyMetric::new(),
            busy: LazyMetric::new(),
            tags: LazyMetric::new(),
        };
        let mut open = OpenSpan::new(&CALLSITE, 1, true);
        open.enter(10);
        open.enter(15);
        open.exit(20);
        open.exit(30);
        open.enter(100);
        open.exit(101);
        // Left more often than entered, which is a bug of the caller.
        open.exit(500);
        assert_eq!(open.busy.map(|busy| (busy.active, busy.total_ns)), Some((0, 21)));
    }
}
