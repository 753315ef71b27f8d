# SPDX-License-Identifier: MIT
"""Test templates for the language of chat templates, one feature each; see make_chat_golden.py.

They are rendered with two messages, {"role": "user", "content": "Hello World"} and
{"role": "assistant", "content": " a b "}, tools and documents none, and bos_token "<s>".
"""

EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
7 % 3
-7 % 3
7 % -3
-7.5 % 2
0.1 + 0.2
1e3
1.5e-7
1e16
123456789012345680.0
100000.0 * 10
true + true
True
none
None
not true
not none
1 < 2 < 3
1 < 2 > 3
1 == 1.0
true == 1
'a' == 1
'a' < 'b'
'a' < 'B'
[1, 2] < [1, 3]
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
undefined_a == undefined_b
none == false
'a' in 'abc'
'' in 'abc'
'x' not in 'abc'
1 in [1, 2]
'1' in [1, 2]
'a' in {'a': 1}
'a' in undefined_thing
1 if true else 2
1 if false else 2
1 if false
(1 if false) is defined
1 if false else 2 if false else 3
'a' or 'b'
'' or 'b'
'a' and 'b'
0 and 1 or 2
not 1 == 2
'a' ~ 1 ~ none ~ true ~ 1.0
'a' ~ undefined_thing ~ 'b'
'a' 'b' "c"
1 + 1 ~ 2
'a' * 3
3 * 'ab'
'a' * -1
[1] * 3
[1] + [2]
(1,) + (2,)
'abc'[0]
'abc'[-1]
'abc'[5]
'abc'[1:]
'abc'[:-1]
'abc'[::-1]
'abcdef'[1:5:2]
'abcdef'[-3:]
'abcdef'[5:1:-2]
'abc'[10:]
[1, 2, 3][1:]
[1, 2, 3][::-1]
[1, 2, 3][-2:]
(1, 2, 3)[:2]
'h\u00e9llo\U0001F600'[-1]
'h\u00e9llo\U0001F600' | length
'\u65e5\u672c\u8a9e'[1:2]
'a\nb'
'a\\nb'
'\x41\101\u0041'
'it\'s'
"say \"x\""
'\q'
[]
()
(1,)
[1, 'a', none, true, 1.5]
{'a': 1, 'b': [1, 2]}
{'a': 1, 'a': 2}
{1: 'x', none: 'y'}
['it\'s', "q\"", 'both\'"', '\n\t\\', '\x01\x7f']
messages
messages[0]
messages[0].role
messages[0]['role']
messages[0]['missing']
messages[0].missing
messages[0].missing is defined
messages[0].missing.more
messages[5]
messages[5] is defined
messages[5].role
messages[-1].role
messages.0.role
missing_thing
missing_thing.x
missing_thing is defined
missing_thing is not defined
missing_thing is undefined
missing_thing | default('d')
missing_thing | length
missing_thing + 1
missing_thing()
missing_thing | list
none is none
none is not none
none.x
none[0]
none | default('d')
none | default('d', true)
'' | default('d', boolean=true)
'' | d('x')
'a' is string
1 is string
1 is number
1.5 is number
true is number
true is integer
1 is integer
1.0 is float
true is boolean
1 is boolean
true is true
1 is true
false is false
[] is sequence
'' is sequence
{} is sequence
1 is sequence
missing_thing is sequence
{} is mapping
[] is mapping
[] is iterable
'a' is iterable
1 is iterable
missing_thing is iterable
1 is eq 1
1 is ne 2
1 is lt 2
3 is ge 3
1 is in [1, 2]
'a' is equalto 'a'
tools is none
documents is none
tools is not none and tools | length
bos_token
eos_token
eos_token is defined
enable_thinking is defined and enable_thinking
'Hello'.upper()
'Hello'.lower()
'hello world'.title()
"they're bill's".title()
'hello WORLD'.capitalize()
'  x '.strip() ~ '|'
'  x '.lstrip() ~ '|'
'  x '.rstrip() ~ '|'
'xxaxx'.strip('x')
'xyaxy'.strip('yx')
'\u3000 a\u00a0'.strip() ~ '|'
'a,b,,c'.split(',')
' a  b '.split()
' a  b c '.split(none, 1)
'a,b,c'.split(',', 1)
'abc'.split('')
'abc'.startswith('ab')
'abc'.startswith(('x', 'a'))
'abc'.endswith('bc')
'abcabc'.replace('b', 'X')
'abcabc'.replace('b', 'X', 1)
'abc'.replace('', '-')
{'a': 1}.get('a')
{'a': 1}.get('b')
{'a': 1}.get('b', 2)
{'a': 1, 'b': 2}.keys() | list
{'a': 1, 'b': 2}.values() | list
{'a': 1, 'b': 2}.items() | list
{'a': 1, 'b': 2} | items | list
{'items': 1}['items']
[1].append(2)
'abc' | length
[1, 2] | count
{'a': 1} | length
1 | length
' a ' | trim ~ '|'
'xax' | trim('x')
'hello world-foo (bar' | title
'hELLO' | capitalize
'a' | upper
'A' | lower
'aXbX' | replace('X', '-')
'aXbX' | replace('X', '-', 1)
123 | replace(2, 'x')
[1, 2, 3] | first
[] | first
[1, 2, 3] | last
'abc' | last
{'a': 1} | first
[1, 2, 3] | join
[1, 2, 3] | join(', ')
messages | join('; ', attribute='role')
'abc' | join('-')
1.5 | string
1 | string + 'a'
'42' | int
'4.7' | int
'x' | int
'x' | int(7)
' 12 ' | int
'1_000' | int
'0x1A' | int(base=16)
'ff' | int(base=16)
4.9 | int
-4.9 | int
true | int
none | int
'abc' | list
[3, 1, 2] | sort
[3, 1, 2] | sort(reverse=true)
['b', 'A', 'c'] | sort
['b', 'A', 'c'] | sort(case_sensitive=true)
messages | sort(attribute='role') | map(attribute='role') | list
[1, 'a'] | sort
['a', 'A', 'b', 'a'] | unique | list
['a', 'A', 'b'] | unique(true) | list
{'b': 1, 'A': 2} | dictsort
{'b': 1, 'A': 2} | dictsort(true)
{'b': 1, 'A': 2} | dictsort(by='value', reverse=true)
messages | map(attribute='role') | list
messages | map(attribute='nope', default='d') | list
['a', 'b'] | map('upper') | list
['a', 'b'] | map('replace', 'a', 'x') | join
[0, 1, '', 'a'] | select | list
[1, 2, 3] | select('greaterthan', 1) | list
[1, 2, 3] | select('>', 1) | list
messages | selectattr('role', 'equalto', 'user') | list | length
messages | selectattr('role', '==', 'user') | map(attribute='content') | first
messages | rejectattr('role', 'eq', 'user') | list
messages | selectattr('nope') | list
messages | selectattr('nope', 'defined') | list
messages | selectattr('role') | length
none | selectattr('role', 'equalto', 'x') | list
0 | select | list
none | map('upper') | list
none | map(attribute='x') | list
range(*[1, 3]) | list
range(1, *[3]) | list
(messages | selectattr('role')) is sequence
'a\nb\n\nc' | indent
'a\nb\n\nc' | indent(2, true)
'a\nb\n\nc' | indent(2, blank=true)
'a\nb' | indent('> ')
'<b>' | safe
('<b>' | safe) + "<i>&'" + '\"'
'<&>' + ('<b>' | safe) + '>'
('<' | safe) ~ '<'
'a' | tojson
"q\"\\\n\t\x01\x7f\u00e9\U0001F600</b>" | tojson
"\u00e9\U0001F600" | tojson(ensure_ascii=true)
{'a': [1, 2.5, none, true], 'b': {}} | tojson
{'a': [1, {'c': 2}], 'b': {}, 'd': []} | tojson(indent=2)
{'a': [1, 2]} | tojson(separators=(',', ':'))
{1: 'a', true: 'b', none: 'c'} | tojson
(1, 2) | tojson
messages | tojson
missing_thing | tojson
range | tojson
range(3) | list
range(2, 5) | list
range(5, 0, -2) | list
range(3)[1]
range(3)[1:] | list
range(3) | length
range(0, 1, 0)
dict(a=1, b=2)
dict([('a', 1)], b=2)
dict({'a': 1}, a=3)
namespace(a=1).a
namespace({'a': 1}).a
namespace().a is defined
namespace(_a=1)
'a'.__class__
'a'.__class__.__name__
messages.append
raise_exception('stop')
raise_exception('a' ~ 1)
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y')
1 + 'a'
'a' + 1
1 + none
[1] + (2,)
none < 1
'a' < 1
1 in 'abc'
1 in 5
-'a'
1 % 0
messages[:'a']
messages[0][1:]
missing_thing[1:]
messages[:missing_thing]
messages[::0]
1e-400
'ff' | int(base=8)
'0x1A' | int
'-0b11' | int(base=2)
{[1]: 2}
'a'()
1()
'a' | upper()
'a' | upper('b')
1, 2
1,
[1,]
{'a': 1,}
'a'.upper()[0].lower()
(1, 2)[0]
[[1, 2], [3]][0][1]
1 if 1 else
'x' is defined and 'y'
1.0
-0.0
1e400
"a" if messages[0].role == "user" else "b"
messages | length - 1
messages[1:] | length
messages[0].content.split(' ')[-1]
messages[1].content | trim
messages[0].content[:5]
messages[0]['content'] is string
messages[-1]['role'] == 'assistant' and not add_generation_prompt
loop
"""

TEMPLATES = [
    "",
    "plain",
    "line\n",
    "line\n\n",
    "a\r\nb\rc\n",
    "{{ 'a' }}\n",
    "{{ 'a' }}\n\nb",
    "  {% if true %}\n  x\n  {% endif %}\n  y",
    "a {% if true %} b {% endif %} c",
    "a\n  {%- if true -%}  \n b  {%- endif -%}\n c",
    "a\n  {%+ if true %}\n b\n  {%+ endif %}\n c",
    "a {% if true +%}\nb{% endif %}",
    "a {{- ' b ' -}} c",
    "a\n  {{ 'b' }}\n  c",
    "  {# comment #}\n  x",
    "a {#- comment -#} b",
    "a {# comment +#}\nb",
    "{# {{ x }} {% y %} #}z",
    "{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}['a'] }}",
    "{{ {'a': {'b': 1}} }}",
    "{ a } {} {x { { {",
    "{%if 1%}a{%endif%}",
    "{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}",
    "{% if 0 %}a{% elif 0 %}b{% elif 1 %}c{% endif %}",
    "{% if 1: %}a{% endif %}",
    "{% for i in [1, 2, 3] %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for i in [] %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in [1] %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in [1, 2, 3, 4] if i % 2 == 0 %}{{ loop.index }}{{ i }}{% else %}none{% endfor %}",
    "{% for i in [1, 3] if i % 2 == 0 %}{{ i }}{% else %}none{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}",
    "{% for c in 'h\u00e9\U0001F600' %}[{{ c }}]{% endfor %}",
    "{% for i in missing_thing %}x{% endfor %}ok",
    "{% for i in none %}x{% endfor %}",
    "{% for i in 5 %}x{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}",
    "{% for i in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
    "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }} {% endfor %}",
    "{% for i in [1, 2, 3] %}{{ loop.previtem }}<{{ i }}<{{ loop.nextitem }} {% endfor %}",
    "{% for i in [1, 2, 3] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for i in [1, 2, 3, 4] if i > 1 %}{{ loop.length }}{{ loop.last }}{{ loop.revindex }}{% endfor %}",
    "{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1, 2] %}{% for j in [1, 2] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }}"
    "{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in [1, 2] %}{% set x = i %}{% endfor %}{{ x }}",
    "{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in [1, 2] %}{{ x }}{% set x = i %}{% endfor %}",
    "{% set i = 9 %}{% for i in [1, 2] %}{{ i }}{% endfor %}{{ i }}",
    "{% if true %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% if false %}{% set x = 1 %}{% endif %}{{ x is defined }}",
    "{% set ns = namespace(x=0) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=false) %}{% for m in messages if not ns.x %}{{ m.role }}"
    "{% set ns.x = true %}{% endfor %}",
    "{% set x.y = 1 %}",
    "{% set x = 1 %}{% set x.y = 1 %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set (a, b) = (1, 2) %}{{ a }}{{ b }}",
    "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}",
    "{% set a, b = 1 %}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}|{{ x | length }}",
    "{% set x | upper | replace('A', 'z') %}abc{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
    "{% set messages = messages[1:] %}{{ messages | length }}{{ messages[0].role }}",
    "{% set none_x = none %}{{ none_x }}",
    "{% set true = 1 %}",
    "{% macro m() %}x{% endmacro %}{{ m() }}{{ m() }}",
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(c=2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ m() }}{{ x is defined }}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ [m][0](*[[3], 4]) }}{{ m(1, *[], b=2) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body{% endcall %}",
    "{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}\n  x\n{% endmacro %}\n[{{ m() }}]",
    "{% macro m() %}a{% endmacro %}{{ m() | upper }}{{ m() + 'b' }}{{ m() is string }}",
    "{% filter upper %}abc{{ 'd' }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}abc{% endfilter %}",
    "{% generation %}x{{ 1 }}{% endgeneration %}",
    "{%- generation -%} x {%- endgeneration -%} y",
    "{% set g = messages | map(attribute='role') %}{{ g | list }}{{ g | list }}",
    "{% set g = messages | selectattr('role') %}{{ g | first }}{% for m in g %}{{ m.role }}{% endfor %}",
    "{% set x = messages | selectattr('role', 'eq', 'nobody') %}{% if x %}true{% endif %}",
    "{{ 'a' | nosuchfilter }}",
    "{{ 'a' is nosuchtest }}",
    "{% nosuchtag %}",
    "{% if true %}",
    "{% endif %}",
    "{% for i in [1] %}",
    "{% for i in %}{% endfor %}",
    "{{ }}",
    "{{ 1 + }}",
    "{{ (1 }}",
    "{{ [1) }}",
    "{{ 'a }}",
    "{{ 1",
    "{# x",
    "{% raw %}x",
    "{{ a b }}",
    "{{ 1 is odd is even }}",
    "{{ a..b }}",
    "{{ 007 }}",
    "{{ @ }}",
    "{% break %}",
    "{{ '\\x4' }}",
    "{% set %}",
    "{% set x = %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{{ f(a=1, 2) }}",
    "{{ 'a' 1 }}",
    "{%- set ns = namespace(multi_step_tool=true, last=messages|length - 1) %}"
    "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
    "{%- if ns.multi_step_tool and message.role == 'user' %}{%- set ns.multi_step_tool = false %}"
    "{%- set ns.last = index %}{%- endif %}{%- endfor %}{{ ns.last }}",
]
