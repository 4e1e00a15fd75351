"""Export of an agent as one file for programs without ding_like: TorchScript or ONNX, checked against the agent.

The file takes a batch of observations, and recurrent state, and gives the actions that the agent would choose without
exploring, and the state behind them. JSON inside it (`METADATA`) describes its inputs and outputs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from gymnasium import spaces

from ding_like.agent.checkpoints import find_checkpoint, run_folder
from ding_like.agent.description import AgentDescription, plain_section, read_description
from ding_like.agent.export_module import ExportedAgent, Port, can_be_exported, rows_of
from ding_like.agent.loaded import Agent
from ding_like.agent.observations import RawBatch, Space
from ding_like.agent.trust import allow_saved_config
from ding_like.agent.wrappers import AnyEnv, layers_of, stack_obs
from ding_like.config import compile_config
from ding_like.data.obs import ACTION_MASK
from ding_like.data.space_json import space_to_json
from ding_like.envs import get_vec_env_setting
from ding_like.envs.factory import make_lane_env
from ding_like.errors import CheckpointError, ConfigError, DingError
from ding_like.types import Array, Json
from ding_like.utils.imports import pip_line

logger = logging.getLogger(__name__)

Format = Literal["torchscript", "onnx"]
SUFFIXES: dict[Format, str] = {"torchscript": ".pt", "onnx": ".onnx"}
_KNOWN = (".pt", ".pth", ".onnx")  # suffixes that name a format
METADATA = "ding_like.json"  # the extra file in TorchScript, the key of metadata_props in ONNX
_FORMAT = 1
# Rows of the examples that the network is traced with: neither 1, which would stand for itself, nor any size in it.
_TRACED_ROWS = 3

_BATCHES = (1, 2, 7)
_STEPS = 6
_PLAYED_STEPS = 200
_WIDTH = 10.0  # of what is drawn where a Box has no bounds
_TOLERANCE = 1e-4  # of what an action, or the state, is large

# Function from arrays [B, ...] to arrays [B, ...], in the order of the ports.
Run = Callable[[Sequence[Array]], Sequence[Array]]


class Step(NamedTuple):
    """Observations [B, ...] and where an episode begins [B]."""

    obs: RawBatch
    is_first: Array


class Compared(NamedTuple):
    """Number of actions that were compared, and the largest difference of one, as a share of its size."""

    num_actions: int
    difference: float


class Exported(NamedTuple):
    """File that was written, and how it compared with the agent."""

    path: Path
    metadata: Json
    drawn: Compared  # on random observations
    played: Compared | None  # on those of the env, None where it cannot be made here


def export(
    path: str | Path,
    *,
    to: Format,
    out: str | Path | None = None,
    which: str | Path = "best",
    import_names: Sequence[str] = (),
) -> Exported:
    """Write the agent of a run, or of a checkpoint inside one, and check the file.

    By default it is `agent.pt` or `agent.onnx` in the folder. `import_names` are modules of the run's own that it may
    use. Raises ConfigError for another format and for a policy that cannot be exported, CheckpointError where the file
    would act otherwise than the agent: it is not written then.
    """
    if to not in get_args(Format):
        raise ConfigError(f"to is {to!r}, expected {' or '.join(get_args(Format))}.")
    folder = run_folder(path)
    description = read_description(folder, import_names=import_names)
    checkpoint = Path(path) if Path(path).is_file() else find_checkpoint(folder, which)
    target = _checked_target(Path(out) if out else folder / f"agent{SUFFIXES[to]}", to)
    agent = exportable_agent(description, checkpoint)
    module = ExportedAgent(agent)
    metadata = metadata_of(agent, module)
    with tempfile.TemporaryDirectory(dir=target.resolve().parent, prefix=".export-") as scratch:
        written = Path(scratch) / target.name
        {"torchscript": _write_torchscript, "onnx": _write_onnx}[to](module, metadata, written)
        run = {"torchscript": run_torchscript, "onnx": run_onnx}[to](written)
        drawn = compare(agent, module, run, draw_observations(agent.observation_space))
        played = _compare_in_env(folder, agent, module, run)
        os.replace(written, target)
    return Exported(target, metadata, drawn, played)


def _checked_target(target: Path, to: Format) -> Path:
    """Return the file to write. Raises ConfigError for one that has another format's suffix or cannot be written."""
    suffix = SUFFIXES[to]
    if target.suffix.lower() in _KNOWN and (target.suffix.lower() == ".onnx") != (to == "onnx"):
        other = "torchscript" if to == "onnx" else "onnx"
        raise ConfigError(
            f"'{target.name}' has the suffix of {other}, but --to is {to}: give -o {target.with_suffix(suffix)}, or "
            f"--to {other}."
        )
    if target.is_dir():
        raise ConfigError(f"'{target}' is a folder: give a file to write, such as {target / f'agent{suffix}'}.")
    if not target.resolve().parent.is_dir():
        raise ConfigError(
            f"there is no folder '{target.parent}' to write {target.name} into: make it, or give another -o."
        )
    return target


