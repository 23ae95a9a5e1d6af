"""Operator, account and user of a NATS server, with keys of their own at each call."""

import secrets
from pathlib import Path
from typing import Final

from berth.runtime.keys.rights import BOUNDS, Rights
from berth.runtime.keys.tokens import (
    account_key,
    account_token,
    credentials,
    operator_key,
    operator_token,
    user_key,
    user_token,
)

_ISSUED_S: Final = 1_700_000_000
_SEED_BYTES: Final = 32
_EVERYTHING: Final = Rights((">",), (">",))


def operator_with_user(creds: Path) -> str:
    """Lines for a server that knows one operator and one account; the account's user is written to ``creds``."""
    operator = operator_key(secrets.token_bytes(_SEED_BYTES))
    account, system = (account_key(secrets.token_bytes(_SEED_BYTES)) for _ in range(2))
    user = user_key(secrets.token_bytes(_SEED_BYTES))
    tokens = {
        one.public: account_token(operator, one.public, name, _ISSUED_S, stores=False)
        for one, name in ((account, "account"), (system, "system"))
    }
    creds.write_text(
        credentials(user_token(account, user.public, "user", _EVERYTHING, BOUNDS["person"], _ISSUED_S), user)
    )
    preload = "\n".join(f"{public}: {token}" for public, token in tokens.items())
    return (
        f"operator: {operator_token(operator, 'operator', system.public, _ISSUED_S)}\nresolver: MEMORY\n"
        f"system_account: {system.public}\nresolver_preload: {{ {preload} }}"
    )
