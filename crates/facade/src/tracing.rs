//! `tracing`: how long spans take, which are open now, and how often something went wrong, in shared memory.
//!
//! | metric | what |
//! |---|---|
//! | `span_duration{span,target}` | from the making of a span until it is closed, ns |
//! | `span_busy{span,target}` | for how much of that somebody was inside it, ns |
//! | `spans` | spans that are open: since when, with tags `span` and `target`, and the span's id |
//! | `events_total{level,target}` | events at the levels error and warn |
//!
//! Names come from the program's text alone: values of fields are never looked at, so there are as many series as places in the
//! program, however long it runs.

mod sites;
mod span;

use std::sync::LazyLock;

use tracing_core::span::{Attributes, Id};
use tracing_core::{Event, Level, Subscriber, dispatcher};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::error::{Error, Result};
use sites::Sites;
use span::{EventSite, Open, SpanSite};

static SPAN_SITES: LazyLock<Sites<SpanSite>> = LazyLock::new(Sites::new);
static EVENT_SITES: LazyLock<Sites<EventSite>> = LazyLock::new(Sites::new);

/// What the program traces goes to shared memory from now on, and nowhere else. Fails only if there is another subscriber: that
/// one is given [`layer`] instead.
pub fn install() -> Result<()> {
    let subscriber = Registry::default().with(layer());
    dispatcher::set_global_default(dispatcher::Dispatch::new(subscriber))
        .map_err(|_| Error::Subscriber)
}

/// A layer for a subscriber that has others: `tracing_subscriber::registry().with(facade::tracing::layer())`.
pub fn layer() -> Layer {
    Layer { is_busy_taken: true }
}

/// The layer. Two of one subscriber count once.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    is_busy_taken: bool,
}

impl Layer {
    /// Without `span_busy`: entering and leaving a span costs nothing more than before.
    pub fn without_busy(self) -> Layer {
        Layer { is_busy_taken: false }
    }
}

impl<S> tracing_subscriber::Layer<S> for Layer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if extensions.get_mut::<Open>().is_none() {
            let site = SPAN_SITES.find(attributes.metadata());
            extensions.replace(Open::new(site, id.into_u64(), self.is_busy_taken));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if !self.is_busy_taken {
            return;
        }
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            open.enter(clock::now_relaxed());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if !self.is_busy_taken {
            return;
        }
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            open.exit(clock::now_relaxed());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let open = span.extensions_mut().remove::<Open>();
        if let Some(open) = open {
            open.close();
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // The more there is to tell, the greater the level.
        if *event.metadata().level() <= Level::WARN {
            EVENT_SITES.find(event.metadata()).count();
        }
    }
}