def exportable_agent(description: AgentDescription, checkpoint: Path) -> Agent:
    """Return the agent whose client applies the wrappers that a file cannot."""
    first = len(description.layers)
    while first > 0 and _is_exportable(description, first - 1):
        first -= 1
    split = description.split_at(first).with_action_rows()
    return Agent(description, checkpoint, device="cpu", split=split, modes=["eval"])


def _is_exportable(description: AgentDescription, place: int) -> bool:
    layer = description.layers[place]
    if layer.needs != "nothing":
        return False
    split = description.split_at(place)._replace(agent_layers=(layer,)).with_action_rows()
    try:
        stack, _ = split.bare_stack()
    except ConfigError:
        return False
    return all(can_be_exported(layer) for layer in layers_of(stack))


def metadata_of(agent: Agent, module: ExportedAgent) -> Json:
    """Return the description that a file has in it."""
    description = agent.description
    specs = [layer.spec for layer in description.layers[: len(agent.client_wrappers)]]
    return {
        "format": _FORMAT,
        "written_by": dict(description.written_by),
        "env": description.env_name,
        "policy": description.policy_name,
        "checkpoint": agent.version.path.name,
        "train_iter": agent.version.train_iter,
        "env_step": agent.version.env_step,
        "inputs": [_port(port) for port in module.inputs],
        "outputs": [_port(port) for port in module.outputs],
        "observation_space": space_to_json(agent.observation_space),
        "action_space": space_to_json(agent.action_space),
        "initial_state": {name: value.tolist() for name, value in module.initial_state.items()},
        # Observations are to be what these wrappers make of the env's, the first one innermost.
        "wrappers_to_apply": [dict(spec) if not isinstance(spec, str) else {"type": spec} for spec in specs],
    }


def _port(port: Port) -> Json:
    return {"name": port.name, "shape": ["B", *port.shape], "dtype": port.dtype}


def _examples(module: ExportedAgent) -> tuple[torch.Tensor, ...]:
    states = {f"state/{name}": value for name, value in module.initial_state.items()}
    examples = [states.get(port.name, np.ones(port.shape)) for port in module.inputs]
    arrays = [
        np.repeat(each[None], _TRACED_ROWS, axis=0).astype(port.dtype)
        for each, port in zip(examples, module.inputs, strict=True)
    ]
    return tuple(map(torch.from_numpy, arrays))


def _write_torchscript(module: ExportedAgent, metadata: Json, path: Path) -> None:
    with _quietly(), torch.no_grad():
        traced = torch.jit.trace(module, _examples(module), check_trace=False)
        torch.jit.save(traced, str(path), _extra_files={METADATA: json.dumps(metadata)})


def _write_onnx(module: ExportedAgent, metadata: Json, path: Path) -> None:
    try:
        import onnx
        import onnxruntime  # noqa: F401  # the file is checked with it
        import onnxscript  # noqa: F401  # torch needs it
    except ImportError as error:
        raise ConfigError(
            f"writing ONNX needs the package {error.name}; install it with: {pip_line('onnx')}"
        ) from error
    batch = torch.export.Dim("B", min=1)
    with _quietly(), torch.no_grad():
        torch.onnx.export(
            module,
            _examples(module),
            str(path),
            input_names=[port.name for port in module.inputs],
            output_names=[port.name for port in module.outputs],
            dynamic_shapes=(tuple({0: batch} for _ in module.inputs),),
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {METADATA: json.dumps(metadata)})
    onnx.save(model, str(path))


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Suppress the exporters' warnings about torch's own code: the file is checked."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch._dynamo", "torch.export")]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    bar: Any = SimpleNamespace(monitor_interval=0)
    with contextlib.suppress(ImportError):
        import tqdm  # with which onnxscript shows its progress; its monitor would leave a thread behind

        bar = tqdm.tqdm
    interval, bar.monitor_interval = bar.monitor_interval, 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)
        bar.monitor_interval = interval


def run_torchscript(path: Path) -> Run:
    """Return the function that runs a TorchScript file."""
    with _quietly():
        loaded = torch.jit.load(str(path))

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        with torch.no_grad():
            return [each.numpy() for each in loaded(*map(torch.from_numpy, arrays))]

    return run


