"""Minimal pairs: which of two sentences that differ in one point of grammar is more likely?

A folder contains one JSON Lines file for each paradigm, with the fields `sentence_good` and
`sentence_bad` (BLiMP, Warstadt et al. 2020, doi 10.1162/tacl_a_00321; 67 paradigms of 1,000 pairs,
or a subset). The outcome of a pair is 1 if the good sentence has the higher score, 0 if the bad one
has, and 0.5 if they tie, that is, differ by less than float32 can resolve.

Results are written to `minimal-pairs-METHOD-PART-PAIRS.json` in the output folder (PAIRS is the
beginning of the pairs' hash) with the outcome of every pair, so that models can be compared pair by
pair later. If the folder is a run, the table is added to its page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.ask.evaluate.kind import PARTS
from maskwright.base.config import canonical_json, fingerprint
from maskwright.base.errors import DataError, UsageError, unknown
from maskwright.base.metrics import seeds
from maskwright.base.metrics.intervals import wilson
from maskwright.base.randomness import key, permute
from maskwright.base.report import document
from maskwright.base.report.page import write_report
from maskwright.base.storage import commit
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import shell_word
from maskwright.learn.pretrain.prepare import training_stores
from maskwright.learn.pretrain.rows import weights_of
from maskwright.learn.recipes.base.find import read
from maskwright.model.inference import likelihood as text_likelihood
from maskwright.model.inference.held_out_loss import token_counts
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.corpus.saved import RECIPE, is_run
from maskwright.text.tokenizer.tokenizer import Tokenizer

# ------------------------------------------------------------------------------ outcomes
FIELDS = ("sentence_good", "sentence_bad")
# Relative precision of a sum of some ten float32 terms.
TIE = 1e-6
CHOOSING = 0.1
SPLIT_SEED = 0
Score = Callable[[Sequence[str]], NDArray[np.float64]]


@dataclass(frozen=True)
class Paradigm:
    """The pairs of one grammatical phenomenon; good[i] and bad[i] belong together."""

    name: str
    good: tuple[str, ...]
    bad: tuple[str, ...]


@dataclass(frozen=True)
class PairEvaluation:
    """The outcome of each pair (1, 0 or 0.5), as an array for each paradigm."""

    outcomes: dict[str, NDArray[np.float64]]

    @property
    def accuracies(self) -> dict[str, float]:
        return {name: float(values.mean()) for name, values in self.outcomes.items()}

    @property
    def metrics(self) -> dict[str, float]:
        """The accuracy of each paradigm by name, and their mean."""
        return {"mean": self.mean, **self.accuracies}

    @property
    def mean(self) -> float:
        """The unweighted mean over paradigms."""
        return seeds.mean(list(self.outcomes.values()))

    @cached_property
    def bootstrap(self) -> seeds.Interval | None:
        """95 % bootstrap interval of the mean within paradigms; None where it cannot be
        estimated."""
        return seeds.bootstrap(list(self.outcomes.values()))

    def interval(self, name: str) -> seeds.Interval:
        """95 % interval of one paradigm's accuracy, by Wilson's score."""
        return wilson(float(self.outcomes[name].mean()), len(self.outcomes[name]))

    def ties(self, name: str) -> int:
        return int((self.outcomes[name] == 0.5).sum())


def read_paradigms(path: Path | str) -> list[Paradigm]:
    """Read the paradigms of a folder of `.jsonl` files (also `.gz`, `.zst`), or of one such file.

    Raises:
        UsageError: no such path, a folder without such a file, or a file of another format.
        DataError: a row without two sentences; the message has file, line and field.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = [p for p in sorted(path.iterdir()) if ".jsonl" in p.suffixes]
    if not files:
        required = "a .jsonl file for each paradigm"
        raise UsageError("the folder has no minimal pairs", where=path, wanted=required)
    if unreadable := [file for file in files if file.is_file() and ".jsonl" not in file.suffixes]:
        raise UsageError(
            "not minimal pairs",
            where=unreadable[0],
            found="a file of another kind",
            wanted=f"a .jsonl file with {' and '.join(FIELDS)}",
            do="labelled rows tell how good a fine-tuned model is: first "
            f"maskwright finetune MODEL --data {shell_word(path)}",
        )
    paradigms = [_paradigm(file) for file in files]
    names = [paradigm.name for paradigm in paradigms]
    if twice := [name for name in names if names.count(name) > 1]:
        remedy = "take one of them away"
        raise DataError("two files of one paradigm", where=path, found=twice[0], do=remedy)
    return paradigms


def _paradigm(file: Path) -> Paradigm:
    good, bad = ({d.id: d.text for d in Reader(file, ReadingOptions(column=c))} for c in FIELDS)
    unpaired_ids = good.keys() ^ bad.keys()
    if unpaired_ids:
        raise DataError(
            "a pair with one empty sentence", where=min(unpaired_ids), wanted=" and ".join(FIELDS)
        )
    return Paradigm(file.name.split(".jsonl")[0], tuple(good.values()), tuple(bad.values()))


