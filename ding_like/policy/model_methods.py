"""The model of a policy: the arguments that a config may set, how it is built, and what the policy calls of it.

Every policy declares what it calls in `model_methods`. Models of the package have it; one of the user's own is asked
for one batch of observations when the policy is built, so that a missing method or a wrong shape is one message then.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from easydict import EasyDict
from torch import Tensor, nn

from ding_like.config.report import suggestion
from ding_like.config.tree import with_objects
from ding_like.data.rows import method_name
from ding_like.errors import ConfigError, DingError, RegistryError, describe_error, raised_at
from ding_like.types import Config
from ding_like.utils.bounds import ANY_NUMBER, FINITE, FROM_0, FROM_1, Bounds
from ding_like.utils.processes import check_memory
from ding_like.utils.registries import MODEL_REGISTRY

PAGE = "docs/own_model.md"
_BATCH = 5  # observations of a probe; one more where another axis is as long
_ONE_HOT = "one_hot"


class ModelMethod(NamedTuple):
    """Method of a model that a policy calls: what it is given and what is expected, one string of axes per tensor.

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
    # An attribute that is read may be anything but None, a method must be callable.
    found = {method: getattr(model, method.name, None) for method in methods}
    if missing := [each for each, own in found.items() if own is None or not (each.takes is None or callable(own))]:
        lines = "".join(f"\n  {method}" for method in missing)
        raise ConfigError(
            f"{policy.__name__} calls what its model {type(model).__name__} does not have:{lines}\n"
            f"  obs is [B, O...], B a batch and A the actions; {PAGE} says what each policy calls. Without a model of "
            "your own, leave model= and policy.model.type out."
        )
    if obs_shape is not None and not type(model).__module__.startswith("ding_like."):
        probe_model(model, methods, policy=policy, obs_shape=obs_shape, sizes=sizes())


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
        raise ConfigError(
            f"{about} raised for {shown}: {describe_error(error)}; {PAGE} shows a model of one's own."
        ) from error
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


logger = logging.getLogger(__name__)

# What torch raises where it cannot allocate a layer.
_NO_MEMORY = re.compile(r"can't allocate memory|[Ss]torage size calculation overflowed|out of memory")
# What a policy's section says of the model beside its arguments.
_NO_ARGUMENTS = ("type", "import_names", "cfg_type")
_SHAPES = ("obs_shape", "action_shape", "action_mask")  # the env's: a run fills them in


def model_faults(policy: type[Any], section: Config) -> Iterator[tuple[str, str]]:
    """Yield (path, message) for what the model of a policy class does not take of `section`, that of its config."""
    model = section.get("model") or {}
    default, modules = _default_model(policy, section)
    name = model.get("type", default)
    try:
        cls: Any = MODEL_REGISTRY.get(name, model.get("import_names", modules)) if name else None
    except RegistryError as error:
        yield "model.type", str(error)
        return
    known = arguments_of(cls)
    if known is None:
        return
    settable = {key: default for key, (default, _) in known.items() if key not in _SHAPES}
    for key, value in model.items():
        if key in _NO_ARGUMENTS or key in _SHAPES:
            continue
        if key not in known:
            yield f"model.{key}", f"unknown key of model '{name}'; {_meant(key, settable)}"
        else:
            yield from _value_faults(key, value, known[key][1], is_ours=cls.__module__.startswith("ding_like."))


def build_model(section: Config, default: Callable[[], tuple[str, Sequence[str]]]) -> torch.nn.Module:
    """Return the model of a policy's section; `default` gives (name, import_names) where it names none.

    Raises ConfigError for arguments that the model does not take or memory does not hold, and where code of the user's
    own raises.
    """
    settings = with_objects(section.get("model") or {})
    named = ("", ()) if "type" in settings else default()
    if not _names_model(named):
        raise ConfigError(
            f"{method_name(default)} returned {named!r}; it must return the model's name and the modules that register "
            "it, as in return 'dqn', []."
        )
    name, import_names = named
    name, import_names = settings.pop("type", name), settings.pop("import_names", import_names)
    settings.pop("cfg_type", None)
    _check_weights_memory(settings)
    try:
        model: torch.nn.Module = MODEL_REGISTRY.build(name, import_names=import_names, **settings)
    except TypeError as error:
        known = arguments_of(MODEL_REGISTRY.get(name, import_names))
        own = "" if name in MODEL_REGISTRY.registered() else "; docs/own_model.md names what a model is given"
        takes = "" if known is None else f" It takes: {', '.join(known)}{own}."
        raise ConfigError(f"policy.model does not fit model '{name}': {describe_error(error)}.{takes}") from error
    except Exception as error:  # a user's model may raise anything; errors of our code keep their traceback
        if _NO_MEMORY.search(str(error)):
            sizes = {key: value for key, value in settings.items() if key not in _SHAPES and _numbers(value)}
            largest = max(sizes, key=lambda key: max(_numbers(sizes[key])), default="")
            raise ConfigError(
                f"policy.model does not fit into memory ({describe_error(error)}): give smaller sizes; the largest is "
                f"policy.model.{largest}={sizes.get(largest)}."
            ) from error
        if isinstance(error, DingError) or not raised_at(error):
            raise
        raise ConfigError(f"policy.model: model '{name}' cannot be made: {describe_error(error)}.") from error
    return model


