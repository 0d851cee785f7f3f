"""A GGUF file in llama.cpp, by the package xllamacpp.

python llama_reader.py embed FILE TEXT…     a JSON list with the vector of each text
python llama_reader.py write FILE TEXT      the 12 tokens that follow, greedily, as JSON
"""

from __future__ import annotations

import json
import sys

import xllamacpp

kind, file, *texts = sys.argv[1:]
settings = xllamacpp.CommonParams()
settings.model.path = file
settings.n_ctx, settings.n_parallel, settings.warmup = 0, 1, False
settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
settings.embedding = kind == "embed"
server = xllamacpp.Server(settings)
if kind == "embed":
    answer = [row["embedding"] for row in server.handle_embeddings({"input": texts})["data"]]
else:
    request = {"prompt": texts[0], "n_predict": 12, "temperature": 0, "top_k": 1}
    answer = server.handle_completions(request)["choices"][0]["text"]
print(json.dumps(answer))
