"""Dirty texts of any size, made of real words, with the truth about what is dirty in them.

    python -m benchmarks.curation_texts --out DIR --bytes 1e9         a large corpus, mixed anew
    python -m benchmarks.curation_texts --out DIR --dirty             babytext as it is, made dirty

Reads the text of $MASKWRIGHT_DATA (babytext). A document of the large corpus is a function of the
seed and its number: paragraphs of sentences, each the front of one real sentence and the back of
another, so that no two documents are alike by chance. A stated share are exact copies or near
copies of earlier ones, and a stated share begin or end with lines that their site repeats.

    DIR/texts/00000.jsonl ...   id, text, source (a site), url
    DIR/truth.jsonl             each copy: id, of, change (exact, words, header, case or order),
                                rate, jaccard (of the sets of 5 words running, lower case)
    DIR/boilerplate.txt         the lines that are planted
    DIR/facts.json              counts and settings
    DIR/held-out.jsonl          with --dirty: babytext's valid part, clean, to judge models by
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
from bisect import bisect
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, TextIO

SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
WORD = re.compile(r"\w+(?:['’]\w+)*")
CHANGES = ("words", "words", "words", "header", "case", "order")  # of near copies, by frequency
SITES = 300
Row = tuple[dict[str, Any], dict[str, Any] | None]  # a document; the truth, where it is a copy
MOST = 20  # words of a real sentence on end, so that no long run of words occurs twice by chance


@dataclass(frozen=True, kw_only=True)
class Dirt:
    """What is planted.

    Attributes:
        exact, near: shares of the documents that are copies of another one.
        rate: the most that is changed in a near copy of the sort `words`: each word with this
            chance; what a copy gets is drawn evenly from 0.2 % to this.
        boilerplate: the share of documents with a line that their site repeats.
    """

    seed: int = 0
    exact: float = 0.1
    near: float = 0.1
    rate: float = 0.06
    boilerplate: float = 0.3


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


def jaccard(one: str, other: str, size: int = 5) -> float:
    """Of the sets of `size` words running."""
    a, b = (
        {tuple(words[n : n + size]) for n in range(max(1, len(words) - size + 1))}
        for words in (words_of(one), words_of(other))
    )
    return len(a & b) / max(1, len(a | b))


def babytext(part: str) -> Iterator[dict[str, Any]]:
    """The documents of a part of babytext, in order."""
    folder = Path(os.environ["MASKWRIGHT_DATA"]) / "text" / "babytext"
    for path in sorted(folder.glob(f"{part}*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


class Sites:
    """Sites with the lines that they repeat; a few are large, most are small."""

    def __init__(self, seed: int, words: list[str]) -> None:
        draw = Random(f"{seed} sites")
        self.names = [f"{draw.choice(words)}-{draw.choice(words)}.example" for _ in range(SITES)]
        self.weights = list(accumulate(1 / (n + 5) for n in range(SITES)))
        self.lines = [self._lines(draw, words, name) for name in self.names]

    @staticmethod
    def _lines(draw: Random, words: list[str], name: str) -> list[str]:
        menu = " | ".join(draw.choice(words).capitalize() for _ in range(draw.randint(4, 8)))
        topic = " ".join(draw.choice(words) for _ in range(4))
        return [
            f"Home | {menu}",
            f"Copyright {draw.randint(1999, 2026)} {name}. All rights reserved.",
            f"Subscribe to our newsletter about {topic} and never miss a story from {name}.",
            f"Share this page on {draw.choice(words).capitalize()} or by e-mail",
            f"Read more about {topic}",
        ]

    def draw(self, draw: Random) -> int:
        return bisect(self.weights, draw.random() * self.weights[-1])


class Text:
    """Real sentences to mix: their words, as parts that can stand in front or at the end."""

    def __init__(self, documents: Iterator[dict[str, Any]]) -> None:
        self.fronts: list[tuple[str, int]] = []  # each with its number of words
        self.backs: list[tuple[str, int]] = []
        seen = dict[str, None]()
        for document in documents:
            for line in document["text"].split("\n"):
                for sentence in SENTENCE.split(line.removeprefix("A: ").removeprefix("B: ")):
                    words = sentence.split()
                    if len(words) >= 8:
                        half = len(words) // 2
                        front, back = words[:half][:MOST], words[half:][-MOST:]
                        self.fronts.append((" ".join(front), len(front)))
                        self.backs.append((" ".join(back), len(back)))
                    seen.update(dict.fromkeys(w for w in words if w.isascii() and w.isalpha()))
        self.words = [word.lower() for word in seen if len(word) > 2]

    def paragraphs(self, draw: Random) -> list[str]:
        """Those of a new document: 40 to 5,000 words, half of them more than 300."""
        wanted = min(max(draw.lognormvariate(5.7, 0.9), 40), 5000)
        found, held, count, room = list[str](), list[str](), 0, draw.randint(40, 120)
        fronts, backs = len(self.fronts), len(self.backs)
        while count < wanted:
            front, first = self.fronts[int(draw.random() * fronts)]
            back, last = self.backs[int(draw.random() * backs)]
            held += (front, back)
            count += first + last
            room -= first + last
            if room < 0:
                found.append(" ".join(held))
                held, room = [], draw.randint(40, 120)
        return [*found, " ".join(held)] if held else found


def near_copy(text: str, draw: Random, words: list[str], rate: float) -> tuple[str, str, float]:
    """A copy that differs a little; how, and how much."""
    change = draw.choice(CHANGES)
    if change == "header":
        head = " ".join(draw.choice(words) for _ in range(draw.randint(4, 12)))
        return f"{head.capitalize()}\n{text}", change, 0.0
    if change == "case":
        return text.upper() if draw.random() < 0.3 else text.title(), change, 0.0
    if change == "order":
        lines = text.split("\n")
        first = draw.randrange(len(lines))
        return "\n".join(lines[first:] + lines[:first]), change, 0.0
    rate = draw.uniform(0.002, rate)
    changed = []
    for line in text.split("\n"):
        row = []
        for word in line.split(" "):
            chance = draw.random()
            if chance >= rate:
                row.append(word)
            elif chance < rate / 2:
                row.append(draw.choice(words))  # another word
            elif chance < rate * 0.75:
                row += [word, draw.choice(words)]  # one more; else one less
        changed.append(" ".join(row))
    return "\n".join(changed), change, rate


@dataclass
class Mixed:
    """The large corpus: document by number, each a function of the seed and the number."""

    dirt: Dirt
    text: Text
    sites: Sites

    def draw(self, number: int, purpose: str) -> Random:
        return Random(f"{self.dirt.seed} {purpose} {number}")

    def source(self, number: int) -> int | None:
        """The document that this one copies, or None."""
        draw = self.draw(number, "copy")
        if number == 0 or draw.random() >= self.dirt.exact + self.dirt.near:
            return None
        source = draw.randrange(number)
        while self.draw(source, "copy").random() < self.dirt.exact + self.dirt.near and source:
            source -= 1
        return source

    def document(self, number: int) -> Row:
        """A document, and the truth about it where it is a copy."""
        draw, source, before = self.draw(number, "dirt"), self.source(number), ""
        name, place, truth = f"d{number:08}", self.sites.draw(draw), None
        if source is None:
            text = "\n".join(self.text.paragraphs(self.draw(number, "text")))
        else:
            text = before = self.document(source)[0]["text"]
            truth = {"id": name, "of": f"d{source:08}", "change": "exact", "rate": 0.0}
            if draw.random() >= self.dirt.exact / (self.dirt.exact + self.dirt.near):
                text, change, rate = near_copy(text, draw, self.text.words, self.dirt.rate)
                truth |= {"change": change, "rate": round(rate, 4)}
        if (source is None or text is not before) and draw.random() < self.dirt.boilerplate:
            text = with_boilerplate(text, draw, self.sites.lines[place])
        if truth is not None:
            truth["jaccard"] = 1.0 if text == before else round(jaccard(before, text), 4)
        site = self.sites.names[place]
        url = f"https://{site}/{number}"
        return {"id": name, "text": text, "source": site, "url": url}, truth


def with_boilerplate(text: str, draw: Random, lines: list[str]) -> str:
    """The text with one to three of the lines before and behind it."""
    chosen = draw.sample(range(len(lines)), draw.randint(1, 3))
    head = [lines[n] for n in sorted(chosen) if n == 0]
    return "\n".join([*head, text, *(lines[n] for n in sorted(chosen) if n)])


def mixed(dirt: Dirt, text: Text, size: float) -> Iterator[Row]:
    """Documents of `size` bytes of text, with the truth about each."""
    made = Mixed(dirt, text, Sites(dirt.seed, text.words))
    number = written = 0
    while written < size:
        document, truth = made.document(number)
        written += len(document["text"].encode())
        number += 1
        yield document, truth


def dirty(dirt: Dirt, words: list[str]) -> Iterator[Row]:
    """babytext's train part with copies so that they are the stated shares of all documents, and
    boilerplate, in an order drawn anew."""
    draw, sites = Random(f"{dirt.seed} dirty"), Sites(dirt.seed, words)

    def site_lines(text: str) -> str:
        if draw.random() >= dirt.boilerplate:
            return text
        return with_boilerplate(text, draw, sites.lines[sites.draw(draw)])

    documents = [{**d, "text": site_lines(d["text"])} for d in babytext("train")]
    rows: list[Row] = [(d, None) for d in documents]
    share = dirt.exact + dirt.near
    copies = round(len(documents) * share / (1 - share))
    exact = round(copies * dirt.exact / share)
    for number in range(copies):
        of, name = draw.choice(documents), f"copy/{number}"
        text, truth = of["text"], {"id": name, "of": of["id"], "change": "exact", "rate": 0.0}
        truth["jaccard"] = 1.0
        if number >= exact:
            text, change, rate = near_copy(text, draw, words, dirt.rate)
            text = site_lines(text)
            same = round(jaccard(of["text"], text), 4)
            truth |= {"change": change, "rate": round(rate, 4), "jaccard": same}
        rows.append(({**of, "id": name, "text": text}, truth))
    draw.shuffle(rows)
    for document, truth in rows:
        yield {name: document[name] for name in ("id", "text", "source")}, truth


def write(
    out: Path,
    rows: Iterator[Row],
    dirt: Dirt,
    shard: float,
    about: dict[str, Any],
) -> dict[str, Any]:
    """Stream the documents into files of about `shard` bytes; the facts."""
    (out / "texts").mkdir(parents=True)
    facts: dict[str, Any] = {**about, **asdict(dirt), "documents": 0, "bytes": 0, "files": 0}
    facts["copies"] = {}
    file, held = None, 0
    with (out / "truth.jsonl").open("w", encoding="utf-8") as truths:
        for document, truth in rows:
            if file is None or held >= shard:
                file = _next(out, facts, file)
                held = 0
            line = json.dumps(document, ensure_ascii=False)
            size = len(document["text"].encode())
            file.write(line + "\n")
            held += size
            facts["documents"] += 1
            facts["bytes"] += size
            if truth is not None:
                truths.write(json.dumps(truth) + "\n")
                change = truth["change"]
                facts["copies"][change] = facts["copies"].get(change, 0) + 1
    if file is not None:
        file.close()
    (out / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def _next(out: Path, facts: dict[str, Any], before: TextIO | None) -> TextIO:
    if before is not None:
        before.close()
    facts["files"] += 1
    return (out / "texts" / f"{facts['files'] - 1:05}.jsonl").open("w", encoding="utf-8")


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--out", type=Path, required=True)
    read.add_argument("--bytes", type=float, default=50e6, help="of text")
    read.add_argument("--shard", type=float, default=64e6, help="bytes of text in a file")
    read.add_argument("--seed", type=int, default=0)
    read.add_argument("--exact", type=float, help="share of exact copies (0.1; dirty: 0.15)")
    read.add_argument("--near", type=float, help="share of near copies (0.1; dirty: 0.15)")
    read.add_argument("--rate", type=float, help="most words changed (0.06; dirty: 0.02)")
    read.add_argument("--boilerplate", type=float, help="share of documents (0.3; dirty: 0.5)")
    read.add_argument("--dirty", action="store_true", help="babytext as it is, made dirty")
    a = read.parse_args()
    usual = Dirt(exact=0.15, near=0.15, rate=0.02, boilerplate=0.5) if a.dirty else Dirt()
    given = {name: getattr(a, name) for name in ("exact", "near", "rate", "boilerplate")}
    given = {name: value for name, value in given.items() if value is not None}
    dirt = Dirt(**{**asdict(usual), **given, "seed": a.seed})
    text = Text(babytext("train"))
    rows = dirty(dirt, text.words) if a.dirty else mixed(dirt, text, a.bytes)
    facts = write(a.out, rows, dirt, a.shard, {"of": "babytext" if a.dirty else "mixed"})
    sites = Sites(dirt.seed, text.words)
    lines = "".join(line + "\n" for site in sites.lines for line in site)
    (a.out / "boilerplate.txt").write_text(lines, encoding="utf-8")
    if a.dirty:
        with (a.out / "held-out.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(d, ensure_ascii=False) + "\n" for d in babytext("valid"))
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
