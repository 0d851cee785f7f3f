"""What every other package uses: errors, findings, settings, files and folders, pages, statistics.

Nothing here knows text, models or training, and nothing loads torch. Read `errors`, `config`
(settings as frozen dataclasses), `catalogue` (open sets), `storage/` (folders that are written
whole or not at all), `report/` (terminal, pages, pictures), `metrics/`.
"""
