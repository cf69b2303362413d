"""Headers that tell a browser what our answers may do: nothing, unless they are pages of ours."""

import base64
import hashlib
import re

Header = tuple[bytes, bytes]

CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# A page of ours has its style and its plots within, and no script.
PAGE = f"{CLOSED}; style-src 'unsafe-inline'; img-src data:"
SECURITY_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
POLICY = b"content-security-policy"
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def policy_for(headers: list[Header]) -> list[Header]:
    """Return the policy for a response with these headers; none where it brings its own."""
    given = {name.lower(): value for name, value in headers}
    if POLICY in given:
        return []
    html = given.get(b"content-type", b"").startswith(b"text/html")
    return [(POLICY, (PAGE if html else CLOSED).encode())]


def policy_with_scripts(page: str) -> str:
    """Return the policy of a page whose own scripts may run, and which may load from here and call us."""
    hashes = [hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(page)]
    own = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in hashes)
    return (
        f"{CLOSED}; script-src 'self' {own}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'"
    )
