/*
 * Performance Co-Pilot as a peer: what its library for values in mapped files (MMV) costs and
 * loses, and what reading them costs. Prints one number a line, named.
 */
#define _GNU_SOURCE
#include <pcp/pmapi.h>
#include <pcp/mmv_stats.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { METRICS = 1000, NAME_SIZE = 64, THREADS = 2, FETCHES = 200 };

static void *map;
static pmAtomValue *counter;
static long each;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static void *count(void *nothing)
{
    for (long i = 0; i < each; i++) {
        mmv_inc(map, counter);
    }
    return nothing;
}

static void failed(const char *what, int status)
{
    fprintf(stderr, "%s: %s\n", what, status < 0 ? pmErrStr(status) : "failed");
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int arguments_count, char **arguments)
{
    static char names[METRICS][NAME_SIZE];
    static const char *asked[METRICS];
    static pmID ids[METRICS];
    static double took[FETCHES];
    pmUnits units = {.dimCount = 1};
    pthread_t threads[THREADS];
    pmResult *result;
    mmv_registry_t *registry;
    int status;

    each = arguments_count > 1 ? atol(arguments[1]) : 1000000;
    registry = mmv_stats_registry("topdeck_bench", 77, MMV_FLAG_PROCESS);
    if (registry == NULL) {
        failed("a registry", 0);
    }
    for (int i = 0; i < METRICS; i++) {
        snprintf(names[i], NAME_SIZE, "n%d", i);
        status = mmv_stats_add_metric(registry, names[i], i + 1, MMV_TYPE_U64, MMV_SEM_COUNTER, units, 0, "A", "A");
        if (status < 0) {
            failed("a metric", status);
        }
    }
    map = mmv_stats_start(registry);
    if (map == NULL) {
        failed("the file", 0);
    }
    counter = mmv_lookup_value_desc(map, "n0", NULL);

    double start = now_ns();
    count(NULL);
    printf("add_ns %.3f\n", (now_ns() - start) / each);
    uint64_t alone = counter->ull;
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, count, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("lost_share %.4f\n", 1 - (double)(counter->ull - alone) / ((double)each * THREADS));

    /* A reader in the same process, without a daemon: the cheapest read of PCP. */
    start = now_ns();
    status = pmLoadASCIINameSpace(arguments[2], 1);
    if (status < 0) {
        failed("the namespace", status);
    }
    char *problem = pmSpecLocalPMDA("clear");
    problem = problem ? problem : pmSpecLocalPMDA("add,70,/var/lib/pcp/pmdas/mmv/pmda_mmv.so,mmv_init");
    if (problem != NULL) {
        failed(problem, 0);
    }
    status = pmNewContext(PM_CONTEXT_LOCAL, NULL);
    if (status < 0) {
        failed("a local context", status);
    }
    for (int i = 0; i < METRICS; i++) {
        snprintf(names[i], NAME_SIZE, "mmv.topdeck_bench.n%d", i);
        asked[i] = names[i];
    }
    status = pmLookupName(METRICS, asked, ids);
    if (status < 0) {
        failed("names", status);
    }
    printf("attach_us %.1f\n", (now_ns() - start) / 1e3);
    for (int i = 0; i < FETCHES; i++) {
        start = now_ns();
        status = pmFetch(METRICS, ids, &result);
        took[i] = (now_ns() - start) / METRICS;
        if (status < 0) {
            failed("pmFetch", status);
        }
        if (result->vset[0]->numval != 1) {
            failed("pmFetch: no value", 0);
        }
        pmFreeResult(result);
    }
    qsort(took, FETCHES, sizeof *took, ascending);
    printf("read_ns %.2f\n", took[FETCHES / 2]);
    mmv_stats_free(registry);
    return 0;
}
