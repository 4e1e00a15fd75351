"""Run networks, and act on their outputs: an actor is a `Forward` and a choice among what it returns.

The forward pass may happen anywhere and in batches of several actors' rows (`types.Forward`, asked by an `Infer`); the
choice, with its random numbers and the setting of the moment, is made where the actor is (`policy/choose.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ding_like.data.obs import map_obs, split_mask
from ding_like.errors import SchemaError
from ding_like.policy.choose import Choose
from ding_like.types import Array, Forward, Obs, State

if TYPE_CHECKING:  # actors have no torch: what needs it imports it
    import torch
    from torch import Tensor, nn

_NO_STATE: dict[str, Array] = {}


class NetworkForward:
    """Be the `Forward` of a feed-forward network on a device of this process.

    `run` is the network's own method, from tensors or dicts of them to a tensor. `module`, if given, computes the same,
    with `then` applied to what it gives: small MLPs on the CPU run on live numpy views of its weights, faster than
    through torch.
    """

    initial_state: Mapping[str, Array] = _NO_STATE

    # Any: a tensor or a dict of them, as the network takes it.
    def __init__(
        self,
        run: Callable[[Any], Tensor],
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
        """Return (output [R, ...], no state) for observations [R, O...], or a dict of them."""
        if self._fast is not None and not isinstance(obs, dict):  # here too: a call less in every step of a collector
            return self._fast(obs), _NO_STATE
        return self.array(obs), _NO_STATE

    def array(self, obs: Obs) -> Array:
        """Return the output [R, ...] on the host."""
        if self._fast is not None and not isinstance(obs, dict):
            return self._fast(obs)
        output: Array = self.tensor(obs).cpu().numpy()
        return output

    def tensor(self, obs: Obs | Tensor | dict[str, Tensor]) -> Tensor:
        """Return the output [R, ...] on the network's device."""
        import torch

        if self._fast is not None and not isinstance(obs, dict):
            return torch.from_numpy(self._fast(obs.numpy() if isinstance(obs, torch.Tensor) else obs))
        with torch.no_grad():
            return self._run(to_device(obs, self._device))

    # Any: a tensor or a dict of them, as the network takes it.
    def run_tensors(self, obs: Any, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what a call does, of tensors and by the network itself: agents are exported with it."""
        return self._run(obs), {}


# Any: arrays or tensors in, tensors out, in a dict or not.
def to_device(obs: Any, device: torch.device) -> Any:
    """Return observations as tensors on a device."""
    import torch

    return map_obs(partial(torch.as_tensor, device=device), obs)


class Infer(Protocol):
    """Answer an actor: run its network, here (`LocalInfer`) or elsewhere, and keep the state of its lanes."""

    def __call__(
        self, obs: Obs, columns: Mapping[str, Array], *, lanes: Array, is_first: Array
    ) -> tuple[Array, Mapping[str, Array]]:
        """Return (output [R, ...], the recurrent state that the network was given [R, S...] by name).

        `columns` [R, ...] are what else it takes, noise say; an episode begins in the lanes where `is_first` [R].
        """

    def reset(self, lanes: Array | None = None) -> None: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class LaneState:
    """Keep columns of recurrent state [S...] by lane; a lane that was not seen before has the initial state."""

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


class LocalInfer:
    """Ask a `Forward` of this process, and keep the recurrent state of its lanes."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self._state = LaneState(forward.initial_state) if forward.initial_state else None

    def __call__(
        self, obs: Obs, columns: Mapping[str, Array], *, lanes: Array, is_first: Array
    ) -> tuple[Array, Mapping[str, Array]]:
        """Return (output [R, ...], the state that the network was given); see `Infer`."""
        if self._state is None:
            return self.forward(obs, columns)[0], _NO_STATE
        state = self._state.take(lanes, is_first)
        output, after = self.forward(obs, {**columns, **state})
        self._state.put(lanes, after)
        return output, state

    def reset(self, lanes: Array | None = None) -> None:
        """Forget the recurrent state of these lanes, or of all."""
        if self._state is not None:
            self._state.reset(lanes)

    def state_dict(self) -> State:
        return {} if self._state is None else self._state.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        if self._state is not None:
            self._state.load_state_dict(state)


class ForwardActor:
    """Act: split the mask from the observation, ask the network, choose.

    Recurrent state, where the network has any, is kept by lane and reset with every episode. The rows of such an
    actor hold what the network was given, as columns `state/<name>` [R, S...].
    """

    def __init__(self, forward: Forward, choose: Choose) -> None:
        self.infer: Infer = LocalInfer(forward)  # may be replaced: `policy/remote_infer.py` does
        self._choose = choose

    def act(
        self, obs: Obs, *, lanes: Array, is_first: Array, rng: np.random.Generator, **setting: float | Array
    ) -> dict[str, Array]:
        """Return `action` [R, ...] and what else the choice says, for observations [R, O...] of the R `lanes`.

        Of a dict observation, the entry `action_mask` says which discrete actions are legal; the network sees the rest.
        """
        obs, mask = split_mask(obs)
        output, state = self.infer(obs, self._columns(len(lanes), rng), lanes=lanes, is_first=is_first)
        chosen = self._choose(output, mask, rng, setting)
        return {**chosen, **{f"state/{name}": column for name, column in state.items()}} if state else chosen

    def _columns(self, num_rows: int, rng: np.random.Generator) -> Mapping[str, Array]:
        """Return what the network takes beside observations and recurrent state, [R, ...] by name."""
        return _NO_STATE

    @property
    def choose(self) -> Choose:
        """Return what chooses among the network's outputs."""
        return self._choose

    def reset(self, lanes: Array | None = None) -> None:
        """Forget the recurrent state of these lanes, or of all."""
        self.infer.reset(lanes)

    def state_dict(self) -> State:
        return self.infer.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self.infer.load_state_dict(state)
