"""Real texts in MASKWRIGHT_DATA: what was planted in the dirty ones is found, and little else."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.in_process import batch_of, removed, run
from maskwright.ask.curate.steps import perplexity
from maskwright.text.curate.personal_data import TYPES, details_of
from maskwright.text.curate.step import CurationBatch
from maskwright.text.curate.steps import gibberish, gopher_quality, gopher_repetition, language

Truth = dict[str, dict[str, Any]]  # what was planted, by the id of a document


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def crawl(real_data: Path) -> tuple[CurationBatch, Truth]:
    folder = real_data / "webcrawl"
    if not folder.is_dir():
        pytest.skip("no webcrawl in MASKWRIGHT_DATA")
    documents, truth = rows_of(folder / "docs.jsonl.gz"), rows_of(folder / "truth.jsonl.gz")
    ids, texts = ([document[key] for document in documents] for key in ("id", "text"))
    return CurationBatch(np.arange(len(ids)), ids, texts), {row["id"]: row for row in truth}


def test_planted_gibberish(crawl: tuple[CurationBatch, Truth], real_data: Path) -> None:
    batch, truth = crawl
    kinds = np.array([truth[name]["kind"] for name in batch.ids])
    judged = np.isin(kinds, ("clean", "gibberish"))
    step = perplexity.Settings(good=(str(real_data / "text/babytext/valid.jsonl.gz"),))
    gone = run(step, [batch.take(judged)])[0].measures[0].outside
    planted = kinds[judged] == "gibberish"
    assert gone[planted].mean() > 0.9
    assert gone[~planted].mean() < 0.01


def test_planted_personal_details(crawl: tuple[CurationBatch, Truth]) -> None:
    batch, truth = crawl
    planted = {
        (n, *detail)
        for n, name in enumerate(batch.ids)
        for detail in truth[name].get("pii", ())
        if not detail[1].startswith("192.0.2.")  # addresses of documentation, which stay
    }
    texts, details = batch.texts, details_of(batch.texts, TYPES)
    masked = {(d.text, d.type, texts[d.text][d.begin : d.end], d.begin) for d in details}
    hits = len(planted & masked)
    assert hits / len(planted) >= 0.98 and hits / len(masked) >= 0.98
    shifted = {(n, name, value, begin + 1) for n, name, value, begin in planted}
    assert not shifted & masked  # the control
    assert len(np.unique([n for n, *_ in masked])) >= 30


def test_planted_second_languages(crawl: tuple[CurationBatch, Truth]) -> None:
    pytest.importorskip("py3langid")
    batch, truth = crawl
    languages = np.array([truth[name]["lang"] for name in batch.ids])
    decided = languages != "und"
    shares = language.identify(batch.take(decided).texts, language.Settings().open(), 8)
    mixed = languages[decided] == "mixed"
    assert (shares.other_shares[mixed] >= 0.1).mean() > 0.9
    assert (shares.other_shares[~mixed] >= 0.1).mean() < 0.002


def test_languages_of_labelled_passages(real_data: Path) -> None:
    pytest.importorskip("py3langid")
    model = language.Settings().open()
    rows = rows_of(real_data / "labelled/udhr_langid/validation.jsonl.gz")
    # A kept language keeps its own, twins included, and short ones, and no others.
    for label, code, twin in (("ind", "id", "ms"), ("hrv", "hr", "bs")):
        own = np.array([row["label_name"] == label for row in rows])
        for most in (50, 10_000):
            texts = [row["text"][:most] for row in rows]
            codes = language.identify(texts, model, 8, (code,)).codes
            is_code = np.array([found == code for found in codes])
            assert is_code[own].mean() > 0.9 and is_code[~own].mean() < 0.02
            of_language = [texts[n] for n in np.flatnonzero(own)]
            assert twin in language.identify(of_language, model, 8).codes
    names = {"eng": "en", "fra": "fr", "deu": "de", "fin": "fi", "hun": "hu", "ell": "el"}
    rows = [row for row in rows if row["label_name"] in names]
    codes = np.array(language.identify([row["text"] for row in rows], model, 8).codes)
    labels = np.array([names[row["label_name"]] for row in rows])
    assert (labels == codes).mean() > 0.98
    assert (labels[9:] == codes[:-9]).mean() < 0.9  # the control


def test_good_texts_of_any_script_stay_and_repetition_in_each_is_found(real_data: Path) -> None:
    by_language = defaultdict[str, list[str]](list)
    for row in rows_of(real_data / "labelled/udhr_langid/test.jsonl.gz"):
        by_language[row["label_name"]].append(row["text"])
    texts = ["\n".join(rows[:6]) for rows in by_language.values()]
    quality = gopher_quality.Settings(languages=(), min_doc_words=15, min_avg_word_length=2.5)
    repetition = gopher_repetition.Settings()
    for step in (quality, repetition, gibberish.Settings()):
        assert removed(step, [batch_of(texts, language=list(by_language))]) == {}
    repeated = [" ".join(text[:120] for _ in range(5)) for text in texts]
    assert len(removed(repetition, [batch_of(repeated)])) == len(by_language)
