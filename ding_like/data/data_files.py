"""Files of data sets: our columns, HDF5 in the form of D4RL, and the data sets of Minari.

D4RL's form (Fu et al. 2020) is one HDF5 file with `observations`, `actions`, `rewards`, `terminals`, `timeouts` and
`next_observations`, a row a step. Minari (https://minari.farama.org) keeps episodes, with one observation more than
actions. `terminated` is `terminals` or `terminations` there, `truncated` is `timeouts` or `truncations`.

Nothing in a file is executed: no objects, no pickles, no other files that it refers to, and no env is made of it.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.data.batch import obs_to_columns
from ding_like.data.demonstrations import Demonstrations
from ding_like.data.mapped import OpenFile
from ding_like.data.segment_file import is_column_file
from ding_like.errors import CheckpointError, ConfigError, SchemaError
from ding_like.types import Array, Json
from ding_like.utils.files import atomic_write
from ding_like.utils.registries import install_hint

if TYPE_CHECKING:
    import h5py

logger = logging.getLogger(__name__)

MINARI = "minari:"
_HDF5_MARK = b"\x89HDF\r\n\x1a\n"
HDF5_NAMES = (".hdf5", ".h5")
# Column -> its name in D4RL's form.
_D4RL = {
    "obs": "observations",
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminals",
    "truncated": "timeouts",
    "next_obs": "next_observations",
}
_OPTIONAL = ("truncated", "next_obs")
_INFO = "metadata/ding_like"  # text in an HDF5 file: `info` as JSON


def read_data(path: str | os.PathLike[str]) -> Demonstrations:
    """Return the data set of a column file, an HDF5 file in D4RL's form, `minari:ID`, or the folder of a Minari one.

    Raises ConfigError where there is none or its package lacks, CheckpointError for a damaged or foreign file,
    SchemaError for columns that do not fit, with the row.
    """
    if str(path).startswith(MINARI) or Path(path).is_dir():
        return _read_minari(str(path))
    if Path(path).is_file() and not is_column_file(path):
        with open(path, "rb") as file:
            if file.read(len(_HDF5_MARK)) == _HDF5_MARK or Path(path).suffix in HDF5_NAMES:
                return _read_hdf5(Path(path))
    return Demonstrations.load(path)


def write_data(data: Demonstrations, path: str | os.PathLike[str]) -> None:
    """Write a data set: D4RL's form to a file .hdf5 or .h5, a Minari data set as `minari:ID`, columns to any other.

    Raises ConfigError for what cannot be written in the form, or where its package lacks.
    """
    if str(path).startswith(MINARI):
        _write_minari(data, str(path))
    elif Path(path).suffix in HDF5_NAMES:
        _write_hdf5(data, Path(path))
    else:
        data.save(path)


def _package(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise ConfigError(f"data sets of this form need the package {name}{install_hint(error)}.") from error


# ---- D4RL's form


def _read_hdf5(path: Path) -> Demonstrations:
    h5 = _package("h5py")
    try:
        with h5.File(path, "r") as file:
            found = {ours: _data_set(h5, file, theirs, path) for ours, theirs in _D4RL.items() if theirs in file}
            if missing := [_D4RL[name] for name in _D4RL if name not in found and name not in _OPTIONAL]:
                raise SchemaError(
                    f"{path} lacks {', '.join(missing)}: an HDF5 file in D4RL's form has {', '.join(_D4RL.values())}."
                )
            lengths = {_D4RL[name]: each.shape[0] for name, each in found.items()}
            if len(set(lengths.values())) > 1:
                raise SchemaError(f"{path} has columns of other lengths than one: {lengths}.")
            columns = _columns(path, found)
            info = json.loads(file[_INFO].asstr()[()]) if _INFO in file else {}
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RuntimeError, MemoryError) as error:
        if isinstance(error, (SchemaError, CheckpointError)):
            raise
        raise CheckpointError(f"{path} cannot be read as HDF5: {error}. It is damaged, or another file.") from error
    return Demonstrations(_completed(columns, path), info if isinstance(info, dict) else {}, str(path))


def _data_set(h5: Any, file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    """Return a data set [N, ...] of numbers that the file itself holds."""
    found = file.get(name) if isinstance(file.get(name, getlink=True), h5.HardLink) else None
    if not isinstance(found, h5.Dataset) or found.external or found.is_virtual:
        raise SchemaError(f"{path} has '{name}' that is no data set of its own: it refers to something else.")
    if found.dtype.kind not in "biuf" or not found.ndim:
        raise SchemaError(f"{path} has '{name}' of {found.dtype}{list(found.shape)}, expected a number or more a row.")
    return found


def _columns(path: Path, found: Mapping[str, h5py.Dataset]) -> dict[str, Array]:
    """Return the columns: in the file where they lie there as they are, in memory otherwise."""
    opened, loaded, columns = OpenFile(path), [], {}
    for name, each in found.items():
        if name in ("terminated", "truncated"):
            columns[name] = _flags(each[:], name, str(path))
            continue
        shape = (len(each),) if name == "reward" and each.size == len(each) else each.shape
        dtype, offset = _dtype(name, each.dtype), each.id.get_offset()
        if offset is None or each.dtype != dtype or each.file.userblock_size or "next_obs" not in found:
            loaded.append(f"{each.name[1:]} ({each.dtype}{', compressed' * bool(each.compression)})")
            columns[name] = each[:].reshape(shape).astype(dtype, copy=False)
        else:
            columns[name] = opened.column(offset, dtype, shape)
    if loaded:
        logger.info("%s: loaded into memory, as float32 where they are real numbers: %s", path, ", ".join(loaded))
    return columns


def _flags(values: Array, name: str, source: str) -> Array:
    """Return a column [N] of true and false. Raises SchemaError for other numbers than 0 and 1, with the row."""
    flags: Array = values.reshape(len(values), -1) == 1
    if (wrong := ~flags & (values.reshape(flags.shape) != 0)).any():
        row = int(np.argwhere(wrong)[0][0])
        raise SchemaError(f"{source} has {values[row]} in column '{name}', row {row}, expected 0 or 1.")
    return flags[:, 0] if flags.shape[1] == 1 else flags


def _dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return what a column is here: networks take float32, and discrete actions are counted."""
    if dtype.kind == "f" or name == "reward":
        return np.dtype(np.float32)
    return np.dtype(np.int64) if name == "action" else dtype.newbyteorder("=")


