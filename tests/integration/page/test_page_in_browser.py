"""The page in a headless Chromium: at 3, 30 and 300 members, light and dark, on a phone, by keyboard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from faust_assigner.page import watch as room
from faust_assigner.page.server import served
from faust_assigner.page.watch import Watch
from faust_assigner.status.evidence import Evidence
from tests.support.browser import Browser, chromium, tab
from tests.support.page import Script, busy, fleet
from tests.support.status import LOG, MadeGroup

pytestmark = pytest.mark.browser
EVIL = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
#: Labels have no blanks.
LABEL = "<img/src=x/onerror=document.title='taken'>"
LIVE = "document.querySelector('#live').classList.contains('is-live')"
STALE = "document.querySelector('#live').classList.contains('is-stale')"
ROWS = "document.querySelectorAll('.grid tbody tr:not([hidden])').length"


def looks(made: MadeGroup) -> Iterator[Evidence]:
    """Yield looks with changing lags without an end."""
    for turn in range(10_000):
        found = busy(made, turn=turn)
        yield replace(found, taken_at=found.taken_at + turn)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A Chromium for all tests; each test has its own tab."""
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@asynccontextmanager
async def page(port: int, made: MadeGroup) -> AsyncIterator[tuple[Browser, Watch]]:
    """A tab with the page of a made-up group; its console must log no error."""
    watch = Watch("shop", Script(looks(made)), every_s=0.3)
    async with served(watch, host="127.0.0.1", port=0) as (host, at), tab(port) as found:
        await found.look()
        await found.open(f"http://{host}:{at}/")
        await found.until(f"{ROWS} > 0")
        yield found, watch
        assert found.complaints == []


async def _fits(found: Browser) -> bool:
    """Return whether only elements with their own scroll bar are wider than the screen."""
    return bool(await found.js("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize(
    "members", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (30, 300))]
)
async def test_the_page_fits_any_screen_in_light_and_dark(
    port: int, tmp_path: Path, members: int
) -> None:
    """Headers of the grid stay visible while it scrolls; screenshots are kept in the folder."""
    async with page(port, fleet(members)) as (found, _):
        await found.until(f"{ROWS} == {members}")
        colours = []
        for width, height in ((1280, 900), (390, 844)):
            for dark in (False, True):
                await found.look(width=width, height=height, dark=dark)
                assert await _fits(found)
                await found.picture(tmp_path / f"{width}-{'dark' if dark else 'light'}.png")
                colours.append(await found.js("getComputedStyle(document.body).backgroundColor"))
                head, name = await found.js(
                    "(() => { const b = document.querySelector('.box'); b.scrollIntoView();"
                    " b.scrollTop = 99; b.scrollLeft = 99; const f = b.getBoundingClientRect();"
                    " const at = s => b.querySelector(s).getBoundingClientRect();"
                    " return [at('thead th').top - f.top, at('tbody .who').left - f.left]; })()"
                )
                assert max(abs(head), abs(name)) < 3
        assert colours[0] == colours[2] != colours[1] == colours[3]


async def test_a_look_changes_the_page_and_keeps_place_and_words(port: int) -> None:
    """A new look arrives by server-sent events; focus, scrolling and the search stay."""
    async with page(port, fleet(12)) as (found, watch):
        await found.js("document.querySelector('#find').value = 'shop-1'")
        await found.js(
            "document.querySelector('#find').dispatchEvent(new Event('input', {bubbles: true}))"
        )
        assert await found.js(ROWS) == 3  # shop-1, shop-10 and shop-11
        await found.js("document.querySelector('#find').focus()")
        before = await found.js("document.querySelector('.live').dataset.at")
        await found.until(f"document.querySelector('.live').dataset.at !== '{before}'")
        assert await found.js("document.querySelector('.live').classList.contains('is-live')")
        await found.until("document.activeElement.id === 'find'")
        assert await found.js(ROWS) == 3
        assert watch.shown.version > 1


@pytest.mark.slow
async def test_the_chart_on_a_phone_begins_at_its_newest_end_and_keeps_its_place(port: int) -> None:
    """A new look replaces the chart and keeps the reader's scroll position."""
    async with page(port, fleet(3)) as (found, _):
        await found.look(width=390, height=844)
        await found.open(await found.js("location.href"))
        chart = "document.querySelector('#rounds .wide')"
        await found.until(f"{chart} && {chart}.scrollLeft > 100")
        assert await found.js(
            f"{chart}.scrollLeft + {chart}.clientWidth + 2 >= {chart}.scrollWidth"
        )
        await found.js(f"{chart}.scrollLeft = 60, {chart}.dataset.former = 1")
        await found.until(f"!{chart}.dataset.former")
        assert await found.js(f"{chart}.scrollLeft") == 60