def select_part(paradigms: Sequence[Paradigm], part_name: str) -> list[Paradigm]:
    """Select a part of the pairs: for model selection ("choosing": the share `CHOOSING` of each
    paradigm, by a fixed random permutation), for reporting ("reporting": the others), or "all".

    Raises:
        UsageError: an unknown part.  DataError: a paradigm without a pair in this part.
    """
    if part_name not in PARTS:
        raise unknown("no such part of the pairs", part_name, PARTS)
    if part_name == "all":
        return list(paradigms)
    chosen = []
    for p in paradigms:
        count = len(p.good)
        order = permute(key("split", SPLIT_SEED), count, np.arange(count))
        is_selected = (order < int(CHOOSING * count)) == (part_name == "choosing")
        pair_indices = np.flatnonzero(is_selected).tolist()
        if not pair_indices:
            raise DataError(
                "a paradigm has no pair in this part",
                where=p.name,
                found=f"{count} pairs",
                do="use all of them",
            )
        good, bad = (tuple(side[i] for i in pair_indices) for side in (p.good, p.bad))
        chosen.append(Paradigm(p.name, good, bad))
    return chosen


def judge(paradigms: Sequence[Paradigm], score: Score) -> PairEvaluation:
    """Evaluate which sentence of each pair gets the higher score; all are scored in one call.

    Raises:
        DataError: a score is not finite.
    """
    sentences = [s for p in paradigms for s in (*p.good, *p.bad)]
    sentence_scores = score(sentences)
    if not np.isfinite(sentence_scores).all():
        index = int(np.flatnonzero(~np.isfinite(sentence_scores))[0])
        raise DataError(
            "the score of a sentence is not a finite number",
            where=sentences[index][:60],
            found=sentence_scores[index],
        )
    outcomes_by_paradigm, start = {}, 0
    for p in paradigms:
        good, bad = sentence_scores[start:][: 2 * len(p.good)].reshape(2, -1)
        outcomes_by_paradigm[p.name] = outcomes(good, bad)
        start += 2 * len(p.good)
    return PairEvaluation(outcomes_by_paradigm)


