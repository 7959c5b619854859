#!/usr/bin/env python3
"""kvtide's chat templates against jinja2, in the environment in which transformers renders them.

    tools/references/compare_chat_templates.py --answers PROGRAM [--templates FOLDER] [--goldens FILE [--write]]

Renders the expressions and templates of chat_template_cases.py, and every *.jinja file of FOLDER in conversations of many
shapes, with jinja2 and with PROGRAM (the target chat_template_answers). Texts have to be the same, letter for letter;
what jinja2 refuses has to be refused. --goldens: a file of some of the cases with jinja2's answers, for tests that have
no jinja2; --write makes it, otherwise it is checked.
"""

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

sys.path.insert(0, str(Path(__file__).parent))
from chat_template_cases import CONVERSATIONS, EXPRESSIONS, FAMILIES, TEMPLATES, VARIABLES  # noqa: E402

WORLDS = {"": VARIABLES, **CONVERSATIONS}
NOW = datetime.datetime(2025, 1, 1)


class Generation(jinja2.ext.Extension):
    """{% generation %} marks the assistant's tokens for training; what is inside is rendered as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_whole"), [], [], body).set_lineno(line)

    def _whole(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = NOW.strftime
    return made


def expected(template, variables):
    """The text, or the exception with which jinja2 refuses."""
    try:
        return environment().from_string(template).render(**variables)
    except Exception as error:  # of jinja2, or of what Python says when it runs the template
        return error


class Answers:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, template, variables):
        self.process.stdin.write(json.dumps({"template": template, "variables": variables}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the program ended at {template!r}")
        return json.loads(line)


def cases(folder):
    """What is rendered: a name, the template, and the name of its variables."""
    for expression in EXPRESSIONS:
        yield expression, "{{ " + expression + " }}", ""
    for template in TEMPLATES:
        yield repr(template), template, ""
    named = [(f"family {i}", template) for i, template in enumerate(FAMILIES)]
    named += [(path.name, path.read_text(encoding="utf-8")) for path in (sorted(folder.glob("*.jinja")) if folder else [])]
    for name, template in named:
        for world in CONVERSATIONS:
            yield f"{name} with {world}", template, world


def compare(answers, folder):
    count = refused = wrong = 0
    for name, template, world in cases(folder):
        variables = WORLDS[world]
        want, got = expected(template, variables), answers(template, variables)
        count += 1
        refused += isinstance(want, Exception)
        if got.get("text") == (None if isinstance(want, Exception) else want):
            continue
        wrong += 1
        if wrong <= 40:
            print(f"differs: {name}\n  jinja2: {want!r}\n  kvtide: {got!r}", file=sys.stderr)
    print(f"{count} renderings, {refused} of them refused by both; {wrong} differ")
    return wrong == 0


def goldens():
    """Cases of our own with what jinja2 makes of them; of the conversations, every seventh."""
    kept = {"": VARIABLES, **{name: CONVERSATIONS[name] for name in list(CONVERSATIONS)[::7]}}
    rows = []
    for _, template, world in cases(None):
        if world not in kept:
            continue
        text = expected(template, kept[world])
        rows.append({"template": template, "world": world, "text": None if isinstance(text, Exception) else text})
    lines = ",\n".join(json.dumps(row) for row in rows)
    return f'{{"worlds": {json.dumps(kept)},\n"cases": [\n{lines}\n]}}\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", help="the program chat_template_answers")
    parser.add_argument("--templates", type=Path, help="a folder of *.jinja files")
    parser.add_argument("--goldens", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.templates and not arguments.templates.is_dir():
        print(f"note: {arguments.templates} is not there; only the templates of our own are compared")
        arguments.templates = None
    fine = True
    if arguments.goldens and arguments.write:
        arguments.goldens.write_text(goldens())
    elif arguments.goldens and arguments.goldens.read_text() != goldens():
        print(f"{arguments.goldens} is not what jinja2 renders; --write makes it anew", file=sys.stderr)
        fine = False
    if arguments.answers:
        fine = compare(Answers(arguments.answers), arguments.templates) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
