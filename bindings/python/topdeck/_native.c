/*
 * Python types over the C ABI of topdeck (bindings/c/topdeck.h), for the stable ABI of Python 3.10.
 *
 * A record is a method call with one argument: its cost is Python's call and the conversion of the
 * number. The GIL is held: a record takes nanoseconds. It is not needed either: each OS thread has
 * a lane of its own.
 */
#define Py_LIMITED_API 0x030a0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <string.h>

#include "topdeck.h"

/* Any metric: the handle is the first field of each C type, a word. */
typedef struct {
    PyObject_HEAD
    uint64_t word;
    PyObject *error;
} Metric;

enum { LABELS_MAX = 64, TAGS_MAX = 4 };

static PyTypeObject *timer_type, *operation_type, *metric_type;

/* UTF-8 of a string without zero bytes, borrowed from it; NULL with an exception. */
static const char *text_of(PyObject *object, const char *what)
{
    Py_ssize_t size;
    const char *text;
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: expected str", what);
        return NULL;
    }
    text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text && strlen(text) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%s: has a zero character", what);
        return NULL;
    }
    return text;
}

/* Labels of a dict; returns their number, or -1 with an exception. */
static int read_labels(PyObject *labels, td_label *out)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    int count = 0;
    if (!labels || labels == Py_None) {
        return 0;
    }
    if (!PyDict_Check(labels)) {
        PyErr_SetString(PyExc_TypeError, "labels: expected a dict of str");
        return -1;
    }
    while (PyDict_Next(labels, &at, &name, &value)) {
        if (count == LABELS_MAX) {
            PyErr_SetString(PyExc_ValueError, "labels: limit of 64 exceeded");
            return -1;
        }
        out[count].name = text_of(name, "name of a label");
        out[count].value = text_of(value, "value of a label");
        if (!out[count].name || !out[count].value) {
            return -1;
        }
        count++;
    }
    return count;
}

/* Reads the arguments that all metrics have. */
static int describe(PyObject *args, PyObject *kwargs, td_description *what, td_label *labels)
{
    static char *names[] = {"name", "unit", "help", "labels", "role", "related", NULL};
    PyObject *name, *unit = NULL, *help = NULL, *label_dict = NULL, *related = NULL;
    unsigned int role = 0;
    int count;
    memset(what, 0, sizeof *what);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|$UUOIO", names, &name, &unit, &help,
                                     &label_dict, &role, &related)) {
        return -1;
    }
    what->name = text_of(name, "name");
    what->unit = unit ? text_of(unit, "unit") : "";
    what->help = help ? text_of(help, "help") : "";
    count = read_labels(label_dict, labels);
    if (!what->name || !what->unit || !what->help || count < 0) {
        return -1;
    }
    if (related && related != Py_None) {
        int is_metric = PyObject_IsInstance(related, (PyObject *)metric_type);
        if (is_metric <= 0) {
            if (!is_metric) {
                PyErr_SetString(PyExc_TypeError, "related: expected a metric");
            }
            return -1;
        }
        what->link = ((Metric *)related)->word;
    }
    what->labels = labels;
    what->label_count = (size_t)count;
    what->role = role;
    return 0;
}

/* Keeps the message of a failed registration: the metric records nothing. */
static int registered(Metric *self, int failed)
{
    if (!failed) {
        return 0;
    }
    self->word = 0;
    Py_CLEAR(self->error);
    self->error = PyUnicode_FromString(td_error());
    return self->error ? 0 : -1;
}

#define INIT(name, handle, registration)                                          \
    static int name##_init(PyObject *object, PyObject *args, PyObject *kwargs)    \
    {                                                                             \
        Metric *self = (Metric *)object;                                          \
        td_description what;                                                      \
        td_label labels[LABELS_MAX];                                              \
        handle metric = {0};                                                      \
        int failed;                                                               \
        if (describe(args, kwargs, &what, labels)) {                              \
            return -1;                                                            \
        }                                                                         \
        failed = registration(&what, &metric);                                    \
        self->word = metric.word;                                                 \
        return registered(self, failed);                                          \
    }

INIT(counter, td_counter, td_register_counter)
INIT(up_down_counter, td_up_down_counter, td_register_up_down_counter)
INIT(gauge, td_gauge, td_register_gauge)
INIT(float_gauge, td_float_gauge, td_register_float_gauge)
INIT(text, td_text, td_register_text)
INIT(histogram, td_histogram, td_register_histogram)

/* Takes an argument out of the keywords, whose copy is the result; NULL with an exception. */
static PyObject *without(PyObject *kwargs, const char *name, PyObject **found)
{
    PyObject *rest = kwargs ? PyDict_Copy(kwargs) : PyDict_New();
    *found = NULL;
    if (!rest) {
        return NULL;
    }
    *found = PyDict_GetItemString(rest, name);
    if (*found) {
        Py_INCREF(*found);
        if (PyDict_DelItemString(rest, name)) {
            Py_DECREF(*found);
            Py_DECREF(rest);
            return NULL;
        }
    }
    return rest;
}

