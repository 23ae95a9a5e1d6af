"""Operator, account and user of a NATS server, as the tool ``nsc`` makes them."""

import base64
import hashlib
import secrets
from pathlib import Path
from typing import Any, Final

import msgspec
import nkeys  # type: ignore[import-untyped]  # it brings no types

_ISSUED_S: Final = 1_700_000_000
_UNLIMITED: Final = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1) | {
    "wildcards": True
}


def _key(prefix: int) -> tuple[nkeys.KeyPair, bytes]:
    seed = nkeys.encode_seed(secrets.token_bytes(32), prefix)
    return nkeys.from_seed(bytearray(seed)), bytes(seed)


def _text(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def _token(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, name: str, nats: dict[str, Any]) -> str:
    claims = {
        "iat": _ISSUED_S,
        "iss": issuer.public_key.decode(),
        "sub": subject.public_key.decode(),
        "name": name,
        "nats": {**nats, "version": 2},
    }
    claims["jti"] = base64.b32encode(hashlib.sha256(msgspec.json.encode(claims)).digest()).rstrip(b"=").decode()
    head = msgspec.json.encode({"typ": "JWT", "alg": "ed25519-nkey"})
    signed = f"{_text(head)}.{_text(msgspec.json.encode(claims))}"
    return f"{signed}.{_text(issuer.sign(signed.encode()))}"


def operator_with_user(creds: Path) -> str:
    """Lines for a server that knows one operator and one account; the account's user is written to ``creds``."""
    operator, _ = _key(nkeys.PREFIX_BYTE_OPERATOR)
    account, _ = _key(nkeys.PREFIX_BYTE_ACCOUNT)
    system, _ = _key(nkeys.PREFIX_BYTE_ACCOUNT)
    user, seed = _key(nkeys.PREFIX_BYTE_USER)
    operator_token = _token(operator, operator, "operator", {"type": "operator"})
    account_token = _token(operator, account, "account", {"type": "account", "limits": _UNLIMITED})
    system_token = _token(operator, system, "system", {"type": "account", "limits": _UNLIMITED})
    user_token = _token(account, user, "user", {"type": "user", "subs": -1, "data": -1, "payload": -1})
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed.decode()}\n------END USER NKEY SEED------\n"
    )
    return (
        f"operator: {operator_token}\nresolver: MEMORY\nsystem_account: {system.public_key.decode()}\n"
        f"resolver_preload: {{ {account.public_key.decode()}: {account_token}\n"
        f"{system.public_key.decode()}: {system_token} }}"
    )
