"""What every API for language models shares: fields, options, streams of answers over HTTP."""
