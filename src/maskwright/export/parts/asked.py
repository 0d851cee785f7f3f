"""Which graphs a model has, as it is asked."""

from __future__ import annotations

from dataclasses import replace

from maskwright.checkpoint.fine_tuned import ADAPTER
from maskwright.errors import IncompatibleError
from maskwright.graph.graphs import Ids, Vectors, graphs_of
from maskwright.graph.ports import Graph
from maskwright.models import head_alone, special_tokens
from maskwright.models.model import Model
from maskwright.objectives.parts.contrastive import Contrast
from maskwright.objectives.supervised import PROBLEM_TYPES
from maskwright.predict.predictor import Predictor, predictor


def predictor_of(model: Model) -> Predictor | None:
    """How the model answers a task; None where it was trained for none."""
    try:
        return predictor(model)
    except IncompatibleError:
        return None


def as_folder(model: Model) -> Model:
    """The model with what its folder would say of its labels, which a head that was saved alone
    says in its record."""
    if not head_alone.is_alone(model.home / ADAPTER) or (answers := predictor_of(model)) is None:
        return model
    task_type = answers.task_type
    problem = PROBLEM_TYPES[task_type.problem] if task_type.head == "sequence" else None
    about = replace(model.about, labels=task_type.labels, problem_type=problem)
    return replace(model, about=about)


def vectors_of(answers: Predictor | None) -> Vectors | None:
    """How a model that makes vectors makes them; None of others."""
    if answers is None or not answers.task_type.alone:
        return None
    tokenizer = answers.frame.tokenizer
    objective = answers.task_type.objective(answers.model, special_tokens.vocabulary(tokenizer))
    assert isinstance(objective, Contrast)
    return Vectors(objective.poolings, objective.skip, objective.top)


def graphs(model: Model, answers: Predictor | None, ids: Ids = "int64") -> tuple[Graph, ...]:
    """The graphs of an opened model.

    Raises:
        IncompatibleError: as `graphs_of`.
    """
    two = model.num_stacks == 2
    start = None
    if two and model.config.heads:
        start = model.extra.get("decoder_start_token_id")
        if not isinstance(start, int):
            start = None if model.words is None else model.words.pad
    return graphs_of(
        model.network,
        ids=ids,
        vectors=vectors_of(answers),
        decoder_start=start,
        bidirectional_prefix=model.conventions.bidirectional_prefix,
        decoder_trained=model.conventions.decoder_trained,
    )
