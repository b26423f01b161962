from aspira.cpus import count_cpus
from aspira.runtimes.thread_pools import bound_thread_pools


def test_pools_have_a_thread_for_each_cpu_but_where_a_user_says_otherwise() -> None:
    environment = {"TF_NUM_INTRAOP_THREADS": "77"}
    bound_thread_pools(environment)
    assert environment == {
        "TF_NUM_INTRAOP_THREADS": "77",
        "TF_NUM_INTEROP_THREADS": str(count_cpus()),
    }
