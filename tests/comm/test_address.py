from __future__ import annotations

import pytest

from ding_like.comm.rest.address import coordinator_url
from ding_like.errors import ConfigError


def test_the_scheme_of_an_address_may_be_left_out() -> None:
    for text in ("http://localhost:7311", "localhost:7311", "http://localhost:7311/"):
        assert coordinator_url(text) == "http://localhost:7311"


def test_what_is_no_address_is_refused_with_what_was_expected() -> None:
    for text in ("localhost", "ftp://localhost:7311", "http://:7311", "h:port", "h:99999", ""):
        with pytest.raises(ConfigError, match=r"expected what it said at its start, http://HOST:PORT"):
            coordinator_url(text)
            pytest.fail(f"{text!r} is taken")
