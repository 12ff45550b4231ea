"""The page of `permcode playground`: one HTML file, served with headers that keep everything else out of it."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from starlette.responses import Response

PAGE_NAME = "playground.html"
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class Page:
    """The page. It holds nothing secret: models, texts and keys come and go by the paths of the server."""

    def __init__(self) -> None:
        self._html = (files("pipeline") / "templates" / PAGE_NAME).read_text(encoding="utf-8")
        self._headers = {
            "Content-Security-Policy": content_security_policy(self._html),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    def response(self) -> Response:
        """Return the answer to a request for the page."""
        return Response(self._html, media_type="text/html", headers=self._headers)


def content_security_policy(html: str) -> str:
    """Return the policy under which only this file's own script and style run, and nothing is asked of other servers.

    Trusted types are required and none is defined, so that a text which is inserted as HTML is an error in browsers
    that know them.
    """
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, content in _INLINE.findall(html):
        hashes[kind].append(f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'")
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(hashes['script'])}",
            f"style-src {' '.join(hashes['style'])}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )
