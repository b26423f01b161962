"""Reads BatchingParameters, and refuses those that no batch could be made with."""

import dataclasses
import logging
from pathlib import Path
from typing import Any, Protocol

from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.contracts.errors import InvalidArgument
from aspira.cpus import count_cpus
from aspira.wire.batching_parameters import make_batching_parameters
from aspira.wire.text_format import parse_text, parse_text_file

PER_MODEL_FILE = "batching_params.pbtxt"

_MICROS = 1e-6

_logger = logging.getLogger(__name__)


def read_batching_parameters(path: Path) -> BatchingParameters:
    """The parameters in a text file.

    Raises:
        NotFound: the file cannot be read.
        InvalidArgument: it does not parse, or contradicts itself.
    """
    message = make_batching_parameters()
    parse_text_file(path, into=message)
    return decode_batching_parameters(message)


def decode_batching_parameters(message: Any) -> BatchingParameters:
    """The parameters of a message; what it leaves out has TensorFlow Serving's default.

    Raises:
        InvalidArgument: they contradict themselves. The texts are TensorFlow Serving's.
    """
    defaults = BatchingParameters()

    def value_of(field: str, *, default: int) -> int:
        return int(getattr(message, field).value) if message.HasField(field) else default

    parameters = BatchingParameters(
        max_batch_size=value_of("max_batch_size", default=defaults.max_batch_size),
        batch_timeout_s=value_of("batch_timeout_micros", default=0) * _MICROS,
        max_enqueued_batches=value_of(
            "max_enqueued_batches", default=defaults.max_enqueued_batches
        ),
        num_threads=value_of("num_batch_threads", default=count_cpus()),
        allowed_batch_sizes=tuple(message.allowed_batch_sizes),
        pad_variable_length_inputs=message.pad_variable_length_inputs,
        can_split=message.enable_large_batch_splitting.value,
        max_execution_batch_size=value_of("max_execution_batch_size", default=0)
        if message.enable_large_batch_splitting.value
        else 0,
    )
    _check(parameters, timeout_micros=value_of("batch_timeout_micros", default=0))
    if parameters.max_enqueued_batches == 0:
        return dataclasses.replace(parameters, max_enqueued_batches=1)
    return parameters


def _check(parameters: BatchingParameters, *, timeout_micros: int) -> None:
    size, allowed = parameters.max_batch_size, parameters.allowed_batch_sizes
    if parameters.num_threads < 1:
        raise InvalidArgument(f"num_batch_threads must be positive; was {parameters.num_threads}")
    if size < 1:
        raise InvalidArgument(f"input_batch_size_limit must be positive; was {size}")
    if timeout_micros < 0:
        raise InvalidArgument(f"batch_timeout_micros must be non-negative; was {timeout_micros}")
    least = 1 if parameters.can_split else 0
    if parameters.max_enqueued_batches < least:
        raise InvalidArgument(
            f"max_enqueued_batches must be positive; was {parameters.max_enqueued_batches}"
        )
    if parameters.execution_size > size or parameters.execution_size < 1:
        raise InvalidArgument(
            "When enable_large_batch_splitting is true, input_batch_size_limit must be greater "
            "than or equal to max_execution_batch_size. max_execution_batch_size: "
            f"{parameters.execution_size}. input_batch_size_limit: {size}."
        )
    # TensorFlow Serving compares with the request's limit, so that splitting and allowed sizes
    # hardly go together; the largest batch is what is meant.
    if allowed and allowed[-1] not in {parameters.execution_size, size}:
        raise InvalidArgument(
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
            f"{allowed[-1]}; expected {size}"
        )
    if list(allowed) != sorted(set(allowed)) or (allowed and allowed[0] < 1):
        raise InvalidArgument(
            f"allowed_batch_sizes must be positive and increasing; they are {list(allowed)}"
        )


class FindParameters(Protocol):
    """Says how a version is batched. Reads files, so it is asked on a load thread."""

    def find(self, version_directory: Path) -> BatchingParameters | None:
        """The parameters of a version; None if each of its requests is a run of its own.

        Raises:
            ServingError: the version's own file cannot be used.
        """
        ...


class ParametersFinder:
    """What the flags, their file and each version's own file say.

    Raises:
        ServingError: the file for all models cannot be used.
    """

    def __init__(self, options: BatchingOptions) -> None:
        self._options = options
        self._for_all = self._read_for_all()

    def find(self, version_directory: Path) -> BatchingParameters | None:
        """See `FindParameters.find`."""
        if self._for_all is None or not self._options.is_per_model:
            return self._for_all
        path = version_directory / PER_MODEL_FILE
        if not path.exists():
            _logger.info("%s is not there, so this version is served without batching", path)
            return None
        own = read_batching_parameters(path)
        # Threads are the server's to give: its file says how many, as in TensorFlow Serving.
        return dataclasses.replace(own, num_threads=self._for_all.num_threads)

    def _read_for_all(self) -> BatchingParameters | None:
        if not self._options.is_on:
            return None
        if self._options.parameters:
            message = make_batching_parameters()
            parse_text(self._options.parameters, into=message, origin="batching_parameters")
            return decode_batching_parameters(message)
        if not self._options.parameters_file:
            return BatchingParameters()
        return read_batching_parameters(Path(self._options.parameters_file))
