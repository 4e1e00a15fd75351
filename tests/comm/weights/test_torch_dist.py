"""Weights between ranks: what becomes of readers that leave."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import torch

from ding_like.comm.channels import Version, Weights
from tests.contracts.torch_dist_transport import weights as make_ends


def test_a_reader_that_has_left_is_failed_at_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        publisher, reader = make_ends(stack, tmp_path)
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
        publisher, _ = make_ends(stack, tmp_path)

        receipt = publisher.publish(Weights("policy", Version(1, 1), {"w": torch.ones(2)}), to=["7", "1"])

        assert receipt.failed == ("7",) and receipt.delivered == ("1",)
