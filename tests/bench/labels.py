#!/usr/bin/env python3
"""Writes the annotations of the cases as labels, so that `score rules` can measure the rules on them.

Usage: labels.py CASES OUT

CASES is the folder of the unpacked cases. OUT receives one file of labels a set. Prints the command that regenerates the
table of rules.md. TRAIL's own files of annotations are labels already.
"""

import json
import pathlib
import shlex
import sys

cases, out = map(pathlib.Path, sys.argv[1:3])
out.mkdir(parents=True, exist_ok=True)
sets = [(name, cases / "trail" / name / "traces", cases / "trail" / name / "gold") for name in ("gaia", "swe")]


def write(name, traces, labels):
    file = out / f"{name}.json"
    file.write_text(json.dumps({"traces": labels}, indent=1))
    sets.append((name, traces, file))


def spans_of(file):
    """The spans of a file of OTLP/JSON, with their attributes."""
    for resource in json.loads(file.read_text())["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                values = {a["key"]: next(iter(a["value"].values()), None) for a in span.get("attributes", [])}
                yield span["traceId"], span["spanId"], values


# Framework runs: the defective spans, where the instrumentation shows them.
labels = {}
for file in sorted((cases / "frameworks").glob("*/truth.json")):
    truth = json.loads(file.read_text())
    if truth.get("evidence_in_spans"):
        for defect in truth.get("expected") or []:
            labels.setdefault(defect["trace_id"], []).append({"span_id": defect["span_id"]})
write("frameworks", cases / "frameworks", [{"trace_id": t, "spans": s} for t, s in labels.items()])

# MAS-SIM: the step of the scripted fault.
labels = []
for file in sorted((cases / "mas-sim" / "gold").glob("*.json")):
    step = str(json.loads(file.read_text())["critical_failure_step"])
    spans = list(spans_of(cases / "mas-sim" / "traces" / file.name))
    fault_spans = [{"span_id": span} for _, span, values in spans if str(values.get("experiment.step_index")) == step]
    labels.append({"trace_id": spans[0][0], "spans": fault_spans})
write("mas-sim", cases / "mas-sim" / "traces", labels)

# tau-bench: the reward of the run. Who&When: the span of the step that decided the failure.
for name, folder in (("airline", "tau-airline"), ("retail", "tau-retail"), ("whowhen", "whowhen-ag")):
    folder = cases / "attribution" / folder
    gold, traces_by_id = (json.loads((folder / f"{part}.json").read_text()) for part in ("gold", "map"))
    labels = []
    for trace, entry in traces_by_id.items():
        annotation = gold[entry["log"]]
        label = {"trace_id": trace, "expected": annotation["outcome"]}
        decisive = annotation["marks"].get("whowhen")
        if decisive:
            steps = entry["spans"].items()
            label["spans"] = [{"span_id": span} for span, position in steps if position["step"] == decisive["step"]]
        labels.append(label)
    write(name, folder / "traces.jsonl", labels)

# Small runs of this repository, labelled by run before they were evaluated.
small = pathlib.Path(__file__).resolve().parent.parent / "data" / "small"
for name in ("first", "second", "third"):
    sets.append((name, small / f"{name}.jsonl.gz", small / f"{name}.labels.json"))

print("otel-verdict score rules --config config/examples/mas-sim.yaml", *(shlex.join(["--set", name, str(traces), str(file)]) for name, traces, file in sets))
