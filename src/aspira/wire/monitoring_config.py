"""`tensorflow.serving.MonitoringConfig`: whether and where metrics are served."""

from typing import Any

from aspira.wire.message_fields import MessageField, make_message


def make_monitoring_config() -> Any:
    """An empty message: `prometheus_config { enable, path }`."""
    return make_message(
        "MonitoringConfig",
        messages={
            "PrometheusConfig": (
                MessageField("enable", 1, "bool"),
                MessageField("path", 2, "string"),
            ),
            "MonitoringConfig": (MessageField("prometheus_config", 1, "PrometheusConfig"),),
        },
    )
