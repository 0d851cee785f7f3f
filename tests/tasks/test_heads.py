"""The head that fine-tuning puts on a model of each family: where the family has a class for the
task, the folder is one of that class, however many labels there are, and what the class belongs to
reads it: transformers, or this package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpoint.small import THEIRS, model_of, small
from maskwright.base import catalogue
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.learn.tasks.base.add_head import add_head, num_outputs, reading_texts
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.layout import About
from maskwright.model.checkpoint.matching import transfer
from maskwright.model.families.base.family import family
from maskwright.model.opening.open import open_weights

transformers = pytest.importorskip("transformers")
WORD_MODELS = {n: family(n).architectures.values() for n in catalogue.names("families")}
FAMILIES = [name for name, kits in WORD_MODELS.items() if any(kit.vocabulary for kit in kits)]
# task -> (labels, kind of head, how the name of the class ends)
TASKS = {
    "classification": (tuple("abc"), "sequence", "SequenceClassification"),
    "multi-label": (tuple("abcde"), "sequence", "SequenceClassification"),
    "regression": ((), "sequence", "SequenceClassification"),
    "tagging": (("O", "B-a", "I-a", "B-b", "I-b"), "token", "TokenClassification"),
    "question-answering": ((), "span", "QuestionAnswering"),
    "multiple-choice": ((), "choice", "MultipleChoice"),
    "embedding": ((), None, ""),  # the body alone
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pretrained model of each family."""
    made = {}
    for name in FAMILIES:
        member, made[name] = family(name), tmp_path_factory.mktemp(name) / "model"
        kind = next(a for a, kit in member.architectures.items() if kit.vocabulary)
        pretrained.save(model_of(small(member, kind)), None, made[name], About(family=name))
    return made


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_one_that_the_reference_library_has(
    name: str, task: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    labels, head, ending = TASKS[task]
    loaded, kind = open_weights(folders[name]), task_for(task, labels)
    config, member = add_head(loaded, kind)
    ending = ending or ("Model" if name in THEIRS else name.capitalize())
    classes = [c for c in family(name).architectures if c.endswith(ending)]
    assert (member == name) == bool(classes), classes
    if member is None:
        return
    assert [h.kind for h in config.heads] == ([head] if head else [])
    assert all(h.labels == num_outputs(kind) for h in config.heads)
    assert family(name).belongs(config)
    model = transfer(loaded.network, config).model
    pretrained.save(model, None, tmp_path / "tuned", About(family=member, labels=kind.labels))
    saved = json.loads((tmp_path / "tuned" / "config.json").read_text())
    (written,) = saved["architectures"]
    assert saved["model_type"] == name and written in classes
    if name not in THEIRS:
        assert saved["library"] == "maskwright"
        assert open_weights(tmp_path / "tuned").config == config
        return
    theirs, told = getattr(transformers, written).from_pretrained(
        tmp_path / "tuned", output_loading_info=True
    )
    missing = {key for key in told["missing_keys"] if "pooler" not in key}  # which no vector needs
    assert not missing and not told["unexpected_keys"]
    if head in ("sequence", "token"):
        assert theirs.config.num_labels == num_outputs(kind)


def test_a_vector_of_t5_is_that_of_its_encoder(folders: dict[str, Path]) -> None:
    """As `sentence-transformers` reads such a folder."""
    config, _ = add_head(open_weights(folders["t5"]), task_for("embedding"))
    assert list(config.stacks) == ["encoder"]


@pytest.mark.parametrize(
    ("task", "rule"),
    [
        ("classification", "first"),
        ("tagging", "none"),
        ("question-answering", "question"),
        ("multiple-choice", "answer"),
        ("embedding", "none"),
    ],
)
def test_what_a_head_reads_is_global(task: str, rule: str, folders: dict[str, Path]) -> None:
    """By the task, or as the user says; a head that needs global tokens does not go without."""

    def rule_of(name: str, **options: str) -> str:
        kind = task_for(task, TASKS[task][0], options)
        config = reading_texts(add_head(open_weights(folders[name]), kind)[0], kind, "head")
        assert config.encoder is not None and config.encoder.global_tokens is not None
        return config.encoder.global_tokens.which

    assert rule_of("longformer") == rule
    assert rule_of("longformer", global_attention="first") == "first"
    with pytest.raises(IncompatibleError):
        rule_of("roberta", global_attention="first")
    if rule == "none":
        assert rule_of("longformer", global_attention="none") == "none"
    else:
        with pytest.raises(UsageError):
            rule_of("longformer", global_attention="none")
