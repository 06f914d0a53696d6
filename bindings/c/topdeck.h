/*
 * topdeck: metrics in shared memory, for C11, C++11 and languages that can call C.
 *
 * Generated from crates/ffi by its tests (`cargo xtask golden` rewrites it): do not edit.
 *
 *     static td_counter answered;
 *     static td_histogram took;
 *
 *     td_register_counter(&(td_description){.name = "answered_total"}, &answered);
 *     td_register_histogram(&(td_description){.name = "answer_duration", .unit = "ns"}, &took);
 *     ...
 *     td_stopwatch since = td_stopwatch_start();
 *     answer(request);
 *     td_hist_record_since(took, since);
 *     td_count(answered, 1);
 *
 * The process has a file on tmpfs, and each thread a lane of it, of which it is the only writer: a
 * record is some plain instructions, without a call, a lock or a wait. `topdeck ls`, `cat` and
 * `top` read the file at any time, also after the process died. TOPDECK_SHM in the environment sets
 * another directory, or disables recording with "off".
 *
 * Errors. A function that may fail returns 0, or -1 and keeps the message for `td_error`. A metric
 * that could not be registered is zero; records in a metric that is zero are dropped, so that a
 * program need not check. Pointers may be NULL where documented; anywhere else NULL is an error, as
 * is text that is not UTF-8. The caller must ensure everything else: a metric is zero or was
 * registered with its type in this process.
 *
 * Threads. Every function may be called on any thread at any time; an object that a call writes
 * (`*metric`, `*operation`) must not be used by another thread during the call. Metrics may be
 * copied. No function is async-signal-safe, except `td_count` and `td_adjust` on x86-64, of a
 * metric that the same thread has counted in the same source file before.
 *
 * Processes. A forked process has a file of its own from its first record on, with the same
 * metrics, all at zero. `vfork` and a bare `clone` are not detected: call `exec` there. `exit` and
 * the return from `main` record a regular exit; a process that is killed, aborts or calls `_exit`
 * counts as crashed.
 *
 * Libraries. A shared object that uses the functions at the end of this header has a pointer for
 * each of its threads; like libtopdeck.so, it may be opened at any time and closed. libtopdeck.so
 * itself stays loaded until the process ends.
 */
#ifndef TOPDECK_H
#define TOPDECK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TD_ROLE_OTHER 0
#define TD_ROLE_TIMING 1
#define TD_ROLE_CAPACITY 2
#define TD_ROLE_USAGE 3
#define TD_ROLE_HIT 4
#define TD_ROLE_MISS 5
#define TD_ROLE_SIZE 6
#define TD_ROLE_QUEUE 7
#define TD_ROLE_ERROR 8
#define TD_ROLE_SUBCALLS 9

/* A label: name and value. */
typedef struct td_label {
    /* Name, not empty, unique in a series. */
    const char *name;
    /* Value. */
    const char *value;
} td_label;

/*
 * Description of a metric. All fields except the name may be zero. Texts are UTF-8,
 * zero-terminated, and copied.
 */
typedef struct td_description {
    /* Name, 1 to 4,096 bytes. */
    const char *name;
    /* Unit in UCUM: "ns", "By", "1". */
    const char *unit;
    /* Help text. */
    const char *help;
    /* Labels. */
    const td_label *labels;
    /* Number of labels. */
    size_t label_count;
    /* Role of the metric: one of TD_ROLE_OTHER and so on. */
    uint32_t role;
    /* Must be zero. */
    uint32_t reserved;
    /* Related metric of the role, such as the capacity of a usage: the handle in its `word`. */
    uint64_t link;
} td_description;

/* Counter: monotonic, modulo 2^64. */
typedef struct td_counter {
    /* Handle of the metric, opaque; 0 until registered: records are dropped. */
    uint64_t word;
} td_counter;

/* Up-down counter: the sum of additions and subtractions of all threads. */
typedef struct td_up_down_counter {
    /* Handle of the metric, opaque; 0 until registered. */
    uint64_t word;
} td_up_down_counter;

/* Integer gauge: the last write wins. */
typedef struct td_gauge {
    /* Handle of the metric, opaque; 0 until registered. */
    uint64_t word;
} td_gauge;

