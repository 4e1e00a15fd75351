"""Names that were nested another way are matched, where there is one way to do it."""

from __future__ import annotations

import torch

from ding_like.comm.weights.names import named_like


def state(*names: str) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(float(place)) for place, name in enumerate(names)}


def test_a_state_gets_the_names_that_differ_by_their_separators() -> None:
    for names, own in ((["a.b", "c"], ["c", "a/b"]), (["a/b.w", "c"], ["c", "a.b/w"]), (["a", "b"], ["b", "a"])):
        given = state(*own)

        found = named_like(names, given)

        assert found.keys() == set(names)
        assert {name.replace("/", "."): each.item() for name, each in found.items()} == {
            name.replace("/", "."): each.item() for name, each in given.items()
        }


def test_other_names_stay_as_they_are() -> None:
    for names, own in (
        (["a.b"], ["a.c"]),
        (["a.b"], ["a/b", "c"]),
        (["a.b", "a/b"], ["a/b", "c"]),
        (["a.b"], ["a.b", "a/b"]),
        (["a/b", "a.b"], ["a/b"]),
    ):
        assert named_like(names, state(*own)) == state(*own)
