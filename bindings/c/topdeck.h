/*
 * topdeck: metrics in shared memory, for C11, C++11 and all that can call C.
 *
 * Made out of crates/ffi by its tests (`cargo xtask golden` writes it anew): change that, not this.
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
 * The process has a file in memory (tmpfs), and each thread a lane of it, in which it alone writes:
 * a record is some plain instructions, without a call, a lock or a wait, and `topdeck ls`, `cat`
 * and `top` read it at any moment, also after the process died. TOPDECK_SHM in the environment
 * names another folder than the usual one, or says "off".
 *
 * Errors. What may fail returns 0, or -1 and leaves the reason to `td_error`. A metric that could
 * not be registered is zero; what is recorded in a metric that is zero goes nowhere, so that a
 * program need not ask. Pointers may be NULL where it says so; anywhere else NULL is an error, as
 * is text that is not UTF-8. All else about what comes in is the caller's promise: a metric is zero
 * or what was registered as one of its type in this process.
 *
 * Threads. Every function may be called on any thread at any time; an object that is written by a
 * call (`*metric`, `*operation`) must not be used by another thread meanwhile. Metrics are copied
 * as one likes. None of the functions is for signal handlers, but for `td_count` and `td_adjust` on
 * x86-64, of a metric that the same thread has counted in the same file of source before.
 *
 * Processes. One that is forked off has a file of its own from its first record on, with the same
 * metrics, all at zero. Of `vfork` and a bare `clone` it knows nothing: call `exec` there. `exit`
 * and the end of `main` leave word that the process ended as it meant to; a process that is killed,
 * aborts or calls `_exit` is one that died.
 *
 * Libraries. A shared object that uses the functions at the end of this header has a pointer for
 * each of its threads; like libtopdeck.so, it may be opened at any time and closed. libtopdeck.so
 * itself stays until the process ends.
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
    /* Its name, not empty, each once. */
    const char *name;
    /* Its value. */
    const char *value;
} td_label;

/* What a metric is. All but the name may be zero. Texts are UTF-8, end with a zero byte, and are copied. */
typedef struct td_description {
    /* Its name, 1 to 4,096 bytes. */
    const char *name;
    /* What it is measured in, as UCUM writes it: "ns", "By", "1". */
    const char *unit;
    /* What it means. */
    const char *help;
    /* Its labels. */
    const td_label *labels;
    /* How many labels there are. */
    size_t label_count;
    /* What it is to the program: one of TD_ROLE_OTHER and so on. */
    uint32_t role;
    /* Zero. */
    uint32_t reserved;
    /* What the role refers to: the `word` of another metric, such as the capacity of what is used. */
    uint64_t link;
} td_description;

/* Counts what happens: only grows, modulo 2^64. */
typedef struct td_counter {
    /* 0 until it is registered: what is counted then goes nowhere. */
    uint64_t word;
} td_counter;

/* How much there is of what comes and goes: all that was added and taken away, on all threads. */
typedef struct td_up_down_counter {
    /* 0 until it is registered. */
    uint64_t word;
} td_up_down_counter;

/* How much there is, a whole number: who sets it last counts. */
typedef struct td_gauge {
    /* 0 until it is registered. */
    uint64_t word;
} td_gauge;

/* How much there is: who sets it last counts. */
typedef struct td_float_gauge {
    /* 0 until it is registered. */
    uint64_t word;
} td_float_gauge;

/* A text of up to 240 bytes: a version, a state, the name of a leader. */
typedef struct td_text {
    /* 0 until it is registered. */
    uint64_t word;
} td_text;

/* Counts whole numbers by their size, at most 1.08 % off; their count, sum, least and greatest are exact. Times are nanoseconds. */
typedef struct td_histogram {
    /* 0 until it is registered. */
    uint64_t word;
} td_histogram;

/* Operations that have begun and have not ended. */
typedef struct td_in_flight {
    /* 0 until it is registered. */
    uint64_t word;
} td_in_flight;

/* A sign of life: how often it came, and when it last did. */
typedef struct td_heartbeat {
    /* 0 until it is registered. */
    uint64_t word;
} td_heartbeat;

