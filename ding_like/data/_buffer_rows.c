/* The inner loops of replay buffers: what numpy takes many small calls for, over arrays that the callers own.
 *
 * What they do stands in numpy beside each call (compiled.py, row_records.py, advanced.py), and tests hold the two equal.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define MAX_HELD 64

typedef struct {
    Py_buffer buffer[MAX_HELD];
    int num;
} Held;

static void let_go(Held *held) {
    for (int i = 0; i < held->num; i++) PyBuffer_Release(&held->buffer[i]);
    held->num = 0;
}

/* Return the memory of an array whose items are `itemsize` wide (0: any); NULL with an error set. */
static Py_buffer *hold(Held *held, PyObject *object, Py_ssize_t itemsize, int writable) {
    if (held->num == MAX_HELD) {
        PyErr_SetString(PyExc_ValueError, "too many arrays");
        return NULL;
    }
    Py_buffer *buffer = &held->buffer[held->num];
    if (PyObject_GetBuffer(object, buffer, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0) return NULL;
    held->num++;
    if (itemsize && buffer->itemsize != itemsize) {
        PyErr_Format(PyExc_TypeError, "an array has items of %zd bytes, expected %zd", buffer->itemsize, itemsize);
        return NULL;
    }
    return buffer;
}

#define LENGTH(buffer) ((buffer)->itemsize ? (buffer)->len / (buffer)->itemsize : 0)

/* first_distinct(draws float64 [M] in [0, 1), n, out int64 [B]) -> how many were written
 *
 * Take floor(draw * n) one after another, each number once, until `out` is full or the draws are used up. */
static PyObject *py_first_distinct(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Held held = {.num = 0};
    if (nargs != 3) return PyErr_Format(PyExc_TypeError, "first_distinct takes 3 arguments");
    double n = PyFloat_AsDouble(args[1]);
    if (n == -1.0 && PyErr_Occurred()) return NULL;
    Py_buffer *draws = hold(&held, args[0], sizeof(double), 0);
    Py_buffer *out = draws ? hold(&held, args[2], sizeof(int64_t), 1) : NULL;
    if (!out) goto failed;
    const double *draw = draws->buf;
    int64_t *picks = out->buf;
    Py_ssize_t num_draws = LENGTH(draws), size = LENGTH(out), num = 0;
    size_t slots = 16;
    while (slots < 4 * (size_t)size) slots *= 2;
    /* Open addressing; a slot holds a number and one more, so that 0 means that it is free. */
    int64_t small[2048];
    int64_t *table = slots <= 2048 ? small : PyMem_Malloc(slots * sizeof(int64_t));
    if (!table) {
        PyErr_NoMemory();
        goto failed;
    }
    memset(table, 0, slots * sizeof(int64_t));
    for (Py_ssize_t i = 0; i < num_draws && num < size; i++) {
        int64_t pick = (int64_t)(draw[i] * n);
        size_t slot = ((uint64_t)pick * 0x9E3779B97F4A7C15u >> 32) & (slots - 1);
        while (table[slot] && table[slot] != pick + 1) slot = (slot + 1) & (slots - 1);
        if (table[slot]) continue;
        table[slot] = pick + 1;
        picks[num++] = pick;
    }
    if (table != small) PyMem_Free(table);
    let_go(&held);
    return PyLong_FromSsize_t(num);
failed:
    let_go(&held);
    return NULL;
}

/* Define a copy of rows of one width that the compiler knows. */
#define COPY_ROWS(type)                                                                            \
    for (Py_ssize_t i = 0; i < num; i++) ((type *)to)[i] = ((const type *)from)[rows[i] < 0 ? rows[i] + capacity : rows[i]]

typedef struct {
    int64_t low, high;
} Pair;

#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)(address))
#endif

/* Ask for a long row before it is copied: rows lie anywhere, and the processor foresees only what follows. */
static void fetch_ahead(const char *row, Py_ssize_t width) {
    for (Py_ssize_t byte = 0; byte < width; byte += 64) FETCH(row + byte);
}

static void copy_rows(char *to, const char *from, Py_ssize_t width, const int64_t *rows, Py_ssize_t num, int64_t capacity) {
    switch (width) {
    case 1: COPY_ROWS(char); break;
    case 4: COPY_ROWS(int32_t); break;
    case 8: COPY_ROWS(int64_t); break;
    case 16: COPY_ROWS(Pair); break;
    default:
        for (Py_ssize_t i = 0; i < num; i++) {
            if (i + 1 < num) fetch_ahead(from + (rows[i + 1] < 0 ? rows[i + 1] + capacity : rows[i + 1]) * width, width);
            memcpy(to + i * width, from + (rows[i] < 0 ? rows[i] + capacity : rows[i]) * width, width);
        }
    }
}

/* take_rows(columns: tuple of arrays [C, ...], rows int64 [B], outs: tuple of arrays [B, ...], C): copy rows of each column.
 *
 * Rows from -C to -1 count from the end, as in numpy. */
static PyObject *py_take_rows(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Held held = {.num = 0};
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "take_rows takes 4 arguments");
    if (!PyTuple_Check(args[0]) || !PyTuple_Check(args[2]) || PyTuple_GET_SIZE(args[0]) != PyTuple_GET_SIZE(args[2]))
        return PyErr_Format(PyExc_TypeError, "columns and outs must be tuples of equal length");
    int64_t capacity = PyLong_AsLongLong(args[3]);
    if (capacity == -1 && PyErr_Occurred()) return NULL;
    Py_buffer *which = hold(&held, args[1], sizeof(int64_t), 0);
    if (!which) goto failed;
    const int64_t *rows = which->buf;
    Py_ssize_t num = LENGTH(which);
    for (Py_ssize_t i = 0; i < num; i++)
        if (rows[i] < -capacity || rows[i] >= capacity) {
            PyErr_SetString(PyExc_IndexError, "a row lies outside of the columns");
            goto failed;
        }
    for (Py_ssize_t c = 0; c < PyTuple_GET_SIZE(args[0]); c++) {
        Py_buffer *from = hold(&held, PyTuple_GET_ITEM(args[0], c), 0, 0);
        Py_buffer *to = from ? hold(&held, PyTuple_GET_ITEM(args[2], c), 0, 1) : NULL;
        if (!to) goto failed;
        Py_ssize_t width = capacity ? from->len / capacity : 0;
        if (width * capacity != from->len || width * num != to->len) {
            PyErr_SetString(PyExc_ValueError, "a column and its out differ in the width of a row");
            goto failed;
        }
        copy_rows(to->buf, from->buf, width, rows, num, capacity);
        held.num -= 2;
        PyBuffer_Release(to);
        PyBuffer_Release(from);
    }
    let_go(&held);
    Py_RETURN_NONE;
failed:
    let_go(&held);
    return NULL;
}

