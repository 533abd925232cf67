#!/usr/bin/env python3
"""An evaluator for otel-verdict that runs Python programs in a container without network.

It answers two metrics:

- `checklist.run_code`: runs the program that a judge of a checklist wrote to check something, and returns what it prints;
- `answer.code_runs`: runs the Python code of an agent's final answer: `runs`, or `fails` with the error as a finding.

A program sees no network, no files but 16 MiB of /tmp, and is stopped after a time. Without Docker nothing is run, and
the answer is null: unmeasured. Python's standard library only. The protocol is described in docs/evaluators.md.

    python3 examples/code_runner/runner.py --port 8090
"""

import argparse
import json
import os
import re
import secrets
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RUN_CODE, CODE_RUNS = "checklist.run_code", "answer.code_runs"
# The limit max_bytes of the metric, in bytes.
MAX_REQUEST = 4 << 20
# Bytes of the output of a program that are kept; the others are read and dropped.
MAX_OUTPUT = 64 << 10
# Characters of a rationale.
MAX_RATIONALE = 4000
PYTHON_BLOCK = re.compile(r"```(?:python|py)[^\n]*\n(.*?)```", re.DOTALL)


class NotRun(Exception):
    """The program was not run, so the metric is unmeasured."""


class Container:
    """Runs each program in a new container, at most two at a time."""

    def __init__(self, image, seconds):
        self.image = image
        self.seconds = seconds
        self.slots = threading.BoundedSemaphore(2)

    def command(self, name):
        """The program comes on standard input, so that no file has to be mounted."""
        return [
            "docker", "run", "--rm", "--interactive", "--name", name,
            "--pull", "never",
            "--network", "none",
            "--read-only", "--tmpfs", "/tmp:rw,noexec,size=16m",
            "--memory", "256m", "--memory-swap", "256m", "--cpus", "1", "--pids-limit", "64",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534",
            self.image, "python3", "-I", "-",
        ]  # fmt: skip

    def run(self, code):
        """The exit status and the output of a program."""
        if not shutil.which("docker"):
            raise NotRun("Docker is not installed where the runner is.")
        with self.slots:
            return self.start(f"verdict-run-{secrets.token_hex(8)}", code)

    def start(self, name, code):
        pipe = subprocess.PIPE
        process = subprocess.Popen(self.command(name), stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)
        output = bytearray()

        def read():
            while chunk := process.stdout.read1(1 << 16):
                output.extend(chunk[: MAX_OUTPUT - len(output)])

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            process.stdin.write(code.encode())
            process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            status = process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            # Killing the client does not stop the container.
            subprocess.run(["docker", "kill", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            process.kill()
            process.wait()
            return None, f"stopped after {self.seconds} s\n{output.decode(errors='replace')}"
        reader.join(5)
        text = output.decode(errors="replace")
        # 125 is an error of Docker itself; 126 and 127: the image has no Python.
        if status in (125, 126, 127):
            raise NotRun(f"Docker did not start the container: {text[:300]}")
        return status, text


def evaluate(request, container):
    """The answer to one request."""
    if request.get("version") != 1:
        raise ValueError("this evaluator knows version 1 of the protocol")
    if request["metric"] == RUN_CODE:
        return run_code(request["code"], container)
    if request["metric"] == CODE_RUNS:
        return code_runs(request, container)
    raise ValueError(f"this evaluator answers {RUN_CODE} and {CODE_RUNS}")


def run_code(code, container):
    try:
        status, output = container.run(code)
    except NotRun as reason:
        return {"label": None, "rationale": str(reason)}
    # An error is at the end of the output.
    return {"label": "ok" if status == 0 else "failed", "rationale": output[-MAX_RATIONALE:]}


def code_runs(request, container):
    subject = request["subject"]["span_id"]
    agent = next((agent for agent in request["agents"] if agent["span_id"] == subject), {})
    blocks = PYTHON_BLOCK.findall(agent.get("answer") or "")
    if not blocks:
        return {"label": None, "rationale": "The answer contains no Python code."}
    try:
        status, output = container.run("\n".join(blocks))
    except NotRun as reason:
        return {"label": None, "rationale": str(reason)}
    if status == 0:
        return {"label": "runs", "rationale": "The code of the answer ran without an error.", "findings": []}
    error = (output.strip().splitlines() or ["no output"])[-1]
    findings = cite_code(request["spans"], blocks, f"The code of the answer fails: {error[:300]}")
    return {"label": "fails", "rationale": f"The code of the answer fails: {error[:300]}", "findings": findings}


def cite_code(spans, blocks, problem):
    """The finding, with the span that wrote the code and the first line of more than three characters."""
    lines = [line for block in blocks for line in block.splitlines() if len(line.strip()) > 3]
    for span in reversed(spans):
        for content in span["content"]:
            line = next((line for line in lines if line in content["text"]), None)
            if content["type"] == "output" and line:
                quote = {"span_id": span["span_id"], "quote": line[:200]}
                return [{"problem": problem, **quote, "severity": "high", "category": "Formatting Errors"}]
    return []


class Handler(BaseHTTPRequestHandler):
    """Answers POST requests with a JSON object."""

    # Connections stay open between requests.
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        if not 0 < length <= MAX_REQUEST:
            self.close_connection = True
            return self.reply(413, {"error": {"message": "the request is empty or too large"}})
        body = self.rfile.read(length)
        token = os.environ.get("EVALUATOR_TOKEN")
        if token and self.headers.get("authorization") != f"Bearer {token}":
            return self.reply(401, {"error": {"message": "wrong or missing token"}})
        try:
            self.reply(200, evaluate(json.loads(body), self.server.container))
        except (ValueError, KeyError, TypeError) as error:
            self.reply(400, {"error": {"message": str(error)}})

    def reply(self, status, answer):
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Requests contain content of traces, which does not belong into a log."""


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--port", type=int, default=8090, help="0 takes a free one")
    options.add_argument("--image", default="python:3-slim", help="an image with Python, which must be on this machine")
    options.add_argument("--seconds", type=float, default=20, help="the longest time of a program")
    arguments = options.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    server.container = Container(arguments.image, arguments.seconds)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