/* The value of a tag, made beforehand: a number that stands for a text. Zero says nothing. */
typedef struct td_tag {
    /* The number. */
    uint32_t word;
} td_tag;

/* An operation that has begun; zeros are none. Do not end two copies of one. */
typedef struct td_operation {
    /* The library's own. */
    uint64_t words[4];
} td_operation;

/* A moment, to tell how long something took. */
typedef struct td_stopwatch {
    /* The library's own. */
    uint64_t start;
} td_stopwatch;

/* Where a thread counts, for the functions of this header; the library fills it in. */
typedef struct td_lane {
    /* Its first byte. */
    char *base;
    /* Cells below this have room; 0 where there is no lane. */
    size_t end;
} td_lane;

/*
 * Makes this process's file of metrics if there is none yet, as the first registration does by
 * itself. 0; or -1 where there can be none, and `td_error` says why.
 */
int td_open(void);

/*
 * Writes the path of this process's file, cut to `size` bytes with the zero byte at its end. How
 * many bytes the path has without that; 0 where there is no file, and `td_error` says why.
 */
size_t td_path(char *buffer, size_t size);

/* Why the last call failed that failed on this thread; empty if none did. Valid until the next one fails. */
const char *td_error(void);

/* The version of the library. */
const char *td_version(void);

/* Registers a counter, or finds the one of the same name, labels and unit. 0; or -1, and `*metric` is zero. */
int td_register_counter(const td_description *what, td_counter *metric);

/* Registers an up-down gauge, or finds it. */
int td_register_up_down_counter(const td_description *what, td_up_down_counter *metric);

/* Registers a gauge of whole numbers, or finds it. */
int td_register_gauge(const td_description *what, td_gauge *metric);

/* Registers a gauge of numbers, or finds it. */
int td_register_float_gauge(const td_description *what, td_float_gauge *metric);

/* Registers a text, or finds it. */
int td_register_text(const td_description *what, td_text *metric);

/* Registers a histogram, or finds it. */
int td_register_histogram(const td_description *what, td_histogram *metric);

/* Registers a table of operations in flight, or finds it; `tags` are the names of up to four tags that an operation may have. */
int td_register_in_flight(const td_description *what, const char *const *tags, size_t tag_count, td_in_flight *metric);

/* Registers a heartbeat that means to come every `every_ns` nanoseconds, 0 if it does not say; or finds it. */
int td_register_heartbeat(const td_description *what, uint64_t every_ns, td_heartbeat *metric);

/* Makes the value of a tag. Each different text takes room in the file, for ever: a device, a route, not a request's number. */
int td_tag_intern(const char *text, td_tag *tag);

/* Counts `n` more: `td_count`, for languages that cannot use the header. */
void td_counter_add(td_counter counter, uint64_t n);

/* So much more, or less: `td_adjust`, for languages that cannot use the header. */
void td_up_down_counter_add(td_up_down_counter up_down, int64_t n);

/* Counts a value: `td_hist_record`, for languages that cannot use the header. */
void td_histogram_record(td_histogram histogram, uint64_t value);

/* So much there is. */
void td_gauge_set(td_gauge gauge, int64_t value);

/* So much there is. */
void td_float_gauge_set(td_float_gauge gauge, double value);

/* Says this from now on. 0; or -1 where it is no text, or was cut to 240 bytes. */
int td_text_set(td_text metric, const char *text);

/* Still here. */
void td_heartbeat_beat(td_heartbeat heartbeat);

/*
 * An operation begins, now; `number` is the program's own (a request's, a block's), and `tags` are
 * values in the order of the names that were registered; those that are missing, or that cannot be
 * read, are not shown. It must be ended, on any thread.
 */
td_operation td_operation_begin(td_in_flight in_flight, uint64_t number, const td_tag *tags, size_t tag_count);

/* The operation ends, and `*operation` becomes zeros, which end nothing. NULL ends nothing either. */
void td_operation_end(td_operation *operation);

/* Now: nanoseconds of CLOCK_MONOTONIC. Who sees what a thread did after a reading reads no lesser time. */
uint64_t td_now(void);

