"""Networks that are run to act: an actor is a `Forward` and a choice among what it returns.

The forward pass may happen anywhere and in batches of several actors' rows (`types.Forward`); the choice and the noise
of noisy networks (Fortunato et al. 2018), with their random numbers, and the setting of the moment are made where the
actor is (`policy/choose.py`). Actors have no torch: what needs it imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ding_like.data.obs import map_obs, split_mask
from ding_like.errors import SchemaError
from ding_like.policy.choose import Choose
from ding_like.rl_utils.exploration import factorised_noise
from ding_like.types import Array, Forward, Obs, State

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ding_like.model.encoder import ObsTensor

_NO_STATE: dict[str, Array] = {}


class NetworkForward:
    """`Forward` of a feed-forward network on a device of this process.

    `run` is the network's own method, from tensors or dicts of them, and the noise of a noisy network, to a tensor.
    `module`, if given, computes the same, with `then` applied to what it gives: small MLPs on the CPU run on live numpy
    views of its weights, faster than through torch. Noise is one for all rows [P] or one for each [R, P]; None: the
    mean weights.
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
        from ding_like.model.numpy_forward import numpy_forward

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

        output: Array = self.tensor(obs, None if noise is None else torch.from_numpy(noise)).cpu().numpy()
        return output

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
        self.grow(int(lanes.max()) + 1 if len(lanes) else 0)
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

    def grow(self, num_lanes: int) -> None:
        """Have room for so many lanes, the new ones with the initial state; `take` sees to it for those it is asked."""
        for name, column in self._columns.items():
            missing = num_lanes - len(column)
            if missing > 0:
                new = np.broadcast_to(self._initial[name], (missing, *self._initial[name].shape))
                self._columns[name] = np.concatenate([column, new])

    def state_dict(self) -> State:
        return {name: column.copy() for name, column in self._columns.items()}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self._columns = {name: np.array(state[name]) for name in self._initial}


class ForwardActor:
    """Actor that splits the mask from the observation, runs a network and chooses among its outputs.

    Recurrent state, where the network has any, is kept by lane and reset with every episode. The rows of such an actor
    hold what the network was given, as columns `state/<name>` [R, S...]. A noisy network is run under `noise_size`
    numbers, drawn for each lane in each step.
    """

    def __init__(self, forward: Forward, choose: Choose, *, noise_size: int = 0) -> None:
        self.forward = forward  # may be replaced by one that computes the same elsewhere: `policy/remote_infer.py`
        self._choose = choose
        self._noise_size = noise_size
        self._remembers = bool(forward.initial_state)
        self._state = LaneState(forward.initial_state)

    def act(
        self, obs: Obs, *, lanes: Array, is_first: Array, rng: np.random.Generator, **setting: float | Array
    ) -> dict[str, Array]:
        """Return `action` [R, ...] and what else the choice gives, for observations [R, O...] of the R `lanes`.

        Of a dict observation, the entry `action_mask` marks which discrete actions are legal; the network sees the
        rest.
        """
        obs, mask = split_mask(obs)
        given: Mapping[str, Array] = _NO_STATE
        if self._noise_size:
            given = {"noise": factorised_noise(len(lanes), self._noise_size, rng=rng)}
        if not self._remembers:
            return self._choose(self.forward(obs, given)[0], mask, rng, setting)
        state = self._state.take(lanes, is_first)
        output, after = self.forward(obs, {**given, **state})
        self._state.put(lanes, after)
        chosen = self._choose(output, mask, rng, setting)
        return {**chosen, **{f"state/{name}": column for name, column in state.items()}}

    @property
    def choose(self) -> Choose:
        """What chooses among the network's outputs."""
        return self._choose

    def reset(self, lanes: Array | None = None) -> None:
        """Forget the recurrent state of these lanes, or of all."""
        self._state.reset(lanes)

    def state_dict(self) -> State:
        return self._state.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self._state.load_state_dict(state)
