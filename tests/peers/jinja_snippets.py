"""Small templates for the comparison with Jinja: every feature of the language."""

import itertools

VARIABLES = {
    "n": 7, "zero": 0, "negative": -3, "large": 18446744073709551615, "x": 2.5, "whole": 3.0,
    "tiny": 1e-7, "huge": 1.5e300, "yes": True, "no": False, "nothing": None, "empty": "",
    "word": "hello", "text": "  Hello, World! it's \"ok\"\n\tsecond line\n\n", "number": "42",
    "real": "3.14", "markup": "<b>&'\"</b>", "unicode": "Straße ǅ ﬁ İstanbul ΑΣ naïve 日本 👩‍👩‍👧",
    "digits": "٣4½", "list": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": [[1, 2], [3]],
    "mixed": [1, "1", 1.0, True, None, [], {}], "blank": [], "none_list": [None, None],
    "map": {"b": 1, "A": 2, "c": {"d": [1, 2]}, "items": "hidden", "get": 5}, "void": {},
    "people": [{"name": "Ann", "age": 31, "job": {"title": "cook"}},
               {"name": "bob", "age": 17, "job": {"title": "cook"}},
               {"name": "Cy", "age": 31, "job": None}],
}
VALUES = [*VARIABLES, "missing", "(1, 2)", "()", "range(4)", "word|safe", "markup|escape",
          "map.items()", "map.keys()"]

# Each filter with several ways of calling it; applied to every value.
FILTERS = [
    "abs", "attr('upper')", "attr('name')", "batch(2)|list", "batch(2, 'x')|list", "capitalize",
    "center(20)", "center(21)", "count", "default('d')", "default('d', true)", "d", "dictsort",
    "dictsort(true)", "dictsort(by='value')", "dictsort(reverse=true)", "e", "escape",
    "escape|escape", "first", "float", "float('other')", "forceescape", "format(1)",
    "groupby('age')", "indent", "indent(2, true)", "indent('>>', blank=true)", "int", "int(9)",
    "int(base=16)", "items|list", "join", "join(', ')", "join('-', attribute='name')", "last",
    "length", "list", "lower", "map('upper')|list", "map(attribute='name')|list",
    "map(attribute='job.title', default='?')|list", "map('default', 'x')|list", "max", "min",
    "max(attribute='age')", "reject|list", "reject('none')|list", "rejectattr('age', 'gt', 20)|list",
    "replace('l', 'L')", "replace('', '-')", "replace('l', '', 1)", "reverse", "reverse|list",
    "round", "round(1)", "round(-1)", "round(method='ceil')", "round(1, 'floor')", "safe",
    "select|list", "select('string')|list", "select('number')|list", "selectattr('job')|list",
    "selectattr('age', 'eq', 31)|list", "slice(2)|list", "slice(3, 'f')|list", "sort",
    "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='name')", "string",
    "sum", "sum(attribute='age')", "sum(start=[])", "title", "tojson", "tojson(indent=2)",
    "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "tojson(sort_keys=true)",
    "tojson(indent=0)", "tojson(indent='--')", "trim", "trim('h ')", "unique|list",
    "unique(attribute='age')|list", "upper", "urlencode", "wordcount", "nonsense", "trim|length",
    "string|length",
]
TESTS = [
    "boolean", "callable", "defined", "divisibleby(3)", "divisibleby 2", "eq 7", "equalto('hello')",
    "== 2.5", "escaped", "even", "false", "filter", "float", "ge 3", "gt 3", "greaterthan 3",
    "in [7, 'hello', none]", "in 'hello world'", "in map", "integer", "iterable", "le 3", "lower",
    "lt 3", "lessthan(3)", "mapping", "ne 7", "none", "number", "odd", "sameas none", "sameas true",
    "sequence", "string", "test", "true", "undefined", "upper", "nonsense",
]
METHODS = [
    "capitalize()", "center(30, '*')", "count('l')", "endswith('o')", "endswith(('o', 'd'))",
    "find('l')", "find('l', 3)", "find('l', -3, 99)", "find('zz')", "format(1, a=2)", "index('l')",
    "isalnum()", "isalpha()", "isascii()", "isdecimal()", "islower()", "isspace()", "isupper()",
    "join(words)", "join(list)", "ljust(12)", "lower()", "lstrip()", "lstrip('h e')",
    "partition('l')", "removeprefix('he')", "removesuffix('lo')", "replace('l', 'LL')",
    "replace('l', 'LL', 1)", "replace('', '.')", "rfind('l')", "rindex('l')", "rjust(9, '0')",
    "rpartition('l')", "rsplit('l', 1)", "rsplit()", "rsplit(none, 1)", "rstrip()", "rstrip('o')",
    "split()", "split('l')", "split('l', 1)", "split(none, 1)", "split(', ')[0]", "split('')",
    "split(maxsplit=0)", "splitlines()", "splitlines(true)", "startswith('he')",
    "startswith('l', 2)", "strip()", "strip('!\\n')", "swapcase()", "title()", "upper()",
    "zfill(8)", "get('b')", "get('zz')", "get('zz', 0)", "items()", "keys()", "values()",
    "keys()|list", "values()|length", "index(1)", "append(1)", "pop()", "update({})", "copy()",
    "__class__", "nope()", "nope", "b", "items", "is_integer()",
]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "not in", "and",
             "or"]
