"""A small server with the part of vLLM's protocol that the trainer uses, built on transformers.

It really samples, token by token from the model's distribution, with PEFT adapters; each completion
has a random generator with its own seed. `fault` makes it misbehave, see FAULTS. To run it by hand:

    python vllm_server.py --model DIR --port 8000
"""

import argparse
import http.server
import json
import pathlib
import socket
import threading
import time

import peft
import torch
import transformers

FAULTS = {
    "never_healthy": "always answers 503",
    "once_500": "answers the first request for completions with status 500",
    "dies": "closes the connection of the first request for completions and exits",
    "wrong_count": "returns one completion too few",
    "no_log_probs": "returns no log-probs",
    "shifted_log_probs": "reports every token as less likely by a factor of sqrt(e)",
    "hangs": "never answers requests for completions after the first weights",
    "refuses": "answers requests for completions with status 400",
    "no_adapters": "does not support adapters",
    "full_adapters": "does not support this LoRA rank",
    "older_trl": "is the server of TRL before 1.11",
}


class Refusal(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Model:
    """The model and its adapters; one caller at a time."""

    def __init__(self, folder, log_probs_mode):
        self.base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.base.eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.with_adapters = None
        self.adapters = {}  # name -> folder
        self.log_probs_mode = log_probs_mode
        self.lock = threading.Lock()

    def load(self, name, folder):
        with self.lock:
            if name in self.adapters:
                raise Refusal(400, f"The lora adapter '{name}' has already been loaded.")
            if not (pathlib.Path(folder) / "adapter_config.json").exists():
                raise Refusal(404, f"No adapter found for {folder}")
            if self.with_adapters is None:
                self.with_adapters = peft.PeftModel.from_pretrained(self.base, folder, name)
            else:
                self.with_adapters.load_adapter(folder, name)
            self.with_adapters.eval()
            self.adapters[name] = folder

    def unload(self, name):
        with self.lock:
            if name not in self.adapters:
                raise Refusal(404, f"The lora adapter '{name}' cannot be found.")
            del self.adapters[name]
            if self.adapters:  # PEFT keeps at least one
                self.with_adapters.set_adapter(next(iter(self.adapters)))
                self.with_adapters.delete_adapter(name)

    def logits(self, rows, adapter):
        """The logits at every token of the rows, which have equal lengths."""
        with torch.no_grad():
            if adapter is None and self.with_adapters is not None:
                with self.with_adapters.disable_adapter():
                    return self.with_adapters(rows).logits.float()
            if adapter is None:
                return self.base(rows).logits.float()
            self.with_adapters.set_adapter(adapter)
            return self.with_adapters(rows).logits.float()

    def complete(self, prompt, adapter, request):
        """Generates n completions."""
        with self.lock:
            torch.set_num_threads(1)
            completions = [Completion(prompt, request, request["seed"] + i) for i in range(request["n"])]
            while running := [one for one in completions if not one.finish]:
                rows = torch.tensor([prompt + one.tokens for one in running])
                for one, logits in zip(running, self.logits(rows, adapter)[:, -1]):
                    one.draw(logits, self)
            return [(one.tokens, one.log_probs, one.finish, one.stop) for one in completions]


class Completion:
    """A completion in progress."""

    def __init__(self, prompt, request, seed):
        self.prompt, self.request = prompt, request
        self.generator = torch.Generator().manual_seed(seed)
        self.tokens, self.log_probs, self.finish, self.stop = [], [], None, None

    def draw(self, raw, model):
        shaped = shape(raw, self.request, self.prompt + self.tokens)
        token = torch.multinomial(shaped.softmax(0), 1, generator=self.generator).item()
        reported = shaped if model.log_probs_mode == "processed_logprobs" else raw
        self.tokens.append(token)
        self.log_probs.append(reported.log_softmax(0)[token].item())
        if token in self.request.get("stop_token_ids", []):
            self.finish, self.stop = "stop", token
            return
        if len(self.tokens) == self.request["max_tokens"]:
            self.finish = "length"
        if stops := self.request.get("stop"):
            text = model.tokenizer.decode(self.tokens, skip_special_tokens=True)
            for stop in stops:
                if stop in text:
                    self.finish, self.stop = "stop", stop


def shape(logits, request, before):
    """The logits to sample from, with vLLM's order of filters."""
    logits = logits.clone()
    if request["repetition_penalty"] != 1:
        seen = torch.tensor(sorted(set(before)))
        at = logits[seen]
        logits[seen] = torch.where(at > 0, at / request["repetition_penalty"],
                                   at * request["repetition_penalty"])
    logits /= request["temperature"]
    probabilities = logits.softmax(0)
    gone = probabilities < request["min_p"] * probabilities.max()
    if request["top_k"] > 0:
        gone |= logits < logits.topk(min(request["top_k"], len(logits))).values[-1]
    if request["top_p"] < 1:
        order = probabilities.argsort(descending=True)
        before_it = probabilities[order].cumsum(0) - probabilities[order]
        gone[order[before_it >= request["top_p"]]] = True
    return logits.masked_fill(gone, float("-inf"))


class Server:
    """Serves in threads of this process; .requests has every (path, body) in order of arrival."""

    def __init__(self, folder, port=0, fault=None, dev=False, max_model_len=256,
                 log_probs_mode="processed_logprobs", replay=None, info=None, certificates=None):
        assert fault is None or fault in FAULTS
        self.folder, self.fault, self.dev = str(folder), fault, dev
        self.max_model_len, self.replay, self.info = max_model_len, replay, info
        self.model = Model(folder, log_probs_mode)
        self.requests, self.loaded, self.lock = [], [], threading.Lock()
        self.closing = threading.Event()
        self.probe = [1, 2, 3]  # the prompt that every new adapter completes
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer(None)

            def do_POST(self):
                length = int(self.headers.get("Content-Length", 0))
                self.answer(json.loads(self.rfile.read(length) or b"null"))

            def answer(self, body):
                with server.lock:
                    server.requests.append((self.path, body))
                try:
                    status, reply = 200, server.respond(self.path, body)
                except Refusal as refusal:
                    status, reply = refusal.status, {"error": {"message": str(refusal)}}
                except ConnectionAbortedError:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                reply = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

        class Listener(http.server.ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, *_):
                """Clients that reject the certificate close the connection."""

        self.http = Listener(("127.0.0.1", port), Handler)
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        if certificates:
            certificates.secure(self.http)
            self.url = f"https://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.closing.set()
        self.http.shutdown()
        self.http.server_close()

    def bodies(self, path):
        return [body for asked_path, body in self.requests if asked_path == path]

    def respond(self, path, body):
        if self.fault == "older_trl":
            known = {"/health/": {"status": "ok"}, "/get_world_size/": {"world_size": 1}}
        else:
            known = {"/health": {}, "/version": {"version": "0.31.0"}, "/v1/models": self.models()}
        if self.fault == "never_healthy" and path == "/health":
            raise Refusal(503, "still loading")
        if self.dev:
            known["/get_world_size"] = {"world_size": 1}
            known["/server_info?config_format=json"] = {"vllm_config": self.info or {
                "weight_transfer_config": {"backend": "nccl"},
                "model_config": {"logprobs_mode": self.model.log_probs_mode}}}
        if path in known:
            return known[path]
        if self.fault != "older_trl":
            if path == "/v1/completions":
                return self.completions(body)
            if path.endswith("load_lora_adapter") and self.fault != "no_adapters":
                return self.adapter(path, body)
        return self.more(path, body)

    def more(self, path, body):
        """Hook for the additional paths of a derived server."""
        raise Refusal(404, "Not Found")

    def models(self):
        models = [{"id": self.folder, "parent": None, "root": self.folder,
                   "max_model_len": self.max_model_len}]
        for name, folder in self.model.adapters.items():
            models.append({"id": name, "parent": self.folder, "root": folder,
                           "max_model_len": None})
        return {"object": "list", "data": models}

    def adapter(self, path, body):
        if path == "/v1/unload_lora_adapter":
            self.model.unload(body["lora_name"])
            return "unloaded"
        if self.fault == "full_adapters":
            raise Refusal(400, "LoRA rank 64 is greater than max_lora_rank 16.")
        assert body["load_inplace"] is False
        self.model.load(body["lora_name"], body["lora_path"])
        self.loaded.append((body["lora_name"], self.greedy(self.probe, body["lora_name"])))
        return "loaded"

    def greedy(self, prompt, adapter, count=16):
        """The most likely tokens after a prompt."""
        tokens = []
        with self.model.lock:
            for _ in range(count):
                logits = self.model.logits(torch.tensor([prompt + tokens]), adapter)
                tokens.append(logits[0, -1].argmax().item())
        return tokens

    def completions(self, body):
        first = len(self.bodies("/v1/completions")) == 1
        if first and self.fault == "once_500":
            raise Refusal(500, "a passing fault")
        if self.fault == "dies":
            threading.Thread(target=self.http.server_close).start()
            raise ConnectionAbortedError
        if self.fault == "hangs" and body["model"] != self.bodies("/v1/completions")[0]["model"]:
            self.closing.wait()
            raise ConnectionAbortedError
        if self.fault == "refuses":
            raise Refusal(400, "this model does not like you")
        name = body["model"]
        if name != self.folder and name not in self.model.adapters:
            raise Refusal(404, f"The model `{name}` does not exist.")
        (prompt,) = body["prompt"]
        adapter = None if name == self.folder else name
        completions = (self.replayed(prompt, adapter, body) if self.replay else
                self.model.complete(prompt, adapter, body))
        choices = [{"index": i, "token_ids": tokens, "prompt_token_ids": prompt,
                    "finish_reason": finish, "stop_reason": stop, "text": "",
                    "logprobs": {"tokens": [f"token_id:{token}" for token in tokens],
                                 "token_logprobs": log_probs, "top_logprobs": []}}
                   for i, (tokens, log_probs, finish, stop) in enumerate(completions)]
        last = choices[-1]
        if self.fault == "wrong_count":
            choices.pop()
        if self.fault == "no_log_probs":
            last["logprobs"] = None
        if self.fault == "shifted_log_probs":
            for choice in choices:
                log_probs = choice["logprobs"]["token_logprobs"]
                log_probs[:] = [log_prob - 0.5 for log_prob in log_probs]
        return {"object": "text_completion", "model": name, "choices": choices}

    def replayed(self, prompt, adapter, request):
        """Replays given completions, by prompt, with this model's log-probs."""
        completions = []
        for tokens in self.replay[tuple(prompt)][:request["n"]]:
            with self.model.lock:
                logits = self.model.logits(torch.tensor([prompt + tokens]), adapter)[0]
            log_probs = (logits[len(prompt) - 1:-1] / request["temperature"]).log_softmax(-1)
            stopped = tokens[-1] in request.get("stop_token_ids", [])
            completions.append((tokens, [log_probs[i, token].item() for i, token in enumerate(tokens)],
                         "stop" if stopped else "length", tokens[-1] if stopped else None))
        return completions


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--fault", choices=FAULTS)
    options = parser.parse_args()
    with Server(options.model, options.port, options.fault):
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main()
