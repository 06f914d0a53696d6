//! The functions that C calls. The header is made out of their comments and signatures.
#![allow(
    unsafe_code,
    reason = "names without mangling, and what C hands in; each use carries its argument"
)]

use std::ffi::{c_char, c_int};

use shm::words;

use crate::handle::{
    Counter, Description, FloatGauge, Gauge, Heartbeat, Histogram, InFlight, Lane, Operation,
    Stopwatch, Tag, Text, UpDown,
};
use crate::problem::{Problem, guarded, guarded_or};
use crate::{pointer, problem};

/// The layout that the header writes by: one of another is given no lane, and all its records go through the library.
const LAYOUT: u32 = shm::layout::VERSION as u32;
/// Labels of a series, and tags in a call, at the most: more than find room.
const LABELS_MAX: usize = 4096;

/// Makes this process's file of metrics if there is none yet, as the first registration does by itself. 0; or -1 where there can be
/// none, and `td_error` says why.
#[unsafe(no_mangle)]
extern "C" fn td_open() -> c_int {
    guarded(|| {
        shm::status()?;
        Ok(())
    })
}

/// Writes the path of this process's file, cut to `size` bytes with the zero byte at its end. How many bytes the path has without
/// that; 0 where there is no file, and `td_error` says why.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_path(buffer: *mut c_char, size: usize) -> usize {
    let mut length = 0;
    guarded(|| {
        let path = shm::status()?;
        let path = path.as_os_str().as_encoded_bytes();
        // SAFETY: the caller has room for `size` bytes there, or gives NULL.
        unsafe { pointer::copy(path, buffer, size) };
        length = path.len();
        Ok(())
    });
    length
}

/// Why the last call failed that failed on this thread; empty if none did. Valid until the next one fails.
#[unsafe(no_mangle)]
extern "C" fn td_error() -> *const c_char {
    problem::last()
}

/// The version of the library.
#[unsafe(no_mangle)]
extern "C" fn td_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Registers a counter, or finds the one of the same name, labels and unit. 0; or -1, and `*metric` is zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_counter(what: *const Description, metric: *mut Counter) -> c_int {
    // SAFETY: what is needed is what the header asks of the caller.
    unsafe { register(what, metric, |word| Counter { word }, shm::Description::counter) }
}

/// Registers an up-down gauge, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_up_down(what: *const Description, metric: *mut UpDown) -> c_int {
    // SAFETY: as above.
    unsafe { register(what, metric, |word| UpDown { word }, shm::Description::up_down) }
}

/// Registers a gauge of whole numbers, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_gauge(what: *const Description, metric: *mut Gauge) -> c_int {
    // SAFETY: as above.
    unsafe { register(what, metric, |word| Gauge { word }, shm::Description::gauge) }
}

/// Registers a gauge of numbers, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_float_gauge(
    what: *const Description,
    metric: *mut FloatGauge,
) -> c_int {
    // SAFETY: as above.
    unsafe { register(what, metric, |word| FloatGauge { word }, shm::Description::float_gauge) }
}

/// Registers a text, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_text(what: *const Description, metric: *mut Text) -> c_int {
    // SAFETY: as above.
    unsafe { register(what, metric, |word| Text { word }, shm::Description::text) }
}

/// Registers a histogram, or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_histogram(
    what: *const Description,
    metric: *mut Histogram,
) -> c_int {
    // SAFETY: as above.
    unsafe { register(what, metric, |word| Histogram { word }, shm::Description::histogram) }
}

/// Registers a table of operations in flight, or finds it; `tags` are the names of up to four tags that an operation may have.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_in_flight(
    what: *const Description,
    tags: *const *const c_char,
    tag_count: usize,
    metric: *mut InFlight,
) -> c_int {
    // SAFETY: as above; and `tags` points at `tag_count` texts.
    let in_flight = |description: shm::Description| unsafe {
        let tags = pointer::many(tags, tag_count, shm::layout::TAGS_MAX, "tags")?;
        let tags: Result<Vec<&str>, Problem> =
            tags.iter().map(|&tag| pointer::text(tag, "the name of a tag")).collect();
        Ok::<_, Problem>(description.in_flight(&tags?)?)
    };
    // SAFETY: as above.
    unsafe { register(what, metric, |word| InFlight { word }, in_flight) }
}

/// Registers a heartbeat that means to come every `every_ns` nanoseconds, 0 if it does not say; or finds it.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_register_heartbeat(
    what: *const Description,
    every_ns: u64,
    metric: *mut Heartbeat,
) -> c_int {
    let heartbeat = |description: shm::Description| description.heartbeat(every_ns);
    // SAFETY: as above.
    unsafe { register(what, metric, |word| Heartbeat { word }, heartbeat) }
}

