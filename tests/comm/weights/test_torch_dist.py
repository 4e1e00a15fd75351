"""Weights between ranks: what becomes of readers that leave."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.weights import torch_dist
from ding_like.comm.weights.torch_dist import DistWeightPublisher
from ding_like.errors import CommError
from ding_like.types import Array
from tests.contracts.torch_dist_transport import weights as make_ends


def test_a_reader_that_has_left_is_failed_at_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        publisher, reader, _ = make_ends(stack, tmp_path)
        sent = Weights("policy", Version(1, 1), {"w": torch.ones(2)})
        assert publisher.publish(sent).delivered == ("1",)
        assert reader.newest("policy", timeout_s=10.0) is not None
        reader.close()  # type: ignore[attr-defined]  # beside the protocol: it ends a thread
        started = time.monotonic()

        receipt = publisher.publish(sent._replace(version=Version(1, 2)))

        assert receipt.failed == ("1",) and not receipt.delivered
        assert time.monotonic() - started < 5.0


def test_an_unknown_reader_is_failed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        publisher, _, _ = make_ends(stack, tmp_path)

        receipt = publisher.publish(Weights("policy", Version(1, 1), {"w": torch.ones(2)}), to=["7", "1"])

        assert receipt.failed == ("7",) and receipt.delivered == ("1",)


FROZEN = 4 * 100_000  # bytes


def mostly_frozen(update: int) -> Weights:
    state = {"frozen": torch.arange(FROZEN // 4, dtype=torch.float32), "head": torch.full((100,), float(update))}
    return Weights("policy", Version(1, update), state)


def publish(publisher: object, weights: Weights) -> int:
    """Publish to the one reader and return the bytes that were sent."""
    assert isinstance(publisher, DistWeightPublisher)
    before = publisher.bytes_sent
    assert publisher.publish(weights).delivered == ("1",)
    return publisher.bytes_sent - before


def test_bfloat16_sends_half_the_bytes(tmp_path: Path) -> None:
    sent = {}
    for dtype in ("exact", "bfloat16"):
        with ExitStack() as stack:
            folder = tmp_path / dtype
            folder.mkdir()
            publisher, _, _ = make_ends(stack, folder, dtype=dtype)  # type: ignore[arg-type]
            sent[dtype] = publish(publisher, mostly_frozen(1))

    assert sent["exact"] == FROZEN + 400 and sent["bfloat16"] == sent["exact"] / 2


def test_a_reader_that_has_the_version_before_gets_what_changed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        publisher, reader, _ = make_ends(stack, tmp_path, by_delta=True)
        sent = [publish(publisher, mostly_frozen(update)) for update in (1, 2, 3)]
        found = reader.newest("policy", newer_than=Version(1, 2), timeout_s=10.0)

    assert sent[0] > FROZEN and max(sent[1:]) < 2 * 4096 + 100
    assert found is not None
    assert all(torch.equal(found.state[name], tensor) for name, tensor in mostly_frozen(3).state.items())


def test_a_reader_that_missed_a_version_gets_all_bytes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        publisher, reader, _ = make_ends(stack, tmp_path, by_delta=True)
        publish(publisher, mostly_frozen(1))
        publisher.publish(mostly_frozen(2), to=[])

        sent = publish(publisher, mostly_frozen(3))
        found = reader.newest("policy", newer_than=Version(1, 1), timeout_s=10.0)

    assert sent > FROZEN
    assert found is not None and found.state["head"].tolist() == [3.0] * 100


def test_a_reader_that_cannot_apply_a_delta_gets_all_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delta = torch_dist.delta

    def broken(old: Array, new: Array) -> Array | None:
        changes = delta(old, new)
        if changes is not None:
            changes[-1] ^= np.uint8(1)
        return changes

    monkeypatch.setattr(torch_dist, "delta", broken)
    with ExitStack() as stack:
        publisher, reader, _ = make_ends(stack, tmp_path, by_delta=True)
        sent = [publish(publisher, mostly_frozen(update)) for update in (1, 2)]
        found = reader.newest("policy", newer_than=Version(1, 1), timeout_s=10.0)

    assert sent[1] > FROZEN
    assert found is not None and found.state["head"].tolist() == [2.0] * 100


def test_a_reader_that_changes_what_it_has_is_sent_all_bytes_and_not_wrong_ones(tmp_path: Path) -> None:
    with ExitStack() as stack:
        publisher, reader, _ = make_ends(stack, tmp_path, by_delta=True)
        publish(publisher, mostly_frozen(1))
        first = reader.newest("policy", timeout_s=10.0)
        assert first is not None
        first.state["frozen"].zero_()

        publish(publisher, mostly_frozen(2))
        found = reader.newest("policy", newer_than=first.version, timeout_s=10.0)

    assert found is not None and torch.equal(found.state["frozen"], mostly_frozen(2).state["frozen"])


@pytest.mark.parametrize(
    "head", ["[]", "{}", '{"nbytes": -1}', '{"nbytes": 1e99}', '{"nbytes": NaN}', '{"nbytes": true}']
)
def test_a_message_that_is_nonsense_is_an_error_of_the_next_call(tmp_path: Path, head: str) -> None:
    with ExitStack() as stack:
        publisher, reader, _ = make_ends(stack, tmp_path)
        publisher.store.set("1/0", head)  # type: ignore[attr-defined]  # what another program wrote there

        with pytest.raises(CommError, match="announced"):
            reader.newest("policy", timeout_s=10.0)
