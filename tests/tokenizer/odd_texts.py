"""Odd strings, made by a seeded generator: what tokenizers stumble over."""

from __future__ import annotations

import random

SPECIALS = [
    *("[MASK]", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "<s>", "</s>", "<mask>", "<pad>", "<unk>"),
    *("<|endoftext|>", "</w>", "##ing", "Ġthe", "▁the", "<extra_id_0>", "[unused1]"),
]
ALPHABETS = {
    "latin": "abcdefghijklmnopqrstuvwxyzABCXYZ",
    "accents": "éèüßñçøåŁžÀİıſ",
    "marks": "\u0301\u0308\u0323\u20dd\u0b3c\u3099",
    "greek": "αβγδεΣς",
    "hebrew": "שלום\u05b4\u200f",
    "arabic": "مرحبا\u0651\u202b",
    "cjk": "漢字仮名交じり文한국어𠀀",
    "thai": "ภาษาไทย",
    "emoji": "😀👩‍👩‍👧‍👦🏳️‍🌈👍🏽🇩🇪\ufe0f\u200d",
    "digits": "0123456789٣४Ⅷ½",
    "punctuation": ".,;:!?'\"()[]{}<>/\\|@#$%^&*_-+=~`¿«»„“”‘’–—…・。、",
    "symbols": "€£©®™°±×÷→∑√∞≠␣",
    "controls": "\x00\x01\x07\x08\x0b\x1b\x7f\x85\u200b\u2028\ufeff\ufffd\ufffe",
    "spaces": " \t\n\r\u00a0\u2003\u3000",
    "ligatures": "ﬁﬃǅ㎏ﷺ①Å",
}


def odd_texts(count: int = 500, seed: int = 0) -> list[str]:
    """`count` strings; the first are the classic ones, the others mixtures."""
    rng = random.Random(seed)
    texts = ["", " ", "  \n\t ", "a" * 5000, "." * 300, "é" * 400, "\u0301" * 200, "😀" * 100]
    texts += ["A  b   c", " leading", "trailing ", "don't won't 'tis", "x\r\ny\rz", "1234567890"]
    texts += SPECIALS
    texts += [f"a{token}b {token} {token}{token}" for token in SPECIALS]
    names = sorted(ALPHABETS)
    while len(texts) < count:
        parts = []
        for _ in range(rng.randint(1, 8)):
            choice = rng.random()
            if choice < 0.12:
                parts.append(rng.choice(SPECIALS))
            elif choice < 0.3:
                parts.append(rng.choice(ALPHABETS["spaces"]) * rng.randint(1, 6))
            else:
                letters = ALPHABETS[rng.choice(names)]
                size = rng.choice([1, 2, 3, 5, 8, 13, 150])
                parts.append("".join(rng.choice(letters) for _ in range(size)))
        texts.append("".join(parts))
    return texts[:count]
