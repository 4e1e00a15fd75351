"""Runs are tracked by wandb, offline, by MLflow and by trackio, in a folder: begun, interrupted, gone on with."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import resume_pipeline, serial_pipeline
from ding_like.utils.trackers import TrackedRun, TrackerRefusedError, TrackioTracker
from tests.pipeline.test_serial import make_configs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("in_tmp", "no_pictures")]


def configs(**trackers: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    main, create = make_configs()
    main["resume"] = dict(save_every_env_steps=200)
    main["trackers"] = {name: dict(every_s=0.2, **settings) for name, settings in trackers.items()}
    return main, create


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("exp/metrics.jsonl").read_text().splitlines()]


def run_in_two_parts(cfg: Any) -> None:
    """Train until an error, after points were saved and more was written, and go on to the end."""

    class StopError(Exception):
        pass

    def stop(**said: Any) -> None:
        raise StopError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ding_like.pipeline.training_loop.TrainingLoop._conclude", lambda self, *args, **kwargs: stop())
        with pytest.raises(StopError):
            serial_pipeline(cfg, seed=0, max_env_step=400)
    resume_pipeline("exp", max_env_step=700)


def test_mlflow_has_every_line_once_under_one_run() -> None:
    mlflow = pytest.importorskip("mlflow")
    run_in_two_parts(configs(mlflow=dict(uri="runs", experiment="tests", tags={"team": "a"})))

    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(tracking_uri="runs")
    (run,) = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "exp" and run.data.tags["team"] == "a"
    assert run.data.params["policy.learn.batch_size"] == "16" and run.data.params["policy.type"] == "dqn"
    written = [(line["env_step"], line["reward_mean"]) for line in lines() if line["source"] == "evaluator"]
    history = client.get_metric_history(run.info.run_id, "evaluator/reward_mean")
    assert [(metric.step, metric.value) for metric in history] == written
    result = json.loads(Path("exp/result.json").read_text())
    assert run.data.metrics["result/eval_value"] == result["eval_value"]
    names = {Path(file.path).name for file in client.list_artifacts(run.info.run_id)}
    assert names == {"result.json", "total_config.py"}


def records(path: Path) -> Iterator[bytes]:
    """Yield the records of a file that wandb wrote: a log of blocks of 32 KiB, each record with a header of 7 bytes."""
    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole of a record, or its last part
            yield whole
            whole = b""


def test_wandb_goes_on_with_the_run_and_has_every_line_once() -> None:
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    run_in_two_parts(configs(wandb=dict(mode="offline", project="tests", tags=["a"])))

    files = sorted(Path("exp/wandb").glob("offline-run-*/run-*.wandb"))
    parsed = []
    for record in (record for file in files for record in records(file)):
        parsed.append(wandb_internal_pb2.Record())
        parsed[-1].ParseFromString(record)
    runs = [record.run for record in parsed if record.WhichOneof("record_type") == "run"]
    assert len(files) == 2 and {run.run_id for run in runs} == {json.loads(STATE.read_text())["run"]}
    assert {run.project for run in runs} == {"tests"} and {run.display_name for run in runs} == {"exp"}
    found = []
    for record in parsed:
        if record.WhichOneof("record_type") == "history":
            items = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
            if "evaluator/reward_mean" in items:
                found.append((int(items["env_step"]), float(items["evaluator/reward_mean"])))
    written = [(line["env_step"], line["reward_mean"]) for line in lines() if line["source"] == "evaluator"]
    assert found == written


STATE = Path("exp/log/trackers/wandb.json")


TRACKIO_STATE = Path("exp/log/trackers/trackio.json")


def test_trackio_goes_on_with_the_run_and_has_every_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look into the database that trackio writes on this machine; the folder is read once, when it is imported."""
    monkeypatch.setenv("TRACKIO_DIR", str(Path("db").absolute()))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    trackio = pytest.importorskip("trackio")
    run_in_two_parts(configs(trackio=dict(project="tests", group="a", dir="db")))

    api = trackio.Api()
    runs = [run for run in api.runs("tests") if run.id == json.loads(TRACKIO_STATE.read_text())["run"]]
    assert len(runs) == 1 and runs[0].name == "exp"
    history = trackio.SQLiteStorage.get_logs("tests", "exp", run_id=runs[0].id)
    found = [
        (row["step"], row["evaluator/reward_mean"]) for row in history if row.get("evaluator/reward_mean") is not None
    ]
    assert found == [(line["env_step"], line["reward_mean"]) for line in lines() if line["source"] == "evaluator"]
    result = json.loads(Path("exp/result.json").read_text())
    assert history[-1]["result/eval_value"] == result["eval_value"] and history[-1]["status"] == "finished"
    assert runs[0].config["policy.learn.batch_size"] == 16
    with pytest.raises(TrackerRefusedError, match="trackio takes one folder"):
        TrackioTracker({**TrackioTracker.config, "dir": "other"}).begin(TrackedRun("exp", Path("exp"), {}, None))
