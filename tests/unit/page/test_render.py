"""The page as HTML: it never executes foreign text, and stays small for a large group."""

from __future__ import annotations

import gzip
import re
import time
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from faust_assigner.page.look import Look, Problem
from faust_assigner.page.render import page_of, parts_of, story_page, story_part, title_of
from faust_assigner.status.build import build
from faust_assigner.status.report import Difference, Report, WaitReport
from tests.support.page import busy, fleet, look_at
from tests.support.status import group

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """The elements and attributes of a page, as parsed by a browser."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]


def whole(look: Look) -> str:
    """Render the page."""
    return page_of(look, parts_of(look), 1)


def hostile() -> Report:
    """A report in which every name is an attack."""
    report = build(busy(fleet(3)))
    names = {member.name: f"{EVIL}{at}" for at, member in enumerate(report.members)}
    topic = f"{EVIL}-topic"
    assert report.decision is not None
    return replace(
        report,
        group=EVIL,
        coordinator=EVIL,
        decision=replace(report.decision, leader=EVIL, trigger=EVIL, joined=(EVIL,)),
        members=tuple(
            replace(m, name=names[m.name], rack=EVIL, detail=EVIL, not_ready=(EVIL,), url=EVIL)
            for m in report.members
        ),
        partitions=tuple(
            replace(
                p,
                topic=topic if p.topic == "orders" else p.topic,
                owner=names.get(p.owner or ""),
                copies=tuple(replace(c, member=names[c.member]) for c in p.copies),
                standing=p.standing and replace(p.standing, reason=EVIL),
            )
            for p in report.partitions
        ),
        waits=(WaitReport(kind="step", member=EVIL, text=EVIL),),
        differences=(Difference(name=EVIL, values={EVIL: (EVIL,)}),),
        problems=(EVIL,),
    )


def test_names_are_text_and_never_markup() -> None:
    """Members and creators of topics choose these names freely."""
    look = look_at(hostile())
    look = replace(look, group=EVIL, problem=Problem(title=EVIL, text=EVIL, steps=(EVIL,)))
    (family, *_) = [f for f in look.families if any("topic" in t for t in f.topics)]
    story = story_part(look, family.tasks[0].key)
    assert story is not None
    for html in (whole(look), story, story_page(look, story)):
        assert "&lt;script&gt;" in html
        found = Tags()
        found.feed(html)
        assert "img" not in found.names
        assert [name for name in found.attributes if name.startswith("on")] == []
        assert found.names.count("script") == html.count('<script src="page.js" defer></script>')


@pytest.mark.parametrize("report", [None, build(busy(fleet(3)))])
def test_the_page_needs_no_inline_script_or_style_and_nothing_from_elsewhere(
    report: Report | None,
) -> None:
    """The content security policy refuses them, and an operator's network may be closed."""
    html = whole(look_at(report, problem=Problem(title="t", text="x")))
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html)
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", html)
    assert re.findall(r"<script[^>]*>([^<]*)</script>", html) == [""]


@pytest.mark.parametrize(("members", "most_kb", "most_packed_kb"), [(3, 30, 9), (300, 600, 60)])
def test_a_large_group_makes_a_page_of_bounded_size_and_time(
    members: int, most_kb: int, most_packed_kb: int
) -> None:
    """300 members with 1,500 tasks: 440 kB, 37 kB compressed, 0.2 s of CPU (limit 2 s)."""
    report = build(fleet(members).evidence())
    began = time.process_time()
    html = whole(look_at(report)).encode()
    assert time.process_time() - began < 2.0
    assert len(html) < most_kb * 1000
    assert len(gzip.compress(html, 4)) < most_packed_kb * 1000


def test_the_page_draws_no_number_of_a_round_on_the_number_of_a_newer_round() -> None:
    """Round 10 follows round 9 after a second; round 9 keeps its mark and its hint."""
    look = look_at(build(busy(fleet(3))))
    assert look.report is not None
    newest = look.history.rounds[-1]
    for generation, ago_s in ((9, 31), (10, 30)):
        at = look.report.taken_at - ago_s
        look.history.note_round(replace(newest, generation=generation, at=at))
    chart = parts_of(look)["rounds"]
    assert re.findall(r'y="22">(9|10)<', chart) == ["10"]
    assert re.findall(r"<title>Round (9|10),", chart) == ["9", "10"]


def test_a_group_without_members_says_so() -> None:
    """The page has no empty grid."""
    report = replace(build(group(1).evidence()), members=(), partitions=(), state="Empty", waits=())
    parts = parts_of(look_at(report))
    assert "The group has no members" in parts["head"]
    assert "<table" not in parts["grid"]


def test_a_worker_that_does_not_answer_has_one_line_and_its_row() -> None:
    """The row shows the partitions that the group reports for the worker."""
    parts = parts_of(look_at(build(busy(fleet(3)))))
    assert parts["alerts"].count("<b>shop-1</b>") == 1
    assert "does not answer" in parts["alerts"]
    (row,) = re.findall(r'<tr class="bad" data-name="shop-1">.*?</tr>', parts["grid"], re.S)
    assert "silent" in row
    assert 'aria-label="customers/6: active' in row
    assert title_of(look_at(build(busy(fleet(3))))).startswith("✕")


def test_a_group_at_rest_needs_no_look() -> None:
    """The page has a sentence for this state."""
    report = build(group(3, rounds=3).evidence())
    assert not report.waits
    parts = parts_of(look_at(report))
    assert "Nothing waits" in parts["alerts"]
    assert title_of(look_at(report)) == "shop · faust-assigner"


def test_settings_in_which_workers_differ_are_listed() -> None:
    """Differing settings are a frequent cause of surprises."""
    report = replace(
        build(group(2).evidence()),
        differences=(Difference(name="STALE_READS_S", values={"0": ("w0",), "9": ("w1",)}),),
    )
    assert re.search(r"STALE_READS_S.*w0.*9.*w1", parts_of(look_at(report))["about"], re.S)
    assert "STALE_READS_S" not in parts_of(look_at(build(group(2).evidence())))["about"]


def test_the_time_of_a_look_is_utc_on_a_server_in_any_time_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The head of the page names UTC beside the time."""
    report = replace(build(busy(fleet(3))), taken_at=3_600.0)
    try:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        assert "as of 01:00:00 UTC" in whole(look_at(report))
    finally:
        monkeypatch.undo()
        time.tzset()
