"""A small web server whose failures can be chosen."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class WebServer:
    """The files of the server. `num_failures`: the number of coming GETs that break in the middle or answer 503."""

    files: dict[str, bytes]
    serves_ranges: bool = True
    num_failures: int = 0
    url: str = ""
    forbidden: str = ""
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fails_now(self) -> int:
        """Return 0, or the number of failures that were left."""
        with self.lock:
            left = self.num_failures
            self.num_failures = max(0, left - 1)
            return left


@contextmanager
def web_server(files: dict[str, bytes], *, serves_ranges: bool = True) -> Iterator[WebServer]:
    """Run a server on this machine while the block runs."""
    server = WebServer(files, serves_ranges)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def do_GET(self) -> None:
            self.answer(with_body=True)

        def answer(self, *, with_body: bool) -> None:
            asked = self.headers.get("Range") or ""
            server.requests.append(f"{self.command} {self.path} {asked}")
            data = server.files.get(self.path.lstrip("/"))
            if data is None:
                self.send_error(404)
                return
            if with_body and self.path == server.forbidden:
                self.send_error(403)
                return
            failing = server.fails_now() if with_body else 0
            if failing % 2:
                self.send_error(503)
                return
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked) if server.serves_ranges else None
            start, end = (int(found[1]), int(found[2] or len(data)) + 1) if found else (0, len(data))
            body = data[start : min(end, len(data))]
            self.send_response(206 if found else 200)
            if found:
                self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{len(data)}"')
            self.end_headers()
            if with_body:
                self.wfile.write(body[: len(body) // 2] if failing else body)
                if failing:
                    self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
