"""balance: remove documents of some domains, so that all domains have given shares.

The step repeats no document. To use a domain more often than its text allows, give it a weight in
pretraining, which repeats documents without copies on disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from maskwright.base.config import require
from maskwright.base.errors import ConfigError, Finding, near
from maskwright.text.curate.arrays.selection import (
    BALANCE,
    check_seed,
    draw_columns,
    drawn_order,
    fill_groups,
)
from maskwright.text.curate.step import (
    DOCUMENT,
    ArrowTable,
    CorpusHandle,
    CorpusStep,
    CurationBatch,
    Outcome,
    Removal,
    arrow_table,
    strings,
)
from maskwright.text.store import FloatArray, IntArray

SUMMARY = "brings domains to wanted shares: weights, a temperature, or caps"
NONE = "(none)"  # the domain of documents without a value in the column


@dataclass(frozen=True, kw_only=True)
class Settings(CorpusStep):
    column: str = "source"
    """The column whose values are the domains."""
    unit: Literal["words", "documents"] = "words"
    """What shares and caps count."""
    weights: dict[str, float] = field(default_factory=dict)
    """The wanted share of each domain, in any unit: {wiki = 3, web = 1} is three quarters to one.
    A weight of 0 removes a domain; every domain of the corpus needs one."""
    temperature: float | None = None
    """Shares are the corpus' own to the power of this: 1 leaves them, 0 makes all equal."""
    cap: int | None = None
    """The most words or documents of any domain."""
    caps: dict[str, int] = field(default_factory=dict)
    """The same for single domains; they go before `cap`."""
    keep: float | None = None
    """The share of the corpus that is kept even if small domains then stay below their shares;
    without it the shares are exact, and the scarcest domain limits all others."""
    seed: int = 0
    """Another seed draws other documents."""

    def check(self) -> None:
        if not (self.weights or self.temperature is not None or self.cap or self.caps):
            raise ConfigError(
                "nothing to balance by",
                where="weights",
                found="no weights, temperature or caps",
                wanted="one of weights and temperature, or caps",
                do="set temperature = 0.7, or leave the step out",
            )
        self.refuse_both("weights", "temperature")
        if any(not 0 <= w < np.inf for w in self.weights.values()) or (
            self.weights and not any(self.weights.values())
        ):
            raise ConfigError(
                "weights that are no shares",
                where="weights",
                found=self.weights,
                wanted="0 or more each, and one above 0",
                do="correct them",
            )
        if self.temperature is not None:
            require("temperature", self.temperature, 0, 1)
        for name, most in [("cap", self.cap), *((f"caps.{n}", c) for n, c in self.caps.items())]:
            if most is not None:
                require(name, most, 0)
        self.check_shares("keep", positive=True)
        if self.keep is not None and not self.weights and self.temperature is None:
            raise self.without_effect("keep", "without weights or a temperature")
        check_seed(self.seed)

    def count(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the domain and words of each document, and its place in a random order."""
        import pyarrow as pa

        # The names of the columns, in the row of the first document.
        names = [sorted(batch.notes), *[None] * (len(batch) - 1)][: len(batch)]
        return arrow_table(
            **draw_columns(batch, BALANCE, self.seed),
            domain=strings([v or NONE for v in batch.note(self.column)]),
            columns=pa.array(names, pa.list_(pa.string())),
        )

    def gather(self, corpus: CorpusHandle, opened: Any) -> ArrowTable:
        """Return the documents to remove, each with the limit of its domain (`wanted`).

        Raises:
            ConfigError: the corpus lacks a column or a domain, or a domain has no weight.
        """
        table = corpus.map("count", self.count).read()
        columns = {name for names in table.column("columns").to_pylist() for name in names or ()}
        if self.column not in columns:
            raise ConfigError(
                "no document has this column",
                where="balance.column",
                found=repr(self.column),
                wanted="one of " + ", ".join(sorted(columns)[:20]) if columns else "a column",
                do=near(self.column, columns) if columns else "leave the step out",
            )
        column = np.array(table.column("domain").to_pylist(), object).astype(str)
        distinct, groups = np.unique(column, return_inverse=True)
        domains = distinct.tolist()
        self._require_domains(domains)
        words = table.column("words").to_numpy()
        sizes = words if self.unit == "words" else np.ones(len(words), np.int64)
        totals = _sums(groups, sizes, len(domains))
        limits = self.targets(domains, totals)
        order = drawn_order(table)
        is_kept = fill_groups(order, sizes, groups, limits)
        self._say(corpus, domains, totals, _sums(groups[is_kept], sizes[is_kept], len(domains)))
        documents = table.column(DOCUMENT).to_numpy()
        return arrow_table(document=documents[~is_kept], wanted=np.floor(limits)[groups[~is_kept]])

    def targets(self, domains: list[str], totals: FloatArray) -> FloatArray:
        """Return (G,) the largest size to keep of each domain, given the sizes `totals`, (G,)."""
        caps = np.array([self.caps.get(d, self.cap) for d in domains], object)
        available = np.minimum(totals, np.array([np.inf if m is None else m for m in caps], float))
        if self.weights:
            shares = np.array([self.weights[d] for d in domains])
        elif self.temperature is not None:
            shares = np.where(totals > 0, totals, 0.0) ** self.temperature * (totals > 0)
        else:
            return available
        has_share = shares > 0
        if not (has_share & (totals > 0)).any():
            return np.zeros(len(domains))  # as where no document has a word
        scales = np.zeros(len(domains))
        scales[has_share] = available[has_share] / shares[has_share]
        scale = scales[has_share & (totals > 0)].min(initial=np.inf)
        if self.keep is not None:
            # The total of min(available, scale * share) is piecewise linear in `scale`: at each
            # corner another domain is used up.
            order = np.argsort(np.where(has_share, scales, np.inf), kind="stable")[
                : has_share.sum()
            ]
            corners = scales[order]
            used_up = np.cumsum(available[order])
            open_shares = shares.sum() - np.cumsum(shares[order])
            sums = np.maximum.accumulate(used_up + corners * open_shares)
            target = min(self.keep * totals.sum(), sums[-1])
            scale = max(scale, float(np.interp(target, [0, *sums], [0, *corners])))
        return np.where(has_share, np.minimum(available, scale * shares + 1e-6), 0.0)

    def _require_domains(self, domains: list[str]) -> None:
        """Refuse settings for unknown domains, and weights that lack a domain."""
        for setting, by_domain in (("weights", self.weights), ("caps", self.caps)):
            for name in by_domain:
                if name not in domains:
                    raise ConfigError(
                        f"no document is of this domain (column {self.column!r})",
                        where=f"balance.{setting}.{name}",
                        found=name,
                        wanted=", ".join(domains[:20]),
                        do=near(name, domains),
                    )
        if self.weights and (without := [d for d in domains if d not in self.weights]):
            raise ConfigError(
                "domains have no weight",
                where="balance.weights",
                found=", ".join(without[:10]),
                wanted="a weight for every domain; 0 removes it",
                do=f'add "{without[0]}" = 1 to weights',
            )

    def _say(
        self, corpus: CorpusHandle, domains: list[str], totals: FloatArray, remaining: FloatArray
    ) -> None:
        """Report how much of each domain is kept, with a warning where it is less than half."""
        sizes = zip(domains, remaining, totals, strict=True)
        lines = [f"{domain} {count:,.0f} of {total:,.0f}" for domain, count, total in sizes]
        listed = ", ".join(lines[:20]) + (", ..." if len(lines) > 20 else "")
        costly = not self.cap and not self.caps and remaining.sum() < 0.5 * totals.sum()
        corpus.say(
            Finding(
                "balance",
                f"balanced by {self.column}: {remaining.sum():,.0f} of {totals.sum():,.0f} "
                f"{self.unit} are kept",
                listed,
                "set `keep` to keep more, and give scarce domains a weight in pretraining, which "
                "repeats their text"
                if costly
                else "",
                severity="warning" if costly else "note",
            )
        )

    def apply(self, batch: CurationBatch, opened: Any, gathered: ArrowTable = None) -> Outcome:
        domains, removals = batch.note(self.column), []
        indices, limits = batch.indices_in(gathered).tolist(), gathered.column("wanted").to_pylist()
        for index, limit in zip(indices, limits, strict=True):
            allowed = f"at most {limit:,.0f} {self.unit} of it"
            removals.append(Removal(index, "balance", domains[index] or NONE, None, allowed))
        return Outcome(removals=removals)


def _sums(groups: IntArray, sizes: IntArray, count: int) -> FloatArray:
    return np.bincount(groups, sizes, count).astype(np.float64)
