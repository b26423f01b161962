"""MiniLM behind real sockets, asked by OpenAI's own client, over both listeners."""

import json
from pathlib import Path

import numpy as np
import openai
import pytest
import requests

from encoder_models import minilm_directory
from system.server_process import ServerProcess

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "llm" / "encoders" / "minilm_golden.json").read_text()
)


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_openais_client_gets_the_vectors_of_the_reference(tmp_path: Path, listener: str) -> None:
    (tmp_path / "minilm").mkdir()
    (tmp_path / "minilm" / "1").symlink_to(minilm_directory(), target_is_directory=True)
    flags = (f"--listener={listener}", "--model_name=e", f"--model_base_path={tmp_path / 'minilm'}")
    texts = [entry["text"] for entry in GOLDEN]
    with (
        ServerProcess(*flags, log=tmp_path / "log") as server,
        openai.OpenAI(base_url=f"{server.rest_url}/v1", api_key="none", max_retries=0) as client,
    ):
        assert [model.id for model in client.models.list()] == ["e"]
        for encoding in ("float", "base64"):
            found = client.embeddings.create(model="e", input=texts, encoding_format=encoding)  # type: ignore[call-overload]
            if encoding == "float":
                vectors = [one.embedding for one in found.data]
                np.testing.assert_allclose(vectors, [e["vector"] for e in GOLDEN], atol=1e-4)
        by_default = client.embeddings.create(model="e", input=texts)
        np.testing.assert_array_equal(
            np.float32([one.embedding for one in by_default.data]), np.float32(vectors)
        )
        assert by_default.usage.prompt_tokens == sum(entry["num_tokens"] for entry in GOLDEN)
        with pytest.raises(openai.BadRequestError) as too_long:
            client.embeddings.create(model="e", input="word " * 1000)
        assert too_long.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError, match="embedding model"):
            client.chat.completions.create(model="e", messages=[{"role": "user", "content": "x"}])
        page = requests.get(f"{server.rest_url}/monitoring/prometheus/metrics", timeout=10).text
        assert any('"embeddings"' in line for line in page.splitlines()), page
