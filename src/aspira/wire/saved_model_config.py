"""`tensorflow.serving.SavedModelConfig`: what a SavedModel asks of the session that opens it."""

from typing import Any

from aspira.wire.message_fields import MessageField, make_message


def make_saved_model_config() -> Any:
    """An empty message. Of the two rewriters only their presence is known."""
    return make_message(
        "SavedModelConfig",
        messages={
            "RemoteOpRemapConfig": (),
            "BatchOpRewriteConfig": (),
            "SessionOverrides": (
                MessageField("remote_op_remap_config", 1, "RemoteOpRemapConfig"),
                MessageField("batch_op_rewriter_config", 2, "BatchOpRewriteConfig"),
                MessageField("disable_meta_optimizer", 3, "bool"),
            ),
            "SavedModelConfig": (
                MessageField("session_overrides", 1, "SessionOverrides"),
                MessageField("critical", 3, "bool"),
            ),
        },
    )
