"""A headless Chromium with one page, driven by the DevTools protocol."""

import asyncio
import base64
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_START_S = 60


class Browser:
    """One page. `problems` are what the browser complained about: exceptions, and what the page's policy forbade."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._number = socket, 0
        self.problems: list[str] = []
        self.requests: list[str] = []
        """The addresses of everything that the page asked for."""

    async def open(self, address: str, width: int, height: int, *, is_dark: bool = False) -> None:
        """Load a page in a window of this size."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.call("Emulation.setEmulatedMedia", {"features": [scheme]})
        await self.call("Page.navigate", {"url": address})
        await self.until("document.readyState === 'complete'")

    async def call(self, method: str, parameters: dict[str, Any] | None = None) -> Any:
        """Call a method of the protocol and return its result."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters or {}})
        while True:
            message = json.loads(await self._socket.receive_str(timeout=60))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        found = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(found["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded":
            self.problems.append(found["entry"]["text"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])

    async def value(self, expression: str) -> Any:
        """Return the value of JavaScript."""
        wanted = {"expression": expression, "returnByValue": True, "awaitPromise": True, "userGesture": True}
        found = await self.call("Runtime.evaluate", wanted)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, condition: str, seconds: float = 20) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + seconds
        while not await self.value(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never: {condition}"
            await asyncio.sleep(0.05)

    async def click(self, selector: str) -> None:
        """Click on the middle of an element, as a mouse does."""
        await self.point_at(selector)
        x, y = await self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            place = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            await self.call("Input.dispatchMouseEvent", place)

    async def point_at(self, selector: str) -> None:
        """Move the mouse to an element."""
        await self.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'nearest'}})")
        x, y = await self._middle(selector)
        await self.call("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    async def _middle(self, selector: str) -> tuple[float, float]:
        place = await self.value(
            f"(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector({selector!r}).getClientRects()[0])"
        )
        return place[0], place[1]

    async def type(self, text: str) -> None:
        """Insert text where the focus is."""
        await self.call("Input.insertText", {"text": text})

    async def text(self, selector: str) -> str:
        """Return the text of an element."""
        return str(await self.value(f"document.querySelector({selector!r}).textContent"))

    async def screenshot(self, path: Path) -> None:
        """Write what the whole page looks like as PNG."""
        shot = await self.call("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Browser]:
    """Start a Chromium with a new profile in a folder."""
    assert CHROMIUM is not None
    command = [
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-extensions", "--disable-background-networking", "--hide-scrollbars"),
        *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = await _port(profile / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Browser(socket)
                yield page
                await page.call("Browser.close")
        await asyncio.to_thread(process.wait, 30)
    finally:
        process.kill()
        process.wait()


async def _port(file: Path) -> int:
    end = time.monotonic() + _START_S
    while not (file.is_file() and file.read_text().count("\n")):
        assert time.monotonic() < end, "Chromium does not start"
        await asyncio.sleep(0.05)
    return int(file.read_text().splitlines()[0])
