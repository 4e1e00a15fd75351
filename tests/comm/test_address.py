from __future__ import annotations

import pytest

from ding_like.comm.rest.address import coordinator_url
from ding_like.errors import ConfigError


@pytest.mark.parametrize("text", ["http://localhost:7311", "localhost:7311", "http://localhost:7311/"])
def test_the_scheme_of_an_address_may_be_left_out(text: str) -> None:
    assert coordinator_url(text) == "http://localhost:7311"


@pytest.mark.parametrize("text", ["localhost", "ftp://localhost:7311", "http://:7311", "h:port", "h:99999", ""])
def test_what_is_no_address_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected what it said at its start, http://HOST:PORT"):
        coordinator_url(text)
