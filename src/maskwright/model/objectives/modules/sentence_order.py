"""What `sentence-order` computes: what `sentence-pair` does, on other rows."""

from maskwright.model.objectives.modules.sentence_pair import build as build
