"""Chat templates: our interpreter renders the same bytes as transformers.

The templates are those that the trl package brings, and some written here. Runs under a Python
that has transformers and trl; finds the program `render` in $MGPU_BUILD/bin.
"""

import copy
import importlib.util
import json
import logging
import os
import pathlib
import re
import subprocess
import unicodedata
import unittest

from transformers.utils import chat_template_utils

import jinja_snippets

ROOT = pathlib.Path(__file__).resolve().parents[2]
RENDER = pathlib.Path(os.environ.get("MGPU_BUILD", ROOT / "build")) / "bin" / "render"
TOKENS = {"bos": "<|bos|>", "eos": "<|eos|>", "pad": "<|pad|>"}

# They need images or audio in the messages; their text is compared nevertheless.
MULTIMODAL = {"idefics3", "llava_next", "qwen2_5_vl", "qwen3_vl", "smolvlm", "lfm2_2_5_vl"}
MUST = ["qwen2_5", "qwen2_5_training", "qwen3", "qwen3_training", "qwen3_instruct_2507",
        "qwen3_instruct_2507_training", "llama3", "llama3_training", "llama3_1", "llama3_2"]

LLAMA_2 = """\
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}\
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}\
{% set system_message = false %}{% endif %}{% for message in loop_messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Roles must alternate: user, assistant, user, assistant, ...') }}{% endif %}\
{% if loop.index0 == 0 and system_message != false %}\
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}\
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}\
{% endfor %}"""

# As Mistral-7B-Instruct-v0.1's.
MISTRAL = """\
{{ bos_token }}{% for message in messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}\
{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}\
{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}\
{% endfor %}"""

# As Mistral-7B-Instruct-v0.3's, which has tools.
MISTRAL_3 = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or \
(message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
"""

CHATML = """\
{% for message in messages %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place, <now> & here.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "A city, e.g. \"Zürich\""},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 1e16, "default": 2},
    }, "required": ["city"]}}}
NESTED = {"type": "function", "function": {
    "name": "book", "description": "", "strict": True,
    "parameters": {"type": "object", "additionalProperties": False, "properties": {
        "guests": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "age": {"type": "number", "nullable": True}},
            "required": []}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "when": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "price": {"type": "number", "default": 0.1, "description": "多少钱 💶"},
        "kind": {"oneOf": [{"type": "string", "description": "a name"}, {"type": "integer"}]},
        "flag": {"type": "boolean", "default": True}}},
    "return": {"type": "object", "properties": {"id": {"type": "string"}}}}}
PLAIN = {"type": "function", "function": {
    "name": "stop", "description": "Stops.", "parameters": {"type": "object", "properties": {}}}}
