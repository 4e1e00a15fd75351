"""Say in what our weight updater differs from TorchRL's on purpose, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple


class Purpose(NamedTuple):
    """Name cases and aspects by patterns, the reason, and what our calls are to give where the reason says it."""

    cases: tuple[str, ...]
    aspects: tuple[str, ...]
    reason: str
    gives: tuple[str, ...] | None = None

    def holds(self, case: str, aspect: str, given: Sequence[str]) -> bool:
        """Tell whether this is about a case and an aspect of it, and our calls gave what they are to give."""
        is_about = aspect in self.aspects and any(case == each or fnmatchcase(case, each) for each in self.cases)
        return is_about and self.gives in (None, tuple(given))


class Purposes:
    """All differences on purpose."""

    def __init__(self, purposes: Sequence[Purpose]) -> None:
        self._purposes = purposes

    def reason(self, case: str, aspect: str, given: Sequence[str]) -> str | None:
        """Return why they differ there, where our calls gave this; None: it is not on purpose."""
        return next((each.reason for each in self._purposes if each.holds(case, aspect, given)), None)

    def unused(self, cases: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the purposes that nothing in a report differs by."""
        used = {reason for case in cases for reason in case["on_purpose"].values()}
        return [each.reason for each in self._purposes if each.reason not in used]


_ALL = ("result", "text", "words", "order", "sent", "keys", "counters")
_SEVERAL = (  # pushes to three workers
    "push_weights(), 3 workers",
    "push_weights() twice",
    "push_weights(), sync=False",
    "push_weights(TensorDict)",
    "push_weights(None, [[]2, 1])",
    "push_weights(None, [[]1, 2, 3])",
    "push_weights() with collector and hook",
    "updater()",
    "rank 2 *",
    "hooks*",
)

PURPOSES = Purposes(
    [
        Purpose(
            ("constructor", "push_weights*", "updater()", "rank*", "hooks*"),
            ("keys",),
            "TRAINER_status says that there is a trainer; NODE_r_push and NODE_r_done number a push and its answer. An "
            "answer that is there before a push is deleted first, so that a late or a second one counts for none.",
        ),
        Purpose(
            _SEVERAL,
            ("order",),
            "All ranks are sent the message before any is awaited: a push takes as long as the slowest rank, not as all"
            " together.",
        ),
        Purpose(
            ("constructor, num_workers=0",),
            ("result", "text"),
            "Without workers there is nothing to do: refused at once.",
            ("raises ValueError",),
        ),
        Purpose(
            (
                "constructor, policy_weights a*",
                "push_weights(module)",
                "push_weights(TensorDictModule)",
                "push_weights(state_dict)",
                "push_weights(dict)",
                "push_weights(nested dict)",
            ),
            _ALL,
            "The page names modules and dicts as sources: they work. There only what has `send` does, a TensorDict, "
            "and rank 1 has been told by then.",
            ("None",),
        ),
        Purpose(
            ("push_weights(TensorDict of other shapes)", "push_weights(3.0)"),
            _ALL,
            "Names, shapes and dtypes are compared with policy_weights before anything is sent.",
            ("raises ValueError",),
        ),
        Purpose(
            ("push_weights(), sync=False",),
            ("result",),
            "Without sync the page does not have the trainer wait: a handle is returned, to wait by. There it waits.",
            ("'a handle'",),
        ),
        Purpose(
            ("push_weights(None, 4) of 3", "push_weights(None, [[]4]) of 3"),
            _ALL,
            "A rank that is not there is refused before anything is sent. There it is notified and sent to, and then "
            "an IndexError comes.",
            ("raises ValueError",),
        ),
        Purpose(
            ("push_weights(None, [[]0])",),
            _ALL,
            "Rank 0 is the trainer, in a list too. There a list counts from 0, and [0] updates rank 1.",
            ("raises RuntimeError",),
        ),
        Purpose(
            ("push_weights(None, 0)", "push_weights(None, -1)"),
            ("text",),
            "The same RuntimeError, with a text that says what is allowed: rank 1 is.",
        ),
        Purpose(
            ("push_weights(None, [[]1])", "push_weights(None, [[]2, 1])", "push_weights(None, [[]1, 2, 3])"),
            _ALL,
            "Ranks count from 1 in lists too. There a list counts from 0: [1] updates rank 2, and [1, 2, 3] of 3 "
            "workers tells a rank 4.",
            ("None",),
        ),
        Purpose(
            ("push_weights(None, 'cpu')",),
            ("result", "text"),
            "A device names a worker where the updater was given devices; else it is refused with what to give.",
        ),
        Purpose(
            ("rank 2 *", "hooks, rank 2 *"),
            ("text", "words", "sent", "counters"),
            "The same RuntimeError, which says which ranks were updated, failed and were not tried. The ranks behind "
            "one that fails are updated, and the counter of one that failed is not set to 0.",
            ("raises RuntimeError",),
        ),
        Purpose(
            ("rank 1 never answers, its old answer is there",),
            _ALL,
            "An answer to an earlier push is not taken for this one's. There the push succeeds, and the worker has not "
            "got the weights.",
            ("raises RuntimeError",),
        ),
        Purpose(
            ("register_post_hook(3)",), ("result", "text"), "What cannot be called is refused when it is registered."
        ),
        Purpose(
            ("increment_version(), no collector", "increment_version(), its collector is gone"),
            ("result", "text"),
            "Nothing is done where there is no collector, or none any more. There that is a TypeError or an "
            "AttributeError.",
            ("None",),
        ),
        Purpose(
            ("register_collector, *",),
            ("result", "text"),
            "As the page says, another collector is not accepted (many=True for several); the same one again changes "
            "nothing. There both are accepted, and `collector` raises from then on.",
        ),
        Purpose(
            ("all_worker_ids()",),
            ("result", "text"),
            "It returns the ranks, 1 to n. There it is not written.",
            ("[1, 2, 3]",),
        ),
        Purpose(("update_weights()",), _ALL, "The page names it: it is push_weights. There it is not to be found."),
        Purpose(
            ("_sync_weights_with_worker(1, weights)", "_get_server_weights()", "_maybe_map_weights(weights)"),
            _ALL,
            "What the page's base class names works, so that a subclass may call it. There they are not written.",
        ),
    ]
)
