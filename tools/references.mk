# The comparisons of make test-references, one target each, so that make runs as many side by side as there are cores:
#
#   make -f tools/references.mk -j 2 --output-sync=target PYTHON=python3 SMOLLM2=... GEMMA3=... MODELS=... LONG_TEXT=... NOVEL=...
#
# What they compare with is slow arithmetic on one thread, which leaves a core idle. The program, its test programs, the
# models and the texts are there before: two builds at once would be in each other's way.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

python := build/venv-references/bin/python
answers := build/cmake/tests

# The longest come first, so that none is left alone at the end.
COMPARISONS := logits validation documentation coreml text gpt2 real-models architectures zaya chat-templates tokenizers \
  procedural four-bit folders safetensors
.PHONY: all $(COMPARISONS) demonstration
all: $(COMPARISONS)

build/venv-%/.made-from: tools/requirements-%.txt
	@tools/make_venv.sh build/venv-$* $< --no-compile
	@touch $@

logits validation gpt2 architectures zaya chat-templates tokenizers procedural four-bit folders safetensors text: build/venv-references/.made-from
coreml: build/venv-coreml/.made-from

real-models:
	tools/real_models.sh build/cmake $(SMOLLM2) $(GEMMA3)

logits:
	$(python) tools/references/compare.py --kvtide build/kvtide --models $(MODELS) --text $(LONG_TEXT)

validation:
	$(python) tools/references/compare_validation.py --kvtide build/kvtide --models $(MODELS)

folders:
	$(python) tools/references/compare_folders.py --kvtide build/kvtide

gpt2:
	$(python) tools/references/compare_gpt2.py --answers $(answers)/stateful_answers

zaya:
	$(python) tools/references/compare_zaya.py --answers $(answers)/session_answers

architectures:
	$(python) tools/references/compare_architectures.py --answers $(answers)/session_answers

coreml:
	build/venv-coreml/bin/python tools/references/compare_coreml.py --answers $(answers)/coreml_answers --kvtide build/kvtide

procedural:
	$(python) tools/make_procedural_goldens.py --check

four-bit:
	$(python) tools/make_four_bit_goldens.py --check

chat-templates:
	$(python) tools/references/compare_chat_templates.py --answers $(answers)/chat_template_answers \
	  --goldens tests/goldens/chat_templates/jinja2.json $(if $(TEMPLATES),--templates $(TEMPLATES))

safetensors:
	$(python) tools/compare_safetensors.py --verdicts $(answers)/safetensors_verdicts

tokenizers:
	$(python) tools/make_tokenizer_goldens.py --check
	$(python) tools/make_tokenizer_goldens.py --kvtide build/kvtide

text:
	$(python) tools/compare_text.py --kvtide build/kvtide -m $(SMOLLM2)
	$(python) tools/compare_text.py --kvtide build/kvtide -m $(GEMMA3)

demonstration:
	$(PYTHON) tools/demo.py build/kvtide $(GEMMA3) $(NOVEL)

# The pages' commands write into the folder of the demonstration.
documentation: demonstration
	$(PYTHON) tools/check_docs_commands.py --kvtide build/kvtide --run --models $(MODELS) --novel $(NOVEL) \
	  $(addprefix --python ,$(wildcard build/venv-python/bin/python))
