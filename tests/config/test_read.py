"""A config file gives its configs, or one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding_like.config import read_config
from ding_like.config.report import find_lines
from ding_like.errors import ConfigError


def written(folder: Path, text: str, name: str = "some_config.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_unpacks_into_two_configs_as_scripts_of_di_engine_expect(tmp_path: Path) -> None:
    path = written(tmp_path, "main_config = dict(a=1)\ncreate_config = {'b': 2}\nsystem_config = {'c': 3}\n")

    main, create = file = read_config(path)

    assert (main, create, file.system_config) == ({"a": 1}, {"b": 2}, {"c": 3})


def test_main_block_does_not_run(tmp_path: Path) -> None:
    path = written(tmp_path, "main_config = create_config = {}\nif __name__ == '__main__':\n    raise SystemExit\n")

    assert read_config(path).main_config == {}


def test_file_may_import_modules_beside_it(tmp_path: Path) -> None:
    written(tmp_path, "SIZE = 3\n", "sizes_beside.py")
    path = written(tmp_path, "from sizes_beside import SIZE\nmain_config = dict(size=SIZE)\ncreate_config = {}\n")

    assert read_config(path).main_config == {"size": 3}


def test_missing_file_names_close_ones(tmp_path: Path) -> None:
    written(tmp_path, "", "cartpole_dqn_config.py")

    with pytest.raises(ConfigError, match="no config file .*cartpole_dqm_config.py'; did you mean .*cartpole_dqn"):
        read_config(tmp_path / "cartpole_dqm_config.py")


def test_missing_file_names_close_ones_among_those_shipped() -> None:
    with pytest.raises(ConfigError, match="dizoo.*cartpole_dqn_config.py"):
        read_config("cartpole_dqn_confg.py")


def test_other_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a config is a Python file with the ending .py"):
        read_config(tmp_path / "config.yaml")


def test_folder_is_refused_with_a_file_inside_it(tmp_path: Path) -> None:
    written(tmp_path, "", "total_config.py")

    with pytest.raises(ConfigError, match="is a folder; give a config file, such as total_config.py"):
        read_config(tmp_path)


def test_syntax_error_is_told_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "main_config = {}\ncreate_config = dict(\n")

    with pytest.raises(ConfigError, match=r"some_config.py, line 2: "):
        read_config(path)


def test_error_of_the_file_is_told_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "main_config = {}\nimport package_that_is_not_installed\n")

    with pytest.raises(ConfigError, match=r"line 2: ModuleNotFoundError: .*package_that_is_not_installed") as caught:
        read_config(path)

    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_missing_main_config_names_what_may_be_it(tmp_path: Path) -> None:
    path = written(tmp_path, "cartpole_config = dict()\ncreate_config = dict()\n")

    with pytest.raises(ConfigError, match="defines no main_config; is it 'c.*_config'"):
        read_config(path)


def test_config_that_is_no_dict_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "main_config = [1]\ncreate_config = {}\n")

    with pytest.raises(ConfigError, match="main_config must be a dict or an EasyDict, got list"):
        read_config(path)


def test_second_reading_sees_the_changed_file(tmp_path: Path) -> None:
    path = written(tmp_path, "main_config = dict(a=1)\ncreate_config = {}\n")
    read_config(path)

    written(tmp_path, "main_config = dict(a=2)\ncreate_config = {}\n")

    assert read_config(path).main_config == {"a": 2}


SPELLINGS = """\
from easydict import EasyDict
base = {"a": 1, "nested": {
    "b": 2}}
more = dict(
    c=3)
main_config = EasyDict(dict(
    **more,
    first=base,
    d=dict(x=1) | {
        "y": 2},
))
main_config.first.e = 5
main_config["first"]["f"] = 6
create_config: dict = {}
create_config: dict = EasyDict(policy=dict(
    type="dqn"))
create_config = EasyDict(create_config)
"""


def test_lines_are_found_however_a_dict_is_spelled(tmp_path: Path) -> None:
    for path, line in [
        ("c", 5),
        ("first", 8),
        ("first.a", 2),
        ("first.nested.b", 3),
        ("d.x", 9),
        ("d.y", 10),
        ("first.e", 12),
        ("first.f", 13),
        ("create_config.policy.type", 16),
    ]:
        assert find_lines(str(written(tmp_path, SPELLINGS)))[path] == line