/// Makes the value of a tag. Each different text takes room in the file, for ever: a device, a route, not a request's number.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_make_tag(text: *const c_char, tag: *mut Tag) -> c_int {
    // SAFETY: the caller has room for one, or gives NULL.
    unsafe { pointer::put(tag, Tag { word: 0 }) };
    guarded(|| {
        pointer::place(tag, "tag")?;
        // SAFETY: the caller gives a text, or NULL.
        let text = unsafe { pointer::text(text, "text")? };
        let made = Tag { word: words::word_of_tag(shm::Tag::new(text)?) };
        // SAFETY: as above.
        unsafe { pointer::put(tag, made) };
        Ok(())
    })
}

/// Counts `n` more: `td_count`, for languages that cannot use the header.
#[unsafe(no_mangle)]
extern "C" fn td_counter_add(counter: Counter, n: u64) {
    // SAFETY: the word is 0 or one that `td_register_counter` gave.
    let counter: shm::Counter = unsafe { words::metric_of(counter.word) };
    counter.add(n);
}

/// So much more, or less: `td_adjust`, for languages that cannot use the header.
#[unsafe(no_mangle)]
extern "C" fn td_up_down_add(up_down: UpDown, n: i64) {
    // SAFETY: as above, of `td_register_up_down`.
    let up_down: shm::UpDown = unsafe { words::metric_of(up_down.word) };
    up_down.add(n);
}

/// Counts a value: `td_hist_record`, for languages that cannot use the header.
#[unsafe(no_mangle)]
extern "C" fn td_histogram_record(histogram: Histogram, value: u64) {
    // SAFETY: as above, of `td_register_histogram`.
    let histogram: shm::Histogram = unsafe { words::metric_of(histogram.word) };
    histogram.record(value);
}

/// So much there is.
#[unsafe(no_mangle)]
extern "C" fn td_gauge_set(gauge: Gauge, value: i64) {
    // SAFETY: as above, of `td_register_gauge`.
    let gauge: shm::Gauge = unsafe { words::metric_of(gauge.word) };
    guarded_or((), || gauge.set(value));
}

/// So much there is.
#[unsafe(no_mangle)]
extern "C" fn td_float_gauge_set(gauge: FloatGauge, value: f64) {
    // SAFETY: as above, of `td_register_float_gauge`.
    let gauge: shm::FloatGauge = unsafe { words::metric_of(gauge.word) };
    guarded_or((), || gauge.set(value));
}

/// Says this from now on. 0; or -1 where it is no text, or was cut to 240 bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_text_set(metric: Text, text: *const c_char) -> c_int {
    guarded(|| {
        // SAFETY: the caller gives a text, or NULL.
        let text = unsafe { pointer::text(text, "text")? };
        // SAFETY: as above, of `td_register_text`.
        let metric: shm::Text = unsafe { words::metric_of(metric.word) };
        match metric.set(text) || text.len() <= shm::layout::TEXT_MAX {
            true => Ok(()),
            false => Err(Problem::Cut),
        }
    })
}

/// Still here.
#[unsafe(no_mangle)]
extern "C" fn td_beat(heartbeat: Heartbeat) {
    // SAFETY: as above, of `td_register_heartbeat`.
    let heartbeat: shm::Heartbeat = unsafe { words::metric_of(heartbeat.word) };
    guarded_or((), || heartbeat.beat());
}

/// An operation begins, now; `number` is the program's own (a request's, a block's), and `tags` are values in the order of the names that
/// were registered; those that are missing, or that cannot be read, are not shown. It must be ended, on any thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_begin(
    in_flight: InFlight,
    number: u64,
    tags: *const Tag,
    tag_count: usize,
) -> Operation {
    // SAFETY: as above, of `td_register_in_flight`.
    let in_flight: shm::InFlight = unsafe { words::metric_of(in_flight.word) };
    // SAFETY: the caller gives so many, or NULL.
    let given = unsafe { pointer::many(tags, tag_count, LABELS_MAX, "tags") }.unwrap_or(&[]);
    let mut tags = [shm::Tag::default(); shm::layout::TAGS_MAX];
    for (tag, given) in tags.iter_mut().zip(given) {
        *tag = words::tag_of(given.word);
    }
    guarded_or(Operation::default(), || Operation {
        words: words::words_of(in_flight.begin(number, &tags)),
    })
}

/// The operation ends, and `*operation` becomes zeros, which end nothing. NULL ends nothing either.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_end(operation: *mut Operation) {
    // SAFETY: the caller points at one, or gives NULL.
    let Ok(held) = (unsafe { pointer::one(operation, "operation") }) else { return };
    let words = held.words;
    // SAFETY: as above.
    unsafe { pointer::put(operation, Operation::default()) };
    // SAFETY: they are zeros, or what `td_begin` gave; they are handed back once, as the header asks and the zeros see to.
    let operation = unsafe { words::operation_of(words) };
    guarded_or((), || drop(operation));
}

