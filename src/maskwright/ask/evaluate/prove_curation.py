"""Does cleaning pay? Two small models, one trained on the text before and one after, at equal
tokens, several seeds each, and their loss on text that neither has seen.

    clean.proof/
      text/before.jsonl  after.jsonl                     what each learns from
           held-out.jsonl  held-out-kept.jsonl           what judges them
      tokenizer/                                         one for both, trained on both
      comparison/                                        as `maskwright compare` writes it
      proof.json                                         the difference, its interval, a sentence

The held-out text is the user's, or documents drawn of the text before, as it came, that are then
taken out of both texts together with all copies of them. Drawn of the curated corpus they would be
what the filters like, and any filter would pay. Those of them that are kept judge too, as they were
curated; both differences are told.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
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
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate.card import read_card
from maskwright.text.curate.curation import is_curated, work_folder
from maskwright.text.curate.engine.shards import shards_of
from maskwright.text.curate.engine.tables import read_batches

HELD_OUT, KEPT = "held-out", "held-out-kept"
HELD_OUT_SHARE = 0.02
HELD_OUT_BYTES = 4 << 20
# What judges the models, by preference. Both have one tokenizer, so losses compare as well.
UNITS = {"bits_per_byte": "bits per byte", "loss": "nats per token"}
LEAST_HELD_OUT = 20  # documents
AGAIN = "curate again into another --out, and prove that"


@dataclass(frozen=True)
class Proof:
    """What came of it: losses on the held-out text (lower is better), in the unit of the sentence.

    Attributes:
        before, after: of each seed.
        gap: after minus before, the difference of the means.
        interval: of the gap, 95 % (Welch); None with fewer than two seeds.
        documents: (before, after, held out).
        sentence: the verdict in words.
        survivors: the same on the held-out documents that curation keeps, as it leaves them.
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
    """Compare training on the curated corpus `clean` with training on what it was made of.

    Args:
        out: the folder to make; `clean.proof` for `clean`. Started again, it goes on.
        recipe: a pretraining recipe of a language model, built in or a file.
        budget: of each run, as `maskwright compare` takes it.
        held_out: files of text that neither model learns from; by default documents of the text
            before, whether they are kept or not.
        settings: of the recipe, `path=value`.

    Raises:
        UsageError: `clean` is no curated corpus, or its pieces are gone.
        DataError: too little text.
        As `evaluate.compare.compare`.
    """
    # What brings torch waits until all is known that can be known without it.
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
    counts = _write_texts(clean, out / "text", held_out)
    from maskwright.ask.evaluate.compare import compare
    from maskwright.ask.evaluate.compare_candidate import run_folder
    from maskwright.ask.evaluate.text import evaluate_text
    from maskwright.learn.pretrain.tokenizer_run import train_and_report
    from maskwright.learn.recipes.base.find import find, override
    from maskwright.learn.recipes.base.recipe import TokenizerFolder

    chosen = override(find(recipe), settings)
    texts = {name: str(out / "text" / f"{name}.jsonl") for name in ("before", "after", HELD_OUT)}
    tokenizer = out / "tokenizer"
    if isinstance(chosen.tokenizer, TokenizerFolder):
        raise ConfigError(
            "the recipe brings its own tokenizer", where=recipe, do="take a recipe that trains one"
        )
    if not tokenizer.is_dir():
        train_and_report(
            [texts["before"], texts["after"]],
            tokenizer,
            kind=chosen.tokenizer.kind,
            vocabulary=chosen.tokenizer.vocabulary,
            lowercase=chosen.tokenizer.lowercase,
        )
    recipes = [
        override(
            replace(
                chosen,
                name=name,
                corpus=replace(
                    chosen.corpus,
                    text=(texts[name],),
                    held_out_text=(texts[HELD_OUT],),
                    limit_bytes=None,
                ),
            ),
            [f"tokenizer.folder={tokenizer}"],
        )
        for name in ("before", "after")
    ]
    made = compare(recipes, out / "comparison", budget=budget, seeds=seeds, stream=stream)
    measure = next((name for name in UNITS if name in {m.name for m in made.measures}), "loss")
    figures = {c.name: c.figures(measure) for c in made.contenders}
    about = (budget, chosen.name, UNITS[measure])
    proof = _proof(figures["before"], figures["after"], counts[:3], *about)
    kept = out / "text" / f"{KEPT}.jsonl"
    if counts[3]:
        figures = {
            name: {
                seed: float(
                    getattr(evaluate_text(run, kept, reading=ReadingOptions()).figures, measure)
                )
                for seed in range(seeds)
                for run in [run_folder(out / "comparison", name, seed)]
            }
            for name in ("before", "after")
        }
        documents = (counts[0], counts[1], counts[3])
        survivors = _proof(figures["before"], figures["after"], documents, *about)
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
    gap = float(np.mean(list(after.values())) - np.mean(list(before.values())))
    found = difference(after, before)
    if found is None:
        interval, verdict = None, "no verdict: a spread takes two seeds or more"
    else:
        interval = (found.low, found.high)
        verdict = "no difference that is larger than the spread of the seeds"
        if found.high < 0:
            verdict = "cleaning pays: the difference is larger than the spread of the seeds"
        elif found.low > 0:
            verdict = "cleaning costs: the difference is larger than the spread of the seeds"
    spread = "" if interval is None else f" (95 % {interval[0]:+.4f} to {interval[1]:+.4f})"
    sentence = f"after minus before: {gap:+.4f} {unit}{spread}; {verdict}"
    return Proof(
        tuple(before.values()),
        tuple(after.values()),
        gap,
        interval,
        documents,
        budget,
        recipe,
        sentence,
    )


