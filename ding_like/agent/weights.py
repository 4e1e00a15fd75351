"""Make the policy of a run's agent, and load a checkpoint's weights into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ding_like.agent.checkpoints import last_checkpoint, no_best
from ding_like.agent.description import AgentDescription
from ding_like.comm.flat_state import flatten_state
from ding_like.data.modes import EvalMode
from ding_like.errors import CheckpointError, ConfigError, DingError, RegistryError
from ding_like.pipeline.components import build_policy
from ding_like.pipeline.record import BEST_CHECKPOINT
from ding_like.pipeline.statistics import load_agent
from ding_like.report.runs import refuse_seeds
from ding_like.types import State

if TYPE_CHECKING:
    from ding_like.policy import Policy


def make_policy(
    description: AgentDescription,
    *,
    modes: Sequence[str],
    device: str | torch.device | None = None,
    model: torch.nn.Module | None = None,
    seed: int | None = None,
) -> Policy:
    """Return the policy of a description, its weights still to be loaded.

    `device` None is a GPU where the run trained on one and there is one, else the CPU. Raises ConfigError for a policy
    or a model of the user's own whose module cannot be imported, and for a run that was given its model as an object.
    """
    if description.has_own_model and model is None:
        raise ConfigError(
            "this run was given its model as an object (model=...), which its folder does not hold: make the same "
            "torch module and give it too, model=MODEL."
        )
    section = {**description.policy, "cuda": _device_of(description, device)}
    # The caller's random numbers stay as they are, whatever drawing the first weights takes.
    with _naming_modules(description), torch.random.fork_rng(devices=[]):
        return build_policy(section, model=model, modes=list(modes), seed=seed)


def _device_of(description: AgentDescription, device: str | torch.device | None) -> bool | str:
    asked = description.policy.get("cuda", False)
    if device is None:
        has_gpu = torch.cuda.is_available()
        return asked if has_gpu else False
    named = torch.device(device)
    return False if named.type == "cpu" else str(named)


@contextmanager
def _naming_modules(description: AgentDescription) -> Iterator[None]:
    policy = description.policy
    own = [*_listed(policy.get("import_names")), *_listed(policy.get("model", {}).get("import_names"))]
    try:
        yield
    except RegistryError as error:
        modules = f"import_names {own}" if own else "no import_names"
        raise ConfigError(
            f"the policy '{description.policy_name}' of this run cannot be made: {error}\n  The run has {modules}: "
            "a module must be importable where the agent is loaded: put its folder on PYTHONPATH, or import the "
            "module that registers the policy first."
        ) from error


def _listed(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def load_weights(mode: EvalMode, state: State, path: Path) -> Any:
    """Load a checkpoint's weights into a mode; return the statistics of wrappers in it.

    Raises CheckpointError for one of another model, and for numbers that are not finite.
    """
    own = mode.state_dict()
    try:
        statistics = load_agent(mode, dict(state))
    except DingError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is no checkpoint of this run's policy ({type(error).__name__}: {error})."
        ) from error
    expected, given = flatten_state(own), flatten_state({name: state[name] for name in own if name in state})
    for name, tensor in given.items():
        if name in expected and tensor.dtype != expected[name].dtype:
            raise CheckpointError(
                f"{path} has {name} as {tensor.dtype}, expected {expected[name].dtype}: it is of another model."
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{path} has numbers in {name} that are not finite: its training has failed.")
    return statistics


def counter(state: Mapping[str, Any], name: str) -> int | None:
    """Return a number of a checkpoint, None where it does not say it."""
    value = state.get(name)
    return None if value is None else int(value)


def run_folder(path: str | Path) -> Path:
    """Return the folder of the run that `path` is, or lies in. Raises ConfigError for a file of no run."""
    path = Path(path)
    return _folder_of(path) if path.is_file() else path


def find_checkpoint(folder: Path, which: str | Path) -> Path:
    """Return a checkpoint of a run's folder: the "best", the "last", or a file. Raises CheckpointError without one."""
    if which in ("best", "last"):
        refuse_seeds(folder)
    if which == "best":
        best = folder / BEST_CHECKPOINT
        if not best.is_file():
            raise CheckpointError(no_best(folder, "which='last' (--ckpt last)"))
        return best
    if which == "last":
        return last_checkpoint(folder)
    for file in (Path(which), folder / which, folder / "ckpt" / which):
        if file.is_file():
            return file
    raise CheckpointError(
        f"there is no checkpoint '{which}'; which is 'best', 'last' or a file's path (--ckpt takes the same)."
    )


def _folder_of(checkpoint: Path) -> Path:
    for folder in checkpoint.resolve().parents:
        if (folder / "total_config.py").is_file() or (folder / "agent.json").is_file():
            return folder
    raise ConfigError(
        f"{checkpoint} lies in no run's folder, which says what it is of: give the folder, and the file as which='...'."
    )
