"""A trained folder at work: it fills masks and writes on.

A folder is a model folder of any origin, or a run, which stands for its newest valid checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from maskwright.checkpoint import pretrained
from maskwright.checkpoint.layout import Taught
from maskwright.checkpoint.pretrained import Pretrained
from maskwright.errors import CheckpointError, IncompatibleError, UsageError
from maskwright.inference.decode import Sampling, generate, require_writer
from maskwright.inference.fill_mask import Candidate, Hole, fill
from maskwright.inference.gaps import Gapped, gapped, spelled
from maskwright.inference.spans import spans
from maskwright.models import folders, special_tokens
from maskwright.models.run_folder import is_run
from maskwright.models.special_tokens import opening
from maskwright.pretrain import objective_of as taught
from maskwright.pretrain.run import RECIPE
from maskwright.recipes.parts.find import read
from maskwright.report.say import Say, quiet
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.training.wordpiece import CONTINUATION
from maskwright.tokenizer.unknown import OTHER_MODEL
from maskwright.train.machine import machine


def open_model(folder: Path) -> tuple[Pretrained, Tokenizer]:
    """The model, on the best device, and the tokenizer in `folder`, which may be a run.

    Raises:
        IncompatibleError: the folder has no tokenizer.  CheckpointError and others: it is no model.
    """
    folder = folders.model_folder(folder)
    loaded = pretrained.load(folder)
    if loaded.tokenizer is None:
        raise IncompatibleError(
            "the folder has no tokenizer", where=folder, wanted="tokenizer.json"
        )
    loaded.model.to(machine.best_device())
    return loaded, loaded.tokenizer


def fill_mask(folder: Path | str, text: str, *, top: int = 5, say: Say = quiet) -> list[Hole]:
    """The likeliest `top` tokens for every mask in `text`, in its order; of a model that was taught
    to fill gaps (T5) the likeliest spans for every sentinel, such as <extra_id_0>, each behind the
    best for those before it.

    Args:
        say: is told when much of the text is unknown to the tokenizer.

    Raises:
        UsageError: there is no mask in the text.  IncompatibleError: the model fills none.
    """
    folder = Path(folder)
    loaded, tokenizer = open_model(folder)
    shift = _taught(folder, loaded).shift
    start = None
    if len(loaded.config.stacks) == 2 and tokenizer.sentinels and _taught(folder, loaded).decoder:
        if (given := gapped(tokenizer, text)) is not None:
            return _fill_gaps(folder, loaded, tokenizer, given, top)
        if tokenizer.mask is None:
            first = tokenizer.vocabulary[tokenizer.sentinels[0]]
            raise UsageError(
                "the text has no gap",
                where=text[:60],
                wanted=f"{first} where something is to be found",
                do=f"write {first} for the first gap, and so on",
            )
    if len(loaded.config.stacks) == 2 and tokenizer.mask is not None:
        start = _decoder_start(folder, loaded, tokenizer)
    holes = fill(
        loaded.model, tokenizer, [text], top=top, shift=shift, start=start, alone=start is None
    )[0]
    assert tokenizer.mask is not None  # or there were no holes
    sign = tokenizer.tokens([tokenizer.mask])[0]
    unknown = tokenizer.unknown_in(part for part in text.split(sign) if part)
    if note := unknown.note(OTHER_MODEL):
        say(note)
    if not unknown.unknown:
        return holes
    # What is unknown has no text among the ids: the user's own stands around the hole.
    parts = text.split(sign)
    return [
        _in_own_words(hole, sign.join(parts[:n]), sign.join(parts[n:]), tokenizer)
        for n, hole in enumerate(holes, start=1)
    ]


def _fill_gaps(
    folder: Path, loaded: Pretrained, tokenizer: Tokenizer, given: Gapped, top: int
) -> list[Hole]:
    """The likeliest spans for each gap; a candidate's `id` is the first of its span's."""
    if top < 1:
        raise UsageError("no candidate to show", where="top", found=top, wanted="1 or more")
    source, start = tokenizer.frame(given.ids)[0], _decoder_start(folder, loaded, tokenizer)
    _require_room(loaded, source, given.text)
    assert start is not None  # the decoder was taught
    end = special_tokens.vocabulary(tokenizer).end
    stops = {*tokenizer.sentinels, *(() if end is None else (end,))}
    rows = range(tokenizer.vocabulary_size, loaded.config.tokens.vocabulary)
    forbidden = {*tokenizer.special_ids, *rows} - stops
    written, holes = [start], []
    for sign in given.signs:
        number = tokenizer.id(sign)
        assert number is not None
        written.append(number)
        found = spans(loaded.model, source, written, stops, forbidden, top)
        words = [tokenizer.decode(list(each.ids)).strip() for each in found]
        holes.append(
            Hole(
                source.index(number),
                tuple(
                    Candidate(each.ids[0], word, each.probability, given.filled(sign, word))
                    for each, word in zip(found, words, strict=True)
                ),
            )
        )
        written += found[0].ids if found else ()
    return holes


def _require_room(loaded: Pretrained, source: list[int], text: str) -> None:
    longest = loaded.config.longest
    if longest is not None and len(source) > longest:
        raise UsageError(
            "the text is longer than the model reads",
            where=text[:60],
            found=f"{len(source)} tokens",
            wanted=f"at most {longest}",
            do="shorten the text around the gaps",
        )


def _in_own_words(hole: Hole, before: str, after: str, tokenizer: Tokenizer) -> Hole:
    """`hole` with the text before and after it, as it was given, around its candidates."""

    def text(candidate: Candidate) -> str:
        word = tokenizer.decode([candidate.id]).strip() or candidate.token
        if tokenizer.kind == "wordpiece" and word.startswith(CONTINUATION):
            return before.rstrip() + word.removeprefix(CONTINUATION) + after
        return before + word + after

    return replace(hole, candidates=tuple(replace(c, text=text(c)) for c in hole.candidates))


def generate_text(
    folder: Path | str,
    prompt: str,
    *,
    tokens: int = 100,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> str:
    """`prompt` and what the model writes after it; from two stacks, only what it makes of it. A
    prompt with sentinels, such as <extra_id_0>, is answered with them."""
    folder = Path(folder)
    loaded, tokenizer = open_model(folder)
    way = _taught(folder, loaded)
    require_writer(loaded.config, one_way=way.writes)
    reads = len(loaded.config.stacks) == 2
    given = gapped(tokenizer, prompt) if reads else None
    start, sources = tokenizer.encode(prompt) if given is None else given.ids, None
    if reads:
        sources, first = [tokenizer.frame(start)[0]], _decoder_start(folder, loaded, tokenizer)
        if first is None:
            raise IncompatibleError(
                "this model's decoder was never taught to write",
                where=folder / RECIPE,
                found="an objective that trains the encoder alone",
                do="use fill-mask",
            )
        start = [first, *(opening(tokenizer) if _writes_framed(folder) else [])]
    opened = [*opening(tokenizer), *start] if way.framed and not reads else start
    if not opened:
        if tokenizer.begin is None:
            raise UsageError(
                "this model's tokenizer has no token to begin with",
                found="no prompt",
                do="give it a text to go on with",
            )
        opened = start = [tokenizer.begin]
    end = special_tokens.vocabulary(tokenizer).end
    rows = range(tokenizer.vocabulary_size, loaded.config.tokens.vocabulary)
    allowed = {end} if given is None else {end, *tokenizer.sentinels}
    sampling = Sampling(
        temperature=temperature,
        top_k=top_k or None,
        top_p=top_p,
        seed=seed,
        forbidden=(*(i for i in tokenizer.special_ids if i not in allowed), *rows),
    )
    (made,) = generate(
        loaded.model,
        [opened],
        tokens,
        sampling,
        sources=sources,
        end=end,
        whole=way.whole,
        one_way=way.writes,
    )
    if given is not None:
        return spelled(tokenizer, made)
    return tokenizer.decode(made if reads else start + made)


def _taught(folder: Path, loaded: Pretrained) -> Taught:
    """How the model is to be asked: as its run says, or its config.json where it lies alone."""
    if not is_run(folder):
        return loaded.about.taught
    return taught.taught_of(read(folder / RECIPE), len(loaded.config.stacks))


def _decoder_start(folder: Path, loaded: Pretrained, tokenizer: Tokenizer) -> int | None:
    """What the decoder of a folder of two stacks begins with: in a run the token of its objective,
    and None where that leaves the decoder as it was; elsewhere what config.json says."""
    if is_run(folder):
        role = taught.decoder_start(read(folder / RECIPE))
        if role is None:
            return None
        known = special_tokens.vocabulary(tokenizer)
        found: int | None = {"pad": known.pad, "begin": known.begin, "end": known.end}[role]
        return found
    if not loaded.about.taught.decoder:
        return None
    token = loaded.extra.get("decoder_start_token_id")
    if type(token) is not int or not 0 <= token < loaded.config.tokens.vocabulary:
        raise CheckpointError(
            "the folder does not say what its decoder begins with",
            where="config.json: decoder_start_token_id",
            found=repr(token),
            wanted="the id of a token",
        )
    return token


def _writes_framed(folder: Path) -> bool:
    """Whether texts for the decoder had their frame in training, so that none began with a word.

    A run knows; what comes from elsewhere was taught with its tokenizer's frame, by custom.
    """
    if not is_run(folder):
        return True
    recipe = read(folder / RECIPE)
    return recipe.objective.name == "denoising" and taught.row_kind(recipe) in taught.FRAMED
