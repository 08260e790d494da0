"""The tokens that hubs gave this machine, so that a device that was paired once comes back without a code."""

from pathlib import Path

import msgspec

from sakura.settings import home


def _path() -> Path:
    return home() / "hub-tokens.json"


def known_tokens() -> dict[str, str]:
    """Tokens by hub address; none where the file is not there or damaged: pairing anew writes it anew."""
    try:
        return msgspec.json.decode(_path().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def keep_token(hub_url: str, token: str) -> None:
    """Remember a token in a file that only this user can read."""
    write_private(_path(), msgspec.json.encode({**known_tokens(), hub_url: token}))


def write_private(path: Path, data: bytes) -> None:
    """Replace a file of secrets as a whole; only this user can read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_bytes(data)
    part.replace(path)
