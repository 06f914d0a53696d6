//! Functions of the C API. The header is generated from their comments and signatures.
#![allow(
    unsafe_code,
    reason = "names without mangling, and what C hands in; each use carries its argument"
)]

use std::ffi::{c_char, c_int};

use shm::ffi_handles;

use crate::error::{FfiError, catch_errors, catch_panic};
use crate::handle::{
    Counter, Description, FloatGauge, Gauge, Heartbeat, Histogram, InFlight, Lane, Operation,
    Stopwatch, Tag, Text, UpDownCounter,
};
use crate::{error, pointer};

/// Layout version of the header's inline functions. A caller with another version gets no lane, and
/// all its records go through the library.
const LAYOUT: u32 = shm::layout::VERSION as u32;
/// Limit of labels of a series and of tags in a call; more than a series can have.
const LABELS_MAX: usize = 4096;

/// Creates the metrics file of this process if there is none; the first registration does so too.
/// Returns 0, or -1 if it fails (`td_error`).
#[unsafe(no_mangle)]
extern "C" fn td_open() -> c_int {
    catch_errors(|| {
        shm::status()?;
        Ok(())
    })
}

/// Writes the path of this process's metrics file, truncated to `size` bytes including the
/// terminating zero. Returns the length of the path without the zero; 0 if there is no file
/// (`td_error`).
#[unsafe(no_mangle)]
unsafe extern "C" fn td_path(buffer: *mut c_char, size: usize) -> usize {
    let mut length = 0;
    catch_errors(|| {
        let path = shm::status()?;
        let path = path.as_os_str().as_encoded_bytes();
        // SAFETY: the caller provides `size` bytes, or NULL.
        unsafe { pointer::copy_text(path, buffer, size) };
        length = path.len();
        Ok(())
    });
    length
}

/// Message of the last failed call on this thread; empty if none failed. Valid until the next
/// failure.
#[unsafe(no_mangle)]
extern "C" fn td_error() -> *const c_char {
    error::last_error()
}

/// Version of the library.
#[unsafe(no_mangle)]
extern "C" fn td_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Registers a counter, or finds the one with the same name, labels and unit. Returns 0, or -1 and
/// sets `*metric` to zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_counter(what: *const Description, metric: *mut Counter) -> c_int {
    // SAFETY: the header documents what the caller must ensure.
    unsafe { register(what, metric, |word| Counter { word }, shm::MetricBuilder::counter) }
}

/// Registers an up-down counter, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_up_down_counter(
    what: *const Description,
    metric: *mut UpDownCounter,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        register(what, metric, |word| UpDownCounter { word }, shm::MetricBuilder::up_down_counter)
    }
}

/// Registers an integer gauge, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_gauge(what: *const Description, metric: *mut Gauge) -> c_int {
    // SAFETY: as above.
    unsafe { register(what, metric, |word| Gauge { word }, shm::MetricBuilder::gauge) }
}

/// Registers a floating-point gauge, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_float_gauge(
    what: *const Description,
    metric: *mut FloatGauge,
) -> c_int {
    // SAFETY: as above.
    unsafe { register(what, metric, |word| FloatGauge { word }, shm::MetricBuilder::float_gauge) }
}

/// Registers a text, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_text(what: *const Description, metric: *mut Text) -> c_int {
    // SAFETY: as above.
    unsafe { register(what, metric, |word| Text { word }, shm::MetricBuilder::text) }
}

/// Registers a histogram, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_histogram(
    what: *const Description,
    metric: *mut Histogram,
) -> c_int {
    // SAFETY: as above.
    unsafe { register(what, metric, |word| Histogram { word }, shm::MetricBuilder::histogram) }
}

/// Registers a table of in-flight operations, or finds it; `tags` are the names of up to four tags
/// of an operation.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_in_flight(
    what: *const Description,
    tags: *const *const c_char,
    tag_count: usize,
    metric: *mut InFlight,
) -> c_int {
    // SAFETY: as above; and `tags` points to `tag_count` texts.
    let in_flight = |description: shm::MetricBuilder| unsafe {
        let tags = pointer::read_slice(tags, tag_count, shm::layout::TAGS_MAX, "tags")?;
        let tags: Result<Vec<&str>, FfiError> =
            tags.iter().map(|&tag| pointer::read_text(tag, "tag name")).collect();
        Ok::<_, FfiError>(description.in_flight(&tags?)?)
    };
    // SAFETY: as above.
    unsafe { register(what, metric, |word| InFlight { word }, in_flight) }
}

/// Registers a heartbeat, or finds it; `every_ns` is its intended period in nanoseconds, 0 if it
/// has none.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_heartbeat(
    what: *const Description,
    every_ns: u64,
    metric: *mut Heartbeat,
) -> c_int {
    let heartbeat = |description: shm::MetricBuilder| description.heartbeat(every_ns);
    // SAFETY: as above.
    unsafe { register(what, metric, |word| Heartbeat { word }, heartbeat) }
}

