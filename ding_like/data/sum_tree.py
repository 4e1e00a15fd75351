"""Draw places in proportion to their weights: a tree of sums with many children a node, worked on in bulk."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ding_like.errors import ConfigError
from ding_like.types import Array

logger = logging.getLogger(__name__)


class CompiledPart(NamedTuple):
    """Modules in C; Any: mypy cannot read them."""

    sum_tree: Any
    rows: Any


@functools.cache
def compiled_part() -> CompiledPart | None:
    """Return the inner loops in C, None where they were not built; the log says which, once."""
    try:
        from ding_like.data import _buffer_rows, _sum_tree
    except ImportError as error:
        logger.info("replay buffers run in numpy: their compiled part was not built (%s)", error)
        return None
    logger.info("replay buffers run in their compiled part")
    return CompiledPart(_sum_tree, _buffer_rows)


def take_rows(columns: Mapping[str, Array], rows: Array, capacity: int) -> dict[str, Array]:
    """Return rows [B] int64 of columns [C, ...] in fresh memory; -C to -1 count from the end."""
    part = compiled_part()
    if part is None:
        return {name: column.take(rows, 0) for name, column in columns.items()}
    size = len(rows)
    taken = {name: np.empty((size, *column.shape[1:]), column.dtype) for name, column in columns.items()}
    part.rows.take_rows(tuple(columns.values()), np.ascontiguousarray(rows, np.int64), tuple(taken.values()), capacity)
    return taken


def first_distinct(draws: Array, num: int, size: int) -> Array:
    """Return the first `size` different ones of floor(draws * num), fewer if there are not so many; int64.

    `draws` [M] float64 are in [0, 1).
    """
    part = compiled_part()
    if part is None:
        picks = (draws * num).astype(np.int64)
        first = np.unique(picks, return_index=True)[1]
        first.sort()
        return picks.take(first[:size])
    found = np.empty(size, np.int64)
    count = part.rows.first_distinct(draws, float(num), found)
    return found if count == size else found[:count]


_RADIX = 32
# Nodes of the topmost level: numpy searches it as one sorted array, for the compiled part it is a node like others.
_MAX_TOP, _MAX_TOP_COMPILED = 4096, _RADIX
_LEAF_RANGE = (float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max))
# Rows times this are 0 and their running sums, in less than half the time of `cumsum`.
_RUNNING_SUMS = np.triu(np.ones((_RADIX, _RADIX + 1)), 1)


def as_leaves(powers: Array, priorities: Array) -> Array:
    """Return weights float32 [B] of powers float64 [B], limited to float32, and 0 where the priority is."""
    leaves = np.maximum(powers, _LEAF_RANGE[0])
    np.minimum(leaves, _LEAF_RANGE[1], out=leaves)
    leaves *= priorities > 0
    return leaves.astype(np.float32)


class SumTree:
    """Non-negative weights of `capacity` places, which are found by prefix sums.

    Leaves are float32. A node is the float64 sum of its 32 children, computed afresh from them whenever one changes, so
    that sums do not drift however many updates there are (the method of Schaul et al. 2016, appendix B.2.1, with wide
    nodes). Weights are the caller's to check. `compiled` says whether inner loops run in C; None: where that was built.
    """

    def __init__(self, capacity: int, *, compiled: bool | None = None) -> None:
        if capacity < 1:
            raise ConfigError(f"a sum tree has {capacity} places, expected 1 or more.")
        part = None if compiled is False else compiled_part()
        self._compiled = None if part is None else part.sum_tree
        if compiled and part is None:
            raise ConfigError(
                "the compiled part of the sum tree was not built: install again where there is a C compiler."
            )
        max_top = _MAX_TOP if self._compiled is None else _MAX_TOP_COMPILED
        self.capacity = capacity
        num_blocks = -(-capacity // _RADIX)
        # [blocks, radix]: views of one vector of leaves, padded with zeros.
        self._blocks = np.zeros((num_blocks, _RADIX), np.float32)
        self._leaves = self._blocks.reshape(-1)
        self._block_min = np.full(num_blocks, np.inf, np.float32)
        # Sums of blocks, of groups of blocks, and so on; all but the last are shaped [groups, radix].
        self._levels: list[Array] = []
        size = num_blocks
        while size > max_top:
            groups = -(-size // _RADIX)
            self._levels.append(np.zeros((groups, _RADIX)))
            size = groups
        self._top = np.zeros(max(size, _RADIX))
        self._levels.append(self._top)
        self._parts = (self._blocks, self._block_min, tuple(self._levels))  # as the compiled part takes them
        self._top_ends: Array | None = None  # cumulative sums of the top level; None: to be computed
        self._dirty: tuple[int, int] | None = None  # blocks whose sums are to be computed: [first, last]

    @property
    def total(self) -> float:
        """Return the sum of all weights."""
        return float(self._ends()[-1])

    def set(self, places: Array, weights: Array) -> None:
        """Give places [B] int64 weights [B]; of a place that is given twice, the last weight counts."""
        self._flush()
        self._leaves[places] = weights
        self._sum_blocks(places // _RADIX)

    def set_powers(self, places: Array, powers: Array, priorities: Array) -> None:
        """Give places [B] int64 the weights `as_leaves(powers, priorities)`; of a place twice given, the last stays."""
        if self._compiled is None:
            self.set(places, as_leaves(powers, priorities))
            return
        self._flush()
        self._top_ends = None
        self._compiled.set_powers(*self._parts, places, powers, priorities, *_LEAF_RANGE)

    def set_range(self, start: int, stop: int, weights: Array | float) -> None:
        """Give the places from `start` to before `stop` weights; sums are computed when they are asked for."""
        if start >= stop:
            return
        self._leaves[start:stop] = weights
        first, last = start // _RADIX, (stop - 1) // _RADIX
        if self._dirty is not None:
            if first > self._dirty[1] + 1 or last < self._dirty[0] - 1:
                self._flush()
            else:
                first, last = min(first, self._dirty[0]), max(last, self._dirty[1])
        self._dirty = (first, last)

    def get(self, places: Array) -> Array:
        """Return the weights of places, float32 [B]."""
        return self._leaves.take(places)

    def find(self, prefix: Array) -> Array:
        """Return, for each prefix sum [B] in [0, total), the place it falls on, int64 [B]; never one of weight 0.

        The prefix belongs to place p if the weights before p sum to at most the prefix, and with p to more.
        """
        if self._compiled is not None:
            self._flush()
            places = np.empty(len(prefix), np.int64)
            self._compiled.find(*self._parts, np.array(prefix, np.float64), places)
            return places
        ends = self._ends()
        node = ends.searchsorted(prefix, side="right")
        if node.max(initial=0) >= len(ends):  # a prefix that rounding has put at the very end
            last = int(np.flatnonzero(self._top)[-1]) if self._top.any() else 0
            np.minimum(node, last, out=node)
        rest = prefix - np.where(node > 0, ends[node - 1], 0.0)
        for level in reversed(self._levels[:-1]):
            before, child = _find_child(level, node, rest)
            rest -= before
            node = node * _RADIX + child
        _, child = _find_child(self._blocks, node, rest)
        return node * _RADIX + child

    def draw(self, uniform: Array) -> Array:
        """Return a place int64 from each of B equal parts of the sum of weights.

        `uniform` [B] float64 in [0, 1) are the positions in these parts; the array is overwritten.
        """
        size = len(uniform)
        if self._compiled is not None:
            self._flush()
            places = np.empty(size, np.int64)
            self._compiled.draw(*self._parts, uniform, places)
            return places
        uniform += np.arange(size)
        uniform /= max(size, 1)
        uniform *= self.total
        return self.find(uniform)

    def min_positive(self) -> float:
        """Return the smallest weight above 0, inf if there is none."""
        self._flush()
        return float(self._block_min.min())

    def clear(self) -> None:
        """Set all weights to 0."""
        self._leaves[:] = 0.0
        self._block_min[:] = np.inf
        for level in self._levels:
            level[...] = 0.0
        self._top_ends, self._dirty = None, None

    @property
    def leaves_view(self) -> Array:
        """Return all weights, float32 [capacity and a few zeros]; a live view, to be read only."""
        return self._leaves

    def _ends(self) -> Array:
        self._flush()
        if self._top_ends is None:
            self._top_ends = self._top.cumsum()
        return self._top_ends

    def _flush(self) -> None:
        """Compute the sums over what `set_range` has written."""
        if self._dirty is not None:
            first, last = self._dirty
            self._dirty = None
            self._sum_blocks(np.arange(first, last + 1))

    def _sum_blocks(self, blocks: Array) -> None:
        """Compute sums and minima of blocks, and of all nodes above them."""
        self._top_ends = None
        if self._compiled is not None:
            self._compiled.sum_blocks(*self._parts, np.ascontiguousarray(blocks, np.int64))
            return
        children = self._blocks.take(blocks, 0)
        # `reduceat` takes half the time of a reduction over many short rows, and sums equal rows equally, where a
        # product with ones might not: what was saved and loaded must draw the same.
        starts = np.arange(0, children.size, _RADIX)
        least = np.minimum.reduceat(children.reshape(-1), starts)
        if len(least) and least.min() <= 0:  # places without a weight, which are not looked for
            least = np.minimum.reduceat(np.where(children > 0, children, np.inf).reshape(-1), starts)
        self._block_min[blocks] = least
        sums = np.add.reduceat(children.reshape(-1), starts, dtype=np.float64)
        nodes = blocks
        for level in self._levels[:-1]:
            level.reshape(-1)[nodes] = sums
            nodes = nodes // _RADIX
            sums = np.add.reduceat(level.take(nodes, 0).reshape(-1), starts)
        self._top[nodes] = sums


def _find_child(level: Array, node: Array, rest: Array) -> tuple[Array, Array]:
    """Return (what is before it, the child) that the rest of each prefix falls on, of nodes [B].

    A child of weight 0 ends where the one before it does, as adding 0 changes nothing, so it is never the first to end
    beyond a prefix.
    """
    children = level.take(node, 0)
    ends = children @ _RUNNING_SUMS  # [B, 1 + radix]
    is_passed = ends <= rest[:, None]
    child = is_passed.argmin(axis=1)  # one more than the first child that is not; 0 where all are
    child -= 1
    over = np.flatnonzero(child < 0)
    if len(over):  # by rounding: the last child that has a weight
        child[over] = _RADIX - 1 - (children[over, ::-1] > 0).argmax(axis=1)
    before = ends.reshape(-1).take(np.arange(0, ends.size, _RADIX + 1) + child)
    return before, child
