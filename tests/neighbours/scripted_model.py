"""A server with OpenAI's API whose model calls the tool get_weather once and then answers.

The answers follow from the conversation alone, so that any number of programs can ask at the same time.
"""

import http.server
import json
import re
import threading

TOOL = "get_weather"
ARGUMENTS = {"city": "Paris"}
ANSWER = "It is sunny in Paris."
USAGE = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}


def names_of(tools):
    return [(tool.get("function") or tool).get("name") for tool in tools or []]


def texts_of(messages):
    """All text of a conversation, for frameworks that describe their format in prompts."""
    return json.dumps(messages)


def structured(text):
    """The fields that DSPy asks for, or nothing."""
    fields = [name for name in re.findall(r"\[\[ ## (\w+) ## \]\]", text) if name != "completed"]
    if not fields:
        return None
    called = "observation_0" in text
    values = {
        "next_thought": "The tool knows the weather.",
        "next_tool_name": "finish" if called else TOOL,
        "next_tool_args": json.dumps({} if called else ARGUMENTS),
        "reasoning": "The tool said so.",
        "answer": ANSWER,
    }
    wanted = [field for field in values if field in fields]
    return "\n\n".join(f"[[ ## {field} ## ]]\n{values[field]}" for field in wanted) + "\n\n[[ ## completed ## ]]"


def decide(tools, called, conversation):
    """The name and the arguments of a call, or a text."""
    if TOOL in tools and not called:
        return TOOL, ARGUMENTS, None
    # smolagents ends a run with a tool.
    if "final_answer" in tools:
        return "final_answer", {"answer": ANSWER}, None
    return None, None, structured(conversation) or ANSWER


def chat(request):
    messages = request["messages"]
    # smolagents describes the word in its instructions, and writes results into messages of the user.
    said = texts_of([message for message in messages if message["role"] != "system"])
    called = any(message["role"] == "tool" for message in messages) or "Observation:" in said
    name, arguments, text = decide(names_of(request.get("tools")), called, texts_of(messages))
    message = {"role": "assistant", "content": text}
    if name:
        call = {"name": name, "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": call}]
    choice = {"index": 0, "finish_reason": "tool_calls" if name else "stop"}
    whole = {"id": "chatcmpl-1", "created": 1, "model": request["model"]}
    if not request.get("stream"):
        yield None, whole | {"object": "chat.completion", "choices": [choice | {"message": message}], "usage": USAGE}
        return
    whole["object"] = "chat.completion.chunk"
    for call in message.get("tool_calls", []):
        call["index"] = 0
    yield None, whole | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    yield None, whole | {"choices": [choice | {"delta": {}}]}
    yield None, whole | {"choices": [], "usage": USAGE}


def responses(request):
    given = request["input"] if isinstance(request["input"], list) else []
    called = any(item.get("type") == "function_call_output" for item in given)
    name, arguments, text = decide(names_of(request.get("tools")), called, texts_of(request["input"]))
    if name:
        call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed"}
        output = call | {"name": name, "arguments": json.dumps(arguments)}
    else:
        part = {"type": "output_text", "text": text, "annotations": []}
        output = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    usage = {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 60,
    }
    whole = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": request["model"],
        "output": [output],
        "usage": usage,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": request.get("tools", []),
    }
    if not request.get("stream"):
        yield None, whole
        return
    yield "response.created", {"response": whole | {"status": "in_progress", "output": []}}
    yield "response.output_item.added", {"output_index": 0, "item": output}
    if text:
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        yield "response.content_part.added", place | {"part": output["content"][0] | {"text": ""}}
        yield "response.output_text.delta", place | {"delta": text, "logprobs": []}
        yield "response.output_text.done", place | {"text": text, "logprobs": []}
        yield "response.content_part.done", place | {"part": output["content"][0]}
    else:
        place = {"item_id": "fc_1", "output_index": 0}
        yield "response.function_call_arguments.delta", place | {"delta": output["arguments"]}
        yield "response.function_call_arguments.done", place | {"arguments": output["arguments"], "name": name}
    yield "response.output_item.done", {"output_index": 0, "item": output}
    yield "response.completed", {"response": whole}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {"/v1/chat/completions": chat, "/v1/responses": responses}.get(self.path)
        if answer is None:
            return self.reply(404, "application/json", b"{}")
        parts = list(answer(request))
        if not request.get("stream"):
            return self.reply(200, "application/json", json.dumps(parts[0][1]).encode())
        out = ""
        for number, (event, data) in enumerate(parts):
            if event:
                data = {"type": event, "sequence_number": number} | data
                out += f"event: {event}\n"
            out += f"data: {json.dumps(data)}\n\n"
        if self.path.endswith("completions"):
            out += "data: [DONE]\n\n"
        self.reply(200, "text/event-stream", out.encode())

    def do_GET(self):
        self.reply(404, "application/json", b"{}")

    def reply(self, status, content_type, body):
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def start():
    """Serves on a thread; the base URL of the API."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
