"""Held-out loss by the values of the column that a run mixes by, when the run is over.

    data/held-out-0/, …   the held-out documents of each value, in the order of `values.json`

They exist in addition to the store of all held-out text, on which a run is evaluated.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from maskwright.base.errors import DataError
from maskwright.base.report.tables import Table
from maskwright.learn.pretrain.mixing import names_of, value_of, values_of
from maskwright.learn.pretrain.rows import held_out_rows
from maskwright.learn.pretrain.text import CorpusText
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train.parameters import Average
from maskwright.model.inference import held_out_loss as likelihood
from maskwright.model.objectives.base.objective import Objective
from maskwright.text.corpus.read import Spool
from maskwright.text.store.store import MANIFEST, TokenStore
from maskwright.text.store.tokenize import build_store
from maskwright.text.tokenizer.tokenizer import Tokenizer

NOTHING = "–"


def build(recipe: Recipe, folder: Path, text: CorpusText, tokenizer: Tokenizer) -> None:
    """Build the missing held-out stores, one for each value that has held-out documents.

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
    sentences = recipe.needs_sentences
    for value, spool in spools.items():
        build_store(spool, tokenizer, _path(folder, values.index(value)), sentences=sentences)


def table(
    recipe: Recipe, folder: Path, objective: Objective, average: Average | None
) -> Table | None:
    """Return loss and accuracy on the held-out text of each value of the run in `folder`; None if
    it has no such stores. One evaluation's number of rows is divided among the values."""
    values = values_of(folder) or []
    store_numbers = [n for n in range(len(values)) if (_path(folder, n) / MANIFEST).is_file()]
    if not store_numbers:
        return None
    batch = recipe.evaluation.batch
    num_rows = max(batch, recipe.evaluation.rows // len(store_numbers))
    table_rows: list[list[str]] = []
    with nullcontext() if average is None else average.in_place():
        for number, name in enumerate(names_of(recipe.corpus, folder)):
            documents, cells = 0, [NOTHING] * 3
            if number in store_numbers:
                store = TokenStore.open(_path(folder, number))
                documents = store.num_documents
                try:
                    result = likelihood.evaluate(
                        objective, held_out_rows(recipe, store), rows=num_rows, batch_rows=batch
                    )
                    cells = [f"{result.targets:,}", f"{result.loss:.3f}", f"{result.top1:.1%}"]
                except DataError:
                    pass  # the text does not fill a row, or has no target
            table_rows.append([name, f"{documents:,}", *cells])
    return {
        "title": f"Held-out text by {recipe.corpus.mix_by}",
        "head": ["", "documents", "targets", "loss", "top-1"],
        "rows": table_rows,
        "note": f"Loss in nats per target, of at most {num_rows:,} rows each; {NOTHING}: "
        "too little text is held out.",
    }


def _path(folder: Path, number: int) -> Path:
    return folder / "data" / f"held-out-{number}"
