//! `fill` and `fill:forward`: something where nothing is.

use super::arguments::Arguments;
use super::work::{Kernel, Work};
use crate::error::Result;
use crate::stream::{Steps, Stream};

pub(super) fn kernel(name: &str) -> Option<Kernel> {
    match name {
        "fill" => Some(Kernel::slotwise(|work| Ok(super::each::coalesce(work, "value")))),
        "fill:forward" => {
            Some(Kernel { reach: |arguments, steps| (reach(arguments, steps), 0), work: forward })
        }
        _ => None,
    }
}

/// Slots before the range that are looked at where no limit is set.
const BEFORE: usize = 60;

fn limit(arguments: &Arguments, steps: Steps) -> Option<usize> {
    let slots = arguments.duration("limit")? / steps.step;
    Some(usize::try_from(slots).unwrap_or(0))
}

fn reach(arguments: &Arguments, steps: Steps) -> usize {
    limit(arguments, steps).unwrap_or(BEFORE)
}

fn forward(work: Work<'_>) -> Result<Vec<Stream>> {
    let Work { mut inputs, arguments, steps, before, .. } = work;
    let limit = limit(arguments, steps).unwrap_or(usize::MAX);
    for stream in &mut inputs {
        let mut last = None;
        for (at, point) in stream.points.iter_mut().enumerate() {
            match (&point, &last) {
                (Some(value), _) => last = Some((at, value.clone())),
                (None, Some((held_at, value))) if at - held_at <= limit => {
                    *point = Some(value.clone());
                }
                (None, _) => {}
            }
        }
        stream.points.drain(..before);
    }
    Ok(inputs)
}