/* Floating-point gauge: the last write wins. */
typedef struct td_float_gauge {
    /* Handle of the metric, opaque; 0 until registered. */
    uint64_t word;
} td_float_gauge;

/* Text of up to 240 bytes: a version, a state, the name of a leader. */
typedef struct td_text {
    /* Handle of the metric, opaque; 0 until registered. */
    uint64_t word;
} td_text;

/*
 * Histogram of integers, relative error at most 1.08 %; count, sum, minimum and maximum are exact.
 * Times are nanoseconds.
 */
typedef struct td_histogram {
    /* Handle of the metric, opaque; 0 until registered. */
    uint64_t word;
} td_histogram;

/* Table of in-flight operations. */
typedef struct td_in_flight {
    /* Handle of the metric, opaque; 0 until registered. */
    uint64_t word;
} td_in_flight;

/* Heartbeat: number of beats and time of the last one. */
typedef struct td_heartbeat {
    /* Handle of the metric, opaque; 0 until registered. */
    uint64_t word;
} td_heartbeat;

/* Interned tag value: a number that refers to a text. Zero has no text. */
typedef struct td_tag {
    /* Number of the text. */
    uint32_t word;
} td_tag;

/* In-flight operation; zeros are none. Do not end two copies of one. */
typedef struct td_operation {
    /* Private to the library. */
    uint64_t words[4];
} td_operation;

/* Start time of a measured duration. */
typedef struct td_stopwatch {
    /* Private to the library. */
    uint64_t start;
} td_stopwatch;

/* Lane of a thread, for the inline functions of this header; set by the library. */
typedef struct td_lane {
    /* First byte of the lane. */
    char *base;
    /* End of the usable cells, in bytes from `base`; 0 if there is no lane. */
    size_t end;
} td_lane;

/*
 * Creates the metrics file of this process if there is none; the first registration does so too.
 * Returns 0, or -1 if it fails (`td_error`).
 */
int td_open(void);

/*
 * Writes the path of this process's metrics file, truncated to `size` bytes including the
 * terminating zero. Returns the length of the path without the zero; 0 if there is no file
 * (`td_error`).
 */
size_t td_path(char *buffer, size_t size);

/*
 * Message of the last failed call on this thread; empty if none failed. Valid until the next
 * failure.
 */
const char *td_error(void);

/* Version of the library. */
const char *td_version(void);

/*
 * Registers a counter, or finds the one with the same name, labels and unit. Returns 0, or -1 and
 * sets `*metric` to zero.
 */
int td_register_counter(const td_description *what, td_counter *metric);

/* Registers an up-down counter, or finds it. */
int td_register_up_down_counter(const td_description *what, td_up_down_counter *metric);

/* Registers an integer gauge, or finds it. */
int td_register_gauge(const td_description *what, td_gauge *metric);

/* Registers a floating-point gauge, or finds it. */
int td_register_float_gauge(const td_description *what, td_float_gauge *metric);

/* Registers a text, or finds it. */
int td_register_text(const td_description *what, td_text *metric);

/* Registers a histogram, or finds it. */
int td_register_histogram(const td_description *what, td_histogram *metric);

/*
 * Registers a table of in-flight operations, or finds it; `tags` are the names of up to four tags
 * of an operation.
 */
int td_register_in_flight(const td_description *what, const char *const *tags, size_t tag_count, td_in_flight *metric);

/*
 * Registers a heartbeat, or finds it; `every_ns` is its intended period in nanoseconds, 0 if it
 * has none.
 */
int td_register_heartbeat(const td_description *what, uint64_t every_ns, td_heartbeat *metric);

/*
 * Interns the value of a tag. Each distinct text takes space in the file for good: use it for a
 * device or a route, not for a request number.
 */
int td_tag_intern(const char *text, td_tag *tag);

/* Adds `n`: `td_count`, for languages that cannot use the header. */
void td_counter_add(td_counter counter, uint64_t n);

/* Adds `n`, which may be negative: `td_adjust`, for languages that cannot use the header. */
void td_up_down_counter_add(td_up_down_counter up_down, int64_t n);

/* Records a value: `td_hist_record`, for languages that cannot use the header. */
void td_histogram_record(td_histogram histogram, uint64_t value);

