"""Checkpoints: plain Python, tensors and numpy in files of torch.save that hold no code; also those of DI-engine.

`torch.load(weights_only=True)` takes plain Python and tensors only. `encode_state` turns numpy arrays, numpy scalars
and bytes into those and `decode_state` back, exactly; the rest of a state stays as it is, so that `torch.load` alone
reads a model file too. torch is imported on use: this package loads without it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from ding_like.errors import CheckpointError, name_some
from ding_like.types import Json, State
from ding_like.utils.files import atomic_write, sync_folder

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

# A dict with this key stands for an "array", a numpy "scalar" or "bytes".
_KIND = "__kind__"
# Arrays of these dtypes become tensors of the same; others (unsigned, strings, times, big-endian) become their bytes.
_TENSOR_DTYPES = frozenset(
    np.dtype(name) for name in ("bool", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
)
_ZIP_HEAD = b"PK\x03\x04"
_PICKLE_HEAD = b"\x80"
_EXPECTED = "expected a file that ding_like saved, such as ckpt/ckpt_best.pth.tar of an experiment"
# Names that a message lists before it gives the number of the others.
_MAX_NAMES = 5

# Names that only DI-engine's networks have.
_THEIRS = re.compile(r"(actor_|critic_)?encoder\.(init|mid)\.|head\.[AVQ]\.\d|actor_head\.(Q\.|log_sigma_param)")
# Convolutions of an encoder.
_PICTURES = re.compile(r"(actor_|critic_)?encoder\.mid\.")
# Its actor-critic holds every layer twice, the second time as a part of these.
_TWICE = re.compile(r"(actor|critic)\.[01]\.")
# A layer of its networks -> the stack of ours that has such layers in the same order.
_STACKS = (
    (r"((?:actor_|critic_)?encoder)\.(?:init|main\.\d+)$", r"\1.main"),
    (r"head\.A\.\d+\.\d+$", r"head.advantage.main"),
    (r"head\.V\.\d+\.\d+$", r"head.value.main"),
    (r"head\.Q\.\d+\.\d+$", r"head.main"),
    (r"actor_head\.(?:Q\.\d+|main)\.\d+$", r"actor_head.main"),
    (r"critic_head\.(?:main\.\d+|last)$", r"critic_head.main"),
)
_LAYERS = {"actor_head.log_sigma_layer": "actor_head.sigma_layer"}
_SIGMA = "actor_head.log_sigma"
# Entries beside the networks that mean the same here.
_COUNTERS = ("last_iter", "last_step")
_NETWORKS = ("model", "target_model")


def save_state(path: str | os.PathLike[str], state: Mapping[str, object], *, durable: bool = False) -> None:
    """Write `state` to `path`, whole or not at all; `durable` waits for the disk.

    Raises CheckpointError, and writes nothing, if a value is of a type that `encode_state` does not take, and the
    OSError of a disk that is full or broken.
    """
    import torch

    encoded = encode_state(state)
    with atomic_write(path, durable=durable) as file:
        try:
            torch.save(encoded, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error  # torch says "unexpected pos" where the disk is full
            raise


def load_state(path: str | os.PathLike[str], *, what: str = "checkpoint") -> State:
    """Return the state that `save_state` wrote to `path`, tensors on the CPU.

    Raises CheckpointError if the file is missing, torn, of another program, or holds code; `what` names it there.
    """
    state = _load(Path(path), what)
    if not isinstance(state, dict):
        raise CheckpointError(f"{what} {path} holds a {type(state).__name__}, not a dict of states; {_EXPECTED}")
    return state


def save_file(path: str, data: Any, fs_type: str | None = None, use_lock: bool = False) -> None:
    """Write any data that `encode_state` takes to `path`, whole or not at all; the name is DI-engine's.

    `use_lock` has no effect: readers find the old file or the new one. Raises CheckpointError for an `fs_type` other
    than 'normal'.
    """
    _check_fs_type(fs_type)
    save_state(path, data)


def read_file(path: str, fs_type: str | None = None, use_lock: bool = False) -> Any:
    """Return the data that `save_file` wrote to `path`, tensors on the CPU; the arguments and errors are its own.

    Raises CheckpointError, too, if the file is missing, torn, of another program, or holds code.
    """
    _check_fs_type(fs_type)
    return _load(Path(path), "file")


def _check_fs_type(fs_type: str | None) -> None:
    if fs_type not in (None, "normal"):
        raise CheckpointError(f"fs_type is {fs_type!r}, expected 'normal'; mount the storage and give a path in it.")


def _load(path: Path, what: str) -> Any:
    """Return the content of a file of `save_state`; raises the errors of `load_state`."""
    import torch

    _check_file(path, what)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch lets several kinds out (Runtime-, Key-, Unpickling-, OSError) for one cause
        code = re.search(r"GLOBAL (\S+)", str(error))
        if code is not None:
            raise CheckpointError(
                f"{what} {path} holds an object of {code[1]}, and loading such objects can run any code, so it is "
                "refused; save tensors, numpy arrays and plain Python only"
            ) from error
        raise CheckpointError(f"{what} {path} is a zip file, but torch cannot read it; {_EXPECTED}") from error
    return decode_state(state)


def check_model_state(expected: Mapping[str, torch.Tensor], got: object, *, path: str | os.PathLike[str]) -> None:
    """Raise one CheckpointError that names every way in which `got`, read from `path`, does not fit a model's state."""
    if not isinstance(got, Mapping):
        raise CheckpointError(f"{path} holds a {type(got).__name__} where a model's state belongs; {_EXPECTED}")
    shapes = {name: (_shape(got[name]), tuple(tensor.shape)) for name, tensor in expected.items() if name in got}
    found = {
        "missing": (missing := [name for name in expected if name not in got]),
        "unexpected": [name for name in got if name not in expected],
        "of another shape": [f"{name} {seen} instead of {own}" for name, (seen, own) in shapes.items() if seen != own],
    }
    if faults := [f"{what} {name_some(names, _MAX_NAMES)}" for what, names in found.items() if names]:
        raise CheckpointError(
            f"{path} was saved by another model than the config's: {'; '.join(faults)}. {_model_fix(shapes, missing)}"
        )