def run_onnx(path: Path) -> Run:
    """Return the function that runs an ONNX file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        given = dict(zip(names, arrays, strict=True))
        return session.run(None, given)

    return run


def _compare_in_env(folder: Path, agent: Agent, module: ExportedAgent, run: Run) -> Compared | None:
    """Compare on observations of the run's env, where its config and its package are here."""
    config = folder / "total_config.py"
    if not config.is_file():
        return None
    try:
        file = allow_saved_config(folder)
        cfg = compile_config(
            file.main_config, file.create_config, source=str(config), renew_dir=False, save=False, quiet=True
        )
        make, _, env_cfgs = get_vec_env_setting(cfg.env, collect=False)
        section = plain_section(env_cfgs[0])
        section["wrappers"] = section.get("wrappers", [])[: len(agent.client_wrappers)]
        env: Any = make_lane_env(lambda: make(section))
    except DingError as error:
        logger.info("not checked in the env, which cannot be made here: %s", str(error).partition("\n")[0])
        return None
    if hasattr(env, "num_players") or not isinstance(agent.action_space, spaces.Space):
        env.close()
        return None
    try:
        return compare(agent, module, run, play_observations(env, agent))
    finally:
        env.close()


def compare(agent: Agent, module: ExportedAgent, run: Run, steps: Iterator[Step]) -> Compared:
    """Return how a file compares with the agent. Raises CheckpointError with the figures where they differ."""
    count, largest = 0, 0.0
    state: dict[str, Array] = {}
    agent.reset()
    for step in steps:
        rows = len(step.is_first)
        expected = np.asarray(agent.act(step.obs, is_first=step.is_first))
        state = {name: _begun(state.get(name), value, step.is_first) for name, value in module.initial_state.items()}
        try:
            action, *after = run(rows_of(module.inputs, step.obs, state))
        except Exception as error:  # torch and onnxruntime have no common class of errors
            raise CheckpointError(
                f"the file cannot be run on {rows} observations ({type(error).__name__}: {error}): it was not written. "
                "Use ding_like.load or `ding serve`."
            ) from error
        state = dict(zip(module.initial_state, after, strict=True))
        if action.shape != expected.shape or action.dtype != expected.dtype:
            raise CheckpointError(
                f"the file gives actions {action.dtype} {action.shape} for {rows} observations, the agent "
                f"{expected.dtype} {expected.shape}: it was not written."
            )
        largest = max(largest, _difference(action, expected))
        count += rows
        if largest > _TOLERANCE:
            mine, theirs = (each.reshape(-1)[:8].tolist() for each in (expected, action))
            raise CheckpointError(
                f"the file acts otherwise than the agent: for observation {count} the largest difference is "
                f"{largest:.3g} of the actions' size, allowed are {_TOLERANCE:g} (agent {mine}, file {theirs}). It was "
                "not written; use ding_like.load or `ding serve`."
            )
    return Compared(count, largest)


def draw_observations(space: Space, *, seed: int = 0) -> Iterator[Step]:
    """Yield random observations of a space, in batches of several sizes; some episodes begin in the middle."""
    space.seed(seed)
    rng = np.random.default_rng(seed)
    for rows in _BATCHES:
        for time in range(_STEPS):
            first = np.ones(rows, bool) if time == 0 else rng.random(rows) < 0.2
            yield Step(stack_obs([_draw(space, rng) for _ in range(rows)]), first)


def play_observations(env: AnyEnv, agent: Agent) -> Iterator[Step]:
    """Yield what an env observes while the agent plays it; `compare` asks the agent, whose last action is played."""
    obs, _ = env.reset(seed=0)
    is_first = True
    for _ in range(_PLAYED_STEPS):
        yield Step(stack_obs([obs]), np.array([is_first]))
        action = agent.last_actions[0]
        taken = int(action) if isinstance(agent.action_space, spaces.Discrete) else action
        obs, _, terminated, truncated, _ = env.step(taken)
        is_first = bool(terminated or truncated)
        if is_first:
            obs, _ = env.reset()


def _draw(space: Space, rng: np.random.Generator, key: str = "") -> RawBatch:
    if isinstance(space, spaces.Dict):
        return {name: _draw(inner, rng, name) for name, inner in space.spaces.items()}
    if key == ACTION_MASK:
        return np.ones(space.shape or (), space.dtype)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = np.maximum(space.low, -_WIDTH), np.minimum(space.high, _WIDTH)
        return rng.uniform(np.minimum(low, high), high).astype(space.dtype)
    return space.sample()


def _begun(state: Array | None, initial: Array, is_first: Array) -> Array:
    """Return the state of each row, the initial one where an episode begins."""
    fresh = np.repeat(initial[None], len(is_first), axis=0)
    if state is None or len(state) != len(is_first):
        return fresh
    return np.where(is_first.reshape(-1, *[1] * initial.ndim), fresh, state)


def _difference(mine: Array, theirs: Array) -> float:
    if mine.dtype.kind in "iub":
        return float((mine != theirs).any())
    size = max(1.0, float(np.abs(theirs).max(initial=0.0)))
    return float(np.abs(mine - theirs).max(initial=0.0)) / size
