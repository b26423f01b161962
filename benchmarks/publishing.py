"""How long a new version takes from its last byte to its first answer, by how it is published.

    python benchmarks/publishing.py [NUM_VERSIONS]

For docs/decisions/0010: what waiting for complete directories costs, beside `--compat=strict`,
which loads what it sees. The poll interval is the default second, so half a second is the least to
expect.
"""

import json
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median

from aspira.testing.saved_models import write_half_plus_two
from servers import Ports, RunningServer, run_server

_DEFAULT_NUM_VERSIONS = 12
# Publishing at other moments between two looks each time.
_PHASE_S = 0.37
_LOOK_S = 0.005


def _export_and_rename(base_path: Path, *, version: int) -> None:
    staging = base_path / f"{version}.tmp"
    write_half_plus_two(staging, offset=float(version))
    staging.rename(base_path / str(version))


def _copy_and_rename(base_path: Path, *, version: int) -> None:
    staging = base_path / f"{version}.tmp"
    shutil.copytree(base_path / "1", staging, copy_function=shutil.copyfile)
    staging.rename(base_path / str(version))


def _copy_in_place(base_path: Path, *, version: int) -> None:
    target = base_path / str(version)
    (target / "variables").mkdir(parents=True)
    for file in sorted((base_path / "1").rglob("*")):
        if file.is_file():
            (target / file.relative_to(base_path / "1")).parent.mkdir(exist_ok=True)
            shutil.copyfile(file, target / file.relative_to(base_path / "1"))


_PUBLISHERS: dict[str, Callable[..., None]] = {
    "exported, renamed": _export_and_rename,
    "copied, renamed": _copy_and_rename,
    "copied in place": _copy_in_place,
}


def main() -> None:
    num_versions = int(sys.argv[1]) if len(sys.argv) > 1 else _DEFAULT_NUM_VERSIONS
    print("| published | compat | median s | longest s |\n|---|---|---|---|")
    for compat in ("better", "strict"):
        for how, publish in _PUBLISHERS.items():
            delays_s = _measure(publish, compat=compat, num_versions=num_versions)
            print(
                f"| {how} | {compat} | {median(delays_s):.2f} | {max(delays_s):.2f} |", flush=True
            )


def _measure(publish: Callable[..., None], *, compat: str, num_versions: int) -> list[float]:
    with tempfile.TemporaryDirectory() as directory:
        base_path = Path(directory, "model")
        write_half_plus_two(base_path / "1")

        def command(ports: Ports) -> list[str]:
            return [
                str(Path(sys.executable).with_name("aspira")),
                "serve",
                "--listener=portable",
                f"--compat={compat}",
                f"--model_base_path={base_path}",
                f"--port={ports.grpc}",
                f"--rest_api_port={ports.rest}",
            ]

        with run_server(command, log=Path(directory, "log")) as server:
            return [
                _time_version(server, publish=publish, base_path=base_path, version=version)
                for version in range(2, num_versions + 2)
            ]


def _time_version(
    server: RunningServer, *, publish: Callable[..., None], base_path: Path, version: int
) -> float:
    time.sleep(_PHASE_S)
    publish(base_path, version=version)
    published_s = time.monotonic()
    while _newest_available(server) != version:
        time.sleep(_LOOK_S)
    return time.monotonic() - published_s


def _newest_available(server: RunningServer) -> int:
    url = f"http://127.0.0.1:{server.ports.rest}/v1/models/default"
    with urllib.request.urlopen(url, timeout=30) as answer:
        told = json.load(answer)["model_version_status"]
    return max(int(entry["version"]) for entry in told if entry["state"] == "AVAILABLE")


if __name__ == "__main__":
    main()
