"""``serve``: the parts of an instance, their order, and its lines, with fakes for all parts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.service.errors import StoreError
from faust_assigner.service.server import serve
from faust_assigner.service.server.options import Options
from faust_assigner.service.store.access import EtcdAccess

SAID = {
    "groups": "g,h",
    "topic": "g/t=3,h/u=5,h/v=7",
    "prefix": "/p/",
    "node": "n7",
    "metrics": "127.0.0.3:9100",
    "health": "127.0.0.4:9200",
    "bind": "127.0.0.2:50051",
    "kafka": "k:9092",
}


class Parts:
    """Fakes of all parts; ``told`` has their calls in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: str = "") -> None:
        self.told: list[Any] = []
        self.nodes: dict[str, Any] = {}
        self._fails = fails
        for name in (
            "PrometheusMetrics",
            "AssignerNode",
            "AssignerServer",
            "Groups",
            "KafkaTopics",
        ):
            monkeypatch.setattr(serve, name, getattr(self, f"_{name.lower()}"))
        monkeypatch.setattr(serve, "_open_store", self._open)
        monkeypatch.setattr(serve, "_check_version", self._check)

    def _tell(self, what: str) -> None:
        self.told.append(what)
        if what == self._fails:
            raise StoreError(what)

    def _call(self, what: str) -> Any:
        async def called() -> None:
            self._tell(what)

        return called

    def _prometheusmetrics(self, groups: Any) -> Any:
        self.told.append(("metrics", groups))
        return SimpleNamespace(served=self._served, of=self._of)

    @contextlib.contextmanager
    def _served(self, *address: object) -> Any:
        self.told.append(("metrics at", address))
        try:
            yield 9101
        finally:
            self.told.append("metrics end")

    def _of(self, name: str) -> Any:
        async def follow(condition: object) -> None:
            self.told.append(("follows", name, condition))
            try:
                await asyncio.Event().wait()
            finally:
                self.told.append(("followed", name))

        return SimpleNamespace(follow=follow, name=name)

    def _assignernode(self, store: object, settings: Any, **said: Any) -> Any:
        name = said["metrics"].name
        asked = said.pop("count_partitions")
        said = {**said, "metrics": name, "kafka": asked is not None and asked("t")}
        self.nodes[name] = (store, settings.prefix, said)
        return SimpleNamespace(condition=f"condition of {name}")

    def _groups(self, nodes: Any) -> Any:
        self.told.append(("groups", list(nodes)))
        return SimpleNamespace(start=self._call("groups start"))

    def _assignerserver(self, groups: object, options: Any) -> Any:
        async def start() -> int:
            self._tell("server start")
            return 50052

        return SimpleNamespace(start=start, stop=self._call("server stop"), health_port=9201)

    def _kafkatopics(self, bootstrap: str) -> Any:
        self.told.append(("kafka", bootstrap))
        return SimpleNamespace(
            close=self._call("kafka end"), count=lambda topic: f"{topic} of {bootstrap}"
        )

    def _open(self, options: object, metrics: object, ends: contextlib.AsyncExitStack) -> str:
        ends.push_async_callback(self._call("store end"))
        return "the store"

    async def _check(self, store: object) -> None:
        self._tell(f"checks {store}")


async def test_the_parts_of_an_instance_start_in_order_and_end_in_reverse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each group has its node with its own prefix, topics, metrics and followed condition."""
    parts = Parts(monkeypatch)
    async with serve.running(Options.read(SAID, {})) as ports:
        await asyncio.sleep(0)
        parts.told.append("runs")
    assert ports == (50052, 9101, 9201)
    assert parts.told == [
        ("metrics", ("g", "h")),
        ("metrics at", ("127.0.0.3", 9100)),
        ("kafka", "k:9092"),
        ("groups", ["g", "h"]),
        "groups start",
        "checks the store",
        "server start",
        ("follows", "g", "condition of g"),
        ("follows", "h", "condition of h"),
        "runs",
        ("followed", "h"),
        ("followed", "g"),
        "server stop",
        "kafka end",
        "store end",
        "metrics end",
    ]
    more = {"node_id": "n7", "kafka": "t of k:9092"}
    assert parts.nodes == {
        "g": ("the store", "/p/g/", {"topics": {"t": 3}, "metrics": "g", **more}),
        "h": ("the store", "/p/h/", {"topics": {"u": 5, "v": 7}, "metrics": "h", **more}),
    }


async def test_an_instance_without_options_has_one_group_and_a_name_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name has the host and the process; there is no port of metrics, and no Kafka."""
    parts = Parts(monkeypatch)
    async with serve.running(Options.read({"prefix": "/p/"}, {})) as ports:
        pass
    assert ports == (50052, 0, 9201)
    node_id = f"{socket.gethostname()}-{os.getpid()}"
    said = {"node_id": node_id, "topics": {}, "metrics": "", "kafka": False}
    assert parts.nodes == {"": ("the store", "/p/", said)}


