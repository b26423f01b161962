"""Puts a decoder together: embedding, layers of its family, norm and head, as one model."""

import openvino as ov
from openvino import opset15 as ops

from aspira.llm.decoders.config import DecoderConfig
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
    hidden, embedding = graph.embed()
    hidden = graph.run_layers(hidden)
    logits = ops.result(graph.logits(hidden, embedding=embedding))
    return ov.Model([logits], [*inputs, *graph.caches], config.family)
