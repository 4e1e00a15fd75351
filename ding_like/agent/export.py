"""Export of an agent as one file for programs without ding_like: TorchScript or ONNX, checked against the agent.

The file takes a batch of observations, and recurrent state, and gives the actions that the agent would choose without
exploring, and the state behind them. What comes before and behind the network is a chain of small modules:
normalisation with the statistics of a checkpoint, the choice of the action, and the scaling of actions. JSON in the
file (`METADATA`) describes its inputs and outputs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, get_args

import gymnasium
import numpy as np
import torch
from gymnasium import spaces, wrappers
from torch import Tensor, nn

from ding_like.agent.checkpoints import find_checkpoint, run_folder
from ding_like.agent.description import AgentDescription, allow_saved_config, plain_section, read_description
from ding_like.agent.loaded import Agent
from ding_like.agent.observations import RawBatch, Space, by_flat_name, leaves_of
from ding_like.agent.wrappers import NO_EFFECT, AnyEnv, AnyWrapper, layers_of, stack_obs
from ding_like.config import compile_config
from ding_like.data.batch import ACTION_MASK, split_mask
from ding_like.data.spaces import space_to_json
from ding_like.envs import get_vec_env_setting
from ding_like.envs.factory import make_lane_env
from ding_like.envs.spaces import ActionLayout, ObsLayout
from ding_like.envs.wrappers.common import DiscreteAction, ObsNorm
from ding_like.errors import CheckpointError, ConfigError, DingError
from ding_like.policy.forward import ForwardActor
from ding_like.types import Array, Json, SeesRewards
from ding_like.utils.registries import pip_line

_Step = Callable[[Tensor], Tensor]


class Port(NamedTuple):
    """Input or output of an exported file; the batch axis goes before its shape."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class ExportedAgent(nn.Module):
    """Module that chooses actions [B, ...] for observations; its tensors are in the order of the ports.

    Inputs are the observation's arrays by flat name, then the recurrent state; outputs the action, then the state.
    """

    def __init__(self, agent: Agent) -> None:
        """Raise ConfigError for a policy whose actor does not act by one network."""
        super().__init__()
        if isinstance(agent.actor, SeesRewards):
            raise ConfigError(
                f"policy '{agent.description.policy_name}' cannot be exported: it acts by the reward of each step, "
                "which the file is not given. Use ding_like.load and agent.act(obs, reward=...)."
            )
        # Any: users write actors too, which may lack these.
        forward: Any = getattr(agent.actor, "forward", None)
        choose: Any = getattr(agent.actor, "choose", None)
        if not callable(getattr(forward, "run_tensors", None)) or not callable(getattr(choose, "best", None)):
            raise ConfigError(
                f"policy '{agent.description.policy_name}' cannot be exported: its actor is no ForwardActor whose "
                "forward has run_tensors(obs, state) and whose choice has best(output, mask). Use ding_like.load or "
                "`ding serve`."
            )
        self.model = agent.policy.get_attribute("model").eval()
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        self._run, self._best = forward.run_tensors, choose.best
        self._leaves = leaves_of(agent.observation_space)
        self._is_dict = isinstance(agent.observation_space, spaces.Dict)
        self._before = [step for layer in reversed(list(layers_of(agent.wrapping.stack))) for step in _obs_steps(layer)]
        held = leaves_of(ObsLayout(agent.wrapping.stack.observation_space).space)
        self._held = {name: _torch_dtype(np.dtype(leaf.dtype)) for name, leaf in held.items()}
        self._behind = _action_steps(agent)
        self.initial_state: dict[str, Array] = {
            name: np.asarray(value) for name, value in getattr(forward, "initial_state", {}).items()
        }
        self.inputs = [
            *(Port(_named(name), tuple(leaf.shape or ()), str(leaf.dtype)) for name, leaf in self._leaves.items()),
            *self._state_ports(""),
        ]
        acts = agent.action_space
        self.outputs = [Port("action", tuple(acts.shape or ()), str(acts.dtype)), *self._state_ports("next_")]

    def _state_ports(self, prefix: str) -> list[Port]:
        return [Port(f"{prefix}state/{name}", v.shape, str(v.dtype)) for name, v in self.initial_state.items()]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return (actions [B, ...], the recurrent state behind them)."""
        num_leaves = len(self._leaves)
        leaves = dict(zip(self._leaves, inputs[:num_leaves], strict=True))
        state = dict(zip(self.initial_state, inputs[num_leaves:], strict=True))
        for step in self._before:
            leaves = {name: step(leaf) for name, leaf in leaves.items()}
        for name, leaf in leaves.items():
            start = getattr(self._leaves.get(name), "start", 0)
            counted = leaf - torch.as_tensor(np.asarray(start), dtype=leaf.dtype) if np.any(start) else leaf
            leaves[name] = counted.to(self._held[name])
        obs, mask = split_mask(leaves if self._is_dict else leaves[""])
        output, after = self._run(obs, state)
        action = self._best(output, mask)
        for step in self._behind:
            action = step(action)
        return (action, *(after[name] for name in self.initial_state))


def can_be_exported(layer: AnyWrapper) -> bool:
    """Return whether a wrapper's work can be done by an exported file."""
    if isinstance(layer, (ObsNorm, wrappers.RescaleAction, wrappers.ClipAction, DiscreteAction)):
        return True
    if isinstance(layer, wrappers.FlattenObservation):
        return isinstance(layer.env.observation_space, spaces.Box)
    return isinstance(layer, NO_EFFECT)