def _model_fix(shapes: Mapping[str, tuple[Any, tuple[int, ...]]], missing: Sequence[str]) -> str:
    """Return what to do about a state of another model: (seen, wanted) of the shared tensors, and names it lacks."""
    if len(missing) > len(shapes):
        return "It is of another policy or network: use the config of the run that saved it, EXP/total_config.py"
    inputs = [seen[1:] != wanted[1:] for seen, wanted in shapes.values() if seen != wanted and len(wanted) > 1]
    # A change inside the network shows in the outputs of one layer and the inputs of a later one.
    if inputs and (inputs[0] or not any(inputs)):
        return (
            "It was trained on an env with other observations or actions: use the config of the run that saved it, "
            "EXP/total_config.py"
        )
    return "Give policy.model the values it was trained with (total_config.py of its experiment has them)"


def encode_state(state: object, *, where: str = "state") -> Any:  # Any: a tree of many types
    """Return `state` with numpy arrays, numpy scalars and bytes as dicts of tensors.

    Sub-classes of dict, list and tuple (EasyDict, named tuples) become those. Tensors leave their graph and device,
    and a view of a part of a larger one is copied. Raises CheckpointError with the place of a value that is not
    plain Python, a tensor or numpy.
    """
    import torch

    if isinstance(state, (np.generic, np.ndarray)):
        return _encode_numpy(state, where)
    if isinstance(state, torch.Tensor):
        tensor = state.detach().cpu()
        # torch.save writes the whole storage of a view, were it a row of a large buffer.
        is_whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        return tensor if is_whole else tensor.clone()
    if isinstance(state, Mapping):
        for key in state:
            if key == _KIND or type(key) not in (str, int, float, bool, type(None)):
                _refuse(where, f"has the key {key!r} ({type(key).__name__})")
        return {key: encode_state(value, where=f"{where}.{key}") for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        items = [encode_state(item, where=f"{where}[{i}]") for i, item in enumerate(state)]
        return tuple(items) if isinstance(state, tuple) else items
    if isinstance(state, bytes):  # torch writes empty bytes in a way that it refuses to read
        return {_KIND: "bytes", "data": torch.from_numpy(np.frombuffer(state, np.uint8).copy())}
    if state is None or type(state) in (bool, int, float, str):
        return state
    _refuse(where, f"is a {type(state).__name__}, which a checkpoint cannot hold")


def decode_state(state: Any) -> Any:  # Any: a result of encode_state
    """Return the argument of `encode_state`."""
    if isinstance(state, (list, tuple)):
        return type(state)(decode_state(item) for item in state)
    if not isinstance(state, dict):
        return state
    if _KIND not in state:
        return {key: decode_state(value) for key, value in state.items()}
    if state[_KIND] == "bytes":
        return state["data"].numpy().tobytes()
    array = state["data"].numpy().view(np.dtype(state["dtype"])).reshape(state["shape"])
    return array[()] if state[_KIND] == "scalar" else array


def _encode_numpy(value: np.generic | np.ndarray[Any, Any], where: str) -> dict[str, Any]:
    import torch

    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.names is not None:
        _refuse(where, f"is an array of dtype {array.dtype}, which has no plain numbers")
    flat = array.reshape(-1) if array.flags.c_contiguous and array.flags.writeable else array.flatten()
    if flat.dtype not in _TENSOR_DTYPES:
        flat = flat.view(np.uint8)
    return {
        _KIND: "scalar" if isinstance(value, np.generic) else "array",
        "dtype": array.dtype.str,
        "shape": array.shape,
        "data": torch.from_numpy(flat),
    }


def _refuse(where: str, fault: str) -> NoReturn:
    raise CheckpointError(
        f"{where} {fault}; expected dict, list, tuple, str, int, float, bool, None, bytes, tensors and numpy arrays. "
        "Convert it in the state_dict() that made it"
    )


def _check_file(path: Path, what: str) -> None:
    """Raise CheckpointError for a missing, torn or foreign file."""
    if not path.is_file():
        raise CheckpointError(_explain_missing(path, what))
    # torch.load does not look at the checksums: a flipped bit would load as another number.
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        if archive.testzip() is None:
            return
    with open(path, "rb") as file:
        head = file.read(len(_ZIP_HEAD))
    if _ZIP_HEAD.startswith(head):  # also of a file cut off within these four bytes
        size = path.stat().st_size
        fault = f"is torn or damaged ({size} bytes); copy it again, or take an older one"
    elif head.startswith(_PICKLE_HEAD):
        fault = f"is a bare pickle, and loading one can run any code, so it is refused; {_EXPECTED}"
    else:
        fault = f"is not a file of torch.save (it begins with {head!r}); {_EXPECTED}"
    raise CheckpointError(f"{what} {path} {fault}")


def _explain_missing(path: Path, what: str) -> str:
    if path.is_dir():
        found = [*sorted(path.glob("*.pth.tar")), *sorted(path.glob("ckpt/*.pth.tar"))]  # the best comes first
        return f"{what} {path} is a folder; give a file in it{f', such as {found[0]}' if found else ''}"
    if path.exists():  # a device, a pipe
        return f"{what} {path} is no ordinary file; {_EXPECTED}"
    folder = path.parent
    if not folder.is_dir():
        return f"{what} {path} does not exist, nor does its folder; check the path from here, {Path.cwd()}"
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))
    if close := difflib.get_close_matches(path.name, names, n=3):
        return f"{what} {path} does not exist; did you mean {' or '.join(close)} in that folder?"
    return f"{what} {path} does not exist; its folder has {name_some(names, _MAX_NAMES) if names else 'no files'}"


