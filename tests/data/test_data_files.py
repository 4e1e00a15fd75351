"""Data sets in columns, in D4RL's HDF5 and in Minari: the same steps come back, and a bad file is one error."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.data.data_files import read_data, write_data
from ding_like.data.demonstrations import Demonstrations
from ding_like.data.mapped import FileColumn
from ding_like.errors import CheckpointError, ConfigError, DingError, SchemaError

h5py = pytest.importorskip("h5py")
minari = pytest.importorskip("minari")

NAMES = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
FORMS = ("a.safetensors", "a.hdf5", "minari:hopper/test-v0")


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def steps(lengths: tuple[int, ...] = (4, 1, 3), *, seed: int = 0) -> Demonstrations:
    """Return episodes of these lengths: every other one is truncated, the others terminate."""
    rng, parts = np.random.default_rng(seed), []
    for number, length in enumerate(lengths):
        states = rng.normal(size=(length + 1, 3)).astype(np.float32)
        ends = np.arange(length) == length - 1
        parts.append(
            dict(
                obs=states[:-1],
                action=rng.uniform(-1, 1, (length, 2)).astype(np.float32),
                reward=rng.normal(size=length).astype(np.float32),
                next_obs=states[1:],
                terminated=ends & (number % 2 == 1),
                truncated=ends & (number % 2 == 0),
            )
        )
    columns = {name: np.concatenate([part[name] for part in parts]) for name in NAMES}
    return Demonstrations(columns, {"env_id": "Hopper-v5", "level": "test"})


def assert_equal(found: Demonstrations, expected: Demonstrations) -> None:
    for name in NAMES:
        assert found.columns[name].dtype == expected.columns[name].dtype, name
        assert np.array_equal(found.columns[name], expected.columns[name]), name


@pytest.mark.parametrize("form", FORMS)
def test_the_steps_come_back(form: str) -> None:
    data = steps()

    write_data(data, form)
    found = read_data(form)

    assert_equal(found, data)
    assert found.info["env_id"] == "Hopper-v5"
    assert found.ends.tolist() == [3, 4, 7]
    assert np.allclose(found.returns, [each.sum() for each in np.split(data.columns["reward"], [4, 5])])


@pytest.mark.parametrize("form", FORMS)
def test_discrete_actions_come_back(form: str) -> None:
    data = steps()
    data = Demonstrations({**data.columns, "action": np.array([0, 1, 2, 0, 1, 2, 0, 1])})

    write_data(data, form)

    assert_equal(read_data(form), data)


def test_a_minari_data_set_is_read_from_a_folder_too() -> None:
    write_data(steps(), FORMS[2])

    assert_equal(read_data("minari/hopper/test-v0"), steps())


def test_parts_of_an_observation_come_back_from_columns_and_from_minari() -> None:
    from gymnasium import spaces

    rng = np.random.default_rng(0)
    obs = {"arm": rng.normal(size=(4, 2)), "goal": rng.normal(size=(4, 1))}  # float64, as envs have them
    box = spaces.Dict({name: spaces.Box(-9, 9, part.shape[1:], np.float64) for name, part in obs.items()})
    buffer = minari.data_collector.EpisodeBuffer(
        observations=obs,
        actions=np.zeros((3, 1), np.float32),
        rewards=np.ones(3),
        terminations=np.zeros(3, bool),
        truncations=np.zeros(3, bool),
    )
    with pytest.warns(UserWarning):
        minari.create_dataset_from_buffers(
            "dicts-v0", [buffer], observation_space=box, action_space=spaces.Box(-1, 1, (1,), np.float32)
        )

    found = read_data("minari:dicts-v0")

    assert np.array_equal(found.columns["obs/arm"], obs["arm"][:-1].astype(np.float32))
    assert np.array_equal(found.columns["next_obs/goal"], obs["goal"][1:].astype(np.float32))
    assert found.columns["truncated"].tolist() == [False, False, True]  # the episode did not end: it was cut
    write_data(found, "dicts.safetensors")
    assert np.array_equal(read_data("dicts.safetensors").columns["obs/arm"], found.columns["obs/arm"])
    with pytest.raises(ConfigError, match="no observations of several parts; give FILE.safetensors"):
        write_data(found, "dicts.hdf5")


# ---- what D4RL's files lack


def write_d4rl(data: Demonstrations, *names: str, path: str = "a.hdf5", **settings: Any) -> None:
    theirs = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    with h5py.File(path, "w") as file:
        for name in names:
            file.create_dataset(theirs[NAMES.index(name)], data=data.columns[name], **settings)
        file.create_group("infos")["qpos"] = np.zeros(3)  # is ignored
        file["metadata/algorithm"] = "SAC"


def slow_completion(data: Demonstrations, *, has_timeouts: bool) -> list[tuple[Any, ...]]:
    """Return (obs, reward, next_obs, terminated, truncated) of the steps that have a next observation, row by row."""
    columns, rows = data.columns, []
    number = len(data)
    for row in range(number):
        terminated = bool(columns["terminated"][row])
        cut = has_timeouts and bool(columns["truncated"][row]) and not terminated
        if not terminated and (cut or row == number - 1):
            continue
        after_is_cut = not terminated and (
            (row + 1 == number - 1 and not columns["terminated"][row + 1])
            or (has_timeouts and columns["truncated"][row + 1] and not columns["terminated"][row + 1])
        )
        next_obs = columns["obs"][row] if terminated else columns["obs"][row + 1]
        rows.append((columns["obs"][row], columns["reward"][row], next_obs, terminated, bool(after_is_cut)))
    return rows


@pytest.mark.parametrize("has_timeouts", [True, False])
@pytest.mark.parametrize("lengths", [(4, 1, 3), (3, 2), (1, 4, 1), (1, 1, 1, 2)])
def test_next_observations_that_lack_are_those_of_the_next_rows(
    has_timeouts: bool, lengths: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    data = steps(lengths)
    write_d4rl(data, *NAMES[:3], "terminated", *["truncated"] * has_timeouts)

    found = read_data("a.hdf5").columns

    expected = slow_completion(data, has_timeouts=has_timeouts)
    names = ("obs", "reward", "next_obs", "terminated", "truncated")
    for name, values in zip(names, zip(*expected, strict=True), strict=True):
        assert np.array_equal(found[name], np.array(values)), name
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "a.hdf5 lacks" in warned[0] and "the last step of each episode that was cut is dropped" in warned[0]
    assert ("an episode ends only at terminals" in warned[0]) == (not has_timeouts)


def test_without_timeouts_an_episode_ends_at_terminals_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    write_d4rl(steps((4, 1, 3)), *NAMES[:5])

    found = read_data("a.hdf5")

    assert found.columns["truncated"].tolist() == [False] * 7 + [True]
    assert found.ends.tolist() == [4, 7]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_contiguous_columns_stay_in_the_file_and_others_are_loaded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    write_d4rl(steps(), *NAMES)
    plain = read_data("a.hdf5").columns
    assert [name for name, column in plain.items() if isinstance(column, FileColumn) and column.file] == [
        "obs", "action", "reward", "next_obs",
    ]  # fmt: skip
    assert not caplog.records

    write_d4rl(steps(), *NAMES, compression="gzip", chunks=True, path="b.hdf5")
    packed = read_data("b.hdf5")

    assert_equal(packed, steps())
    assert not any(isinstance(column, FileColumn) for column in packed.columns.values())
    assert "b.hdf5: loaded into memory" in caplog.text and "observations (float32, compressed)" in caplog.text


# ---- bad files


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["obs", "reward", "action", "next_obs"])
def test_a_number_that_is_not_finite_is_named_by_file_column_and_row(form: str, name: str) -> None:
    data = steps()
    row = 7 if name == "next_obs" else 5  # of an episode, Minari keeps the last one alone
    data.columns[name][row] = np.nan
    write_data(data, form)

    with pytest.raises(SchemaError, match=rf"{form}.*column '{name}', row {row}, that is not finite"):
        read_data(form)


def test_a_row_is_that_of_the_file_where_steps_are_dropped() -> None:
    data = steps()
    data.columns["reward"][6] = np.inf
    write_d4rl(data, *NAMES[:3], "terminated", "truncated")

    with pytest.raises(SchemaError, match="column 'reward', row 6"):
        read_data("a.hdf5")


def halve(path: str) -> None:
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("form", "file"), [(FORMS[0],) * 2, (FORMS[1],) * 2, (FORMS[2], "minari/hopper/test-v0/data/main_data.hdf5")]
)
@pytest.mark.parametrize("spoil", [halve, lambda file: Path(file).write_bytes(b"hello, world" * 99)])
def test_a_damaged_file_is_one_error(form: str, file: str, spoil: Any) -> None:
    write_data(steps(), form)
    spoil(file)

    with pytest.raises(CheckpointError, match=f"{form} cannot be read as .*It is damaged|it is damaged"):
        read_data(form)


def without(name: str) -> Callable[[Any], None]:
    return lambda file: file.__delitem__(name)


def replaced(name: str, value: Any, **settings: Any) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        del file[name]
        file.create_dataset(name, data=value, **settings)

    return change


def linked(file: Any) -> None:
    file.move("rewards", "other")
    file["rewards"] = h5py.ExternalLink("b.hdf5", "rewards")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("rewards"), "a.hdf5 lacks rewards: an HDF5 file in D4RL's form has observations, actions,"),
        (replaced("actions", np.zeros((3, 2))), "columns of other lengths than one: .*'actions': 3"),
        (replaced("rewards", np.zeros((8, 2), "f4")), r"rows 'reward' of shape \[2\], expected a number"),
        (replaced("next_observations", np.zeros((8, 4), "f4")), r"'obs' of shape \[3\], but 'next_obs' of \[4\]"),
        (replaced("actions", np.array([b"x"] * 8, object), dtype=h5py.string_dtype()), "'actions' of object"),
        (
            replaced("terminals", np.array([0, 1, 0, 1, 7.0, 0, 0, 0])),
            "7.0 in column 'terminated', row 4, exp",
        ),
        (replaced("timeouts", np.full(8, np.nan)), "nan in column 'truncated', row 0, expected 0 or 1"),
        (replaced("timeouts", np.zeros((8, 2))), r"rows 'truncated' of shape \[2\], expected a number"),
        (linked, "'rewards' that is no data set of its own"),
    ],
)
def test_an_hdf5_file_of_another_form_is_one_error(change: Any, message: str) -> None:
    write_d4rl(steps(), *NAMES)
    write_d4rl(steps(), *NAMES, path="b.hdf5")
    with h5py.File("a.hdf5", "a") as file:
        change(file)

    with pytest.raises(SchemaError, match=message):
        read_data("a.hdf5")


def test_a_minari_data_set_that_does_not_describe_its_spaces_makes_no_env() -> None:
    write_data(steps(), FORMS[2])
    file = Path("minari/hopper/test-v0/data/metadata.json")
    described = json.loads(file.read_text())
    del described["action_space"]
    file.write_text(json.dumps(described))

    with pytest.raises(SchemaError, match="hopper/test-v0 does not describe its action_space"):
        read_data(FORMS[2])


def test_reference_scores_of_minari_are_read() -> None:
    write_data(steps(), FORMS[2])
    assert "reference" not in read_data(FORMS[2]).info
    file = Path("minari/hopper/test-v0/data/metadata.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "ref_min_score": 20.3, "ref_max_score": 3234.0}))

    assert read_data(FORMS[2]).info["reference"] == {"random": 20.3, "expert": 3234.0}


def test_minari_observations_of_another_number_are_refused() -> None:
    write_data(steps(), FORMS[2])
    with h5py.File("minari/hopper/test-v0/data/main_data.hdf5", "a") as file:
        short = file["episode_2/observations"][:-1]
        del file["episode_2/observations"]
        file["episode_2/observations"] = short

    with pytest.raises(SchemaError, match="2 rows 'obs' in episode 2, of 3 steps"):
        read_data(FORMS[2])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no.safetensors", "no file of demonstrations 'no.safetensors'"),
        ("no.hdf5", "no file of demonstrations 'no.hdf5'"),
        ("minari:no/such-v0", "no Minari data set 'no/such-v0' here: `minari download no/such-v0` gets it"),
    ],
)
def test_a_data_set_that_is_not_there_is_one_error(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_data(path)


def test_a_folder_of_no_data_set_is_one_error() -> None:
    Path("empty").mkdir()

    with pytest.raises(DingError, match="empty cannot be read as a Minari data set"):
        read_data("empty")


def test_a_minari_data_set_is_not_overwritten() -> None:
    write_data(steps(), FORMS[2])

    with pytest.raises(ConfigError, match="hopper/test-v0 cannot be written: .*already exists"):
        write_data(steps(), FORMS[2])


@pytest.mark.parametrize(("form", "package"), [("a.hdf5", "h5py"), ("minari:a-v0", "minari")])
def test_a_package_that_lacks_is_named_with_its_extra(form: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)

    with pytest.raises(ConfigError, match=rf"need the package {package}; install it with: pip install .*\[offline\]"):
        write_data(steps(), form)
