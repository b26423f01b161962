import threading

from aspira.lifecycle.file_threads import FileThreads

PATIENCE_S = 30


def test_one_thread_does_everything_in_order_and_ends() -> None:
    threads = FileThreads("test-files")
    done: list[int] = []
    ended = threading.Event()
    for number in range(5):
        threads.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    threads.submit(ended.set)
    threads.start(1)
    assert ended.wait(PATIENCE_S)
    assert done == [0, 1, 2, 3, 4]
    for thread in threading.enumerate():
        if thread.name == "test-files":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_what_hangs_keeps_its_thread_and_another_does_the_rest() -> None:
    threads = FileThreads("test-hanging")
    hangs, let_go, ended = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        assert let_go.wait(PATIENCE_S)

    threads.submit(hang)
    threads.submit(ended.set)
    threads.start(1)
    assert hangs.wait(PATIENCE_S)
    assert not ended.is_set()
    threads.start(2)
    assert ended.wait(PATIENCE_S)
    hanging = [thread for thread in threading.enumerate() if thread.name == "test-hanging"]
    assert any(thread.is_alive() for thread in hanging)
    # The process may end without them.
    assert all(thread.daemon for thread in hanging)
    let_go.set()
