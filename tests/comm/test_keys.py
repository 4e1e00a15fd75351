"""A key file is its owner's alone, and its keys are strong and different."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ding_like.comm.keys import (
    ROLES,
    SeedKeys,
    client_file,
    load_keys,
    load_seed_keys,
    make_keys,
    make_seed_keys,
    remove_clients,
    renew_clients,
    role_file,
)
from ding_like.comm.zmq.sockets import Poller, Socket, open_socket, tcp_endpoint
from ding_like.errors import ConfigError

STRONG = bytes(range(32)).hex()


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_key_file_is_its_owners_and_comes_back(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")

    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600
    assert load_keys(tmp_path / "keys") == keys
    assert len(set(keys.values())) == 3 and all(len(key) == 32 for key in keys.values())
    with pytest.raises(FileExistsError):
        make_keys(tmp_path / "keys")


def test_each_role_can_have_a_file_of_its_own_and_none_is_written_over(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys.json", per_role=True)

    assert [load_keys(role_file(tmp_path / "keys.json", role)) for role in ROLES] == [{r: keys[r]} for r in ROLES]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["keys.admin.json", "keys.collector.json", "keys.json", "keys.learner.json"]
    (tmp_path / "keys.json").unlink()
    with pytest.raises(FileExistsError):
        make_keys(tmp_path / "keys.json", per_role=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [name for name in names if name != "keys.json"]


def test_a_file_that_is_no_key_file_is_one_clear_error(tmp_path: Path) -> None:
    wrong = ["", "[]", "{}", '{"collector": "zz"}', '{"collector": "00"}', '{"collector": 7}', "[" * 9999]
    for text in [*wrong, json.dumps({"root": STRONG})]:
        with pytest.raises(ConfigError, match="key"):
            load_keys(write(tmp_path / "keys", text))
            pytest.fail(f"{text!r:.40} is taken")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="is not a file"):
        load_keys(tmp_path / "pipe")


@pytest.mark.parametrize("load", [load_keys, load_seed_keys])
def test_a_key_file_that_others_can_read_or_change_is_refused(tmp_path: Path, load: Callable[[Path], object]) -> None:
    """A link to a key file is as private as the file."""
    file = tmp_path / "keys"
    (make_keys if load is load_keys else make_seed_keys)(file)
    (tmp_path / "link").symlink_to(file)
    for path in (file, tmp_path / "link"):
        for mode in (0o644, 0o640, 0o660, 0o602, 0o610):
            file.chmod(mode)
            with pytest.raises(ConfigError, match=rf"mode {mode:04o}.*chmod 600"):
                load(path)
        file.chmod(0o400)
        load(path)


def test_a_key_that_can_be_guessed_or_is_of_two_roles_is_refused(tmp_path: Path) -> None:
    guessed = ("00" * 32, "ab" * 32, "0102" * 16, "00112233445566778899aa" * 3)
    for key, said in [*((key, "key of collector can be guessed") for key in guessed), (STRONG, "one key for several")]:
        with pytest.raises(ConfigError, match=said):
            load_keys(write(tmp_path / "keys", json.dumps({"collector": key, "learner": STRONG})))
            pytest.fail(f"{key} is taken")
    assert list(load_keys(write(tmp_path / "keys", json.dumps({"collector": STRONG})))) == ["collector"]


REFUSED_S = 0.3  # a handshake that is admitted takes some 10 ms


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_seed_keys(tmp_path / "keys.json", ["one", "two"])
    return tmp_path / "keys.json"


@pytest.fixture
def server(path: Path) -> Iterator[Socket]:
    with open_socket("router", bind=tcp_endpoint("127.0.0.1"), keys=load_seed_keys(path)) as router:
        yield router


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Give the driver's file of another run, with a client of its own named one."""
    (tmp_path / "other").mkdir()
    make_seed_keys(tmp_path / "other/keys.json", ["one"])
    return tmp_path / "other/keys.json"


def gets_through(server: Socket, keys: SeedKeys | None, *, wait_s: float) -> bool:
    """Tell whether a message of a client arrives."""
    with open_socket("dealer", connect=server.endpoint, keys=keys) as dealer:
        dealer.send([b"hello"])
        return bool(Poller(server).wait(wait_s)) and (server.receive() or [])[1] == b"hello"


def test_files_are_their_owners_and_each_holds_what_its_reader_needs(path: Path) -> None:
    keys, one = load_seed_keys(path), load_seed_keys(client_file(path, "one"))

    assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}
    assert sorted(each.name for each in path.parent.iterdir()) == ["keys.json", "keys.one.json", "keys.two.json"]
    assert list(keys.clients) == ["one", "two"] and keys.clients["one"] == one.own.public
    assert one.server_public == keys.server_public and one.server is None and not one.clients
    for secret in (one.own.secret, load_seed_keys(client_file(path, "two")).own.secret):
        assert secret not in path.read_text()
    assert keys.server is not None
    assert keys.own.secret not in repr(keys) and keys.server.secret not in repr(keys)


