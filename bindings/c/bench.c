/*
 * What a record costs: `bench [BATCHES [THREADS]]` prints, for each way to record, the nanoseconds
 * of one, as the median of batches on the slowest thread, and the least. All threads run at the
 * same time. Run it undisturbed: `chrt -f 50 taskset -c 1 ./bench`.
 */
#define _GNU_SOURCE
#include "topdeck.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 20000, VALUES = 1024, BATCHES_MAX = 100000, THREADS_MAX = 256 };

static td_counter counter;
static td_histogram histogram;
/* As latencies are: between 1 us and 1 s, most of them near the lower end. */
static uint64_t values[VALUES];

static void nothing(void)
{
    for (int i = 0; i < BATCH; i++) {
        __asm__ volatile("" : : "r"(values[i % VALUES]));
    }
}

static void count_inline(void)
{
    for (int i = 0; i < BATCH; i++) {
        td_count(counter, 1);
    }
}

static void count_library(void)
{
    for (int i = 0; i < BATCH; i++) {
        td_counter_add(counter, 1);
    }
}

static void record_inline(void)
{
    for (int i = 0; i < BATCH; i++) {
        td_hist_record(histogram, values[i % VALUES]);
    }
}

static void record_library(void)
{
    for (int i = 0; i < BATCH; i++) {
        td_histogram_record(histogram, values[i % VALUES]);
    }
}

static void time_and_record(void)
{
    for (int i = 0; i < BATCH; i++) {
        td_stopwatch since = td_stopwatch_start();
        td_hist_record_since(histogram, since);
    }
}

static const struct {
    const char *name;
    void (*batch)(void);
} ways[] = {
    {"an empty loop", nothing},
    {"td_count", count_inline},
    {"td_counter_add", count_library},
    {"td_hist_record", record_inline},
    {"td_histogram_record", record_library},
    {"td_stopwatch_start, td_hist_record_since", time_and_record},
};
enum { WAYS = sizeof ways / sizeof *ways };

static int batches = 1000, threads = 1;
static pthread_barrier_t barrier;
static double medians[THREADS_MAX][WAYS], leasts[THREADS_MAX][WAYS];

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *measure(void *number)
{
    size_t thread = (size_t)(uintptr_t)number;
    double *each = calloc((size_t)batches, sizeof *each);
    if (each == NULL) {
        abort();
    }
    for (size_t way = 0; way < WAYS; way++) {
        /* The first takes room. */
        ways[way].batch();
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < batches; i++) {
            double start = now_ns();
            ways[way].batch();
            each[i] = (now_ns() - start) / BATCH;
        }
        qsort(each, (size_t)batches, sizeof *each, ascending);
        medians[thread][way] = each[batches / 2];
        leasts[thread][way] = each[0];
    }
    free(each);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t all[THREADS_MAX];
    uint64_t state = 42;

    if (count > 1) {
        batches = atoi(arguments[1]);
    }
    if (count > 2) {
        threads = atoi(arguments[2]);
    }
    if (batches < 1 || batches > BATCHES_MAX || threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "usage: bench [BATCHES [THREADS]]: up to %d, and %d\n", BATCHES_MAX, THREADS_MAX);
        return 2;
    }
    if (td_register_counter(&(td_description){.name = "bench_total"}, &counter)
        || td_register_histogram(&(td_description){.name = "bench_took", .unit = "ns"}, &histogram)) {
        fprintf(stderr, "bench: %s\n", td_error());
        return 1;
    }
    for (size_t i = 0; i < VALUES; i++) {
        double most = 1000;
        for (int octave = 0; octave < 20; octave++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            most *= (state >> 62) == 0 ? 2 : 1;
        }
        values[i] = (uint64_t)most + (state >> 40) % 1000;
    }
    /* The clock has its rate by then. */
    td_now();
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 200000000}, NULL);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&all[i], NULL, measure, (void *)(uintptr_t)i)) {
            perror("bench: a thread");
            return 1;
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(all[i], NULL);
    }
    for (size_t way = 0; way < WAYS; way++) {
        double median = 0, least = 0;
        for (int i = 0; i < threads; i++) {
            if (medians[i][way] > median) {
                median = medians[i][way];
                least = leasts[i][way];
            }
        }
        printf("%-32s %8.2f ns  least %8.2f ns\n", ways[way].name, median, least);
    }
    return 0;
}
