import asyncio

import pytest

from aspira.contracts.errors import Code, Unavailable
from aspira.service.drain import RequestGate

REFUSAL = "The server is shutting down; retry at another replica"


def test_a_closed_gate_refuses_and_empties_when_the_last_has_left() -> None:
    async def scenario() -> None:
        gate = RequestGate()
        assert gate.is_open
        with gate:
            with gate:
                gate.close()
                assert not gate.is_open
                with pytest.raises(Unavailable) as caught, gate:
                    pass
                assert caught.value.message == REFUSAL
                assert caught.value.code is Code.UNAVAILABLE
                waiting = asyncio.gather(gate.wait_empty(), gate.wait_empty())
            await asyncio.sleep(0)
            assert not waiting.done()
        await waiting

    asyncio.run(scenario())


def test_a_gate_with_nobody_inside_is_empty_once_closed() -> None:
    async def scenario() -> None:
        gate = RequestGate()
        with gate:
            pass
        gate.close()
        await gate.wait_empty()
        gate.close()
        await gate.wait_empty()
        assert not gate.is_open

    asyncio.run(scenario())


def test_a_gate_that_is_open_is_not_empty_for_good() -> None:
    async def scenario() -> None:
        gate = RequestGate()
        waiting = asyncio.ensure_future(gate.wait_empty())
        with gate:
            pass
        await asyncio.sleep(0)
        assert not waiting.done()
        gate.close()
        await waiting

    asyncio.run(scenario())


def test_a_request_that_fails_has_left_too() -> None:
    async def scenario() -> None:
        gate = RequestGate()
        with pytest.raises(ValueError, match="why"), gate:
            raise ValueError("why")
        gate.close()
        await gate.wait_empty()

    asyncio.run(scenario())