def test_only_listed_clients_and_the_drivers_own_processes_are_admitted(server: Socket, path: Path) -> None:
    for file in (client_file(path, "one"), client_file(path, "two"), path):
        assert gets_through(server, load_seed_keys(file), wait_s=60.0)
    assert not gets_through(server, None, wait_s=REFUSED_S)


def test_a_client_with_an_unlisted_key_is_refused_and_logged_once(
    server: Socket, path: Path, other: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = load_seed_keys(client_file(other, "one"))
    assert not gets_through(server, mine, wait_s=REFUSED_S), "it does not speak to a server with another key"
    stolen = SeedKeys(mine.path, load_seed_keys(path).server_public, mine.own)  # the server's public key is no secret

    assert not gets_through(server, stolen, wait_s=REFUSED_S)
    told = [each.getMessage() for each in caplog.records]
    assert len(told) == 1 and f"a client was refused: its public key {mine.own.public} is not listed" in told[0]


def test_a_renewed_clients_old_key_is_refused_by_a_run_under_way_and_its_new_one_admitted(
    server: Socket, path: Path
) -> None:
    old = load_seed_keys(client_file(path, "one"))
    written = renew_clients(path, ["one", "three"])

    assert [each.name for each in written] == ["keys.json", "keys.one.json", "keys.three.json"]
    assert not gets_through(server, old, wait_s=REFUSED_S)
    for name in ("one", "two", "three"):
        assert gets_through(server, load_seed_keys(client_file(path, name)), wait_s=60.0)


def test_a_removed_client_is_refused_by_a_run_under_way(server: Socket, path: Path) -> None:
    one = load_seed_keys(client_file(path, "one"))
    assert gets_through(server, one, wait_s=60.0)

    remove_clients(path, ["one"])

    assert not gets_through(server, one, wait_s=REFUSED_S)
    assert list(load_seed_keys(path).clients) == ["two"] and not client_file(path, "one").exists()
    assert gets_through(server, load_seed_keys(client_file(path, "two")), wait_s=60.0)


def test_while_the_key_file_cannot_be_read_only_the_drivers_own_processes_are_admitted(
    server: Socket, path: Path
) -> None:
    own, one = load_seed_keys(path), load_seed_keys(client_file(path, "one"))
    path.write_text("{")

    assert not gets_through(server, one, wait_s=REFUSED_S)
    assert gets_through(server, own, wait_s=60.0)


def test_servers_of_two_runs_in_one_process_admit_their_own_clients_only(
    server: Socket, path: Path, other: Path
) -> None:
    keys, one = load_seed_keys(other), load_seed_keys(client_file(path, "one"))
    with open_socket("router", bind=tcp_endpoint("127.0.0.1"), keys=keys) as second:
        assert gets_through(second, load_seed_keys(client_file(other, "one")), wait_s=60.0)
        assert gets_through(server, one, wait_s=60.0)
        assert not gets_through(second, SeedKeys(one.path, keys.server_public, one.own), wait_s=REFUSED_S)
    # The thread that admits is still there for the first.
    assert gets_through(server, load_seed_keys(client_file(path, "two")), wait_s=60.0)


def test_files_that_are_there_are_not_overwritten(path: Path, tmp_path: Path) -> None:
    before = path.read_text()

    with pytest.raises(FileExistsError):
        make_seed_keys(path, ["one"])
    (tmp_path / "new.one.json").write_text("mine")
    with pytest.raises(FileExistsError) as raised:
        make_seed_keys(tmp_path / "new.json", ["one"])
    assert path.read_text() == before and (tmp_path / "new.one.json").read_text() == "mine"
    assert raised.value.filename == str(tmp_path / "new.one.json") and not (tmp_path / "new.json").exists()


def test_names_that_are_no_names_are_refused(tmp_path: Path) -> None:
    for names in (["local"], [""], ["a/b"], ["../x"], ["a", "a"], ["x" * 65]):
        with pytest.raises(ConfigError, match="names of clients"):
            make_seed_keys(tmp_path / "keys.json", names)
    assert not list(tmp_path.iterdir())


def test_a_client_that_is_not_listed_cannot_be_removed(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no client three; it has one, two"):
        remove_clients(path, ["three"])


def test_a_workers_file_is_not_used_as_a_drivers(path: Path) -> None:
    worker = client_file(path, "one")
    for change in (renew_clients, remove_clients):
        with pytest.raises(ConfigError, match="key file of a worker; expected the driver's"):
            change(worker, ["one"])
    with pytest.raises(ConfigError, match="is the key file of a worker, and cannot admit others"):
        open_socket("router", bind=tcp_endpoint("127.0.0.1"), keys=load_seed_keys(worker))


def test_a_file_that_is_no_curve_key_file_is_one_clear_error(path: Path) -> None:
    for text in (
        "", "[]", "{}", "7", '{"collector": "00"}', "[" * 9999, '{"server": 1, "client": 2}',
        '{"server": {"public": "x"}, "client": {}}', '{"server": [], "local": [], "clients": []}',
    ):  # fmt: skip
        path.write_text(text)

        with pytest.raises(ConfigError, match="cannot be read as a file of CURVE keys.*ding keys --curve FILE"):
            load_seed_keys(path)