OPERANDS = ["n", "zero", "negative", "x", "yes", "nothing", "word", "'%s|%s'", "'l'", "list", "blank",
            "(1, 2)", "map", "missing", "word|safe", "markup", "range(3)", "'0'"]
SUBSCRIPTS = ["[0]", "[-1]", "[9]", "['b']", "['upper']", "[none]", "[1:]", "[:-1]", "[::-1]",
              "[::2]", "[5:1:-2]", "[-2:]", "[100:]", "[:0]", "[1.0]", "['1':]", "[true]", ".0",
              "[0].name", "[0]['job'].title", "[::0]", "[0, 1]"]

STATEMENTS = [
    "{% for i in list %}{{ loop.index }}{{ i }}{{ loop.first }}{{ loop.last }};{% endfor %}",
    "{% for i in list %}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }}{{ loop.depth }}"
    "{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.index0 }};{% endfor %}",
    "{% for i in list if i > 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{{ i }};{% endfor %}",
    "{% for i in list if i > 9 %}x{% else %}none{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}", "{% for i in missing %}x{% else %}e{% endfor %}",
    "{% for i in nothing %}x{% endfor %}", "{% for i in 5 %}x{% endfor %}",
    "{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in map|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in map %}{{ k }}{% endfor %}", "{% for a, b in nested %}{{ a }}{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}", "{% for c in word %}{{ c }}.{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}"
    "{% endif %}{{ i }}{% endfor %}",
    "{% for i in list %}{% for j in list %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for p in people %}{{ loop.changed(p.age) }}{% endfor %}",
    "{% for i in list recursive %}{{ i }}{% endfor %}",
    "{% set n = 1 %}{% for i in list %}{% set n = n + i %}{{ n }}{% endfor %}{{ n }}",
    "{% set ns = namespace(n=1) %}{% for i in list %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}{{ ns.c }}{{ ns.c is defined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set a.b = 1 %}",
    "{% set n.b = 1 %}", "{% set map.b = 1 %}", "{% set a, b = list %}",
    "{% set block %}a{{ n }}b{% endset %}[{{ block }}]",
    "{% set block | upper | trim %} a{{ word }} {% endset %}[{{ block }}]",
    "{% set v %}{% set w = 1 %}{{ w }}{% endset %}{{ v }}{{ w }}",
    "{% if n %}a{% elif word %}b{% else %}c{% endif %}{% if missing %}a{% elif word %}b{% endif %}",
    "{% if no %}a{% else %}{% if yes %}b{% endif %}{% endif %}",
    "{% if n > 3 %}{% set v = 1 %}{% endif %}{{ v }}", "{% if no %}{% set n = 1 %}{% endif %}{{ n }}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=5) }}{{ m() }}",
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{{ a }}{% endmacro %}{{ m(1, 2, 3, k=4) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ caller(3) }}!{% endmacro %}{% call(x) m() %}<{{ x }}>{% endcall %}",
    "{% macro m() %}a{% endmacro %}{% call m() %}b{% endcall %}",
    "{% macro m(k) %}{{ k }}{% if k > 0 %}{{ m(k - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% macro m() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}",
    "{% macro m() %}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
    "{% for i in list %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() %}{{ i }}{% endmacro %}{% for i in list %}{{ m() }}{% endfor %}",
    "{% macro m() %}<b>{% endmacro %}{{ m()|e }}{{ m() ~ markup }}",
    "{% filter upper %}abc {{ word }}{% endfilter %}", "{% filter replace('a', 'b')|trim %} aa {% endfilter %}",
    "{% with a=1, b=n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{% endwith %}{{ q }}",
    "{% generation %}a{% set g = 1 %}{{ n }}{% endgeneration %}b{{ g }}{%- generation -%} x {%- endgeneration %}",
    "{% for i in list %}{{ i }}{% generation %}<{{ loop.index }}{% endgeneration %};{% endfor %}é{% generation %}é{% endgeneration %}",
    "{% for i in list %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% generation %}{% for i in list %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}{% endgeneration %}",
    "a {# comment #} b", "a\n  {# comment #}\nb", "a {#- c -#} b", "{# {{ no }} {% if %} #}x", "{# open",
    "{% raw %}{{ x }}{% if %}{% endraw %}", "a\n {% raw %}\n {{ x }}\n {% endraw %}\nb",
    "a {%- raw -%} {{ x }} {%- endraw -%} b", "{% raw %}open",
    "  {% if yes %}\n  a\n  {% endif %}\nb", "  {%+ if yes %}\n  a\n  {% endif +%}\nb",
    "a\n\n  {%- if yes -%}\n\n b \n\n {%- endif -%}\n\nc", "x{% if yes %}   \n y{% endif %}",
    "x  {% if yes %}\n y{% endif %}", "{{ n }}\n", "{{ n }}\n\n", "{{- n -}}  \n a", "a  {{- n }} b",
    "a\r\n{% if yes %}\r\nb\r{% endif %}c\r\n", "{{ 'a\r\nb' }}", "\t{% set a = 1 %}\n\tx",
    "a {% set a = 1 %} b\n", "{{ '}}' }}{{ '%}' }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a':{}}}}",
    "{{ }}", "{{ n", "{% if %}", "{% endif %}", "{% for i in list %}", "{% unknown %}", "{{ n }",
    "{{ 1 2 }}", "{{ n. }}", "{{ n[ }}", "{{ (n }}", "{{ n) }}", "{{ n | }}", "{{ n is }}", "{{ * }}",
    "{% set = 1 %}", "{% set true = 1 %}", "{% macro %}{% endmacro %}", "{% else %}", "{% break %}",
    "{% for i %}{% endfor %}", "{{ f(a=1, 2) }}", "{{ $ }}", "{{ 'open }}", "{{ a b }}", "{% if n %}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}",
    "{{ 1, 2 }}", "{{ (1,) }}", "{{ () }}", "{{ [1, 2,] }}", "{{ {'a': 1,} }}", "{{ {1: 2, none: 3, (1, 2): 4} }}",
    "{{ {[]: 1} }}", "{{ 'a' 'b' \"c\" }}", "{{ 'a\\n\\t\\\\\\'\\x41\\u00e9\\U0001F600\\101\\q' }}",
    "{{ 1_000 }}{{ 0x1F }}{{ 0b101 }}{{ 0o17 }}{{ 1e3 }}{{ 1.5e-3 }}{{ 0 }}{{ 00 }}{{ 1_0.5 }}{{ 12e+2 }}",
    "{{ 1.0 }}{{ 1e16 }}{{ 1e15 }}{{ 123456789.123456789 }}{{ 0.0001 }}{{ 0.00001 }}{{ -0.0 }}{{ 1e100 }}",
    "{{ 2 ** 10 }}{{ 2 ** -1 }}{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}{{ 7 // 2 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 % -3 }}"
    "{{ 7.5 // 2 }}{{ -7.5 % 2 }}{{ 1 / 3 }}{{ 4 / 2 }}{{ 0.1 + 0.2 }}",
    "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ 'a' * 3 }}{{ 3 * 'a' }}{{ [1] * 2 }}",
    "{{ 1 + 2 * 3 - 4 / 2 }}{{ (1 + 2) * 3 }}{{ 1 ~ 2 + 3 }}{{ 1 + 2 ~ 3 }}{{ not true or true }}",
    "{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 1 == 1.0 == true }}{{ not 1 == 2 }}{{ 'a' < 'b' }}{{ [1] < [1, 2] }}",
    "{{ -n|abs }}{{ +n }}{{ - - n }}{{ n|string|length }}{{ not n is odd }}{{ -3|string ~ 1 }}",
    "{{ 'a' if n }}{{ 'a' if missing }}{{ 'a' if missing else 'b' }}{{ 1 if 0 else 2 if 0 else 3 }}",
    "{{ ('x' if missing).y }}", "{{ missing.x }}", "{{ missing['x'] }}", "{{ missing() }}", "{{ missing + 1 }}",
    "{{ missing ~ 'x' }}", "{{ missing == missing }}{{ missing == none }}{{ missing is none }}", "{{ -missing }}",
    "{{ missing < 1 }}", "{{ 1 in missing }}", "{{ missing in [1] }}", "{{ missing in 'a' }}", "{{ none.x }}{{ none['x'] }}",
    "{{ map.x.y }}", "{{ list.x }}{{ list['x'] }}", "{{ word() }}", "{{ n() }}", "{{ map.b() }}",
    "{{ yes and word }}{{ no or nothing }}{{ blank or 'x' }}{{ 0 and missing.x }}", "{{ yes + yes }}{{ yes * 2.5 }}",
    "{{ '%s %r %d %5.2f %05d %-5s| %x %o %e %g %% %c %+d' % (word, word, n, x, n, word, n, n, x, x, 65, n) }}",
    "{{ '%(a)s %(b)d' % {'a': 1, 'b': 2.7} }}", "{{ '%s' % list }}", "{{ '%s %s' % (1,) }}", "{{ '%s' % (1, 2) }}",
    "{{ '%d' % 'a' }}", "{{ '%' % 1 }}", "{{ '%y' % 1 }}", "{{ 'x' % () }}", "{{ '%.3s|%*d' % (word, 5, n) }}",
    "{{ '{} {1}'.format(1, 2) }}", "{{ '{} {}'.format(1, 'a') }}{{ '{0}{1}{0}'.format('a', 'b') }}{{ '{{}}'.format() }}",
    "{{ '{a} {b[0]} {c.name}'.format(a=1, b=list, c=people[0]) }}", "{{ '{:>8}|{:<8}|{:^8}|{:*^9}|'.format('a', 'b', 'c', 'd') }}",
    "{{ '{:08.3f}|{:+d}|{:,}|{:x}|{:#x}|{:%}|{:e}|{:_}|{:b}'.format(x, n, 1234567, 255, 255, 0.5, x, 1234567, 5) }}",
    "{{ '{!r} {!s}'.format(word, word) }}", "{{ '{'.format() }}", "{{ '}'.format() }}", "{{ '{}'.format() }}", "{{ '{x}'.format(y=1) }}",
    "{{ '{:d}'.format('a') }}", "{{ '{:s}'.format(1) }}", "{{ '{:5}|{:5}'.format(none, true) }}",
    "{{ word|safe + markup }}{{ markup + word|safe }}{{ (word|safe) ~ markup }}{{ '<%s>'|safe % markup }}",
    "{{ (markup|safe)|replace('b', 'i') }}{{ (markup|safe).upper() + '<' }}{{ (markup|e)|upper + '<' }}{{ ['<', '>'|safe]|join('&') }}",
    "{{ range(5) }}{{ range(1, 5)|list }}{{ range(5, 0, -2)|list }}{{ range(0)|list }}{{ range(3)[1] }}{{ 2 in range(3) }}", "{{ range(1, 2, 0) }}",
    "{{ range(1000000) }}", "{{ range() }}", "{{ range('a') }}", "{{ dict(a=1, b=2) }}{{ dict([('a', 1)]) }}{{ dict({'a': 1}, b=2) }}",
    "{{ raise_exception('told you') }}", "{{ strftime_now('%Y') }}", "{{ namespace }}{{ 1 }}" if False else "{{ 1 }}",
    "{{ [1, 'a', none, true, 2.0, [1], {'k': (1,)}] }}", "{{ ['it\\'s', 'say \"x\"', 'both \\' \"', 'tab\\t', 'é', '\\x7f', '\\u200b'] }}",
    "{{ f(*[1], **{'a': 1}) }}", "{{ dict(**{'a': 1}) }}{{ range(*[1, 3])|list }}", "{{ 'abc'|list|join('-')|upper }}",
    "{{ words|sort|join }}{{ words|sort(case_sensitive=true)|join }}{{ [1, 'a']|sort }}", "{{ people|map(attribute='name')|join(',') }}",
    "{{ people|selectattr('age', '>', 20)|map(attribute='name')|list }}{{ people|groupby('age')|length }}",
    "{{ people|selectattr('job.title', 'defined')|list|length }}{{ people|sum(attribute='age') }}",
    "{% set g = list|select('odd') %}{{ g|list }}{{ g|list }}{{ 1 if g }}", "{% set g = list|map('string') %}{{ g|first }}{{ g|join }}",
    "{{ list|map('nonsense')|list }}", "{% if no %}{{ 1|nonsense }}{{ 1 is nonsense }}{% endif %}ok", "{{ 1|nonsense if no else 'ok' }}",
    "{{ 'x' is in 'xyz' }}{{ 1 is in [1] }}{{ 1 is not in [1] }}{{ n is not none }}{{ n is not defined }}", "{{ n is defined is true }}",
    "{{ n is eq 7 and yes }}{{ n is divisibleby 7 or no }}{{ word is string and n is number }}{{ 1 is sameas 1 }}{{ list is sameas list }}",
    "{{ nested[0][1] }}{{ map['c'].d[-1] }}{{ map.items }}" if False else "{{ nested[0][1] }}{{ map['c'].d[-1] }}{{ map['items'] }}{{ map['get'] }}",
    "{{ (1, 2)[0] }}{{ [1, 2, 3][1:] }}{{ 'abc'[1] }}{{ 'abc'[-1:] }}{{ unicode[:7] }}{{ unicode[::-1] }}{{ unicode|length }}",
    "{{ nested.0.1 }}", "{{ list[:'a'] }}", "{% set x = list[::-1] %}{{ x }}", "{{ word.upper().lower().title() }}",
    "{% print n %}", "{{ loop }}", "{% for i in list %}{{ loop.nope }}{% endfor %}", "{% set loop = 1 %}{{ loop }}",
    "{% for i in list %}{% set i = 9 %}{{ i }}{% endfor %}", "{% for i in [1] %}{% for j in [2] %}{% set k = i + j %}{% endfor %}{{ k }}{% endfor %}",
    "{{ n\n+\n1 }}", "{%\nif yes\n%}a{%\nendif\n%}", "{{n}}{{-n}}{{ -n}}", "{%if yes%}a{%endif%}", "{{ True }}{{ False }}{{ None }}{{ true }}{{ none }}",
    "{{ caller }}", "{{ varargs }}", "{{ self }}" if False else "{{ 2 }}", "{{ x|round|int }}{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 1234.5|round(-2) }}{{ 15|round(-1) }}{{ 25|round(-1) }}",
    "{{ '  42 '|int }}{{ '4_2'|int }}{{ '0x1f'|int(base=16) }}{{ 'abc'|int(-1) }}{{ '1e3'|int }}{{ 'inf'|float }}{{ '-1.5e2'|float }}{{ 3.99|int }}{{ none|int }}{{ ''|int }}",
]