# ------------------------------------------------------------------------------ the three texts
def _write_texts(clean: Path, folder: Path, held_out: Paths) -> tuple[int, int, int, int]:
    """Write what each model learns from and what judges them; the documents of each."""
    marker = folder / "counts.json"
    state = fingerprint([read_card(clean)["read"], str(held_out), KEPT])
    if marker.is_file():
        known = json.loads(marker.read_text(encoding="utf-8"))
        if known["of"] == state:
            return tuple(known["documents"])
    next(_read(clean), None)  # refused before anything is written, if it is not there
    own = not held_out
    chosen = _chosen(clean) if own else set()
    if own and len(chosen) < LEAST_HELD_OUT:
        raise DataError(
            "too few documents to hold some out",
            where=clean,
            found=f"{len(chosen)} of {read_card(clean)['read']['documents']:,}",
            wanted=f"at least {LEAST_HELD_OUT} held out, of {LEAST_HELD_OUT / HELD_OUT_SHARE:.0f}",
            do="name a file of text that judges the models: --held-out FILE",
        )
    folder.mkdir(parents=True, exist_ok=True)
    kept_out = chosen | _copies(clean, chosen)
    drawn = (t for p, t in _read(clean) if p in chosen) if own else _texts_of(held_out)
    counts = [
        _write(folder / "before.jsonl", (t for p, t in _read(clean) if p not in kept_out)),
        _write(folder / "after.jsonl", (t for p, t in _kept(clean) if p not in kept_out)),
        _write(folder / f"{HELD_OUT}.jsonl", drawn),
        _write(folder / f"{KEPT}.jsonl", (t for p, t in _kept(clean) if p in chosen)),
    ]
    with new_text(marker) as file:
        file.write(json.dumps({"of": state, "documents": counts}) + "\n")
    return counts[0], counts[1], counts[2], counts[3]


def _write(path: Path, texts: Iterator[str]) -> int:
    count = 0
    with new_text(path) as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            count += 1
    return count


def _chosen(clean: Path) -> set[str]:
    """The documents that are held out, by place: a share of all, by a hash of their places."""
    places, size = set[str](), 0
    for place, text in _read(clean):
        digest = hashlib.blake2b(place.encode("utf-8", "surrogatepass"), digest_size=7).digest()
        keys = key("split", np.array([int.from_bytes(digest, "little")]))
        if uniforms(keys, 1)[0, 0] < HELD_OUT_SHARE and size < HELD_OUT_BYTES:
            places.add(place)
            size += len(text)
    return places


def _copies(clean: Path, chosen: set[str]) -> set[str]:
    """Other documents of the text of these, and those that were removed as copies of the same
    document or kept for them, however many copies lie between."""
    survivors: dict[str, str] = {}
    for path in sorted((clean / "removed").glob("*.jsonl.gz")):
        for row in _lines(path):
            if "survivor" in row:
                survivors[_place(row)] = row["survivor"]

    def last(place: str) -> str:
        seen = {place}
        while (further := survivors.get(place)) is not None and further not in seen:
            place = further
            seen.add(place)
        return place

    texts = {_digest(text) for place, text in _read(clean) if place in chosen}
    places = {place for place, text in _read(clean) if _digest(text) in texts}
    lasts = {last(place) for place in places | chosen}
    return places | {place for place in {*survivors, *lasts} if last(place) in lasts}


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _place(row: Mapping[str, Any]) -> str:
    """Where the document of a record was read."""
    for name, mark in (("line", ":"), ("row", "#")):
        if name in row:
            return f"{row['file']}{mark}{row[name]}"
    return str(row["file"])


def _kept(clean: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of the documents that are left."""
    for path in sorted((clean / "text").glob("*.jsonl.gz")):
        for row in _lines(path):
            yield row.get("read_at", row["id"]), row["text"]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            yield json.loads(line)


def _read(clean: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of the documents as they were read."""
    work = work_folder(clean) / "reading"
    wanted = {entry["sha256"] for entry in read_card(clean)["read"]["files"]}
    folders = []
    for marker in sorted(work.glob("*/shards.json")) if work.is_dir() else []:
        try:
            verify(marker.parent, error=DataError)
        except DataError as error:
            raise error.advising(AGAIN) from error
        shards, facts = shards_of(marker.parent)
        files = {entry["sha256"] for entry in facts["files"]}
        if files <= wanted:
            folders.append((files, shards))
    if set().union(*(files for files, _ in folders)) != wanted:
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


def _texts_of(paths: Paths) -> Iterator[str]:
    for document in Reader(paths, ReadingOptions()):
        yield document.text


def prove_command(
    clean: Path, budget: str | None, seeds: int | None, held_out: Sequence[str]
) -> None:
    """`prove` as the command line asks for it; the verdict on standard output.

    Raises:
        As `prove`.
    """
    made = prove(clean, budget=budget or "tokens=2e6", seeds=seeds or 3, held_out=held_out)
    before, after, held = made.documents
    print(
        f"documents: {before:,} before, {after:,} after, {held:,} held out; {made.recipe}, "
        f"{made.budget}, {len(made.after)} seeds"
    )
    print(
        made.sentence if made.survivors is None else f"on documents as they came: {made.sentence}"
    )
    if made.survivors is not None:
        number = made.survivors.documents[2]
        print(f"on the {number:,} of them that are kept, as curated: {made.survivors.sentence}")
