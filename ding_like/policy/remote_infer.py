"""Act by a network that is elsewhere: an actor of this process whose forward passes a server runs.

Exploration stays here, with its random numbers: the choice, and the noise of noisy networks, which goes to the server
as a column. Recurrent state is the server's, by lane; each answer brings the state after it, and so the state before
every step is known here too: rows hold it, and a server that has lost it is given it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ding_like.errors import ConfigError
from ding_like.policy.base import Policy
from ding_like.policy.forward import ForwardActor, LaneState, LocalInfer
from ding_like.types import Array, Obs, State

_NO_STATE: dict[str, Array] = {}


class RemoteReply(Protocol):
    """Hold what a network elsewhere said of R lanes: its output [R, ...] and the state after it, [R, S...] by name."""

    @property
    def output(self) -> Array: ...

    @property
    def state(self) -> Mapping[str, Array]: ...


class RemoteNetwork(Protocol):
    """Reach a network that is elsewhere: an `InferenceClient` does."""

    def infer(
        self, obs: Obs, columns: Mapping[str, Array], *, lanes: Array, is_first: Array, state: Mapping[str, Array]
    ) -> RemoteReply:
        """Return what the network says of observations and columns [R, ...], and wait for it.

        `state` [R, S...] is what it was before; a server that knows these lanes has it already.
        """

    def forget(self) -> None:
        """Let the server forget the recurrent state of all lanes: it is given with the next request."""


class RemoteInfer:
    """Be the `Infer` of an actor whose network is elsewhere; `initial_state` [S...] is what lanes begin with."""

    def __init__(self, network: RemoteNetwork, initial_state: Mapping[str, Array]) -> None:
        self._network = network
        self._state = LaneState(initial_state)
        self._remembers = bool(initial_state)

    def __call__(
        self, obs: Obs, columns: Mapping[str, Array], *, lanes: Array, is_first: Array
    ) -> tuple[Array, Mapping[str, Array]]:
        """Return (output [R, ...], the state that the network was given); see `Infer`."""
        if not self._remembers:
            return self._network.infer(obs, columns, lanes=lanes, is_first=is_first, state=_NO_STATE).output, _NO_STATE
        before = self._state.take(lanes, is_first)
        reply = self._network.infer(obs, columns, lanes=lanes, is_first=is_first, state=before)
        self._state.put(lanes, reply.state)
        return reply.output, before

    def reset(self, lanes: Array | None = None) -> None:
        """Forget the recurrent state of these lanes, or of all."""
        self._state.reset(lanes)
        self._network.forget()

    def state_dict(self) -> State:
        return self._state.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self._state.load_state_dict(state)
        self._network.forget()


def act_remotely(policy: Policy, network: RemoteNetwork) -> None:
    """Let a policy's collect actor ask a network that is elsewhere, from now on; its own is not used any more.

    Raises ConfigError as `check_acts_remotely` does.
    """
    actor, local = check_acts_remotely(policy)
    actor.infer = RemoteInfer(network, local.forward.initial_state)


def check_acts_remotely(policy: Policy) -> tuple[ForwardActor, LocalInfer]:
    """Return a policy's collect actor and what runs its network here, which may be elsewhere as well.

    Raises ConfigError, with the reason, where it may not: of a policy in DI-engine's style, of one with an actor of
    its own, and where rows are made by the networks.
    """
    name = type(policy).__name__
    other = "run it with `ding -m serial` or `ding -m parallel`, where actors have the weights."
    actor = getattr(policy.collect_mode, "actor", None)
    if actor is None:
        raise ConfigError(
            f"{name} acts in DI-engine's style (_forward_collect), which runs the network by itself, so no inference "
            f"server can do it: give the policy an actor (policy.forward.ForwardActor), or {other}"
        )
    if not isinstance(actor, ForwardActor) or not isinstance(actor.infer, LocalInfer):
        raise ConfigError(
            f"{name} acts by a {type(actor).__name__}, of which no inference server can run the network: make it a "
            f"policy.forward.ForwardActor, which keeps network and choice apart, or {other}"
        )
    if getattr(policy, "rows_need_networks", False):  # most policies say nothing, as their rows are what was seen
        raise ConfigError(
            f"{name} makes its rows by its networks (values of the critic), which an actor of central inference does "
            f"not have: {other}"
        )
    return actor, actor.infer
