"""Static vectors in word2vec's text format, which gensim, spaCy and fastText read.

vectors.txt   the numbers of words and dimensions, then a line per word
export.json   what was exported
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maskwright.base.errors import IncompatibleError, Note

if TYPE_CHECKING:
    from maskwright.base.storage.commit import Staging
    from maskwright.model.opening.folders import Model
    from maskwright.ship.export.target import Report

SUMMARY = "static vectors in word2vec's text format"
VECTORS = "vectors.txt"


@dataclass(frozen=True, kw_only=True)
class Options:
    """There are none."""


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    """Write the vectors of all words into the new folder `out`, special tokens left out.

    Raises:
        IncompatibleError: the model has layers, so that vectors depend on the context.
        CheckpointError: what was written is read back otherwise.
    """
    from maskwright.base.errors import CheckpointError
    from maskwright.base.storage import commit
    from maskwright.model.checkpoint.word_vectors import WordVectors, read
    from maskwright.ship.export.target import ABOUT, Report

    if any(stack.blocks for stack in model.config.stacks.values()):
        raise IncompatibleError(
            "the format has one vector per word, and those of this model depend on the context",
            where=model.folder,
            found=f"a model with layers ({model.model_type})",
            wanted="static vectors, as the recipes word2vec and glove train",
            do="export the model to another target",
        )
    words = model.tokenizer
    table = model.network.word_vectors(words.vocabulary_size).float().cpu().numpy()
    numbers = [n for n in range(words.vocabulary_size) if n not in words.special_ids]
    vectors = WordVectors([words.vocabulary[n] for n in numbers], table[numbers])
    about = {
        "target": "word2vec",
        "source": str(model.folder),
        "shape": list(vectors.vectors.shape),
    }

    def write(staging: Staging) -> None:
        staging.write_bytes(VECTORS, b"".join(vectors.text()))
        staging.write_json(ABOUT, about)
        reread = read(staging.path / VECTORS)
        if reread.words != vectors.words or (reread.vectors != vectors.vectors).any():
            raise CheckpointError("the vectors were written wrongly", where=out)

    commit.commit(out, write, about=about)
    load = [f"gensim.models.KeyedVectors.load_word2vec_format('{out / VECTORS}')"]
    return Report(target="word2vec", folder=out, about=about, load=load)