def _shape(value: Any) -> tuple[int, ...] | str:
    return tuple(value.shape) if hasattr(value, "shape") else type(value).__name__


def from_di_engine(state: State, own: Callable[[], State]) -> State:
    """Return a checkpoint of DI-engine with the names of our networks; any other as it is.

    `own` returns the state of what loads it. Networks of DQN (C51 and QR-DQN are like it) and VAC come over, and the
    counts of iterations and env steps; the optimizer begins afresh, as its moments have another order. A layer that has
    no place here keeps its name, so that loading names it as unexpected.

    Raises CheckpointError for a network on pictures, which computes something else from the same weights, and for a
    file without the networks of a policy.
    """
    model = state.get("model")
    if model is None and "model" in own():
        names = name_some(map(repr, state), _MAX_NAMES) or "nothing"
        raise CheckpointError(
            f"the checkpoint has no 'model', the weights of a policy; it has {names}; {_EXPECTED}. "
            "The weights of a network with the layers of policy.model become one by "
            "torch.save({'model': network.state_dict()}, FILE)."
        )
    if not isinstance(model, Mapping) or not any(_THEIRS.match(str(name)) for name in model):
        return state
    known = own()
    read: State = {name: state[name] for name in _COUNTERS if name in state}
    for name in _NETWORKS:
        if isinstance(state.get(name), Mapping) and isinstance(known.get("model"), Mapping):
            if any(_PICTURES.match(each) for each in state[name]):
                raise CheckpointError(
                    "the checkpoint is of a network of DI-engine for pictures. Its encoder's dense layer has no "
                    "activation and ours has one, so the same weights would give other values: train anew, or give the "
                    "policy a model of your own with DI-engine's layers."
                )
            read[name] = renamed(state[name], known["model"])
    logger.info("the checkpoint was made by DI-engine: its weights are taken over; the optimizer begins afresh")
    return read