static int heartbeat_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    Metric *self = (Metric *)object;
    td_description what;
    td_label labels[LABELS_MAX];
    td_heartbeat metric = {0};
    unsigned long long every_ns = 0;
    PyObject *every, *rest = without(kwargs, "every_ns", &every);
    int failed = !rest;
    if (every) {
        every_ns = PyLong_AsUnsignedLongLong(every);
        failed |= every_ns == (unsigned long long)-1 && PyErr_Occurred();
        Py_DECREF(every);
    }
    failed = failed || describe(args, rest, &what, labels);
    if (!failed) {
        failed = td_register_heartbeat(&what, every_ns, &metric);
        self->word = metric.word;
        failed = registered(self, failed);
    }
    Py_XDECREF(rest);
    return failed ? -1 : 0;
}

static int in_flight_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    Metric *self = (Metric *)object;
    td_description what;
    td_label labels[LABELS_MAX];
    td_in_flight metric = {0};
    const char *names[TAGS_MAX + 1];
    Py_ssize_t count = 0;
    PyObject *tags, *list = NULL, *rest = without(kwargs, "tags", &tags);
    int failed = !rest;
    if (!failed && tags) {
        list = PySequence_Tuple(tags);
        failed = !list;
        count = list ? PyTuple_Size(list) : 0;
        if (count > TAGS_MAX) {
            PyErr_SetString(PyExc_ValueError, "tags: limit of 4 exceeded");
            failed = 1;
        }
        for (Py_ssize_t at = 0; !failed && at < count; at++) {
            names[at] = text_of(PyTuple_GetItem(list, at), "name of a tag");
            failed = !names[at];
        }
    }
    failed = failed || describe(args, rest, &what, labels);
    if (!failed) {
        failed = td_register_in_flight(&what, names, (size_t)count, &metric);
        self->word = metric.word;
        failed = registered(self, failed);
    }
    Py_XDECREF(list);
    Py_XDECREF(tags);
    Py_XDECREF(rest);
    return failed ? -1 : 0;
}

static void metric_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_CLEAR(((Metric *)object)->error);
    release(object);
    Py_DECREF(type);
}

static PyObject *metric_error(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *error = ((Metric *)object)->error;
    error = error ? error : Py_None;
    Py_INCREF(error);
    return error;
}

