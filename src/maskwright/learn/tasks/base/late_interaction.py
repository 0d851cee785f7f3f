"""Late interaction: a vector of each token, and how two texts are compared by them.

    score(query, document) = Σ_i max_j q_i · d_j    Khattab & Zaharia 2020 (arXiv:2004.12832), 3.3

Folders are those of MultiVectorEncoder of sentence-transformers: Transformer, MultiVectorMask, and
Dense, LayerNorm, Dropout and Normalize of tokens. Queries and documents have prompts and lengths of
their own. A query may be expanded by mask tokens, whose vectors count (section 3.2); "attend" says
whether other tokens see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from maskwright.base.errors import CheckpointError, Finding
from maskwright.learn.tasks.base import sentence_transformers_folder as folder_settings
from maskwright.learn.tasks.base.encode import Cuts, fit
from maskwright.learn.tasks.embeddings import lowered
from maskwright.model.checkpoint.safe_read import around, modules_of, read_json
from maskwright.model.inference.prepared import Prepared, finite
from maskwright.model.inference.scores import hidden
from maskwright.model.nn.mask import real
from maskwright.text.tokenizer.tokenizer import Tokenizer

MULTI_VECTOR = "MultiVectorEncoder"
Role = Literal["query", "document"]
ROLES: tuple[Role, ...] = ("query", "document")
SIMILARITIES = ("maxsim", "meanmaxsim")


@dataclass(frozen=True)
class TokenRow:
    """The ids of a text; those from `num_text` on expand it. `cut`: tokens that were cut."""

    ids: list[int]
    num_text: int
    cut: int


@dataclass(frozen=True, kw_only=True)
class LateInteraction:
    """How a folder makes and compares vectors of tokens.

    Attributes:
        prompts, lengths: the prefix and the maximum number of tokens of a text, by role.
        lower, keeps_end: as in `SentenceFolder`.
        expansion: `strategy` ("fixed" or "min"), `length`, `token` and `attend` of the query
            expansion; empty if there is none.
        skipped: ids of tokens without vectors, by role; `only`: those of documents with one.
        top: the modules behind the network.
        mean: whether a score is divided by the number of vectors of the query.
    """

    tokenizer: Tokenizer
    prompts: dict[str, str]
    lengths: dict[str, int]
    lower: bool
    keeps_end: bool
    expansion: dict[str, Any]
    skipped: dict[str, list[int]]
    only: list[int]
    top: nn.Module = field(repr=False)
    mean: bool

    def encode(
        self, texts: Sequence[str], role: Role, *, keeps_end: bool = False
    ) -> list[TokenRow]:
        """Encode texts, which are truncated to the length of the role, as the folder says or with
        `keeps_end` at their beginning."""
        prompted = [self.prompts[role] + text for text in texts]
        if self.lower:
            prompted = [lowered(text, self.tokenizer) for text in prompted]
        keep: Literal["tail", "head"] = "tail" if self.keeps_end or keeps_end else "head"
        floor = self.expansion.get("length", 0) if role == "query" else 0
        rows = []
        for ids in self.tokenizer.encode_batch(prompted):
            row = fit(self.tokenizer, ids.tolist(), self.lengths[role], keep)
            filling = [self.expansion["token"]] * (floor - len(row)) if floor else []
            rows.append(TokenRow([*row.tokens, *filling], len(row), row.cut))
        return rows

    def findings(self, rows: Sequence[TokenRow], role: Role) -> tuple[Finding, ...]:
        """Return a finding that texts were truncated; empty if none was."""
        lengths, cut = [row.num_text + row.cut for row in rows], [row.cut for row in rows]
        return Cuts.of(lengths, cut).findings(self.lengths[role], "texts")

    @torch.inference_mode()
    def vectors(
        self, network: Prepared, rows: Sequence[TokenRow], role: Role
    ) -> list[NDArray[np.float32]]:
        """Return the vectors (T, D) of the tokens of each row, without those that do not count.

        Raises:
            CheckpointError: a vector is not finite.
        """
        if role == "query" and self.expansion and not self.expansion.get("attend"):
            states = [_unattended(network, row) for row in rows]
        else:
            states = hidden(network, [row.ids for row in rows])
        vectors = []
        for row, row_states in zip(rows, states, strict=True):
            counts = ~np.isin(row.ids, self.skipped[role])
            if self.only and role == "document":
                counts &= np.isin(row.ids, self.only)
            chosen = row_states[torch.from_numpy(counts).to(network.device)].float()
            vectors.append(finite(self.top.to(network.device)(chosen)).cpu().numpy())
        return vectors

    def score(self, query: NDArray[np.float32], document: NDArray[np.float32]) -> float:
        """Return the similarity of vectors (T, D) of a query and (S, D) of a document."""
        best = (query.astype(np.float64) @ document.astype(np.float64).T).max(1, initial=-np.inf)
        return float(best.mean() if self.mean else best.sum())


def _unattended(network: Prepared, row: TokenRow) -> Tensor:
    """Return the states (T, D) of a row whose expansion is not seen by any token."""
    seen = torch.arange(len(row.ids), device=network.device)[None] < row.num_text
    tokens = torch.tensor([row.ids], device=network.device)
    return network.encode(tokens, visible=real(seen))[0]


def read(path: Path, tokenizer: Tokenizer, width: int, longest: int) -> LateInteraction | None:
    """Read the settings around the model in `path`, of this `width` and number of positions; None
    if it is no multi-vector encoder.

    Raises:
        CheckpointError, IncompatibleError: as `sentence_transformers_folder.read`.
    """
    folder = around(path)
    modules, about = modules_of(folder), folder_settings.about_of(folder)
    if not modules or about.get("model_type") != MULTI_VECTOR:
        return None
    settings = folder_settings.token_settings(folder, path, modules[0])
    masks = [module for module in modules if module.name == "MultiVectorMask"]
    others = [module for module in modules[1:] if module not in masks]
    mask = read_json(folder / masks[0].path, "config.json") if masks else {}
    folder_settings.require_choice_of_folder(
        folder, "similarity_fn_name", about.get("similarity_fn_name"), SIMILARITIES
    )
    expansion = settings.get("query_expansion") or {}
    counts: dict[str, Any] = {
        name: settings[name]
        for name in ("query_length", "document_length")
        if settings.get(name) is not None
    }
    if expansion:
        token, usual = expansion.get("token"), tokenizer.mask
        usual = tokenizer.end if usual is None else usual
        expansion = {**expansion, "token": usual if token is None else tokenizer.id(str(token))}
        counts["query_expansion"] = expansion.get("length")
    is_sound = (
        expansion.get("strategy") in (None, "fixed", "min") and None not in expansion.values()
    )
    if not is_sound or not all(type(count) is int and count > 2 for count in counts.values()):
        raise CheckpointError(
            "lengths or an expansion of queries that cannot be followed",
            where=f"{folder / modules[0].path / 'sentence_bert_config.json'}",
            found=f"{counts} {expansion}"[:200],
            wanted="numbers of tokens; the strategy fixed or min, and a token of the vocabulary",
        )
    if expansion.get("strategy") == "fixed":
        counts["query_length"] = expansion["length"]
    length = settings["length"] or longest
    lengths: dict[str, int] = {
        role: min(counts.get(f"{role}_length", length), longest) for role in ROLES
    }
    prompts = about.get("prompts") or {}
    words = [tokenizer.id(str(word)) for word in mask.get("skiplist_words") or ()]
    skip_ids = [i for i in words if i is not None and i != tokenizer.unknown]
    skip_roles = mask.get("skiplist_tasks") or ["document"]
    return LateInteraction(
        tokenizer=tokenizer.as_declared(),
        prompts={role: prompts.get(role) or "" for role in ROLES},
        lengths=lengths,
        lower=settings["lower"],
        keeps_end=settings["keeps_end"],
        expansion=expansion,
        skipped={role: skip_ids if role in skip_roles else [] for role in ROLES},
        only=list(mask.get("keep_only_token_ids") or ()),
        top=folder_settings.built(folder, others, width, folder_settings.TOKENS),
        mean=about.get("similarity_fn_name") == "meanmaxsim",
    )
