"""What a token of a run costs in floating-point operations, to count a budget in them."""

from __future__ import annotations

from dataclasses import replace

from maskwright.inference import held_out_loss as likelihood
from maskwright.objectives.parts.objective import Objective
from maskwright.pretrain import build
from maskwright.pretrain.prepare import Prepared
from maskwright.pretrain.rows import held_out_rows
from maskwright.recipes.parts.recipe import Recipe
from maskwright.train.machine.step_cost import training_flops

TRIAL_ROWS = 64


def flops_per_token(recipe: Recipe, prepared: Prepared, objective: Objective) -> float:
    """Operations of matrix products, forward and backward, per token of a row: the mean over the
    phases of the run, on rows of its held-out text."""
    flops, start = 0.0, 0.0
    for phase in recipe.phases:
        rows = held_out_rows(recipe, prepared.held_out, phase.length)
        middle = (start + phase.until) / 2  # where rates of masks that change are at their mean
        trial = next(likelihood.evaluation_batches(objective, rows, TRIAL_ROWS, TRIAL_ROWS, middle))
        share, start = phase.until - start, phase.until
        flops += share * training_flops(objective, trial) / trial.tokens.numel()
    return flops


def with_counted_budget(recipe: Recipe, prepared: Prepared) -> Recipe:
    """`recipe` with its budget in tokens where it is in floating-point operations."""
    if recipe.training.budget.flops is None:
        return recipe
    network = build.model(recipe, build.transformer_config(recipe, prepared.tokenizer))
    objective = build.objective(recipe, network, prepared.tokenizer)
    per_token = flops_per_token(recipe, prepared, objective)
    budget = recipe.training.budget.in_tokens(per_token)
    return replace(recipe, training=replace(recipe.training, budget=budget))
