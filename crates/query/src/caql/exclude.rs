//! `exclude:*`: streams that are not wanted, by tags or legend.

use model::{Series, SeriesKind};

use super::kernel::{Kernel, KernelInput};
use super::names::{legend, tags};
use crate::error::Result;
use crate::stream::Stream;

pub(super) fn kernel(name: &str) -> Option<Kernel> {
    match name {
        "exclude:tags" => Some(Kernel::slotwise(by_tags)),
        "exclude:label" => Some(Kernel::slotwise(by_legend)),
        _ => None,
    }
}

fn by_tags(work: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = work;
    if let Some(selector) = arguments.selector("tag_query") {
        inputs.retain(|stream| {
            let series = Series::new(stream.labels.name(), SeriesKind::Gauge);
            let series = series.with_labels(tags(&stream.labels));
            !selector.matches(&series)
        });
    }
    Ok(inputs)
}

fn by_legend(work: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = work;
    if let Some(regex) = arguments.regex("regex") {
        inputs.retain(|stream| !regex.is_match(&legend(&stream.labels)));
    }
    Ok(inputs)
}