/* describe(places int64 [B], leaves float32, priority float32, use int64, collect_iter int64, next_id, next_row, iter,
 *          ids int64 [B], priorities float32 [B], weights float64 [B], staleness int64 [B], uses int64 [B], unknown)
 *
 * Count one use of each place, and write what the buffer says of rows that are about to be sampled; `weights` are the
 * leaves. Staleness is -1 where the iteration is `unknown`, and never below that. */
static PyObject *py_describe(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Held held = {.num = 0};
    if (nargs != 14) return PyErr_Format(PyExc_TypeError, "describe takes 14 arguments");
    int64_t number[4];
    PyObject *given[4] = {args[5], args[6], args[7], args[13]};
    for (int i = 0; i < 4; i++) {
        number[i] = PyLong_AsLongLong(given[i]);
        if (number[i] == -1 && PyErr_Occurred()) return NULL;
    }
    static const Py_ssize_t widths[10] = {8, 4, 4, 8, 8, 8, 4, 8, 8, 8};
    static const int order[10] = {0, 1, 2, 3, 4, 8, 9, 10, 11, 12};
    Py_buffer *array[10];
    for (int i = 0; i < 10; i++) {
        array[i] = hold(&held, args[order[i]], widths[i], i == 3 || i >= 5);
        if (!array[i]) goto failed;
    }
    const int64_t *places = array[0]->buf;
    const float *leaves = array[1]->buf, *priority = array[2]->buf;
    int64_t *use = array[3]->buf;
    const int64_t *since = array[4]->buf;
    int64_t *ids = array[5]->buf, *staleness = array[8]->buf, *uses = array[9]->buf;
    float *priorities = array[6]->buf;
    double *weights = array[7]->buf;
    Py_ssize_t num = LENGTH(array[0]), capacity = LENGTH(array[2]);
    for (int i = 5; i < 10; i++)
        if (LENGTH(array[i]) != num) {
            PyErr_SetString(PyExc_ValueError, "places and what is written of them differ in length");
            goto failed;
        }
    for (Py_ssize_t i = 0; i < num; i++)
        if (places[i] < 0 || places[i] >= capacity) {
            PyErr_SetString(PyExc_IndexError, "a place lies outside of the buffer");
            goto failed;
        }
    for (Py_ssize_t i = 0; i < num; i++) use[places[i]]++;
    for (Py_ssize_t i = 0; i < num; i++) {
        int64_t place = places[i], age = place - number[1];
        ids[i] = number[0] - capacity + (age < 0 ? age + capacity : age);
        priorities[i] = priority[place];
        weights[i] = leaves[place];
        int64_t stale = since[place] == number[3] ? -1 : number[2] - since[place];
        staleness[i] = stale < -1 ? -1 : stale;
        uses[i] = use[place];
    }
    let_go(&held);
    Py_RETURN_NONE;
failed:
    let_go(&held);
    return NULL;
}

