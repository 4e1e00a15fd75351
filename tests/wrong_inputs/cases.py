"""Say what one wrong input is: what was typed, what must be answered, and the fix that the answer names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# The config of the tables: what a new user writes after the README.
MY_CONFIG = """\
main_config = dict(
    exp_name="my_exp",
    env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1),
    policy=dict(
        learn=dict(batch_size=8, update_per_collect=1),
        collect=dict(n_sample=8),
    ),
)
create_config = dict(env=dict(type="gymnasium"), policy=dict(type="dqn"))
"""

SERIAL = "ding -m serial -c my_config.py"
ONPOLICY = "ding -m serial_onpolicy -c my_config.py"


class Case(NamedTuple):
    """One wrong input. What is typed is a `ding` command, or a Python script if it does not begin with "ding "."""

    name: str
    typed: str
    says: tuple[str, ...]  # all of these stand in the answer: the fault, and the fix
    fix: str  # what the answer tells to type; the same as `typed` where the files alone are mended
    config: str = ""  # lines that follow those of my_config.py
    fixed_config: str | None = None  # the lines in their place; None: as they were
    files: Mapping[str, str | bytes] = {}  # other files there; None in place of a text: there is none
    fixed_files: Mapping[str, str | bytes] = {}  # of those, what the fix changes
    shows: str = ""  # what the answer to the fix holds
    needs_run: bool = False  # the folder holds a short run, my_exp
    missing: tuple[str, ...] = ()  # packages that are not installed
    status: int = 1
    fix_installs: bool = False  # the fix installs a package, which tests/wrong_inputs/test_extras.py does


def key(name: str, wrong: str, right: str, *says: str, config: str = "", shows: str = "", base: str = SERIAL) -> Case:
    """Return the case of a KEY=VALUE of the command line."""
    fix = f"{base} {right}".rstrip()
    return Case(name, f"{base} {wrong}", says, fix, config=config, shows=shows)


def lines(name: str, wrong: str, right: str, *says: str, base: str = SERIAL) -> Case:
    """Return the case of lines of a config file."""
    return Case(name, base, says, base, config=wrong, fixed_config=right)
