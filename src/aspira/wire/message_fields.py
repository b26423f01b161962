"""Messages that TensorFlow's and its Serving's Python packages lack, made from their fields."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_PACKAGE = "tensorflow.serving"

# Of `google.protobuf`, whose classes depend on its implementation, hence Any.
FileDescriptor = Any


class MessageField(NamedTuple):
    """One field. `kind` is a scalar type such as `bool`, a wrapper such as
    `google.protobuf.Int64Value`, or the name of a message beside it. A message has one `oneof` at
    most.
    """

    name: str
    number: int
    kind: str
    is_repeated: bool = False
    oneof: str = ""


def make_message(
    name: str,
    *,
    messages: Mapping[str, Iterable[MessageField]],
    dependencies: Iterable[FileDescriptor] = (),
) -> Any:
    """An empty message of proto3; `messages` has it and those that it is made of.

    A `kind` may also be a message of `dependencies`, by its full name; so may the message itself.
    """
    pool = _make_pool(name, messages=messages, package=_PACKAGE, dependencies=dependencies)
    return _find_class(pool, full_name=f"{_PACKAGE}.{name}")()


def make_message_classes(
    name: str, *, messages: Mapping[str, Iterable[MessageField]], package: str = _PACKAGE
) -> dict[str, Any]:
    """The classes of all `messages` by name; `name` is that of their file."""
    pool = _make_pool(name, messages=messages, package=package, dependencies=())
    return {message: _find_class(pool, full_name=f"{package}.{message}") for message in messages}


def _make_pool(
    name: str,
    *,
    messages: Mapping[str, Iterable[MessageField]],
    package: str,
    dependencies: Iterable[FileDescriptor],
) -> Any:
    """A pool of its own: the shared one may get the real file from somebody else."""
    from google.protobuf import descriptor_pb2, descriptor_pool, wrappers_pb2

    files = (wrappers_pb2.DESCRIPTOR, *dependencies)
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}/{name}.proto",
        package=package,
        syntax="proto3",
        dependency=[file.name for file in files],
    )
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for field in fields:
            message.field.add(**_describe_field(field, package=package))
            if field.oneof and not message.oneof_decl:
                message.oneof_decl.add(name=field.oneof)
    pool = descriptor_pool.DescriptorPool()
    for dependency in _with_dependencies(files):
        pool.AddSerializedFile(dependency.serialized_pb)
    pool.Add(file)
    return pool


def _find_class(pool: Any, *, full_name: str) -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))


def _with_dependencies(files: Iterable[FileDescriptor]) -> Iterable[FileDescriptor]:
    """The files and all that they import, each once, after what it imports."""
    ordered: dict[str, FileDescriptor] = {}
    for file in files:
        for needed in _with_dependencies(file.dependencies):
            ordered.setdefault(needed.name, needed)
        ordered.setdefault(file.name, file)
    return ordered.values()


def _describe_field(field: MessageField, *, package: str) -> dict[str, Any]:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Descriptor

    label = Descriptor.LABEL_REPEATED if field.is_repeated else Descriptor.LABEL_OPTIONAL
    described: dict[str, Any] = {"name": field.name, "number": field.number, "label": label}
    if field.oneof:
        described["oneof_index"] = 0
    scalar = f"TYPE_{field.kind.upper()}"
    if scalar in Descriptor.Type.DESCRIPTOR.values_by_name:
        return {**described, "type": Descriptor.Type.Value(scalar)}
    type_name = f".{field.kind}" if "." in field.kind else f".{package}.{field.kind}"
    return {**described, "type": Descriptor.TYPE_MESSAGE, "type_name": type_name}
