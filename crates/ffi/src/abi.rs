//! Functions of the C API. The header is made out of their comments and signatures.
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

/// The layout that the header writes by: one of another is given no lane, and all its records go
/// through the library.
const LAYOUT: u32 = shm::layout::VERSION as u32;
/// Labels of a series, and tags in a call, at the most: more than find room.
const LABELS_MAX: usize = 4096;

/// Makes this process's file of metrics if there is none yet, as the first registration does by
/// itself. 0; or -1 where there can be none, and `td_error` says why.
#[unsafe(no_mangle)]
extern "C" fn td_open() -> c_int {
    catch_errors(|| {
        shm::status()?;
        Ok(())
    })
}

/// Writes the path of this process's file, cut to `size` bytes with the zero byte at its end. How
/// many bytes the path has without that; 0 where there is no file, and `td_error` says why.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_path(buffer: *mut c_char, size: usize) -> usize {
    let mut length = 0;
    catch_errors(|| {
        let path = shm::status()?;
        let path = path.as_os_str().as_encoded_bytes();
        // SAFETY: the caller has room for `size` bytes there, or gives NULL.
        unsafe { pointer::copy_text(path, buffer, size) };
        length = path.len();
        Ok(())
    });
    length
}

/// Why the last call failed that failed on this thread; empty if none did. Valid until the next one
/// fails.
#[unsafe(no_mangle)]
extern "C" fn td_error() -> *const c_char {
    error::last_error()
}

/// The version of the library.
#[unsafe(no_mangle)]
extern "C" fn td_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Registers a counter, or finds the one of the same name, labels and unit. 0; or -1, and `*metric`
/// is zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_counter(what: *const Description, metric: *mut Counter) -> c_int {
    // SAFETY: what is needed is what the header asks of the caller.
    unsafe { register(what, metric, |word| Counter { word }, shm::MetricBuilder::counter) }
}

/// Registers an up-down gauge, or finds it.
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

/// Registers a gauge of whole numbers, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_gauge(what: *const Description, metric: *mut Gauge) -> c_int {
    // SAFETY: as above.
    unsafe { register(what, metric, |word| Gauge { word }, shm::MetricBuilder::gauge) }
}

/// Registers a gauge of numbers, or finds it.
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

/// Registers a table of operations in flight, or finds it; `tags` are the names of up to four tags
/// that an operation may have.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_in_flight(
    what: *const Description,
    tags: *const *const c_char,
    tag_count: usize,
    metric: *mut InFlight,
) -> c_int {
    // SAFETY: as above; and `tags` points at `tag_count` texts.
    let in_flight = |description: shm::MetricBuilder| unsafe {
        let tags = pointer::read_slice(tags, tag_count, shm::layout::TAGS_MAX, "tags")?;
        let tags: Result<Vec<&str>, FfiError> =
            tags.iter().map(|&tag| pointer::read_text(tag, "tag name")).collect();
        Ok::<_, FfiError>(description.in_flight(&tags?)?)
    };
    // SAFETY: as above.
    unsafe { register(what, metric, |word| InFlight { word }, in_flight) }
}

/// Registers a heartbeat that means to come every `every_ns` nanoseconds, 0 if it does not say; or
/// finds it.
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

/// Makes the value of a tag. Each different text takes room in the file, for ever: a device, a
/// route, not a request's number.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_tag_intern(text: *const c_char, tag: *mut Tag) -> c_int {
    // SAFETY: the caller has room for one, or gives NULL.
    unsafe { pointer::write_output(tag, Tag { word: 0 }) };
    catch_errors(|| {
        pointer::check_output(tag, "tag")?;
        // SAFETY: the caller gives a text, or NULL.
        let text = unsafe { pointer::read_text(text, "text")? };
        let made = Tag { word: ffi_handles::tag_to_raw(shm::Tag::new(text)?) };
        // SAFETY: as above.
        unsafe { pointer::write_output(tag, made) };
        Ok(())
    })
}

