/* The inner loops of sum_tree.SumTree: nodes of 32 children, over the arrays that SumTree owns.
 *
 * blocks: float32 leaves, [blocks * 32]; mins: float32 smallest positive leaf of each block, +inf for none;
 * levels: a tuple of float64 arrays, sums of blocks, of groups of blocks, and so on; all have whole nodes, the last has one.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define RADIX 32
#define MAX_LEVELS 8
#define COLUMNS 8

typedef struct {
    Py_buffer blocks, mins, level[MAX_LEVELS];
    int num_levels;
    int num_held; /* buffers that are to be released, in the order above */
} Tree;

static void release(Tree *tree) {
    if (tree->num_held > 0) PyBuffer_Release(&tree->blocks);
    if (tree->num_held > 1) PyBuffer_Release(&tree->mins);
    for (int i = 0; i < tree->num_held - 2; i++) PyBuffer_Release(&tree->level[i]);
}

static int hold(PyObject *object, Py_buffer *buffer, Tree *tree) {
    if (PyObject_GetBuffer(object, buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) return -1;
    tree->num_held++;
    return 0;
}

static int hold_tree(PyObject *blocks, PyObject *mins, PyObject *levels, Tree *tree) {
    tree->num_held = 0;
    if (!PyTuple_Check(levels) || PyTuple_GET_SIZE(levels) < 1 || PyTuple_GET_SIZE(levels) > MAX_LEVELS) {
        PyErr_SetString(PyExc_TypeError, "levels must be a tuple of 1 to 8 arrays");
        return -1;
    }
    tree->num_levels = (int)PyTuple_GET_SIZE(levels);
    if (hold(blocks, &tree->blocks, tree) < 0 || hold(mins, &tree->mins, tree) < 0) goto failed;
    for (int i = 0; i < tree->num_levels; i++)
        if (hold(PyTuple_GET_ITEM(levels, i), &tree->level[i], tree) < 0) goto failed;
    return 0;
failed:
    release(tree);
    return -1;
}

/* Define a function that sums 32 numbers, in columns: additions of one chain would wait for each other. */
#define DEFINE_SUM(name, type)                                                                     \
    static double name(const type *children) {                                                     \
        double part[COLUMNS] = {0.0};                                                              \
        for (int i = 0; i < RADIX; i += COLUMNS)                                                   \
            for (int k = 0; k < COLUMNS; k++) part[k] += children[i + k];                          \
        for (int half = COLUMNS / 2; half > 0; half /= 2)                                          \
            for (int k = 0; k < half; k++) part[k] += part[k + half];                              \
        return part[0];                                                                            \
    }

DEFINE_SUM(sum_nodes, double)
DEFINE_SUM(sum_leaves, float)

static float least_positive(const float *leaves) {
    float least[COLUMNS];
    for (int k = 0; k < COLUMNS; k++) least[k] = INFINITY;
    for (int i = 0; i < RADIX; i += COLUMNS)
        for (int k = 0; k < COLUMNS; k++) {
            float leaf = leaves[i + k] > 0.0f ? leaves[i + k] : INFINITY;
            least[k] = leaf < least[k] ? leaf : least[k];
        }
    for (int k = 1; k < COLUMNS; k++) least[0] = least[k] < least[0] ? least[k] : least[0];
    return least[0];
}

static void sum_block(Tree *tree, int64_t block) {
    const float *leaves = (const float *)tree->blocks.buf + block * RADIX;
    ((double *)tree->level[0].buf)[block] = sum_leaves(leaves);
    ((float *)tree->mins.buf)[block] = least_positive(leaves);
}

static void sum_parents(Tree *tree, const int64_t *blocks, Py_ssize_t num) {
    int64_t width = RADIX;
    for (int level = 1; level < tree->num_levels; level++, width *= RADIX) {
        const double *below = tree->level[level - 1].buf;
        double *own = tree->level[level].buf;
        int64_t last = -1;
        for (Py_ssize_t i = 0; i < num; i++) {
            int64_t node = blocks[i] / width;
            if (node == last) continue;
            last = node;
            own[node] = sum_nodes(below + node * RADIX);
        }
    }
}

/* sum_blocks(blocks, mins, levels, which): compute the nodes over the blocks `which`, int64. */
static PyObject *py_sum_blocks(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Tree tree;
    Py_buffer which;
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "sum_blocks takes 4 arguments");
    if (hold_tree(args[0], args[1], args[2], &tree) < 0) return NULL;
    if (PyObject_GetBuffer(args[3], &which, PyBUF_C_CONTIGUOUS) < 0) {
        release(&tree);
        return NULL;
    }
    const int64_t *numbers = which.buf;
    Py_ssize_t num = which.len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t num_blocks = tree.mins.len / (Py_ssize_t)sizeof(float);
    int inside = 1;
    for (Py_ssize_t i = 0; i < num; i++) inside &= numbers[i] >= 0 && numbers[i] < num_blocks;
    if (inside) {
        for (Py_ssize_t i = 0; i < num; i++) sum_block(&tree, numbers[i]);
        sum_parents(&tree, numbers, num);
    }
    PyBuffer_Release(&which);
    release(&tree);
    if (!inside) return PyErr_Format(PyExc_IndexError, "a block lies outside of the tree");
    Py_RETURN_NONE;
}

