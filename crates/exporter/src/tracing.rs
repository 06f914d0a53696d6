//! `tracing` layer: span durations, open spans and error events in shared memory.
//!
//! | metric | what |
//! |---|---|
//! | `span_duration{span,target}` | time from creation to close of a span, ns |
//! | `span_busy_duration{span,target}` | part of that time in which at least one thread was inside the span, ns |
//! | `spans` | open spans: start time, tags `span` and `target`, and the span's id |
//! | `events_total{level,target}` | events at the levels error and warn |
//!
//! Names come from the program's source only: values of fields are never used, so the number of
//! series is bounded by the number of callsites, however long the program runs.

mod callsites;
mod span;

use std::sync::LazyLock;

use tracing_core::span::{Attributes, Id};
use tracing_core::{Event, Level, Subscriber, dispatcher};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::error::{Error, Result};
use callsites::CallsiteMap;
use span::{EventCallsite, OpenSpan, SpanCallsite};

static SPAN_CALLSITES: LazyLock<CallsiteMap<SpanCallsite>> = LazyLock::new(CallsiteMap::new);
static EVENT_CALLSITES: LazyLock<CallsiteMap<EventCallsite>> = LazyLock::new(CallsiteMap::new);

/// Installs a subscriber that records to shared memory only. Fails only if there is another
/// subscriber: add [`layer`] to that one instead.
pub fn install() -> Result<()> {
    let subscriber = Registry::default().with(layer());
    dispatcher::set_global_default(dispatcher::Dispatch::new(subscriber))
        .map_err(|_| Error::Subscriber)
}

/// A layer for an existing subscriber:
/// `tracing_subscriber::registry().with(exporter::tracing::layer())`.
pub fn layer() -> Layer {
    Layer { records_busy: true }
}

/// The layer. Two layers of one subscriber count once.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    records_busy: bool,
}

impl Layer {
    /// Disables `span_busy_duration`: entering and leaving a span then costs nothing in this layer.
    pub fn without_busy(self) -> Layer {
        Layer { records_busy: false }
    }
}

impl<S> tracing_subscriber::Layer<S> for Layer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if extensions.get_mut::<OpenSpan>().is_none() {
            let site = SPAN_CALLSITES.find_or_insert(attributes.metadata());
            extensions.replace(OpenSpan::new(site, id.into_u64(), self.records_busy));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if !self.records_busy {
            return;
        }
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            open.enter(clock::now_unordered());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if !self.records_busy {
            return;
        }
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            open.exit(clock::now_unordered());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let open = span.extensions_mut().remove::<OpenSpan>();
        if let Some(open) = open {
            open.close();
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // Levels are ordered by verbosity: error is the smallest.
        if *event.metadata().level() <= Level::WARN {
            EVENT_CALLSITES.find_or_insert(event.metadata()).count();
        }
    }
}