def _check_weights_memory(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for a list of layer widths whose weights memory does not hold."""
    for key, value in settings.items():
        if isinstance(value, (list, tuple)) and key not in _SHAPES and len(_numbers(value)) == len(value):
            check_memory(
                sum(4 * width * other for width, other in pairwise(value)),  # float32
                what=f"policy.model.{key} is {list(value)}, which",
                fix="give smaller widths",
            )


def _numbers(value: Any) -> list[int]:
    """Return the whole numbers of a size or a list of them."""
    return [each for each in (value if isinstance(value, (list, tuple)) else [value]) if type(each) is int]


def arguments_of(cls: Any) -> dict[str, tuple[Any, str]] | None:
    """Return {argument: (default, annotation)} of a model's constructor, with those that it hands to its base class.

    None where it takes any: a constructor of a class without such a base, or a function, with `**kwargs`.
    """
    cls = getattr(cls, "arguments_of", cls)
    bases = [base for base in inspect.getmro(cls) if "__init__" in vars(base)] if inspect.isclass(cls) else [cls]
    found: dict[str, tuple[Any, str]] = {}
    for base in bases:
        if base is torch.nn.Module:
            break
        try:
            parameters = inspect.signature(base).parameters.values()
        except (TypeError, ValueError):  # of a class written in C: nothing is known
            return None
        for each in parameters:
            if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD):
                found.setdefault(each.name, (each.default, str(each.annotation)))
        if all(each.kind is not each.VAR_KEYWORD for each in parameters):
            return found
    return None


def _default_model(policy: type[Any], section: Config) -> tuple[str, Sequence[str]]:
    """Return what a policy of this section would build; no name where only a policy that has been made knows."""
    unmade = object.__new__(policy)
    unmade._cfg = EasyDict(section)
    try:
        found: tuple[str, Sequence[str]] = unmade.default_model()
    except Exception as error:  # default_model() of a user's policy may need anything that its constructor makes
        logger.debug("%s.default_model() needs a policy that has been made: %s", policy.__name__, describe_error(error))
        return "", ()
    return found if _names_model(found) else ("", ())


def _names_model(found: Any) -> bool:
    return isinstance(found, (tuple, list)) and len(found) == 2


def _meant(key: str, known: Mapping[str, Any]) -> str:
    parts = [name for name in known if name.endswith(f"_{key}") or name.startswith(f"{key}_")]
    listed = f"its keys: {', '.join(known)}"
    if parts:
        return f"did you mean {' or '.join(map(repr, parts))}?\n{listed}"
    near = suggestion(key, known, known)
    return f"{near}\n{listed}" if near.startswith("did you mean") else listed


def _value_faults(key: str, value: Any, annotation: str, *, is_ours: bool) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a value, as far as the annotation of its argument tells.

    Of models that are not ours, numbers may be any: an int may be an axis, say.
    """
    kind = annotation.removesuffix(" | None")
    if kind in ("Sequence[int]", "list[int]") and isinstance(value, (bool, int, float)):
        yield f"model.{key}", f"expected a list of numbers, got {type(value).__name__} {value!r}; write [{value}]"
        return
    if is_ours and kind in ("Sequence[int]", "list[int]") and not all(type(each) is int for each in value or ()):
        yield f"model.{key}", f"is {value!r}; give a list of whole numbers, such as [64, 64]"
        return
    allowed = {"bool": (bool, "True or False"), "int": (int, "a whole number")}.get(kind) if is_ours else None
    if allowed and not isinstance(value, allowed[0]) and (value is not None or kind == annotation):
        yield f"model.{key}", f"is {value!r}; give {allowed[1]}"
        return
    sizes = FROM_1 if kind in ("Sequence[int]", "list[int]") else FROM_0 if kind == "int" else FINITE
    bounds: Bounds = sizes if is_ours else ANY_NUMBER
    for number in value if isinstance(value, (list, tuple)) else (value,):
        if not bounds.hold(number):
            yield f"model.{key}", f"is {value!r}; give {'each ' if bounds is FROM_1 else ''}{bounds}"
            return