/* A moment, for `td_stopwatch_elapsed_ns` on the same thread. */
td_stopwatch td_stopwatch_start(void);

/* Nanoseconds since then, never less than 0. */
uint64_t td_stopwatch_elapsed_ns(td_stopwatch since);

/* Of `td_count` and `td_adjust`: counts where the lane has no room yet, and has `*here` point at it from now on. */
void td_counter_add_slow_(const td_lane **here, uint32_t layout, td_counter counter, uint64_t n);

/* Of `td_hist_record`: the same. */
void td_histogram_record_slow_(const td_lane **here, uint32_t layout, td_histogram histogram, uint64_t value);

/*
 * The fast way: what stands here is compiled into the program. It writes as crates/shm/src/cells.rs
 * does, at the same places; a library with other places gives it no lane, and then each record is a
 * call.
 */
#define TD_LAYOUT 1

#if defined(__GNUC__) && defined(__LP64__) && defined(__linux__)

static const td_lane td_nowhere_ = {0, 0};

/* This thread's lane, as this file of source knows it. */
static __thread const td_lane *td_here_ = &td_nowhere_;

/* Buckets of an octave: `(bucket + 1) * 2^52 - edge` for each 64th of it, so that adding a mantissa carries into the bucket. */
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

/* Nobody else writes to the cell, so that no lock is needed; one instruction, so that a signal cannot come between. */
static inline void td_add_(char *cell, uint64_t n)
{
#if defined(__x86_64__)
    __asm__ volatile("addq %1, %0" : "+m"(*(uint64_t *)(void *)cell) : "er"(n) : "cc");
#else
    td_store_(cell, td_load_(cell) + n);
#endif
}

/* The bucket of a value from 1 to 2^63 - 1. */
static inline size_t td_place_(uint64_t value)
{
    double number = (double)(int64_t)value;
    uint64_t bits, mantissa;
    __builtin_memcpy(&bits, &number, sizeof bits);
    /* The double just below: a bucket has its upper edge, not its lower one. */
    bits -= 1;
    mantissa = bits & ((1ull << 52) - 1);
    return (size_t)(((bits >> 52) << 5) + ((mantissa + td_edges_[mantissa >> 46]) >> 52) - 32735);
}

/* Counts `n` more. */
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

/* So much more, or less. */
static inline void td_adjust(td_up_down_counter up_down, int64_t n)
{
    td_counter same;
    same.word = up_down.word;
    td_count(same, (uint64_t)n);
}

/* Counts a value. */
static inline void td_hist_record(td_histogram histogram, uint64_t value)
{
    const td_lane *lane = td_here_;
    uint64_t cells = ~histogram.word;
    size_t small = (uint32_t)cells;
    if (__builtin_expect(small < lane->end && (int64_t)value > 0, 1)) {
        char *base = lane->base;
        char *own = base + small;
        size_t place = td_place_(value);
        /* Whether the bucket has room; the last bucket goes with the first group. */
        if (__builtin_expect((td_load_(own + 48) >> ((place >> 5) & 63)) & 1, 1)) {
            uint64_t low;
            td_add_(own + 0, 1);
            /* Who sees a store below sees this one. */
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
            /* Who counts the value sees what stands above. */
            __atomic_thread_fence(__ATOMIC_RELEASE);
            td_add_(base + (cells >> 32) + place * 8, 1);
            return;
        }
    }
    td_histogram_record_slow_(&td_here_, TD_LAYOUT, histogram, value);
}

#else

/* Counts `n` more. */
static inline void td_count(td_counter counter, uint64_t n)
{
    td_counter_add(counter, n);
}

/* So much more, or less. */
static inline void td_adjust(td_up_down_counter up_down, int64_t n)
{
    td_up_down_counter_add(up_down, n);
}

/* Counts a value. */
static inline void td_hist_record(td_histogram histogram, uint64_t value)
{
    td_histogram_record(histogram, value);
}

#endif

/* Counts the nanoseconds since then. */
static inline void td_hist_record_since(td_histogram histogram, td_stopwatch since)
{
    td_hist_record(histogram, td_stopwatch_elapsed_ns(since));
}

#ifdef __cplusplus
}
#endif

#endif
