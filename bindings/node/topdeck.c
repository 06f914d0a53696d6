/*
 * Node functions over the C ABI of topdeck (bindings/c/topdeck.h), by Node-API version 8.
 *
 * A metric is a JavaScript object whose functions carry the handle of the metric as their data
 * pointer, so that a record needs no lookup. Each thread of Node, main or worker, has a lane of its
 * own and an instance of this module.
 */
#define NAPI_VERSION 8
#include <node_api.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "topdeck.h"

enum { LABELS_MAX = 64, TAGS_MAX = 4, TEXT_MAX = 4096 };

/* Operations in flight of one thread, by number; free ones are a list. */
typedef struct {
    td_operation *operations;
    uint32_t *next;
    uint32_t capacity, free;
    uint64_t loaded_ns;
} Instance;

#define TRY(call)                 \
    do {                          \
        if ((call) != napi_ok) {  \
            return failed(env);   \
        }                         \
    } while (0)

/* Throws what a failed call left, unless an exception is pending. */
static napi_value failed(napi_env env)
{
    bool is_pending = false;
    const napi_extended_error_info *info = NULL;
    napi_is_exception_pending(env, &is_pending);
    if (!is_pending) {
        napi_get_last_error_info(env, &info);
        napi_throw_type_error(env, NULL, info && info->error_message ? info->error_message
                                                                     : "wrong argument");
    }
    return NULL;
}

/* A number from 0 to 2^64 - 1, or a bigint. */
static bool read_u64(napi_env env, napi_value value, uint64_t *out)
{
    double number;
    bool is_lossless;
    if (napi_get_value_double(env, value, &number) == napi_ok) {
        /* NaN is not in the range either. */
        if (!(number >= 0 && number < 18446744073709551616.0)) {
            napi_throw_range_error(env, NULL, "number: expected 0 to 2^64 - 1");
            return false;
        }
        *out = (uint64_t)number;
        return true;
    }
    if (napi_get_value_bigint_uint64(env, value, out, &is_lossless) == napi_ok) {
        if (!is_lossless) {
            napi_throw_range_error(env, NULL, "bigint: expected 0 to 2^64 - 1");
        }
        return is_lossless;
    }
    napi_throw_type_error(env, NULL, "expected a number or a bigint");
    return false;
}

/* The data pointer of a function is the handle of its metric. */
static bool call_of(napi_env env, napi_callback_info info, size_t *count, napi_value *args,
                    uint64_t *word)
{
    void *data;
    if (napi_get_cb_info(env, info, count, args, NULL, &data) != napi_ok) {
        failed(env);
        return false;
    }
    *word = (uint64_t)(uintptr_t)data;
    return true;
}

static napi_value counter_add(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value arg;
    uint64_t n = 1;
    td_counter counter;
    if (!call_of(env, info, &count, &arg, &counter.word) ||
        (count > 0 && !read_u64(env, arg, &n))) {
        return NULL;
    }
    td_count(counter, n);
    return NULL;
}

/* A signed integer. */
static bool read_i64(napi_env env, napi_value value, int64_t *out)
{
    double number;
    bool is_lossless = false;
    if (napi_get_value_double(env, value, &number) == napi_ok) {
        is_lossless = number >= -9223372036854775808.0 && number < 9223372036854775808.0;
        *out = is_lossless ? (int64_t)number : 0;
    } else if (napi_get_value_bigint_int64(env, value, out, &is_lossless) != napi_ok) {
        napi_throw_type_error(env, NULL, "expected a number or a bigint");
        return false;
    }
    if (!is_lossless) {
        napi_throw_range_error(env, NULL, "number: expected -2^63 to 2^63 - 1");
    }
    return is_lossless;
}

static napi_value up_down_counter_add(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value arg;
    int64_t n;
    td_up_down_counter counter;
    if (call_of(env, info, &count, &arg, &counter.word) && read_i64(env, arg, &n)) {
        td_adjust(counter, n);
    }
    return NULL;
}

static napi_value gauge_set(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value arg;
    int64_t value;
    td_gauge gauge;
    if (call_of(env, info, &count, &arg, &gauge.word) && read_i64(env, arg, &value)) {
        td_gauge_set(gauge, value);
    }
    return NULL;
}

