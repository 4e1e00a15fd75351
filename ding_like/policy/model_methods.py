"""Check that a model has what its policy calls, and gives what its policy expects.

Every policy declares what it calls in `model_methods`. Models of the package have it; one of the user's own is asked
for one batch of observations when the policy is built, so that a missing method or a wrong shape is one message then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ding_like.errors import ConfigError, DingError
from ding_like.utils.user_code import told

PAGE = "docs/own_model.md"
_BATCH = 5  # observations of a probe; one more where another axis is as long
_ONE_HOT = "one_hot"


class ModelMethod(NamedTuple):
    """Name what a policy calls of its model, what it gives it and what it expects, one string of axes per tensor.

    B is the batch, A the actions; other letters have any length that the policy's `_model_sizes` does not say, and a
    word stands for something else than a tensor. Only methods of `obs` and of `obs, action` are tried with a probe.
    """

    name: str
    takes: str | None = "obs"  # None: an attribute, which is read
    gives: tuple[str, ...] = ("B A",)

    def __str__(self) -> str:
        if self.takes is None:
            return self.name
        outputs = [f"[{', '.join(axes.split())}]" if axes.isupper() else axes for axes in self.gives]
        return f"{self.name}({self.takes}) -> {outputs[0] if len(outputs) == 1 else '(' + ', '.join(outputs) + ')'}"


def check_model(
    model: object,
    *,
    policy: type[Any],
    obs_shape: Any,  # what a config may hold; None: not known
    sizes: Callable[[], Mapping[str, int]],
) -> None:
    """Raise ConfigError for a model that lacks what a policy calls, all at once, or gives something else than expected.

    What it gives is asked of models of the user's own alone.
    """
    is_own = not policy.__module__.startswith("ding_like.")
    # A subclass of the user's own may call other methods than the policy that it is derived from.
    methods: Sequence[ModelMethod] = () if is_own and "model_methods" not in vars(policy) else policy.model_methods
    if not isinstance(model, nn.Module):
        hint = f"; give an instance of it: {model.__name__}(...)" if isinstance(model, type) else ""
        raise ConfigError(f"model is {model!r}, expected a torch.nn.Module{hint}.")
    if missing := [method for method in methods if not _has(model, method)]:
        lines = "".join(f"\n  {method}" for method in missing)
        raise ConfigError(
            f"{policy.__name__} calls what its model {type(model).__name__} does not have:{lines}\n"
            f"  obs is [B, O...], B a batch and A the actions; {PAGE} says what each policy calls. Without a model of "
            "your own, leave model= and policy.model.type out."
        )
    if obs_shape is not None and not type(model).__module__.startswith("ding_like."):
        probe_model(model, methods, policy=policy, obs_shape=obs_shape, sizes=sizes())


def _has(model: nn.Module, method: ModelMethod) -> bool:
    found = getattr(model, method.name, None)
    return found is not None if method.takes is None else callable(found)


def probe_model(
    model: nn.Module,
    methods: Sequence[ModelMethod],
    *,
    policy: type[Any],
    obs_shape: Any,  # what a config may hold
    sizes: Mapping[str, int],
) -> None:
    """Raise ConfigError unless the model's methods give what is expected of a batch of zeros."""
    batch = next(size for size in range(_BATCH, _BATCH + len(sizes) + 1) if size not in sizes.values())
    sizes = {**sizes, "B": batch}
    device = next((each.device for each in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    with torch.no_grad(), device, _as_it_was(model):
        for method in methods:
            given: dict[str, Any] = {"obs": _zeros(obs_shape, batch)}
            if "A" in sizes:
                given["action"] = torch.zeros(batch, sizes["A"])
            names = [] if method.takes is None else method.takes.split(", ")
            gives_tensors = all(axes.isupper() for axes in method.gives)
            if names and gives_tensors and all(name in given for name in names):
                _probe(policy.__name__, model, method, [given[name] for name in names], sizes)


def _probe(policy: str, model: nn.Module, method: ModelMethod, inputs: list[Any], sizes: Mapping[str, int]) -> None:
    about = f"{type(model).__name__}.{method.name}({method.takes})"
    shown = f"{method.takes} of shape {', '.join(map(_shape, inputs))}"
    try:
        output = getattr(model, method.name)(*inputs)
    except DingError:
        raise
    except Exception as error:  # a model may raise anything
        raise ConfigError(f"{about} raised for {shown}: {told(error)}; {PAGE} shows a model of one's own.") from error
    outputs = output if len(method.gives) > 1 and isinstance(output, (tuple, list)) else (output,)
    expected = [[sizes.get(axis, axis) for axis in axes.split()] for axes in method.gives]
    if len(outputs) != len(expected) or not all(map(_fits, outputs, expected)):
        wanted = ", ".join(f"[{', '.join(map(str, axes))}]" for axes in expected)
        raise ConfigError(
            f"{about} gave {', '.join(map(_shape, outputs))} for {shown}; {policy} expects "
            f"{method}, here {wanted}. {PAGE} says what the letters are."
        )


def _fits(output: Any, expected: Sequence[int | str]) -> bool:
    """Tell whether an output is a tensor of the expected axes; a letter stands for any length."""
    is_alike = isinstance(output, Tensor) and output.ndim == len(expected)
    return is_alike and all(
        isinstance(size, str) or size == own for size, own in zip(expected, output.shape, strict=True)
    )


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Leave the model's modes and torch's random numbers as they were."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, is_training in modes.items():
            module.training = is_training


def _zeros(shape: Any, batch: int) -> Any:
    """Return observations of a config's `obs_shape`."""
    if isinstance(shape, Mapping) and set(shape) == {_ONE_HOT}:
        counts = shape[_ONE_HOT]
        return torch.zeros((batch, len(counts)) if len(counts) > 1 else (batch,), dtype=torch.int64)
    if isinstance(shape, Mapping):
        return {key: _zeros(inner, batch) for key, inner in shape.items()}
    sizes = [shape] if isinstance(shape, int) else list(shape)
    return torch.zeros((batch, *sizes))


def _shape(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(list(value.shape))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_shape(inner)}" for key, inner in value.items()) + "}"
    return f"{type(value).__name__} {value!r}"[:60]
