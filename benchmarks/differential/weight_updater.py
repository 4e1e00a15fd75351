"""Drive TorchRL's DistributedWeightUpdater and ours by the same calls over the same fake store, and compare.

    bash benchmarks/setup.sh                                                     # an environment with both libraries
    PYTHONPATH=$PWD ~/.cache/ding_bench/peers/bin/python -m benchmarks.differential.weight_updater

Writes docs/reports/weight_updater_torchrl.json; the exit status is 1 if anything differs that `PURPOSES` does not hold,
if something there does not differ any more, or if weights that one library's updater pushes to the other's workers, in
processes of their own, do not arrive. TorchRL is run and its documentation read, nothing else of it.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from benchmarks.differential.cross_push import TRAINERS, cross, is_right
from benchmarks.differential.purposes import PURPOSES
from benchmarks.differential.updater_fakes import Collector, Ours, Side, TorchRL, make_module
from benchmarks.provenance import DirtyTreeError, provenance

REPORT = Path(__file__).resolve().parents[2] / "docs" / "reports" / "weight_updater_torchrl.json"
_OWN_KEYS = ("_in", "_out")  # what the page tells of; others are each library's own


class Run:
    """One library's side of one case, and the results of its calls."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.results: list[str] = []
        self.texts: list[str] = []
        self.state: dict[str, Any] = {}
        self.module = make_module()
        self.weights = TensorDict.from_module(self.module).data

    def updater(self, **settings: Any) -> Any:
        """Return an updater of three workers that answers are made up for."""
        answers = settings.pop("answers", None)
        weights = settings.pop("weights", self.weights)
        self.store = self.side.store(answers)
        made = self.do(lambda: self.side.make(self.store, weights, **settings), is_quiet=True)
        self.side.log.clear()
        if made is not None:
            made._batches_since_weight_update = [5] * len(made._batches_since_weight_update)
        self.made = made
        return made

    def do(self, call: Callable[[], Any], *, is_quiet: bool = False) -> Any:
        """Call and keep what is returned or raised; `is_quiet` keeps only what is raised."""
        try:
            returned = self.side.settle(call())
        except Exception as error:
            self.results.append(f"raises {_known(error)}")
            self.texts.append(str(error).splitlines()[0] if str(error) else "")
            return None
        if not is_quiet:
            self.results.append(_said(returned))
        return returned

    def observed(self) -> dict[str, Any]:
        """Return all aspects of the case."""
        log = self.side.log
        words = [row for row in log if row[0] in ("set", "get") and str(row[1]).endswith(_OWN_KEYS)]
        by_rank: dict[str, list[str]] = {}
        for what, key, value in words:
            rank = key.split("_")[1]
            if value is not None or what == "set":
                by_rank.setdefault(rank, []).append(f"{what} {key} {value}")
        sends = [[row[1], row[2]] for row in log if row[0].endswith("send")]
        return {
            "result": self.results,
            "text": self.texts,
            "words": {rank: by_rank[rank] for rank in sorted(by_rank)},
            "order": [f"{row[0].removeprefix('i')} {row[1]}" for row in log if row in words or row[0].endswith("send")],
            "sent": {str(rank): names for rank, names in sends},
            "calls": [row for row in log if row[0] in ("hook", "collector")],
            "keys": sorted({row[1] for row in log if row[0] in ("set", "get", "delete_key") and row not in words}),
            "counters": getattr(self.made, "_batches_since_weight_update", None) if hasattr(self, "made") else None,
        }