BARE = {"name": "no_wrapper", "description": "Not in a function object.",
        "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}
TOOLS = [None, [], [WEATHER], [PLAIN, NESTED, WEATHER], [BARE]]


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def called(name, arguments, content="", **more):
    return said("assistant", content, tool_calls=[
        {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}],
        **more)


SYSTEM = said("system", "You are terse.\nVery.")
QUESTION = said("user", "What is 2 + 2?")
ANSWER = said("assistant", "4")
ODD_TEXTS = [
    "", " ", "\n", "  padded \n\n", "line one\nline two\r\nline three", "tab\there",
    "naïve café — “quotes” 'single' \"double\" \\ back\\slash", "日本語 العربية हिन्दी עברית",
    "emoji 👩‍👩‍👧‍👦 🇨🇭 \U0001F600", "\u00a0no-break\u3000ideographic\u2028separator\x0b\x1c",
    "<tool_response>looks like one</tool_response>", "{{ not a template }} {% if %} {# #}",
    "<think>\nhidden\n</think>\n\nshown", "a</think>b</think>c", "<|im_end|>\n<|im_start|>user",
    "null \x00 byte \x7f", "x" * 3000,
]
ARGUMENTS = [
    {"city": "Zürich", "days": 3}, {}, {"nested": {"a": [1, 2.5, None, True, False, "ü"], "b": {}}},
    {"big": 12345678901234567890, "small": -7, "float": 1e-7, "huge": 1e22, "one": 1.0,
     "quote": "\"'\\/\n"}, "{\"city\": \"as text\"}",
]


def conversations():
    yield "empty", []
    yield "question", [QUESTION]
    yield "system", [SYSTEM, QUESTION]
    yield "system only", [SYSTEM]
    yield "turn", [QUESTION, ANSWER]
    yield "assistant first", [ANSWER, QUESTION]
    yield "turns", [SYSTEM, QUESTION, ANSWER, said("user", "And 3?"), said("assistant", "3")]
    yield "many turns", [said(("user", "assistant")[i % 2], f"message {i}") for i in range(20)]
    yield "open", [SYSTEM, QUESTION, ANSWER, said("user", "And then?")]
    yield "twice the assistant", [QUESTION, ANSWER, said("assistant", "Or 5.")]
    yield "late system", [QUESTION, ANSWER, SYSTEM, QUESTION]
    yield "developer", [said("developer", "Follow."), QUESTION, ANSWER]
    yield "unknown role", [said("narrator", "Once"), QUESTION]
    yield "no content", [QUESTION, {"role": "assistant"}]
    yield "null content", [QUESTION, said("assistant", None)]
    for text in ODD_TEXTS:
        yield f"odd user {text[:20]!r}", [said("user", text)]
        yield f"odd everywhere {text[:20]!r}", [said("system", text), said("user", text),
                                                said("assistant", text), said("user", "x" + text),
                                                said("assistant", text + "x")]
    for key in ("reasoning_content", "thinking", "reasoning"):
        thought = {key: "\nLet me see:\n\n2 and 2\n"}
        yield key, [QUESTION, said("assistant", "4", **thought)]
        yield key + " twice", [SYSTEM, QUESTION, said("assistant", "4", **thought),
                               said("user", "And?"), said("assistant", "5", **thought)]
        yield key + " with tools", [QUESTION, called("get_weather", ARGUMENTS[0], **thought),
                                    said("tool", "{\"t\": 21}", name="get_weather"),
                                    said("assistant", "21", **thought)]
    yield "reasoning empty", [QUESTION, said("assistant", "4", reasoning_content="")]
    yield "reasoning null", [QUESTION, said("assistant", "4", reasoning_content=None)]
    for arguments in ARGUMENTS:
        call = called("get_weather", arguments)
        result = said("tool", "{\"temperature\": 21.5}", name="get_weather",
                      tool_call_id="call00001")
        yield f"call {arguments}", [QUESTION, call]
        yield f"result {arguments}", [SYSTEM, QUESTION, call, result]
        yield f"results {arguments}", [QUESTION, called("get_weather", arguments, "Looking."),
                                       result, said("assistant", "21.5"), QUESTION, call, result,
                                       result, said("assistant", "Still.")]
    two = said("assistant", None, tool_calls=[
        {"type": "function", "function": {"name": "stop", "arguments": {}}},
        {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "東京"}}}])
    yield "two calls", [QUESTION, two, said("tool", "ok", name="stop"), said("tool", ["a", {"b": 1}]),
                        said("assistant", "Done.")]
    yield "flat call", [QUESTION, said("assistant", "", tool_calls=[
        {"name": "stop", "arguments": {"n": 1}}]), said("tool", {"state": "off"})]
    yield "no calls", [QUESTION, said("assistant", "4", tool_calls=[])]
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "this?"}]
    yield "parts", [said("user", parts), said("assistant", [{"type": "text", "text": "It."}])]
    yield "image", [said("user", [{"type": "image"}, *parts]), ANSWER]


EXTRAS = [
    {}, {"enable_thinking": True}, {"enable_thinking": False},
    {"thinking": True, "reasoning_effort": "high", "preserve_thinking": True,
     "date_string": "1 Jan 2030"},
    {"builtin_tools": ["browser", "python", "code_interpreter"], "tools_in_user_message": False,
     "truncate_history_thinking": False, "model_identity": "You are a test.", "bos_token": "<B>"},
]


def asked(template, messages, tools, prompt, extra):
    return {"template": template, "messages": messages, "tools": tools,
            "add_generation_prompt": prompt, "extra": extra, "tokens": TOKENS}


