"""Turns off the usage reports of the libraries that Maskwright uses.

ONNX Runtime, OpenVINO, Daft, Ray and huggingface_hub report their use unless they are told not to,
and the first two also write an identifier into the home directory. Each reads its switch when it is
imported, so the package calls `turn_off_reports` before it imports anything else. What the user has
set is overwritten, as these values only turn reports off.
"""

from __future__ import annotations

import os
import sys

ENVIRONMENT = {
    "DAFT_ANALYTICS_ENABLED": "0",
    "DO_NOT_TRACK": "1",  # Daft, huggingface_hub, and others that follow donottrack.sh
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # its function disable_telemetry_events comes too late
    "RAY_USAGE_STATS_ENABLED": "0",
    "SCARF_NO_ANALYTICS": "1",
}


def turn_off_reports() -> None:
    """Set every switch, for this process and the processes that it starts."""
    os.environ |= ENVIRONMENT
    # OpenVINO has no switch but a file in the home directory. It does without this package where
    # that cannot be imported; an import that has happened already stays as it is.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
