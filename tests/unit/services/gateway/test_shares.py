"""Shares of identities."""

import pytest

from berth.services.gateway.errors import RequestError
from berth.services.gateway.shares import Shares


def test_what_is_given_back_may_be_taken_once_more() -> None:
    shares = Shares("streams", 3)
    for identity in ("bob", "bob", "bob", "eve", "", "", "", ""):
        shares.take(identity)
    for identity in ("bob", "eve"):
        shares.give_back(identity)
    shares.take("bob")
    with pytest.raises(RequestError, match="streams of bob is 3, expected fewer than 3: try again later"):
        shares.take("bob")
    for _ in range(3):
        shares.take("eve")
    with pytest.raises(RequestError, match="streams of eve is 3"):
        shares.take("eve")