def requests(template):
    """Each conversation with and without a generation prompt, then one other option at a time."""
    for number, (name, messages) in enumerate(conversations()):
        for prompt in (False, True):
            yield name, asked(template, messages, None, prompt, {})
            for shift in range(3):
                tools = TOOLS[(number + shift) % len(TOOLS)]
                extra = EXTRAS[(number + 2 * shift + prompt) % len(EXTRAS)]
                yield name, asked(template, messages, tools, prompt, extra)


def theirs(request):
    variables = {f"{name}_token": text for name, text in TOKENS.items()}
    # A copy, since Jinja's own indent filter changes a list that it is given.
    variables.update(copy.deepcopy(request["extra"]))
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            [request["messages"]], tools=request["tools"], chat_template=request["template"],
            return_assistant_tokens_mask=True,
            add_generation_prompt=request["add_generation_prompt"], **variables)
    except Exception as error:  # any exception means that nothing is rendered
        return {"error": f"{type(error).__name__}: {error}"}
    text = texts[0]
    bytes_before = [0]
    for character in text:
        bytes_before.append(bytes_before[-1] + len(character.encode()))
    return {"text": text, "spans": [[bytes_before[a], bytes_before[b]] for a, b in spans[0]]}


def ours(all_requests):
    lines = "".join(json.dumps(request) + "\n" for request in all_requests)
    output = subprocess.run([RENDER], input=lines.encode(), stdout=subprocess.PIPE, timeout=600,
                          check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


class Peers(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        logging.getLogger("transformers").setLevel(logging.ERROR)

    def compare(self, named_requests, at_least):
        """Renders everything on both sides; both must reject the same inputs."""
        rendered = 0
        answers = ours([request for _, request in named_requests])
        self.assertEqual(len(answers), len(named_requests))
        for (name, request), answer in zip(named_requests, answers):
            expected = theirs(request)
            shown = {key: request[key] for key in ("tools", "add_generation_prompt", "extra")}
            with self.subTest(conversation=name, **shown):
                if " at 0x" in expected.get("text", ""):  # Python's words for what has no text
                    self.assertIn("no text", answer["error"])
                    continue
                if "error" in expected or "error" in answer:
                    self.assertEqual("error" in expected, "error" in answer, (expected, answer))
                    self.assertRegex(answer["error"], r"^chat template line \d+: [^\n]+$")
                    continue
                rendered += 1
                self.assertEqual(answer["text"], expected["text"])
                self.assertEqual(answer["spans"], expected["spans"])
        self.assertGreaterEqual(rendered, at_least)


def named(template, messages, tools, prompt, extra):
    return {**asked("", messages, tools, prompt, extra), "name": template}


def template_folder():
    return pathlib.Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"


class ModelTemplates(Peers):
    def test_the_main_models_have_templates(self):
        for name in MUST:
            self.assertTrue((template_folder() / f"{name}.jinja").exists(), name)

    def test_llama_2(self):
        self.compare(list(requests(LLAMA_2)), 200)

    def test_mistral(self):
        self.compare(list(requests(MISTRAL)), 100)
        self.compare(list(requests(MISTRAL_3)), 100)

    def test_chatml(self):
        self.compare(list(requests(CHATML)), 200)


class NamedTemplates(Peers):
    """Our templates by name write what the models' own templates write."""

    MODELS = {"qwen": "qwen2_5", "qwen3": "qwen3", "qwen3_nothink": "qwen3_instruct_2507",
              "llama3": "llama3"}
    # The models' templates do not agree on these: roles that they do not have, and no content.
    OTHERS = ("developer", "unknown role", "no content", "null content", "two calls", "empty",
              "flat call", "parts", "image", "thinking", "reasoning twice", "reasoning with tools")

    def test_each_name(self):
        for name, model in self.MODELS.items():
            source = (template_folder() / f"{model}.jinja").read_text()
            compared = 0
            for case, messages in conversations():
                if case in self.OTHERS or case.startswith(("call", "result")) and name == "llama3":
                    continue
                # Arguments that are text are written as they are, as in Qwen3, not quoted again.
                if name == "qwen" and "as text" in case:
                    continue
                tools = None if name == "llama3" else [WEATHER, NESTED]
                for prompt, extra in ((False, {}), (True, {}), (True, {"enable_thinking": False})):
                    for given in (None, tools):
                        expected = theirs(asked(source, messages, given, prompt, extra))
                        if "error" in expected:
                            continue
                        answer, = ours([named(name, messages, given, prompt, extra)])
                        with self.subTest(name=name, conversation=case, tools=bool(given)):
                            self.assertEqual(answer.get("text"), expected["text"], answer)
                        compared += 1
            self.assertGreater(compared, 100, name)


class Language(Peers):
    def test_snippets(self):
        extra = jinja_snippets.VARIABLES
        self.compare([(source, asked(source, [], None, False, extra))
                      for source in jinja_snippets.snippets()], 5000)


    def test_case_conversion_of_every_character(self):
        # Characters newer than Python's tables have no case in Python.
        known = [chr(code) for code in range(1, 0x20000)
                 if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
        source = "{% for c in v %}" + "".join(
            "{{ c.%s() }} " % method for method in
            ("upper", "lower", "title", "capitalize", "swapcase", "isupper", "islower", "isspace")
        ) + ";{% endfor %}{{ v }}"
        self.compare([(f"from {known[at]!r}", asked(source, [], None, False,
                                                    {"v": known[at:at + 2000]}))
                      for at in range(0, len(known), 2000)], len(known) // 2000)


class SpansWithoutMarks(Peers):
    """A template without generation marks gets the spans that its training variant marks."""

    # Their marks hold the mark that begins the next turn or leave out one that ends this turn, join
    # answers in a row with the headers in between, or end before what a message without text leaves.
    OTHER_IDEAS = {"glm4moe", "diffusion_gemma", "muse_glimmer", "deepseek_r1_distill", "deepseekv3",
                   "phi3", "phi3_5"}

    def pairs(self):
        for marked in sorted(template_folder().glob("*_training.jinja")):
            plain = marked.with_name(marked.name.replace("_training", ""))
            if plain.exists() and plain.stem not in self.OTHER_IDEAS | MULTIMODAL:
                yield plain, marked

    def prompt(self, template, extra):
        """The text that add_generation_prompt adds after a question."""
        without, with_prompt = (theirs(asked(template, [QUESTION], None, prompt, extra))["text"]
                                for prompt in (False, True))
        return with_prompt[len(without):] if with_prompt.startswith(without) else ""

    def compare_pair(self, plain, marked):
        known = [(request, theirs(request)) for _, request in requests(marked.read_text())
                 if not request["add_generation_prompt"]]
        found = ours([{**request, "template": plain.read_text(), "assistant": True}
                      for request, _ in known])
        compared = 0
        for (request, expected), answer in zip(known, found):
            # Where the training variant writes other words there is nothing to compare.
            if "error" in expected or answer.get("text") != expected["text"]:
                continue
            mine, other = merged(answer["spans"]), merged(expected["spans"])
            text = answer["text"].encode()
            prompt = self.prompt(plain.read_text(), request["extra"]).encode()
            with self.subTest(template=plain.stem, messages=request["messages"],
                              extra=request["extra"]):
                self.assertEqual([end for _, end in mine], [end for _, end in other], text)
                for (begin, _), (their_begin, _) in zip(mine, other):
                    # Some of their marks begin within the generation prompt.
                    self.assertLessEqual(their_begin, begin)
                    self.assertIn(text[their_begin:begin], prompt)
                compared += bool(mine)
        return compared

    def test_each_pair(self):
        for plain, marked in self.pairs():
            compared = self.compare_pair(plain, marked)
            self.assertGreater(compared, 20 if plain.stem in MUST else 0, plain.stem)


def merged(spans):
    whole = []
    for begin, end in spans:
        if begin == end:
            continue
        if whole and whole[-1][1] == begin:
            whole[-1][1] = end
        else:
            whole.append([begin, end])
    return whole


def add_template_tests():
    def make(path):
        def test(self):
            source = path.read_text()
            self.compare(list(requests(source)), 20 if path.stem in MULTIMODAL else 100)
        return test

    for path in sorted(template_folder().glob("*.jinja")):
        setattr(ModelTemplates, "test_trl_" + re.sub(r"\W", "_", path.stem), make(path))


add_template_tests()

if __name__ == "__main__":
    unittest.main()
