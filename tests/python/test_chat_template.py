"""Chat templates rendered without jinja2."""

import datetime

import pytest

import kvtide
from kvtide import _native  # noqa: F401  needs the extension
from kvtide import errors

from together import run_together

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ (m.content or '') ~ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HELLO = [{"role": "user", "content": "Grüße 🎉"}]


def test_a_conversation_is_rendered():
    template = kvtide.ChatTemplate(CHATML)
    assert template.render(HELLO) == "<|im_start|>user\nGrüße 🎉<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(HELLO, add_generation_prompt=False) == "<|im_start|>user\nGrüße 🎉<|im_end|>\n"
    assert template.render([{"role": "user", "content": None}, {"role": "x"}]).count("<|im_end|>") == 2
    assert template.source == CHATML and "ChatTemplate" in repr(template)


def test_values_of_python_are_values_of_the_template():
    given = {"i": 2**62, "f": 1e-7, "b": True, "n": None, "l": [1, (2, "x")], "d": {"k": {}}}
    template = kvtide.ChatTemplate("{{ v }}|{{ v|tojson }}|{{ tools }}")
    assert template.render([], v=given, tools=[{}]) == (
        "{'i': 4611686018427387904, 'f': 1e-07, 'b': True, 'n': None, 'l': [1, [2, 'x']], 'd': {'k': {}}}|"
        '{"i": 4611686018427387904, "f": 1e-07, "b": true, "n": null, "l": [1, [2, "x"]], "d": {"k": {}}}|[{}]'
    )


def test_variables_and_the_clock_come_from_the_caller():
    noon = datetime.datetime(2024, 2, 29, 12, 5, 9)
    template = kvtide.ChatTemplate("{{ bos_token }}{{ strftime_now('%d %b %Y %H:%M:%S %A %j') }}", clock=lambda: noon)
    assert template.render([], bos_token="<s>") == "<s>" + noon.strftime("%d %b %Y %H:%M:%S %A %j")
    assert kvtide.ChatTemplate("{{ strftime_now('%Y') }}").render([]).isdigit()


def test_failures_name_the_line():
    with pytest.raises(errors.InvalidArgumentError, match="line 2: no robots"):
        kvtide.ChatTemplate("\n{{ raise_exception('no robots') }}").render(HELLO)
    with pytest.raises(errors.BadFormatError, match="line 1"):
        kvtide.ChatTemplate("{% if %}")
    with pytest.raises(errors.UnsupportedError, match="nosuch"):
        kvtide.ChatTemplate("{{ 1|nosuch }}")
    with pytest.raises(errors.BadTextError):
        kvtide.ChatTemplate("\ud800")


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", {(1,): 2}, {1: 2}, [print]])
def test_what_is_no_value_is_a_type_error(value):
    with pytest.raises(TypeError, match="v"):
        kvtide.ChatTemplate("").render([], v=value)


def test_what_does_not_fit_is_refused():
    template = kvtide.ChatTemplate("{{ v }}")
    loop = []
    loop.append(loop)
    for value in (loop, 2**64, -(2**63) - 1, float("nan"), float("inf")):
        with pytest.raises(errors.InvalidArgumentError):
            template.render([], v=value)
    with pytest.raises(errors.BadTextError, match="v"):
        template.render([], v="\udcff")
    with pytest.raises(TypeError):
        kvtide.ChatTemplate(5)
    with pytest.raises(TypeError):
        kvtide.ChatTemplate("", clock=5)


def test_several_threads_render_one_template():
    template = kvtide.ChatTemplate(CHATML)
    wanted = template.render(HELLO * 50)
    seen = []
    run_together(*[lambda: seen.extend(template.render(HELLO * 50) for _ in range(20))] * 4)
    assert len(seen) == 80 and set(seen) == {wanted}
