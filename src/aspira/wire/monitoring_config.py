"""`tensorflow.serving.MonitoringConfig`, a message that tensorflow-serving-api does not ship."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FILE = "tensorflow_serving/config/monitoring_config.proto"
_PACKAGE = "tensorflow.serving"


def make_monitoring_config() -> Any:
    """An empty message: `prometheus_config { enable, path }`."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto3")
    prometheus = file.message_type.add(name="PrometheusConfig")
    prometheus.field.add(name="enable", number=1, type=kinds.TYPE_BOOL, label=kinds.LABEL_OPTIONAL)
    prometheus.field.add(name="path", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    monitoring = file.message_type.add(name="MonitoringConfig")
    monitoring.field.add(
        name="prometheus_config",
        number=1,
        type=kinds.TYPE_MESSAGE,
        type_name=f".{_PACKAGE}.PrometheusConfig",
        label=kinds.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName(f"{_PACKAGE}.MonitoringConfig")
    return message_factory.GetMessageClass(descriptor)()