/* set_powers(blocks, mins, levels, places int64, powers float64, priorities float32, low, high): write the leaves of places,
 * powers held to [low, high] and 0 where the priority is, and compute the nodes over them; the last of equal places stays. */
static PyObject *py_set_powers(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Tree tree;
    Py_buffer given[3];
    int num_given = 0, inside = 1;
    if (nargs != 8) return PyErr_Format(PyExc_TypeError, "set_powers takes 8 arguments");
    double low = PyFloat_AsDouble(args[6]), high = PyFloat_AsDouble(args[7]);
    if (PyErr_Occurred() || hold_tree(args[0], args[1], args[2], &tree) < 0) return NULL;
    for (; num_given < 3; num_given++)
        if (PyObject_GetBuffer(args[3 + num_given], &given[num_given], PyBUF_C_CONTIGUOUS) < 0) goto failed;
    Py_ssize_t num = given[0].len / (Py_ssize_t)sizeof(int64_t);
    int64_t num_leaves = tree.blocks.len / (Py_ssize_t)sizeof(float);
    if (given[1].len != num * (Py_ssize_t)sizeof(double) || given[2].len != num * (Py_ssize_t)sizeof(float)) {
        PyErr_SetString(PyExc_ValueError, "places, powers and priorities differ in length");
        goto failed;
    }
    const int64_t *places = given[0].buf;
    const double *powers = given[1].buf;
    const float *priorities = given[2].buf;
    for (Py_ssize_t i = 0; i < num; i++) inside &= places[i] >= 0 && places[i] < num_leaves;
    int64_t *blocks = inside ? PyMem_Malloc((num ? num : 1) * sizeof(int64_t)) : NULL;
    if (!blocks) {
        if (inside) PyErr_NoMemory();
        else PyErr_SetString(PyExc_IndexError, "a place lies outside of the tree");
        goto failed;
    }
    float *leaves = tree.blocks.buf;
    for (Py_ssize_t i = 0; i < num; i++) {
        double power = powers[i] < low ? low : powers[i] > high ? high : powers[i];
        leaves[places[i]] = priorities[i] > 0.0f ? (float)power : 0.0f;
        blocks[i] = places[i] / RADIX;
    }
    for (Py_ssize_t i = 0; i < num; i++) sum_block(&tree, blocks[i]);
    sum_parents(&tree, blocks, num);
    PyMem_Free(blocks);
    for (int i = 0; i < num_given; i++) PyBuffer_Release(&given[i]);
    release(&tree);
    Py_RETURN_NONE;
failed:
    for (int i = 0; i < num_given; i++) PyBuffer_Release(&given[i]);
    release(&tree);
    return NULL;
}

/* Return how many of 32 rising ends are not above the rest. It stops nowhere: at the end that is, to stop would be a
 * branch that no processor can foresee. */
static int64_t count_passed(const double *ends, double rest) {
    int64_t before = 0, num = 0;
    for (int k = COLUMNS; k < RADIX; k += COLUMNS) before += COLUMNS * (ends[k - 1] <= rest);
    for (int k = 0; k < COLUMNS; k++) num += ends[before + k] <= rest;
    return before + num;
}

/* Define a function that goes from each node down to that of 32 children which the rest of its prefix sum falls on, and
 * takes what is before that off the rest. Prefixes that rise share nodes, which are summed once.
 * A child that a prefix falls on has a weight: what is before it is not above the prefix. */