static napi_value float_gauge_set(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value arg;
    double value;
    td_float_gauge gauge;
    if (call_of(env, info, &count, &arg, &gauge.word)) {
        TRY(napi_get_value_double(env, arg, &value));
        td_float_gauge_set(gauge, value);
    }
    return NULL;
}

static napi_value text_set(napi_env env, napi_callback_info info)
{
    size_t count = 1, length;
    napi_value arg, result;
    /* Longer than a value may be, and a character cut in half is removed below. */
    char text[TEXT_MAX];
    td_text metric;
    if (!call_of(env, info, &count, &arg, &metric.word)) {
        return NULL;
    }
    TRY(napi_get_value_string_utf8(env, arg, text, sizeof text, &length));
    TRY(napi_get_boolean(env, td_text_set(metric, text) == 0, &result));
    return result;
}

static napi_value heartbeat_beat(napi_env env, napi_callback_info info)
{
    size_t count = 0;
    td_heartbeat heartbeat;
    if (call_of(env, info, &count, NULL, &heartbeat.word)) {
        td_heartbeat_beat(heartbeat);
    }
    return NULL;
}

static napi_value histogram_record(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value arg;
    uint64_t value;
    td_histogram histogram;
    if (call_of(env, info, &count, &arg, &histogram.word) && read_u64(env, arg, &value)) {
        td_hist_record(histogram, value);
    }
    return NULL;
}

static Instance *instance_of(napi_env env)
{
    void *data = NULL;
    napi_get_instance_data(env, &data);
    return data;
}

/* Records the nanoseconds since a result of `now`, and returns them. */
static napi_value histogram_record_since(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value arg, result;
    double since_ns, took_ns;
    td_histogram histogram;
    if (!call_of(env, info, &count, &arg, &histogram.word)) {
        return NULL;
    }
    TRY(napi_get_value_double(env, arg, &since_ns));
    took_ns = (double)(td_now() - instance_of(env)->loaded_ns) - since_ns;
    took_ns = took_ns > 0 ? took_ns : 0;
    td_hist_record(histogram, (uint64_t)took_ns);
    TRY(napi_create_double(env, took_ns, &result));
    return result;
}

/* Nanoseconds since the module was loaded: a double is exact for 104 days. */
static napi_value now(napi_env env, napi_callback_info info)
{
    napi_value result;
    (void)info;
    TRY(napi_create_double(env, (double)(td_now() - instance_of(env)->loaded_ns), &result));
    return result;
}

/* Takes a place for an operation; false without memory. */
static bool take_place(Instance *own, uint32_t *place)
{
    if (own->free == own->capacity) {
        uint32_t capacity = own->capacity ? own->capacity * 2 : 64, at;
        td_operation *operations = realloc(own->operations, capacity * sizeof *operations);
        uint32_t *next;
        if (!operations) {
            return false;
        }
        own->operations = operations;
        next = realloc(own->next, capacity * sizeof *next);
        if (!next) {
            return false;
        }
        own->next = next;
        for (at = own->capacity; at < capacity; at++) {
            next[at] = at + 1;
        }
        own->capacity = capacity;
    }
    *place = own->free;
    own->free = own->next[own->free];
    return true;
}

static napi_value in_flight_begin(napi_env env, napi_callback_info info)
{
    size_t count = 1 + TAGS_MAX, at;
    napi_value args[1 + TAGS_MAX], result;
    td_tag tags[TAGS_MAX];
    uint64_t number;
    uint32_t place;
    td_in_flight table;
    Instance *own = instance_of(env);
    if (!call_of(env, info, &count, args, &table.word) || !read_u64(env, args[0], &number)) {
        return NULL;
    }
    if (count > 1 + TAGS_MAX) {
        count = 1 + TAGS_MAX;
    }
    for (at = 1; at < count; at++) {
        TRY(napi_get_value_uint32(env, args[at], &tags[at - 1].word));
    }
    if (!take_place(own, &place)) {
        napi_throw_error(env, NULL, "cannot begin an operation: out of memory");
        return NULL;
    }
    own->operations[place] = td_operation_begin(table, number, tags, count > 1 ? count - 1 : 0);
    TRY(napi_create_uint32(env, place, &result));
    return result;
}

