import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ding_like.errors import CheckpointError
from ding_like.utils.checkpoint import ResumeStore


def save(store: ResumeStore, step: int) -> None:
    store.save(step, {"policy": {"weight": np.full(100, step)}, "run": {"step": step}}, {"seed": 3})


def test_newest_step_comes_back_whole(tmp_path):
    store = ResumeStore(tmp_path / "resume")
    for step in (10, 200, 90):
        save(store, step)

    saved = store.load_newest()

    assert saved.step == 200 and saved.meta == {"seed": 3}
    assert saved.parts["run"] == {"step": 200}
    np.testing.assert_array_equal(saved.parts["policy"]["weight"], np.full(100, 200))


def test_only_the_newest_are_kept_and_a_step_is_replaced(tmp_path):
    store = ResumeStore(tmp_path, keep=2)
    for step in range(5):
        save(store, step)
    store.save(4, {"run": {"step": -1}}, {})

    assert store.load_newest().parts == {"run": {"step": -1}}
    assert store.steps() == [4, 3]
    assert sorted(os.listdir(tmp_path)) == ["3", "4"]


def damage_truncate(folder):
    path = folder / "policy.pt"
    path.write_bytes(path.read_bytes()[:-7])


def damage_flip(folder):
    path = folder / "policy.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def damage_missing(folder):
    (folder / "run.pt").unlink()


def damage_manifest(folder):
    (folder / "manifest.json").write_text("{")


def damage_format(folder):
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))


@pytest.mark.parametrize("damage", [damage_truncate, damage_flip, damage_missing, damage_manifest, damage_format])
def test_a_damaged_step_is_skipped_with_a_word(tmp_path, damage, caplog):
    store = ResumeStore(tmp_path)
    save(store, 1)
    save(store, 2)
    damage(tmp_path / "2")

    with caplog.at_level(logging.WARNING):
        saved = store.load_newest()

    assert saved.step == 1
    assert "Going on from step 1 instead" in caplog.text


def test_nothing_valid_is_one_error(tmp_path):
    store = ResumeStore(tmp_path)
    with pytest.raises(CheckpointError, match="nothing to resume"):
        store.load_newest()
    save(store, 1)
    damage_truncate(tmp_path / "1")

    with pytest.raises(CheckpointError, match="no saved point .* is valid"):
        store.load_newest()


def test_leftovers_of_a_killed_or_failed_save_are_ignored_and_removed(tmp_path):
    store = ResumeStore(tmp_path)
    save(store, 1)
    leftover = tmp_path / ".2.abcd.tmp"
    leftover.mkdir()
    (leftover / "policy.pt").write_bytes(b"half")

    assert store.load_newest().step == 1
    with pytest.raises(CheckpointError):
        store.save(2, {"run": {"bad": object()}}, {})

    assert store.load_newest().step == 1
    assert os.listdir(tmp_path) == ["1"], "a save that fails leaves nothing, either"


def test_other_contents_of_the_same_size_are_refused(tmp_path):
    # A valid file of another step in place of this one's: only the hash can tell.
    store = ResumeStore(tmp_path)
    save(store, 1)
    save(store, 2)
    (tmp_path / "2/policy.pt").write_bytes((tmp_path / "1/policy.pt").read_bytes())

    with pytest.raises(CheckpointError, match=r"2/policy.pt has \d+ bytes of \d+ or other contents"):
        store.load(2)


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_point_waits_for_the_disk_before_it_takes_its_place(tmp_path, monkeypatch, durable):
    synced = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    monkeypatch.setattr(os, "rename", lambda source, target: (synced.append("renamed"), rename(source, target)))

    save(ResumeStore(tmp_path, durable=durable), 1)

    before = " ".join(os.path.basename(path) for path in synced[: synced.index("renamed")])
    after = synced[synced.index("renamed") + 1 :]
    if durable:
        assert all(name in before for name in ("manifest.json", "policy.pt", "run.pt"))
        assert after == [str(tmp_path)]
    else:
        assert not before and not after


ROOT = Path(__file__).parents[2]

# One process imports torch once and forks a child per kill: the children only save.
SCRIPT = """
import os, random, select, signal, sys
import numpy as np
import torch
from ding_like.utils.checkpoint import ResumeStore

torch.set_num_threads(1)
folder, kills = sys.argv[1], int(sys.argv[2])
rng = random.Random(0)
store = ResumeStore(folder, durable=False)
store.save(0, {"policy": {"weight": np.full(1000, 0)}}, {})
unfinished = 0
for kill in range(kills):
    before = store.load_newest().step
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready)
        os.write(done, b"x")
        step = before
        while True:
            step += 1
            store.save(step, {"policy": {"weight": np.full(100_000, step)}, "buffer": {"x": np.full(50_000, step)}}, {})
    os.close(done)
    os.read(ready, 1)
    select.select([ready], [], [], rng.uniform(0.0, 0.02))  # the child never writes again: a deadline, no look
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ready)
    unfinished += any(name.endswith((".tmp", ".old")) for name in os.listdir(folder))
    saved = store.load_newest()
    assert saved.step >= before, (saved.step, before)
    weight = saved.parts["policy"]["weight"]
    assert (weight == saved.step).all(), "parts of two points were mixed"
print("kills", kills, "in the middle of a save", unfinished)
"""


def run(folder: Path, kills: int) -> int:
    """Return how many of the kills came in the middle of a save."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), str(kills)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_three_hundred_kills_while_saving_never_lose_the_newest_point(tmp_path):
    assert run(tmp_path / "resume", 300) > 50
