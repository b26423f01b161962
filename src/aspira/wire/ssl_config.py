"""`tensorflow.serving.SSLConfig`: with which key and certificates connections are encrypted."""

from typing import Any

from aspira.wire.message_fields import MessageField, make_message


def make_ssl_config() -> Any:
    """An empty message: `server_key`, `server_cert` and `custom_ca` in PEM, `client_verify`."""
    return make_message(
        "SSLConfig",
        messages={
            "SSLConfig": (
                MessageField("server_key", 1, "string"),
                MessageField("server_cert", 2, "string"),
                MessageField("custom_ca", 3, "string"),
                MessageField("client_verify", 4, "bool"),
            )
        },
    )
