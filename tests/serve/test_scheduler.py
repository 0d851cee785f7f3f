"""Which items go together, in which order, and that none waits without end; without threads."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.ship.serve.scheduler import (
    LEAST,
    PATIENCE,
    UNLIKE,
    FairShare,
    FullError,
    NeverFitsError,
    Queue,
    QueueItem,
    WaitingLine,
)


def items(*lengths: int, key: str = "k") -> list[QueueItem]:
    return [QueueItem(key, [length]) for length in lengths]


def taken(queue: Queue, now: float = 0.0) -> list[int]:
    return [item.longest for item in queue.take(now).items]


def test_the_oldest_goes_first_with_those_of_its_length() -> None:
    queue = Queue(10_000, 200)
    for item in items(40, 400, 38, 42, 390, 41):
        queue.submit([item], 0.0)
    assert taken(queue)[0] == 40 and len(queue) == 2
    assert taken(queue) == [400], "one that is larger than a batch goes alone"
    assert taken(queue) == [390] and taken(queue) == [] and queue.tokens == 0


def test_unlike_lengths_are_no_batch() -> None:
    queue = Queue(100_000, 100_000)
    queue.submit(items(10, 10, 10, 10, 500), 0.0)
    assert taken(queue) == [10] * 4 and taken(queue) == [500]
    queue.submit(items(500, 10, 480, 10), 0.0)
    assert sorted(taken(queue)) == [480, 500] and taken(queue) == [10, 10]


def test_admission_is_all_or_nothing() -> None:
    queue = Queue(100, 50)
    queue.submit(items(30, 30), 0.0)
    with pytest.raises(FullError):
        queue.submit(items(30, 30), 0.0)
    assert len(queue) == 2 and queue.tokens == 60
    queue.submit(items(40), 0.0)  # the control: what fits is taken in
    with pytest.raises(NeverFitsError):
        queue.submit(items(60, 60), 0.0)


def test_what_is_late_or_cancelled_is_not_computed() -> None:
    queue = Queue(100, 100)
    late, left, well = items(5, 5, 5)
    late.deadline, left.cancelled = 1.0, True
    queue.submit([late, left, well], 0.0)
    found = queue.take(2.0)
    assert found.items == [well] and found.dropped == [late, left] and queue.tokens == 0


def test_a_queue_that_lingers_waits_until_it_is_full() -> None:
    queue = Queue(100, 20, linger=0.5)
    assert queue.wait(0.0) is None
    queue.submit(items(5), 1.0)
    assert queue.wait(1.2) == pytest.approx(0.3) and queue.wait(1.6) == 0.0
    queue.submit(items(15), 1.2)
    assert queue.wait(1.2) == 0.0


@given(
    st.lists(st.tuples(st.integers(1, 600), st.sampled_from("abc")), min_size=1, max_size=60),
    st.integers(50, 800),
)
def test_nothing_is_lost_or_starved(drawn: list[tuple[int, str]], batch: int) -> None:
    queue = Queue(10**9, batch)
    waiting = [QueueItem(key, [length]) for length, key in drawn]
    queue.submit(waiting, 0.0)
    computed: list[QueueItem] = []
    while len(queue):
        oldest = next(iter(queue._items.values()))
        items = queue.take(0.0).items
        assert items[0] is oldest, "the oldest is always taken"
        assert len({item.key for item in items}) == 1
        assert len(items) == 1 or sum(item.tokens for item in items) <= batch
        lengths = [item.longest for item in items]
        unlike = len(lengths) * max(lengths) ** 2 / sum(n * n for n in lengths)
        assert unlike <= UNLIKE or all(item.passed >= PATIENCE for item in items[1:])
        computed += items
    assert sorted(map(id, computed)) == sorted(map(id, waiting))


@pytest.mark.parametrize("patience", [PATIENCE, 10**9])
def test_an_item_that_was_passed_over_is_taken(
    patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of many lengths in a queue that stays long; the control has no bound on patience, and
    there items are passed over far more often."""
    monkeypatch.setattr("maskwright.ship.serve.scheduler.PATIENCE", patience)
    queue, draw = Queue(10**9, 300), random.Random(0)
    sizes, most = (10, 20, 40, 80, 120), 0
    queue.submit(items(*(draw.choice(sizes) for _ in range(60))), 0.0)
    for _ in range(200):
        queue.submit(items(*(draw.choice(sizes) for _ in range(5))), 0.0)
        most = max([most, *(item.passed for item in queue.take(0.0).items)])
    # Where several are due at once, they go by age, as far as a batch has room.
    assert (most <= PATIENCE + 4) is (patience == PATIENCE), most