@pytest.mark.parametrize(
    ("fails", "ends"),
    [
        ("groups start", ["kafka end", "store end", "metrics end"]),
        ("checks the store", ["server stop", "kafka end", "store end", "metrics end"]),
        ("server start", ["server stop", "kafka end", "store end", "metrics end"]),
    ],
)
async def test_an_instance_that_fails_to_start_ends_its_parts(
    monkeypatch: pytest.MonkeyPatch, fails: str, ends: list[str]
) -> None:
    """Groups that did not start are not stopped a second time."""
    parts = Parts(monkeypatch, fails=fails)
    with pytest.raises(StoreError, match=fails):
        async with serve.running(Options.read(SAID, {})):
            pass
    after = parts.told[parts.told.index(fails) + 1 :]
    assert [one for one in after if isinstance(one, str)] == ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("said", "lines"),
    [
        (
            SAID,
            [
                "metrics on http://127.0.0.3:9101/metrics",
                "health probes on 127.0.0.4:9201",
                "listening on 127.0.0.2:50052",
            ],
        ),
        ({"bind": "[::1]:50051"}, ["listening on ::1:50052"]),
        (
            {"health": "127.0.0.4:9200"},
            ["health probes on 127.0.0.4:9201", "listening on 127.0.0.1:50052"],
        ),
    ],
)
async def test_an_instance_says_its_ports_and_runs_until_a_signal(
    monkeypatch: pytest.MonkeyPatch, number: int, said: dict[str, str], lines: list[str]
) -> None:
    """The ports are those that it got; it says that it stops before it stops."""
    told: list[str] = []
    handlers: dict[int, Any] = {}

    @contextlib.asynccontextmanager
    async def running(options: Options) -> AsyncIterator[tuple[int, int, int]]:
        yield 50052, 9101, 9201
        told.append("ended")

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "add_signal_handler", handlers.__setitem__)
    monkeypatch.setattr(serve, "running", running)
    serving = asyncio.create_task(serve._serve(Options.read(said, {}), told.append))
    for _ in range(3):
        await asyncio.sleep(0)
    assert (told, serving.done()) == (lines, False)
    handlers[number]()
    await serving
    assert told == [*lines, "stopping", "ended"]


def test_the_files_are_checked_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has its level from the option."""
    told: list[Any] = []

    async def run(options: Options, say: Any) -> None:
        told.append((options, say))

    monkeypatch.setattr(serve, "_serve", run)
    monkeypatch.setattr(
        serve.logging, "basicConfig", lambda **said: told.append((said["level"], said["format"]))
    )
    options = Options.read({"log_level": "warning"}, {})
    serve.serve(options, print)
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    assert told == [("WARNING", form), (options, print)]
    told.clear()

    def refuses(_: Options) -> None:
        raise ConfigError("no certificate")

    monkeypatch.setattr(Options, "check_files", refuses)
    with pytest.raises(ConfigError, match="no certificate"):
        serve.serve(options, print)
    assert told == []


async def test_every_option_of_etcd_reaches_its_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No file takes another one's place."""
    made: list[Any] = []

    class Etcd:
        def __init__(self, access: EtcdAccess, *, observe: Any) -> None:
            made.append((access, observe))

        async def close(self) -> None:
            """End."""

    monkeypatch.setattr(serve, "EtcdStore", Etcd)
    files = {name: tmp_path / name for name in ("etcd_ca", "etcd_cert", "etcd_key")}
    for path in files.values():
        path.write_text("")
    said = {name: str(path) for name, path in files.items()}
    said |= {"etcd": "https://a:1,https://b:2", "etcd_user": "u", "etcd_password": "p"}
    metrics: Any = SimpleNamespace(store_call="observe")
    async with contextlib.AsyncExitStack() as ends:
        serve._open_store(Options.read(said, {}), metrics, ends)
    access = EtcdAccess(
        endpoints=("https://a:1", "https://b:2"),
        ca=files["etcd_ca"],
        certificate=files["etcd_cert"],
        key=files["etcd_key"],
        user="u",
        password="p",
    )
    assert made == [(access, "observe")]
