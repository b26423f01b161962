import os

import pytest

from aspira.lifecycle.options import LifecycleOptions


def test_defaults_are_tensorflow_servings() -> None:
    options = LifecycleOptions()
    assert options.max_num_load_retries == 5
    assert options.load_retry_interval_s == 60.0
    assert options.poll_interval_s == 1.0


def test_no_thread_count_blocks_the_manager() -> None:
    options = LifecycleOptions(num_load_threads=0, num_unload_threads=0)
    assert options.load_pool_size == os.cpu_count()
    assert options.unload_pool_size == 1


@pytest.mark.parametrize("num_threads", [1, 7])
def test_thread_counts_are_kept(num_threads: int) -> None:
    options = LifecycleOptions(num_load_threads=num_threads, num_unload_threads=num_threads)
    assert options.load_pool_size == num_threads
    assert options.unload_pool_size == num_threads
