"""Runs the lines of docs/frameworks.md: each row with its program of frameworks/, and checks the trace. Each program
is run with these lines, and without those of the SDK and of instrumentors under OpenTelemetry's launcher.

    python3 tests/neighbours/frameworks.py OTEL_VERDICT FOLDER [PROGRAM...]

OTEL_VERDICT is the program, FOLDER has an environment per framework, which is made where it is missing. The first line
of a program names its row; `# needs:` in the second one lists packages besides those of the row.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import scripted_model

HERE = pathlib.Path(__file__).parent
DOCUMENT = (HERE.parents[1] / "docs" / "frameworks.md").read_text()
SDK = ["opentelemetry-distro", "opentelemetry-exporter-otlp-proto-http"]


def rows():
    """The packages and the first lines of each framework."""
    table = DOCUMENT[DOCUMENT.index("| framework |") :].split("\n\n")[0].splitlines()[2:]
    out = {}
    for row in table:
        framework, tried, install, lines = (cell.strip() for cell in row.strip("|").split("|"))
        packages = [package.replace(" ", "==") for package in tried.split(", ")]
        for name, version in re.findall(r"`([^`]+)`(?: \(([^)]+)\))?", install):
            packages.append(f"{name}=={version}" if version else name)
        out[framework] = packages, "\n".join(re.findall(r"`([^`]+)`", lines))
    return out


def launched(lines):
    """The lines that are left under the launcher, which starts the other instrumentors."""
    left_out = re.compile("import otel$|(?!.*LlamaIndex).*Instrumentor|.*StrandsTelemetry|.*enable_instrumentation")
    return "\n".join(line for line in lines.splitlines() if not left_out.match(line))


def environment(folder, packages):
    """The Python of an environment with these packages."""
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages, *SDK], check=True)
        done.touch()
    return python


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def until(what, ask):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if found := ask():
                return found
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"not reached: {what}")


def problems(row, detail):
    """What is missing of a run that is described as recognised."""
    kinds = [span["kind"] for span in detail["spans"]]
    tools = [tool["name"] for tool in row["tools"]]
    checks = {
        "a verdict": row["result"] in ("pass", "fail"),
        "the agent": row.get("agent"),
        "its task": "Paris" in row.get("task", ""),
        "the model calls": kinds.count("llm") >= 2 and row["models"],
        "the call of the tool": any(scripted_model.TOOL in tool for tool in tools),
    }
    return [name for name, found in checks.items() if not found]


def main():
    program, environments, *only = sys.argv[1:]
    model = scripted_model.start()
    otlp, page, folder = free_port(), free_port(), tempfile.TemporaryDirectory()
    work = pathlib.Path(folder.name)
    (work / "otel.py").write_text(re.search(r"```python\n(# otel\.py.*?)```", DOCUMENT, re.S)[1])
    (work / "otel-verdict.yaml").write_text(
        f"receivers: {{ otlp: {{ protocols: {{ http: {{ endpoint: '127.0.0.1:{otlp}' }} }} }} }}\n"
        "verdict: { close: { quiet: 1s, idle: 3s } }\nadmin: { endpoint: '127.0.0.1:0' }\n"
        f"page: {{ endpoint: '127.0.0.1:{page}' }}\nexporters: {{ console: {{}} }}\n"
    )
    log = open(work / "log", "w")
    config = ["run", "--config", work / "otel-verdict.yaml"]
    service = subprocess.Popen([program, *config], stdout=subprocess.DEVNULL, stderr=log, cwd=work)
    traces = f"http://127.0.0.1:{page}/api/traces"
    failed = []
    try:
        until("otel-verdict: " + (work / "log").read_text(), lambda: get(traces))
        for script in sorted((HERE / "frameworks").glob("*.py")):
            if only and script.stem not in only:
                continue
            text = script.read_text()
            framework = text.splitlines()[0].removeprefix("# ")
            needs = re.search(r"^# needs: (.*)$", text, re.M)
            packages, lines = rows()[framework]
            python = environment(pathlib.Path(environments) / script.stem, packages + (needs[1].split() if needs else []))
            ways = {"lines": (lines, []), "launcher": (launched(lines), [python.with_name("opentelemetry-instrument").absolute()])}
            for way, (lines, launcher) in ways.items():
                (work / "my_agent.py").write_text(f"{lines}\n\n{text}")
                name = f"{script.stem}-{way}"
                settings = {
                    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{otlp}",
                    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                    "OTEL_METRICS_EXPORTER": "none",
                    "OTEL_SERVICE_NAME": name,
                    "OPENAI_API_KEY": "none",
                    "OPENAI_BASE_URL": model,
                    "OPENAI_API_BASE": model,
                    # Of Microsoft Agent Framework, in place of its lines.
                    **({"ENABLE_INSTRUMENTATION": "true", "ENABLE_SENSITIVE_DATA": "true"} if launcher else {}),
                    # No reports of use.
                    "CREWAI_DISABLE_TELEMETRY": "true",
                    "CREWAI_TRACING_ENABLED": "false",
                    "AGNO_TELEMETRY": "false",
                    "HOME": str(work),
                }
                command = [*launcher, python.absolute(), "my_agent.py"]
                ran = subprocess.run(
                    command, cwd=work, env=os.environ | settings, capture_output=True, text=True, timeout=300
                )
                if ran.returncode:
                    failed.append(f"{framework} ({way})")
                    print(f"FAILED {framework} ({way}): {ran.stderr[-3000:]}", flush=True)
                    continue

                def judged():
                    found = get(f"{traces}?service={name}")["traces"]
                    return [row for row in found if row["tools"] or row.get("agent")]

                try:
                    found = until(f"a trace of {framework} ({way}): {ran.stderr[-2000:]}", judged)
                except SystemExit as missing:
                    failed.append(f"{framework} ({way})")
                    print(f"FAILED {missing}", flush=True)
                    continue
                # The trace with the most spans: AutoGen writes a second one.
                row = max(found, key=lambda row: row["spans"])
                detail = get(f"{traces}/{row['trace_id']}")["detail"]
                missing = problems(row, detail)
                if missing:
                    failed.append(f"{framework} ({way})")
                    kinds = [(span["kind"], span["name"]) for span in detail["spans"]]
                    print(f"FAILED {framework} ({way}): not found: {', '.join(missing)}; {kinds}, {row}", flush=True)
                else:
                    print(f"ok     {framework} ({way}): {row['result']}, {row['spans']} spans", flush=True)
    finally:
        service.terminate()
        service.wait(30)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


main()
