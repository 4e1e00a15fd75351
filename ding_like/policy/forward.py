"""Networks that are run to act: an actor is a `Forward` and a choice among what it returns.

A choice takes R rows at once, (output, action mask or None, generator, setting), and returns columns [R, ...], `action`
among them. `best(output, mask)` is what it chooses of tensors without exploring: agents are exported with it.

The forward pass may happen anywhere and in batches of several actors' rows (`types.Forward`): in this process, or on an
inference server, which an `ActorPart` asks. Exploration stays with the actor, with its random numbers: the choice, and
the noise that a network takes, such as that of noisy ones (Fortunato et al. 2018), which goes to the server as a
column. So does recurrent state: each request brings it and each reply returns it, and rows hold it. Actors have no
torch: what needs it imports it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ding_like.data.batch import map_obs, split_mask
from ding_like.data.rows import CollectMode
from ding_like.errors import ConfigError, SchemaError
from ding_like.policy.rows import RowMaker
from ding_like.rl_utils.distributions import (
    MAX_LOG_SIGMA,
    MIN_LOG_SIGMA,
    ActionFamily,
    Categorical,
    allowed_logits,
    mask_logits,
)
from ding_like.rl_utils.exploration import (
    ActionRange,
    check_some_legal,
    epsilon_greedy,
    gaussian_noise,
    greedy_action,
)
from ding_like.types import Array, Forward, Obs, PolicyLike, Setting, State

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ding_like.model.layers import ObsTensor


Columns: TypeAlias = dict[str, Array]  # of rows, by name


class Choose(Protocol):
    """What turns a network's output into columns of rows, `action` among them."""

    def __call__(self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting) -> Columns: ...


class EpsilonGreedy:
    """Choice of the best action by its value, or with probability `eps` of the setting (default 0) any legal one."""

    def __call__(self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting) -> Columns:
        """Return `action` int64, [R] of values [R, A]; of a team's [R, N, A] it is [R, N], drawn for each member."""
        greedy = greedy_action(output, mask)
        eps = setting.get("eps", 0.0)
        if isinstance(eps, float) and eps == 0.0:
            return {"action": greedy}
        num_actions = output.shape[-1]
        if greedy.ndim == 1:
            return {"action": epsilon_greedy(greedy, eps, num_actions=num_actions, rng=rng, action_mask=mask)}
        each = np.broadcast_to(eps, len(greedy)).repeat(greedy.shape[1])
        legal = None if mask is None else mask.reshape(-1, num_actions)
        chosen = epsilon_greedy(greedy.ravel(), each, num_actions=num_actions, rng=rng, action_mask=legal)
        return {"action": chosen.reshape(greedy.shape)}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        return _best_of(output, mask)


@dataclass(frozen=True)
class SoftmaxOfValues:
    """Choice of an action with probability softmax(values / alpha), or with `eps` of the setting of any legal one."""

    alpha: float

    def __call__(self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting) -> Columns:
        """Return `action` int64 [R] of values [R, A]."""
        logits = output / np.float32(self.alpha)
        if mask is not None:
            check_some_legal(mask)
            logits = mask_logits(logits, mask)
        drawn = Categorical().sample(logits, rng)["action"]
        eps, num_actions = setting.get("eps", 0.0), output.shape[-1]
        return {"action": epsilon_greedy(drawn, eps, num_actions=num_actions, rng=rng, action_mask=mask)}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        return _best_of(output, mask)


@dataclass(frozen=True)
class GaussianNoise:
    """Choice of the action in [-1, 1] that the network gives, plus noise in units of half of the action's range."""

    action_range: ActionRange
    noise_sigma: float = 0.0  # unless the setting says another: one for all, or one per lane [R]

    def __call__(self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting) -> Columns:
        """Return `action` [R, A] in the env's units."""
        sigma = setting.get("noise_sigma", self.noise_sigma)
        if not isinstance(sigma, float) or sigma != 0.0:
            output = output + gaussian_noise(*output.shape, sigma=sigma, rng=rng)
        return {"action": self.action_range.to_env(output)}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        return self.action_range.tensor_to_env(output)


