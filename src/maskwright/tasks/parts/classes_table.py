"""The figures of a task class by class, as a table for pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskwright.metrics import metrics
from maskwright.report.tables import Table
from maskwright.report.wording import figure


def classes_table(figures: Sequence[metrics.ClassFigures], note: str) -> Table:
    """Figures of classes; a dash where one is not defined."""
    return {
        "title": "Class by class",
        "head": ["", "precision", "recall", "F1", "rows"],
        "rows": [
            [
                each.name,
                *(
                    figure(v) if np.isfinite(v) else "–"
                    for v in (each.precision, each.recall, each.f1)
                ),
                f"{each.rows:,}",
            ]
            for each in figures
        ],
        "note": note,
    }
