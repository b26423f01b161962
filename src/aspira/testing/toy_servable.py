"""A servable that costs nothing: half plus two, in numpy."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensors


class ToyServable:
    """One signature, `serving_default`: y = x / 2 + `offset`, of any shape, in float32."""

    def __init__(self, offset: float = 2.0) -> None:
        self._offset = np.float32(offset)
        self._is_unloaded = False
        self._signatures = MappingProxyType(
            {
                DEFAULT_SIGNATURE_NAME: Signature(
                    inputs={"x": TensorSpec(DataType.FLOAT, None, "x:0")},
                    outputs={"y": TensorSpec(DataType.FLOAT, None, "y:0")},
                )
            }
        )

    @property
    def signatures(self) -> Mapping[str, Signature]:
        return self._signatures

    @property
    def is_unloaded(self) -> bool:
        """Whether `unload` was called."""
        return self._is_unloaded

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        """See `Servable.run`."""
        assert not self._is_unloaded, "run after unload"
        assert signature_name == DEFAULT_SIGNATURE_NAME
        x: npt.NDArray[np.float32] = inputs["x"].astype(np.float32, copy=False)
        return dict.fromkeys(outputs, np.asarray(x * np.float32(0.5) + self._offset))

    def unload(self) -> None:
        self._is_unloaded = True


class ToyLoader:
    """Loads a ToyServable at once."""

    def load(self) -> ToyServable:
        return ToyServable()
