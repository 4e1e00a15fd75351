"""Stand for the envs of a script that makes them itself and compiled its config from classes."""

from __future__ import annotations

from typing import Any, NoReturn

from ding_like.errors import EnvError


def script_env(**kwargs: Any) -> NoReturn:
    """Raise EnvError: nothing here knows how the script makes its envs."""
    raise EnvError(
        "this config was compiled from classes by a script that makes its envs itself, so they cannot be made from the "
        "config. Pass env_setting=(env_fn, collector env configs, evaluator env configs), or name the env: "
        "create_config.env=dict(type='gymnasium') and env.env_id."
    )
