"""Measure the effect of curation: train small models on the text before and after it, at equal
tokens, several seeds each, and compare their loss on held-out text.

    clean.proof/
      text/before.jsonl  after.jsonl                     training texts
           held-out.jsonl  held-out-kept.jsonl           evaluation texts
      tokenizer/                                         shared, trained on both
      comparison/                                        as `maskwright compare` writes it
      proof.json                                         the difference, its interval, a sentence

The held-out text is the user's, or a sample of the documents before curation, which are excluded
from both training texts together with all of their copies. (A sample of the curated corpus would
favour any filter.) The difference is also measured on the held-out documents that curation keeps.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from maskwright.base.budget import equal_budget
from maskwright.base.config import fingerprint
from maskwright.base.errors import ConfigError, DataError, UsageError
from maskwright.base.metrics.seeds import difference
from maskwright.base.randomness import key, uniforms
from maskwright.base.storage.commit import require_own
from maskwright.base.storage.files import new_text
from maskwright.base.storage.manifest import verify
from maskwright.text.corpus.files import Paths
from maskwright.text.corpus.read import DEFAULT, Reader
from maskwright.text.corpus.saved import is_curated
from maskwright.text.curate.card import read_card
from maskwright.text.curate.curation import work_folder
from maskwright.text.curate.engine.segment import location_of
from maskwright.text.curate.engine.shards import read_batches, shards_of

HELD_OUT, KEPT = "held-out", "held-out-kept"
HELD_OUT_SHARE = 0.02
HELD_OUT_BYTES = 4 << 20
# Metrics by preference, with their units. Losses are comparable as the tokenizer is shared.
UNITS = {"bits_per_byte": "bits per byte", "loss": "nats per token"}
LEAST_HELD_OUT = 20  # documents
AGAIN = "curate again into another --out, and prove that"


@dataclass(frozen=True)
class Proof:
    """Losses on the held-out text (lower is better), in the unit that the sentence names.

    Attributes:
        before, after: the loss of each seed.
        gap: after minus before, the difference of the means.
        interval: of the gap, 95 % (Welch); None with fewer than two seeds.
        documents: (before, after, held out).
        survivors: the same on the held-out documents that curation keeps, in their curated form;
            None if there are none.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    gap: float
    interval: tuple[float, float] | None
    documents: tuple[int, int, int]
    budget: str
    recipe: str
    sentence: str
    survivors: Proof | None = None


def prove(
    clean: Path,
    out: Path | None = None,
    *,
    recipe: str = "gpt-mini",
    budget: str = "tokens=2e6",
    seeds: int = 3,
    held_out: Paths = (),
    settings: Sequence[str] = (),
    stream: TextIO | None = None,
) -> Proof:
    """Compare training on the curated corpus `clean` with training on its source text.

    Args:
        out: None: `clean.proof` beside `clean`. A second call resumes.
        recipe, budget, settings: of each run, as for `maskwright compare`; a language model.
        held_out: text files for evaluation; by default a sample of the documents before curation.

    Raises:
        UsageError: `clean` is not a curated corpus, or its intermediate files are gone.
        DataError: there is too little text.
        Others: as in `evaluate.compare.compare`.
    """
    # Modules that load torch are imported after the checks that do not need it.
    if not is_curated(clean):
        raise UsageError(
            "not a curated corpus",
            where=clean,
            wanted="a folder that maskwright curate made",
            do="curate first: maskwright curate TEXT --out clean/",
        )
    equal_budget(budget)
    verify(clean, error=DataError)
    out = clean.with_name(f"{clean.name}.proof") if out is None else out
    require_own(out, "text", "tokenizer", "comparison")
    num_before, num_after, num_held_out, num_held_out_kept = _write_texts(
        clean, out / "text", held_out
    )
    from maskwright.ask.evaluate.compare import compare, run_folder
    from maskwright.ask.evaluate.text import evaluate_text
    from maskwright.learn.pretrain.prepare import train_and_report
    from maskwright.learn.recipes.base.find import find, override
    from maskwright.text.tokenizer.training.train import TokenizerChoice

    base_recipe = override(find(recipe), settings)
    texts = {name: str(out / "text" / f"{name}.jsonl") for name in ("before", "after", HELD_OUT)}
    tokenizer = out / "tokenizer"
    if not isinstance(base_recipe.tokenizer, TokenizerChoice):
        raise ConfigError(
            "the recipe brings its own tokenizer", where=recipe, do="take a recipe that trains one"
        )
    if not tokenizer.is_dir():
        train_and_report(
            [texts["before"], texts["after"]],
            tokenizer,
            kind=base_recipe.tokenizer.kind,
            vocabulary=base_recipe.tokenizer.vocabulary,
            lowercase=base_recipe.tokenizer.lowercase,
        )
    unseen = (texts[HELD_OUT],)
    recipes = []
    for name in ("before", "after"):
        text = (texts[name],)
        corpus = replace(base_recipe.corpus, text=text, held_out_text=unseen, limit_bytes=None)
        variant = replace(base_recipe, name=name, corpus=corpus)
        recipes.append(override(variant, [f"tokenizer.folder={tokenizer}"]))
    comparison = compare(recipes, out / "comparison", budget=budget, seeds=seeds, stream=stream)
    measured = {measure.name for measure in comparison.measures}
    measure = next((name for name in UNITS if name in measured), "loss")
    losses = {c.name: c.figures(measure) for c in comparison.contenders}
    about = (budget, base_recipe.name, UNITS[measure])
    documents = (num_before, num_after, num_held_out)
    proof = _proof(losses["before"], losses["after"], documents, *about)
    if num_held_out_kept:

        def held_out_loss(name: str, seed: int) -> float:
            run, path = run_folder(out / "comparison", name, seed), out / "text" / f"{KEPT}.jsonl"
            return float(getattr(evaluate_text(run, path, reading=DEFAULT).figures, measure))

        losses = {name: {s: held_out_loss(name, s) for s in range(seeds)} for name in losses}
        documents = (num_before, num_after, num_held_out_kept)
        survivors = _proof(losses["before"], losses["after"], documents, *about)
        proof = replace(proof, survivors=survivors)
    with new_text(out / "proof.json") as file:
        file.write(json.dumps(asdict(proof), indent=1) + "\n")
    return proof


