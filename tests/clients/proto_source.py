"""Writes `.proto` sources from the descriptors of generated classes, which is all a wheel ships."""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

_KINDS = descriptor_pb2.FieldDescriptorProto
_REFERENCES = (_KINDS.TYPE_MESSAGE, _KINDS.TYPE_ENUM)


def write_proto_sources(file: FileDescriptor, *, directory: Path) -> None:
    """Write a file and all that it imports under `directory`, each where imports look for it."""
    target = directory / file.name
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    target.write_text("\n".join(_file_lines(proto)) + "\n")
    for dependency in file.dependencies:
        write_proto_sources(dependency, directory=directory)


def _file_lines(file: descriptor_pb2.FileDescriptorProto) -> Iterator[str]:
    yield f'syntax = "{file.syntax or "proto2"}";'
    yield f"package {file.package};"
    yield from (f'import "{name}";' for name in file.dependency)
    for enum in file.enum_type:
        yield from _enum_lines(enum)
    for message in file.message_type:
        yield from _message_lines(message, is_proto2=not file.syntax)
    for service in file.service:
        yield f"service {service.name} {{"
        for method in service.method:
            yield f"rpc {method.name}({method.input_type}) returns ({method.output_type});"
        yield "}"


def _enum_lines(enum: descriptor_pb2.EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    if enum.options.allow_alias:
        yield "option allow_alias = true;"
    yield from (f"{value.name} = {value.number};" for value in enum.value)
    yield "}"


def _message_lines(message: descriptor_pb2.DescriptorProto, *, is_proto2: bool) -> Iterator[str]:
    yield f"message {message.name} {{"
    for enum in message.enum_type:
        yield from _enum_lines(enum)
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    for nested in message.nested_type:
        if nested.name not in maps:
            yield from _message_lines(nested, is_proto2=is_proto2)
    for index, group in enumerate(message.oneof_decl):
        members = [f for f in message.field if f.HasField("oneof_index") and f.oneof_index == index]
        if not members[0].proto3_optional:
            yield f"oneof {group.name} {{"
            yield from (_field_line(field, maps=maps) for field in members)
            yield "}"
    for field in message.field:
        if field.proto3_optional or not field.HasField("oneof_index"):
            is_labelled = is_proto2 and field.label == _KINDS.LABEL_OPTIONAL
            yield ("optional " if is_labelled else "") + _field_line(field, maps=maps)
    yield "}"


def _field_line(
    field: descriptor_pb2.FieldDescriptorProto, *, maps: dict[str, descriptor_pb2.DescriptorProto]
) -> str:
    entry = maps.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        key, value = entry.field
        return f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number};"
    label = "optional " if field.proto3_optional else ""
    if field.label == _KINDS.LABEL_REPEATED:
        label = "repeated "
    packed = " [packed = true]" if field.options.packed else ""
    return f"{label}{_type(field)} {field.name} = {field.number}{packed};"


def _type(field: descriptor_pb2.FieldDescriptorProto) -> str:
    if field.type in _REFERENCES:
        return field.type_name
    return _KINDS.Type.Name(field.type).removeprefix("TYPE_").lower()
