"""Predict several tasks with one base: layers that their networks share are computed once per text
(`model/inference/together.py`).

    load_shared(["topics", "mood"]).predict(["a text", …])
        ->  [{"topics": {"label": …, "score": …}, "mood": {…}}, …]

Heads trained on the same frozen model (`--method probe`) share all layers below them, so a further
task costs a head, not a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import torch

from maskwright.ask.predict.predictor import Answer, BasePredictor, Predictor, load
from maskwright.base.errors import Finding, IncompatibleError, Note, UsageError, ignore
from maskwright.learn.tasks.base.choices import LongText
from maskwright.learn.tasks.base.task_type import Extent, TaskType, pipeline_answers
from maskwright.model.checkpoint.matching import TOPS
from maskwright.model.inference.prepared import prepare
from maskwright.model.inference.together import ScoreRequest, scores_of_all
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.modules.supervised import Supervised


@dataclass(frozen=True)
class SharedEncoder(BasePredictor):
    """Models on one base, by name. Rows are encoded as for the first of them; a prediction is a
    dict from the name of each model to its prediction."""

    members: Mapping[str, Predictor]
    task_type: TaskType
    columns: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, members: Mapping[str, Predictor]) -> SharedEncoder:
        """Combine models that have the same base and encode rows in the same way."""
        predictor = next(iter(members.values()))
        return cls(members, predictor.task_type, predictor.columns)

    @property
    def first(self) -> Predictor:
        return next(iter(self.members.values()))

    @property
    def findings(self) -> Sequence[Finding]:
        return self.first.findings

    @cached_property
    def _objectives(self) -> list[Supervised]:
        """The objective of each member, with networks that share their common weights."""
        body, objectives = self.first.network(), []
        for member in self.members.values():
            network = member.network()
            if network.products is not body.products:
                member = replace(member, network=partial(prepare, member.model, like=body))
            assert isinstance(member.objective, Supervised)
            objectives.append(member.objective)
        return objectives

    def with_long_texts(self, long: LongText) -> SharedEncoder:
        members = {name: member.with_long_texts(long) for name, member in self.members.items()}
        return replace(self, members=members)

    def deciding(
        self, threshold: float | None = None, *, all_scores: bool = False
    ) -> SharedEncoder:
        members = {
            name: member.deciding(threshold, all_scores=all_scores)
            for name, member in self.members.items()
        }
        return replace(self, members=members)

    def extent(self, rows: Sequence[object]) -> Extent:
        return self.first.extent(rows)

    def answer(
        self, rows: Sequence[object], top: int | None = None, note: Note = ignore
    ) -> tuple[list[Answer], Extent]:
        encoded = self.task_type.encode(rows, self.first.frame)
        for finding in encoded.findings:
            note(finding)
        examples, collation = encoded.examples, self.first.collation
        scores = scores_of_all([ScoreRequest(o, examples, collation) for o in self._objectives])
        by_member = [
            pipeline_answers(member.task_type, encoded, member_scores, top)
            for member, member_scores in zip(self.members.values(), scores, strict=True)
        ]
        assert encoded.extent is not None
        answers: list[Answer] = [
            dict(zip(self.members, row, strict=True)) for row in zip(*by_member, strict=True)
        ]
        return answers, encoded.extent


def load_shared(folders: Sequence[Path | str]) -> SharedEncoder:
    """Load fine-tuned models with the same encoder, which is kept in memory once.

    Raises:
        UsageError: there is no folder, or two have the same name, and as in `language_model.load`.
        IncompatibleError: weights below the heads or the encoding of texts differ, or a task is not
            one of whole texts.
    """
    if not folders:
        raise UsageError("no model to load", wanted="one folder or more")
    members: dict[str, Predictor] = {}
    for folder in map(Path, folders):
        name = folder.resolve().name
        if name in members:
            raise UsageError(
                "two models of one name", where=folder, found=name, do="rename the folder of one"
            )
        member = load(folder)
        if not isinstance(member, Predictor):
            raise IncompatibleError(
                "the model has no network that another could share",
                where=folder,
                found="a bag of words",
                wanted="models that were fine-tuned from one model with --method probe",
                do="predict with one model at a time",
            )
        if member.task_type.head != "sequence":
            raise IncompatibleError(
                "only tasks of whole texts share a reading",
                where=folder,
                found=member.task_type.task,
            )
        if members:
            first_name, reference = next(iter(members.items()))
            _require_alike(reference, first_name, member, folder)
            for stack in ("tokens", "encoder", "decoder"):
                setattr(member.model, stack, getattr(reference.model, stack))
        members[name] = member
    return SharedEncoder.of(members)


def groups_of_one_base(members: Mapping[str, Predictor]) -> list[dict[str, Predictor]]:
    """Group members that encode rows in the same way and have the same base."""
    groups: list[dict[str, Predictor]] = []
    for name, member in members.items():
        same_base = (g for g in groups if _same_base(next(iter(g.values())), member))
        group = next(same_base, None)
        if group is None:
            groups.append(group := {})
        group[name] = member
    return groups


def _same_base(predictor: Predictor, second: Predictor) -> bool:
    return (
        predictor.task_type.head == second.task_type.head == "sequence"
        and predictor.network().products is second.network().products
        and _encoding_settings(predictor) == _encoding_settings(second)
    )


def _require_alike(reference: Predictor, name: str, member: Predictor, folder: Path) -> None:
    """Raise an `IncompatibleError` if text encoding or weights below the heads differ."""
    ours, theirs = _encoding_settings(reference), _encoding_settings(member)
    for setting, value in ours.items():
        if value != theirs[setting]:
            raise IncompatibleError(
                "the models do not read texts alike",
                where=folder,
                found=f"{setting} {theirs[setting]}",
                wanted=f"{value}, as {name}",
                do="fine-tune them with the same settings",
            )
    our_body, their_body = _body_parameters(reference.model), _body_parameters(member.model)
    differing = [
        n
        for n in sorted(our_body.keys() | their_body.keys())
        if n not in our_body or n not in their_body or not torch.equal(our_body[n], their_body[n])
    ]
    if differing:
        raise IncompatibleError(
            "the models differ below their heads",
            where=folder,
            found=f"{differing[0]} is another, and {len(differing) - 1} more",
            wanted=f"the body of {name}",
            do="fine-tune both from one model with --method probe",
        )


def _encoding_settings(model: Predictor) -> dict[str, object]:
    """Return all settings that determine how texts are encoded, by the name shown in errors."""
    frame = model.frame
    return {
        "roles": model.task_type.roles,
        "tokenizer": frame.tokenizer.fingerprint,
        "special tokens in texts": frame.tokenizer.acting,
        "length": frame.length,
        "long": frame.long,
        "segments": frame.segments,
        "collation": model.collation,
    }


def _body_parameters(model: Transformer) -> dict[str, torch.Tensor]:
    return {n: p for n, p in model.named_parameters() if not n.startswith(TOPS)}
