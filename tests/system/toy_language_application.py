"""The whole server around toy language models, which fail as files in their directories tell.

A version's answers give its number away: each token is the toy's next one plus that number. Files
in its directory: `die` has the runner fail at everything, after as many further steps as the file
says; `hang` has steps wait while it is there, `held_load` the making of runners, and `no_load`
fails that. `options.json` may hold `stall_timeout_s` and `total_s`.
"""

import json
import math
import time
from pathlib import Path

import numpy as np

from aspira.app import Server
from aspira.asgi import EnvoyChild
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.model_source import SourceOptions
from aspira.llm.options import EngineOptions
from aspira.llm.runner import Logits, StepBatch
from aspira.llm.serving_options import RequestLimits
from aspira.settings import Settings
from aspira.testing.toy_decoder import Slots, ToyDecoder
from language_toys import MAX_CONTEXT, MODEL_FILE, ToySource

_LOOK_S = 0.005


class FaultyDecoder(ToyDecoder):
    """See above."""

    def __init__(self, path: Path) -> None:
        super().__init__(num_blocks=512, max_context=MAX_CONTEXT, before_step=self._obey)
        self._path = path
        self._version = int(path.name)
        self._num_steps_left = math.inf

    def _obey(self, _: StepBatch) -> None:
        die = self._path / "die"
        if die.exists():
            self._num_steps_left = int(die.read_text())
            die.unlink()
        self._num_steps_left -= 1
        if self._num_steps_left < 0:
            raise RuntimeError("the device is gone")
        wait_while(self._path / "hang")

    def _logits_after(self, stored: Slots) -> Logits:
        return np.roll(super()._logits_after(stored), self._version)


class FaultySource(ToySource):
    """See above."""

    def __init__(self, path: Path) -> None:
        options = path / "options.json"
        told = json.loads(options.read_text()) if options.exists() else {}
        engine = EngineOptions(watermark=0.0, stall_timeout_s=told.get("stall_timeout_s", 120.0))
        limits = RequestLimits(total_s=told.get("total_s", 0.0))
        super().__init__(SourceOptions(DecoderOptions(cache_mib=16), engine, limits))
        self._path = path

    def make_runner(self, *, cache_mib: int) -> FaultyDecoder:
        wait_while(self._path / "held_load")
        if (self._path / "no_load").exists():
            raise RuntimeError("the device does not come back")
        return FaultyDecoder(self._path)


def wait_while(path: Path) -> None:
    while path.exists():
        time.sleep(_LOOK_S)


def find_toy(path: Path) -> FaultySource | None:
    return FaultySource(path) if (path / MODEL_FILE).exists() else None


async def open_toy_server(settings: Settings) -> Server:
    return Server(settings, find_language_model=find_toy)


application = EnvoyChild(open_toy_server)