/* write_current(places int64 [B], ids int64 [B], given float64 [B], priority float32, next_id, next_row, epsilon, largest,
 *               kept int64 [B], priorities float32 [B]) -> (how many rows are still there, their largest priority)
 *
 * Write priorities, with `epsilon` added to what is given, of the rows that are still there; -1, and nothing is written,
 * if one is no priority. */
static PyObject *py_write_current(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Held held = {.num = 0};
    if (nargs != 10) return PyErr_Format(PyExc_TypeError, "write_current takes 10 arguments");
    int64_t next_id = PyLong_AsLongLong(args[4]), next_row = PyLong_AsLongLong(args[5]);
    double epsilon = PyFloat_AsDouble(args[6]), largest = PyFloat_AsDouble(args[7]);
    if (PyErr_Occurred()) return NULL;
    Py_buffer *places = hold(&held, args[0], 8, 0);
    Py_buffer *ids = places ? hold(&held, args[1], 8, 0) : NULL;
    Py_buffer *given = ids ? hold(&held, args[2], 8, 0) : NULL;
    Py_buffer *own = given ? hold(&held, args[3], 4, 1) : NULL;
    Py_buffer *kept = own ? hold(&held, args[8], 8, 1) : NULL;
    Py_buffer *priorities = kept ? hold(&held, args[9], 4, 1) : NULL;
    if (!priorities) goto failed;
    Py_ssize_t num = LENGTH(places), capacity = LENGTH(own), count = 0;
    if (LENGTH(ids) != num || LENGTH(given) != num || LENGTH(kept) != num || LENGTH(priorities) != num) {
        PyErr_SetString(PyExc_ValueError, "places, ids and priorities differ in length");
        goto failed;
    }
    const int64_t *place = places->buf, *id = ids->buf;
    const double *value = given->buf;
    float *priority = own->buf, most = 0.0f;
    for (Py_ssize_t i = 0; i < num; i++)
        if (!(value[i] >= 0.0 && value[i] <= largest)) { /* NaN is neither */
            let_go(&held);
            return Py_BuildValue("(nd)", (Py_ssize_t)-1, 0.0);
        }
    for (Py_ssize_t i = 0; i < num; i++) {
        if (place[i] < 0 || place[i] >= capacity) continue;
        int64_t age = place[i] - next_row;
        if (id[i] != next_id - capacity + (age < 0 ? age + capacity : age) || !(priority[place[i]] > 0.0f)) continue;
        float now = (float)(value[i] + epsilon);
        ((int64_t *)kept->buf)[count] = place[i];
        ((float *)priorities->buf)[count++] = now;
        priority[place[i]] = now;
        most = now > most ? now : most;
    }
    let_go(&held);
    return Py_BuildValue("(nd)", count, (double)most);
failed:
    let_go(&held);
    return NULL;
}

static PyMethodDef methods[] = {
    {"first_distinct", (PyCFunction)(void (*)(void))py_first_distinct, METH_FASTCALL, NULL},
    {"take_rows", (PyCFunction)(void (*)(void))py_take_rows, METH_FASTCALL, NULL},
    {"describe", (PyCFunction)(void (*)(void))py_describe, METH_FASTCALL, NULL},
    {"write_current", (PyCFunction)(void (*)(void))py_write_current, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_buffer_rows", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__buffer_rows(void) { return PyModule_Create(&module); }
