/*
 * What crates/ffi/tests/it/programs.rs runs, as C and as C++: `test PART`. It records, and who
 * started it reads what came of that. What can be seen from inside is checked here; the first thing
 * that is wrong ends the program with status 1 and is named.
 */
#include "topdeck.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                        \
    do {                                                                                   \
        if (!(what)) {                                                                     \
            fprintf(stderr, "%s:%d: %s; td_error: %s\n", __FILE__, __LINE__, #what, td_error()); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

static td_counter inline_total, library_total, never;
static td_up_down_counter balance;
static td_histogram inline_took, library_took;
static td_in_flight work;
static td_tag sda, sdb;

static td_description described(const char *name, const char *unit)
{
    td_description what;
    memset(&what, 0, sizeof what);
    what.name = name;
    what.unit = unit;
    return what;
}

static void register_all(void)
{
    static const char *const tags[] = {"device", "operation"};
    td_description what = described("inline_total", NULL);
    CHECK(td_register_counter(&what, &inline_total) == 0);
    what = described("library_total", NULL);
    CHECK(td_register_counter(&what, &library_total) == 0);
    what = described("balance", "By");
    CHECK(td_register_up_down_counter(&what, &balance) == 0);
    what = described("inline_took", "ns");
    what.role = TD_ROLE_TIMING;
    CHECK(td_register_histogram(&what, &inline_took) == 0);
    what = described("library_took", "ns");
    CHECK(td_register_histogram(&what, &library_took) == 0);
    what = described("work", NULL);
    CHECK(td_register_in_flight(&what, tags, 2, &work) == 0);
    CHECK(td_tag_intern("sda", &sda) == 0);
    CHECK(td_tag_intern("sdb", &sdb) == 0);
}

enum { ROUNDS = 4, THREADS = 6, RECORDS = 20000 };

static void record(void)
{
    uint64_t i;
    for (i = 0; i < RECORDS; i++) {
        td_count(inline_total, 1);
        td_counter_add(library_total, 2);
        td_adjust(balance, i % 2 ? 3 : -2);
        td_up_down_counter_add(balance, -1);
        td_hist_record(inline_took, i);
        td_histogram_record(library_took, i);
        td_count(never, 1);
    }
}

static pthread_key_t at_end;

/* When a thread ends, its lane may be released already: what is recorded then must still count. */
static void last_words(void *nothing)
{
    (void)nothing;
    td_count(inline_total, 1);
    td_hist_record(inline_took, 7);
}

static void *thread(void *nothing)
{
    td_operation operation;
    CHECK(pthread_setspecific(at_end, &at_end) == 0);
    operation = td_operation_begin(work, 1, &sda, 1);
    record();
    td_operation_end(&operation);
    td_operation_end(&operation);
    return nothing;
}

static void threads(void)
{
    pthread_t all[THREADS];
    td_operation left;
    td_tag tags[2];
    int round, i;
    CHECK(pthread_key_create(&at_end, last_words) == 0);
    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < THREADS; i++) {
            CHECK(pthread_create(&all[i], NULL, thread, NULL) == 0);
        }
        for (i = 0; i < THREADS; i++) {
            CHECK(pthread_join(all[i], NULL) == 0);
        }
    }
    /* Three are left: 0 and 2 with both tags, 1 with one. */
    CHECK(td_tag_intern("read", &tags[1]) == 0);
    for (i = 0; i < 3; i++) {
        tags[0] = i == 1 ? sda : sdb;
        left = td_operation_begin(work, (uint64_t)i, tags, i == 1 ? 1 : 2);
        (void)left;
    }
}

static void *steadily(void *stop)
{
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
        td_count(library_total, 1);
    }
    return NULL;
}

/* The parent counts before and after; the child, forked while another thread records, has counts
 * of its own. */