def _completed(columns: dict[str, Array], path: Path) -> dict[str, Array]:
    """Return columns with `truncated` and `next_obs`; one warning states what is assumed of those that lack."""
    assumed = []
    if "truncated" not in columns:
        assumed.append("timeouts: an episode ends only at terminals and at the end of the file")
        columns["truncated"] = np.zeros(len(columns["action"]), bool)
    terminated, truncated = columns["terminated"], columns["truncated"]
    truncated[-1:] |= ~terminated[-1:]
    if "next_obs" not in columns:
        assumed.append(
            "next_observations: the next observation is that of the next row, and the last step of each episode that "
            "was cut is dropped, since nothing follows it"
        )
        obs = columns["obs"]
        columns["next_obs"] = np.concatenate([obs[1:], obs[-1:]])
        columns["next_obs"][terminated] = obs[terminated]  # nothing is learned from these
        Demonstrations(columns, source=str(path))  # a fault is named by its row in the file
        drops = truncated & ~terminated
        truncated[:-1] |= drops[1:] & ~terminated[:-1]  # the step before ends the episode
        columns = {name: column[~drops] for name, column in columns.items()}
    if assumed:
        logger.warning("%s lacks %s.", path, "; and ".join(assumed))
    return columns


def _write_hdf5(data: Demonstrations, path: Path) -> None:
    h5 = _package("h5py")
    if "obs" not in data.columns:
        raise ConfigError(f"{path}: D4RL's form has no observations of several parts; give FILE.safetensors.")
    with atomic_write(path) as whole, h5.File(whole.name, "w") as file:
        for ours, theirs in _D4RL.items():
            file.create_dataset(theirs, data=data.columns[ours])
        file[_INFO] = json.dumps(dict(data.info))


# ---- Minari


