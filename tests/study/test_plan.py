"""Ranges of a study are read, or refused with what to type."""

from __future__ import annotations

from typing import Any

import pytest

from ding_like.config.override import parse_value
from ding_like.errors import ConfigError
from ding_like.study.plan import Param, parse_param, parse_params


def test_a_range_is_read() -> None:
    for text, param in [
        ("a.b=log:1e-5..1e-2", Param("a.b", "log", 1e-5, 1e-2)),
        ("a=0.9..0.999", Param("a", "float", 0.9, 0.999)),
        ("a=float:1..5", Param("a", "float", 1.0, 5.0)),
        ("a=float:0..1:0.25", Param("a", "float", 0.0, 1.0, 0.25)),
        ("a = int:1..5", Param("a", "int", 1.0, 5.0)),
        ("a=int:32..256:32", Param("a", "int", 32.0, 256.0, 32.0)),
        ("a=logint:16..1024", Param("a", "logint", 16.0, 1024.0)),
        ("a=-1.5..-.5", Param("a", "float", -1.5, -0.5)),
        ("a=[True,False]", Param("a", "choice", choices=("True", "False"))),
        ("a=[relu, tanh]", Param("a", "choice", choices=("relu", "tanh"))),
        ("a=['relu', 'tanh']", Param("a", "choice", choices=("relu", "tanh"))),
        ("a=[[64, 64], [128]]", Param("a", "choice", choices=("[64, 64]", "[128]"))),
        ("a=[None, 0.5]", Param("a", "choice", choices=("None", "0.5"))),
    ]:
        assert parse_param(text) == param


def test_what_is_no_range_is_refused() -> None:
    for text, said in [
        ("a", "is no KEY=RANGE"),
        ("=1..2", "is no KEY=RANGE"),
        ("a=", "is no KEY=RANGE"),
        ("a=1e-3", "is no range; give LOW..HIGH"),
        ("a=1..5", "Give int:1..5, or float:1..5"),
        ("a=lgo:0.1..1.0", "unknown kind of range 'lgo'"),
        ("a=5.0..1.0", "give the smaller number first"),
        ("a=log:0..1.0", "begin above 0"),
        ("a=int:1..2.5", "give whole ones"),
        ("a=log:0.1..1.0:0.1", "steps are above 0, and of int and float"),
        ("a=int:1..5:0", "steps are above 0"),
        ("a=[True]", "fewer than two values"),
        ("a=[1, 1]", "fewer than two values"),
    ]:
        with pytest.raises(ConfigError, match=said):
            parse_params([text])


def test_all_faults_are_in_one_error() -> None:
    with pytest.raises(ConfigError) as error:
        parse_params(["a=1", "b=5.0..1.0", "c=int:1..2", "c=int:1..3"])

    assert len(str(error.value).splitlines()) == 3
    assert "--param c is given twice" in str(error.value)


def test_a_study_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="a study needs something to vary"):
        parse_params([])


def test_what_is_drawn_is_read_back_as_an_override() -> None:
    for text in ["a=[True, None]", "a=[[64, 64], [128]]", "a=int:1..5", "a=log:1e-5..1e-2"]:
        samples = parse_param(text).samples()
        values: list[Any] = [parse_value(each.partition("=")[2]) for each in samples]

        assert values in ([True, None], [[64, 64], [128]], [1, 5], [1e-5, 1e-2])