#define DEFINE_DESCEND(name, type)                                                                 \
    static void name(const type *level, int64_t *nodes, double *rests, Py_ssize_t num) {           \
        double ends[RADIX + 1] = {0.0}; /* the first: what is before child 0 */                    \
        const type *children = NULL;                                                               \
        for (Py_ssize_t i = 0; i < num; i++) {                                                     \
            if (children != level + nodes[i] * RADIX) {                                            \
                children = level + nodes[i] * RADIX;                                               \
                for (int k = 0; k < RADIX; k++) ends[k + 1] = ends[k] + children[k];               \
            }                                                                                      \
            int64_t child = count_passed(ends + 1, rests[i]);                                      \
            if (child == RADIX) { /* by rounding beyond the end: the last with a weight */         \
                child = RADIX - 1;                                                                 \
                while (child > 0 && !(children[child] > 0)) child--;                               \
            }                                                                                      \
            rests[i] -= ends[child];                                                               \
            nodes[i] = nodes[i] * RADIX + child;                                                   \
        }                                                                                          \
    }

DEFINE_DESCEND(descend, double)
DEFINE_DESCEND(descend_to_leaves, float)

/* Hold the arrays of a search; -1 with an error set. */
static int hold_search(PyObject *const *args, Tree *tree, Py_buffer *numbers, Py_buffer *places) {
    if (hold_tree(args[0], args[1], args[2], tree) < 0) return -1;
    if (PyObject_GetBuffer(args[3], numbers, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        release(tree);
        return -1;
    }
    if (PyObject_GetBuffer(args[4], places, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(numbers);
        release(tree);
        return -1;
    }
    if (numbers->len == places->len) return 0;
    PyBuffer_Release(places);
    PyBuffer_Release(numbers);
    release(tree);
    PyErr_SetString(PyExc_ValueError, "prefix sums and places differ in length");
    return -1;
}

/* Write the places of prefix sums, which are used up, and let everything go. */
static PyObject *search(Tree *tree, Py_buffer *rests, Py_buffer *places) {
    Py_ssize_t num = rests->len / (Py_ssize_t)sizeof(double);
    memset(places->buf, 0, places->len); /* all begin at the only node of the last level */
    for (int level = tree->num_levels - 1; level >= 0; level--)
        descend(tree->level[level].buf, places->buf, rests->buf, num);
    descend_to_leaves(tree->blocks.buf, places->buf, rests->buf, num);
    PyBuffer_Release(places);
    PyBuffer_Release(rests);
    release(tree);
    Py_RETURN_NONE;
}

/* find(blocks, mins, levels, rest float64, places int64): write the places of prefix sums, which are used up. */
static PyObject *py_find(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Tree tree;
    Py_buffer rest, places;
    if (nargs != 5) return PyErr_Format(PyExc_TypeError, "find takes 5 arguments");
    if (hold_search(args, &tree, &rest, &places) < 0) return NULL;
    return search(&tree, &rest, &places);
}

/* draw(blocks, mins, levels, uniform float64, places int64): draw one place from each of B equal parts of the sum; `uniform`,
 * numbers in [0, 1) that say where in its part, is used up. */
static PyObject *py_draw(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Tree tree;
    Py_buffer uniform, places;
    if (nargs != 5) return PyErr_Format(PyExc_TypeError, "draw takes 5 arguments");
    if (hold_search(args, &tree, &uniform, &places) < 0) return NULL;
    const double *top = tree.level[tree.num_levels - 1].buf;
    double *parts = uniform.buf, total = 0.0;
    Py_ssize_t num = uniform.len / (Py_ssize_t)sizeof(double);
    for (int i = 0; i < RADIX; i++) total += top[i];
    for (Py_ssize_t i = 0; i < num; i++) parts[i] = (parts[i] + (double)i) / (double)num * total;
    return search(&tree, &uniform, &places);
}

static PyMethodDef methods[] = {
    {"sum_blocks", (PyCFunction)(void (*)(void))py_sum_blocks, METH_FASTCALL, NULL},
    {"set_powers", (PyCFunction)(void (*)(void))py_set_powers, METH_FASTCALL, NULL},
    {"draw", (PyCFunction)(void (*)(void))py_draw, METH_FASTCALL, NULL},
    {"find", (PyCFunction)(void (*)(void))py_find, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_sum_tree", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sum_tree(void) { return PyModule_Create(&module); }