# What differs on purpose: it is refused here, with an error that says so, or it is an accident of
# Jinja's optimizer.
DIFFERENT = [
    "(huge)|int",                    # integers of more than 100 bits
    "(negative) ** (x)",             # complex numbers
    "recursive %}",
    "|urlencode", "(missing).__class__", "|attr('upper') }}", "['upper'] }}",
    "((1, 2))['1':]", "(())['1':]",  # folded when Jinja compiles, to nothing
]


def snippets():
    return (source for source in all_snippets() if not any(part in source for part in DIFFERENT))


def all_snippets():
    for value in VALUES:
        yield f"{{{{ {value} }}}}"
        yield f"{{{{ {value}|string }}}}{{{{ 'T' if {value} }}}}{{{{ [{value}] }}}}"
        for filter_ in FILTERS:
            yield f"{{{{ ({value})|{filter_} }}}}"
        for test in TESTS:
            yield f"{{{{ ({value}) is {test} }}}}"
        for method in METHODS:
            yield f"{{{{ ({value}).{method} }}}}"
        for subscript in SUBSCRIPTS:
            yield f"{{{{ ({value}){subscript} }}}}"
    for left, operator, right in itertools.product(OPERANDS, OPERATORS, OPERANDS):
        yield f"{{{{ ({left}) {operator} ({right}) }}}}"
    yield from STATEMENTS
