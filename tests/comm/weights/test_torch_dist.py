"""Weights between ranks: what becomes of readers that leave."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.weights.torch_dist import DistWeightPublisher
from ding_like.errors import CommError
from tests.contracts.torch_dist_transport import weights as make_ends


def test_readers_that_are_unknown_or_have_left_are_failed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        publisher, reader, _ = make_ends(stack, tmp_path)
        sent = Weights("policy", Version(1, 1), {"w": torch.ones(2)})
        receipt = publisher.publish(sent, to=["7", "1"])
        assert receipt.failed == ("7",) and receipt.delivered == ("1",)
        assert reader.newest("policy", timeout_s=60.0) is not None
        reader.close()  # type: ignore[attr-defined]  # beside the protocol: it ends a thread

        receipt = publisher.publish(sent._replace(version=Version(1, 2)))

        assert receipt.failed == ("1",) and not receipt.delivered


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
        found = reader.newest("policy", newer_than=Version(1, 2), timeout_s=60.0)

    assert sent[0] > FROZEN and max(sent[1:]) < 2 * 4096 + 100
    assert found is not None
    assert all(torch.equal(found.state[name], tensor) for name, tensor in mostly_frozen(3).state.items())


def test_a_reader_that_missed_a_version_gets_all_bytes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        publisher, reader, _ = make_ends(stack, tmp_path, by_delta=True)
        publish(publisher, mostly_frozen(1))
        publisher.publish(mostly_frozen(2), to=[])

        sent = publish(publisher, mostly_frozen(3))
        found = reader.newest("policy", newer_than=Version(1, 1), timeout_s=60.0)

    assert sent > FROZEN
    assert found is not None and found.state["head"].tolist() == [3.0] * 100


@pytest.mark.parametrize("head", ["[]", '{"nbytes": -1}', '{"nbytes": NaN}'])
def test_a_message_that_is_nonsense_is_an_error_of_the_next_call(tmp_path: Path, head: str) -> None:
    with ExitStack() as stack:
        publisher, reader, _ = make_ends(stack, tmp_path)
        publisher.store.set("1/0", head)  # type: ignore[attr-defined]  # what another program wrote there

        with pytest.raises(CommError, match="announced"):
            reader.newest("policy", timeout_s=60.0)
