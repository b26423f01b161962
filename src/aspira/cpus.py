"""How many CPUs this process may use: those that it may run on, or fewer by its containers' quotas.

A container that is granted two CPUs of sixty-four may run on all of them, in turns. Threads for
each of them get in one another's way, and the system stops them all once the quota is used up.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
# Version 1 mounts a hierarchy for each set of controllers, version 2 one for all.
_CPU_CONTROLLERS = frozenset({"cpu", "cpu,cpuacct", "cpuacct,cpu"})


def count_cpus(*, cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int:
    """At least one. A quota of one CPU and a half counts as two.

    `cgroups` is where control groups are mounted, `membership` tells which ones are this process's.
    """
    quotas = (_read_quota(group) for group in _own_groups(cgroups, membership=membership))
    quota = min((quota for quota in quotas if quota is not None), default=math.inf)
    return max(math.ceil(min(len(os.sched_getaffinity(0)), quota)), 1)


def _own_groups(cgroups: Path, *, membership: Path) -> Iterator[Path]:
    """The process's groups and those around them: each may have a quota.

    Within a container a path may be that of the host, which is not there; the mount's root is then
    the container's own group.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controllers in _CPU_CONTROLLERS:
            mount = cgroups / controllers
            group = mount / path.lstrip("/")
            yield from (each for each in (group, *group.parents) if each.is_relative_to(mount))


def _read_quota(group: Path) -> float | None:
    """CPUs; None if the group has no quota."""
    try:
        if (file := group / "cpu.max").is_file():
            quota, period = file.read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
    except OSError:
        return None
    return None if quota == "max" or int(quota) < 0 else int(quota) / int(period)