/// Interns the value of a tag. Each distinct text takes space in the file for good: use it for a
/// device or a route, not for a request number.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_tag_intern(text: *const c_char, tag: *mut Tag) -> c_int {
    // SAFETY: the caller provides space for a tag, or NULL.
    unsafe { pointer::write_output(tag, Tag { word: 0 }) };
    catch_errors(|| {
        pointer::check_output(tag, "tag")?;
        // SAFETY: the caller provides a text, or NULL.
        let text = unsafe { pointer::read_text(text, "text")? };
        let made = Tag { word: ffi_handles::tag_to_raw(shm::Tag::new(text)?) };
        // SAFETY: as above.
        unsafe { pointer::write_output(tag, made) };
        Ok(())
    })
}

/// Adds `n`: `td_count`, for languages that cannot use the header.
#[unsafe(no_mangle)]
extern "C" fn td_counter_add(counter: Counter, n: u64) {
    // SAFETY: the word is 0 or from `td_register_counter`.
    let counter: shm::Counter = unsafe { ffi_handles::metric_from_raw(counter.word) };
    counter.add(n);
}

/// Adds `n`, which may be negative: `td_adjust`, for languages that cannot use the header.
#[unsafe(no_mangle)]
extern "C" fn td_up_down_counter_add(up_down: UpDownCounter, n: i64) {
    // SAFETY: as above, from `td_register_up_down_counter`.
    let up_down: shm::UpDownCounter = unsafe { ffi_handles::metric_from_raw(up_down.word) };
    up_down.add(n);
}

/// Records a value: `td_hist_record`, for languages that cannot use the header.
#[unsafe(no_mangle)]
extern "C" fn td_histogram_record(histogram: Histogram, value: u64) {
    // SAFETY: as above, from `td_register_histogram`.
    let histogram: shm::Histogram = unsafe { ffi_handles::metric_from_raw(histogram.word) };
    histogram.record(value);
}

/// Sets an integer gauge.
#[unsafe(no_mangle)]
extern "C" fn td_gauge_set(gauge: Gauge, value: i64) {
    // SAFETY: as above, from `td_register_gauge`.
    let gauge: shm::Gauge = unsafe { ffi_handles::metric_from_raw(gauge.word) };
    catch_panic((), || gauge.set(value));
}

/// Sets a floating-point gauge.
#[unsafe(no_mangle)]
extern "C" fn td_float_gauge_set(gauge: FloatGauge, value: f64) {
    // SAFETY: as above, from `td_register_float_gauge`.
    let gauge: shm::FloatGauge = unsafe { ffi_handles::metric_from_raw(gauge.word) };
    catch_panic((), || gauge.set(value));
}

/// Sets a text. Returns 0; or -1 if it is invalid or was truncated to 240 bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_text_set(metric: Text, text: *const c_char) -> c_int {
    catch_errors(|| {
        // SAFETY: the caller provides a text, or NULL.
        let text = unsafe { pointer::read_text(text, "text")? };
        // SAFETY: as above, from `td_register_text`.
        let metric: shm::TextMetric = unsafe { ffi_handles::metric_from_raw(metric.word) };
        match metric.set(text) || text.len() <= shm::layout::TEXT_MAX {
            true => Ok(()),
            false => Err(FfiError::Cut),
        }
    })
}

/// Records a beat.
#[unsafe(no_mangle)]
extern "C" fn td_heartbeat_beat(heartbeat: Heartbeat) {
    // SAFETY: as above, from `td_register_heartbeat`.
    let heartbeat: shm::Heartbeat = unsafe { ffi_handles::metric_from_raw(heartbeat.word) };
    catch_panic((), || heartbeat.beat());
}

/// Starts an operation now; `number` is chosen by the program (of a request, of a block), and
/// `tags` are values in the order of the registered names; missing or unreadable ones are not
/// shown. The operation must be ended, on any thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_operation_begin(
    in_flight: InFlight,
    number: u64,
    tags: *const Tag,
    tag_count: usize,
) -> Operation {
    // SAFETY: as above, from `td_register_in_flight`.
    let in_flight: shm::InFlight = unsafe { ffi_handles::metric_from_raw(in_flight.word) };
    // SAFETY: the caller provides `tag_count` tags, or NULL.
    let raw_tags =
        unsafe { pointer::read_slice(tags, tag_count, LABELS_MAX, "tags") }.unwrap_or(&[]);
    let mut tags = [shm::Tag::default(); shm::layout::TAGS_MAX];
    for (tag, raw_tags) in tags.iter_mut().zip(raw_tags) {
        *tag = ffi_handles::tag_from_raw(raw_tags.word);
    }
    catch_panic(Operation::default(), || Operation {
        words: ffi_handles::operation_to_raw(in_flight.begin(number, &tags)),
    })
}

/// Ends the operation and sets `*operation` to zeros. Zeros and NULL end nothing.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_operation_end(operation: *mut Operation) {
    // SAFETY: the caller points to an operation, or passes NULL.
    let Ok(raw_operation) = (unsafe { pointer::read_struct(operation, "operation") }) else {
        return;
    };
    let words = raw_operation.words;
    // SAFETY: as above.
    unsafe { pointer::write_output(operation, Operation::default()) };
    // SAFETY: they are zeros, or from `td_operation_begin`; they are converted back once, which the
    // header requires and the zeros ensure.
    let operation = unsafe { ffi_handles::operation_from_raw(words) };
    catch_panic((), || drop(operation));
}

