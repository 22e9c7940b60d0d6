"""The signature of ``http`` targets: shows a receiver that a request comes from here, is unchanged, and is of now.

``Horarium-Signature: t=1780923600,v1=<hex>``, an HMAC-SHA256 with the shared secret over the time, the idempotency key, the
fence and the body, the first three each followed by a line break. A receiver compares ``v1`` in constant time and refuses a ``t``
that is more than a few minutes away. Unknown parts are to be ignored: a later version may stand beside. Pure.
"""

import hashlib
import hmac
from typing import Final

SIGNATURE_HEADER: Final = "Horarium-Signature"


def sign(body: bytes, *, secret: str, at: int, idempotency_key: str, fence: int) -> str:
    """Write the value of the header. ``at`` is a Unix time in seconds."""
    signed = f"{at}\n{idempotency_key}\n{fence}\n".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"