def test_a_batch_is_as_large_as_its_time_allows() -> None:
    queue = Queue(10**9, 4_096)
    queue.submit(items(*[50] * 400), 0.0)
    assert sum(taken(queue)) == 4_050, "nothing is known yet"
    for _ in range(20):
        queue.note("k", 4_050, 0.4)  # 10,000 tokens a second
    assert 900 <= sum(taken(queue)) <= 1_050
    queue.note("k", 50, 0.04)  # what a single text takes says nothing
    assert 900 <= sum(taken(queue)) <= 1_050
    for _ in range(20):
        queue.note("k", 1_000, 10.0)
    assert sum(taken(queue)) == LEAST // 50 * 50
    queue.submit(items(*[50] * 400, key="other"), 0.0)
    while next(iter(queue._items.values())).key == "k":
        queue.take(0.0)
    assert sum(taken(queue)) == 4_050, "another model has a rate of its own"


def test_turns_are_shared_by_seconds() -> None:
    share, seconds = FairShare(), {"read": 0.0, "write": 0.0}
    cost = {"read": 0.2, "write": 0.01}
    for _ in range(2000):
        turn = str(share.choose(["read", "write"]))
        seconds[turn] += cost[turn]
        share.spent(turn, cost[turn])
    assert seconds["read"] / seconds["write"] == pytest.approx(1, abs=0.05)


def test_idleness_gives_no_claim() -> None:
    share, turns = FairShare(), list[object]()
    for _ in range(100):
        share.spent(share.choose(["write"]), 1.0)
    for _ in range(10):
        turns.append(share.choose(["read", "write"]))
        share.spent(turns[-1], 1.0)
    assert 4 <= turns.count("read") <= 6, "not ten in a row, though it had 100 seconds less"


def test_what_waits_is_bounded_by_the_seconds_it_takes() -> None:
    queue, now = Queue(10**9, 1_000, max_seconds=1.0), 0.0
    queue.submit(items(*[100] * 300), now)
    assert not queue.is_full(), "no rate is known"
    queue.expect(10_000.0)
    assert queue.is_full() and queue.seconds() == pytest.approx(3.0)
    with pytest.raises(FullError):
        queue.submit(items(1), now)
    for _ in range(15):  # 2,000 tokens a second by what is measured, writing between batches too
        queue.take(now)
        now += 0.5
    assert queue.rate == pytest.approx(2_000, rel=0.2) and queue.tokens == 15_000
    while queue.is_full():
        queue.take(now)
        now += 0.5
    assert 1_000 <= queue.tokens <= 2_500
    assert queue.seconds(10_000) > 1.0, "those that arrive count"
    queue.submit(items(*[1_000] * 30), now)
    assert queue.is_full(), "a large request is taken in whole, and none behind it"
    with pytest.raises(FullError):
        queue.submit(items(1), now)
    queue.submit(items(1), now, further=True)  # but what else the same request brings


def test_the_rate_is_measured_while_there_is_work() -> None:
    queue, now = Queue(10**9, 1_000, max_seconds=1.0), 0.0
    queue.submit(items(*[1_000] * 60), now)  # nothing waits: it is taken in, however long it is
    for _ in range(15):
        queue.take(now)
        now += 0.5
    rate = queue.rate
    queue.expect(1.0)
    assert rate is not None and queue.rate == rate, "measured is measured"
    while len(queue):
        queue.discard(next(iter(queue._items.values())))
    queue.take(now + 1_000.0)
    assert queue.rate == rate, "time without work is not counted"


def test_the_line_is_in_order_and_lets_in_what_there_is_room_for() -> None:
    async def scenario() -> None:
        room, order = [0.0], list[str]()
        line = WaitingLine(lambda: room[0])
        now = asyncio.get_running_loop().time()

        async def request(name: str, seconds: float = 9.0, at_front: bool = False) -> None:
            admitted = await line.wait(10, now + seconds, at_front=at_front)
            order.append(name if admitted else f"no {name}")
            room[0] -= 10 if admitted else 0

        tasks = [asyncio.ensure_future(request(name)) for name in "abcd"]
        await request("late", 0.01)
        tasks.append(asyncio.ensure_future(request("front", at_front=True)))
        await asyncio.sleep(0)
        assert order == ["no late"] and line.tokens == 50
        line.advance()
        assert len(line) == 5, "there is no room"
        room[0] = 15.0
        for _ in range(3):  # before those that go on have run
            line.advance()
        await asyncio.sleep(0)
        assert order[1:] == ["front", "a"] and room == [-5.0]
        tasks[1].cancel()
        room[0] = 1.0
        await request("e", -1.0)  # may not overtake, and may not wait
        line.advance()
        room[0] = 0.0  # others were quicker: c waits again, before d
        await asyncio.sleep(0)
        assert order[3:] == ["no e"] and len(line) == 2
        room[0] = 99.0
        line.advance()
        await asyncio.wait(tasks)
        assert order[4:] == ["c", "d"] and len(line) == 0

    asyncio.run(scenario())
