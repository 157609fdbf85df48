"""A server that leaks wherever it can: every failure, warning and foreign log line holds what it was sent."""

import asyncio
import gc
import logging
import sys
import threading
import warnings
from pathlib import Path

from gossamer.gateway import process
from gossamer.gateway.app import Page, create_app
from gossamer.gateway.echo import EchoUpstream
from gossamer.gateway.keys import KeyRing
from gossamer.gateway.service import ServiceSettings
from gossamer.protocol.errors import ApiError
from gossamer.protocol.events import ContentDelta, ReasoningDelta


class Leaky:
    """Fails in the way that the user text begins with, quoting all of it."""

    async def send(self, request, context):
        text = request.messages[-1].text
        yield ReasoningDelta(text)
        yield ContentDelta(text)
        how = text.partition(" ")[0]
        if how in WAYS:
            await WAYS[how](text)
        raise KeyError(text)


async def chain(text):
    try:
        raise ValueError(text)
    except ValueError as error:
        raise RuntimeError(text) from error


async def api(text):
    raise ApiError(text, status=502, code="upstream_failed")


async def thread(text):
    worker = threading.Thread(target=fail, args=(text,))
    worker.start()
    worker.join()


async def task(text):
    lost = asyncio.create_task(fail_later(text))
    await asyncio.sleep(0.01)
    del lost
    gc.collect()


async def callback(text):
    asyncio.get_running_loop().call_soon(fail, text)
    await asyncio.sleep(0.01)


async def unraisable(text):
    Unraisable(text)
    gc.collect()


async def warning(text):
    warnings.warn(text, stacklevel=1)


async def foreign(text):
    for name in ("httpx", "foreign.package", "asyncio", "uvicorn.error", "root"):
        log = logging.getLogger(name)
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.CRITICAL):
            log.log(level, "said %s", text)
            log.log(level, text)
        try:
            fail(text)
        except ValueError:
            log.exception("failed with %s", text)


async def misfit(text):
    logging.getLogger("gossamer.x").error("%d of %d", text)


WAYS = {
    way.__name__: way for way in (chain, api, thread, task, callback, unraisable, warning, foreign, misfit)
}


class Unraisable:
    def __init__(self, text):
        self.text = text

    def __del__(self):
        raise ValueError(self.text)


def fail(text):
    raise ValueError(text)


async def fail_later(text):
    raise ValueError(text)


def crash():
    raise RuntimeError("canary in a page")


def main():
    level, style, keys = sys.argv[1:]
    process.configure_logging(level, style)
    with process.bind("127.0.0.1", 0) as sock:
        app = create_app(
            {"echo": EchoUpstream(), "leaky": Leaky()},
            pages={"/crash": Page(content_type="text/plain", write=crash)},
            settings=ServiceSettings(keys=KeyRing(Path(keys))),
        )

        async def broken(scope, receive, send):
            # As if the whole front had failed: the server's own traceback.
            if scope["type"] == "http" and scope["path"] == "/broken":
                raise RuntimeError(scope["query_string"].decode())
            await app(scope, receive, send)

        broken.state = app.state
        process.run(broken, sock, on_ready=lambda: process.say(f"serving leaks at {process.address(sock)}"))
    process.say("stopped")
    if level == "error":
        raise RuntimeError("canary at the end of the process")


main()
