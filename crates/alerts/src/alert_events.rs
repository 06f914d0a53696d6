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
    let last_id = match after {
        None => board.history().newest(),
        Some(number) => {
            let tail = board.history().after(number);
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