async def test_a_task_is_found_by_its_name(port: int) -> None:
    """Only the owner and the standbys of the task remain visible."""
    async with page(port, fleet(12)) as (found, _):
        await found.js("document.querySelector('#find').value = 'customers/7'")
        await found.js(
            "document.querySelector('#find').dispatchEvent(new Event('input', {bubbles: true}))"
        )
        assert await found.js(ROWS) == 2
        await found.js("document.querySelector('#find').value = 'nobody'")
        await found.js(
            "document.querySelector('#find').dispatchEvent(new Event('input', {bubbles: true}))"
        )
        assert await found.js("document.querySelector('#none-found').hidden") is False


@pytest.mark.slow
async def test_the_keyboard_reaches_every_task_and_its_story(port: int) -> None:
    """Arrow keys move, Enter opens, Esc closes and restores the focus; Tab stops once."""
    async with page(port, fleet(3)) as (found, _):
        assert await found.js("document.querySelectorAll('.grid a[tabindex=\"0\"]').length") == 1
        await found.js("document.querySelector('.box').focus()")
        await found.key("ArrowDown")
        await found.key("ArrowRight")
        await found.key("ArrowDown")
        label = await found.js("document.activeElement.getAttribute('aria-label')")
        key = label.split(":")[0]
        await found.key("Enter")
        await found.until("!document.querySelector('#story').hidden")
        assert await found.js("document.querySelector('#story-title').textContent") == key
        assert await found.js("document.activeElement.id") == "story"
        assert key.split("/")[0] in await found.js("location.hash")
        await found.key("Escape")
        assert await found.js("document.querySelector('#story').hidden")
        await found.until("document.activeElement.getAttribute('aria-label') !== null")
        assert (await found.js("document.activeElement.getAttribute('aria-label')")).startswith(key)


async def test_a_click_opens_a_story_that_follows_the_looks(port: int) -> None:
    """A link to the story opens it, too."""
    async with page(port, fleet(3)) as (found, _):
        await found.click(".grid a")
        await found.until("!document.querySelector('#story').hidden")
        text = await found.js("document.querySelector('#story').innerText")
        assert "owns it" in text
        await found.until(f"document.querySelector('#story').innerText !== {text!r}", seconds=20)
        url = await found.js("location.href")
        await found.open("about:blank#")
        await found.call("Page.navigate", url=url)
        await found.until(
            "document.querySelector('#story') && !document.querySelector('#story').hidden"
        )


@pytest.mark.slow
async def test_an_update_waits_while_the_pointer_presses_a_link(port: int) -> None:
    """A link that is replaced gets no click; after 2 s the update comes all the same."""
    async with page(port, fleet(3)) as (found, _):
        await found.js(
            "addEventListener('pointerdown', () => { window.pressed = performance.now(); }),"
            " new MutationObserver(() => { window.changed = performance.now(); })"
            ".observe(document.querySelector('#grid'), {childList: true})"
        )
        await found.until("window.changed")
        async with found.pressed(".grid a"):
            await found.until("window.changed > window.pressed")
        waited_ms = await found.js("window.changed - window.pressed")
        assert waited_ms >= 1990
        await found.click(".grid a")
        await found.until("!document.querySelector('#story').hidden")


async def test_names_of_strangers_run_nothing(port: int) -> None:
    """Markup in the names of topics, members and racks is shown as text."""
    made = MadeGroup(topics={EVIL: 4, LOG: 4, "orders": 4})
    made.join("m0", instance_id=LABEL, rack_id=LABEL).join("m1", instance_id="shop-1").round()
    async with page(port, made.round()) as (found, _):
        shown = await found.js(
            "[...document.querySelectorAll('.grid .name')].map(e => e.textContent)"
        )
        assert LABEL in shown
        await found.click(".grid a")
        await found.until("!document.querySelector('#story').hidden")
        await asyncio.sleep(0.5)
        assert await found.js("document.querySelectorAll('img').length") == 0
        assert "taken" not in await found.js("document.title")
        assert await found.js("document.querySelectorAll('script').length") == 1


@pytest.mark.slow
async def test_a_page_whose_stream_was_refused_tries_again(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser does not repeat a stream that was answered with an error; the page says how old it is."""
    monkeypatch.setattr(room, "MOST_STREAMS", 0)
    async with page(port, fleet(3)) as (found, _):
        await found.js("(now => { Date.now = () => now() + 20000; })(Date.now.bind(Date))")
        await found.until(STALE)
        monkeypatch.undo()
        await found.until(LIVE)
        assert all("503" in one for one in found.complaints)
        found.complaints.clear()


async def test_an_answer_that_never_comes_does_not_stop_the_updates(port: int) -> None:
    """While it is awaited, the page does not call itself live."""
    async with page(port, fleet(3)) as (found, _):
        await found.until(LIVE)
        await found.js(
            "(() => { const limit = AbortSignal.timeout.bind(AbortSignal), get = window.fetch;"
            " const now = Date.now.bind(Date); AbortSignal.timeout = () => limit(4000);"
            " window.fetch = (url, { signal }) => new Promise((_, fail) => { window.fetch = get;"
            " Date.now = () => now() + 10000;"  # not earlier: an earlier answer would be new
            " signal?.addEventListener('abort', () => fail(signal.reason)); }); })()"
        )
        await found.until(STALE)
        await found.until(LIVE)
