"""Acting by a network that is elsewhere: what an actor keeps of a policy when inference servers run its network.

Exploration stays with the actor, with its random numbers: the choice, and the noise of noisy networks, which goes to
the server as a column. So does recurrent state: each request brings it and each reply returns it, and rows hold it.
Nothing here imports torch, which actors do not need.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, Protocol

from ding_like.data.modes import CollectMode
from ding_like.errors import ConfigError
from ding_like.policy.forward import ForwardActor
from ding_like.policy.rows import RowMaker
from ding_like.types import Array, Obs, PolicyLike

_ATTRIBUTES = ("on_policy", "n_sample", "n_episode", "unroll_len")  # that collectors ask of a collect mode


class RemoteReply(Protocol):
    """What a network elsewhere computed for R lanes: its output [R, ...] and the state after it [R, S...] by name."""

    @property
    def output(self) -> Array: ...

    @property
    def state(self) -> Mapping[str, Array]: ...


class RemoteNetwork(Protocol):
    """Network that is elsewhere, as an `InferenceClient` reaches it."""

    def evaluate_model(self, obs: Obs, columns: Mapping[str, Array], *, state: Mapping[str, Array]) -> RemoteReply:
        """Return what the network computes for observations, columns and state [R, ...]; wait for it."""


class RemoteForward:
    """`Forward` of a network that is elsewhere; `initial_state` [S...] is what lanes begin with."""

    def __init__(self, network: RemoteNetwork | None, initial_state: Mapping[str, Array]) -> None:
        self.network = network
        self.initial_state = initial_state

    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        """Return (output [R, ...], new state [R, S...]); `state` has the noise of noisy networks too."""
        assert self.network is not None, "the actor's owner connects it first"
        columns = {name: column for name, column in state.items() if name not in self.initial_state}
        reply = self.network.evaluate_model(obs, columns, state={name: state[name] for name in self.initial_state})
        return reply.output, reply.state


@dataclass(frozen=True)
class ActorPart:
    """The part of a policy that an actor has: the choice among a network's outputs, and what makes rows.

    It holds no network, and is pickled to be sent to actor processes of this machine.
    """

    actor: ForwardActor  # whose `forward` is a `RemoteForward`
    rows: RowMaker
    attributes: Mapping[str, Any]  # Any: those that collectors ask for by name

    @classmethod
    def of(cls, policy: PolicyLike) -> ActorPart:
        """Return the part of a policy, whose networks it lacks. Raises ConfigError as `check_acts_remotely` does."""
        actor = copy.copy(check_acts_remotely(policy))
        actor.forward = RemoteForward(None, actor.forward.initial_state)
        attributes = {}
        for name in _ATTRIBUTES:
            try:
                attributes[name] = policy.get_attribute(name)
            except NotImplementedError:  # it has none
                continue
        return cls(actor, policy.row_maker() if _makes_plain_rows(policy) else policy, attributes)

    def is_plain(self) -> bool:
        """Return whether the part can be sent: it is without the policy's own code for rows, and can be pickled."""
        try:
            return not hasattr(self.rows, "row_maker") and bool(ForkingPickler.dumps(self))
        except Exception:  # __reduce__ of a user's class may raise anything; the policy is built in the actor then
            return False

    def connect(self, network: RemoteNetwork) -> CollectMode:
        """Return the collect mode of a collector whose network is elsewhere."""
        actor = copy.deepcopy(self.actor)
        assert isinstance(actor.forward, RemoteForward)
        actor.forward.network = network
        attributes = dict(self.attributes)

        def get_attribute(name: str) -> Any:
            if name not in attributes:
                raise NotImplementedError(f"an actor's part of a policy has no attribute '{name}'")
            return attributes[name]

        return CollectMode(
            forward=_of_rows,
            process_transition=_of_rows,
            get_train_sample=_of_rows,
            reset=actor.reset,
            get_attribute=get_attribute,
            set_attribute=attributes.__setitem__,
            state_dict=actor.state_dict,
            load_state_dict=actor.load_state_dict,
            actor=actor,
            segment=self.rows.segment,
            num_ready=self.rows.num_ready,
        )


def _of_rows(*_: object, **__: object) -> Any:
    raise NotImplementedError("an actor of central inference works on columns: it has no functions of single rows")


def _makes_plain_rows(policy: PolicyLike) -> bool:
    """Return whether a policy's rows are those of its `row_maker`: no subclass overrides `segment` alone."""
    names = {"segment", "num_ready", "row_maker"}
    first: type = next((each for each in type(policy).__mro__ if names & vars(each).keys()), object)
    return "row_maker" in vars(first)


def check_acts_remotely(policy: PolicyLike) -> ForwardActor:
    """Return a policy's collect actor, whose network may run elsewhere as well as here.

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
    if not isinstance(actor, ForwardActor):
        raise ConfigError(
            f"{name} acts by a {type(actor).__name__}, of which no inference server can run the network: make it a "
            f"policy.forward.ForwardActor, which keeps network and choice apart, or {other}"
        )
    if getattr(policy, "rows_need_networks", False):  # most policies say nothing, as their rows are what was seen
        raise ConfigError(
            f"{name} makes its rows by its networks (values of the critic), which an actor of central inference does "
            f"not have: {other}"
        )
    return actor
