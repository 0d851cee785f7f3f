"""Several tasks on one base, answered together: each text is read once up to where their networks
differ (`model/inference/together.py`).

    load_shared(["topics", "mood"]).predict(["a text", …])
        ->  [{"topics": {"label": …, "score": …}, "mood": {…}}, …]

Heads that were trained alone (`--method probe`) above the same model share all that lies below
them, so a further task costs a head and not a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import torch

from maskwright.ask.predict.predictor import Answer, Answering, Predictor, answers_of, load
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.base.findings import Finding, Note, ignore
from maskwright.learn.tasks.base.choices import LongText
from maskwright.learn.tasks.base.task_type import Extent, TaskType
from maskwright.model.checkpoint.transfer import TOPS
from maskwright.model.inference.prepared import prepare
from maskwright.model.inference.together import ScoreRequest, scores_of_all
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.modules.supervised import Supervised


@dataclass(frozen=True)
class SharedEncoder(Answering):
    """Models on one base, by name; rows are read as the first of them reads them, and an
    answer is what each of them says."""

    members: Mapping[str, Predictor]
    task_type: TaskType
    columns: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, members: Mapping[str, Predictor]) -> SharedEncoder:
        """Of models that stand on one base and read rows alike."""
        first = next(iter(members.values()))
        return cls(members, first.task_type, first.columns)

    @property
    def first(self) -> Predictor:
        return next(iter(self.members.values()))

    @property
    def findings(self) -> list[Finding]:
        return self.first.findings

    @cached_property
    def _objectives(self) -> list[Supervised]:
        """What each is asked through, above networks that share what they have in common."""
        body, found = self.first.network(), []
        for each in self.members.values():
            network = each.network()
            if network.products is not body.products:
                each = replace(each, network=partial(prepare, each.model, like=body))
            assert isinstance(each.objective, Supervised)
            found.append(each.objective)
        return found

    def reading(self, long: LongText) -> SharedEncoder:
        members = {name: each.reading(long) for name, each in self.members.items()}
        return replace(self, members=members)

    def with_columns(self, columns: Mapping[str, Sequence[str]]) -> SharedEncoder:
        return replace(self, columns=columns)

    def extent(self, rows: Sequence[object]) -> Extent:
        return self.first.extent(rows)

    def answered(
        self, rows: Sequence[object], top: int | None = None, note: Note = ignore
    ) -> tuple[list[Answer], Extent]:
        encoded = self.task_type.encode(rows, self.first.frame)
        for found in encoded.findings:
            note(found)
        examples, collation = encoded.examples, self.first.collation
        scores = scores_of_all(
            [ScoreRequest(each, examples, collation) for each in self._objectives]
        )
        answers = [
            answers_of(each.task_type, encoded, one, top)
            for each, one in zip(self.members.values(), scores, strict=True)
        ]
        assert encoded.extent is not None
        each: list[tuple[Answer, ...]] = list(zip(*answers, strict=True))
        return [dict(zip(self.members, row, strict=True)) for row in each], encoded.extent


def load_shared(folders: Sequence[Path | str]) -> SharedEncoder:
    """The fine-tuned models in `folders`, which have one body; it is held once.

    Raises:
        UsageError: no folder, two of one name, and as `predict.load`.
        IncompatibleError: the bodies differ, or the models do not read whole texts alike.
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
        if member.task_type.head != "sequence":
            raise IncompatibleError(
                "only tasks of whole texts share a reading",
                where=folder,
                found=member.task_type.task,
            )
        if members:
            first_name, first = next(iter(members.items()))
            _require_alike(first, first_name, member, folder)
            for part in ("tokens", "encoder", "decoder"):
                setattr(member.model, part, getattr(first.model, part))
        members[name] = member
    return SharedEncoder.of(members)


def groups_of_one_base(members: Mapping[str, Predictor]) -> list[dict[str, Predictor]]:
    """Members that read rows alike and stand on one base, together."""
    found: list[dict[str, Predictor]] = []
    for name, member in members.items():
        for group in found:
            first = next(iter(group.values()))
            if _of_one_base(first, member):
                group[name] = member
                break
        else:
            found.append({name: member})
    return found


def _of_one_base(one: Predictor, other: Predictor) -> bool:
    return (
        one.task_type.head == other.task_type.head == "sequence"
        and one.network().products is other.network().products
        and _reading(one) == _reading(other)
    )


def _require_alike(first: Predictor, name: str, other: Predictor, folder: Path) -> None:
    ours, theirs = _reading(first), _reading(other)
    for what, value in ours.items():
        if value != theirs[what]:
            raise IncompatibleError(
                "the models do not read texts alike",
                where=folder,
                found=f"{what} {theirs[what]}",
                wanted=f"{value}, as {name}",
                do="fine-tune them with the same settings",
            )
    one, two = _body(first.model), _body(other.model)
    differing = [
        n
        for n in sorted(one.keys() | two.keys())
        if n not in one or n not in two or not torch.equal(one[n], two[n])
    ]
    if differing:
        raise IncompatibleError(
            "the models differ below their heads",
            where=folder,
            found=f"{differing[0]} is another, and {len(differing) - 1} more",
            wanted=f"the body of {name}",
            do="fine-tune both from one model with --method probe",
        )


def _reading(model: Predictor) -> dict[str, object]:
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


def _body(model: Transformer) -> dict[str, torch.Tensor]:
    return {n: p for n, p in model.named_parameters() if not n.startswith(TOPS)}
