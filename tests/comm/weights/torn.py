"""Publish through shared memory as fast as it goes, and look in every version that a reader gets for a torn one.

python -m tests.comm.weights.torn --publications 10000 --readers 4 --out docs/reports/weights_torn.json

Each version carries its number, a checksum of its numbers, and tensors that were all written anew. Readers are
processes of their own. In the first course nobody waits for anybody, so that readers are overtaken while they copy; in
the second the publisher goes on when all have taken a version and have looked at it. Shapes change on the way.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import zlib
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.provenance import provenance
from ding_like.comm.channels import Version, Weights
from ding_like.comm.weights import shared_block
from ding_like.comm.weights.shared_memory import SharedMemoryPublisher, SharedMemoryReader
from tests.fresh_process import Fresh, start_fresh

_WAIT_S = 30.0
_TENSORS = 8
_RESIZED = 1000  # publications: shapes change after so many


class Found(NamedTuple):
    """Hold what one reader found."""

    versions: int  # that it got, each another
    torn: int
    older: int  # than one that it had got before
    spoiled: int  # copies that were overtaken, and made again
    last: int


def state_of(number: int, size: int) -> dict[str, torch.Tensor]:
    """Return a state of `size` numbers, all of which change with the number of its version."""
    numbers = torch.arange(size, dtype=torch.float32) + number % 8192
    parts = {f"part {each}": part for each, part in enumerate(numbers.chunk(_TENSORS))}
    return {**parts, "number~int": torch.tensor(number), "checksum~int": torch.tensor(checksum_of(parts, number))}


def checksum_of(parts: dict[str, torch.Tensor], number: int) -> int:
    found = number
    for name in sorted(parts):
        found = zlib.crc32(np.ascontiguousarray(parts[name].numpy()).data, found)
    return found


def is_torn(weights: Weights) -> bool:
    state = dict(weights.state)
    number, checksum = int(state.pop("number~int")), int(state.pop("checksum~int"))
    return number != weights.version.update or checksum != checksum_of(state, number)


def read(pipe: Connection, name: str, reader: str, publications: int, is_awaited: bool) -> None:
    """Be a reader until the last publication has come; tell what was found."""
    copies = _count_copies()
    with_reader = SharedMemoryReader(name, reader=reader)
    pipe.send("ready")
    versions = torn = older = 0
    last = Version(0, 0)
    while last.update < publications:
        weights = with_reader.newest("policy", newer_than=last, timeout_s=_WAIT_S)
        if weights is None:
            break
        versions += 1
        torn += is_torn(weights)
        # What there is now must not be older either.
        newest = with_reader.newest("policy")
        older += weights.version < last or newest is None or newest.version < weights.version
        last = weights.version
        if is_awaited:
            pipe.send(last.update)
    pipe.send(Found(versions, torn, older, copies["made"] - copies["taken"], last.update))
    with_reader.close()


def _count_copies() -> dict[str, int]:
    """Count, from now on in this process, the copies out of shared memory that were made, and those that were whole."""
    copies = {"made": 0, "taken": 0}
    copied, read_block = shared_block._copied, shared_block.BlockReader.read

    def count_made(body: Any, spare: Any) -> Any:
        copies["made"] += 1
        return copied(body, spare)

    def count_taken(self: shared_block.BlockReader, *, after: int, reader: str) -> shared_block.Look:
        look = read_block(self, after=after, reader=reader)
        copies["taken"] += look.taken is not None
        return look

    shared_block._copied = count_made
    shared_block.BlockReader.read = count_taken  # type: ignore[method-assign]
    return copies


def run(publications: int, readers: int, *, size: int, num_buffers: int = 2, is_awaited: bool = False) -> list[Found]:
    """Publish versions 1 to `publications` of about `size` numbers; return what each reader found."""
    name = f"torn-{os.getpid()}-{'awaited' if is_awaited else 'free'}"
    with ExitStack() as stack:
        children: list[Fresh] = [
            start_fresh(stack, read, name, f"reader-{each}", publications, is_awaited) for each in range(readers)
        ]
        for child in children:
            assert child.hear() == "ready"
        publisher = SharedMemoryPublisher(name, num_buffers=num_buffers)
        stack.callback(publisher.close)
        wait_s = _WAIT_S if is_awaited else None
        for number in range(1, publications + 1):
            state = state_of(number, size + number // _RESIZED)
            receipt = publisher.publish(Weights("policy", Version(1, number), state), wait_s=wait_s)
            assert not receipt.failed, receipt
            if is_awaited:
                assert len(receipt.delivered) == readers, receipt
                for child in children:
                    assert child.hear() == number
        return [child.hear() for child in children]


def main() -> int:
    """Run both courses; the exit status is 1 unless no version was torn or older."""
    parser = argparse.ArgumentParser(prog="python -m tests.comm.weights.torn", description=__doc__)
    parser.add_argument("--publications", type=int, default=10_000)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--size", type=int, default=250_000, help="numbers of a version, of 4 bytes each")
    parser.add_argument("--buffers", type=int, default=2, help="fewer than a publisher has by default: more overtaking")
    parser.add_argument("--out", help="a file to write the figures to")
    arguments = parser.parse_args()
    code = provenance(allow_dirty=True)
    courses = {}
    for course, is_awaited in (("nobody waits", False), ("all are awaited", True)):
        started = time.monotonic()
        found = run(
            arguments.publications,
            arguments.readers,
            size=arguments.size,
            num_buffers=arguments.buffers,
            is_awaited=is_awaited,
        )
        courses[course] = {
            "seconds": round(time.monotonic() - started, 1),
            **{name: sum(getattr(each, name) for each in found) for name in ("versions", "torn", "older", "spoiled")},
            "readers": [each._asdict() for each in found],
        }
        print(course, json.dumps(courses[course]), flush=True)
    if arguments.out:
        setting = {name: getattr(arguments, name) for name in ("publications", "readers", "size", "buffers")}
        record = {**code.to_plain(), "setting": setting, "courses": courses}
        Path(arguments.out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    is_whole = all(
        not each["torn"] and not each["older"] and each["last"] == arguments.publications
        for course in courses.values()
        for each in course["readers"]
    )
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
