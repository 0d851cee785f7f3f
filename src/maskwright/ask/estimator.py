"""A scikit-learn estimator: fine-tuning as `fit`, for pipelines, grid searches and scores.

    classifier = TextClassifier("runs/mine", method="embeddings")
    cross_val_score(classifier, texts, labels)
    GridSearchCV(classifier, {"pooling": ["mean", "cls"]}).fit(texts, labels)

X holds texts (a list, an array, a column of a table), pairs of texts as tuples, or rows as mappings
or a table. Parameters are those of `maskwright.finetune`, with the same defaults: a method such as
"embeddings" or "bag-of-words" fits in seconds.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from maskwright.ask.predict.language_model import LanguageModel
from maskwright.ask.results import TrainedModel, of_finetuning
from maskwright.base.calls import Keyword, checked, takes
from maskwright.base.errors import DataError, UsageError
from maskwright.learn.finetune.command import FINETUNE_KEYWORDS, finetune_recipe
from maskwright.learn.finetune.recipe import FinetuneRecipe
from maskwright.learn.finetune.result import FinetuneResult
from maskwright.text.corpus.in_memory import as_files, column_names, column_values, rows_of
from maskwright.text.tables.labelled_texts import PAIR, TEXT
from maskwright.text.tables.shapes import shape_for

LABEL = "label"
# Settings of files, and of what is no estimator.
OTHERS = ("columns", "curve", "read", "task")
PARAMETERS = {
    name: Keyword(k.annotation, k.default or None, k.description)
    if isinstance(k.default, Mapping)  # which a call could change
    else k
    for name, k in FINETUNE_KEYWORDS.items()
    if name not in OTHERS
}


class TextClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of texts, or of pairs of texts.

    Attributes:
        classes_: the labels in sorted order, those of the columns of `predict_proba`.
        result_: the metrics, the verdict and the mistakes on rows that `fit` held out.
        model_: the opened model.
    """

    @checked
    @takes(PARAMETERS)
    def __init__(self, model: Any = None, *, verbose: bool = False, **keywords: Any) -> None:
        """Set the parameters; `fit` checks them.

        Args:
            model: the folder of a model or a run, the result of a training, or an opened model.
            verbose: whether `fit` prints what `maskwright.finetune` prints.
            keywords: the fields of a `FinetuneRecipe`.
        """
        self.model, self.verbose = model, verbose
        for name, keyword in PARAMETERS.items():
            setattr(self, name, keywords.get(name, keyword.default))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = tags.input_tags.string = True
        return tags

    def __getstate__(self) -> Any:
        if hasattr(self, "model_"):
            raise UsageError(
                "a fitted classifier is saved as a folder, not by pickle",
                where="TextClassifier",
                do="save it: classifier.save(FOLDER), which maskwright.load opens",
            )
        return super().__getstate__()

    def fit(self, X: Any, y: Any) -> Self:
        """Fine-tune the model in a temporary folder (`save` keeps it).

        Raises:
            UsageError: no model, a parameter without effect, or other numbers of texts and labels.
            DataError: X holds something other than texts, pairs or rows.
        """
        if self.model is None:
            raise UsageError("no model to fine-tune", where="model", do='name one: model="runs/…"')
        rows, labels = _rows(X), np.asarray(column_values(y))
        if len(rows) != len(labels) or labels.ndim != 1:
            sizes = f"{len(rows):,} texts, labels of shape {labels.shape}"
            raise UsageError("every text has one label", where="y", found=sizes, wanted="(n,)")
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        names = [str(label) for label in self.classes_]
        if clash := next((row for row in rows if LABEL in row), None):
            raise DataError(
                f"a column of X has the name {LABEL!r}", where="X", found=", ".join(clash)
            )
        labelled = [{**row, LABEL: names[n]} for row, n in zip(rows, numbers, strict=True)]
        settings = {name: getattr(self, name) for name in PARAMETERS}
        settings = {name: value for name, value in settings.items() if value is not None}
        shape = shape_for(PAIR if "second" in rows[0] else TEXT, "classes")
        assert shape is not None
        folder = tempfile.mkdtemp(prefix="maskwright-fit-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        out, results = Path(folder) / "result", list[FinetuneResult]()
        with as_files(labelled, "X") as path:
            recipe = FinetuneRecipe(
                **{"model": str(Path(self.model)), "data": str(path), **settings},
                task=shape.name,
            )
            stream = sys.stdout if self.verbose else io.StringIO()
            path = finetune_recipe(recipe, out, stream=stream, on_result=results.append)
        self.result_: TrainedModel = of_finetuning(path, out, results[0])
        self.model_: LanguageModel = self.result_.model
        self._columns = [self.model_.labels.index(name) for name in names]
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each text, (n,)."""
        probabilities = self.predict_proba(X)
        labels: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Return the probability of each label in the order of `classes_`, (n, classes)."""
        check_is_fitted(self, "model_")
        return self.model_.predict_proba(_rows(X))[:, self._columns]

    def save(self, out: Path | str) -> Path:
        """Copy the result to the new folder `out`, which `maskwright.load` opens."""
        check_is_fitted(self, "model_")
        return Path(shutil.copytree(self.result_.folder, out))


def _rows(X: Any) -> list[dict[str, Any]]:
    """Return texts, pairs or rows as mappings."""
    if isinstance(X, Mapping) or column_names(X) is not None:
        return list(rows_of(X, "X"))
    if isinstance(X, str):
        raise DataError("one text, and a list of texts is read", where="X", found=repr(X[:60]))
    rows = []
    for row in column_values(X):
        is_pair = isinstance(row, tuple | list) and list(map(type, row)) == [str, str]
        rows.append(dict(zip(("first", "second"), row, strict=True)) if is_pair else row)
    return list(rows_of([{"text": r} if isinstance(r, str) else r for r in rows], "X"))
