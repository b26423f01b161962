#!/bin/sh
# Serves one model by name, as TensorFlow Serving's image does. Arguments come last, so they win.
set -eu
# The server takes the place of this shell, so that it gets the container's SIGTERM itself.
exec tensorflow_model_server --port=8500 --rest_api_port=8501 \
    --model_name="${MODEL_NAME}" --model_base_path="${MODEL_BASE_PATH}/${MODEL_NAME}" \
    ${ADMIN_PORT:+"--admin_port=${ADMIN_PORT}"} "$@"
