"""Assign the files of a folder to train, validation and test, and read class names in files.

    train.csv, dev.csv, test.csv      train-00000-of-00002.parquet      my_set/train/part1.jsonl
    train/pos/1.txt, train/neg/1.txt, test/pos/1.txt, test/neg/1.txt
    labels.json   the names of the classes, also as a mapping

Files without a part form one table, which is divided later; if other files have a part, they are
not read, and a finding lists them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from maskwright.base.errors import DataError, UsageError
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus import parquet, saved
from maskwright.text.corpus.files import Source
from maskwright.text.tables.formats import class_folders
from maskwright.text.tables.raw_text import Names, is_of_names, read_names

ALL, TRAIN, VALIDATION, TEST = "all", "train", "validation", "test"
PARTS = (TRAIN, VALIDATION, TEST)
SPELLINGS = {
    **dict.fromkeys(("train", "training", "trn"), TRAIN),
    **dict.fromkeys(
        ("validation", "valid", "val", "dev", "development", "eval", "testa"), VALIDATION
    ),
    **dict.fromkeys(("test", "tst", "testing", "testb", "testc"), TEST),
}
WORD = re.compile(r"[A-Za-z]+")


def separate_class_names(
    sources: Sequence[Source],
) -> tuple[list[Source], dict[str, Names], list[str]]:
    """Return (the data files, class names by column from files such as `labels.json`, the names of
    these files).

    Raises:
        DataError: a file of class names holds none.
    """
    names: dict[str, Names] = {}
    files, names_files = [], []
    for source in sources:
        if len(sources) == 1 or not is_of_names(source):
            files.append(source)
        elif (file_names := read_names(source)) is None:
            files.append(source)  # holds rows despite its name
        elif file_names:
            names |= file_names
            names_files.append(source.shown)
    return files, names, names_files


def by_part(files: Sequence[Source], *, learned: bool = True) -> dict[str, list[Source]]:
    """Return the files of each part in the order train, validation, test; or all files as `all`.

    Args:
        learned: whether training data are required.

    Raises:
        UsageError: a name with two parts, no training data, a part in two formats.
    """
    sources_by_part: dict[str, list[Source]] = {}
    if texts := class_folders.in_folders(files, says_part):
        upper_folders = [source.path.parent.parent.name for source in texts]
        files, has_split_folders = texts, len(set(upper_folders)) > 1
        names = [_part_in_name(name) if has_split_folders else ALL for name in upper_folders]
    else:
        names = _parts_by_name(files)
    for source, split in zip(files, names, strict=True):
        sources_by_part.setdefault(split, []).append(source)
    if sources_by_part.keys() == {ALL}:
        return sources_by_part
    sources_by_part.pop(ALL, None)  # files without part may not be data, such as languages.json
    if learned and TRAIN not in sources_by_part:
        raise UsageError(
            "the folder has no training data",
            where=files[0].path.parent,
            found=", ".join(f"{split}: {s[0].path.name}" for split, s in sources_by_part.items()),
            wanted="a file whose name has the word train",
            do="rename the file, as train.csv; or name it alone: --data FILE",
        )
    for split, sources in sources_by_part.items():
        suffixes = Counter(source.suffix for source in sources)
        if len(suffixes) > 1:
            raise UsageError(
                "the folder has one part in two formats",
                where=files[0].path.parent,
                found=f"{split}: " + ", ".join(sorted(source.path.name for source in sources)),
                wanted="one of them",
                do="move what is not meant out of the folder",
            )
    return {split: sources_by_part[split] for split in PARTS if split in sources_by_part}


def _parts_by_name(files: Sequence[Source]) -> list[str]:
    """Return the part of each file by a word in its name; if no name has one, by its folder."""
    split_names = [_part_of(source) for source in files]
    if set(split_names) == {ALL}:
        return [SPELLINGS.get(source.path.parent.name.lower(), ALL) for source in files]
    return split_names


def _part_in_name(folder: str) -> str:
    """Return the part named by the last word of a folder, as in `20news-bydate-train`, or `ALL`."""
    words = WORD.findall(folder.lower())
    return SPELLINGS.get(words[-1], ALL) if words else ALL


def says_part(folder: str) -> bool:
    """Whether the name of a folder ends with that of a part."""
    return _part_in_name(folder) != ALL


def _part_of(source: Source) -> str:
    words = [w.lower() for w in WORD.findall(source.path.name)]
    split_names = {SPELLINGS[w] for w in words if w in SPELLINGS}
    if len(split_names) > 1:
        raise UsageError(
            "the file's name contains two parts",
            where=source.shown,
            found=" and ".join(sorted(split_names)),
            wanted="one of train, validation, test",
            do="rename the file, or move it out of the folder",
        )
    return split_names.pop() if split_names else ALL


def noted_names(source: Source) -> dict[str, Names]:
    """Return the class names by column in the metadata of a file of the datasets library."""
    names: dict[str, Names] = {}
    for name, feature in _features(source).items():
        # In a feature that is a list of classes, such as tags, the names are one level deeper.
        inner = feature[0] if type(feature) is list and len(feature) == 1 else feature
        inner = (inner.get("feature") or inner) if type(inner) is dict else {}
        if type(inner) is dict and type(inner.get("names")) is list:
            names[name] = dict(enumerate(map(str, inner["names"])))
    return names


def noted_languages(source: Source) -> dict[str, list[str]]:
    """Return the languages of each translation column, in the order in which they were written."""
    values = {
        name: feature.get("languages")
        for name, feature in _features(source).items()
        if type(feature) is dict and feature.get("_type") == "Translation"
    }
    return {
        name: list(map(str, languages))
        for name, languages in values.items()
        if type(languages) is list
    }


def _features(source: Source) -> dict[str, Any]:
    """Return the features that the datasets library stores for each column; empty if there are none
    or they cannot be read, as they are optional."""
    if source.format not in ("parquet", "arrow"):
        return {}
    metadata = parquet.metadata(source).get(b"huggingface")
    try:
        features = {} if metadata is None else parse(metadata.decode("utf-8"), source.shown)
        features = features["info"]["features"] if features else {}
    except (DataError, UnicodeDecodeError, KeyError, TypeError):
        features = {}  # a note that is not theirs
    if not features and source.format == "arrow":
        features = saved.info(source.path).get("features")
    return features if type(features) is dict else {}
