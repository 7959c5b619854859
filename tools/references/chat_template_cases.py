"""Expressions, templates and conversations for compare_chat_templates.py."""

VARIABLES = {
    "n": 7, "x": -3, "big": 123456789012345, "half": 0.5, "tiny": 1e-7, "huge": 1e22, "third": 1 / 3, "yes": True,
    "no": False, "none_": None, "s": "Hello, World", "empty": "", "spaced": "  a b\t c \n", "lines": "one\ntwo\r\n\nthree",
    "uni": "Grüße aus Köln – Straße ßﬁ ŉ 日本語 🎉 é", "quote": "it's \"quoted\" \\ and\ttabs\n", "html": "<b>&'\"</b>",
    "control": "\u0001\u007f\u0085\u200b\u2028",
    "l": [3, 1, 2], "words": ["banana", "Apple", "cherry", "apple"], "mixed": [1, "a", None, True, 2.5, [1], {"k": 1}],
    "nested": [[1, 2], [3, [4, 5]]], "d": {"b": 2, "a": 1, "C": 3}, "deep": {"a": {"b": {"c": [10, {"d": "leaf"}]}}},
    "people": [
        {"name": "Ann", "age": 30, "city": "Rome"}, {"name": "bob", "age": 25, "city": "Oslo"},
        {"name": "Cid", "age": 30, "city": "Rome", "tags": ["x"]},
    ],
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
    "shadow": {"items": "mine", "get": "got", "keys": 1, "update": 2},
}  # fmt: skip