def outcomes(good: NDArray[np.float64], bad: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 where `good` is larger, 0 where `bad` is, 0.5 where they tie."""
    tie = np.abs(good - bad) <= TIE * np.maximum(np.abs(good), np.abs(bad))
    return np.where(tie, 0.5, good > bad).astype(np.float64)


def pair_baselines(tokenizer: Tokenizer, counts: NDArray[np.integer] | None) -> Mapping[str, Score]:
    """Return scoring functions without a model, by name: constant, by length, and by unigram
    frequencies unless `counts` (V,) is None."""

    def shorter(sentences: Sequence[str]) -> NDArray[np.float64]:
        return -np.array([len(ids) for ids in tokenizer.encode_batch(sentences)], dtype=np.float64)

    score_functions: dict[str, Score] = {
        "constant": lambda texts: np.zeros(len(texts)),
        "length": shorter,
    }
    if counts is not None:
        logs = np.log((counts + 1) / (counts.sum() + len(counts)))
        score_functions["unigram"] = lambda texts: np.array(
            [float(logs[ids].sum()) for ids in tokenizer.encode_batch(texts)]
        )
    return score_functions


def identity(paradigms: Sequence[Paradigm]) -> str:
    """Return the SHA-256 of the pairs."""
    return fingerprint([[p.name, list(p.good), list(p.bad)] for p in paradigms])


# ------------------------------------------------------------------------------ evaluation
LARGEST = 256 << 20  # bytes of a results file
SIGNS = {1.0: "1", 0.0: "0", 0.5: "="}
WHICH = {"all": "", "choosing": ", the tenth to choose by", "reporting": ", nine tenths"}
WITHOUT_MODEL = {
    "constant": "the same score for every sentence",
    "length": "the sentence of fewer tokens",
    "unigram": "the tokens' frequencies in the training text",
}


def evaluate_pairs(
    model: Model | Path | str,
    data: Path | str,
    out: Path | str,
    *,
    how: str | None = None,
    part: str = "all",
    say: Callable[[str], None] = print,
) -> PairEvaluation:
    """Score the minimal pairs in `data` with the model or run in the folder `model`.

    Args:
        how: one of `likelihood_prompts.METHODS`; None: the one that fits the model's training.
        part: "all", "choosing" or "reporting" (`select_part`).

    Raises:
        UsageError, DataError: the pairs, the part or the method does not exist.
        IncompatibleError: the model cannot be scored by this method.
    """
    data, out = Path(data), Path(out)
    paradigms = select_part(read_paradigms(data), part)
    commit.probe_writable(out)
    model = model if isinstance(model, Model) else open_model(model)
    for finding in model.findings:
        say(finding.line())
    how = text_likelihood.scoring_method(model.network, model.conventions) if how is None else how
    network = prepare(model.network, precision="float32")
    result = score(network, model.tokenizer, paradigms, how)
    stores = training_stores(model.folder)
    weights = weights_of(read(model.folder / RECIPE).corpus, stores) if stores else ()
    counts = token_counts(stores, weights) if stores else None
    baselines = {
        name: judge(paradigms, baseline)
        for name, baseline in pair_baselines(model.tokenizer, counts).items()
    }
    named = f"Minimal pairs, {data.resolve().name}{WHICH[part]}, scored {how}"
    table = as_table(result, baselines, named)
    say(document.for_terminal(table))
    means = {name: baseline.mean for name, baseline in baselines.items()}
    path = save(out, result, paradigms, how, part, means, model.fingerprint)
    say(f"figures: {path}")
    if is_run(out):
        document.add(out, [table])
        say(f"report: {write_report(out)}")
    return result


def score(
    model: Transformer | Prepared, tokenizer: Tokenizer, paradigms: Sequence[Paradigm], scoring: str
) -> PairEvaluation:
    """Judge all pairs by the scores of the method `scoring`."""
    return judge(paradigms, partial(text_likelihood.scores, model, tokenizer, method=scoring))


def as_table(
    result: PairEvaluation, baselines: dict[str, PairEvaluation], title: str
) -> document.Table:
    """Return a table of the mean over paradigms and each paradigm, with the baselines."""
    names = list(result.accuracies)
    rows = [
        [
            "mean over paradigms",
            document.percent(result.mean),
            _interval_text(result.bootstrap),
            f"{sum(map(result.ties, names)):,}",
            *(document.percent(r.mean) for r in baselines.values()),
        ]
    ]
    for name in names:
        accuracies = [document.percent(r.accuracies[name]) for r in (result, *baselines.values())]
        accuracies[1:1] = [_interval_text(result.interval(name)), f"{result.ties(name):,}"]
        rows.append([name.replace("_", " "), *accuracies])
    pairs = sum(len(v) for v in result.outcomes.values())
    without = [WITHOUT_MODEL[name] for name in baselines]
    return {
        "title": title,
        "own_first": True,
        "head": ["", "right", "95 %", "ties", *baselines],
        "rows": rows,
        "note": f"{pairs:,} pairs in {len(names)} paradigm{'s' * (len(names) != 1)}; a tie counts "
        f"one half. Baselines without a model: {', '.join(without)}.",
    }


def save(
    out: Path,
    result: PairEvaluation,
    paradigms: Sequence[Paradigm],
    scoring: str,
    subset: str,
    baselines: dict[str, float],
    model: str,
) -> Path:
    """Write the results and every pair's outcome ("1", "0", "=" for a tie) as JSON; `model` is the
    hash of the model folder. Returns the path."""
    plain = {
        "kind": "minimal pairs",
        "pairs": identity(paradigms),
        "model": model,
        "how": scoring,
        "part": subset,
        "mean": result.mean,
        "bootstrap": result.bootstrap,
        "baselines": baselines,
        "paradigms": {
            name: {
                "accuracy": accuracy,
                "interval": result.interval(name),
                "outcomes": "".join(SIGNS[v] for v in result.outcomes[name].tolist()),
            }
            for name, accuracy in result.accuracies.items()
        },
    }
    path = figures_path(out, scoring, subset, paradigms)
    plain = json.loads(canonical_json(plain))  # lists for tuples, as it will be read
    text = json.dumps({**plain, "sha256": fingerprint(plain)}, indent=2) + "\n"
    return document.write(path, text)


def figures_path(out: Path, scoring: str, subset: str, paradigms: Sequence[Paradigm]) -> Path:
    return out / f"minimal-pairs-{scoring}-{subset}-{identity(paradigms)[:8]}.json"


def load(path: Path, paradigms: Sequence[Paradigm], model: str) -> PairEvaluation | None:
    """Read the result in a file of `save`; None if there is none, or it is of other pairs or of a
    model with another hash.

    Raises:
        DataError: the file is damaged.
    """
    if not path.is_file():
        return None
    try:
        plain = parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST)
        if plain.pop("sha256", None) != fingerprint(plain):
            raise ValueError("its own hash does not fit")
        if (plain["pairs"], plain.get("model")) != (identity(paradigms), model):
            return None
        values = {sign: value for value, sign in SIGNS.items()}
        return PairEvaluation(
            {
                name: np.array([values[sign] for sign in paradigm["outcomes"]])
                for name, paradigm in plain["paradigms"].items()
            }
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            "figures of minimal pairs cannot be read", where=path, found=error, do="remove the file"
        ) from error


def _interval_text(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"{interval[0] * 100:.1f} to {interval[1] * 100:.1f}"