/// Current time: nanoseconds of CLOCK_MONOTONIC. A thread that sees what another thread did after a
/// reading reads no earlier time.
#[unsafe(no_mangle)]
extern "C" fn td_now() -> u64 {
    catch_panic(0, clock::now)
}

/// Starts a stopwatch, for `td_stopwatch_elapsed_ns` on the same thread.
#[unsafe(no_mangle)]
extern "C" fn td_stopwatch_start() -> Stopwatch {
    catch_panic(Stopwatch { start: 0 }, || Stopwatch { start: clock::Stopwatch::start().to_bits() })
}

/// Nanoseconds since the start, at least 0.
#[unsafe(no_mangle)]
extern "C" fn td_stopwatch_elapsed_ns(since: Stopwatch) -> u64 {
    catch_panic(0, || clock::Stopwatch::from_bits(since.start).elapsed_ns())
}

/// Slow path of `td_count` and `td_adjust`: records when the lane has no space yet, and sets
/// `*here` to the lane.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_counter_add_slow_(
    here: *mut *const Lane,
    layout: u32,
    counter: Counter,
    n: u64,
) {
    // SAFETY: the word is 0 or from the registration of a counter or an up-down counter, which have
    // the same cell.
    let counter: shm::Counter = unsafe { ffi_handles::metric_from_raw(counter.word) };
    catch_panic((), || counter.add(n));
    // SAFETY: `here` is the thread-local of the header.
    unsafe { attach_lane(here, layout) };
}

/// Slow path of `td_hist_record`.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_histogram_record_slow_(
    here: *mut *const Lane,
    layout: u32,
    histogram: Histogram,
    value: u64,
) {
    // SAFETY: as above, from `td_register_histogram`.
    let histogram: shm::Histogram = unsafe { ffi_handles::metric_from_raw(histogram.word) };
    catch_panic((), || histogram.record(value));
    // SAFETY: `here` is the thread-local of the header.
    unsafe { attach_lane(here, layout) };
}

/// # Safety
/// `here` must point to space for a pointer of this thread.
unsafe fn attach_lane(here: *mut *const Lane, layout: u32) {
    if layout == LAYOUT {
        // SAFETY: guaranteed by the caller.
        unsafe { pointer::write_output(here, ffi_handles::lane().cast()) };
    }
}

/// Registers a metric and writes its word, or 0.
///
/// # Safety
/// `what` must point to a description, or be NULL; `metric` must point to space for a metric, or be
/// NULL.
unsafe fn register<C: Copy, M: shm::MetricHandle, E>(
    what: *const Description,
    metric: *mut C,
    of_word: impl Fn(u64) -> C,
    register: impl FnOnce(shm::MetricBuilder) -> Result<M, E>,
) -> c_int
where
    FfiError: From<E>,
{
    // SAFETY: guaranteed by the caller.
    unsafe { pointer::write_output(metric, of_word(0)) };
    catch_errors(|| {
        pointer::check_output(metric, "metric")?;
        // SAFETY: guaranteed by the caller.
        let registered = register(unsafe { to_metric_builder(what)? })?;
        // SAFETY: guaranteed by the caller.
        unsafe { pointer::write_output(metric, of_word(ffi_handles::metric_to_raw(&registered))) };
        Ok(())
    })
}

/// # Safety
/// `what` must be NULL or point to a description, whose pointers are valid or NULL.
unsafe fn to_metric_builder(what: *const Description) -> Result<shm::MetricBuilder, FfiError> {
    // SAFETY: guaranteed by the caller.
    let (what, name, unit, help, labels) = unsafe {
        let what = pointer::read_struct(what, "what")?;
        let name = pointer::read_text(what.name, "name")?;
        let unit = pointer::read_optional_text(what.unit, "unit")?;
        let help = pointer::read_optional_text(what.help, "help")?;
        (
            what,
            name,
            unit,
            help,
            pointer::read_slice(what.labels, what.label_count, LABELS_MAX, "labels")?,
        )
    };
    let mut description =
        shm::MetricBuilder::new(name).unit(unit).help(help).role(role(what.role)?);
    for label in labels {
        // SAFETY: as above.
        let (name, value) = unsafe {
            (
                pointer::read_text(label.name, "label name")?,
                pointer::read_text(label.value, "label value")?,
            )
        };
        description = description.label(name, value);
    }
    Ok(match what.link {
        0 => description,
        word => ffi_handles::related_to(description, word),
    })
}

/// Role by its number in the header.
fn role(number: u32) -> Result<shm::MetricRole, FfiError> {
    let role = shm::MetricRole::ALL.get(number as usize).copied();
    role.ok_or(FfiError::InvalidRole { found: number, most: shm::MetricRole::ALL.len() - 1 })
}