def renamed(theirs: State, own: State) -> State:
    """Return the state of a network of DI-engine with the names of ours, whose state is `own`.

    Layers of a stack correspond by their order. The values are tensors.
    """
    # The layers of each stack of ours, in their order: "encoder.main" -> ["encoder.main.0", ...].
    places: dict[str, list[str]] = {}
    for layer in dict.fromkeys(name.rpartition(".")[0] for name in own):
        places.setdefault(layer.rpartition(".")[0], []).append(layer)
    used: dict[str, int] = {}
    layer_of: dict[str, str] = {}
    read: dict[str, Any] = {}
    for name, value in theirs.items():
        if _TWICE.match(name):
            continue
        if name == f"{_SIGMA}_param":
            read[_SIGMA] = value.reshape(-1)
            continue
        layer, _, leaf = name.rpartition(".")
        if layer not in layer_of:
            layer_of[layer] = _next_layer(layer, places, used)
        read[f"{layer_of[layer]}.{leaf}"] = value
    if _SIGMA in own and _SIGMA not in read and "actor_head.sigma_layer.weight" not in read:
        # A sigma that is fixed is a number of the config there.
        read[_SIGMA] = own[_SIGMA]
    return read


def _next_layer(layer: str, places: Mapping[str, list[str]], used: dict[str, int]) -> str:
    """Return the name of the next free layer of the stack that one of DI-engine's belongs to, else its own name."""
    for pattern, stack in _STACKS:
        if found := re.match(pattern, layer):
            place = found.expand(stack)
            used[place] = number = used.get(place, 0) + 1
            layers = places.get(place, [])
            return layers[number - 1] if number <= len(layers) else layer
    return _LAYERS.get(layer, layer)


# Raised by one when files of older versions can no longer be read.
FORMAT = 1
_MANIFEST = "manifest.json"


class Saved(NamedTuple):
    """One saved point of a run."""

    step: int
    parts: dict[str, State]
    meta: dict[str, Json]


