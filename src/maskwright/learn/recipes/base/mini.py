"""What the `-mini` recipes share: sizes and a schedule for some minutes of training on a CPU.

4 layers of width 256 with 4 heads (4 and 4 in families of two stacks), a vocabulary of 8,192, rows
of 128 tokens, 8,192 tokens a step, 1,500 steps, no dropout, the embedded corpus. Each recipe adds
its family's tokenizer, input and objective.
"""

from __future__ import annotations

from maskwright.base.budget import Budget
from maskwright.learn.recipes.base.recipe import (
    Evaluation,
    FamilyModel,
    Initialisation,
    ObjectiveChoice,
    Recipe,
    RowChoice,
    Training,
)
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.schedule import Schedule
from maskwright.text.tokenizer.training.train import TokenizerChoice

VOCABULARY = 8_192
# Of rows, and of tables of positions: what is beyond would stay untrained.
LENGTH = 128
WORDPIECE = TokenizerChoice(kind="wordpiece", vocabulary=VOCABULARY, lowercase=True)
# In the spelling that most encoder families share.
SHAPE = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": LENGTH,
}
FAST = AdamW(learning_rate=1e-3, beta2=0.98)
AS_BERT = Initialisation()
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def mini(
    name: str,
    note: str,
    *,
    model: FamilyModel,
    objective: ObjectiveChoice,
    tokenizer: TokenizerChoice = WORDPIECE,
    initialisation: Initialisation = AS_BERT,
    optimizer: AdamW = FAST,
) -> Recipe:
    """A recipe of mini size."""
    return Recipe(
        name=name,
        note=note,
        tokenizer=tokenizer,
        model=model,
        initialisation=initialisation,
        objective=objective,
        rows=RowChoice(length=LENGTH),
        training=Training(
            budget=Budget(steps=1_500),
            batch=64,
            optimizer=optimizer,
            schedule=Schedule(kind="linear", warmup=0.1),
        ),
        evaluation=Evaluation(every=250),
    )