/// Now: nanoseconds of CLOCK_MONOTONIC. Who sees what a thread did after a reading reads no lesser time.
#[unsafe(no_mangle)]
extern "C" fn td_now() -> u64 {
    guarded_or(0, clock::now)
}

/// A moment, for `td_elapsed_ns` on the same thread.
#[unsafe(no_mangle)]
extern "C" fn td_start() -> Stopwatch {
    guarded_or(Stopwatch { start: 0 }, || Stopwatch { start: clock::Stopwatch::start().to_bits() })
}

/// Nanoseconds since then, never less than 0.
#[unsafe(no_mangle)]
extern "C" fn td_elapsed_ns(since: Stopwatch) -> u64 {
    guarded_or(0, || clock::Stopwatch::from_bits(since.start).elapsed_ns())
}

/// Of `td_count` and `td_adjust`: counts where the lane has no room yet, and has `*here` point at it from now on.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_count_slowly(
    here: *mut *const Lane,
    layout: u32,
    counter: Counter,
    n: u64,
) {
    // SAFETY: the word is 0 or one that was given for a counter or an up-down gauge, which have the same cell.
    let counter: shm::Counter = unsafe { words::metric_of(counter.word) };
    guarded_or((), || counter.add(n));
    // SAFETY: `here` is the header's own.
    unsafe { enter(here, layout) };
}

/// Of `td_hist_record`: the same.
#[unsafe(no_mangle)]
unsafe extern "C" fn td_hist_record_slowly(
    here: *mut *const Lane,
    layout: u32,
    histogram: Histogram,
    value: u64,
) {
    // SAFETY: as above, of `td_register_histogram`.
    let histogram: shm::Histogram = unsafe { words::metric_of(histogram.word) };
    guarded_or((), || histogram.record(value));
    // SAFETY: `here` is the header's own.
    unsafe { enter(here, layout) };
}

/// # Safety
/// `here` has room for a pointer, of this thread.
unsafe fn enter(here: *mut *const Lane, layout: u32) {
    if layout == LAYOUT {
        // SAFETY: as the caller promises.
        unsafe { pointer::put(here, words::lane().cast()) };
    }
}

/// Registers what is described, and puts its word to its place, or 0.
///
/// # Safety
/// `what` points at a description, or is NULL; at `metric` there is room for one, or it is NULL.
unsafe fn register<C: Copy, M: shm::Metric, E>(
    what: *const Description,
    metric: *mut C,
    of_word: impl Fn(u64) -> C,
    register: impl FnOnce(shm::Description) -> Result<M, E>,
) -> c_int
where
    Problem: From<E>,
{
    // SAFETY: as the caller promises.
    unsafe { pointer::put(metric, of_word(0)) };
    guarded(|| {
        pointer::place(metric, "metric")?;
        // SAFETY: as the caller promises.
        let registered = register(unsafe { describe(what)? })?;
        // SAFETY: as the caller promises.
        unsafe { pointer::put(metric, of_word(words::word_of(&registered))) };
        Ok(())
    })
}

/// # Safety
/// It points at a description, whose pointers point at what they say, or are NULL; or is NULL itself.
unsafe fn describe(what: *const Description) -> Result<shm::Description, Problem> {
    // SAFETY: as the caller promises.
    let (what, name, unit, help, labels) = unsafe {
        let what = pointer::one(what, "what")?;
        let name = pointer::text(what.name, "name")?;
        let unit = pointer::text_or_none(what.unit, "unit")?;
        let help = pointer::text_or_none(what.help, "help")?;
        (
            what,
            name,
            unit,
            help,
            pointer::many(what.labels, what.label_count, LABELS_MAX, "labels")?,
        )
    };
    let mut description = shm::Description::new(name).unit(unit).help(help).role(role(what.role)?);
    for label in labels {
        // SAFETY: as above.
        let (name, value) = unsafe {
            (
                pointer::text(label.name, "the name of a label")?,
                pointer::text(label.value, "the value of a label")?,
            )
        };
        description = description.label(name, value);
    }
    Ok(match what.link {
        0 => description,
        word => words::linked_to(description, word),
    })
}

/// The roles by their numbers in the header.
fn role(number: u32) -> Result<shm::Role, Problem> {
    let role = shm::Role::ALL.get(number as usize).copied();
    role.ok_or(Problem::Role { found: number, most: shm::Role::ALL.len() - 1 })
}
