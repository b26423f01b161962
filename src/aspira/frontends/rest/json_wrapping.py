"""Narrow integers as TensorFlow Serving reads them: any int32 is taken, and its upper bits cut off.

So 300 for a uint8 is 44. That gives predictions nobody meant, and is done only where asked for.
"""

from dataclasses import replace

from aspira.contracts.errors import ServingError
from aspira.contracts.signatures import Signature
from aspira.contracts.tensors import DataType
from aspira.frontends.rest.json_tensors import DecodedInputs, InferenceBody, decode_inputs

_NARROW = frozenset({DataType.INT16, DataType.INT8, DataType.UINT8})


def decode_wrapped_inputs(body: InferenceBody, *, signature: Signature) -> DecodedInputs:
    """As `decode_inputs`.

    Raises:
        ServingError: as `decode_inputs`; a number past int32 is no number of the type.
    """
    narrow = {name for name, spec in signature.inputs.items() if spec.dtype in _NARROW}
    if not narrow:
        return decode_inputs(body, signature=signature)
    widened = {
        name: replace(spec, dtype=DataType.INT32) if name in narrow else spec
        for name, spec in signature.inputs.items()
    }
    try:
        decoded = decode_inputs(body, signature=replace(signature, inputs=widened))
    except ServingError:
        # What is wrong for int32 is wrong for its part too, which is the type to name.
        return decode_inputs(body, signature=signature)
    inputs = {
        name: tensor.astype(signature.inputs[name].dtype.numpy_dtype) if name in narrow else tensor
        for name, tensor in decoded.inputs.items()
    }
    return decoded._replace(inputs=inputs)