def _proof(
    before: dict[int, float],
    after: dict[int, float],
    documents: tuple[int, int, int],
    budget: str,
    recipe: str,
    unit: str = "",
) -> Proof:
    """Compare losses by seed, and put the difference into words; `documents` as in `Proof`."""
    gap = float(np.mean(list(after.values())) - np.mean(list(before.values())))
    estimate = difference(after, before)
    if estimate is None:
        interval, spread, verdict = None, "", "no verdict: a spread takes two seeds or more"
    else:
        interval = (estimate.low, estimate.high)
        spread = f" (95 % {estimate.low:+.4f} to {estimate.high:+.4f})"
        verdict = "no difference that is larger than the spread of the seeds"
        if estimate.high < 0 or estimate.low > 0:
            effect = "pays" if estimate.high < 0 else "costs"
            verdict = f"cleaning {effect}: the difference is larger than the spread of the seeds"
    sentence = f"after minus before: {gap:+.4f} {unit}{spread}; {verdict}"
    losses = tuple(before.values()), tuple(after.values())
    return Proof(*losses, gap, interval, documents, budget, recipe, sentence)


# ------------------------------------------------------------------------------ the three texts
def _write_texts(clean: Path, folder: Path, held_out: Paths) -> tuple[int, int, int, int]:
    """Write the training and evaluation texts, unless done already. Returns the numbers of
    documents (before, after, held out, held out and kept)."""
    marker = folder / "counts.json"
    state = fingerprint([read_card(clean)["read"], str(held_out), KEPT])
    if marker.is_file():
        previous = json.loads(marker.read_text(encoding="utf-8"))
        if previous["of"] == state:
            return tuple(previous["documents"])
    next(_read_documents(clean), None)  # raises before anything is written
    sampled = not held_out
    chosen = _draw_held_out(clean) if sampled else set()
    if sampled and len(chosen) < LEAST_HELD_OUT:
        raise DataError(
            "too few documents to hold some out",
            where=clean,
            found=f"{len(chosen)} of {read_card(clean)['read']['documents']:,}",
            wanted=f"at least {LEAST_HELD_OUT} held out, of {LEAST_HELD_OUT / HELD_OUT_SHARE:.0f}",
            do="name a file of text that judges the models: --held-out FILE",
        )
    folder.mkdir(parents=True, exist_ok=True)
    excluded = chosen | _find_copies(clean, chosen)
    sampled_texts = (text for location, text in _read_documents(clean) if location in chosen)
    texts = {
        "before": (text for location, text in _read_documents(clean) if location not in excluded),
        "after": (text for location, text in _kept_documents(clean) if location not in excluded),
        HELD_OUT: sampled_texts if sampled else (d.text for d in Reader(held_out, DEFAULT)),
        KEPT: (text for location, text in _kept_documents(clean) if location in chosen),
    }
    counts = [_write_jsonl(folder / f"{name}.jsonl", stream) for name, stream in texts.items()]
    with new_text(marker) as file:
        file.write(json.dumps({"of": state, "documents": counts}) + "\n")
    return counts[0], counts[1], counts[2], counts[3]


