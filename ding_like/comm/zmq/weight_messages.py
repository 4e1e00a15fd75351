"""Say what a publisher of weights and its readers write to each other.

| kind    | from      | head                                                        | arrays |
|---------|-----------|-------------------------------------------------------------|--------|
| ask     | reader    | name, number, has: the version of each policy that it has   |        |
| weights | publisher | weights: policy_id, version and layout; checksum            | body   |
| probe   | publisher | nothing: whether it can be sent tells whether there is one  |        |

`number` counts the questions of a reader, so that one that is asked again is answered once.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from ding_like.comm.channels import Version, Weights
from ding_like.comm.json_fields import is_count
from ding_like.comm.json_version import is_version
from ding_like.comm.weights.encode import MAX_NBYTES, Encoded
from ding_like.comm.weights.encode import decode as decode_weights
from ding_like.comm.zmq import frames as messages
from ding_like.comm.zmq.frames import Frame
from ding_like.errors import CommError

PROBE = {"kind": "probe"}
MAX_NAME = 256  # characters


class Ask(NamedTuple):
    """Hold a reader's question: the versions that it has, and for the how-manieth time it asks."""

    name: str
    number: int
    has: dict[str, Version]

    def frames(self) -> list[Frame]:
        has = {policy_id: list(version) for policy_id, version in self.has.items()}
        return messages.encode({"kind": "ask", "name": self.name, "number": self.number, "has": has})

    @classmethod
    def parse(cls, frames: Sequence[Frame]) -> Ask:
        """Read a question. Raises CommError for anything else."""
        head: Any = messages.decode(frames, max_nbytes=0).head  # Any: of JSON
        name, number, has = head.get("name"), head.get("number"), head.get("has")
        is_ask = head["kind"] == "ask" and isinstance(name, str) and 0 < len(name) <= MAX_NAME
        if not is_ask or not is_count(number) or not isinstance(has, dict):
            raise CommError(f"a reader of weights asks with {str(head)[:200]}; expected name, number and has.")
        if not all(map(is_version, has.values())):
            raise CommError(f"a reader of weights has the versions {str(has)[:200]}; expected pairs of counts.")
        return cls(name, number, {policy_id: Version(*each) for policy_id, each in has.items()})


def pack(encoded: Encoded) -> list[Frame]:
    head = {"kind": "weights", "weights": encoded.head, "checksum": _checksum(encoded)}
    return messages.encode(head, {"body": encoded.body})


def unpack(frames: Sequence[Frame]) -> Weights | None:
    """Return the weights of a message, None for a probe. Raises CommError for all that no publisher sends."""
    message = messages.decode(frames, max_nbytes=MAX_NBYTES)
    if message.head == PROBE and not message.arrays:
        return None
    body, head = message.arrays.get("body"), message.head.get("weights")
    if message.kind != "weights" or body is None or len(message.arrays) != 1:
        raise CommError(
            f"a message is of kind {message.kind[:80]!r} with {len(message.arrays)} arrays; expected weights."
        )
    encoded = Encoded(head, body)  # type: ignore[arg-type]  # `decode_weights` checks the head
    if message.head.get("checksum") != _checksum(encoded):
        raise CommError("the checksum of weights differs from what was sent with them.")
    return decode_weights(encoded)


def _checksum(encoded: Encoded) -> int:
    """Return the crc32 of weights and of what they say they are, version and names included."""
    return zlib.crc32(encoded.body.data, zlib.crc32(json.dumps(encoded.head).encode()))
