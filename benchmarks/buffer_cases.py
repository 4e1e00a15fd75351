"""List what is measured of replay buffers, the contenders in each case, and the bars they are held to."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.table import Contender


class Bar(NamedTuple):
    """Bound of what `ours` may cost: at most `limit` times what `against` costs, or `limit` itself."""

    ours: str
    against: str | None  # None: no ratio, but the figure itself
    limit: float


class Case(NamedTuple):
    """Name the contenders, which print one metric each, and the bars."""

    contenders: dict[str, Contender]
    bars: tuple[Bar, ...]


_PEERS = ("sb3", "cpprb", "tianshou")
# Bytes depend on no clock, and one round of them takes as long as ten of another case.
ONE_ROUND = {"atari_memory"}
GROWTH_ROWS = (10_000, 100_000, 1_000_000, 10_000_000)


def _contender(who: str, buffer: str, work: str, rows: int, size: int) -> Contender:
    args = ("--buffer", buffer, "--work", work, "--rows", str(rows), "--size", str(size))
    return Contender(f"buffer_{who}", args, "peers" if who in _PEERS else None)


def _case(work: str, size: int, rows: int, *who: str, bars: tuple[Bar, ...], **ours: str) -> Case:
    """Return a case of peers `who`, and of ours by name: the kind of buffer of each; peers take the first's kind."""
    kind = next(iter(ours.values()))
    contenders = {name: _contender("ours", buffer, work, rows, size) for name, buffer in ours.items()}
    return Case({**contenders, **{name: _contender(name, kind, work, rows, size) for name in who}}, bars)


def _growth(buffer: str, work: str, limit: float) -> Case:
    """Return a case in which a contender is one library at one size."""
    contenders = {
        f"{who}_{rows:.0e}".replace("e+0", "e"): _contender(who, buffer, work, rows, 256)
        for who in ("ours", "cpprb")
        for rows in GROWTH_ROWS
    }
    return Case(contenders, (Bar("ours_1e7", "ours_1e4", limit),))


_BOTH_TREES = {"ours": "prioritised", "ours_compiled": "prioritised_compiled"}

CASES = {
    "push_8": _case(
        "push", 8, 100_000, *_PEERS, ours="uniform", ours_collected="collected", bars=(Bar("ours", "sb3", 2.5),)
    ),
    "push_256": _case("push", 256, 100_000, *_PEERS, ours="uniform", bars=(Bar("ours", "cpprb", 0.5),)),
    "sample_256": _case(
        "sample",
        256,
        100_000,
        *_PEERS,
        ours="uniform",
        ours_replacing="replacing",
        ours_collected="collected",
        bars=(Bar("ours", "cpprb", 0.7),),
    ),
    "prioritised_cycle_131k": _case(
        "cycle",
        256,
        131_072,
        "cpprb",
        "tianshou",
        **_BOTH_TREES,
        bars=(Bar("ours", "tianshou", 0.8), Bar("ours_compiled", "tianshou", 0.45)),
    ),
    "prioritised_cycle_1m": _case("cycle", 256, 1_000_000, "cpprb", **_BOTH_TREES, bars=(Bar("ours", "cpprb", 0.6),)),
    "prioritised_push_8": _case(
        "push",
        8,
        131_072,
        "cpprb",
        "tianshou",
        **_BOTH_TREES,
        bars=(Bar("ours", "cpprb", 0.45), Bar("ours_compiled", "cpprb", 0.45)),
    ),
    "atari_sample_32": _case("sample", 32, 8192, "cpprb", "tianshou", ours="atari", bars=(Bar("ours", "cpprb", 0.85),)),
    "atari_memory": _case("memory", 1000, 16_000, "cpprb", "tianshou", ours="atari", bars=(Bar("ours", None, 7300),)),
    "sequence_64x40": _case("sample", 64, 50_000, "tianshou", ours="sequence", bars=(Bar("ours", "tianshou", 0.12),)),
    # Rows that divide by the size: then all minibatches are of that size.
    "data_set_256": _case(
        "sample", 256, 1_024_000, ours="data_set", ours_in_file="data_set_in_file", ours_buffer="uniform", bars=()
    ),
    "growth_uniform": _growth("uniform", "sample", 2.0),
    # With the update: a tree may put its work off until it is asked.
    "growth_prioritised": _growth("prioritised", "cycle", 3.0),
}