static PyObject *counter_add(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    td_counter counter = {((Metric *)object)->word};
    unsigned long long n = 1;
    if (count > 1) {
        PyErr_SetString(PyExc_TypeError, "add: expected at most one argument");
        return NULL;
    }
    if (count) {
        n = PyLong_AsUnsignedLongLong(args[0]);
        if (n == (unsigned long long)-1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    td_count(counter, n);
    Py_RETURN_NONE;
}

static PyObject *up_down_counter_add(PyObject *object, PyObject *argument)
{
    td_up_down_counter counter = {((Metric *)object)->word};
    long long n = PyLong_AsLongLong(argument);
    if (n == -1 && PyErr_Occurred()) {
        return NULL;
    }
    td_adjust(counter, n);
    Py_RETURN_NONE;
}

static PyObject *gauge_set(PyObject *object, PyObject *argument)
{
    td_gauge gauge = {((Metric *)object)->word};
    long long value = PyLong_AsLongLong(argument);
    if (value == -1 && PyErr_Occurred()) {
        return NULL;
    }
    td_gauge_set(gauge, value);
    Py_RETURN_NONE;
}

static PyObject *float_gauge_set(PyObject *object, PyObject *argument)
{
    td_float_gauge gauge = {((Metric *)object)->word};
    double value = PyFloat_AsDouble(argument);
    if (value == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    td_float_gauge_set(gauge, value);
    Py_RETURN_NONE;
}

/* Whether all of the text fit into 240 bytes. */
static PyObject *text_set(PyObject *object, PyObject *argument)
{
    td_text metric = {((Metric *)object)->word};
    const char *text = text_of(argument, "text");
    return text ? PyBool_FromLong(td_text_set(metric, text) == 0) : NULL;
}

static PyObject *heartbeat_beat(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    td_heartbeat heartbeat = {((Metric *)object)->word};
    td_heartbeat_beat(heartbeat);
    Py_RETURN_NONE;
}

static PyObject *histogram_record(PyObject *object, PyObject *argument)
{
    td_histogram histogram = {((Metric *)object)->word};
    unsigned long long value = PyLong_AsUnsignedLongLong(argument);
    if (value == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    td_hist_record(histogram, value);
    Py_RETURN_NONE;
}

/* A running timer; also a context manager. */
typedef struct {
    PyObject_HEAD
    td_histogram histogram;
    td_stopwatch since;
    int runs;
} Timer;

static PyObject *histogram_start(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    allocfunc make = (allocfunc)PyType_GetSlot(timer_type, Py_tp_alloc);
    Timer *timer = (Timer *)make(timer_type, 0);
    if (timer) {
        timer->histogram.word = ((Metric *)object)->word;
        timer->runs = 1;
        timer->since = td_stopwatch_start();
    }
    return (PyObject *)timer;
}

static void object_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *timer_enter(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    Timer *timer = (Timer *)object;
    timer->runs = 1;
    timer->since = td_stopwatch_start();
    Py_INCREF(object);
    return object;
}

static PyObject *timer_stop(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    Timer *timer = (Timer *)object;
    uint64_t took_ns = td_stopwatch_elapsed_ns(timer->since);
    if (timer->runs) {
        timer->runs = 0;
        td_hist_record(timer->histogram, took_ns);
    }
    return PyLong_FromUnsignedLongLong(took_ns);
}

static PyObject *timer_cancel(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    ((Timer *)object)->runs = 0;
    Py_RETURN_NONE;
}

static PyObject *timer_exit(PyObject *object, PyObject *const *Py_UNUSED(args),
                            Py_ssize_t Py_UNUSED(count))
{
    Timer *timer = (Timer *)object;
    if (timer->runs) {
        timer->runs = 0;
        td_hist_record_since(timer->histogram, timer->since);
    }
    Py_RETURN_FALSE;
}

/* An operation in flight; also a context manager. */
typedef struct {
    PyObject_HEAD
    td_operation operation;
} Operation;

static PyObject *in_flight_begin(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    td_in_flight table = {((Metric *)object)->word};
    td_tag tags[TAGS_MAX];
    unsigned long long number;
    allocfunc make = (allocfunc)PyType_GetSlot(operation_type, Py_tp_alloc);
    Operation *operation;
    if (count < 1 || count > 1 + TAGS_MAX) {
        PyErr_SetString(PyExc_TypeError, "begin: expected a number and at most four tags");
        return NULL;
    }
    number = PyLong_AsUnsignedLongLong(args[0]);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    for (Py_ssize_t at = 1; at < count; at++) {
        unsigned long word = PyLong_AsUnsignedLong(args[at]);
        if (word == (unsigned long)-1 && PyErr_Occurred()) {
            return NULL;
        }
        tags[at - 1].word = (uint32_t)word;
    }
    operation = (Operation *)make(operation_type, 0);
    if (operation) {
        operation->operation = td_operation_begin(table, number, tags, (size_t)count - 1);
    }
    return (PyObject *)operation;
}

static PyObject *operation_end(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    td_operation_end(&((Operation *)object)->operation);
    Py_RETURN_NONE;
}

static PyObject *itself(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    Py_INCREF(object);
    return object;
}

static PyObject *operation_exit(PyObject *object, PyObject *const *Py_UNUSED(args),
                                Py_ssize_t Py_UNUSED(count))
{
    td_operation_end(&((Operation *)object)->operation);
    Py_RETURN_FALSE;
}

static PyObject *module_tag(PyObject *Py_UNUSED(module), PyObject *argument)
{
    td_tag tag = {0};
    const char *text = text_of(argument, "text of a tag");
    if (!text) {
        return NULL;
    }
    /* Without a file, and without space, the tag is 0, which has no text. */
    if (td_tag_intern(text, &tag)) {
        tag.word = 0;
    }
    return PyLong_FromUnsignedLong(tag.word);
}

/* Path of the metrics file; OSError with the reason if there is none. */
static PyObject *module_path(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    char path[4096];
    if (td_open() || !td_path(path, sizeof path)) {
        PyErr_SetString(PyExc_OSError, td_error());
        return NULL;
    }
    return PyUnicode_DecodeFSDefault(path);
}

static PyObject *module_now(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromUnsignedLongLong(td_now());
}

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef counter_methods[] = {
    {"add", FAST(counter_add), METH_FASTCALL, "Adds a number, by default 1."}, {0}};
static PyMethodDef up_down_counter_methods[] = {
    {"add", up_down_counter_add, METH_O, "Adds a number, which may be negative."}, {0}};
static PyMethodDef gauge_methods[] = {{"set", gauge_set, METH_O, "Sets the value."}, {0}};
static PyMethodDef float_gauge_methods[] = {
    {"set", float_gauge_set, METH_O, "Sets the value."}, {0}};
static PyMethodDef text_methods[] = {
    {"set", text_set, METH_O,
     "Sets the text, truncated to 240 bytes; returns whether all of it fit."}, {0}};
static PyMethodDef heartbeat_methods[] = {
    {"beat", heartbeat_beat, METH_NOARGS, "Records a beat."}, {0}};
static PyMethodDef histogram_methods[] = {
    {"record", histogram_record, METH_O, "Records an integer of at least 0."},
    {"start", histogram_start, METH_NOARGS, "Starts a timer; also a context manager."}, {0}};
static PyMethodDef in_flight_methods[] = {
    {"begin", FAST(in_flight_begin), METH_FASTCALL,
     "Starts an operation: its number, and tags of `tag` in the order of their names."}, {0}};
static PyMethodDef timer_methods[] = {
    {"stop", timer_stop, METH_NOARGS, "Records the time since the start; returns nanoseconds."},
    {"cancel", timer_cancel, METH_NOARGS, "Records nothing."},
    {"__enter__", timer_enter, METH_NOARGS, NULL},
    {"__exit__", FAST(timer_exit), METH_FASTCALL, NULL}, {0}};
static PyMethodDef operation_methods[] = {
    {"end", operation_end, METH_NOARGS, "Ends the operation; only the first call does."},
    {"__enter__", itself, METH_NOARGS, NULL},
    {"__exit__", FAST(operation_exit), METH_FASTCALL, NULL}, {0}};
static PyGetSetDef metric_fields[] = {
    {"error", metric_error, NULL, "Why the metric records nothing, or None.", NULL}, {0}};

static PyType_Slot metric_slots[] = {
    {Py_tp_dealloc, metric_dealloc}, {Py_tp_getset, metric_fields},
    {Py_tp_doc, "A metric in shared memory."}, {0, NULL}};
static PyType_Spec metric_spec = {
    "topdeck.Metric", sizeof(Metric), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, metric_slots};

#define METRIC(name, title)                                                         \
    static PyType_Slot name##_slots[] = {                                           \
        {Py_tp_new, PyType_GenericNew}, {Py_tp_init, name##_init},                  \
        {Py_tp_methods, name##_methods}, {0, NULL}};                                \
    static PyType_Spec name##_spec = {                                              \
        "topdeck." title, sizeof(Metric), 0, Py_TPFLAGS_DEFAULT, name##_slots};

METRIC(counter, "Counter")
METRIC(up_down_counter, "UpDownCounter")
METRIC(gauge, "Gauge")
METRIC(float_gauge, "FloatGauge")
METRIC(text, "Text")
METRIC(heartbeat, "Heartbeat")
METRIC(histogram, "Histogram")
METRIC(in_flight, "InFlight")

static PyType_Slot timer_slots[] = {
    {Py_tp_dealloc, object_dealloc}, {Py_tp_methods, timer_methods}, {0, NULL}};
static PyType_Spec timer_spec = {
    "topdeck.Timer", sizeof(Timer), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, timer_slots};
static PyType_Slot operation_slots[] = {
    {Py_tp_dealloc, object_dealloc}, {Py_tp_methods, operation_methods}, {0, NULL}};
static PyType_Spec operation_spec = {
    "topdeck.Operation", sizeof(Operation), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, operation_slots};

static PyMethodDef module_methods[] = {
    {"tag", module_tag, METH_O,
     "Interns the value of a tag. Each distinct text takes space in the file for good."},
    {"path", module_path, METH_NOARGS,
     "Path of the metrics file of this process, which is created if there is none."},
    {"now", module_now, METH_NOARGS, "Nanoseconds of CLOCK_MONOTONIC."}, {0}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "topdeck._native", "Metrics in shared memory.", -1, module_methods,
    NULL, NULL, NULL, NULL};

static int add_type(PyObject *to, PyType_Spec *spec, PyTypeObject *base, PyTypeObject **kept)
{
    PyObject *bases = base ? PyTuple_Pack(1, base) : NULL;
    PyObject *type = PyType_FromSpecWithBases(spec, bases);
    const char *name = strrchr(spec->name, '.') + 1;
    Py_XDECREF(bases);
    if (!type || PyModule_AddObjectRef(to, name, type)) {
        Py_XDECREF(type);
        return -1;
    }
    if (kept) {
        *kept = (PyTypeObject *)type;
    } else {
        Py_DECREF(type);
    }
    return 0;
}

PyMODINIT_FUNC PyInit__native(void)
{
    PyType_Spec *metrics[] = {&counter_spec, &up_down_counter_spec, &gauge_spec,
                              &float_gauge_spec, &text_spec, &heartbeat_spec, &histogram_spec,
                              &in_flight_spec};
    PyObject *made = PyModule_Create(&module);
    int failed = !made || add_type(made, &metric_spec, NULL, &metric_type) ||
                 add_type(made, &timer_spec, NULL, &timer_type) ||
                 add_type(made, &operation_spec, NULL, &operation_type);
    for (size_t at = 0; !failed && at < sizeof metrics / sizeof *metrics; at++) {
        failed = add_type(made, metrics[at], metric_type, NULL);
    }
    if (failed) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