def _read_minari(given: str) -> Demonstrations:
    minari = _package("minari")
    name = given.removeprefix(MINARI)
    folder = Path(name) if Path(name).is_dir() else minari.storage.get_dataset_path(name)
    folder = folder / "data" if (folder / "data").is_dir() else folder
    if not folder.is_dir():
        raise ConfigError(f"there is no Minari data set '{name}' here: `minari download {name}` gets it.")
    try:
        described = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
        if lacks := {"observation_space", "action_space"} - described.keys():
            # Minari would make the env that the data set names, which can run any code.
            raise SchemaError(f"{given} does not describe its {' and '.join(sorted(lacks))}.")
        data = minari.MinariDataset(folder)
        episodes = [_episode(each, given) for each in data.iterate_episodes()]
        env_spec = data.env_spec
    except SchemaError:
        raise
    except Exception as error:  # of Minari, HDF5 and Arrow there are many
        raise CheckpointError(
            f"{given} cannot be read as a Minari data set ({type(error).__name__}: {error}): it is damaged, or another "
            "folder."
        ) from error
    if not episodes:
        raise SchemaError(f"{given} has no episode.")
    for number, each in enumerate(episodes):
        if {n: c.shape[1:] for n, c in each.items()} != {n: c.shape[1:] for n, c in episodes[0].items()}:
            raise SchemaError(f"{given} has other shapes in episode {number} than in episode 0.")
    columns = {name: np.concatenate([each[name] for each in episodes]) for name in episodes[0]}
    info: dict[str, Json] = {} if env_spec is None else {"env_id": env_spec.id}
    if None not in (scores := [described.get(name) for name in ("ref_min_score", "ref_max_score")]):
        info["reference"] = dict(zip(("random", "expert"), scores, strict=True))
    return Demonstrations(columns, info, given)


def _episode(episode: Any, source: str) -> dict[str, Array]:  # Any: minari.EpisodeData
    """Return the columns of an episode, whose last step is cut where it did not end."""
    steps = len(episode.rewards)
    obs = {name: np.asarray(part) for name, part in obs_to_columns("obs", episode.observations).items()}
    columns = {
        **{name: part[:-1] for name, part in obs.items()},
        "action": np.asarray(episode.actions),
        "reward": np.asarray(episode.rewards),
        **{f"next_{name}": part[1:] for name, part in obs.items()},
    }
    for name, column in columns.items():
        if column.dtype.kind not in "biuf":
            raise SchemaError(f"{source} has a column '{name}' of {column.dtype}, expected numbers.")
        if len(column) != steps:
            raise SchemaError(
                f"{source} has {len(column)} rows '{name}' in episode {episode.id}, of {steps} steps: of observations "
                "there is one more than of the others."
            )
        columns[name] = column.astype(_dtype(name, column.dtype), copy=False)
    where = f"{source}, episode {episode.id},"
    terminated = _flags(np.asarray(episode.terminations), "terminated", where)
    truncated = _flags(np.asarray(episode.truncations), "truncated", where)
    truncated[-1:] |= ~terminated[-1:]
    return {**columns, "terminated": terminated, "truncated": truncated}


def _write_minari(data: Demonstrations, given: str) -> None:
    minari = _package("minari")
    if "obs" not in data.columns:
        raise ConfigError(f"{given}: observations of several parts are written to FILE.safetensors only.")
    name, info, columns = given.removeprefix(MINARI), data.info, data.columns
    starts = [0, *(data.ends[:-1] + 1).tolist()]
    episodes = []
    for number, (start, end) in enumerate(zip(starts, data.ends.tolist(), strict=True)):
        own = {each: column[start : end + 1] for each, column in columns.items()}
        episodes.append(
            minari.data_collector.EpisodeBuffer(
                id=number,
                observations=np.concatenate([own["obs"], own["next_obs"][-1:]]),
                actions=own["action"],
                rewards=own["reward"],
                terminations=own["terminated"],
                truncations=own["truncated"],
            )
        )
    env_id = info.get("env_id")
    spec = gymnasium.registry.get(env_id) if isinstance(env_id, str) else None
    described: dict[str, Any] = dict(
        env=spec, observation_space=_space(columns["obs"]), action_space=_space(columns["action"]), jpeg_encoding=False
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of an author and the like, which are not known here
            text = json.dumps(dict(info))
            policy = str(info.get("policy", "unknown"))
            minari.create_dataset_from_buffers(name, episodes, algorithm_name=policy, description=text, **described)
    except ValueError as error:
        raise ConfigError(f"{given} cannot be written: {error}") from error


def _space(column: Array) -> spaces.Space[Any]:
    """Return a space that has the rows of a column."""
    if column.dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, column.shape[1:], column.dtype.type)
    if column.ndim == 1:
        return spaces.Discrete(int(column.max()) + 1)
    if column.dtype == np.uint8:
        return spaces.Box(0, 255, column.shape[1:], np.uint8)
    return spaces.MultiDiscrete(column.max(axis=0).astype(np.int64) + 1)
