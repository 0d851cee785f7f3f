"""Languages: the library's own answers, second languages, and texts of which none is said."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from curate.in_process import batch_of, removed, run
from maskwright.base.errors import ConfigError, DataError, UsageError
from maskwright.text.curate.arrays.segmentation import passages_of
from maskwright.text.curate.steps.language import NaiveBayes, Settings, identify

pytest.importorskip("py3langid")

TEXTS = {
    "en": "The river had risen in the night, and by the morning the lower fields were under water. "
    "Nobody in the village was surprised, for it came every spring; they took the sheep up the "
    "hill and waited for the wind to turn.",
    "de": "Der Fluss war in der Nacht gestiegen, und am Morgen standen die unteren Felder unter "
    "Wasser. Niemand im Dorf wunderte sich darüber, denn es geschah in jedem Frühjahr; man trieb "
    "die Schafe auf den Hügel und wartete, bis der Wind sich drehte.",
    "fr": "La rivière était montée pendant la nuit et, au matin, les champs du bas étaient sous "
    "l'eau. Personne au village ne s'en étonnait, car cela arrivait chaque printemps ; on mena les "
    "moutons sur la colline et l'on attendit que le vent tourne.",
    "ru": "За ночь река поднялась, и к утру нижние поля оказались под водой. Никто в деревне не "
    "удивился, потому что так бывало каждую весну; овец увели на холм и стали ждать, пока ветер "
    "переменится.",
    "zh": "夜里河水上涨,到了早晨,低处的田地都被水淹没了。村里没有人感到惊讶,因为每年春天都会这样;"
    "人们把羊赶到山上,等待风向改变。老人们说,今年的水比往年来得更早一些。",
    "tr": "Gece boyunca nehir yükselmişti ve sabah olduğunda aşağıdaki tarlalar su altındaydı. "
    "Köyde kimse buna şaşırmadı, çünkü her ilkbaharda böyle olurdu; koyunları tepeye çıkardılar ve "
    "rüzgârın dönmesini beklediler.",
}


@pytest.fixture(scope="module")
def model() -> NaiveBayes:
    opened = Settings().open()
    assert isinstance(opened, NaiveBayes)
    return opened


def test_languages_are_noted_where_there_are_any() -> None:
    short = ["Ok, fine then", "1914, 1918 (!)", "是的"]
    (outcome,) = run(Settings(), [batch_of([*TEXTS.values(), *short])])
    assert list(outcome.notes["language"]) == [*TEXTS, "und", "zxx", "und"]
    probabilities = list(outcome.notes["language_probability"])
    assert all(float(p or 0) > 0.9 for p in probabilities[:6]) and probabilities[6:] == [None] * 3
    assert not outcome.removals and not outcome.measures and outcome.texts is None


def test_the_answers_are_those_of_the_library(model: NaiveBayes) -> None:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    library = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    texts = [t[:n] for t in TEXTS.values() for n in (60, 120, 240)] + ["A SHIP WAS SEEN FROM SHORE"]
    found = identify(texts, model, 8)
    for text, code, probability in zip(texts, found.codes, found.probabilities, strict=True):
        name, expected = library.classify(text)
        assert code == name and probability == pytest.approx(expected, abs=2e-3)
    # The control: a walk that forgets too early gives other scores.
    passages, _ = passages_of(texts, 8)
    forgetful = NaiveBayes(**{**vars(model), "depth": 1})
    assert np.abs(forgetful.scores(passages) - model.scores(passages)).max() > 1
    raw = np.array([library._raw_score(p) for p in passages]) - model.priors
    assert np.abs(raw - model.scores(passages)).max() < 0.05


def test_languages_that_are_not_kept_are_removed() -> None:
    batch = batch_of([*TEXTS.values(), "Ok, 12!", "12:30 --- 99"])
    gone = removed(Settings(keep=("en", "de")), [batch])
    assert gone == dict.fromkeys(("d2", "d3", "d4", "d5"), "language")
    strict = removed(Settings(keep=("en", "de"), keep_undecided=False), [batch])
    assert set(strict) - set(gone) == {"d6", "d7"}


def test_a_second_language_is_found_and_removed() -> None:
    english = "\n".join([TEXTS["en"]] * 2)
    mixed = f"{english}\n{TEXTS['tr']}"
    batch = batch_of([english, mixed, TEXTS["tr"], f"{english} He said: danke schön, mein Herr."])
    (outcome,) = run(Settings(most_other=0.2), [batch])
    none, second, *others = outcome.notes["second_language"]
    assert none is None and others == [None, None] and str(second).startswith("tr 0.3")
    assert removed(Settings(most_other=0.2), [batch]) == {"d1": "other_language_share"}
    assert removed(Settings(most_other=0.5), [batch]) == {}
    both = Settings(keep=("en", "tr"), most_other=0.2)
    assert removed(both, [batch]) == {}  # a wanted language is no other


def test_a_probability_too_low_is_removed() -> None:
    unclear = "Die hand is in water. Die man is in die bed."
    batch = batch_of([TEXTS["en"], unclear])
    found = identify(batch.texts, Settings().open(), 8)
    step = Settings(keep=("en", found.codes[1]), least=float(found.probabilities[1]) + 0.001)
    assert removed(step, [batch]) == {"d1": "language_probability"}


def test_passages_are_the_text_and_end_at_lines() -> None:
    lines = [f"Line {n} of the text, with some words in it.\n" * (n % 3 + 1) for n in range(40)]
    texts = ["".join(lines), "x" * 5000, "short", "日本語" * 900, "word " * 2000]
    passages, owners = passages_of(texts, 10_000)
    assert max(map(len, passages)) <= 700
    for n, text in enumerate(texts):
        of_text = [p for p, owner in zip(passages, owners, strict=True) if owner == n]
        assert "".join(p.decode() for p in of_text) == text  # no character is cut
        assert n > 0 or all(p.endswith(b"\n") for p in of_text)
    few, owners = passages_of(texts, 4)
    assert np.bincount(owners).tolist() == [4, 4, 1, 4, 4]
    assert few[0] == passages[0] and set(few) <= set(passages)


LABELS = ["__label__en", "__label__deu_Latn"]


def predict(texts: list[str], k: int) -> tuple[list[list[str]], list[list[float]]]:
    """Labels and probabilities as fastText gives them, the best first."""
    german = [" der " in text or " und " in text for text in texts]
    return [LABELS[:: -1 if g else 1] for g in german], [[0.98, 0.02]] * len(texts)


def test_a_model_of_fasttext(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = types.SimpleNamespace(get_labels=lambda: LABELS, predict=predict)
    library = types.SimpleNamespace(load_model=lambda name: fake)
    path = tmp_path / "lid.ftz"
    step = Settings(model=f"fasttext:{path}", keep=("en",))
    with pytest.raises(UsageError, match=r"lid\.ftz"):
        step.open()
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "fasttext", None)
    with pytest.raises(UsageError, match="install fasttext"):
        step.open()
    monkeypatch.setitem(sys.modules, "fasttext", library)
    assert removed(step, [batch_of([TEXTS["en"], TEXTS["de"]])]) == {"d1": "language"}
    assert step.files() == (path,)

    library.load_model = Mock(side_effect=ValueError("bad magic"))
    with pytest.raises(DataError, match="bad magic"):
        step.open()


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ConfigError, match="'eng'") as refusal:
        Settings(keep=("eng",)).open()
    assert "'en'" in str(refusal.value.do)
