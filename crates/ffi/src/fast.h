/*
 * Fast path: inline functions compiled into the program. They write as crates/shm/src/cells.rs
 * does, at the same offsets; a library with another layout gives them no lane, and each record is a
 * call.
 */
#define TD_LAYOUT @LAYOUT@

#if defined(__GNUC__) && defined(__LP64__) && defined(__linux__)

static const td_lane td_nowhere_ = {0, 0};

/* This thread's lane, as known to this source file. */
static __thread const td_lane *td_here_ = &td_nowhere_;

/*
 * Buckets of an octave: `(bucket + 1) * 2^52 - edge` for each 64th of it; adding a mantissa carries
 * into the bucket.
 */
static const uint64_t td_edges_[64] = {
@EDGES@};

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
    return (size_t)(((bits >> 52) << @SCALE@) + ((mantissa + td_edges_[mantissa >> 46]) >> 52) - @BIAS@);
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
        if (__builtin_expect((td_load_(own + @touched@) >> ((place >> @SCALE@) & 63)) & 1, 1)) {
            uint64_t low;
            td_add_(own + @begun@, 1);
            /* A reader that sees a store below sees this one. */
            __atomic_thread_fence(__ATOMIC_RELEASE);
            low = td_load_(own + @sum_low@);
            td_store_(own + @sum_low@, low + value);
            if (__builtin_expect(low + value < low, 0)) {
                td_add_(own + @sum_high@, 1);
            }
            if (value > td_load_(own + @max@)) {
                td_store_(own + @max@, value);
            }
            if (~value > td_load_(own + @not_min@)) {
                td_store_(own + @not_min@, ~value);
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
