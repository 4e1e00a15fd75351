"""Wrappers of models, for policies written for DI-engine: choose actions, follow another model, keep states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ding_like.errors import ConfigError, SchemaError


class BaseModelWrapper:
    """Model with `reset`; all other attributes are those of the model inside."""

    def __init__(self, model: nn.Module | BaseModelWrapper) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        if name == "_model":  # while a copy is made, which has none yet
            raise AttributeError(name)
        return getattr(self._model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model's `forward` returns."""
        return self._model.forward(*args, **kwargs)

    def reset(self, **kwargs: Any) -> None:
        """Reset the wrapper inside, if there is one."""
        if isinstance(self._model, BaseModelWrapper):
            self._model.reset(**kwargs)


class ArgmaxSampleWrapper(BaseModelWrapper):
    """Model whose output has `action`: the one of the largest `logit`, legal by its `action_mask` if it has one."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the model's output with `action` [B]; lists of logits give lists of actions."""
        output = dict(self._model.forward(*args, **kwargs))
        logit, mask = output["logit"], output.get("action_mask")
        if isinstance(logit, Sequence):
            masks = [None] * len(logit) if mask is None else mask
            output["action"] = [self._choose(*each) for each in zip(logit, masks, strict=True)]
        else:
            output["action"] = self._choose(logit, mask)
        return output

    def _choose(self, logit: Tensor, mask: Tensor | None) -> Tensor:
        return _legal(logit, mask).argmax(dim=-1)


class MultinomialSampleWrapper(ArgmaxSampleWrapper):
    """Model whose output has `action`, drawn by the softmax of `logit`; `generator` is None for torch's global one."""

    def __init__(self, model: nn.Module | BaseModelWrapper, generator: torch.Generator | None = None) -> None:
        super().__init__(model)
        self._generator = generator

    def _choose(self, logit: Tensor, mask: Tensor | None) -> Tensor:
        odds = _legal(logit, mask).softmax(dim=-1)
        drawn = torch.multinomial(odds.reshape(-1, odds.shape[-1]), 1, generator=self._generator)
        return drawn.reshape(odds.shape[:-1])


class EpsGreedySampleWrapper(MultinomialSampleWrapper):
    """Model whose output has `action`: the one of the largest `logit`, or any legal one with probability `eps`."""

    def forward(self, *args: Any, eps: float, **kwargs: Any) -> dict[str, Any]:
        """Return the model's output with `action` [B]; `eps` does not go on to the model."""
        self._eps = eps
        return super().forward(*args, **kwargs)

    def _choose(self, logit: Tensor, mask: Tensor | None) -> Tensor:
        best = _legal(logit, mask).argmax(dim=-1)
        chance = torch.rand(best.shape, generator=self._generator, device=best.device)
        return torch.where(chance < self._eps, super()._choose(torch.zeros_like(logit), mask), best)


class TargetNetworkWrapper(BaseModelWrapper):
    """Model that follows another one.

    With `update_type='assign'` every `freq`-th `update` copies the other's weights, with 'momentum' each moves by the
    share `theta` towards them; both stand in `update_kwargs`. Raises ConfigError for others.
    """

    def __init__(
        self,
        model: nn.Module | BaseModelWrapper,
        update_type: Literal["assign", "momentum"],
        update_kwargs: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(model)
        given, name = dict(update_kwargs or {}), {"assign": "freq", "momentum": "theta"}.get(update_type)
        if name is None or set(given) != {name}:
            raise ConfigError(
                f"model_wrap: update_type is {update_type!r} with update_kwargs {given}, expected 'assign' with "
                "dict(freq=100), or 'momentum' with dict(theta=0.005)."
            )
        self._freq, self._theta, self._count = int(given.get("freq", 1)), given.get("theta", 1.0), 0

    def reset(self, **kwargs: Any) -> None:
        """Count updates from 0 again."""
        self._count = 0
        super().reset(**kwargs)

    @torch.no_grad()
    def update(self, state_dict: Mapping[str, Tensor], direct: bool = False) -> None:
        """Follow the weights of `state_dict`; with `direct` they are copied in any case."""
        self._count += 1
        if not direct and self._count % self._freq:
            return
        for name, value in self._model.state_dict().items():
            share = self._theta if value.is_floating_point() and not direct else 1.0
            value.copy_(state_dict[name] if share == 1.0 else value.lerp(state_dict[name], share))


class HiddenStateWrapper(BaseModelWrapper):
    """Model with memory whose states are kept, one for each of `state_num` envs.

    The model is called with a dict `{'obs', 'prev_state'}` and returns 'next_state', both lists of one state an env.
    `init_fn()` is the state before an episode. With `save_prev_state` the output has 'prev_state' too.
    """

    def __init__(
        self,
        model: nn.Module | BaseModelWrapper,
        state_num: int,
        save_prev_state: bool = False,
        init_fn: Callable[[], Any] = lambda: None,
    ) -> None:
        super().__init__(model)
        self._saves, self._init_fn = save_prev_state, init_fn
        self._states = {each: init_fn() for each in range(state_num)}

    def forward(self, data: Mapping[str, Any], data_id: Sequence[int] | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return the model's output for the envs of `data_id` (None: all), whose next states are kept."""
        ids = list(self._states) if data_id is None else list(data_id)
        before = [self._states[each] for each in ids]
        output = dict(self._model.forward({**data, "prev_state": before}, **kwargs))
        behind = output.pop("next_state")
        if len(behind) != len(ids):
            raise SchemaError(f"the model returned {len(behind)} next states for {len(ids)} envs, expected as many.")
        self._states.update(zip(ids, behind, strict=True))
        return {**output, "prev_state": before} if self._saves else output

    def reset(self, state: Sequence[Any] | None = None, data_id: Sequence[int] | None = None, **kwargs: Any) -> None:
        """Give the envs of `data_id` (None: all) the states in `state` (None: those before an episode)."""
        ids = list(self._states) if data_id is None else list(data_id)
        states = [self._init_fn() for _ in ids] if state is None else state
        self._states.update(zip(ids, states, strict=True))
        super().reset(**kwargs)


_WRAPPERS: dict[str, type[BaseModelWrapper]] = {
    "base": BaseModelWrapper,
    "argmax_sample": ArgmaxSampleWrapper,
    "eps_greedy_sample": EpsGreedySampleWrapper,
    "multinomial_sample": MultinomialSampleWrapper,
    "target": TargetNetworkWrapper,
    "hidden_state": HiddenStateWrapper,
}


def model_wrap(model: nn.Module | BaseModelWrapper, wrapper_name: str | None = None, **kwargs: Any) -> Any:
    """Return a model inside the wrapper of a name; `kwargs` are the wrapper's. A bare model gets 'base' first.

    Raises ConfigError for a name that is not known.
    """
    if not isinstance(model, BaseModelWrapper):
        model = BaseModelWrapper(model)
    if wrapper_name in (None, "base"):
        return model
    if wrapper_name not in _WRAPPERS:
        raise ConfigError(f"model_wrap: unknown wrapper {wrapper_name!r}; there are: {', '.join(_WRAPPERS)}.")
    return _WRAPPERS[wrapper_name](model, **kwargs)


def _legal(logit: Tensor, mask: Tensor | None) -> Tensor:
    return logit if mask is None else logit.masked_fill(mask == 0, -torch.inf)
