"""Makes a virtual environment for each peer, once, in the user's cache.

TensorFlow is not installed again: each environment also sees the packages of the one that runs the
benchmark, after its own.
"""

import hashlib
import subprocess
import sys
import sysconfig
from pathlib import Path

from models import cache_directory
from servers import bind_to_parent

PEERS = Path(__file__).parent / "peers"
_STAMP = "installed"
_LIMIT_S = 1200


class InstallError(Exception):
    """A peer could not be installed; the text is pip's own, shortened."""


def prepare_environment(peer: str, *, log: Path, is_alone: bool = False) -> Path:
    """The interpreter of the peer's environment; pip's output goes to `log`.

    Done already, it costs nothing; broken off, it goes on. One that is alone does not see the
    packages of the benchmark.

    Raises:
        InstallError: it cannot be made.
    """
    directory = environment_directory(peer)
    python = directory / "bin" / "python"
    requirements = PEERS / peer / "requirements.txt"
    stamp = directory / _STAMP
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"Installing {peer} ...", file=sys.stderr, flush=True)
        _run([sys.executable, "-m", "venv", str(directory)], log=log)
        # The list is whole; what it leaves out on purpose is not to be added.
        install = [str(python), "-m", "pip", "install", "--no-deps"]
        _run([*install, "--requirement", str(requirements)], log=log)
        stamp.write_text(wanted)
    if not is_alone:
        # Written each time: the benchmark may run from another place now.
        path = _site_packages(directory) / "benchmark.pth"
        path.write_text(sysconfig.get_path("purelib"))
    return python


def environment_directory(peer: str) -> Path:
    version = f"python-{sys.version_info.major}.{sys.version_info.minor}"
    return cache_directory() / "peers" / version / peer


def read_pin(peer: str, *, package: str) -> str:
    """The version that the requirements name.

    Raises:
        KeyError: they do not name the package.
    """
    lines = (PEERS / peer / "requirements.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)[package]


def shorten_pip_output(text: str) -> str:
    """What pip says went wrong: its first error, or else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines[-1:] or ["it said nothing"])[0]


def _site_packages(directory: Path) -> Path:
    paths = sysconfig.get_paths(vars={"base": str(directory), "platbase": str(directory)})
    return Path(paths["purelib"])


def _run(command: list[str], *, log: Path) -> None:
    try:
        done = subprocess.run(
            bind_to_parent(command), capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"pip did not end in {_LIMIT_S} s") from None
    output = done.stdout + done.stderr
    with log.open("a") as file:
        file.write(output)
    if done.returncode:
        raise InstallError(shorten_pip_output(output))
