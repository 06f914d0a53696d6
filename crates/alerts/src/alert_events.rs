//! Server-sent events of `/v1/alerts`: `light` with the status light at each change, `transition`
//! with each change of state, `lagged` with the number of changes that are not sent again.
//!
//! The id of an event is the number of the newest change. A client that reconnects with it gets the
//! changes since then, of those in memory.

use role::json::Json::{Object, Text};
use role::json::integer;
use role::{EventBatch, RouteError, RouteEvent, RouteQuery};

use crate::alert_board::{AlertBoard, StatusLight};
use crate::alert_filter::AlertFilter;
use crate::history_api::{accepts, entry_json};

/// Changes that are read at once: a client that does not read holds no more.
const CHANGES_MAX: usize = 16;

/// Events after a number; without one, the light.
pub(crate) fn events(
    board: &AlertBoard,
    query: &RouteQuery,
    after: Option<u64>,
) -> Result<EventBatch, RouteError> {
    let filter = AlertFilter::read(query)?;
    // Before the state: a change in between makes the next wait end at once.
    let revision = board.revision();
    let mut events = Vec::new();
    let mut has_more = false;
    let last_id = match after {
        None => board.history().newest(),
        Some(number) => {
            let mut tail = board.history().after(number);
            if let Some(last) = tail.entries.get(CHANGES_MAX - 1)
                && tail.entries.len() > CHANGES_MAX
            {
                tail.newest = last.number;
                tail.entries.truncate(CHANGES_MAX);
                has_more = true;
            }
            if tail.missed > 0 {
                let data = Object(vec![("dropped", integer(tail.missed))]);
                events.push(RouteEvent { name: "lagged", id: number, data });
            }
            let selected = tail.entries.iter().filter(|entry| accepts(&filter, entry));
            events.extend(selected.map(|entry| RouteEvent {
                name: "transition",
                id: entry.number,
                data: entry_json(entry),
            }));
            tail.newest
        }
    };
    if has_more {
        // Of another state, so that the next wait ends at once.
        return Ok(EventBatch { events, last_id, revision: revision.wrapping_sub(1) });
    }
    let (color, count) = light_parts(board.read().light());
    let data = Object(vec![
        ("revision", integer(revision)),
        ("light", Text(color.to_owned())),
        ("light_count", integer(count as u64)),
    ]);
    events.push(RouteEvent { name: "light", id: last_id, data });
    Ok(EventBatch { events, last_id, revision })
}

/// Color and number of a light.
pub(crate) fn light_parts(light: StatusLight) -> (&'static str, usize) {
    match light {
        StatusLight::Green => ("green", 0),
        StatusLight::Amber(count) => ("amber", count),
        StatusLight::Red(count) => ("red", count),
    }
}