EXPRESSIONS = [
    # literals and printing
    "1", "1_000", "0x1f", "0o17", "0b101", "1.5", "1e3", "1.5e-7", "2e16", "1e15", "123456789.125", "-0.0", "1_0.2_5", "true",
    "True", "false", "none", "None", "'a' 'b'", "\"it's\"", "'tab\\tnew\\nline'", "'\\x41\\u00e9\\101'", "'back\\qslash'",
    "'\\\\'", "[]", "()", "{}", "[1, 2,]", "(1,)", "(1, 2)", "1, 2", "{'a': 1, 2: 'b', none: [1]}", "[none, true, 1.0, 'x']",
    "third", "half", "tiny", "huge", "1e100", "0.1 + 0.2", "100000000000000000.0", "[quote]", "[control]", "[uni]",
    "mixed", "d", "deep", "nested", "1.0", "5 / 2", "4 / 2", "[empty]", "['it\\'s', 'a\"b', 'both\\'\"']",
    # operators
    "1 + 2 * 3", "(1 + 2) * 3", "7 // 2", "-7 // 2", "7 % 3", "-7 % 3", "7 % -3", "2 ** 10", "2 ** -1", "-2 ** 2", "2 ** 3 ** 2",
    "7.5 // 2", "-7.5 % 2", "1 - 2 - 3", "n + half", "n * 'ab'", "'ab' * 2", "[1] * 3", "2 * [1, 2]", "(1,) + (2,)", "[1] + [2]",
    "'a' + 'b'", "'a' ~ 1 ~ none ~ 2.0", "1 ~ 2 + 3", "1 + 2 ~ 3", "n == 7.0", "true == 1", "1 == '1'", "none == false", "'a' < 'b'",
    "1 < 2 < 3", "1 < 3 < 2", "3 > 2 >= 2 != 1", "[1, 2] < [1, 3]", "not n", "not not n", "n and 'x'", "0 or 'y'", "'' or none or 0",
    "1 in l", "4 in l", "4 not in l", "'ell' in s", "'a' in d", "'z' not in d", "none in mixed", "'x' if yes else 'y'", "'x' if no",
    "'x' if no else 'y' if no else 'z'", "(1 if yes) + 1", "-n", "+n", "-(-n)", "not 1 == 2", "not 'a' in s", "- n | abs", "n|string + 'a'",
    "1 + true", "true + true", "'%s is %d' % ('x', 3)", "'%05.2f|%-5s|%5s|%x' % (half, 'ab', 'cd', 255)", "'%(a)s' % {'a': 1}", "'100%%' % ()",
    "'%r' % 'q'", "'%s' % l", "'%+d % d' % (3, 4)", "'a' 'b' ~ 'c'", "missing == missing2", "missing is defined and missing.x",
    # refused
    "missing.x", "missing + 1", "missing()", "1 + 'a'", "'a' + 1", "none + 1", "1 / 0", "1 // 0", "1 % 0", "1 < 'a'", "none < 1", "l.append(4)",
    "d.update({})", "d.pop('a')", "n()", "s.nothing()", "1 in 5", "'a' in missing", "1 in 'abc'", "[1] + (2,)", "{[1]: 2}", "l['a'].x", "-none",
    "'x' * 'y'", "l[missing].x", "range(1000000)", "(1).x.y", "''.__class__", "''.__class__.x", "d.__len__()", "n | nosuch", "n is nosuch",
    "l|first|nosuch if no else 1", "none|length", "5|list", "namespace(a=1).b.c", "raise_exception('no')", "s.split('')", "s.index('zzz')",
    "'{}'.format()", "'{x}'.format(1)", "'%d' % 'a'", "'%s %s' % 1", "'%s' % (1, 2)", "n.x.y", "dict(1)", "[1,2]|join(missing.x)",
    # access
    "d.a", "d['a']", "d.missing", "d['missing'] is defined", "d.get('a')", "d.get('z')", "d.get('z', 5)", "deep.a.b.c[1].d", "deep['a']['b'].c.0",
    "l[0]", "l[-1]", "l[10]", "l[true]", "s[0]", "s[-1]", "s[100]", "uni[4]", "uni[1:6]", "uni[::-1]", "s[7:]", "s[:-6]", "s[::2]", "s[10:2:-2]", "l[1:]", "l[::-1]",
    "l[:1] + l[1:]", "(1, 2, 3)[1:]", "l[5:]", "l[-100:2]", "l[2:-100:-1]", "shadow.items is callable", "shadow['items']", "shadow.get is callable", "shadow['get']", "shadow.keys is callable",
    "shadow['update']", "people[0].name", "people[0]['tags']", "people[2].tags[0]", "s.upper is callable", "d.items() | list", "d.keys() | list", "d.values()", "d.keys()", "d.items()",
    "none.x", "n.x", "l.x", "s.x", "l['0']", "d[1]", "'abc'[1]", "[1,2,3][-2]", "{'a': {'b': 1}}.a.b", "namespace(a=1).a", "namespace({'k': 2}).k", "dict(a=1, b=2)",
    "dict(d, z=9)", "dict([('p', 1)])", "range(5) | list", "range(2, 8, 3) | list", "range(5, 0, -2) | list", "range(3)", "range(0, 10, 2)", "range(5)[1]", "range(3)|length",
    # methods
    "s.upper()", "s.lower()", "s.title()", "s.capitalize()", "s.swapcase()", "uni.upper()", "uni.lower()", "uni.title()", "'they\\'re bill\\'s'.title()", "spaced.strip()",
    "spaced.lstrip()", "spaced.rstrip()", "'xxaxx'.strip('x')", "'xyaxy'.lstrip('xy')", "'abcba'.rstrip('ab')", "s.split()", "spaced.split()", "s.split(', ')", "'a,b,c'.split(',', 1)",
    "'a,b,c'.rsplit(',', 1)", "' a  b c '.split(none, 1)", "' a  b c '.rsplit(none, 1)", "''.split()", "''.split(',')", "'a,,b'.split(',')", "lines.splitlines()",
    "lines.splitlines(true)", "s.replace('l', 'L')", "s.replace('l', 'L', 1)", "s.replace('', '-')", "s.startswith('Hello')", "s.startswith(('x', 'He'))", "s.endswith('d')",
    "s.startswith('W', 7)", "s.find('o')", "s.find('o', 5)", "s.rfind('o')", "s.find('zzz')", "uni.find('ü')", "uni.index('K')", "s.count('l')", "s.count('')", "s.count('l', 4)",
    "', '.join(words)", "','.join('abc')", "s.partition(', ')", "s.rpartition('o')", "s.partition('zz')", "s.removeprefix('Hello')", "s.removesuffix('zz')", "s.isupper()", "s.islower()",
    "'ABC'.isupper()", "'abc1'.isalnum()", "'abc'.isalpha()", "'123'.isdigit()", "''.isdigit()", "' \\n'.isspace()", "'Ab Cd'.istitle()", "s.center(20, '*')", "s.ljust(15) ~ '|'",
    "s.rjust(15) ~ '|'", "'7'.zfill(3)", "'-7'.zfill(4)", "'a\\tb'.expandtabs(4)", "'{} and {}'.format(1, 'b')", "'{0}{1}{0}'.format('a', 'b')", "'{x:>5}|{y:<5}|{z:^5}'.format(x=1, y='b', z='c')",
    "'{:.2f} {:05d} {:,}'.format(3.14159, 42, 1234567)", "'{:x} {:#x} {:b} {:e}'.format(255, 255, 5, 12345.678)", "'{!r} {!s}'.format('a', 'b')", "'{{}} {}'.format(1)", "'{a[0]} {b[k]}'.format(a=[1], b={'k': 2})",
    "'{:.1%} {:g}'.format(0.256, 1e10)", "'{:{w}}|'.format('a', w=4)", "l.index(1)", "l.count(3)", "(1, 2).index(2)", "d.copy()", "'AbC'.casefold()", "'%s'|format('x')",
    # filters
    "s|length", "uni|length", "l|length", "d|count", "s|upper", "s|lower", "s|title", "uni|title", "s|capitalize", "none|upper", "5|lower", "spaced|trim", "'xax'|trim('x')", "s|replace('o', '0')",
    "s|replace('o', '0', 1)", "n|replace('7', 'seven')", "missing|default('d')", "empty|default('d')", "empty|default('d', true)", "none_|default('d')", "missing|d", "l|first", "l|last", "[]|first", "[]|last is defined",
    "s|first", "s|last", "l|sort", "l|sort(reverse=true)", "words|sort", "words|sort(case_sensitive=true)", "people|sort(attribute='age')|map(attribute='name')|join(',')",
    "people|sort(attribute='age,name')|map(attribute='name')|list", "l|reverse|list", "s|reverse", "l|sum", "people|sum(attribute='age')", "[0.5, 0.25]|sum", "[[1], [2]]|sum(start=[])", "l|max", "l|min", "words|max", "words|min",
    "[]|max is defined", "people|max(attribute='age')", "l|join", "l|join(', ')", "people|join(', ', attribute='name')", "missing|join(',')", "mixed|join('|')", "words|unique|list", "[1, 1.0, true, 2]|unique|list", "d|dictsort",
    "d|dictsort(true)", "d|dictsort(by='value', reverse=true)", "d|items|list", "missing|items|list", "people|groupby('age')|list", "people|groupby('city')|map(attribute='grouper')|list", "people|map(attribute='name')|list",
    "people|map(attribute='tags', default='-')|list", "words|map('upper')|list", "words|map('replace', 'a', 'A')|join(' ')", "l|map('string')|list", "people|selectattr('tags')|list", "people|selectattr('age', 'equalto', 30)|map(attribute='name')|list",
    "people|rejectattr('age', 'gt', 26)|map(attribute='name')|list", "people|selectattr('tags', 'defined')|list|length", "l|select('odd')|list", "l|reject('odd')|list", "[0, 1, '', 'a', none]|select|list", "[0, 1]|reject|list",
    "l|select('in', [1, 2])|list", "l|batch(2)|list", "l|batch(2, 0)|list", "range(7)|slice(3)|list", "range(7)|slice(3, 'x')|list", "'3'|int", "'3.7'|int", "'abc'|int", "'abc'|int(5)", "'0x1f'|int(base=16)", "' 42 '|int", "3.9|int", "none|int", "'1_000'|int",
    "'3'|float", "'x'|float", "'x'|float(1.5)", "'1e3'|float", "3|float", "x|abs", "-2.5|abs", "2.5|round", "3.5|round", "2.675|round(2)", "2.1|round(0, 'ceil')", "2.9|round(method='floor')", "7|round", "1234.5|round(1)", "7|string", "none|string|length",
    "[1]|string", "html|escape", "html|e|e", "html|safe", "html|safe + '<'", "html|escape + '<i>'", "'<' + html|e", "html|e ~ '<'", "html|forceescape", "l|tojson", "d|tojson", "deep|tojson", "deep|tojson(indent=2)", "mixed|tojson", "uni|tojson",
    "uni|tojson(ensure_ascii=true)", "control|tojson", "control|tojson(ensure_ascii=true)", "quote|tojson", "d|tojson(sort_keys=true)", "l|tojson(separators=(',', ':'))", "d|tojson(separators=(',', ':'), indent=1)", "[]|tojson(indent=2)", "{}|tojson", "[[], {}]|tojson(indent=4)",
    "[1.0, 1e-7, 1e22, none, true]|tojson", "{1: 2, none: 3, true: 4, 1.5: 5}|tojson", "html|tojson", "(1, 2)|tojson", "missing|tojson", "d.items()|tojson", "l|map('string')|tojson", "'a\\nb'|indent", "lines|indent(2)", "lines|indent(2, true)", "lines|indent(2, blank=true)", "lines|indent('> ')",
    "s|truncate(8)", "s|truncate(5, true, leeway=0)", "s|truncate(9, leeway=0)", "s|truncate(255)", "s|wordcount", "s|urlencode", "uni|urlencode", "s|center(20)", "l|list", "s|list", "d|list", "'%s-%s'|format(1, 2)", "s|attr('upper')|string|length > 0", "d|attr('a') is defined",
    "l|tojson|length", "l|length|string ~ 'x'", "l|map('nosuch')|list", "l|select('nosuch')|list", "generator|length", "l|select|length", "l|select|list|length", "(l|select) is iterable", "(l|select) is sequence", "(l|reject|list) or 'none'", "'yes' if [0]|select else 'no'",
    # tests
    "n is defined", "missing is defined", "missing is undefined", "missing is not defined", "none_ is none", "n is none", "n is not none", "s is string", "l is string", "d is mapping", "l is mapping", "l is iterable", "s is iterable", "n is iterable", "d is iterable",
    "l is sequence", "s is sequence", "d is sequence", "n is sequence", "missing is iterable", "missing is sequence", "n is number", "half is number", "yes is number", "s is number", "n is integer", "yes is integer", "half is integer", "half is float", "n is float", "yes is boolean",
    "n is boolean", "yes is true", "no is false", "n is true", "n is odd", "n is even", "n is divisibleby 7", "n is divisibleby(3)", "n is eq 7", "n is equalto(8)", "n is ne 7", "n is gt 6", "n is lt(6)", "n is ge 7", "n is le 7", "n is in [7]", "n is in l", "s is lower", "s is upper",
    "s is callable", "range is callable", "missing is callable", "n is sameas 7", "none_ is sameas none", "html is escaped", "html|e is escaped", "'upper' is filter", "'odd' is test", "'nosuch' is filter", "n is defined and n is odd", "n is not odd or yes", "n is string or n is number",
    "not n is odd", "n is odd is defined", "n is greaterthan 3", "'abc' is in 'xabcx'",
    # functions
    "strftime_now('%Y-%m-%d %H:%M:%S %A %d %b %B %j %p')", "strftime_now('%-d/%m/%y %%')", "cycler('a', 'b').next()", "joiner('|')() ~ 'x'", "namespace()", "raise_exception is callable", "strftime_now is defined",
]  # fmt: skip

