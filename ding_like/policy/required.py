"""Checks of a user's policy: which methods it lacks, before anything calls them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ding_like.data.rows import check_logged, method_name
from ding_like.errors import ConfigError, SchemaError
from ding_like.types import PolicyLike

PAGE = "docs/own_algorithm.md"


def lacks(policy: PolicyLike, what: str, why: str) -> ConfigError:
    """Return the error of a policy that lacks something."""
    name = getattr(policy.cfg, "type", "") or type(policy).__name__
    return ConfigError(
        f"policy '{name}' ({type(policy).__name__}) has no {what}, {why}; {PAGE} shows a policy of one's own."
    )


def check_learns(policy: PolicyLike, base: type[Any]) -> None:
    """Raise ConfigError unless a policy has `grad` and `apply`, or DI-engine's `_forward_learn`."""
    if callable(getattr(policy, "_forward_learn", None)):
        return
    missing = _not_own(policy, base, ("grad", "apply"))
    if missing:
        why = {"grad": "which fills the gradient of a minibatch", "apply": "which takes one step of the optimizer"}
        raise lacks(
            policy,
            " and no ".join(f"{name}()" for name in missing),
            f"{' and '.join(why[name] for name in missing)} (in DI-engine's style: _forward_learn)",
        )


def checked_grad(policy: PolicyLike) -> Callable[[Any], Any]:
    """Return a policy's `grad`; one of the user's own is held to what it must return."""
    return policy.grad if type(policy).__module__.startswith("ding_like.") else partial(_checked_grad, policy)


def _checked_grad(policy: PolicyLike, minibatch: Any, **kwargs: Any) -> Any:
    found = policy.grad(minibatch, **kwargs)
    name = method_name(policy.grad)
    if not isinstance(found, tuple) or len(found) != 2:
        seen = "None" if found is None else f"a {type(found).__name__}"
        raise SchemaError(
            f"{name} returned {seen}; it must return two values, what to log and the priorities or None, as in "
            "return {'total_loss': loss.detach()}, None."
        )
    check_logged(found[0], name, policy._monitor_vars_learn())
    return found


def _not_own(policy: PolicyLike, base: type[Any], names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(type(policy), name) is getattr(base, name)]


def check_overrides(policy: PolicyLike, base: type[Any]) -> None:
    """Raise ConfigError for a method of the user's own that takes fewer arguments than the one that it overrides."""
    classes = type(policy).__mro__
    for cls in (each for each in classes if not each.__module__.startswith("ding_like.") and issubclass(each, base)):
        for name, own in vars(cls).items():
            over = next((vars(each)[name] for each in classes[classes.index(cls) + 1 :] if name in vars(each)), None)
            if name.startswith("__") or not (inspect.isfunction(own) and inspect.isfunction(over)):
                continue
            takes = inspect.signature(over).parameters.values()
            names = [it.name for it in takes if it.kind == it.POSITIONAL_OR_KEYWORD and it.default is it.empty]
            try:
                inspect.signature(own).bind_partial(*names)
            except TypeError:
                at = f"{own.__code__.co_filename}:{own.__code__.co_firstlineno}"
                raise ConfigError(
                    f"{cls.__name__}.{name} ({at}) takes fewer arguments than the method that it overrides, which is "
                    f"called as {name}({', '.join(names[1:])})."
                ) from None


def check_acts(policy: PolicyLike, mode: str) -> None:
    """Raise ConfigError unless a policy has an actor of a mode, or DI-engine's methods."""
    if callable(getattr(policy, f"_forward_{mode}", None)):
        if mode == "collect" and not callable(getattr(policy, "_process_transition", None)):
            raise lacks(policy, "_process_transition()", "which makes a row, and goes with its _forward_collect()")
        return
    if not hasattr(policy, f"_{mode}_actor"):
        enabled = policy.get_attribute("enabled")
        if mode not in enabled:
            raise ConfigError(f"policy '{policy.cfg.type}' was built for {', '.join(enabled)} alone, not for {mode}.")
        raise lacks(
            policy,
            f"actor to {mode} with",
            f"_init_{mode}() must set self._{mode}_actor (in DI-engine's style: _forward_{mode})",
        )