/* Ends the operation at a place; JavaScript calls this once for each. */
static napi_value operation_end(napi_env env, napi_callback_info info)
{
    size_t count = 1;
    napi_value arg;
    uint64_t word;
    uint32_t place;
    Instance *own = instance_of(env);
    if (!call_of(env, info, &count, &arg, &word)) {
        return NULL;
    }
    TRY(napi_get_value_uint32(env, arg, &place));
    if (place < own->capacity) {
        td_operation_end(&own->operations[place]);
        own->next[place] = own->free;
        own->free = place;
    }
    return NULL;
}

static napi_value intern_tag(napi_env env, napi_callback_info info)
{
    size_t count = 1, length;
    napi_value arg, result;
    char text[TEXT_MAX + 1];
    uint64_t word;
    td_tag tag = {0};
    if (!call_of(env, info, &count, &arg, &word)) {
        return NULL;
    }
    TRY(napi_get_value_string_utf8(env, arg, text, sizeof text, &length));
    /* Without a file, and without space, the tag is 0, which has no text. */
    if (td_tag_intern(text, &tag)) {
        tag.word = 0;
    }
    TRY(napi_create_uint32(env, tag.word, &result));
    return result;
}

static napi_value path(napi_env env, napi_callback_info info)
{
    char text[TEXT_MAX];
    napi_value result;
    (void)info;
    if (td_open() || !td_path(text, sizeof text)) {
        napi_throw_error(env, NULL, td_error());
        return NULL;
    }
    TRY(napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &result));
    return result;
}

/* A copy of a string, or NULL with an exception; the caller frees it. */
static char *copy_text(napi_env env, napi_value value)
{
    size_t length;
    char *text;
    if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok) {
        failed(env);
        return NULL;
    }
    text = malloc(length + 1);
    if (!text || napi_get_value_string_utf8(env, value, text, length + 1, NULL) != napi_ok) {
        free(text);
        failed(env);
        return NULL;
    }
    if (strlen(text) != length) {
        napi_throw_type_error(env, NULL, "text has a zero character");
        free(text);
        return NULL;
    }
    return text;
}

/* Copies an array of strings; false with an exception. */
static bool copy_texts(napi_env env, napi_value array, char **texts, uint32_t max, uint32_t *count)
{
    uint32_t length, at;
    *count = 0;
    if (napi_get_array_length(env, array, &length) != napi_ok) {
        failed(env);
        return false;
    }
    if (length > max) {
        napi_throw_range_error(env, NULL, "limit of 64 labels or 4 tags exceeded");
        return false;
    }
    for (at = 0; at < length; at++) {
        napi_value one;
        if (napi_get_element(env, array, at, &one) != napi_ok) {
            failed(env);
            return false;
        }
        texts[at] = copy_text(env, one);
        if (!texts[at]) {
            return false;
        }
        *count = at + 1;
    }
    return true;
}

static bool add_function(napi_env env, napi_value object, const char *name, napi_callback call,
                         uint64_t word)
{
    napi_value function;
    return napi_create_function(env, name, NAPI_AUTO_LENGTH, call, (void *)(uintptr_t)word,
                                &function) == napi_ok &&
           napi_set_named_property(env, object, name, function) == napi_ok;
}

static int register_metric(const char *kind, const td_description *what, char **tags,
                           uint32_t tag_count, uint64_t every_ns, uint64_t *word)
{
#define REGISTER(name, type, function)     \
    if (strcmp(kind, name) == 0) {         \
        type metric = {0};                 \
        int result = function;             \
        *word = metric.word;               \
        return result;                     \
    }
    REGISTER("counter", td_counter, td_register_counter(what, &metric))
    REGISTER("upDownCounter", td_up_down_counter, td_register_up_down_counter(what, &metric))
    REGISTER("gauge", td_gauge, td_register_gauge(what, &metric))
    REGISTER("floatGauge", td_float_gauge, td_register_float_gauge(what, &metric))
    REGISTER("text", td_text, td_register_text(what, &metric))
    REGISTER("histogram", td_histogram, td_register_histogram(what, &metric))
    REGISTER("heartbeat", td_heartbeat, td_register_heartbeat(what, every_ns, &metric))
    REGISTER("inFlight", td_in_flight,
             td_register_in_flight(what, (const char *const *)tags, tag_count, &metric))
    return -2;
}

