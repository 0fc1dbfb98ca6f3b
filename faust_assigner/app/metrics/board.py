"""The Grafana board, docs/operations/board.json.

``python -m faust_assigner.app.metrics.board FILE`` writes the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

#: The panels: title, Grafana's unit, and (PromQL expression, legend) for each line. ``$app`` is chosen on
#: the board.
PANELS: Final[tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]] = (
    (
        "Workers that are not ready",
        "short",
        (('faust_assigner_ready{app="$app"} == 0', "{{instance}}"),),
    ),
    (
        "Partitions that stand still",
        "short",
        (
            (
                'sum by (reason) (faust_assigner_standing_partitions{app="$app"}) > 0',
                "{{reason}}",
            ),
        ),
    ),
    (
        "Longest standstill",
        "s",
        (
            (
                'topk(10, faust_assigner_standing_seconds{app="$app"})',
                "{{topic}}-{{partition}} {{reason}}",
            ),
        ),
    ),
    (
        "Owned partitions",
        "short",
        (('faust_assigner_owned_partitions{app="$app"}', "{{instance}}"),),
    ),
    (
        "Standbys and warm-ups",
        "short",
        (
            ('faust_assigner_standby_partitions{app="$app"}', "{{instance}} standbys"),
            ('faust_assigner_warmup_partitions{app="$app"}', "{{instance}} warm-ups"),
        ),
    ),
    (
        "Copies furthest behind",
        "short",
        (
            (
                'topk(10, faust_assigner_standby_lag_records{app="$app"})',
                "{{topic}}-{{partition}} {{instance}}",
            ),
        ),
    ),
    (
        "Copies with the largest lag, in seconds",
        "s",
        (
            (
                'topk(10, faust_assigner_standby_lag_seconds{app="$app"})',
                "{{topic}}-{{partition}} {{instance}}",
            ),
        ),
    ),
    (
        "Stateful tasks without a caught-up copy elsewhere",
        "short",
        (('faust_assigner_uncovered_tasks{app="$app"}', "at the last round"),),
    ),
    (
        "Rounds by trigger",
        "short",
        (
            (
                'sum by (trigger) (increase(faust_assigner_rounds_led_total{app="$app"}[$__rate_interval]))',
                "{{trigger}}",
            ),
        ),
    ),
    (
        "Duration of a round, 95th percentile",
        "s",
        (
            (
                "histogram_quantile(0.95, sum by (le) "
                '(increase(faust_assigner_round_seconds_bucket{app="$app"}[10m])))',
                "restored",
            ),
            (
                "histogram_quantile(0.95, sum by (le) "
                '(increase(faust_assigner_round_answer_seconds_bucket{app="$app"}[10m])))',
                "answered",
            ),
        ),
    ),
    (
        "Under way",
        "s",
        (
            ('max(faust_assigner_round_age_seconds{app="$app"})', "round"),
            ('max(faust_assigner_commit_age_seconds{app="$app"})', "commit"),
            ('max(faust_assigner_revocation_age_seconds{app="$app"})', "revocation"),
        ),
    ),
    (
        "Moves",
        "short",
        (
            ('sum(increase(faust_assigner_moves_total{app="$app"}[$__rate_interval]))', "moves"),
            (
                'sum(increase(faust_assigner_cold_moves_total{app="$app"}[$__rate_interval]))',
                "cold moves",
            ),
            ('max(faust_assigner_off_target_tasks{app="$app"})', "off target"),
        ),
    ),
    (
        "Restores: remaining records",
        "short",
        (('faust_assigner_restore_remaining_records{app="$app"} > 0', "{{instance}}"),),
    ),
    (
        "Restores: remaining time",
        "s",
        (('faust_assigner_restore_remaining_seconds{app="$app"} > 0', "{{instance}}"),),
    ),
    (
        "Refused claims, ignored positions, fenced members, fallbacks",
        "short",
        (
            (
                'sum(increase(faust_assigner_refused_members_total{app="$app"}[$__rate_interval]))',
                "refused members",
            ),
            (
                'sum(increase(faust_assigner_disbelieved_positions_total{app="$app"}[$__rate_interval]))',
                "disbelieved positions",
            ),
            (
                'sum(increase(faust_assigner_fences_total{app="$app"}[$__rate_interval]))',
                "fences",
            ),
            (
                'sum(increase(faust_assigner_fallbacks_total{app="$app"}[$__rate_interval]))',
                "fallbacks",
            ),
            ('sum(faust_assigner_unreadable_partitions{app="$app"})', "unreadable partitions"),
        ),
    ),
    (
        "Free space on the tables' disks",
        "percentunit",
        (
            (
                'faust_assigner_disk_free_bytes{app="$app"} / faust_assigner_disk_size_bytes{app="$app"}',
                "{{instance}}",
            ),
        ),
    ),
)
_COLUMNS, _WIDTH, _HEIGHT = 3, 8, 8


def board() -> dict[str, Any]:
    """Grafana's model of the board; the data source is chosen on the board."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": source,
            "gridPos": {
                "x": number % _COLUMNS * _WIDTH,
                "y": number // _COLUMNS * _HEIGHT,
                "w": _WIDTH,
                "h": _HEIGHT,
            },
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [
                {
                    "refId": chr(ord("A") + at),
                    "datasource": source,
                    "expr": expression,
                    "legendFormat": legend,
                }
                for at, (expression, legend) in enumerate(lines)
            ],
        }
        for number, (title, unit, lines) in enumerate(PANELS)
    ]
    variables = [
        {"name": "source", "type": "datasource", "query": "prometheus"},
        {
            "name": "app",
            "type": "query",
            "datasource": source,
            "query": "label_values(faust_assigner_info, app)",
            "refresh": 2,
        },
    ]
    return {
        "title": "Faust workers: assignment",
        "uid": "faust-assigner",
        "schemaVersion": 39,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables},
        "panels": panels,
    }


def text() -> str:
    """The file's text."""
    return json.dumps(board(), indent=1) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Write the file."""
    Path(arguments[0]).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