def _known(error: Exception) -> str:
    """Return the built-in exception that an error is, or comes of: of several RuntimeError, which the page names."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    return "RuntimeError" if "RuntimeError" in kinds else kinds[0]


def _said(value: Any) -> str:
    return repr(value) if isinstance(value, (int, str, list, type(None))) else f"a {type(value).__name__}"


def _push(run: Run, *args: Any, **settings: Any) -> None:
    updater = run.updater(**settings)
    run.do(lambda: updater.push_weights(*args))


def _with_hooks(run: Run, *hooks: str, answers: Any = None) -> Any:
    updater = run.updater(answers=answers)

    def hook(name: str) -> Callable[[], None]:
        def call() -> None:
            run.side.log.append(["hook", name, ""])
            if name == "fails":
                raise KeyError("of a hook")

        return call

    for name in hooks:
        updater.register_post_hook(hook(name))
    return updater


def _constructor(run: Run) -> None:
    store = run.side.store()
    made = run.do(lambda: run.side.make(store, run.weights), is_quiet=True)
    run.do(lambda: made._batches_since_weight_update)


def _no_workers(run: Run) -> None:
    store = run.side.store()
    run.do(lambda: run.side.make(store, run.weights, 0), is_quiet=True)


def _hooks_in_order(run: Run) -> None:
    updater = _with_hooks(run, "a", "b", "c")
    run.do(lambda: updater.push_weights())
    run.do(lambda: len(updater.post_hooks))


def _hooks_and_a_bad_status(run: Run) -> None:
    updater = _with_hooks(run, "a", answers={2: b"failed"})
    run.do(lambda: updater.push_weights())


def _failing_hook(run: Run) -> None:
    updater = _with_hooks(run, "a", "fails", "c")
    run.do(lambda: updater.push_weights())


def _hook_that_is_none(run: Run) -> None:
    updater = run.updater()
    run.do(lambda: updater.register_post_hook(3))


def _increment_without_collector(run: Run) -> None:
    updater = run.updater()
    run.do(lambda: updater.increment_version())


def _increment_with_collector(run: Run) -> None:
    updater, collector = run.updater(), Collector(run.side.log)
    updater.register_collector(collector)
    run.do(lambda: updater.increment_version())


def _increment_after_collector(run: Run) -> None:
    updater, collector = run.updater(), Collector(run.side.log)
    updater.register_collector(collector)
    del collector
    gc.collect()
    run.do(lambda: updater.increment_version())


def _push_with_collector(run: Run) -> None:
    updater, collector = _with_hooks(run, "a"), Collector(run.side.log)
    updater.register_collector(collector)
    run.do(lambda: updater.push_weights())


def _second_collector(run: Run) -> None:
    updater = run.updater()
    first, second = Collector(run.side.log, "first"), Collector(run.side.log, "second")
    run.do(lambda: updater.register_collector(first))
    run.do(lambda: updater.register_collector(second))
    run.do(lambda: updater.collector is first)


def _same_collector_again(run: Run) -> None:
    updater, collector = run.updater(), Collector(run.side.log)
    run.do(lambda: updater.register_collector(collector))
    run.do(lambda: updater.register_collector(collector))
    run.do(lambda: updater.collector is collector)


def _collector(run: Run) -> None:
    updater, collector = run.updater(), Collector(run.side.log)
    run.do(lambda: updater.collector)
    updater.register_collector(collector)
    run.do(lambda: type(updater.collector))
    del collector
    gc.collect()
    run.do(lambda: updater.collector)


def _stale_answer(run: Run) -> None:
    updater = run.updater(answers={1: None})
    run.store.values["NODE_1_out"] = b"updated"  # of an earlier push, to which it came too late
    run.do(lambda: updater.push_weights(None, 1))


def _twice(run: Run) -> None:
    updater = run.updater()
    run.do(lambda: updater.push_weights())
    run.do(lambda: updater.push_weights())


def _answered_twice(run: Run) -> None:
    updater = run.updater()
    run.do(lambda: updater.push_weights(None, 1))
    run.store.values["NODE_1_out"] = b"updated"
    run.do(lambda: updater.push_weights(None, 1))


def _tensordict_module(run: Run) -> None:
    policy = TensorDictModule(run.module, in_keys=["obs"], out_keys=["action"])
    _push(run, policy, weights=TensorDict.from_module(policy).data)


def _call(run: Run, call: Callable[[Any, Run], Any]) -> None:
    updater = run.updater()
    run.do(lambda: call(updater, run))


_OTHER_SHAPES = {"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}

CASES: dict[str, Callable[[Run], None]] = {
    "constructor": _constructor,
    "constructor, num_workers=0": _no_workers,
    "constructor, policy_weights a dict; push": lambda run: _push(run, weights=dict(run.module.state_dict())),
    "constructor, policy_weights a module; push": lambda run: _push(run, weights=run.module),
    "push_weights(), 1 worker": lambda run: _push(run, num_workers=1),
    "push_weights(), 3 workers": lambda run: _push(run),
    "push_weights() twice": _twice,
    "push_weights(), sync=False": lambda run: _push(run, sync=False),
    "push_weights(module)": lambda run: _push(run, run.module),
    "push_weights(TensorDictModule)": _tensordict_module,
    "push_weights(TensorDict)": lambda run: _push(run, run.weights.clone()),
    "push_weights(state_dict)": lambda run: _push(run, run.module.state_dict()),
    "push_weights(dict)": lambda run: _push(
        run, {name: each.clone() for name, each in run.module.state_dict().items()}
    ),
    "push_weights(nested dict)": lambda run: _push(run, run.weights.to_dict()),
    "push_weights(TensorDict of other shapes)": lambda run: _push(run, TensorDict(_OTHER_SHAPES)),
    "push_weights(3.0)": lambda run: _push(run, 3.0),
    "push_weights(None, 2)": lambda run: _push(run, None, 2),
    "push_weights(None, 4) of 3": lambda run: _push(run, None, 4),
    "push_weights(None, 0)": lambda run: _push(run, None, 0),
    "push_weights(None, -1)": lambda run: _push(run, None, -1),
    "push_weights(None, [1])": lambda run: _push(run, None, [1]),
    "push_weights(None, [2, 1])": lambda run: _push(run, None, [2, 1]),
    "push_weights(None, [1, 2, 3])": lambda run: _push(run, None, [1, 2, 3]),
    "push_weights(None, [4]) of 3": lambda run: _push(run, None, [4]),
    "push_weights(None, [0])": lambda run: _push(run, None, [0]),
    "push_weights(None, [])": lambda run: _push(run, None, []),
    "push_weights(None, 'cpu')": lambda run: _push(run, None, torch.device("cpu")),
    "rank 2 answers 'failed'": lambda run: _push(run, answers={2: b"failed"}),
    "rank 2 never answers": lambda run: _push(run, answers={2: None}),
    "rank 1 never answers, its old answer is there": _stale_answer,
    "rank 1 answers twice": _answered_twice,
    "hooks": _hooks_in_order,
    "hooks, rank 2 answers 'failed'": _hooks_and_a_bad_status,
    "hooks, the second of three fails": _failing_hook,
    "register_post_hook(3)": _hook_that_is_none,
    "increment_version(), no collector": _increment_without_collector,
    "increment_version(), one collector": _increment_with_collector,
    "increment_version(), its collector is gone": _increment_after_collector,
    "push_weights() with collector and hook": _push_with_collector,
    "register_collector, a second": _second_collector,
    "register_collector, the same again": _same_collector_again,
    "collector: none, one, gone": _collector,
    "from_policy(module)": lambda run: _call(run, lambda updater, run: type(updater).from_policy(run.module)),
    "init(1, a=2)": lambda run: _call(run, lambda updater, run: updater.init(1, a=2)),
    "all_worker_ids()": lambda run: _call(run, lambda updater, run: updater.all_worker_ids()),
    "update_weights()": lambda run: _call(run, lambda updater, run: updater.update_weights()),
    "updater()": lambda run: _call(run, lambda updater, run: updater()),
    "_sync_weights_with_worker(1, weights)": lambda run: _call(
        run, lambda updater, run: updater._sync_weights_with_worker(1, run.weights)
    ),
    "_get_server_weights()": lambda run: _call(run, lambda updater, run: updater._get_server_weights() is run.weights),
    "_maybe_map_weights(weights)": lambda run: _call(
        run, lambda updater, run: updater._maybe_map_weights(run.weights) is run.weights
    ),
}


def compare() -> list[dict[str, Any]]:
    """Run all cases; return what both did in each, and which aspects are equal, meant to differ or unexpected."""
    return [_compare(name, case) for name, case in CASES.items()]


def _compare(name: str, case: Callable[[Run], None]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for side in (TorchRL(), Ours()):
        run = Run(side)
        with side.watched():
            case(run)
        found[side.name] = run.observed()
    theirs, ours = found["torchrl"], found["ours"]
    differing = [aspect for aspect in ours if ours[aspect] != theirs[aspect]]
    purposes = {aspect: PURPOSES.reason(name, aspect, ours["result"]) for aspect in differing}
    return {
        "case": name,
        "torchrl": theirs,
        "ours": ours,
        "equal": [aspect for aspect in ours if aspect not in differing],
        "on_purpose": {aspect: reason for aspect, reason in purposes.items() if reason is not None},
        "unexpected": [aspect for aspect, reason in purposes.items() if reason is None],
    }


def main(argv: list[str] | None = None) -> None:
    """Compare, print, and write the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.differential.weight_updater", description=__doc__)
    parser.add_argument("--out", type=Path, default=REPORT, help="the report (%(default)s)")
    parser.add_argument("--allow-dirty", action="store_true", help="compare a tree that differs from its commit too")
    args = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    try:
        code = provenance(allow_dirty=args.allow_dirty)
    except DirtyTreeError as error:
        sys.exit(str(error))
    cases = compare()
    for case in cases:
        for aspect in case["unexpected"]:
            print(
                f"{case['case']}: {aspect}\n    torchrl {case['torchrl'][aspect]}\n    ours    {case['ours'][aspect]}"
            )
    crossed = {trainer: cross(trainer) for trainer in TRAINERS}
    for trainer, found in crossed.items():
        print(f"updater: {trainer}, workers: the other's: {'all weights arrived' if is_right(found) else found}")
    unused = PURPOSES.unused(cases)
    for each in unused:
        print(f"does not differ any more: {each}")
    report = {
        "date": time.strftime("%Y-%m-%d"),
        **code.to_plain(),
        "versions": {name: version(name) for name in ("torchrl", "tensordict", "torch")},
        "cases": cases,
        "crossed": crossed,
    }
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    num_equal, num_meant = (sum(len(case[which]) for case in cases) for which in ("equal", "on_purpose"))
    num_unexpected = sum(len(case["unexpected"]) for case in cases)
    print(
        f"{len(cases)} cases, {num_equal} comparisons equal, {num_meant} different on purpose, {num_unexpected} "
        "different, and not on purpose"
    )
    sys.exit(bool(num_unexpected or unused) or not all(map(is_right, crossed.values())))


if __name__ == "__main__":
    main()