def _obs_steps(layer: AnyWrapper) -> Sequence[_Step]:
    if isinstance(layer, ObsNorm):
        return [_normalise(layer)]
    if isinstance(layer, wrappers.FlattenObservation):
        return [lambda obs: obs.flatten(start_dim=1)]
    return []


def _normalise(layer: ObsNorm) -> _Step:
    mean, var = torch.as_tensor(np.array(layer.obs_rms.mean)), np.array(layer.obs_rms.var)
    scale, clip = torch.as_tensor(np.sqrt(var + layer.epsilon)), layer.clip

    def step(obs: Tensor) -> Tensor:
        normal = ((obs.to(torch.float64) - mean) / scale).to(torch.float32)
        return normal.clamp(-clip, clip)

    return step


def _action_steps(agent: Agent) -> list[_Step]:
    """Return the steps from the policy's actions to those of the client's env."""
    layers = list(layers_of(agent.wrapping.stack))
    outermost = agent.wrapping.stack.action_space
    steps = [_in_env_numbers(outermost)]
    return steps + [_act(layer) for layer in layers if isinstance(layer, gymnasium.ActionWrapper)]


def _in_env_numbers(space: Space) -> _Step:
    layout = ActionLayout(space)
    dtype = _torch_dtype(layout.dtype)
    start = getattr(space, "start", 0)
    if not np.any(start):
        return lambda action: action.to(dtype)
    first = torch.as_tensor(np.asarray(start))
    return lambda action: action.to(dtype) + first.to(dtype)


def _act(layer: Any) -> _Step:
    if isinstance(layer, DiscreteAction):
        space: Any = layer.action_space  # a Discrete, whatever its wrapper's class declares
        table = torch.as_tensor(np.stack([layer.action(each) for each in range(int(space.n))]))
        return lambda action: table[action]
    inner = layer.env.action_space
    low, high = torch.as_tensor(inner.low), torch.as_tensor(inner.high)
    if isinstance(layer, wrappers.ClipAction):
        return lambda action: torch.minimum(torch.maximum(action, low), high)
    outer = layer.action_space
    at_low, at_high = (torch.as_tensor(np.asarray(layer.action(side))) for side in (outer.low, outer.high))
    slope = (at_high - at_low) / torch.as_tensor(outer.high - outer.low)
    first = torch.as_tensor(outer.low)
    return lambda action: torch.minimum(torch.maximum(at_low + (action - first) * slope, low), high).to(low.dtype)


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.zeros(1, dtype)).dtype


def _named(leaf: str) -> str:
    return f"obs/{leaf}" if leaf else "obs"


def rows_of(inputs: Sequence[Port], obs: RawBatch, state: Mapping[str, Array]) -> list[Array]:
    """Return the arrays of a batch of observations and states in the order of the inputs."""
    arrays = {f"state/{name}": value for name, value in state.items()}
    arrays |= {_named(name): value for name, value in by_flat_name(obs).items()}
    return [np.ascontiguousarray(arrays[port.name], dtype=port.dtype) for port in inputs]


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
    """Return the agent whose client applies the wrappers that a file cannot, and whose network is run without noise."""
    first = len(description.layers)
    while first > 0 and _is_exportable(description, first - 1):
        first -= 1
    split = description.split_at(first).with_action_rows()
    agent = Agent(description, checkpoint, device="cpu", split=split, modes=["eval"])
    if isinstance(agent.actor, ForwardActor):
        agent.actor.draw_noise = None  # a file has no random numbers
    return agent


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