static void forks(void)
{
    int stop = 0, status = -1;
    pthread_t other;
    td_operation inherited = td_operation_begin(work, 5, NULL, 0);
    pid_t child;
    CHECK(pthread_create(&other, NULL, steadily, &stop) == 0);
    record();
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        uint64_t i;
        for (i = 0; i < 5; i++) {
            td_count(inline_total, 1);
            td_hist_record(inline_took, 1000 + i);
        }
        td_operation_end(&inherited);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    record();
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(other, NULL) == 0);
    td_operation_end(&inherited);
}

/* Records each number of the standard input in both ways, and prints its bucket according to the
 * header. */
static void places(void)
{
    uint64_t value, place;
    while (fread(&value, sizeof value, 1, stdin) == 1) {
        td_hist_record(inline_took, value);
        td_histogram_record(library_took, value);
        place = UINT64_MAX;
#if defined(__GNUC__) && defined(__LP64__)
        if ((int64_t)value > 0) {
            place = td_place_(value);
        }
#endif
        CHECK(fwrite(&place, sizeof place, 1, stdout) == 1);
    }
}

static void all_kinds(void)
{
    static const td_label labels[] = {{"zone", "a"}, {"peer", "gr\xc3\xb6\xc3\x9f" "er"}};
    td_description what = described("connections", "1");
    char name[32];
    td_gauge capacity, gauge;
    td_float_gauge ratio;
    td_text text;
    td_heartbeat heartbeat;
    td_stopwatch since = td_stopwatch_start();
    uint64_t before = td_now();
    uint32_t role;

    what.role = TD_ROLE_CAPACITY;
    CHECK(td_register_gauge(&what, &capacity) == 0);
    td_gauge_set(capacity, 100);
    what = described("connections_used", "1");
    what.help = "How many there are.";
    what.labels = labels;
    what.label_count = 2;
    what.role = TD_ROLE_USAGE;
    what.link = capacity.word;
    CHECK(td_register_gauge(&what, &gauge) == 0);
    td_gauge_set(gauge, -7);
    what = described("ratio", NULL);
    CHECK(td_register_float_gauge(&what, &ratio) == 0);
    td_float_gauge_set(ratio, 0.25);
    what = described("state", NULL);
    CHECK(td_register_text(&what, &text) == 0);
    CHECK(td_text_set(text, "leader") == 0);
    what = described("alive", NULL);
    CHECK(td_register_heartbeat(&what, 1000000000, &heartbeat) == 0);
    td_heartbeat_beat(heartbeat);
    td_heartbeat_beat(heartbeat);
    for (role = TD_ROLE_OTHER; role <= TD_ROLE_SUBCALLS; role++) {
        td_counter counter;
        snprintf(name, sizeof name, "role_%u", (unsigned)role);
        what = described(name, NULL);
        what.role = role;
        CHECK(td_register_counter(&what, &counter) == 0);
    }
    td_hist_record_since(inline_took, since);
    CHECK(td_now() >= before);
    CHECK(td_version()[0] != 0);
}

#define REFUSED(call, text) CHECK((call) == -1 && strstr(td_error(), text) != NULL)

