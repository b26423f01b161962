import threading

import pytest

from aspira.contracts.errors import Unavailable
from aspira.llm.inbox import Inbox


def first() -> None: ...


def second() -> None: ...


def test_commands_come_in_order_and_once() -> None:
    inbox = Inbox()
    inbox.post(first)
    inbox.post(second)
    assert inbox.take(wait=True) == [first, second]
    assert inbox.take(wait=False) == []


def test_a_waiting_thread_is_woken() -> None:
    inbox = Inbox()
    taken: list[object] = []
    thread = threading.Thread(target=lambda: taken.extend(inbox.take(wait=True)))
    thread.start()
    inbox.post(first)
    thread.join()
    assert taken == [first]


def test_nothing_gets_into_a_closed_inbox_and_what_was_in_it_comes_out() -> None:
    inbox = Inbox()
    inbox.post(first)
    assert inbox.close() == [first]
    assert not inbox.try_post(second)
    with pytest.raises(Unavailable, match="not running any more"):
        inbox.post(second)
    assert inbox.take(wait=True) == []
