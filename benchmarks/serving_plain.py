"""The plain server that many write: FastAPI around a library, a request at a time on a thread.

    python -m benchmarks.serving_plain FOLDER PORT classifier|pipeline|encoder [THREADS]

`classifier` and `pipeline` are the pipelines text-classification and feature-extraction of
transformers (of the latter the mean of the states), `encoder` is sentence-transformers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class Body(BaseModel):
    inputs: str


def library(kind: str, folder: str) -> Callable[[str], Any]:
    """What answers one text."""
    if kind == "encoder":
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(folder, device="cpu")
        return lambda text: encoder.encode(text, show_progress_bar=False).tolist()
    from transformers import pipeline

    if kind == "classifier":
        classify: Any = pipeline("text-classification", model=folder, device="cpu", truncation=True)
        return lambda text: classify(text)
    extract: Any = pipeline("feature-extraction", model=folder, device="cpu", truncation=True)
    return lambda text: extract(text, return_tensors=True)[0].mean(dim=0).tolist()


def application(answer: Callable[[str], Any]) -> FastAPI:
    app = FastAPI()

    @app.post("/predict")
    def predict(body: Body) -> Any:
        return answer(body.inputs)

    return app


if __name__ == "__main__":
    if len(sys.argv) > 4:
        torch.set_num_threads(int(sys.argv[4]))
    app = application(library(sys.argv[3], sys.argv[1]))
    uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
