"""Which loader makes a SavedModel ready: TensorFlow's, or one with an accelerator beside it."""

from pathlib import Path

from aspira.contracts.events import EventBus
from aspira.contracts.servable import Loader, Servable
from aspira.runtimes.accelerated import AcceleratedLoader
from aspira.runtimes.accelerator_options import TENSORFLOW, AcceleratorOptions
from aspira.runtimes.options import TensorflowOptions, WarmupOptions
from aspira.runtimes.tensorflow import TensorflowLoader


def make_saved_model_loader(
    path: Path,
    *,
    options: TensorflowOptions,
    accelerator: AcceleratorOptions,
    warmup: WarmupOptions,
    events: EventBus,
) -> Loader[Servable]:
    """The loader of the version directory `path`."""
    tensorflow = TensorflowLoader(path, options=options, warmup=warmup, events=events)
    if accelerator.kind == TENSORFLOW:
        return tensorflow
    return AcceleratedLoader(
        path, tensorflow=tensorflow, options=accelerator, warmup=warmup, events=events
    )
