"""Hybrid rows: which kind each is, what is read, what is predicted from where."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from inference.written import generate
from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.inference.held_out_loss import evaluate, evaluation_batches
from maskwright.model.nn import mask
from maskwright.model.nn.mask import AttentionMask, causal
from maskwright.model.objectives.masked import Options as Masking
from maskwright.model.objectives.modules.hybrid import Hybrid
from objectives.by_hand import corrupted, framed, make, of, rows_of
from toys import CLS, PAD, SEP, VOCABULARY, FixedRows, bert, gpt2


def hybrid(**options: object) -> Hybrid:
    return make("hybrid", bert(), **options).eval()


def by_hand() -> tuple[Hybrid, Batch]:
    line = [CLS, 10, 11, SEP, CLS, 12, 13, 14, SEP, PAD]
    made = hybrid(causal_share=0.5, masking=Masking(rate=1.0, mask_rate=1.0, random_rate=0.0))
    return made, corrupted(made, rows_of(*[line] * 16))


def test_rows_by_hand() -> None:
    _, batch = by_hand()
    kinds = set()
    for row, prefix in enumerate(batch.prefix.tolist()):
        mine = (batch.index // 10) == row
        places = (batch.index[mine] % 10).tolist()
        targets = batch.targets[mine].tolist()
        read = batch.tokens[row].tolist()
        if prefix == 0:
            assert read == [CLS, 10, 11, SEP, CLS, 12, 13, 14, SEP, PAD]
            # Never the CLS of the second document, which nothing of the first foretells.
            assert places == [0, 1, 2, 4, 5, 6, 7]
            assert targets == [10, 11, SEP, 12, 13, 14, SEP]
        else:
            m = VOCABULARY.mask
            assert prefix == 10 and read == [CLS, m, m, SEP, CLS, m, m, m, SEP, PAD]
            assert places == [0, 1, 4, 5, 6] and targets == [10, 11, 12, 13, 14]
        kinds.add(prefix)
    assert kinds == {0, 10}


def test_shares_and_counts() -> None:
    rows = framed(4000, 12)
    made = hybrid()
    batch = corrupted(made, rows)
    share = float((batch.prefix == 0).float().mean())
    assert abs(share - 1 / 16) < 4 * np.sqrt(1 / 16 * 15 / 16 / 4000)
    causal_rows = int((batch.prefix == 0).sum())
    assert made.counts(batch) == {"masked": 2 * (4000 - causal_rows), "causal": 11 * causal_rows}


def test_a_token_without_one_before_it_is_never_masked() -> None:
    rows = rows_of(*np.random.default_rng(0).integers(5, 50, (50, 12)).tolist())
    rows.documents[:, :6], rows.documents[:, 6:] = 1, 2
    made = hybrid(causal_share=0.5, masking=Masking(rate=1.0, mask_rate=1.0, random_rate=0.0))
    batch = corrupted(made, rows)
    assert set((batch.index % 12).tolist()) == {0, 1, 2, 3, 4, 6, 7, 8, 9, 10}


def test_the_same_weights_are_scored_both_ways() -> None:
    made = hybrid(causal_share=0.25)
    batch = corrupted(made, framed(24, 16))
    model = made.product
    both_ways = {"causal": (batch.prefix == 0, causal), "masked": (batch.prefix != 0, None)}
    loss = made(batch)

    def total(name: str, visible: AttentionMask | None) -> float:
        rows_of_kind, _ = both_ways[name]
        logits = model.logits(model.encode(batch.tokens[rows_of_kind], visible=visible))
        wanted = torch.full((24, 16), -100)
        wanted.view(-1)[batch.index] = batch.targets
        flat, targets = logits.flatten(0, 1), wanted[rows_of_kind].flatten()
        return functional.cross_entropy(flat, targets, reduction="sum").item()

    for name, (_, visible) in both_ways.items():
        part = loss.parts[name].total.item()
        assert part == pytest.approx(total(name, visible), rel=1e-5)
        assert loss.parts[name].weight == {"masked": 0.75, "causal": 0.25}[name]
        # The control: read the other way, the same weights say something else.
        other = causal if visible is None else None
        assert part != pytest.approx(total(name, other), rel=1e-6)


def test_z_loss_is_part_of_both_losses() -> None:
    plain, kept = (hybrid(causal_share=0.25, z_loss=z) for z in (0.0, 0.01))
    kept.load_state_dict(plain.state_dict())
    batch = corrupted(plain, framed(16, 16))
    model = plain.product
    scores = model.logits(plain.target_states(batch))
    penalty = 0.01 * scores.logsumexp(-1).square().sum()
    both = [sum(float(p.total.detach()) for p in m(batch).parts.values()) for m in (plain, kept)]
    assert both[1] - both[0] == pytest.approx(float(penalty.detach()), rel=1e-3)


def test_refusals() -> None:
    config = bert().config
    block = config.encoder.blocks[0]
    one_way = replace(block, attention=replace(block.attention, pattern="causal"))
    mixed = replace(config, encoder=replace(config.encoder, blocks=(block, one_way)))
    for where, network in {"model": gpt2(), "encoder.blocks.1.attention": of(mixed)}.items():
        with pytest.raises(IncompatibleError) as refused:
            make("hybrid", network)
        assert refused.value.where == where


def test_held_out_losses_of_the_two_sorts_add_up_to_the_whole() -> None:
    made, batch = by_hand()
    sorts = made.sorts(batch)
    assert set(sorts) == {"masked", "causal"} and (sorts["masked"] ^ sorts["causal"]).all()
    source = FixedRows()
    found = evaluate(hybrid(causal_share=0.5), source, rows=64)
    assert set(found.sorts) == {"masked", "causal"}
    counts = {"masked": 0, "causal": 0}
    for batch in evaluation_batches(hybrid(causal_share=0.5), source, 64, 32):
        counts = {name: counts[name] + n for name, n in made.counts(batch).items()}
    parts = sum(found.sorts[name] * n for name, n in counts.items())
    assert parts / sum(counts.values()) == pytest.approx(found.loss, rel=1e-6)
    assert found.to_json()["sorts"] == found.sorts
    plain = make("masked", bert()).eval()
    assert not evaluate(plain, source, rows=64).sorts
    assert "sorts" not in evaluate(plain, source, rows=64).to_json()


@pytest.mark.parametrize("seen", [False, True])
def test_an_encoder_that_was_taught_so_writes_as_it_was_trained(seen: bool) -> None:
    made = hybrid()
    network = made.product.eval()
    start = [CLS, 10, 11]
    (told,) = generate(network, [start], 4, one_way=True, bidirectional_prefix=seen)
    text = list(start)
    for token in told:
        order = causal | mask.prefix(torch.tensor([3])) if seen else causal
        hidden = network.encode(torch.tensor([text]), visible=order)
        assert int(network.logits(hidden[:, -1]).argmax()) == token
        text.append(token)
    both = generate(network, [start, [CLS, 12]], 4, one_way=True, bidirectional_prefix=seen)
    assert both[0] == told  # shorter texts beside it change nothing
    with pytest.raises(IncompatibleError):
        generate(network, [start], 1)
