"""Held-out loss by the values of the column that a run mixes by, when the run is over.

    data/held-out-0/, …   the held-out documents of each value, in the order of `values.json`

The stores are made beside the one with all held-out text, which decides everything else.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from maskwright.base.errors import DataError
from maskwright.base.report.tables import Table
from maskwright.learn.pretrain.mixing import names_of, value_of, values_of
from maskwright.learn.pretrain.rows import held_out_rows
from maskwright.learn.pretrain.text import CorpusText
from maskwright.learn.recipes.base.objective_rows import needs_sentences
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train.average import Average
from maskwright.model.inference import held_out_loss as likelihood
from maskwright.model.objectives.base.objective import Objective
from maskwright.text.corpus.read import Spool
from maskwright.text.store.store import MANIFEST, TokenStore
from maskwright.text.store.tokenize import build_store
from maskwright.text.tokenizer.tokenizer import Tokenizer

NOTHING = "–"


def build(recipe: Recipe, folder: Path, text: CorpusText, tokenizer: Tokenizer) -> None:
    """Make the held-out stores that are not there yet, of the values that have held-out documents.

    Raises:
        As `build_store`.
    """
    values = values_of(folder) or []
    missing = [v for n, v in enumerate(values) if not (_path(folder, n) / MANIFEST).is_file()]
    if not missing or recipe.corpus.held_out_text:
        return
    spools: dict[str, Spool] = {}
    for document in text.held_out():
        value = value_of(recipe.corpus, document)
        if value in missing:
            spools.setdefault(value, Spool(folder)).add(document)
    sentences = needs_sentences(recipe)
    for value, spool in spools.items():
        build_store(spool, tokenizer, _path(folder, values.index(value)), sentences=sentences)


def table(
    recipe: Recipe, folder: Path, objective: Objective, average: Average | None
) -> Table | None:
    """Loss and accuracy of the run in `folder` on the held-out text of each value; None where there
    are no values. All values together are asked about as many rows as one evaluation."""
    values = values_of(folder) or []
    numbers = [n for n in range(len(values)) if (_path(folder, n) / MANIFEST).is_file()]
    if not numbers:
        return None
    batch = recipe.evaluation.batch
    rows = max(batch, recipe.evaluation.rows // len(numbers))
    rows_shown: list[list[str]] = []
    with nullcontext() if average is None else average.in_place():
        for number, name in enumerate(names_of(recipe.corpus, folder)):
            documents, cells = 0, [NOTHING] * 3
            if number in numbers:
                store = TokenStore.open(_path(folder, number))
                documents = store.num_documents
                try:
                    figures = likelihood.evaluate(
                        objective, held_out_rows(recipe, store), rows=rows, batch_rows=batch
                    )
                    cells = [f"{figures.targets:,}", f"{figures.loss:.3f}", f"{figures.top1:.1%}"]
                except DataError:
                    pass  # it does not fill a row, or has no target
            rows_shown.append([name, f"{documents:,}", *cells])
    return {
        "title": f"Held-out text by {recipe.corpus.mix_by}",
        "head": ["", "documents", "targets", "loss", "top-1"],
        "rows": rows_shown,
        "note": f"Loss in nats per target, of at most {rows:,} rows each; {NOTHING}: too little "
        "text is held out.",
    }


def _path(folder: Path, number: int) -> Path:
    return folder / "data" / f"held-out-{number}"
