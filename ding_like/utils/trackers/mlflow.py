"""Tracker of MLflow."""

from __future__ import annotations

import importlib.util
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ding_like.types import Config
from ding_like.utils.registries import TRACKER_REGISTRY
from ding_like.utils.trackers.tracker import Report, Status, TrackedRun, numbers_of, values_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

T = TypeVar("T")

_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_MOST_METRICS, _MOST_PARAMS = 1000, 100  # of one request
_LONGEST_PARAM = 500  # characters that every server takes
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
# A server that does not answer: seconds of a request, and how often it is tried again; MLflow's own are 120 and 7.
_BOUNDS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "20", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}


@TRACKER_REGISTRY.register("mlflow")
class MlflowTracker:
    """Tracker of MLflow: metrics over env steps, the config as parameters, the result, curve and video as artifacts.

    It writes to `uri`: a server, a database (sqlite:///mlflow.db) or a folder.
    """

    config: ClassVar[dict[str, Any]] = dict(
        # Server, database or folder of MLflow; None: MLFLOW_TRACKING_URI, else MLflow's own default, or ./mlruns where
        # its database packages are missing.
        uri=None,
        # Name of the experiment that the run belongs to.
        experiment="ding_like",
        # Name of the run; None: exp_name.
        name=None,
        # Tags of the run: names and values.
        tags={},
        # Seconds that the run waits at its end until everything is sent.
        finish_s=60.0,
        # Seconds between two batches of metrics.
        every_s=5.0,
    )
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {"uri": (str,), "name": (str,)}
    config_free: ClassVar[tuple[str, ...]] = ("tags",)
    package: ClassVar[str] = "mlflow"
    extra: ClassVar[str] = "mlflow"
    _client: MlflowClient  # of `begin`, which is called first

    def __init__(self, settings: Config) -> None:
        self._settings = settings
        self._run_id = ""
        self._env_step = 0

    def begin(self, run: TrackedRun) -> str:
        for name, value in {**_BOUNDS, "MLFLOW_ALLOW_FILE_STORE": "true"}.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        cfg = self._settings
        self._uri = cfg["uri"] or os.environ.get("MLFLOW_TRACKING_URI") or _default_uri()
        self._client = client = MlflowClient(tracking_uri=self._uri)
        if run.run_id is not None:
            client.update_run(run.run_id, status="RUNNING")
            self._run_id = run.run_id
            return run.run_id
        tags = {str(name): str(value) for name, value in cfg["tags"].items()}
        made = client.create_run(self._experiment_id(), run_name=cfg["name"] or run.name, tags=tags)
        self._run_id = str(made.info.run_id)
        self._send_params(run.config)
        return self._run_id

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        name, client = str(self._settings["experiment"]), self._client
        found = client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(client.create_experiment(name))
        except MlflowException:  # another run made it meanwhile
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)

    def describe(self) -> str:
        store = re.sub(r"//[^@/]*@", "//", self._uri or "the default store")  # no password in logs
        return f"run {self._run_id} of experiment '{self._settings['experiment']}' at {store}"

    def _send_params(self, config: Config) -> None:
        from mlflow.entities import Param

        params = (Param(_name(key), str(value)[:_LONGEST_PARAM]) for key, value in flattened(config))
        for part in _parts(params, _MOST_PARAMS):
            self._client.log_batch(self._run_id, params=part)

    def send(self, reports: Sequence[Report]) -> None:
        self._send((report["env_step"], values_of(report)) for report in reports)

    def _send(self, values: Iterator[tuple[int, Mapping[str, float]]]) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        metrics = []
        for env_step, numbers in values:
            self._env_step = max(self._env_step, env_step)
            step = self._env_step if env_step < 0 else env_step
            metrics += [Metric(_name(name), value, now_ms, step) for name, value in numbers.items()]
        for part in _parts(iter(metrics), _MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=part)

    def finish(self, result: Config, files: Sequence[Path], *, status: Status) -> None:
        self._send(iter([(int(result.get("env_step", -1)), numbers_of(result))]))
        for path in files:
            self._client.log_artifact(self._run_id, str(path))
        self._client.set_terminated(self._run_id, _STATUS[status])


def flattened(config: Config, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path.to.key, value) of every value of nested sections."""
    for key, value in config.items():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping) and value:
            yield from flattened(value, here)
        else:
            yield here, value


def _default_uri() -> str | None:
    return None if importlib.util.find_spec("sqlalchemy") is not None else "mlruns"


def _name(name: str) -> str:
    """Return a name with the characters that MLflow takes."""
    return _NOT_IN_NAMES.sub("_", name)


def _parts(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while part := list(islice(items, size)):
        yield part
