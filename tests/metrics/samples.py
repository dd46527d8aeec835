"""Reads the text for Prometheus on standard input with both of Prometheus' own parsers; prints its samples as one JSON object a line."""
import json
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

text = sys.stdin.read()
families = list(openmetrics(text))


def key(samples):
    return sorted((sample.name, sorted(sample.labels.items()), float(sample.value)) for sample in samples)


strict = key(sample for family in families for sample in family.samples)
older = key(sample for family in classic(text) for sample in family.samples)
assert strict == older, "the two formats are read differently"
for family in families:
    for sample in family.samples:
        print(json.dumps({"name": sample.name, "labels": sample.labels, "value": sample.value, "kind": family.type,
                          "unit": family.unit, "help": family.documentation}))
