"""Has openvino-genai turn a GGUF file into its own graph, which it writes beside the file."""

import sys

import openvino_genai

openvino_genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True, ATTENTION_BACKEND="SDPA")
