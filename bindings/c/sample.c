/*
 * A small server, or what looks like one to whoever watches: threads that take requests, some of
 * them slow, and one that is stuck. Look at it from outside while it runs, or after `kill -9`.
 */
#include "topdeck.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static td_counter answered;
static td_histogram took;
static td_in_flight requests;
static td_heartbeat alive;
static td_tag routes[2];

static void failed(const char *what)
{
    fprintf(stderr, "sample: no %s: %s\n", what, td_error());
}

static void register_metrics(void)
{
    static const char *const tags[] = {"route"};
    static const td_label labels[] = {{"service", "sample"}};

    if (td_register_counter(&(td_description){.name = "answered_total", .help = "Requests that were answered.", .labels = labels,
                                              .label_count = 1}, &answered)) {
        failed("counter");
    }
    if (td_register_histogram(&(td_description){.name = "answer_duration", .unit = "ns", .help = "How long an answer took.",
                                                .labels = labels, .label_count = 1, .role = TD_ROLE_TIMING}, &took)) {
        failed("histogram");
    }
    if (td_register_in_flight(&(td_description){.name = "requests", .help = "Requests that are being answered."}, tags, 1,
                              &requests)) {
        failed("table of requests");
    }
    if (td_register_heartbeat(&(td_description){.name = "alive"}, 1000000000, &alive)) {
        failed("heartbeat");
    }
    if (td_tag_intern("/search", &routes[0]) || td_tag_intern("/cart", &routes[1])) {
        failed("tag");
    }
}

static void work(long ns)
{
    struct timespec pause = {ns / 1000000000, ns % 1000000000};
    nanosleep(&pause, NULL);
}

static void answer(uint64_t number, unsigned *seed)
{
    td_operation operation = td_operation_begin(requests, number, &routes[number % 2], 1);
    td_stopwatch since = td_stopwatch_start();
    /* One in a hundred is slow. */
    work(rand_r(seed) % 100 ? 200000 : 20000000);
    td_hist_record_since(took, since);
    td_count(answered, 1);
    td_operation_end(&operation);
}

static int requests_each = 2000;

static void *serve(void *first)
{
    uint64_t number = (uint64_t)(uintptr_t)first * 1000000;
    unsigned seed = (unsigned)number;
    for (int i = 0; i < requests_each; i++) {
        answer(number++, &seed);
        td_heartbeat_beat(alive);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[4];
    char path[4096];

    if (count > 1) {
        requests_each = atoi(arguments[1]);
    }
    register_metrics();
    if (td_path(path, sizeof path)) {
        printf("look at it with `topdeck top`; the file is %s\n", path);
        fflush(stdout);
    }
    td_operation stuck = td_operation_begin(requests, 42, &routes[1], 1);
    for (int i = 0; i < 4; i++) {
        if (pthread_create(&threads[i], NULL, serve, (void *)(uintptr_t)(i + 1))) {
            return 1;
        }
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    td_operation_end(&stuck);
    return 0;
}
