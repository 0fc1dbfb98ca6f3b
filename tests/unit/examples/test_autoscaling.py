"""The manifest for KEDA: a ScaledObject that KEDA and the scaler understand, and what it names exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from faust_assigner.cli.scaler import scaler
from faust_assigner.scaler.settings import read_metadata

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "kubernetes"
DOCUMENTS: dict[str, Any] = {
    one["kind"]: one for one in yaml.safe_load_all((FOLDER / "autoscaling.yaml").read_text())
}
SCALED = DOCUMENTS["ScaledObject"]["spec"]
TRIGGER = SCALED["triggers"][0]
CONTAINER = DOCUMENTS["Deployment"]["spec"]["template"]["spec"]["containers"][0]
WORKERS = {
    one["kind"]: one for one in yaml.safe_load_all((FOLDER / "workers-dynamic.yaml").read_text())
}


def an_object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """A JSON schema of an object without other keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


WHOLE, TEXT = {"type": "integer", "minimum": 0}, {"type": "string"}
POLICY = an_object(
    ("type", "value", "periodSeconds"),
    type={"enum": ["Pods", "Percent"]},
    value={"type": "integer", "minimum": 1},
    periodSeconds={"type": "integer", "minimum": 1, "maximum": 1800},
)
RULES = an_object(
    stabilizationWindowSeconds={"type": "integer", "minimum": 0, "maximum": 3600},
    selectPolicy={"enum": ["Max", "Min", "Disabled"]},
    policies={"type": "array", "items": POLICY},
)
#: The part of KEDA's definition of a ScaledObject that the manifest uses.
SCALED_OBJECT = an_object(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "keda.sh/v1alpha1"},
    kind={"const": "ScaledObject"},
    metadata=an_object(("name",), name=TEXT),
    spec=an_object(
        ("scaleTargetRef", "triggers"),
        scaleTargetRef=an_object(("name",), apiVersion=TEXT, kind=TEXT, name=TEXT),
        minReplicaCount=WHOLE,
        maxReplicaCount=WHOLE,
        pollingInterval=WHOLE,
        cooldownPeriod=WHOLE,
        advanced=an_object(
            horizontalPodAutoscalerConfig=an_object(
                behavior=an_object(scaleUp=RULES, scaleDown=RULES)
            )
        ),
        triggers={
            "type": "array",
            "minItems": 1,
            "items": an_object(
                ("type", "metadata"),
                type={"enum": ["external", "external-push"]},
                metricType={"enum": ["AverageValue", "Value"]},
                metadata={"type": "object", "additionalProperties": TEXT},
            ),
        },
    ),
)


def test_the_scaled_object_is_kedas() -> None:
    """Each key is one that KEDA knows; all values of the metadata are texts."""
    jsonschema.validate(DOCUMENTS["ScaledObject"], SCALED_OBJECT)
    broken = {**DOCUMENTS["ScaledObject"], "spec": {**SCALED, "maxReplicas": 3}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCALED_OBJECT)


def test_the_scaler_reads_its_metadata_and_has_the_same_bounds() -> None:
    """A size beyond Kubernetes' bounds would be recommended for ever and never come."""
    group = next(one.partition("=")[2] for one in CONTAINER["args"] if one.startswith("--group="))
    settings = read_metadata(TRIGGER["metadata"], group, {})
    assert (settings.least, settings.most) == (SCALED["minReplicaCount"], SCALED["maxReplicaCount"])
    assert TRIGGER["metricType"] == "AverageValue"


def test_it_scales_the_workers_and_finds_the_scaler() -> None:
    """Names, ports and labels agree."""
    workers = WORKERS["Deployment"]
    assert (SCALED["scaleTargetRef"]["kind"], SCALED["scaleTargetRef"]["name"]) == (
        workers["kind"],
        workers["metadata"]["name"],
    )
    service, labels = DOCUMENTS["Service"], {"app": "shop-scaler"}
    port = CONTAINER["ports"][0]["containerPort"]
    address = TRIGGER["metadata"]["scalerAddress"]
    assert address == f"{service['metadata']['name']}.default:{port}"
    assert service["spec"]["ports"][0]["port"] == port
    assert service["spec"]["selector"] == labels
    assert DOCUMENTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert {CONTAINER[probe]["grpc"]["port"] for probe in ("readinessProbe", "livenessProbe")} == {
        port
    }


def test_what_starts_is_the_command() -> None:
    """Its first word and each option exist."""
    first, *options = CONTAINER["args"]
    assert first == scaler.name
    known = {name for one in scaler.get_params(click.Context(scaler)) for name in one.opts}
    assert {option.partition("=")[0] for option in options} <= known
    assert f"--bind=0.0.0.0:{CONTAINER['ports'][0]['containerPort']}" in options


def test_no_more_workers_stop_at_once_than_there_are_standbys() -> None:
    """The app keeps one; the budget of evictions is the same, and does not apply to an autoscaler."""
    behavior = SCALED["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    [policy] = behavior["scaleDown"]["policies"]
    assert (policy["type"], policy["value"]) == ("Pods", 1)
    grace_s = WORKERS["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert policy["periodSeconds"] > grace_s
    assert WORKERS["PodDisruptionBudget"]["spec"]["maxUnavailable"] == policy["value"]