/* What the caller did wrong is told, and changes nothing. */
static void errors(void)
{
    static const char *const tags[] = {"a", NULL};
    static const td_label twice[] = {{"a", "1"}, {"a", "2"}}, missing[] = {{"a", NULL}};
    td_description what = described("errors_total", NULL);
    td_counter counter = {7}, same;
    td_histogram histogram;
    td_in_flight in_flight;
    td_text text;
    td_tag tag;
    char path[4096], cut[8], longer[300];
    size_t length;

    CHECK(td_error()[0] == 0);
    REFUSED(td_register_counter(NULL, &counter), "argument what: NULL");
    CHECK(counter.word == 0);
    REFUSED(td_register_counter(&what, NULL), "argument metric: NULL");
    what.name = NULL;
    REFUSED(td_register_counter(&what, &counter), "argument name: NULL");
    what.name = "";
    REFUSED(td_register_counter(&what, &counter), "name is empty");
    what.name = "\xff";
    REFUSED(td_register_counter(&what, &counter), "argument name: not UTF-8");
    what = described("errors_total", "\xc3");
    REFUSED(td_register_counter(&what, &counter), "argument unit: not UTF-8");
    what = described("errors_total", NULL);
    what.role = 10;
    REFUSED(td_register_counter(&what, &counter), "invalid role 10");
    what = described("errors_total", NULL);
    what.labels = twice;
    what.label_count = 2;
    REFUSED(td_register_counter(&what, &counter), "duplicate label");
    what.labels = missing;
    what.label_count = 1;
    REFUSED(td_register_counter(&what, &counter), "argument label value: NULL");
    what.labels = NULL;
    REFUSED(td_register_counter(&what, &counter), "argument labels: NULL");
    what.label_count = SIZE_MAX;
    REFUSED(td_register_counter(&what, &counter), "too many labels");
    what = described("errors_total", NULL);
    REFUSED(td_register_in_flight(&what, tags, 2, &in_flight), "argument tag name: NULL");
    REFUSED(td_register_in_flight(&what, tags, 5, &in_flight), "too many tags");
    CHECK(in_flight.word == 0);
    CHECK(td_register_counter(&what, &counter) == 0 && counter.word != 0);
    CHECK(td_register_counter(&what, &same) == 0 && same.word == counter.word);
    REFUSED(td_register_histogram(&what, &histogram), "another kind or unit");
    CHECK(histogram.word == 0);
    REFUSED(td_tag_intern(NULL, &tag), "argument text: NULL");
    REFUSED(td_tag_intern("x", NULL), "argument tag: NULL");

    /* What is zero, and NULL, do nothing. */
    td_hist_record(histogram, 1);
    td_histogram_record(histogram, 1);
    td_counter_add(never, 1);
    memset(&in_flight, 0, sizeof in_flight);
    td_operation_end(NULL);
    {
        td_operation operation = td_operation_begin(in_flight, 1, NULL, 3);
        td_operation_end(&operation);
        memset(&operation, 0, sizeof operation);
        td_operation_end(&operation);
    }
    what = described("text", NULL);
    CHECK(td_register_text(&what, &text) == 0);
    REFUSED(td_text_set(text, NULL), "argument text: NULL");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    REFUSED(td_text_set(text, longer), "240 bytes");

    length = td_path(path, sizeof path);
    CHECK(length > 8 && strlen(path) == length && td_path(NULL, 0) == length);
    CHECK(td_path(cut, sizeof cut) == length && strlen(cut) == 7 && strncmp(cut, path, 7) == 0);
    td_count(counter, 3);
}

/* Without a file all goes nowhere, and the reason is told. */
static void off(void)
{
    td_description what = described("off_total", NULL);
    td_counter counter;
    char path[8];
    CHECK(td_open() == -1 && strstr(td_error(), "TOPDECK_SHM") != NULL);
    CHECK(td_register_counter(&what, &counter) == -1 && counter.word == 0);
    CHECK(td_path(path, sizeof path) == 0);
    record();
    puts(td_error());
}

int main(int count, char **arguments)
{
    const char *part = count > 1 ? arguments[1] : "";
    if (strcmp(part, "off") == 0) {
        off();
        return 0;
    }
    CHECK(td_open() == 0);
    if (strcmp(part, "errors") == 0) {
        errors();
        return 0;
    }
    register_all();
    if (strcmp(part, "threads") == 0) {
        threads();
    } else if (strcmp(part, "forks") == 0) {
        forks();
    } else if (strcmp(part, "places") == 0) {
        places();
    } else if (strcmp(part, "kinds") == 0) {
        all_kinds();
    } else if (strcmp(part, "dies") == 0) {
        record();
        _exit(0);
    } else {
        fprintf(stderr, "usage: test threads|forks|places|kinds|dies|errors|off\n");
        return 2;
    }
    return 0;
}
