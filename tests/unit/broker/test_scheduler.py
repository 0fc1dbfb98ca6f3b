"""The order of service: bursts of a peer, or of a thousand peers, do not delay the rest."""

from __future__ import annotations

import asyncio

from faust_assigner.broker.scheduler import BEATS, QUESTIONS, WORK, Scheduler, lane_of
from tests.support.hall import ticking
from tests.support.waiting import PATIENCE_S


class Peer:
    """A peer with ``frames`` frames that notes each service."""

    def __init__(
        self, name: str, waiting: Scheduler, lane: int, served: list[str], frames: int = 1
    ) -> None:
        self.name, self.waiting, self.lane, self.served, self.frames = (
            name,
            waiting,
            lane,
            served,
            frames,
        )

    def serve_one(self) -> None:
        """Serve a frame, then wait for a turn again."""
        self.served.append(self.name)
        self.frames -= 1
        self.come()

    def come(self) -> None:
        """Wait in the lane while a frame is left."""
        if self.frames:
            self.waiting.wait(self, self.lane)


def served_of(*peers: tuple[str, int, int]) -> list[str]:
    """Return the names in the order of service; (name, lane, frames) wait in this order."""
    served: list[str] = []

    async def turn_by_turn() -> None:
        waiting = Scheduler(ticking())
        for name, lane, frames in peers:
            Peer(name, waiting, lane, served, frames).come()
        while len(served) < sum(frames for _, _, frames in peers):
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(turn_by_turn(), PATIENCE_S))
    return served


def test_a_question_goes_before_a_thousand_beats() -> None:
    """The number of members and the late arrival do not matter."""
    crowd = [(f"member {n}", BEATS, 1) for n in range(1_000)]
    assert served_of(*crowd, ("new client", QUESTIONS, 1))[0] == "new client"


def test_questions_without_end_leave_each_lane_its_slice() -> None:
    """Neither records nor heartbeats wait for the last of ten thousand questions."""
    served = served_of(("asker", QUESTIONS, 10_000), ("producer", WORK, 1), ("member", BEATS, 1))
    assert served.index("producer") <= 12
    assert served.index("member") <= 12


def test_a_burst_of_one_peer_waits_behind_the_others_of_its_lane() -> None:
    """Each connection has one frame served, then the next connection has its turn."""
    assert served_of(("burst", WORK, 100), ("other", WORK, 1))[:3] == ["burst", "other", "burst"]


def test_a_lane_is_served_in_the_order_of_coming() -> None:
    """The first peer is served first, over as many turns as necessary."""
    names = [f"member {n}" for n in range(100)]
    assert served_of(*((name, BEATS, 1) for name in names)) == names


def test_new_bytes_are_read_between_turns() -> None:
    """A lane with waiting peers yields to the loop after its slice."""
    served: list[str] = []

    async def looks() -> int:
        waiting = Scheduler(ticking())
        Peer("burst", waiting, WORK, served, 100).come()
        count = 0
        while len(served) < 100:
            await asyncio.sleep(0)
            count += 1
        return count

    assert asyncio.run(looks()) >= 9


def test_one_peer_that_fails_does_not_end_the_turns() -> None:
    """The next peer is still served."""
    served: list[str] = []

    class Broken(Peer):
        def serve_one(self) -> None:
            raise ValueError("unexpected")

    async def turn_by_turn() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        waiting = Scheduler(ticking())
        Broken("broken", waiting, WORK, served).come()
        Peer("other", waiting, WORK, served).come()
        while not served:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(turn_by_turn(), PATIENCE_S))
    assert served == ["other"]


def test_requests_are_in_the_lanes_they_belong_to() -> None:
    """ApiVersions, Metadata and FindCoordinator are questions; JoinGroup is work."""
    assert {key: lane_of(key) for key in (18, 3, 10, 0, 1, 8, 11, 14, 12)} == {
        **dict.fromkeys((18, 3, 10), QUESTIONS), **dict.fromkeys((0, 1, 8, 11, 14), WORK), 12: BEATS
    }  # fmt: skip


def test_what_came_by_now_is_served_before_the_call() -> None:
    """All lanes and unread sockets count; later and repeated arrivals do not."""
    served: list[str] = []

    async def story() -> None:
        waiting, loop = Scheduler(ticking()), asyncio.get_running_loop()
        for name, lane in (("asker", QUESTIONS), ("producer", WORK)):
            Peer(name, waiting, lane, served, 1_000).come()
        for number in range(100):
            Peer(f"member {number}", waiting, BEATS, served).come()
        waiting.after_arrived(lambda: served.append("call"))
        loop.call_soon(Peer("just read", waiting, BEATS, served).come)
        while "call" not in served:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
    before = served[: served.index("call")]
    assert {"asker", "producer", "member 99", "just read"} <= set(before)
    assert len(before) < 500


def test_a_lane_uses_its_whole_slice_in_one_turn() -> None:
    """Ten looks at the clock are a slice: ten frames, then the next lane, and the rest a turn later."""
    served = served_of(*((f"q{n}", QUESTIONS, 1) for n in range(13)), ("work", WORK, 1))
    assert served == [*(f"q{n}" for n in range(10)), "work", "q10", "q11", "q12"]
