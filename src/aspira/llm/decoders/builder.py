"""Puts a decoder together: embedding, layers of its family, norm and head, as one model."""

import openvino as ov
from openvino import opset15 as ops

from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.decoders.families import family_named
from aspira.llm.decoders.graph import DecoderGraph, make_step_inputs
from aspira.llm.decoders.options import WeightFormat
from aspira.llm.weights.source import Weights


def build_decoder(
    config: DecoderConfig, *, weights: Weights, weight_format: WeightFormat
) -> ov.Model:
    """A model from a step's inputs to the logits of its sampled rows; `weight_format` is decided.

    Raises:
        ServingError: a weight is missing or of a type that is not served.
    """
    inputs = make_step_inputs()
    graph = DecoderGraph(config, weights=weights, inputs=inputs, weight_format=weight_format)
    make_heads = family_named(config.family).make_heads
    hidden, embedding = graph.embed()
    for index in range(config.num_layers):
        layer = f"layers.{index}"
        normed = graph.norm(hidden, name=f"{layer}.attention_norm")
        query, key, value = make_heads(graph, hidden=normed, layer=layer)
        attended = graph.attend(query, key=key, value=value)
        hidden = ops.add(hidden, graph.linear(attended, name=f"{layer}.attention_output"))
        normed = graph.norm(hidden, name=f"{layer}.mlp_norm")
        hidden = ops.add(hidden, graph.gated_mlp(normed, layer=layer))
    logits = ops.result(graph.logits(hidden, embedding=embedding))
    return ov.Model([logits], [*inputs, *graph.caches], config.family)
