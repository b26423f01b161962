"""Messages that TensorFlow's and its Serving's Python packages lack, made from their fields."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_PACKAGE = "tensorflow.serving"


class MessageField(NamedTuple):
    """One field. `kind` is a scalar type such as `bool`, a wrapper such as
    `google.protobuf.Int64Value`, or the name of a message beside it.
    """

    name: str
    number: int
    kind: str
    is_repeated: bool = False


def make_message(name: str, *, messages: Mapping[str, Iterable[MessageField]]) -> Any:
    """An empty message of proto3; `messages` has it and those that it is made of."""
    return make_message_classes(name, messages=messages)[name]()


def make_message_classes(
    name: str, *, messages: Mapping[str, Iterable[MessageField]], package: str = _PACKAGE
) -> dict[str, Any]:
    """The classes of all `messages` by name; `name` is that of their file."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}/{name}.proto",
        package=package,
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for field in fields:
            message.field.add(**_describe_field(field, package=package))
    # A pool of its own: the shared one may get the real file from somebody else.
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        message_name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{package}.{message_name}")
        )
        for message_name in messages
    }


def _describe_field(field: MessageField, *, package: str) -> dict[str, Any]:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Descriptor

    label = Descriptor.LABEL_REPEATED if field.is_repeated else Descriptor.LABEL_OPTIONAL
    described = {"name": field.name, "number": field.number, "label": label}
    scalar = f"TYPE_{field.kind.upper()}"
    if scalar in Descriptor.Type.DESCRIPTOR.values_by_name:
        return {**described, "type": Descriptor.Type.Value(scalar)}
    type_name = f".{field.kind}" if "." in field.kind else f".{package}.{field.kind}"
    return {**described, "type": Descriptor.TYPE_MESSAGE, "type_name": type_name}
