"""The address at which a server listens; imports nothing of the server, whose modules take seconds."""

import socket

from cluster.errors import UserError, first_line


def url_host(host: str) -> str:
    """Return a host as a URL has it: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises UserError when the address cannot be bound."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"cannot listen on {host}:{port} ({first_line(error)}): give another --port"
        ) from None
    # Its connections inherit this, which asyncio leaves out here: without it the end of an answer may wait 40 ms until
    # the client acknowledges the beginning.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
