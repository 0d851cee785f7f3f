"""The plain server that many write: FastAPI around the text-classification pipeline of
transformers, a request at a time on a thread of the pool."""

from __future__ import annotations

import sys
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class Body(BaseModel):
    inputs: str


def made(folder: str) -> FastAPI:
    from transformers import pipeline

    classify: Any = pipeline("text-classification", model=folder, device="cpu", truncation=True)
    app = FastAPI()

    @app.post("/predict")
    def predict(body: Body) -> Any:
        return classify(body.inputs)

    return app


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    uvicorn.run(made(sys.argv[1]), port=int(sys.argv[2]), log_level="warning")