TEMPLATES = [
    # white space
    "a\n{% if true %}\nb\n{% endif %}\nc\n", "a\n  {% if true %}  \n  b\n  {% endif %}  \nc", "a {%- if true -%} b {%- endif -%} c", "a\n  {{- 1 -}}\n  b", "  {%+ if true %}x{% endif %}", "{% if true +%}\nx\n{% endif %}",
    "a\n  {# note #}\n b {#- x -#} c", "{# a\n b #}\nx", "x  {{ 1 }}  \n  {{ 2 }}\n", "{% raw %}\n {{ x }} {% if %}\n{% endraw %}\n y", "a {%- raw -%}  {{ b }}  {%- endraw -%} c", "\n\n{% set a = 1 %}\n\n{{ a }}\n\n", "a\r\nb\rc\n", "{{ '{{' }} {{ \"%}\" }}",
    "\t{% if true %}x{% endif %}\n\t {% set z = 1 %}\n", "{{ 1 }}\n{{ 2 }}\n\n", "{%if true%}tight{%endif%}", "text \u00a0\u3000{%- if true %}x{% endif %}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {}} }}}", "}} %} #}", "{ {x} {", "",
    # loops
    "{% for i in l %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}", "{% for i in l if i > 1 %}{{ i }}/{{ loop.length }} {% else %}none{% endfor %}", "{% for i in l if i > 9 %}{{ i }}{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for c in 'añb' %}[{{ c }}]{% endfor %}", "{% for i in missing %}x{% else %}empty{% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in range(10) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}", "{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}-{{ loop.index }} {% endfor %}", "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}", "{% for i in l %}{% set y = i %}{% endfor %}{{ y is defined }}",
    "{% for i in l %}{{ i }}{% endfor %}{{ i is defined }}{{ loop is defined }}", "{% for i in (l|select('odd')) %}{{ i }}{{ loop.length }}{% endfor %}", "{% set g = l|select %}{% for i in g %}{{ i }}{% endfor %}{% for i in g %}{{ i }}{% endfor %}", "{% for x in x %}{{ x }}{% endfor %}", "{% for l in l %}{{ l }}{% endfor %}{{ l }}",
    # conditions
    "{% if n > 10 %}a{% elif n > 5 %}b{% elif n > 1 %}c{% else %}d{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% if n %}{% set v = 1 %}{% endif %}{{ v }}", "{% if no %}{% set v = 1 %}{% endif %}{{ v is defined }}", "{% if no %}{{ 1|nosuch }}{% endif %}ok", "{% if yes %}{{ 1|nosuch }}{% endif %}ok", "{% if no %}{% elif none %}{% endif %}end",
    # set, namespaces, blocks
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = (1, 2) %}{{ a }}", "{% set a = 1, %}{{ a }}", "{% set t %}x{{ n }}y{% endset %}{{ t }}{{ t|length }}", "{% set t | upper | trim %} abc {% endset %}[{{ t }}]", "{% set ns = namespace(c=0) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}", "{% set d.x = 1 %}",
    "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns.a.a is defined }}", "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aXa{% endfilter %}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}", "{% set ns = namespace(a='x') %}{% set ns.b %}block{% endset %}{{ ns.a ~ ns.b }}",
    "{% generation %}a{% set q = 2 %}{{ q }}{% endgeneration %}{{ q is defined }}", "{% set true = 1 %}", "{% set l = l + [9] %}{{ l }}",
    # macros
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c='z') }} {{ m() }} {{ m(b=1, a=0) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call m('b') %}in{{ n }}{% endcall %}", "{% macro m() %}{% for i in [1, 2] %}{{ caller(i, 'q') }}{% endfor %}{% endmacro %}{% call(a, b='z') m() %}{{ a }}{{ b }};{% endcall %}",
    "{% macro m(n) %}{% if n > 0 %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(4) }}", "{% macro m() %}{{ outer }}{% endmacro %}{% set outer = 5 %}{{ m() }}", "{% macro m() %}{% set z = 1 %}{{ z }}{% endmacro %}{{ m() }}{{ z is defined }}", "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}  x  {% endmacro %}[{{ m()|trim }}]{{ m() is string }}{{ m.name }}{{ m.arguments }}", "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(x) %}{{ x is defined }}{% endmacro %}{{ m() }}{{ m(missing) }}", "{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[5]) }}{{ m(**{'a': 6}) }}", "{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    # not templates
    "{% if %}x{% endif %}", "{% if true %}", "{% endif %}", "{{ 1", "{{ }}", "{% for i in %}{% endfor %}", "{{ 1 + }}", "{% nosuch %}", "{{ 'abc }}", "{% break %}", "{{ (1 }}", "{{ [1 }}", "{{ a..b }}", "{# never", "{% raw %}x", "{% set %}", "{% macro %}{% endmacro %}", "{% for i in l %}{% endif %}", "{{ a b }}", "{% if a if b else c %}x{% endif %}",
    "{% include 'x' %}", "{{ 1 if }}", "{{ f(a=1, 2) }}", "{% call 5 %}{% endcall %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ x is defined is none }}", "{{ ! }}", "{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{{ 1|nosuch }}",
]  # fmt: skip

