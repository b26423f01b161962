"""Sizes TensorFlow's pools of threads where nobody says: it knows nothing of quotas."""

from collections.abc import MutableMapping

from aspira.cpus import count_cpus

# What TensorFlow takes before it counts CPUs itself, for every session that is told nothing.
_VARIABLES = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def bound_thread_pools(environment: MutableMapping[str, str]) -> None:
    """As many threads as the process may use CPUs. To be called before TensorFlow's first session.

    What users have set, here or by flags, holds.
    """
    for variable in _VARIABLES:
        environment.setdefault(variable, str(count_cpus()))
