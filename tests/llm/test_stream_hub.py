import asyncio
from unittest.mock import patch

from aspira.contracts.errors import Internal, ServingError
from aspira.contracts.generation import Delta
from aspira.llm.stream_hub import HubOutlet, StreamHub
from aspira.llm.streams import StreamEnd, TokenStream


def open_streams(hub: StreamHub, count: int) -> list[HubOutlet]:
    outlets = []
    for _ in range(count):
        stream = TokenStream(lambda: None)
        hub.add(stream)
        outlets.append(HubOutlet(hub, stream))
    return outlets


async def read(outlet: HubOutlet) -> list[Delta]:
    return [delta async for delta in outlet.stream]


def test_a_step_wakes_the_loop_once_for_all_streams() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        hub = StreamHub(loop)
        outlets = open_streams(hub, 32)
        with patch.object(
            loop, "call_soon_threadsafe", side_effect=loop.call_soon_threadsafe
        ) as wake:
            hub.wake()
            for outlet in outlets:
                outlet.send(Delta(0, "a", (1,)))
                outlet.send(StreamEnd())
                hub.wake()
            assert wake.call_count == 1
        for outlet in outlets:
            assert await read(outlet) == [Delta(0, "a", (1,))]

    asyncio.run(scenario())


def test_streams_that_ended_are_not_failed() -> None:
    async def scenario() -> None:
        hub = StreamHub(asyncio.get_running_loop())
        ended, going_on = open_streams(hub, 2)
        ended.send(Delta(0, "a", (1,)))
        ended.send(StreamEnd())
        hub.fail_all(Internal("why"))
        assert await read(ended) == [Delta(0, "a", (1,))]
        results = await asyncio.gather(read(going_on), return_exceptions=True)
        assert [str(result) for result in results] == ["INTERNAL: why"]

    asyncio.run(scenario())


def test_the_watch_goes_on_while_there_are_streams() -> None:
    looks: list[str] = []

    async def scenario() -> None:
        hub = StreamHub(asyncio.get_running_loop())
        (outlet,) = open_streams(hub, 1)

        def find_problem() -> ServingError | None:
            looks.append("look")
            return Internal("why") if len(looks) == 3 else None

        hub.watch(find_problem, every_s=0.001)
        hub.watch(find_problem, every_s=0.001)
        results = await asyncio.gather(read(outlet), return_exceptions=True)
        assert [str(result) for result in results] == ["INTERNAL: why"]
        await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert len(looks) == 3


class SlowLoop(asyncio.SelectorEventLoop):
    """Its clock can be set ahead, as if the whole process had been held up."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def test_a_process_that_was_held_up_is_not_a_hang() -> None:
    looks: list[float] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SlowLoop)
        hub = StreamHub(loop)
        (outlet,) = open_streams(hub, 1)

        def find_problem() -> ServingError | None:
            looks.append(loop.time())
            return Internal("why")

        began = loop.time()
        hub.watch(find_problem, every_s=60)
        loop.ahead_s = 600
        await asyncio.sleep(0.001)
        assert looks == []
        loop.ahead_s = 600 + 60.5
        assert await asyncio.gather(read(outlet), return_exceptions=True)
        assert looks[0] - began > 660

    with asyncio.Runner(loop_factory=SlowLoop) as runner:
        runner.run(scenario())


def test_a_closed_loop_is_gone_and_waking_it_is_harmless() -> None:
    async def scenario() -> tuple[StreamHub, HubOutlet]:
        hub = StreamHub(asyncio.get_running_loop())
        return hub, open_streams(hub, 1)[0]

    hub, outlet = asyncio.run(scenario())
    outlet.send(Delta(0, "a", (1,)))
    hub.wake()
    assert outlet.is_gone
