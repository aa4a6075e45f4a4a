"""A controller's metrics, as Prometheus would read them."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from scripts.testbed.patience import PATIENCE_S


@dataclass(frozen=True)
class Scrape:
    """One answer of /metrics."""

    text: str

    @classmethod
    def of(cls, port: int) -> Scrape:
        """Scrape now; ``OSError`` if the controller does not answer."""
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return cls(answer.read().decode())

    def types(self) -> Mapping[str, str]:
        """The type of each metric."""
        found = {}
        for family in text_string_to_metric_families(self.text):
            end = "_total" if family.type == "counter" else ""
            found[family.name + end] = family.type
        return found

    def value(self, name: str, **labels: str) -> float | None:
        """Return the sum over the series with these labels; None if there are none."""
        values = [
            sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(values) if values else None