/// Counts `n` more: `td_count`, for languages that cannot use the header.
#[unsafe(no_mangle)]
extern "C" fn td_counter_add(counter: Counter, n: u64) {
    // SAFETY: the word is 0 or one that `td_register_counter` gave.
    let counter: shm::Counter = unsafe { ffi_handles::metric_from_raw(counter.word) };
    counter.add(n);
}

/// So much more, or less: `td_adjust`, for languages that cannot use the header.
#[unsafe(no_mangle)]
extern "C" fn td_up_down_counter_add(up_down: UpDownCounter, n: i64) {
    // SAFETY: as above, of `td_register_up_down_counter`.
    let up_down: shm::UpDownCounter = unsafe { ffi_handles::metric_from_raw(up_down.word) };
    up_down.add(n);
}

/// Counts a value: `td_hist_record`, for languages that cannot use the header.
#[unsafe(no_mangle)]
extern "C" fn td_histogram_record(histogram: Histogram, value: u64) {
    // SAFETY: as above, of `td_register_histogram`.
    let histogram: shm::Histogram = unsafe { ffi_handles::metric_from_raw(histogram.word) };
    histogram.record(value);
}

/// So much there is.
#[unsafe(no_mangle)]
extern "C" fn td_gauge_set(gauge: Gauge, value: i64) {
    // SAFETY: as above, of `td_register_gauge`.
    let gauge: shm::Gauge = unsafe { ffi_handles::metric_from_raw(gauge.word) };
    catch_panic((), || gauge.set(value));
}

/// So much there is.
#[unsafe(no_mangle)]
extern "C" fn td_float_gauge_set(gauge: FloatGauge, value: f64) {
    // SAFETY: as above, of `td_register_float_gauge`.
    let gauge: shm::FloatGauge = unsafe { ffi_handles::metric_from_raw(gauge.word) };
    catch_panic((), || gauge.set(value));
}

/// Says this from now on. 0; or -1 where it is no text, or was cut to 240 bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_text_set(metric: Text, text: *const c_char) -> c_int {
    catch_errors(|| {
        // SAFETY: the caller gives a text, or NULL.
        let text = unsafe { pointer::read_text(text, "text")? };
        // SAFETY: as above, of `td_register_text`.
        let metric: shm::TextMetric = unsafe { ffi_handles::metric_from_raw(metric.word) };
        match metric.set(text) || text.len() <= shm::layout::TEXT_MAX {
            true => Ok(()),
            false => Err(FfiError::Cut),
        }
    })
}

/// Still here.
#[unsafe(no_mangle)]
extern "C" fn td_heartbeat_beat(heartbeat: Heartbeat) {
    // SAFETY: as above, of `td_register_heartbeat`.
    let heartbeat: shm::Heartbeat = unsafe { ffi_handles::metric_from_raw(heartbeat.word) };
    catch_panic((), || heartbeat.beat());
}

/// An operation begins, now; `number` is the program's own (a request's, a block's), and `tags` are
/// values in the order of the names that were registered; those that are missing, or that cannot be
/// read, are not shown. It must be ended, on any thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_operation_begin(
    in_flight: InFlight,
    number: u64,
    tags: *const Tag,
    tag_count: usize,
) -> Operation {
    // SAFETY: as above, of `td_register_in_flight`.
    let in_flight: shm::InFlight = unsafe { ffi_handles::metric_from_raw(in_flight.word) };
    // SAFETY: the caller gives so many, or NULL.
    let given = unsafe { pointer::read_slice(tags, tag_count, LABELS_MAX, "tags") }.unwrap_or(&[]);
    let mut tags = [shm::Tag::default(); shm::layout::TAGS_MAX];
    for (tag, given) in tags.iter_mut().zip(given) {
        *tag = ffi_handles::tag_from_raw(given.word);
    }
    catch_panic(Operation::default(), || Operation {
        words: ffi_handles::operation_to_raw(in_flight.begin(number, &tags)),
    })
}

