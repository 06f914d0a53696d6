//! `tracing` layer: span durations, open spans and error events in shared memory.
//!
//! | metric | what |
//! |---|---|
//! | `span_duration{span,target}` | from the making of a span until it is closed, ns |
//! | `span_busy_duration{span,target}` | for how much of that somebody was inside it, ns |
//! | `spans` | spans that are open: since when, with tags `span` and `target`, and the span's id |
//! | `events_total{level,target}` | events at the levels error and warn |
//!
//! Names come from the program's text alone: values of fields are never looked at, so there are as
//! many series as places in the program, however long it runs.

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

/// What the program traces goes to shared memory from now on, and nowhere else. Fails only if there
/// is another subscriber: that one is given [`layer`] instead.
pub fn install() -> Result<()> {
    let subscriber = Registry::default().with(layer());
    dispatcher::set_global_default(dispatcher::Dispatch::new(subscriber))
        .map_err(|_| Error::Subscriber)
}

/// A layer for a subscriber that has others:
/// `tracing_subscriber::registry().with(facade::tracing::layer())`.
pub fn layer() -> Layer {
    Layer { records_busy: true }
}

/// The layer. Two of one subscriber count once.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    records_busy: bool,
}

impl Layer {
    /// Without `span_busy_duration`: entering and leaving a span costs nothing more than before.
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
            let site = SPAN_CALLSITES.find(attributes.metadata());
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
        // The more there is to tell, the greater the level.
        if *event.metadata().level() <= Level::WARN {
            EVENT_CALLSITES.find(event.metadata()).count();
        }
    }
}
