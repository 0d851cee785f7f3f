"""`maskwright evaluate MODEL --data FOLDER`: minimal pairs of grammar, with baselines.

Results are written to `minimal-pairs-METHOD-PART-PAIRS.json` in the output folder (PAIRS is the
beginning of the pairs' hash) with the outcome of every pair, so that models can be compared pair by
pair later. If the folder is a run, the table is added to its page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from maskwright.ask.evaluate import pair_outcomes
from maskwright.ask.evaluate.pair_outcomes import PairEvaluation, Paradigm
from maskwright.base.config import canonical_json, fingerprint
from maskwright.base.errors import DataError
from maskwright.base.report import document, tables
from maskwright.base.report.page import write_report
from maskwright.base.report.wording import percent
from maskwright.base.storage import commit
from maskwright.base.storage.strict_json import parse_object
from maskwright.learn.pretrain.prepare import training_stores
from maskwright.learn.pretrain.rows import weights_of
from maskwright.learn.recipes.base.find import read
from maskwright.model.inference import likelihood as text_likelihood
from maskwright.model.inference.held_out_loss import token_counts
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening.model import Model
from maskwright.model.opening.open import open_model
from maskwright.model.opening.run_folder import RECIPE, is_run
from maskwright.text.tokenizer.tokenizer import Tokenizer

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
        out: the folder for the results; created if necessary.
        how: one of `likelihood_prompts.METHODS`; None: the one that fits the model's training.
        part: "all", "choosing" or "reporting" (`pair_outcomes.part`).

    Raises:
        UsageError, DataError: the pairs, the part or the method does not exist.
        IncompatibleError: the model cannot be scored by this method.
    """
    data, out = Path(data), Path(out)
    paradigms = pair_outcomes.part(pair_outcomes.read(data), part)
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
        name: pair_outcomes.judge(paradigms, baseline)
        for name, baseline in pair_outcomes.baselines(model.tokenizer, counts).items()
    }
    named = f"Minimal pairs, {data.resolve().name}{WHICH[part]}, scored {how}"
    table = as_table(result, baselines, named)
    say(tables.for_terminal(table))
    means = {name: baseline.mean for name, baseline in baselines.items()}
    path = save(out, result, paradigms, how, part, means, model.fingerprint)
    say(f"figures: {path}")
    if is_run(out):
        tables.add(out, [table])
        say(f"report: {write_report(out)}")
    return result


def score(
    model: Transformer | Prepared, tokenizer: Tokenizer, paradigms: Sequence[Paradigm], scoring: str
) -> PairEvaluation:
    """Score the sentences of all pairs by the method `scoring` and return the preferences."""
    return pair_outcomes.judge(
        paradigms, partial(text_likelihood.scores, model, tokenizer, method=scoring)
    )


def as_table(
    result: PairEvaluation, baselines: dict[str, PairEvaluation], title: str
) -> tables.Table:
    """Return a table of the mean over paradigms and each paradigm, with the baselines."""
    names = list(result.accuracies)
    rows = [
        [
            "mean over paradigms",
            percent(result.mean),
            _interval_text(result.bootstrap),
            f"{sum(map(result.ties, names)):,}",
            *(percent(r.mean) for r in baselines.values()),
        ],
        *(
            [
                name.replace("_", " "),
                percent(result.accuracies[name]),
                _interval_text(result.interval(name)),
                f"{result.ties(name):,}",
                *(percent(r.accuracies[name]) for r in baselines.values()),
            ]
            for name in names
        ),
    ]
    pairs = sum(len(v) for v in result.outcomes.values())
    without = [WITHOUT_MODEL[name] for name in baselines]
    return {
        "title": title,
        "own_first": True,
        "head": ["", "right", "95 %", "ties", *baselines],
        "rows": rows,
        "note": f"{pairs:,} pairs in {len(names)} paradigm{'s' * (len(names) != 1)}; a tie counts "
        f"one half. Beside it, what needs no model: {', '.join(without)}.",
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
        "pairs": pair_outcomes.identity(paradigms),
        "model": model,
        "how": scoring,
        "part": subset,
        "mean": result.mean,
        "bootstrap": result.bootstrap,
        "normal": result.normal,
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
    """Return the path of the results of a method on a part of these pairs."""
    return out / f"minimal-pairs-{scoring}-{subset}-{pair_outcomes.identity(paradigms)[:8]}.json"


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
        digest = plain.pop("sha256", None)  # not written by earlier releases
        if digest is not None and digest != fingerprint(plain):
            raise ValueError("its own hash does not fit")
        if (plain["pairs"], plain.get("model")) != (pair_outcomes.identity(paradigms), model):
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
