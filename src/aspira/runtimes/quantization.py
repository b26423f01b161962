"""Makes int8 models: post-training quantization by NNCF, with ranges from recorded requests."""

from typing import Any

from aspira.contracts.tensors import Tensor
from aspira.nncf_import import import_nncf
from aspira.runtimes.signature_graph import StaysOnTensorflow

# OpenVINO's bindings have no usable types.
Model = Any


def quantize(model: Model, *, samples: list[list[Tensor]]) -> Model:
    """The model with int8 weights and activations where NNCF finds that it can.

    `samples` are inputs in the model's order.

    Raises:
        StaysOnTensorflow: there is nothing to calibrate with, or NNCF cannot do it.
    """
    if not samples:
        raise StaysOnTensorflow("int8 needs recorded requests, and none is for this signature")
    nncf = import_nncf()
    from nncf.quantization import range_estimator as ranges

    dataset = nncf.Dataset(samples, lambda sample: sample)
    try:
        return nncf.quantize(
            model,
            dataset,
            subset_size=len(samples),
            # The ranges of all that was recorded. NNCF's default, the mean of each sample's
            # range, is for large samples, and clips what small requests bring.
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                activations_range_estimator_params=ranges.RangeEstimatorParametersSet.MINMAX
            ),
        )
    except (RuntimeError, ValueError, nncf.errors.InternalError) as error:
        raise StaysOnTensorflow(f"NNCF cannot quantize it: {error}") from error
