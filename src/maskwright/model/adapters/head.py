"""The head alone, as its family has it (arXiv:1810.04805, section 5.3, uses a model so): the pooler
or the dense layer below the scores trains with them, and the model stands still.

Of the body nothing changes, so what is saved is a head and the name of its base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from maskwright.model.adapters.base.settings import Settings


@dataclass(frozen=True, kw_only=True)
class OwnHead(Settings):
    """No settings; the heads are those that the caller names."""

    # There is nothing to fold: the weights are the model's own.
    merges: ClassVar[bool] = True
    head_alone: ClassVar[bool] = True

    kind: Literal["head"] = "head"


SETTINGS = OwnHead
