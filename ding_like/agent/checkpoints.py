"""Checkpoints of a run: which one to act by, its weights in a policy, and what replaces it while it is served."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from ding_like.agent.description import AGENT_FILE, AgentDescription, as_list
from ding_like.comm.tensors import flatten_state
from ding_like.data.rows import EvalMode
from ding_like.errors import CheckpointError, ConfigError, DingError, RegistryError
from ding_like.pipeline.envs import build_policy
from ding_like.pipeline.record import BEST_CHECKPOINT
from ding_like.pipeline.statistics import load_agent
from ding_like.report.experiment import refuse_seeds
from ding_like.types import State
from ding_like.utils.checkpoint import load_state

if TYPE_CHECKING:
    from ding_like.policy import Policy

_ITERATION = re.compile(r"iteration_(\d{1,15})\.pth\.tar")
_UNREADABLE = 10**15  # more updates than any file name can give


class Candidate(NamedTuple):
    """File that may be served; one that was replaced is another candidate."""

    path: Path
    stamp: tuple[int, int, int]  # inode, mtime_ns, size

    @classmethod
    def of(cls, path: Path) -> Candidate | None:
        """Return the candidate of a file, None if it is missing."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(path, (found.st_ino, found.st_mtime_ns, found.st_size))


class CheckpointChoice:
    """Choice of 'best', 'newest' or a file in a run's folder, and what should replace the checkpoint that is served.

    The best and a file are replaced by their next content; the newest by one with more updates, never with fewer.
    Raises ConfigError without a folder, CheckpointError if the run has saved no such checkpoint yet.
    """

    def __init__(self, exp_name: str | Path, which: str) -> None:
        folder = Path(exp_name)
        self._updates: dict[Candidate, int | None] = {}  # of files whose names do not contain the number
        self._file: Path | None = None  # None: the newest of the folder
        self._folder = folder / "ckpt"
        if which == "newest":
            if not folder.is_dir():
                raise ConfigError(f"there is no folder '{folder}': give the exp_name of a run.")
            last_checkpoint(folder)
            return
        self._file = folder / BEST_CHECKPOINT if which == "best" else Path(which)
        if not self._file.is_file() and which == "best":
            raise CheckpointError(_no_best(folder, "--checkpoint newest"))
        if not self._file.is_file():
            raise CheckpointError(
                f"there is no checkpoint '{which}'; --checkpoint takes best, newest or a file's path."
            )

    def better(self, served: tuple[Candidate, int | None] | None) -> Iterator[Candidate]:
        """Yield the candidates that should replace the one served, the best first.

        `served` is that candidate with the number of its updates; None at the start.
        """
        if self._file is not None:
            candidate = Candidate.of(self._file)
            if candidate is not None and (served is None or served[0] != candidate):
                yield candidate
            return
        last = -1 if served is None or served[1] is None else served[1]
        for updates, candidate in _by_updates(self._folder, self._updates):
            is_same = served is not None and served[0] == candidate
            is_replaced = served is not None and updates == last and served[0].path == candidate.path
            if not is_same and (updates > last or is_replaced):
                yield candidate

    def why_gone(self) -> str | None:
        """Return a message if the file or folder served was deleted, None if it exists."""
        path = self._file or self._folder
        return None if path.exists() else f"{path} was deleted"


def last_checkpoint(folder: Path) -> Path:
    """Return the checkpoint of a run's folder with the most updates. Raises CheckpointError if there is none."""
    for _, candidate in _by_updates(folder / "ckpt", {}):
        return candidate.path
    raise CheckpointError(f"there is no checkpoint in '{folder / 'ckpt'}': this run has saved none yet.")


def _by_updates(folder: Path, known: dict[Candidate, int | None]) -> list[tuple[int, Candidate]]:
    """Return the checkpoints of a folder that record their number of updates, those with the most first.

    `known` are the numbers of files whose names do not contain it; an unreadable file counts as the newest, so that its
    fault is reported.
    """
    found = []
    for candidate in filter(None, map(Candidate.of, folder.glob("*.pth.tar"))):
        named = _ITERATION.fullmatch(candidate.path.name)
        if named is not None:
            updates: int | None = int(named[1])
        else:
            if candidate not in known:
                known[candidate] = _recorded_updates(candidate.path)
            updates = known[candidate]
        if updates is not None:
            found.append((updates, candidate))
    return sorted(found, key=lambda pair: (pair[0], pair[1].stamp[1], pair[1]), reverse=True)


def _recorded_updates(path: Path) -> int | None:
    try:
        return counter(load_state(path), "last_iter")
    except CheckpointError:
        return _UNREADABLE


def _no_best(folder: Path, newest: str) -> str:
    """Return why a run's folder has no best checkpoint; `newest` is the argument that takes the newest."""
    if not any((folder / "ckpt").glob("*.pth.tar")) and (folder / "result.json").is_file():
        return f"there is no checkpoint in '{folder / 'ckpt'}': its files were moved or deleted; put one back."
    return f"there is no {folder / BEST_CHECKPOINT}: this run has not been evaluated yet. {newest} takes what there is."


def run_folder(path: str | Path) -> Path:
    """Return the folder of the run that `path` is, or lies in. Raises ConfigError for a file of no run."""
    path = Path(path)
    if not path.is_file():
        return path
    for folder in path.resolve().parents:
        if (folder / "total_config.py").is_file() or (folder / AGENT_FILE).is_file():
            return folder
    raise ConfigError(
        f"{path} lies in no run's folder, which describes it: give the folder, and the file as which='...'."
    )


def find_checkpoint(folder: Path, which: str | Path) -> Path:
    """Return a checkpoint of a run's folder: the "best", the "last", or a file. Raises CheckpointError without one."""
    if which in ("best", "last"):
        refuse_seeds(folder)
    if which == "last":
        return last_checkpoint(folder)
    best = folder / BEST_CHECKPOINT
    for file in (best,) if which == "best" else (Path(which), folder / which, folder / "ckpt" / which):
        if file.is_file():
            return file
    if which == "best":
        raise CheckpointError(_no_best(folder, "which='last' (--ckpt last)"))
    raise CheckpointError(
        f"there is no checkpoint '{which}'; which is 'best', 'last' or a file's path (--ckpt takes the same)."
    )


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
    if device is None:
        cuda = torch.cuda.is_available() and description.policy.get("cuda", False)
    else:
        cuda = torch.device(device).type != "cpu" and str(device)
    # The caller's random numbers stay as they are, whatever drawing the first weights takes.
    with _naming_modules(description), torch.random.fork_rng(devices=[]):
        return build_policy({**description.policy, "cuda": cuda}, model=model, modes=list(modes), seed=seed)


@contextmanager
def _naming_modules(description: AgentDescription) -> Iterator[None]:
    try:
        yield
    except RegistryError as error:
        policy = description.policy
        own = [*as_list(policy.get("import_names")), *as_list(policy.get("model", {}).get("import_names"))]
        modules = f"import_names {own}" if own else "no import_names"
        raise ConfigError(
            f"the policy '{description.policy_name}' of this run cannot be made: {error}\n  The run has {modules}: "
            "a module must be importable where the agent is loaded: put its folder on PYTHONPATH, or import the "
            "module that registers the policy first."
        ) from error


def load_weights(mode: EvalMode, state: State, path: Path) -> Sequence[Sequence[State]]:
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


def counter(state: State, name: str) -> int | None:
    """Return a number of a checkpoint, None where it does not record it."""
    value = state.get(name)
    return None if value is None else int(value)