@dataclass(frozen=True)
class HybridEpsilonGreedy:
    """Best choice with its parameters by the network, plus noise; or with `eps` a random action.

    The noise is that of `GaussianNoise`; a random action is a choice and parameters drawn uniformly, for each row its
    own.
    """

    parameter_range: ActionRange
    num_choices: int
    noise_sigma: float = 0.0  # unless the setting says another: one for all, or one per lane [R]

    def __call__(self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting) -> Columns:
        """Return `action` [R, 1 + P] in the env's units, of values and parameters in [-1, 1] side by side [R, K + P].

        Every call that explores takes 2 + 2 P numbers per row from `rng`, whatever comes of them.
        """
        values, parameters = output[:, : self.num_choices], output[:, self.num_choices :]
        choice = greedy_action(values, mask)
        eps, sigma = setting.get("eps", 0.0), setting.get("noise_sigma", self.noise_sigma)
        if not all(isinstance(each, float) and each == 0.0 for each in (eps, sigma)):
            rows, size = parameters.shape
            draws = rng.random((2, rows))
            uniform = rng.uniform(-1.0, 1.0, (rows, size)).astype(np.float32)
            parameters = parameters + gaussian_noise(rows, size, sigma=sigma, rng=rng)
            is_random = draws[0] < eps
            choice = np.where(is_random, (draws[1] * self.num_choices).astype(np.int64), choice)
            parameters = np.where(is_random[:, None], uniform, parameters)
        action = np.empty((len(output), 1 + parameters.shape[1]), np.float32)
        action[:, 0] = choice
        action[:, 1:] = self.parameter_range.to_env(parameters)
        return {"action": action}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        import torch  # actors have none

        choice = _best_of(output[:, : self.num_choices], mask)
        parameters = self.parameter_range.tensor_to_env(output[:, self.num_choices :])
        return torch.cat([choice.unsqueeze(1).to(parameters.dtype), parameters], dim=1)