/// The operation ends, and `*operation` becomes zeros, which end nothing. NULL ends nothing either.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_operation_end(operation: *mut Operation) {
    // SAFETY: the caller points at one, or gives NULL.
    let Ok(held) = (unsafe { pointer::read_struct(operation, "operation") }) else { return };
    let words = held.words;
    // SAFETY: as above.
    unsafe { pointer::write_output(operation, Operation::default()) };
    // SAFETY: they are zeros, or what `td_operation_begin` gave; they are handed back once, as the
    // header asks and the zeros see to.
    let operation = unsafe { ffi_handles::operation_from_raw(words) };
    catch_panic((), || drop(operation));
}

/// Now: nanoseconds of CLOCK_MONOTONIC. Who sees what a thread did after a reading reads no lesser
/// time.
#[unsafe(no_mangle)]
extern "C" fn td_now() -> u64 {
    catch_panic(0, clock::now)
}

/// A moment, for `td_stopwatch_elapsed_ns` on the same thread.
#[unsafe(no_mangle)]
extern "C" fn td_stopwatch_start() -> Stopwatch {
    catch_panic(Stopwatch { start: 0 }, || Stopwatch { start: clock::Stopwatch::start().to_bits() })
}

/// Nanoseconds since then, never less than 0.
#[unsafe(no_mangle)]
extern "C" fn td_stopwatch_elapsed_ns(since: Stopwatch) -> u64 {
    catch_panic(0, || clock::Stopwatch::from_bits(since.start).elapsed_ns())
}

/// Of `td_count` and `td_adjust`: counts where the lane has no room yet, and has `*here` point at
/// it from now on.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_counter_add_slow_(
    here: *mut *const Lane,
    layout: u32,
    counter: Counter,
    n: u64,
) {
    // SAFETY: the word is 0 or one that was given for a counter or an up-down gauge, which have the
    // same cell.
    let counter: shm::Counter = unsafe { ffi_handles::metric_from_raw(counter.word) };
    catch_panic((), || counter.add(n));
    // SAFETY: `here` is the header's own.
    unsafe { attach_lane(here, layout) };
}

/// Of `td_hist_record`: the same.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_histogram_record_slow_(
    here: *mut *const Lane,
    layout: u32,
    histogram: Histogram,
    value: u64,
) {
    // SAFETY: as above, of `td_register_histogram`.
    let histogram: shm::Histogram = unsafe { ffi_handles::metric_from_raw(histogram.word) };
    catch_panic((), || histogram.record(value));
    // SAFETY: `here` is the header's own.
    unsafe { attach_lane(here, layout) };
}

/// # Safety
/// `here` has room for a pointer, of this thread.
unsafe fn attach_lane(here: *mut *const Lane, layout: u32) {
    if layout == LAYOUT {
        // SAFETY: as the caller promises.
        unsafe { pointer::write_output(here, ffi_handles::lane().cast()) };
    }
}

/// Registers what is described, and puts its word to its place, or 0.
///
/// # Safety
/// `what` points at a description, or is NULL; at `metric` there is room for one, or it is NULL.
unsafe fn register<C: Copy, M: shm::MetricHandle, E>(
    what: *const Description,
    metric: *mut C,
    of_word: impl Fn(u64) -> C,
    register: impl FnOnce(shm::MetricBuilder) -> Result<M, E>,
) -> c_int
where
    FfiError: From<E>,
{
    // SAFETY: as the caller promises.
    unsafe { pointer::write_output(metric, of_word(0)) };
    catch_errors(|| {
        pointer::check_output(metric, "metric")?;
        // SAFETY: as the caller promises.
        let registered = register(unsafe { to_metric_builder(what)? })?;
        // SAFETY: as the caller promises.
        unsafe { pointer::write_output(metric, of_word(ffi_handles::metric_to_raw(&registered))) };
        Ok(())
    })
}

/// # Safety
/// It points at a description, whose pointers point at what they say, or are NULL; or is NULL
/// itself.
unsafe fn to_metric_builder(what: *const Description) -> Result<shm::MetricBuilder, FfiError> {
    // SAFETY: as the caller promises.
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

/// The roles by their numbers in the header.
fn role(number: u32) -> Result<shm::MetricRole, FfiError> {
    let role = shm::MetricRole::ALL.get(number as usize).copied();
    role.ok_or(FfiError::InvalidRole { found: number, most: shm::MetricRole::ALL.len() - 1 })
}