/* Sets an integer gauge. */
void td_gauge_set(td_gauge gauge, int64_t value);

/* Sets a floating-point gauge. */
void td_float_gauge_set(td_float_gauge gauge, double value);

/* Sets a text. Returns 0; or -1 if it is invalid or was truncated to 240 bytes. */
int td_text_set(td_text metric, const char *text);

/* Records a beat. */
void td_heartbeat_beat(td_heartbeat heartbeat);

/*
 * Starts an operation now; `number` is chosen by the program (of a request, of a block), and
 * `tags` are values in the order of the registered names; missing or unreadable ones are not
 * shown. The operation must be ended, on any thread.
 */
td_operation td_operation_begin(td_in_flight in_flight, uint64_t number, const td_tag *tags, size_t tag_count);

/* Ends the operation and sets `*operation` to zeros. Zeros and NULL end nothing. */
void td_operation_end(td_operation *operation);

/*
 * Current time: nanoseconds of CLOCK_MONOTONIC. A thread that sees what another thread did after a
 * reading reads no earlier time.
 */
uint64_t td_now(void);

/* Starts a stopwatch, for `td_stopwatch_elapsed_ns` on the same thread. */
td_stopwatch td_stopwatch_start(void);

/* Nanoseconds since the start, at least 0. */
uint64_t td_stopwatch_elapsed_ns(td_stopwatch since);

/*
 * Slow path of `td_count` and `td_adjust`: records when the lane has no space yet, and sets
 * `*here` to the lane.
 */
void td_counter_add_slow_(const td_lane **here, uint32_t layout, td_counter counter, uint64_t n);

/* Slow path of `td_hist_record`. */
void td_histogram_record_slow_(const td_lane **here, uint32_t layout, td_histogram histogram, uint64_t value);

/*
 * Fast path: inline functions compiled into the program. They write as crates/shm/src/cells.rs
 * does, at the same offsets; a library with another layout gives them no lane, and each record is a
 * call.
 */
#define TD_LAYOUT 1

#if defined(__GNUC__) && defined(__LP64__) && defined(__linux__)

static const td_lane td_nowhere_ = {0, 0};

/* This thread's lane, as known to this source file. */
static __thread const td_lane *td_here_ = &td_nowhere_;

/*
 * Buckets of an octave: `(bucket + 1) * 2^52 - edge` for each 64th of it; adding a mantissa carries
 * into the bucket.
 */
static const uint64_t td_edges_[64] = {
    0x0000000000000000, 0x000fa64f2cea7a8c, 0x001f4aa7930676f1, 0x0020000000000000,
    0x002eecfe2feda4b0, 0x003e8d47c382ae86, 0x0040000000000000, 0x004e2b78ce974656,
    0x005dc785918a9dc8, 0x0060000000000000, 0x006d61620ae0211f, 0x0070000000000000,
    0x007cf901f5ce48eb, 0x008c8e58c8c55636, 0x0090000000000000, 0x009c2159b3edcbde,
    0x00a0000000000000, 0x00abb1f79f9e76d3, 0x00bb40252ac9d5d9, 0x00c0000000000000,
    0x00cacbd4a962b07f, 0x00d0000000000000, 0x00da54f822b7abd7, 0x00e0000000000000,
    0x00e9db814fc5aa7c, 0x00f0000000000000, 0x00f95f619980c434, 0x0100000000000000,
    0x0108e08a1713a08d, 0x0110000000000000, 0x01185eeb8c14fe7a, 0x0120000000000000,
    0x0127da7666b331ee, 0x0130000000000000, 0x0137531abdd55f25, 0x0140000000000000,
    0x0146c8c84f323a1c, 0x0150000000000000, 0x0150000000000000, 0x01563b6e7d5c0f70,
    0x0160000000000000, 0x0165aafc4dc1daa4, 0x0170000000000000, 0x0175176066a52c53,
    0x0180000000000000, 0x018480890d04a1ba, 0x0190000000000000, 0x0190000000000000,
    0x0193e664227aad64, 0x01a0000000000000, 0x01a348df23106f97, 0x01b0000000000000,
    0x01b0000000000000, 0x01b2a7e723045b79, 0x01c0000000000000, 0x01c20368cc8464a2,
    0x01d0000000000000, 0x01d0000000000000, 0x01d15b505d5b6f27, 0x01e0000000000000,
    0x01e0000000000000, 0x01e0af89a491bac0, 0x01f0000000000000, 0x01f0000000000000,
};

