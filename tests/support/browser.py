"""Headless Chromium over its DevTools protocol: pages, keys, clicks and screenshots."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.parts import BROWSERS
from tests.support.waiting import wait_until

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def executable() -> str | None:
    """Return Chromium's path; None if it is not installed."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


class Browser:
    """A tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._last = socket, 0
        #: The console's messages: errors, refused scripts, exceptions.
        self.complaints: list[str] = []

    async def call(self, method: str, **parameters: Any) -> Any:
        """Send a command of the protocol; return its result."""
        self._last += 1
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters})
        async with asyncio.timeout(60):
            while True:
                said = json.loads((await self._socket.receive()).data)
                self._note(said)
                if said.get("id") == self._last:
                    assert "error" not in said, said
                    return said["result"]

    def _note(self, said: Any) -> None:
        if said.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["params"])[:500])
        if said.get("method") == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
            self.complaints.append(said["params"]["entry"]["text"])

    async def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Set the screen's size and light or dark; a width below 500 pixels is a phone."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def js(self, expression: str) -> Any:
        """Return the value of an expression."""
        done = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def until(self, expression: str, *, seconds: float = 30.0) -> Any:
        """Wait until the expression is true; return its value."""
        try:
            async with asyncio.timeout(seconds):
                while not (found := await self.js(expression)):
                    await asyncio.sleep(0.05)
                return found
        except TimeoutError:
            text = await self.js("document.body.innerText")
            raise AssertionError(f"never true: {expression}\n{text[:3000]}") from None

    async def key(self, name: str) -> None:
        """Press a key, such as ``ArrowDown`` or ``Enter``."""
        text = {"text": "\r"} if name == "Enter" else {}
        code = {"Enter": 13, "Tab": 9, "Escape": 27}.get(name, 0)
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=name,
                windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )

    async def click(self, selector: str) -> None:
        """Click the middle of the first matching element."""
        async with self.pressed(selector):
            pass

    @contextlib.asynccontextmanager
    async def pressed(self, selector: str) -> AsyncIterator[None]:
        """Press the mouse button on the middle of the first matching element, and release it at the end."""
        at = await self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', inline: 'center'});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        mouse = {"x": at[0], "y": at[1], "button": "left", "clickCount": 1}
        await self.call("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        yield
        await self.call("Input.dispatchMouseEvent", type="mouseReleased", **mouse)

    async def picture(self, path: Path, *, whole: bool = False) -> None:
        """Save the visible part as a PNG; the whole page with ``whole``."""
        done = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(done["data"]))


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[int]:
    """Run Chromium; yield the port of its protocol. ``folder`` gets its profile and its log."""
    path = executable()
    assert path is not None, f"none of {', '.join(BROWSERS)} is installed"
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [path, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdout=log,
            stderr=log,
        )
    try:
        found = folder / "profile" / "DevToolsActivePort"
        wait_until(lambda: found.exists() and "\n" in found.read_text(), seconds=120)
        yield int(found.read_text().split("\n")[0])
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.asynccontextmanager
async def tab(port: int) -> AsyncIterator[Browser]:
    """A new tab in that Chromium."""
    at = f"http://127.0.0.1:{port}/json"
    async with aiohttp.ClientSession() as session:
        async with session.put(f"{at}/new?about:blank") as answer:
            made = await answer.json(content_type=None)
        async with session.ws_connect(made["webSocketDebuggerUrl"], max_msg_size=1 << 26) as socket:
            found = Browser(socket)
            for domain in ("Page", "Runtime", "Log"):
                await found.call(f"{domain}.enable")
            yield found
        async with session.get(f"{at}/close/{made['id']}"):
            pass