@dataclass(frozen=True)
class SquashedGaussian:
    """Draw from a Gaussian squashed by tanh, or its tanh(mean)."""

    action_range: ActionRange
    is_random: bool

    def __call__(self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting) -> Columns:
        """Return `action` [R, A] in the env's units, of mean and log sigma side by side [R, 2 A]."""
        mean, log_sigma = np.split(output, 2, axis=1)
        if self.is_random:
            sigma = np.exp(log_sigma.clip(MIN_LOG_SIGMA, MAX_LOG_SIGMA))
            mean = mean + sigma * rng.standard_normal(mean.shape, dtype=np.float32)
        return {"action": self.action_range.to_env(np.tanh(mean))}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        return self.action_range.tensor_to_env(output[:, : output.shape[1] // 2].tanh())


@dataclass(frozen=True)
class OfFamily:
    """Actions drawn from a family of distributions, or with `is_greedy` the most likely ones."""

    family: ActionFamily
    is_greedy: bool
    with_log_prob: bool = True  # False: rows need no more than the action

    def __call__(self, output: Array, mask: Array | None, rng: np.random.Generator, setting: Setting) -> Columns:
        """Return `action` [R, ...]; unless greedy, also `log_prob` [R] and, of continuous actions, `action_raw`."""
        if mask is not None:
            self.family.check_mask(mask)
            output = mask_logits(output, mask)
        if self.is_greedy:
            return {"action": self.family.mode(output)}
        sampled = self.family.sample(output, rng)
        return sampled if self.with_log_prob else {"action": sampled["action"]}

    def best(self, output: Tensor, mask: Tensor | None) -> Tensor:
        return self.family.mode_of(allowed_logits(output, mask))


def _best_of(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the best action [R] or [R, N] by values [R, A] or [R, N, A], of those that the mask allows."""
    if mask is None:
        return values.argmax(dim=-1)
    import torch  # actors have none

    allowed = values.clamp(min=torch.finfo(values.dtype).min)
    return torch.where(mask.reshape(values.shape) != 0, allowed, -torch.inf).argmax(dim=-1)


_NO_STATE: dict[str, Array] = {}


class NetworkForward:
    """`Forward` of a feed-forward network on a device of this process.

    `run` is the network's own method, from tensors or dicts of them, and noise, to a tensor. `module`, if given,
    computes the same, with `then` applied to what it gives: small MLPs on the CPU run on live numpy views of its
    weights, faster than through torch. Noise is one for all rows [P] or one for each [R, P]; without, noisy networks
    have their mean weights.
    """

    initial_state: Mapping[str, Array] = _NO_STATE

    def __init__(
        self,
        run: Callable[..., Tensor],
        module: nn.Module | None,
        device: torch.device,
        *,
        then: Callable[[Array], Array] | None = None,
    ) -> None:
        from ding_like.model.numpy_networks import numpy_forward

        self._run = run
        self._device = device
        self._fast = numpy_forward(module, then=then) if module is not None and device.type == "cpu" else None

    def __call__(self, obs: Obs, state: Mapping[str, Array] = _NO_STATE) -> tuple[Array, Mapping[str, Array]]:
        """Return (output [R, ...], no state) for observations [R, O...], or a dict of them, and `noise` if it is in."""
        return self.array(obs, state.get("noise")), _NO_STATE

    def array(self, obs: Obs, noise: Array | None = None) -> Array:
        """Return the output [R, ...] on the host."""
        if self._fast is not None and not isinstance(obs, dict):
            return self._fast(obs, noise)
        import torch

        return self.tensor(obs, None if noise is None else torch.from_numpy(noise)).cpu().numpy()

    def tensor(self, obs: Obs | Tensor | dict[str, Tensor], noise: Tensor | None = None) -> Tensor:
        """Return the output [R, ...] on the network's device."""
        import torch

        if self._fast is not None and not isinstance(obs, dict):
            rows = obs.numpy() if isinstance(obs, torch.Tensor) else obs
            return torch.from_numpy(self._fast(rows, None if noise is None else noise.numpy()))
        own = () if noise is None else (noise.to(self._device),)
        with torch.no_grad():
            return self._run(to_device(obs, self._device), *own)

    def run_tensors(self, obs: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what a call does, of tensors and by the network itself: agents are exported with it."""
        return self._run(obs), {}


# (observations [B, T, O...] or a dict of them, state [B, S...] by name) -> (output [B, T, ...], state behind the last
# step).
RunSequence: TypeAlias = "Callable[[ObsTensor, Mapping[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]"


class RecurrentForward:
    """`Forward` of a recurrent network on a device of this process, whose state is columns that go in and come out.

    `run` is the network's own method over sequences; here every row is a sequence of one step. `initial_state` is the
    state before an episode, [S...] by name.
    """

    def __init__(self, run: RunSequence, initial_state: Mapping[str, Array], device: torch.device) -> None:
        self._run = run
        self.initial_state: Mapping[str, Array] = dict(initial_state)
        self._device = device

    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        """Return (output [R, ...], new state [R, S...]) for observations [R, O...] and the state before them."""
        import torch

        with torch.no_grad():
            output, after = self.run_tensors(to_device(obs, self._device), to_device(dict(state), self._device))
        return output.cpu().numpy(), {name: column.cpu().numpy() for name, column in after.items()}

    def run_tensors(self, obs: ObsTensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what a call does, of tensors: agents are exported with it."""
        output, after = self._run(map_obs(lambda part: part.unsqueeze(1), obs), state)
        return output[:, 0], after


# Any: arrays or tensors in, tensors out, in a dict or not.
def to_device(obs: Any, device: torch.device) -> Any:
    """Return observations as tensors on a device."""
    import torch

    return map_obs(partial(torch.as_tensor, device=device), obs)


class LaneState:
    """Columns of recurrent state [S...] by lane; a lane that was not seen before has the initial state."""

    def __init__(self, initial: Mapping[str, Array]) -> None:
        self._initial = {name: np.array(value) for name, value in initial.items()}
        self._columns = {name: value[None][:0] for name, value in self._initial.items()}  # [E, S...]

    def take(self, lanes: Array, is_first: Array) -> dict[str, Array]:
        """Return fresh columns [R, S...] of `lanes` [R], the initial state where `is_first` [R]."""
        num_lanes = int(lanes.max()) + 1 if len(lanes) else 0
        for name, column in self._columns.items():
            missing = num_lanes - len(column)
            if missing > 0:
                new = np.broadcast_to(self._initial[name], (missing, *self._initial[name].shape))
                self._columns[name] = np.concatenate([column, new])
        self.reset(lanes[is_first])
        return {name: column.take(lanes, axis=0) for name, column in self._columns.items()}

    def put(self, lanes: Array, state: Mapping[str, Array]) -> None:
        """Keep `state` [R, S...] for `lanes` [R]; raises SchemaError, keeping nothing, for other names or shapes."""
        given = {name: np.shape(column) for name, column in state.items()}
        expected = {name: (len(lanes), *value.shape) for name, value in self._initial.items()}
        if given != expected:
            raise SchemaError(
                f"the network gave recurrent state of shapes {given}, expected {expected}, the shapes of its "
                "initial_state for each row: return every column of state that went in"
            )
        for name, column in self._columns.items():
            column[lanes] = state[name]

    def reset(self, lanes: Array | None = None) -> None:
        """Give these lanes, or all, the initial state again."""
        if lanes is None:
            self._columns = {name: column[:0] for name, column in self._columns.items()}
            return
        for name, column in self._columns.items():
            column[lanes[lanes < len(column)]] = self._initial[name]

    def state_dict(self) -> State:
        return {name: column.copy() for name, column in self._columns.items()}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self._columns = {name: np.array(state[name]) for name in self._initial}


class ForwardActor(LaneState):
    """Actor that splits the mask from the observation, runs a network and chooses among its outputs.

    Recurrent state, where the network has any, is kept by lane and reset with every episode. The rows of such an actor
    hold what the network was given, as columns `state/<name>` [R, S...]. A network that takes noise is run under what
    `draw_noise(R, rng=rng)` gives [R, P] in each step.
    """

    def __init__(self, forward: Forward, choose: Choose, *, draw_noise: Callable[..., Array] | None = None) -> None:
        self.forward = forward  # may be replaced by one that computes the same elsewhere: `policy/forward.py`
        self.choose = choose  # among the network's outputs
        self.draw_noise = draw_noise  # None: the network is run without
        super().__init__(forward.initial_state)

    def act(
        self, obs: Obs, *, lanes: Array, is_first: Array, rng: np.random.Generator, **setting: float | Array
    ) -> dict[str, Array]:
        """Return `action` [R, ...] and what else the choice gives, for observations [R, O...] of the R `lanes`.

        Of a dict observation, the entry `action_mask` marks which discrete actions are legal; the network sees the
        rest.
        """
        obs, mask = split_mask(obs)
        given: Mapping[str, Array] = _NO_STATE
        if self.draw_noise is not None:
            given = {"noise": self.draw_noise(len(lanes), rng=rng)}
        if not self._columns:
            return self.choose(self.forward(obs, given)[0], mask, rng, setting)
        state = self.begin(self.take(lanes, is_first), is_first, rng)
        output, after = self.forward(obs, {**given, **state})
        self.put(lanes, after)
        chosen = self.choose(output, mask, rng, setting)
        return {**chosen, **{f"state/{name}": column for name, column in state.items()}}

    def begin(self, state: dict[str, Array], is_first: Array, rng: np.random.Generator) -> dict[str, Array]:
        """Return the state [R, S...] of lanes before they act; a subclass draws what an episode keeps."""
        return state


class ArmActor(ForwardActor):
    """Actor whose lanes draw an arm for each episode, one-hot in the network's state `arm` (Badia et al. 2020)."""

    def begin(self, state: dict[str, Array], is_first: Array, rng: np.random.Generator) -> dict[str, Array]:
        """Return the state of lanes, with a new arm for each that begins an episode."""
        arms = np.eye(state["arm"].shape[1], dtype=np.float32)
        state["arm"][is_first] = arms[rng.integers(len(arms), size=np.count_nonzero(is_first))]
        return state


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
        """Return (output [R, ...], new state [R, S...]); `state` has the network's noise too."""
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
        # Its rows are those of its `row_maker` where no subclass overrides `segment` alone.
        names = {"segment", "num_ready", "row_maker"}
        first: type = next((each for each in type(policy).__mro__ if names & vars(each).keys()), object)
        actor.forward = RemoteForward(None, actor.forward.initial_state)
        attributes = {}
        for name in _ATTRIBUTES:
            with suppress(NotImplementedError):  # it has none
                attributes[name] = policy.get_attribute(name)
        return cls(actor, policy.row_maker() if "row_maker" in vars(first) else policy, attributes)

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
