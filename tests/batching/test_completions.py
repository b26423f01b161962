import asyncio
import threading

import pytest

from aspira.batching.completions import Completions
from aspira.contracts.errors import Internal


def post_from_thread(
    completions: Completions[int], *, outcomes: dict[asyncio.Future[int], int | BaseException]
) -> threading.Thread:
    def post() -> None:
        for outcome in outcomes.items():
            completions.post([outcome])

    thread = threading.Thread(target=post)
    thread.start()
    return thread


def test_results_and_errors_arrive() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        good, bad = loop.create_future(), loop.create_future()
        thread = post_from_thread(Completions(loop), outcomes={good: 7, bad: Internal("why")})
        assert await good == 7
        with pytest.raises(Internal, match="why"):
            await bad
        thread.join()

    asyncio.run(scenario())


def test_many_posts_arrive_each_once_and_in_their_threads_order() -> None:
    num_threads, num_each = 8, 500

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        completions = Completions[int](loop)
        arrived: list[int] = []
        futures = [loop.create_future() for _ in range(num_threads * num_each)]
        for future in futures:
            future.add_done_callback(lambda done: arrived.append(done.result()))
        threads = [
            post_from_thread(
                completions,
                outcomes={
                    futures[number]: number
                    for number in range(first * num_each, (first + 1) * num_each)
                },
            )
            for first in range(num_threads)
        ]
        assert await asyncio.gather(*futures) == list(range(len(futures)))
        for thread in threads:
            thread.join()
        for first in range(num_threads):
            mine = [number for number in arrived if number // num_each == first]
            assert mine == list(range(first * num_each, (first + 1) * num_each))

    asyncio.run(scenario())


def test_a_future_that_is_done_is_passed_over() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        cancelled, failed, waiting = (loop.create_future() for _ in range(3))
        cancelled.cancel()
        failed.set_exception(Internal("first"))
        outcomes = {cancelled: 1, failed: Internal("second"), waiting: 3}
        thread = post_from_thread(Completions(loop), outcomes=outcomes)
        assert await waiting == 3
        assert cancelled.cancelled()
        with pytest.raises(Internal, match="first"):
            await failed
        thread.join()

    asyncio.run(scenario())


def test_a_future_that_is_cancelled_between_post_and_delivery_is_passed_over() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        completions = Completions[int](loop)
        leaving, waiting = loop.create_future(), loop.create_future()
        completions.post([(leaving, 1)])
        completions.post([(waiting, 2)])
        leaving.cancel()
        assert await waiting == 2
        assert leaving.cancelled()

    asyncio.run(scenario())


def test_several_results_share_a_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        num_wake_ups = 0
        wake = loop.call_soon_threadsafe

        def count(*args: object) -> object:
            nonlocal num_wake_ups
            num_wake_ups += 1
            return wake(*args)

        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        completions = Completions[int](loop)
        for expected in (1, 2):
            futures = [loop.create_future() for _ in range(10)]
            for future in futures:
                completions.post([(future, 0)])
            await asyncio.gather(*futures)
            assert num_wake_ups == expected

    asyncio.run(scenario())