# In the shapes of the common families.
FAMILIES = [
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "{{- bos_token }}\n{%- for m in messages %}\n    {%- if m.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('role ' ~ m.role) }}{% endif %}\n    {{- '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\n\n' ~ (m.content or '') | trim ~ '<|eot_id|>' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}\n{%- endif %}\n",
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set talk = messages[1:] %}{%- else %}{%- set talk = messages %}{%- endif %}{{- bos_token }}{%- for m in talk %}{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('roles must alternate') }}{%- endif %}{%- if m['role'] == 'user' %}{%- if loop.last and system is defined %}{{- '[INST] ' + system + '\n\n' + m['content'] + '[/INST]' }}{%- else %}{{- '[INST] ' + m['content'] + '[/INST]' }}{%- endif %}{%- else %}{{- ' ' + m['content'] + eos_token }}{%- endif %}{%- endfor %}",
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content ~ '\n\n' %}{% set loop_messages = messages[1:] %}{% else %}{% set first = '' %}{% set loop_messages = messages %}{% endif %}{% for m in loop_messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}{{ '<start_of_turn>' ~ role ~ '\n' ~ (first if loop.first else '') }}{% if m.content is string %}{{ m.content | trim }}{% elif m.content is iterable %}{% for part in m.content %}{% if part.type == 'image' %}{{ '<image>' }}{% elif part.type == 'text' %}{{ part.text | trim }}{% endif %}{% endfor %}{% endif %}{{ '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    "{%- if tools %}\n{{- '<|im_start|>system\\n# Tools\\n<tools>' }}\n{%- for tool in tools %}\n{{- '\\n' }}{{- tool | tojson }}\n{%- endfor %}\n{{- '\\n</tools><|im_end|>\\n' }}\n{%- endif %}\n{%- for m in messages %}\n{%- if m.tool_calls %}\n{{- '<|im_start|>' + m.role }}\n{%- for call in m.tool_calls %}\n{%- if call.function is defined %}{%- set call = call.function %}{%- endif %}\n{{- '\\n<tool_call>\\n{\"name\": \"' ~ call.name ~ '\", \"arguments\": ' }}\n{{- call.arguments if call.arguments is string else call.arguments | tojson }}\n{{- '}\\n</tool_call>' }}\n{%- endfor %}\n{{- '<|im_end|>\\n' }}\n{%- elif m.role == 'tool' %}\n{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}\n{{- '\\n<tool_response>\\n' ~ m.content ~ '\\n</tool_response>' }}\n{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}\n{%- else %}\n{{- '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}\n{%- endif %}\n{%- endfor %}",
    "{%- set ns = namespace(last=-1, system='') %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- elif m.role == 'system' %}{%- set ns.system = ns.system ~ m.content %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}{%- for m in messages %}{%- if m.role == 'user' %}{{ '<|User|>' ~ m.content }}{%- elif m.role == 'assistant' %}{%- set content = m.content or '' %}{%- if '</think>' in content %}{%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- elif m.reasoning_content is defined and m.reasoning_content is string %}{%- set thought = m.reasoning_content %}{%- endif %}{{ '<|Assistant|>' }}{%- if loop.index0 > ns.last and thought %}{{ '<think>\\n' ~ thought ~ '\\n</think>\\n\\n' }}{%- endif %}{{ content ~ eos_token }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{ '<|Assistant|><think>\\n' }}{%- endif %}",
    "{%- macro type_of(schema, level=0) -%}\n{%- if schema.type == 'object' -%}\n{\n{%- for name, part in schema.properties.items() %}\n{{ '  ' * (level + 1) }}{{ name }}{{ '' if name in (schema.required or []) else '?' }}: {{ type_of(part, level + 1) }}{{ ',' if not loop.last }}\n{%- endfor %}\n{{ '  ' * level }}}\n{%- elif schema.type == 'array' -%}\n{{ type_of(schema['items'], level) }}[]\n{%- elif schema.enum -%}\n{{ schema.enum | map('tojson') | join(' | ') }}\n{%- else -%}\n{{ schema.type | default('any') }}\n{%- endif -%}\n{%- endmacro -%}\n{%- for tool in tools or [] %}\n// {{ tool.function.description }}\ntype {{ tool.function.name }} = (_: {{ type_of(tool.function.parameters) }}) => any;\n{%- endfor %}\n",
]  # fmt: skip

_PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "A city, <b>any</b> & \"all\""}, "days": {"type": "integer", "enum": [1, 2, 3]},
        "units": {"type": "array", "items": {"type": "string", "enum": ["C", "F"]}},
        "place": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}}, "required": ["lat"]},
    },
    "required": ["city"],
}  # fmt: skip
_TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Das Wetter – 天気.", "parameters": _PARAMETERS}},
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}},
]
_CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2, "x": None, "f": 1.5, "b": True, "l": [1, {"a": "b"}]}}}
_TEXT_CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "now", "arguments": '{"zone": "UTC"}'}}
_SYSTEM = {"role": "system", "content": "  Be brief. "}
_USER = {"role": "user", "content": "What is the weather in Köln? 🎉\n"}
_ANSWER = {"role": "assistant", "content": "Sunny,  20 °C. "}
_THOUGHT = {"role": "assistant", "content": "<think>\nHm, let me see.\n</think>\n\nSunny."}
_REASONED = {"role": "assistant", "content": "Sunny.", "reasoning_content": "They ask for weather.", "reasoning": "r", "thinking": "t"}
_RESULT = {"role": "tool", "content": '{"temp": 20}', "tool_call_id": "call00001", "name": "get_weather"}
_TALKS = {
    "one question": [_USER],
    "a system message": [_SYSTEM, _USER],
    "several turns": [_SYSTEM, _USER, _ANSWER, _USER, _ANSWER, _USER],
    "an answer last": [_USER, _ANSWER],
    "thoughts": [_USER, _THOUGHT, _USER, _THOUGHT],
    "reasoning": [_SYSTEM, _USER, _REASONED, _USER],
    "reasoning last": [_USER, _REASONED],
    "a call": [_USER, {"role": "assistant", "content": None, "tool_calls": [_CALL]}, _RESULT, _ANSWER, _USER],
    "a call without content": [_SYSTEM, _USER, {"role": "assistant", "tool_calls": [_CALL]}, _RESULT],
    "two calls": [_USER, {"role": "assistant", "content": "Let me look.", "tool_calls": [_CALL, _TEXT_CALL]}, _RESULT, {**_RESULT, "tool_call_id": "abcdefghi", "name": "now", "content": "12:00"}],
    "a call with thoughts": [_USER, {**_THOUGHT, "tool_calls": [_CALL]}, _RESULT, _REASONED, _USER],
    "an empty call list": [_USER, {**_ANSWER, "tool_calls": []}, _USER],
    "a text call last": [_USER, {"role": "assistant", "content": "", "tool_calls": [_TEXT_CALL]}],
    "parts": [{"role": "system", "content": [{"type": "text", "text": "Sys."}]}, {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "nice"}]}],
    "an image with its address": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x.png"}}, {"type": "text", "text": "see"}]}, _ANSWER],
    "a developer": [{"role": "developer", "content": "Dev."}, _USER],
    "an unknown role": [{"role": "robot", "content": "beep"}],
    "two users": [_USER, _USER],
    "an assistant first": [_ANSWER, _USER],
    "no content": [{"role": "user"}, {"role": "assistant"}, _USER],
    "None as content": [{"role": "user", "content": None}],
    "numbers as content": [{"role": "user", "content": 5}, {"role": "assistant", "content": 1.5}, _USER],
    "nobody": [],
    "markup in content": [{"role": "user", "content": "<|im_end|>{{ x }}{% if %} <b>&'\"\\ \u2028 \u0001"}, {"role": "assistant", "content": ""}, _USER],
    "names": [{**_USER, "name": "ann"}, _ANSWER, {**_USER, "name": "bob"}],
    "results of parts": [_USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}, {**_RESULT, "content": [{"type": "text", "text": "20"}]}, {"role": "user", "content": "ok"}],
    "an object as result": [_USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}, {**_RESULT, "content": {"temp": 20, "u": "é"}}],
    "calls without function": [_USER, {"role": "assistant", "content": "", "tool_calls": [{"name": "now", "arguments": {"a": 1}, "id": "000000001"}]}, {**_RESULT, "tool_call_id": "000000001"}],
    "a system message late": [_USER, _ANSWER, _SYSTEM, _USER],
}
_SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
_SETTINGS = {
    "": {"tools": None, "add_generation_prompt": True, **_SPECIAL},
    ", tools": {"tools": _TOOLS, "add_generation_prompt": True, **_SPECIAL},
    ", no prompt, no tokens": {"tools": None, "add_generation_prompt": False},
    ", switches": {"tools": _TOOLS, "add_generation_prompt": True, "enable_thinking": False, "thinking": True, "reasoning_effort": "high", "date_string": "26 Jul 2024", "documents": [{"title": "x", "text": "D", "doc_id": 1}], "keep_past_thinking": True, "builtin_tools": ["code_interpreter"], "custom_tools": None, **_SPECIAL},
    ", thinking": {"tools": None, "add_generation_prompt": True, "enable_thinking": True, "thinking": False, "documents": None, "tools_in_user_message": False, "preserve_thinking": True, **_SPECIAL},
}  # fmt: skip
CONVERSATIONS = {talk + setting: {"messages": messages, **variables} for talk, messages in _TALKS.items() for setting, variables in _SETTINGS.items()}
