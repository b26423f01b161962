"""The messages of the Open Inference Protocol over gRPC, as far as floats need them."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

# Names and numbers as in the protocol's open_inference_grpc.proto.
_FILE = """
name: "open_inference_of_floats.proto" package: "inference" syntax: "proto3"
message_type {
  name: "InferTensorContents"
  field { name: "fp32_contents" number: 6 type: TYPE_FLOAT label: LABEL_REPEATED }
}
message_type {
  name: "InferTensor"
  field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "datatype" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "shape" number: 3 type: TYPE_INT64 label: LABEL_REPEATED }
  field { name: "contents" number: 5 type: TYPE_MESSAGE label: LABEL_OPTIONAL
          type_name: ".inference.InferTensorContents" }
}
message_type {
  name: "ModelInferRequest"
  field { name: "model_name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "inputs" number: 5 type: TYPE_MESSAGE label: LABEL_REPEATED
          type_name: ".inference.InferTensor" }
  field { name: "raw_input_contents" number: 7 type: TYPE_BYTES label: LABEL_REPEATED }
}
message_type {
  name: "ModelInferResponse"
  field { name: "outputs" number: 5 type: TYPE_MESSAGE label: LABEL_REPEATED
          type_name: ".inference.InferTensor" }
  field { name: "raw_output_contents" number: 6 type: TYPE_BYTES label: LABEL_REPEATED }
}
"""

_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(text_format.Parse(_FILE, descriptor_pb2.FileDescriptorProto()))


def _find(name: str) -> type:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"inference.{name}"))


ModelInferRequest = _find("ModelInferRequest")
ModelInferResponse = _find("ModelInferResponse")
