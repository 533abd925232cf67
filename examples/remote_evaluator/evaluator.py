#!/usr/bin/env python3
"""An evaluator for otel-verdict: do the numbers of an agent's answer occur in the texts that it received?

It answers the metric `answer.grounded_numbers`: the share of the numbers in the final answer that occur in an earlier
text of the run, from 0 to 1. Python's standard library only. The protocol is described in docs/evaluators.md.

    python3 examples/remote_evaluator/evaluator.py --port 8089
"""

import argparse
import json
import os
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

METRIC = "answer.grounded_numbers"
# The limit max_bytes of the metric, in bytes.
MAX_REQUEST = 4 << 20
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# Types of texts that an agent received. A text that the agent wrote itself is no source.
RECEIVED = {"system", "user", "tool_message", "result"}


def numbers(text):
    """The numbers in a text, without separators of thousands."""
    return {match.replace(",", "").rstrip(".") for match in NUMBER.findall(text)}


def evaluate(request):
    """The answer to one request."""
    if request.get("version") != 1:
        raise ValueError("this evaluator knows version 1 of the protocol")
    if request["metric"] != METRIC:
        raise ValueError(f"this evaluator answers {METRIC}")
    subject = request["subject"]["span_id"]
    agent = next((agent for agent in request["agents"] if agent["span_id"] == subject), {})
    answer = agent.get("answer")
    stated = numbers(answer or "")
    if not stated:
        return {"score": None, "rationale": "The answer states no number."}
    received = numbers(agent.get("task") or "")
    for span in request["spans"]:
        for content in span["content"]:
            if content["type"] in RECEIVED:
                received |= numbers(content["text"])
    invented = sorted(stated - received)
    score = 1 - len(invented) / len(stated)
    findings = [finding(request["spans"], number) for number in invented]
    return {
        "rationale": f"{len(stated) - len(invented)} of {len(stated)} numbers in the answer were given to the agent.",
        "score": round(score, 3),
        "findings": [found for found in findings if found],
    }


def finding(spans, number):
    """The finding, with the first span that wrote the number and the line that contains it; None if no span did."""
    for span in spans:
        for content in span["content"]:
            if content["type"] in ("output", "thinking", "tool_call") and number in numbers(content["text"]):
                lines = content["text"].splitlines()
                line = next((line for line in lines if number in numbers(line)), content["text"])
                return {
                    "problem": f"No text that the agent was given contains {number}.",
                    "span_id": span["span_id"],
                    "quote": line[:200],
                    "severity": "high",
                    "category": "Language-only",
                }
    return None


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
            self.reply(200, evaluate(json.loads(body)))
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
    options.add_argument("--port", type=int, default=8089, help="0 takes a free one")
    server = ThreadingHTTPServer(("127.0.0.1", options.parse_args().port), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