def _write_jsonl(path: Path, texts: Iterator[str]) -> int:
    count = 0
    with new_text(path) as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            count += 1
    return count


def _draw_held_out(clean: Path) -> set[str]:
    """Return the locations of the held-out documents: a share of all, by a hash of the location."""
    locations, size = set[str](), 0
    for location, text in _read_documents(clean):
        digest = hashlib.blake2b(location.encode("utf-8", "surrogatepass"), digest_size=7).digest()
        keys = key("split", np.array([int.from_bytes(digest, "little")]))
        if uniforms(keys, 1)[0, 0] < HELD_OUT_SHARE and size < HELD_OUT_BYTES:
            locations.add(location)
            size += len(text)
    return locations


def _find_copies(clean: Path, chosen: set[str]) -> set[str]:
    """Return the locations of all copies of the `chosen` documents: those with equal text, those
    that curation removed as copies of the same document, and the one it kept for them."""
    survivors: dict[str, str] = {}
    for path in sorted((clean / "removed").glob("*.jsonl.gz")):
        for row in _read_jsonl(path):
            if "survivor" in row:
                survivors[location_of(row)] = row["survivor"]

    def final_survivor(location: str) -> str:
        """The document that is kept for the one at `location`, over copies of copies."""
        visited = {location}
        while (further := survivors.get(location)) is not None and further not in visited:
            location = further
            visited.add(location)
        return location

    def digest(text: str) -> bytes:
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    digests = {digest(text) for location, text in _read_documents(clean) if location in chosen}
    equal = {location for location, text in _read_documents(clean) if digest(text) in digests}
    kept_copies = {final_survivor(location) for location in equal | chosen}
    removed_copies = {location for location in survivors if final_survivor(location) in kept_copies}
    return equal | kept_copies | removed_copies


def _kept_documents(clean: Path) -> Iterator[tuple[str, str]]:
    """Yield (location, text) of the documents after curation."""
    for path in sorted((clean / "text").glob("*.jsonl.gz")):
        for row in _read_jsonl(path):
            yield row.get("read_at", row["id"]), row["text"]


def _read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            yield json.loads(line)


def _read_documents(clean: Path) -> Iterator[tuple[str, str]]:
    """Yield (location, text) of the documents before curation, from its intermediate files."""
    work = work_folder(clean) / "reading"
    expected = {entry["sha256"] for entry in read_card(clean)["read"]["files"]}
    folders = []
    for marker in sorted(work.glob("*/shards.json")) if work.is_dir() else []:
        try:
            verify(marker.parent, error=DataError)
        except DataError as error:
            raise error.advising(AGAIN) from error
        shards, facts = shards_of(marker.parent)
        files = {entry["sha256"] for entry in facts["files"]}
        if files <= expected:
            folders.append((files, shards))
    if set().union(*(files for files, _ in folders)) != expected:
        raise UsageError(
            "the text as it was before is gone",
            where=work,
            wanted="the pieces that maskwright curate left there",
            do=AGAIN,
        )
    for _, shards in folders:
        for shard in shards:
            for batch in read_batches(shard.path):
                yield from zip(batch.ids, batch.texts, strict=True)


def prove_command(
    clean: Path, budget: str | None, seeds: int | None, held_out: Sequence[str]
) -> None:
    """Run `prove` with the options of the command line and print the verdict."""
    proof = prove(clean, budget=budget or "tokens=2e6", seeds=seeds or 3, held_out=held_out)
    before, after, judged = proof.documents
    print(
        f"documents: {before:,} before, {after:,} after, {judged:,} held out; {proof.recipe}, "
        f"{proof.budget}, {len(proof.after)} seeds"
    )
    print(f"on documents as they came: {proof.sentence}")
    if proof.survivors is not None:
        count = proof.survivors.documents[2]
        print(f"on the {count:,} of them that are kept, as curated: {proof.survivors.sentence}")