class ResumeStore:
    """Saved points of the parts of a run, each under a step number; the newest valid one is loaded."""

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 2, durable: bool = True) -> None:
        self.folder = Path(folder)
        self._keep = keep
        self._durable = durable

    def save(self, step: int, parts: Mapping[str, State], meta: Mapping[str, Json]) -> Path:
        """Write a step and delete all but the newest `keep`; `meta` is JSON-like. Returns the folder.

        A step that is there already is replaced. What a killed process left half-written is removed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        made, final = self._hidden(step, "tmp"), self.folder / str(step)
        made.mkdir()
        try:
            files = {}
            for name, state in parts.items():
                path = made / f"{name}.pt"
                save_state(path, state, durable=self._durable)
                files[path.name] = {"bytes": path.stat().st_size, "sha256": _hash(path)}
            manifest = {"format": FORMAT, "step": step, "files": files, "meta": dict(meta)}
            with atomic_write(made / _MANIFEST, durable=self._durable) as file:
                file.write(json.dumps(manifest, indent=1).encode())
            if final.exists():
                # A folder cannot replace a full one: the old one steps aside, and goes with the leftovers.
                os.rename(final, self._hidden(step, "old"))
            os.rename(made, final)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        if self._durable:
            sync_folder(self.folder)
        for old in self.steps()[self._keep :]:
            shutil.rmtree(self.folder / str(old), ignore_errors=True)
        self._remove_leftovers()
        return final

    def steps(self) -> list[int]:
        """Return the steps that are there, newest first; `load` finds out whether they are valid."""
        if not self.folder.is_dir():
            return []
        return sorted((int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()), reverse=True)

    def load_newest(self) -> Saved:
        """Return the newest step whose files fit its manifest; skipped ones are named in the log.

        Raises CheckpointError if there is none.
        """
        faults = []
        for step in self.steps():
            try:
                saved = self.load(step)
            except CheckpointError as error:
                faults.append(str(error))
            else:
                for fault in faults:
                    logger.warning("%s Going on from step %d instead.", fault, step)
                return saved
        if faults:
            raise CheckpointError(f"no saved point of {self.folder} is valid: " + " ".join(faults))
        raise CheckpointError(
            f"there is nothing to resume in {self.folder}: the run saved no point before it ended. Start it again, "
            "or begin from a model with --load-path."
        )

    def load(self, step: int) -> Saved:
        """Return one step. Raises CheckpointError if it is not whole, or of another version."""
        files, meta = self._checked(step)
        return Saved(step, {path.stem: load_state(path, what="saved state") for path in files}, meta)

    def newest_meta(self) -> dict[str, Json]:
        """Return the `meta` of the newest step whose manifest can be read; its other files are not read.

        Raises CheckpointError if there is none.
        """
        for step in self.steps():
            with suppress(CheckpointError):
                return dict(_read_manifest(self.folder / str(step) / _MANIFEST)["meta"])
        return self.load_newest().meta  # raises the error that names the faults

    def whole_steps(self) -> list[int]:
        """Return the steps whose files fit their manifests, newest first."""
        found = []
        for step in self.steps():
            with suppress(CheckpointError):
                self._checked(step)
                found.append(step)
        return found

    def forget_after(self, step: int) -> None:
        """Delete the steps that are newer than one: a run that resumes from it makes them again."""
        for newer in (each for each in self.steps() if each > step):
            shutil.rmtree(self.folder / str(newer), ignore_errors=True)

    def _checked(self, step: int) -> tuple[list[Path], dict[str, Json]]:
        """Return (the files, `meta`) of a step. Raises CheckpointError if a file does not fit the manifest."""
        folder = self.folder / str(step)
        manifest = _read_manifest(folder / _MANIFEST)
        for name, expected in manifest["files"].items():
            path = folder / name
            size = path.stat().st_size if path.is_file() else -1
            if size != expected["bytes"] or _hash(path) != expected["sha256"]:
                seen = "is missing" if size < 0 else f"has {size} bytes of {expected['bytes']} or other contents"
                raise CheckpointError(f"{path} {seen}.")
        return [folder / name for name in manifest["files"]], manifest["meta"]

    def _hidden(self, step: int, kind: str) -> Path:
        return self.folder / f".{step}.{secrets.token_hex(4)}.{kind}"

    def _remove_leftovers(self) -> None:
        for path in self.folder.iterdir():
            if path.name.startswith(".") and path.suffix in (".tmp", ".old"):
                shutil.rmtree(path, ignore_errors=True)


def _read_manifest(path: Path) -> dict[str, Json]:
    try:
        manifest: dict[str, Json] = json.loads(path.read_bytes())
        is_ours = isinstance(manifest["files"], dict) and isinstance(manifest["meta"], dict)
        version = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is missing or no manifest ({error}).") from error
    if not is_ours or version != FORMAT:
        raise CheckpointError(f"{path} is of format {version}, this version reads {FORMAT}.")
    return manifest


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
