"""The API of OpenAI for language models: JSON and server-sent events over HTTP."""
