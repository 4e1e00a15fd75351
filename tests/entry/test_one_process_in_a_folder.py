"""A run's folder belongs to one process: a second is refused, a start that fails leaves nothing."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import parallel_pipeline, resume_pipeline, serial_pipeline, serial_pipeline_onpolicy
from ding_like.entry.cli import main
from ding_like.errors import ConfigError, DingError
from ding_like.utils import files as files_module
from ding_like.utils.files import LOCK_FILE, FolderLock
from tests.pipeline.test_serial import make_configs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


@pytest.fixture
def saved(tmp_path) -> Path:
    serial_pipeline(make_configs(), seed=0, max_env_step=64, exp_name="run")
    return tmp_path / "run"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != LOCK_FILE}


def test_no_run_goes_on_or_starts_in_the_folder_of_a_running_run_and_nothing_is_touched(saved):
    before, goes_on = files(saved), ["policy.learn.resume_training=True"]

    with FolderLock(saved), pytest.raises(ConfigError, match="run/ is in use"):
        resume_pipeline("run", max_env_step=128)
    with FolderLock(saved), pytest.raises(ConfigError, match="run/ is in use"):
        serial_pipeline(make_configs(), max_env_step=64, exp_name="run", overrides=goes_on)

    assert files(saved) == before
    resume_pipeline("run", max_env_step=128)


def test_a_run_is_held_while_it_trains_and_free_afterwards(monkeypatch):
    seen: list[str] = []

    def look(*args: Any, **kwargs: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            FolderLock("run")
        seen.append(str(caught.value))

    monkeypatch.setattr("ding_like.entry.training.write_pictures", look)
    serial_pipeline(make_configs(), seed=0, max_env_step=64, exp_name="run")

    assert len(seen) == 1
    FolderLock("run").close()


def test_a_copy_of_a_held_folder_is_resumed(saved):
    with FolderLock(saved):
        shutil.copytree(saved, "copy")

        resume_pipeline("copy", max_env_step=96)

    assert json.loads(Path("copy/result.json").read_text())["env_step"] >= 96


def test_of_two_resumes_at_once_one_is_refused(saved):
    begin, said = threading.Barrier(2), []

    def resume() -> None:
        begin.wait(timeout=10)
        try:
            resume_pipeline("run", max_env_step=400)
        except ConfigError as error:
            said.append(str(error))

    threads = [threading.Thread(target=resume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert len(said) == 1 and "is in use" in said[0]
    assert json.loads((saved / "result.json").read_text())["env_step"] >= 400


def test_readers_need_no_lock(saved, capsys):
    with FolderLock(saved):
        main(["plot", "run"])

    assert Path("plot.png").is_file() or "png" in capsys.readouterr().out


@pytest.mark.parametrize("fault", ["env", "policy"])
def test_a_start_that_fails_leaves_no_folder(fault):
    main_config, create = make_configs()
    if fault == "env":
        main_config["env"]["wrappers"] = [dict(type="rescale_action", min_action=-1, max_action=1)]
    else:
        main_config["policy"]["model"] = dict(encoder_hidden_size_list=[-3])

    with pytest.raises((DingError, AssertionError, RuntimeError)):
        serial_pipeline((main_config, create), max_env_step=64, exp_name="deep/run")

    assert list(Path().iterdir()) == []


def test_a_start_that_is_refused_leaves_no_folder():
    with pytest.raises(ConfigError, match="off-policy"):
        serial_pipeline_onpolicy(make_configs(), max_env_step=64, exp_name="run")
    with pytest.raises(ConfigError, match="segment_rows"):
        parallel_pipeline((*make_configs(), dict(segment_rows=10**9)), max_env_step=64, exp_name="run")

    assert list(Path().iterdir()) == []


def test_a_run_that_fails_later_keeps_its_folder(monkeypatch):
    from ding_like.pipeline.training_loop import SerialRunner

    real, calls = SerialRunner.step, []

    def step(self: SerialRunner) -> None:
        calls.append(self)
        if len(calls) == 3:
            raise RuntimeError("later")
        real(self)

    monkeypatch.setattr(SerialRunner, "step", step)
    with pytest.raises(RuntimeError, match="later"):
        serial_pipeline(make_configs(), max_env_step=640, exp_name="run")

    assert Path("run/total_config.py").is_file()


class FullDisk:
    """Disk that is full the first times that files of some names are written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> None:
        self.left, self.name, self.real = times, name, files_module.os.replace
        monkeypatch.setattr(files_module.os, "replace", self.replace)
        monkeypatch.setattr(files_module, "_LOOK_S", 0.001)

    def replace(self, source: Any, target: Any) -> None:
        if self.name in str(target) and self.left:
            self.left -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self.real(source, target)


@pytest.mark.parametrize("name", ["total_config.py", "result.json", "ckpt_best", "policy.pt"])
def test_a_full_disk_is_waited_for(name, monkeypatch, caplog):
    disk = FullDisk(monkeypatch, name, 3)

    serial_pipeline(make_configs(), seed=0, max_env_step=64, exp_name="run")

    assert disk.left == 0 and "the disk is full" in caplog.text and "waiting for room" in caplog.text
    assert json.loads(Path("run/result.json").read_text())["env_step"] >= 64
    resume_pipeline("run", max_env_step=96)


def test_a_point_in_between_is_passed_over_on_a_full_disk(monkeypatch, caplog):
    main_config, create = make_configs()
    main_config["resume"] = dict(save_every_env_steps=50)
    disk = FullDisk(monkeypatch, "policy.pt", 1)

    serial_pipeline((main_config, create), seed=0, max_env_step=200, exp_name="run")

    assert disk.left == 0 and "is not saved, earlier ones stay" in caplog.text and "waiting for room" not in caplog.text
    assert len(list(Path("run/ckpt/resume").iterdir())) == 2


def test_a_disk_that_stays_full_is_one_error_and_earlier_points_stay(saved, monkeypatch):
    FullDisk(monkeypatch, "policy.pt", 10**9)
    monkeypatch.setattr(files_module, "_LONGEST_S", 0.0)
    real = files_module.when_there_is_room

    def at_once(write: Any, **kwargs: Any) -> Any:
        return real(write, **kwargs, longest_s=0.0)

    monkeypatch.setattr("ding_like.pipeline.training_loop.when_there_is_room", at_once)
    with pytest.raises(
        DingError, match=r"the run's last point, .*, is not saved: the disk stayed full .* ding --resume"
    ):
        resume_pipeline("run", max_env_step=128)

    assert len(list((saved / "ckpt/resume").iterdir())) == 1
