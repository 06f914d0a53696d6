//! Windows of distributions: those in it put together, or one of the numbers in it.

use std::sync::Arc;

use hist::Mixture;

use super::super::histogram::{of_number, of_value};
use super::super::work::Work;
use super::{Package, Windows};
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::value::Value;

pub(super) fn histogram<P: Package>(work: Work<'_>) -> Result<Vec<Stream>> {
    merged::<P>(work, |value| value.number().and_then(of_number))
}

pub(super) fn merge<P: Package>(work: Work<'_>) -> Result<Vec<Stream>> {
    merged::<P>(work, held)
}

/// Of numbers and distributions alike.
pub(super) fn either<P: Package>(work: Work<'_>) -> Result<Vec<Stream>> {
    merged::<P>(work, |value| held(value).or_else(|| of_number(value.number()?)))
}

/// A distribution that is not empty.
fn held(value: &Value) -> Option<Arc<Mixture>> {
    of_value(value).filter(|mixture| !mixture.parts().is_empty()).cloned()
}

fn merged<P: Package>(
    work: Work<'_>,
    of: fn(&Value) -> Option<Arc<Mixture>>,
) -> Result<Vec<Stream>> {
    let windows = Windows::of::<P>(&work)?;
    let place = work.place;
    let add = |held: &mut Arc<Mixture>, more: &Arc<Mixture>| {
        let held = Arc::make_mut(held);
        more.parts().iter().try_for_each(|part| held.add(part)).map_err(|error| Error::Execution {
            place,
            message: format!("{error}: ask for a shorter window"),
        })
    };
    let of_stream = |stream: Stream| {
        let found = windows.sums(&stream, of, add)?;
        let points =
            found.into_iter().map(|held| Some(Value::Distribution(held.unwrap_or_default())));
        Ok(Stream { points: windows.shown(points), ..stream })
    };
    work.inputs.into_iter().map(of_stream).collect()
}