/* Functions of a metric by its kind. */
static const struct {
    const char *kind, *name;
    napi_callback call;
} FUNCTIONS[] = {
    {"counter", "add", counter_add},
    {"upDownCounter", "add", up_down_counter_add},
    {"gauge", "set", gauge_set},
    {"floatGauge", "set", float_gauge_set},
    {"text", "set", text_set},
    {"histogram", "record", histogram_record},
    {"histogram", "recordSince", histogram_record_since},
    {"heartbeat", "beat", heartbeat_beat},
    {"inFlight", "begin", in_flight_begin},
};

/*
 * register(metric, kind, [name, unit, help], [label, value, …], role, related, tags, everyNs):
 * adds the functions of the kind to the object `metric`. Returns [handle, error]; the handle is a
 * bigint for `related`.
 */
static napi_value register_function(napi_env env, napi_callback_info info)
{
    size_t count = 8, at;
    napi_value args[8], result = NULL, handle, error;
    char kind[16] = "";
    char *texts[3] = {0}, *labels[2 * LABELS_MAX] = {0}, *tags[TAGS_MAX] = {0};
    uint32_t text_count = 0, label_count = 0, tag_count = 0;
    td_label pairs[LABELS_MAX];
    td_description what;
    uint64_t word = 0, every_ns;
    bool is_lossless;
    int status;
    TRY(napi_get_cb_info(env, info, &count, args, NULL, NULL));
    memset(&what, 0, sizeof what);
    if (count < 8 || napi_get_value_string_utf8(env, args[1], kind, sizeof kind, NULL) ||
        napi_get_value_uint32(env, args[4], &what.role) ||
        napi_get_value_bigint_uint64(env, args[5], &what.link, &is_lossless)) {
        return failed(env);
    }
    if (!read_u64(env, args[7], &every_ns) || !copy_texts(env, args[2], texts, 3, &text_count) ||
        !copy_texts(env, args[3], labels, 2 * LABELS_MAX, &label_count) ||
        !copy_texts(env, args[6], tags, TAGS_MAX, &tag_count)) {
        goto end;
    }
    for (at = 0; at < label_count / 2; at++) {
        pairs[at].name = labels[2 * at];
        pairs[at].value = labels[2 * at + 1];
    }
    what.name = texts[0];
    what.unit = texts[1];
    what.help = texts[2];
    what.labels = pairs;
    what.label_count = label_count / 2;
    status = register_metric(kind, &what, tags, tag_count, every_ns, &word);
    for (at = 0; at < sizeof FUNCTIONS / sizeof *FUNCTIONS; at++) {
        if (strcmp(FUNCTIONS[at].kind, kind) == 0 &&
            !add_function(env, args[0], FUNCTIONS[at].name, FUNCTIONS[at].call, word)) {
            failed(env);
            goto end;
        }
    }
    if (napi_create_array_with_length(env, 2, &result) ||
        napi_create_bigint_uint64(env, word, &handle) ||
        (status ? napi_create_string_utf8(env, td_error(), NAPI_AUTO_LENGTH, &error)
                : napi_get_null(env, &error)) ||
        napi_set_element(env, result, 0, handle) || napi_set_element(env, result, 1, error)) {
        result = failed(env);
    }
end:
    for (at = 0; at < 3; at++) {
        free(texts[at]);
    }
    for (at = 0; at < 2 * LABELS_MAX; at++) {
        free(labels[at]);
    }
    for (at = 0; at < TAGS_MAX; at++) {
        free(tags[at]);
    }
    return result;
}

static void release(napi_env env, void *data, void *hint)
{
    Instance *own = data;
    (void)env;
    (void)hint;
    free(own->operations);
    free(own->next);
    free(own);
}

NAPI_MODULE_INIT()
{
    Instance *own = calloc(1, sizeof *own);
    if (!own) {
        napi_throw_error(env, NULL, "cannot load topdeck: out of memory");
        return NULL;
    }
    own->loaded_ns = td_now();
    if (napi_set_instance_data(env, own, release, NULL) != napi_ok) {
        free(own);
        return failed(env);
    }
    if (!add_function(env, exports, "register", register_function, 0) ||
        !add_function(env, exports, "operationEnd", operation_end, 0) ||
        !add_function(env, exports, "tag", intern_tag, 0) ||
        !add_function(env, exports, "path", path, 0) ||
        !add_function(env, exports, "now", now, 0)) {
        return failed(env);
    }
    return exports;
}
