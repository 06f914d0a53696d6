//! Test harness for single kernels.

use std::sync::Arc;

use hist::{Histogram, HistogramParts, Mixture, Scheme, TrackedValue};

use super::arguments::CaqlContext;
use super::bind::{BoundKind, bind};
use super::function_table::CaqlKernel;
use super::kernel::{KernelInput, SlotMargin};
use super::{Body, functions, parse};
use crate::error::Result;
use crate::labels::LabelSet;
use crate::query_warnings::QueryWarnings;
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

pub(super) const MINUTE_NS: i64 = 60_000_000_000;
/// Sunday 2020-09-13 13:00:00 UTC.
pub(super) const T0: i64 = 1_600_002_000_000_000_000;

/// Stream as a function from the start of a slot to its value.
pub(super) type StreamFn<'a> = &'a dyn Fn(i64) -> Option<StepValue>;

/// View of `count` minutes from [`T0`].
pub(super) fn view(count: usize) -> StepGrid {
    StepGrid { start: T0, step: MINUTE_NS, count }
}

/// Result of a call on streams; the call is written without its inputs.
pub(super) fn run_kernel(
    call: &str,
    stages: &[StreamFn<'_>],
    steps: StepGrid,
) -> Result<Vec<Stream>> {
    run_kernel_serial(call, stages, steps, false)
}

pub(super) fn run_kernel_serial(
    call: &str,
    stages: &[StreamFn<'_>],
    steps: StepGrid,
    is_serial: bool,
) -> Result<Vec<Stream>> {
    let view_range_ns = steps.step * steps.count as i64;
    let context = CaqlContext { view_range_ns, view_period_ns: steps.step, is_serial };
    // Sources of either kind: the function's input kind decides, and the test's streams replace
    // them.
    let query = ["1", "histogram{1}"]
        .into_iter()
        .map(|source| {
            let inputs = vec![source; stages.len().max(1)].join(", ");
            let query = parse(&format!("{call}{{{inputs}}}"))?;
            let Body::Caql(expr) = &query.body else { panic!("BUG: it is CAQL") };
            bind(expr, &context, &mut QueryWarnings::default())
        })
        .reduce(|found, other| found.or(other))
        .expect("there are two")?;
    let BoundKind::Call { function, arguments, .. } = query.bound_kind else {
        panic!("BUG: a call")
    };
    let CaqlKernel::Kernel(kernel) = functions::kernel(function) else {
        panic!("no kernel of {}", function.canonical_name)
    };
    let SlotMargin { before, after } = (kernel.margin)(&arguments, steps);
    let streams = stages.iter().enumerate().map(|(number, stages)| {
        let first = steps.start.saturating_sub(before as i64 * steps.step);
        let slots = (0..before + steps.count + after)
            .map(|at| first.saturating_add(at as i64 * steps.step));
        let labels = LabelSet::new([("host", format!("{number}"))]);
        Stream::new(labels, slots.map(stages).collect())
    });
    (kernel.run)(KernelInput {
        are_counts: false,
        name: &function.canonical_name,
        inputs: streams.collect(),
        arguments: &arguments,
        steps,
        slots_before: before,
        slots_after: after,
        context: &context,
        span: query.span,
        warnings: &mut QueryWarnings::default(),
    })
}

/// Numbers from [`T0`], a dot for a missing one.
pub(super) fn numbers(text: &str) -> impl Fn(i64) -> Option<StepValue> {
    let numbers: Vec<Option<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    move |time| {
        let at = usize::try_from((time - T0).div_euclid(MINUTE_NS)).ok()?;
        numbers.get(at).copied().flatten().map(StepValue::Number)
    }
}

pub(super) const A: &str = "1 2 3 4 5 6 7 8 9 10";
pub(super) const B: &str = "10 10 . 10 10 10 . . 10 10";
pub(super) const C: &str = "5 4 3 2 1 0 1 2 3 4";
pub(super) const D: &str = "0 60 180 360 600 900 30 90 210 390";

/// Histogram of values with their counts, with only bins.
pub(super) fn bins(values: &[(f64, u64)]) -> Mixture {
    let mut histogram = Histogram::new(Scheme::LogLinear10);
    values.iter().for_each(|(value, count)| histogram.record_n(*value, *count));
    let (sum, min, max) = (TrackedValue::Absent, TrackedValue::Absent, TrackedValue::Absent);
    let parts = HistogramParts { sum, min, max, ..histogram.into_parts() };
    Mixture::from(Histogram::from_parts(parts).expect("the parts of a histogram"))
}

/// The same distribution in every slot from [`T0`], and none before.
pub(super) fn constant(mixture: Mixture) -> impl Fn(i64) -> Option<StepValue> {
    let (mixtures, empty) = (Arc::new(mixture), Arc::new(Mixture::default()));
    move |time| {
        Some(StepValue::Distribution(Arc::clone(if time >= T0 { &mixtures } else { &empty })))
    }
}

pub(super) fn h() -> Mixture {
    bins(&[(10.0, 50), (20.0, 30), (50.0, 15), (200.0, 5)])
}

/// Text of streams in eight digits: a dot for a missing value, a count for a distribution.
pub(super) fn format_streams(streams: &[Stream]) -> String {
    let point = |point: &Option<StepValue>| match point {
        None => ".".to_owned(),
        Some(StepValue::Distribution(mixture)) => format!("n={}", mixture.count()),
        Some(value) => {
            let number = value.number().expect("a number");
            let digits: f64 = format!("{number:.7e}").parse().expect("a number");
            format!("{}", digits + 0.0)
        }
    };
    let stream = |stream: &Stream| stream.points.iter().map(point).collect::<Vec<_>>().join(" ");
    streams.iter().map(stream).collect::<Vec<_>>().join("; ")
}
