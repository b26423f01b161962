import os
import subprocess
import sys

from aspira.cpus import count_cpus
from aspira.runtimes.thread_pools import bound_thread_pools

COUNT_THREADS = """
import os
import tensorflow as tf

with tf.Graph().as_default():
    session = tf.compat.v1.Session()
    session.run(tf.constant(1))
    print(len(os.listdir("/proc/self/task")))
"""


def test_pools_have_a_thread_for_each_cpu_but_where_a_user_says_otherwise() -> None:
    environment = {"TF_NUM_INTRAOP_THREADS": "77"}
    bound_thread_pools(environment)
    assert environment == {
        "TF_NUM_INTRAOP_THREADS": "77",
        "TF_NUM_INTEROP_THREADS": str(count_cpus()),
    }


def test_tensorflow_heeds_the_variables() -> None:
    """They are not documented; this is all we expect of them."""
    sizes = {"TF_NUM_INTRAOP_THREADS": "300", "TF_NUM_INTEROP_THREADS": "200"}
    found = subprocess.run(
        [sys.executable, "-c", COUNT_THREADS],
        env={**os.environ, **sizes},
        check=True,
        capture_output=True,
        text=True,
    )
    assert 500 <= int(found.stdout) < 600
