"""What is kept of a password: the keys of SCRAM (RFC 5802, RFC 7677), from which the password cannot be read.

Names and passwords are compared byte by byte, as Kafka's brokers and clients do; SASLprep (RFC 4013) is not applied, or
the keys that Kafka's tools send would not fit.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

__all__ = ["ALGORITHMS", "LEAST_ITERATIONS", "MOST_ITERATIONS", "USUAL_ITERATIONS", "Keys", "decoy", "derive", "salted"]

ALGORITHMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 16384  # as Kafka has them
USUAL_ITERATIONS = 8192
_SALT_BYTES = 16
_DIGEST_BYTES = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one user for one mechanism."""

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def from_salted(cls, mechanism: str, salt: bytes, iterations: int, salted_password: bytes) -> Keys:
        """Return the keys of a password that was salted already, as Kafka's tools send it."""
        algorithm = ALGORITHMS[mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", algorithm)
        stored_key = hashlib.new(algorithm, client_key).digest()
        return cls(mechanism, salt, iterations, stored_key, hmac.digest(salted_password, b"Server Key", algorithm))

    @property
    def is_sound(self) -> bool:
        """Whether they are keys at all: a table can be changed by hand, its constraints too."""
        size = _DIGEST_BYTES.get(self.mechanism)
        return (
            size == len(self.stored_key) == len(self.server_key)
            and bool(self.salt)
            and LEAST_ITERATIONS <= self.iterations <= MOST_ITERATIONS
        )

    def fit(self, salted_password: bytes) -> bool:
        """Whether they are those of a password, which was salted with their salt; takes equally long for any."""
        shown = Keys.from_salted(self.mechanism, self.salt, self.iterations, salted_password)
        return hmac.compare_digest(shown.stored_key, self.stored_key)


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return what is derived from a password; takes milliseconds, and lets other threads run."""
    return hashlib.pbkdf2_hmac(ALGORITHMS[mechanism], password.encode(), salt, iterations)


def derive(mechanism: str, password: str, iterations: int = USUAL_ITERATIONS) -> Keys:
    """Return new keys of a password."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return Keys.from_salted(mechanism, salt, iterations, salted(mechanism, password, salt, iterations))


def decoy(mechanism: str, name: str, secret: bytes) -> Keys:
    """Return keys for a user that does not exist: the same salt at every try, and nothing that fits.

    They look like those that headgate makes; of a user with other iterations one can tell that it exists.
    """
    salt = hmac.digest(secret, name.encode(), "sha256")[:_SALT_BYTES]
    nothing = secrets.token_bytes(_DIGEST_BYTES[mechanism])
    return Keys(mechanism, salt, USUAL_ITERATIONS, nothing, nothing)
