"""NKEYs, and the JWTs of NATS that they sign: operator, account, user.

Source: docs/operate/keys.md, "Keys".
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import nkeys  # type: ignore[import-untyped]  # it brings no types

from berth.runtime.keys.rights import Bounds, Rights

_SEED_BYTES: Final = 32
_NO_LIMIT: Final = -1
_VERSION: Final = 2
_LIMITS: Final = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
_STORAGE: Final = ("mem_storage", "disk_storage", "streams", "consumer")


class Key:
    """A key pair.

    Args:
        seed: Its seed as text, which begins with S.

    Raises:
        ValueError: It is no seed.
    """

    def __init__(self, seed: str) -> None:
        try:
            prefix, raw = nkeys.decode_seed(seed.encode("ascii"))
            again = bytes(nkeys.encode_seed(raw, prefix)).decode()
            self._pair = nkeys.from_seed(bytearray(seed.encode("ascii")))
            self.public: str = self._pair.public_key.decode()
        except (nkeys.NkeysError, ValueError) as error:
            raise ValueError(f"no seed of a key: {error!r}") from error
        if again != seed:  # the library does not compare the checksum
            raise ValueError("no seed of a key: its checksum is another")
        self.seed = seed

    def sign(self, text: str) -> bytes:
        """Signature of a text."""
        return self.sign_bytes(text.encode())

    def sign_bytes(self, text: bytes) -> bytes:
        """Signature of bytes."""
        signature: bytes = self._pair.sign(text)
        return signature


def operator_key(random: bytes) -> Key:
    """Key of an operator, from 32 random bytes."""
    return _key(random, nkeys.PREFIX_BYTE_OPERATOR)


def account_key(random: bytes) -> Key:
    """Key of an account, from 32 random bytes."""
    return _key(random, nkeys.PREFIX_BYTE_ACCOUNT)


def user_key(random: bytes) -> Key:
    """Key of a user, from 32 random bytes."""
    return _key(random, nkeys.PREFIX_BYTE_USER)


def operator_token(operator: Key, name: str, system_account: str, issued_s: int) -> str:
    """JWT of an operator.

    Args:
        operator: Its key.
        name: Its name.
        system_account: Public key of the account of the server's own messages.
        issued_s: The time, in seconds since 1970.
    """
    return _signed(operator, operator.public, name, {"type": "operator", "system_account": system_account}, issued_s)


def account_token(
    operator: Key,
    account: str,
    name: str,
    issued_s: int,
    *,
    stores: bool,
    revoked: Mapping[str, int] | None = None,
) -> str:
    """JWT of an account.

    Args:
        operator: Key of the operator.
        account: Public key of the account.
        name: Its name.
        issued_s: The time, in seconds since 1970.
        stores: Whether it may have streams.
        revoked: For the public key of a user, the time until which JWTs of it do not count, in seconds since 1970.
    """
    limits = dict.fromkeys((*_LIMITS, *(_STORAGE if stores else ())), _NO_LIMIT)
    nats: dict[str, Any] = {"type": "account", "limits": {**limits, "wildcards": True}}
    if revoked:
        nats["revocations"] = dict(sorted(revoked.items()))
    return _signed(operator, account, name, nats, issued_s)


def user_token(
    account: Key, user: str, name: str, rights: Rights, bounds: Bounds, issued_s: int, *, expires_s: int = 0
) -> str:
    """JWT of a user.

    Args:
        account: Key of its account.
        user: Its public key.
        name: Its name.
        rights: What it may do. It may not reply to whoever asks: the right to do so once is one to publish anywhere.
        bounds: How much of it.
        issued_s: The time, in seconds since 1970.
        expires_s: Time from which it does not count any more, in seconds since 1970; 0 for never.
    """
    nats = {
        "type": "user",
        "pub": {"allow": list(rights.publish), **({"deny": list(rights.refused)} if rights.refused else {})},
        "sub": {"allow": list(rights.subscribe)},
        "subs": bounds.subscriptions,
        "data": bounds.data_bytes,
        "payload": bounds.payload_bytes,
    }
    return _signed(account, user, name, nats, issued_s, expires_s=expires_s)


def credentials(token: str, user: Key) -> str:
    """Content of a credentials file: the JWT of a user and its seed."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        "This file has a secret key. Who has it can act as this user.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


def _key(random: bytes, prefix: int) -> Key:
    if len(random) != _SEED_BYTES:
        raise ValueError(f"{len(random)} random bytes, expected {_SEED_BYTES}")
    return Key(nkeys.encode_seed(random, prefix).decode())


def _signed(issuer: Key, subject: str, name: str, nats: Mapping[str, Any], issued_s: int, *, expires_s: int = 0) -> str:
    claims: dict[str, Any] = {
        "iat": issued_s,
        "iss": issuer.public,
        "sub": subject,
        "name": name,
        "nats": {**nats, "version": _VERSION},
    }
    if expires_s:
        claims["exp"] = expires_s
    claims["jti"] = base64.b32encode(hashlib.sha256(msgspec.json.encode(claims)).digest()).rstrip(b"=").decode()
    signed = f"{_text(msgspec.json.encode({'typ': 'JWT', 'alg': 'ed25519-nkey'}))}.{_text(msgspec.json.encode(claims))}"
    return f"{signed}.{_text(issuer.sign(signed))}"


def _text(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()
