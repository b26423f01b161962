"""Asks any server that speaks OpenAI's API, with the standard library alone."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

# From one event to the next; servers that are busy send comments meanwhile.
_PATIENCE_S = 300.0
_DATA = b"data:"
_DONE = "[DONE]"


class ChatFailed(Exception):
    """What went wrong, for the person at the terminal."""


class ChatClient:
    """`url` is that of the server, with or without the `/v1` at its end."""

    def __init__(self, url: str, *, api_key: str, ca_file: str) -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ChatFailed(f"--url has to begin with http:// or https://, not {url}")
        self._base = url.rstrip("/").removesuffix("/v1") + "/v1"
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        try:
            context = ssl.create_default_context(cafile=ca_file or None)
        except OSError as error:
            raise ChatFailed(f"cannot read {ca_file}: {error}") from error
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def list_models(self) -> list[str]:
        """The models that can be asked.

        Raises:
            ChatFailed: the server does not answer so.
        """
        with self._open("/models", body=None) as answer:
            try:
                return [str(model["id"]) for model in json.load(answer)["data"]]
            except (ValueError, KeyError, TypeError) as error:
                raise ChatFailed(f"{self._base}/models lists no models: {error!r}") from error

    def stream(self, body: dict[str, Any]) -> Generator[str, None, None]:
        """The pieces of an answer as they come. Closing the generator closes the connection.

        Raises:
            ChatFailed: there was no answer, or it broke off.
        """
        is_complete = False
        with self._open("/chat/completions", body={**body, "stream": True}) as answer:
            for data in _read_events(answer):
                if data.startswith(_DONE):
                    is_complete = True
                    break
                yield _text_of(data)
        if not is_complete:
            raise ChatFailed("the answer broke off")

    def _open(self, path: str, *, body: dict[str, Any] | None) -> HTTPResponse:
        request = urllib.request.Request(  # noqa: S310 - http or https, checked
            self._base + path,
            data=None if body is None else json.dumps(body).encode(),
            headers=self._headers,
        )
        try:
            answer: HTTPResponse = self._opener.open(request, timeout=_PATIENCE_S)
        except urllib.error.HTTPError as error:
            raise ChatFailed(_error_text(error.read()) or str(error)) from error
        except (OSError, HTTPException, ValueError) as error:
            raise ChatFailed(f"no answer from {self._base}: {error}") from error
        return answer


def _read_events(answer: HTTPResponse) -> Iterator[str]:
    try:
        for line in answer:
            if line.startswith(_DATA):
                yield line[len(_DATA) :].decode("utf-8", "replace").strip()
    except (OSError, HTTPException) as error:
        raise ChatFailed(f"the answer broke off: {error}") from error


def _text_of(data: str) -> str:
    try:
        event = json.loads(data)
        if event.get("error"):
            raise ChatFailed(_error_text(data.encode()))
        return "".join(choice["delta"].get("content") or "" for choice in event["choices"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ChatFailed(f"the server sent what is no piece of an answer: {data[:200]}") from error


def _error_text(body: bytes) -> str:
    """The message of OpenAI's error object, of TensorFlow Serving's, or the text as it is."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip()[:500]
