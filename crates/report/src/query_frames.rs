//! Distributions of a query result as sample JSON Lines (`docs/formats/frames.md`): a line per
//! distribution, or several if its buckets are of several layouts.

use decode::{Unit, frames};
use query::{NAME, QueryResult, ResultData, StepValue};

use crate::document::encodable;
use crate::error::{Result, unsuitable};
use crate::query_plot::StepWindow;

/// Lines of the distributions of a result. The start of each is that of its window, if the window
/// is known, else its end.
pub fn frames_text(answer: &QueryResult, window: StepWindow) -> Result<String> {
    let (ResultData::Vector(streams) | ResultData::Matrix(streams)) = &answer.data else {
        return Err(no_distribution());
    };
    let unit = answer.unit.as_deref().filter(|name| !name.is_empty()).map(|name| {
        // Another spelling is another unit.
        let known = Unit::parse(name).filter(|unit| unit.name() == name);
        known.unwrap_or_else(|| Unit::Other(name.to_owned()))
    });
    let length_ns = match window {
        StepWindow::Step => answer.steps.step,
        StepWindow::Length(length_ns) => length_ns,
        StepWindow::Unknown => 0,
    };
    let mut text = String::new();
    for stream in streams {
        for (end_ns, value) in answer.steps.times().zip(&stream.points) {
            let mixture = match value {
                None => continue,
                Some(StepValue::Distribution(mixture)) => mixture,
                Some(_) => return Err(no_distribution()),
            };
            let times = (end_ns.saturating_sub(length_ns), end_ns);
            for part in mixture.components() {
                let labels = stream.labels.iter().filter(|(name, _)| *name != NAME);
                let (name, histogram) = (stream.labels.name(), encodable(part));
                frames::write_histogram(&mut text, name, labels, times, unit.as_ref(), &histogram);
            }
        }
    }
    Ok(text)
}

fn no_distribution() -> crate::DrawError {
    unsuitable(
        "cannot write the result as frames: it has numbers; query distributions, such as \
         exact_increase(latency[5m])",
    )
}
