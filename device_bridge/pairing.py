"""Who may be a device of this hub: short codes for pairing, then a token a device, which can be revoked.

A code is read in the page (or its QR code is scanned), works once, and for a few minutes. Tokens are kept as hashes in
a file that only this user can read.
"""

import collections
import dataclasses
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from device_bridge.tokens import write_private
from sakura.errors import UserError

ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"  # without what looks alike
CODE_LENGTH = 6
CODE_LIFETIME_S = 300.0
MAX_CODES = 16
# 31**6 codes, of which at most 16 are valid: at this rate a guess takes a year to have a chance of 1 in 10.
MAX_WRONG_CODES = 10
WRONG_CODES_WINDOW_S = 60.0
MAX_PAIRED = 256

WRONG_CODE = "That code is not valid, or no longer; ask the page for a new one under Devices."
TOO_MANY = "Too many wrong codes were tried; wait a minute, then ask the page for a new one."


class PairedDevice(msgspec.Struct, frozen=True):
    """A device that was paired. Times are in seconds since 1970."""

    device_id: str
    name: str
    token_sha256: str
    paired_s: float


@dataclasses.dataclass(frozen=True)
class PairingCode:
    code: str
    expires_s: float  # on the clock of :class:`Pairing`


class Pairing:
    """Codes and tokens. ``path`` is where paired devices are kept; without it, for as long as this object is there.

    For one thread. ``clock`` gives seconds that only grow.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._codes: dict[str, PairingCode] = {}
        self._wrong_s: collections.deque[float] = collections.deque(maxlen=MAX_WRONG_CODES)
        self._paired: dict[str, PairedDevice] = {}
        if path is not None and path.exists():
            try:
                known = msgspec.json.decode(path.read_bytes(), type=list[PairedDevice])
            except (OSError, msgspec.DecodeError) as error:
                raise UserError(f"{path} cannot be read ({error}); remove it, then pair the devices again.") from error
            self._paired = {each.device_id: each for each in known}

    def new_code(self) -> PairingCode:
        """A new code; of more than MAX_CODES the oldest stops working."""
        self._forget_old()
        while len(self._codes) >= MAX_CODES:
            del self._codes[next(iter(self._codes))]
        code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
        self._codes[code] = PairingCode(code, self._clock() + CODE_LIFETIME_S)
        return self._codes[code]

    def is_open(self, code: str) -> bool:
        """Whether a code still works."""
        self._forget_old()
        return code in self._codes

    def _forget_old(self) -> None:
        now_s = self._clock()
        self._codes = {code: each for code, each in self._codes.items() if each.expires_s > now_s}

    def pair(self, code: str, name: str) -> tuple[PairedDevice, str]:
        """Use a code up: the device, and the token that it comes back with. Raises UserError."""
        now_s = self._clock()
        if len(self._wrong_s) == MAX_WRONG_CODES and now_s - self._wrong_s[0] < WRONG_CODES_WINDOW_S:
            raise UserError(TOO_MANY)
        self._forget_old()
        typed = "".join(code.split()).upper().encode()
        found = [each for each in self._codes if hmac.compare_digest(each.encode(), typed)]
        if not found:
            self._wrong_s.append(now_s)
            raise UserError(WRONG_CODE)
        if len(self._paired) >= MAX_PAIRED:
            raise UserError(f"{MAX_PAIRED} devices are paired already; revoke one first.")
        token = secrets.token_urlsafe(32)
        device = PairedDevice(secrets.token_hex(4), name, _sha256(token), time.time())
        self._paired[device.device_id] = device
        try:
            self._save()
        except UserError:  # the code still works when there is room again
            del self._paired[device.device_id]
            raise
        del self._codes[found[0]]
        return device, token

    def known(self, token: str) -> PairedDevice | None:
        """The device whose token this is."""
        digest = _sha256(token)
        return next((each for each in self._paired.values() if hmac.compare_digest(each.token_sha256, digest)), None)

    def knows(self, device_id: str) -> bool:
        return device_id in self._paired

    def paired(self) -> list[PairedDevice]:
        return list(self._paired.values())

    def revoke(self, device_id: str) -> None:
        """Let a device's token work no more. Raises UserError on a device that is not paired or cannot be forgotten."""
        device = self._paired.pop(device_id, None)
        if device is None:
            raise UserError("That device is not paired; nothing to revoke.")
        try:
            self._save()
        except UserError:
            self._paired[device_id] = device  # as the file has it, so that revoking can be tried again
            raise

    def _save(self) -> None:
        if self._path is None:
            return
        try:
            write_private(self._path, msgspec.json.format(msgspec.json.encode(self.paired())))
        except OSError as error:
            raise UserError(f"{self._path} cannot be written ({error}); make room or change who may write.") from error


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
