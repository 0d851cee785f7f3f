"""The version, for what is written into files and compared between machines."""

from __future__ import annotations

VERSION = "0.1.0"