static inline uint64_t td_load_(const char *cell)
{
    return __atomic_load_n((const uint64_t *)(const void *)cell, __ATOMIC_RELAXED);
}

static inline void td_store_(char *cell, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)cell, value, __ATOMIC_RELAXED);
}

/* One writer, so no lock is needed; one instruction, so that a signal cannot interrupt it. */
static inline void td_add_(char *cell, uint64_t n)
{
#if defined(__x86_64__)
    __asm__ volatile("addq %1, %0" : "+m"(*(uint64_t *)(void *)cell) : "er"(n) : "cc");
#else
    td_store_(cell, td_load_(cell) + n);
#endif
}

/* Bucket of a value from 1 to 2^63 - 1. */
static inline size_t td_place_(uint64_t value)
{
    double number = (double)(int64_t)value;
    uint64_t bits, mantissa;
    __builtin_memcpy(&bits, &number, sizeof bits);
    /* The next smaller double: a bucket includes its upper edge, not its lower one. */
    bits -= 1;
    mantissa = bits & ((1ull << 52) - 1);
    return (size_t)(((bits >> 52) << 5) + ((mantissa + td_edges_[mantissa >> 46]) >> 52) - 32735);
}

/* Adds `n`. */
static inline void td_count(td_counter counter, uint64_t n)
{
    const td_lane *lane = td_here_;
    size_t small = (uint32_t)~counter.word;
    if (__builtin_expect(small < lane->end, 1)) {
        td_add_(lane->base + small, n);
    } else {
        td_counter_add_slow_(&td_here_, TD_LAYOUT, counter, n);
    }
}

/* Adds `n`, which may be negative. */
static inline void td_adjust(td_up_down_counter up_down, int64_t n)
{
    td_counter same;
    same.word = up_down.word;
    td_count(same, (uint64_t)n);
}

/* Records a value. */
static inline void td_hist_record(td_histogram histogram, uint64_t value)
{
    const td_lane *lane = td_here_;
    uint64_t cells = ~histogram.word;
    size_t small = (uint32_t)cells;
    if (__builtin_expect(small < lane->end && (int64_t)value > 0, 1)) {
        char *base = lane->base;
        char *own = base + small;
        size_t place = td_place_(value);
        /* Whether the bucket has space; the last bucket belongs to the first group. */
        if (__builtin_expect((td_load_(own + 48) >> ((place >> 5) & 63)) & 1, 1)) {
            uint64_t low;
            td_add_(own + 0, 1);
            /* A reader that sees a store below sees this one. */
            __atomic_thread_fence(__ATOMIC_RELEASE);
            low = td_load_(own + 16);
            td_store_(own + 16, low + value);
            if (__builtin_expect(low + value < low, 0)) {
                td_add_(own + 24, 1);
            }
            if (value > td_load_(own + 40)) {
                td_store_(own + 40, value);
            }
            if (~value > td_load_(own + 32)) {
                td_store_(own + 32, ~value);
            }
            /* A reader that sees the count sees the stores above. */
            __atomic_thread_fence(__ATOMIC_RELEASE);
            td_add_(base + (cells >> 32) + place * 8, 1);
            return;
        }
    }
    td_histogram_record_slow_(&td_here_, TD_LAYOUT, histogram, value);
}

#else

/* Adds `n`. */
static inline void td_count(td_counter counter, uint64_t n)
{
    td_counter_add(counter, n);
}

/* Adds `n`, which may be negative. */
static inline void td_adjust(td_up_down_counter up_down, int64_t n)
{
    td_up_down_counter_add(up_down, n);
}

/* Records a value. */
static inline void td_hist_record(td_histogram histogram, uint64_t value)
{
    td_histogram_record(histogram, value);
}

#endif

/* Records the nanoseconds since the start of the stopwatch. */
static inline void td_hist_record_since(td_histogram histogram, td_stopwatch since)
{
    td_hist_record(histogram, td_stopwatch_elapsed_ns(since));
}

#ifdef __cplusplus
}
#endif

#endif
