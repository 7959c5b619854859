# The front door. Everything that is made goes to build/; nothing outside it changes except Debian packages, which
# tools/install.sh installs when they are missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

PYTHON ?= python3
MODELS ?= build/models
NOVEL ?= build/text/persuasion.txt
LONG_TEXT ?= build/text/ezekiel.txt
# Of more than 100,000 tokens, for the measurements below; any text file will do: make bench-rolling BOOK=war-and-peace.txt
BOOK ?= build/text/prophets.txt
# Seconds per fuzz target; the targets run side by side.
FUZZ_SECONDS ?= 30

SMOLLM2 := $(MODELS)/smollm2-135m-instruct-q4_1.gguf
GEMMA3 := $(MODELS)/gemma-3-270m-q4_k_m.gguf
# What meets bytes from outside, or owns memory by hand, also runs under the address and undefined sanitizers.
SANITIZED := base tensor formats hostile kernels text state coreml capi serve

.PHONY: help install build build-small bench-state demo package wheel test-packages test test-release test-python test-sanitized test-fuzz test-tsan test-references references-models references-formats docs-commands test-clients venv-ray test-cluster test-serve-run cluster-chaos cluster-placement test-schemathesis soak test-page test-aarch64 test-emulated test-allocations campaign-validator stress \
  bench-peers bench-server bench-shapes bench-tokenizer bench-matmul bench-attend bench-coreml bench-compression bench-kvpress bench-long bench-attention bench-rolling bench-strategy bench-table bench-zaya bench-million check check-clang format clean

help:  ## show this list
	@sed -n -E 's/^([a-z-]+):[^#]*## (.*)$$/  make \1\t\2/p' Makefile | expand -t 26

install:  ## install the Debian packages that building, testing and checking need
	@tools/install.sh build test fuzz check

build:  ## build the program: build/kvtide
	@tools/install.sh build
	@grep -qs '^KVTIDE_WHOLE:.*=ON' build/cmake/CMakeCache.txt || tools/configure.sh release -DKVTIDE_TESTS=OFF
	@cmake --build build/cmake --target kvtide
	@ln -sfn cmake/kvtide build/kvtide

# Without what judges, serves, validates and exports: less than half of the work. make build then compiles what is missing.
# Where the whole program has been built, it is brought up to date instead: build/kvtide is never older than the sources.
build-small:
	@tools/install.sh small
	@test -f build/cmake/build.ninja || tools/configure.sh release -DKVTIDE_TESTS=OFF -DKVTIDE_WHOLE=OFF
	@program=kvtide_small ; if [ -e build/cmake/kvtide ]; then program=kvtide ; fi ; \
	 cmake --build build/cmake --target $$program ; \
	 ln -sfn cmake/$$program build/kvtide

demo:  ## read a long text inside a cap of bytes, save it, and ask it in a second
	@tools/install.sh small demo
	@$(PYTHON) tools/prepare_demo.py $(MODELS) $(NOVEL) $(MAKE) --no-print-directory build-small
	@$(PYTHON) tools/demo.py build/kvtide $(GEMMA3) $(NOVEL)

package: build  ## Debian packages: build/packages/*.deb
	@tools/install.sh package
	@cmake --build build/cmake
	@cd build/cmake && cpack -G DEB -B ../packages >../cpack.log || { cat ../cpack.log >&2 ; exit 1 ; }
	@ls build/packages/*.deb

wheel:  ## a Python wheel that needs no compiler where it is installed: build/wheel/*.whl
	@tools/install.sh build python
	@tools/make_wheel.sh build/wheel

test-packages: package wheel  ## both packages in a bare Debian 12 without a compiler (root; 5 minutes)
	@tools/install.sh demo test-packages
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@mkdir -p build/test-packages
	@tools/test_packages.sh build/test-packages $(SMOLLM2) build/wheel/*.whl build/packages/*.deb

test: test-release test-python test-sanitized test-fuzz  ## every test: release, Python, sanitizers, fuzzing

test-release:
	@tools/install.sh build test
	@tools/configure.sh release -DKVTIDE_TESTS=ON
	@cmake --build build/cmake
	@ln -sfn cmake/kvtide build/kvtide
	@ctest --test-dir build/cmake --output-on-failure --no-tests=error -j 2 --timeout 600 | tee build/ctest.log

test-python:
	@tools/install.sh build test python
	@tools/configure.sh release -DKVTIDE_TESTS=ON
	@cmake --build build/cmake --target allocation_faults kvtide_library
	@tools/test_python.sh build/venv-python

# make test runs a part of these numbers.
test-allocations: test-python  ## every allocation of every trial fails, once and from there on (an hour)
	@cmake --build build/cmake --target faults_tests
	KVTIDE_EVERY_ALLOCATION=1 build/cmake/tests/faults_tests
	KVTIDE_EVERY_ALLOCATION=1 build/venv-python/bin/python -B -m pytest -q -o faulthandler_timeout=3600 tests/python/test_allocation_faults.py

# make test runs a part of these faults and two of these models.
campaign-validator: test-python  ## 91 faults planted in ports of 6 architectures, and 200 right ZAYA1: what the validator says of them (half an hour)
	build/venv-python/bin/python -B tests/python/planted_faults.py
	build/venv-python/bin/python -B tests/python/random_zaya.py --seeds 200

# One instrumented build serves both the tests and the fuzz targets. A small stack proves nothing about an instrumented
# program, which needs more of it. Comparisons with arithmetic in double and of the bits of all tables are left out where
# other tests run the same kernels: they took most of the minutes, and judge values, not memory. Tests of killed processes judge files.
SANITIZED_SKIPPED := *SmallStack*:AttendInts.ComeWithin*:AttendSpread.EqualsTheSoftmax*:AttendSpread.IsTheSameBitsForEveryTable*:AttendBits.AreThoseOfTheScalarTable:Matmul.GivesTheSameBits*:SnapshotKill.*
test-sanitized:
	@tools/install.sh build test fuzz
	@tools/configure.sh fuzz
	@have=$$(ninja -C build/fuzz -t targets all | sed -n -E 's/^([a-z]+_tests): phony$$/\1/p') ; \
	 wanted=$$(for floor in $(SANITIZED); do grep -x "$${floor}_tests" <<<"$$have" || true; done) ; \
	 cmake --build build/fuzz --target $$wanted ; \
	 names=$$(sed 's/_tests$$//' <<<"$$wanted" | paste -sd '|') ; \
	 GTEST_FILTER='-$(SANITIZED_SKIPPED)' ctest --test-dir build/fuzz --output-on-failure --no-tests=error -j 2 --timeout 1200 -R "^($$names)$$" \
	   | tee build/ctest-sanitized.log

test-fuzz:
	@tools/install.sh build fuzz
	@tools/fuzz_replay.sh $(FUZZ_SECONDS)

# Without suppressions. What never starts a second thread cannot race, and is left out: the release build tells which suites do.
# So is what repeats the work of one pool beside arithmetic in double, thousands of times, and what measures memory.
# The preset does not vectorise: with ThreadSanitizer g++ 12.2 compiles unrolled loops of the scalar table to other results.
# Tests of killed processes start threads in children of a process that has some.
TSAN_SKIPPED := AttendInts.ComeWithin*:AttendBits.AreThoseOfTheScalarTable:AttendSpread.EqualsTheSoftmax*:PackedSession.TakesNoMemoryOfItsOwnForWeights
test-tsan:  ## suites with threads, and the tests of the program, under ThreadSanitizer
	@tools/install.sh build test
	@tools/configure.sh release -DKVTIDE_TESTS=ON
	@cmake --build build/cmake
	@cmake --build build/cmake --target thread_log
	@tools/configure.sh tsan
	@cmake --build build/tsan
	@tools/tests_with_threads.py $(abspath build/cmake/tests/libthread_log.so) build/cmake/tests/*_tests >build/tests_with_threads.txt
	@TSAN_OPTIONS=die_after_fork=0 GTEST_FILTER="$$(cat build/tests_with_threads.txt):-$(TSAN_SKIPPED)" ctest --test-dir build/tsan --output-on-failure --no-tests=error -j 2 --timeout 3600 \
	  | tee build/ctest-tsan.log

# Six processes on two cores lost a wake-up within a minute when one could be lost.
stress:  ## what only goes wrong now and then: thread pools made and destroyed, and their protocol in many orders (20 minutes)
	@tools/install.sh build test
	@tools/configure.sh release -DKVTIDE_TESTS=ON
	@cmake --build build/cmake --target pool_stress base_tests
	@tools/stress.sh 20 6 600 build/cmake/tests/pool_stress 60000
	@KVTIDE_ORDERS=1000000 build/cmake/tests/base_tests --gtest_filter='*Threads.*:LoopProtocol.*'

test-clients: build  ## the clients of OpenAI and Anthropic, llm, LangChain and scripts for llama-server, against kvtide serve
	@tools/install.sh references demo
	@tools/make_venv.sh build/venv-clients tools/requirements-clients.txt
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@$(PYTHON) tools/fetch_model.py gemma3 $(MODELS) >/dev/null
	@KVTIDE=build/kvtide KVTIDE_MODEL=$(SMOLLM2) KVTIDE_BASE_MODEL=$(GEMMA3) build/venv-clients/bin/python -B tests/clients/clients_test.py

# Ray takes a minute to start and a few hundred MiB for each node. CHAOS: how large the campaign is.
venv-ray:
	@tools/install.sh build python
	@tools/make_venv.sh build/venv-ray tools/requirements-ray.txt
	@build/venv-ray/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall \
	  --config-settings=build-dir=$(abspath build/venv-ray)/build . >build/venv-ray/install.log 2>&1 || { tail -n 40 build/venv-ray/install.log >&2 ; exit 1 ; }

# Of Ray Serve with HAProxy in front, to which kvtide.ray tells where requests go.
HAPROXY = RAY_SERVE_ENABLE_HA_PROXY=1 RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY=1

# Microsoft's emulator of Azure's store, by the npm of that venv.
AZURITE = build/azurite
$(AZURITE)/node_modules/azurite: | venv-ray
	@PATH=$(abspath build/venv-ray/bin):$$PATH npm install --silent --no-audit --no-fund --omit=dev --prefix $(AZURITE) azurite@3.37.0

test-cluster: venv-ray $(AZURITE)/node_modules/azurite  ## kvtide.ray on nodes of this machine: sessions move, replicas die, stores fail (10 minutes)
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@AZURITE=$(abspath $(AZURITE)) KVTIDE_MODEL=$(abspath $(SMOLLM2)) build/venv-ray/bin/python -B -m pytest -q -x tests/cluster </dev/null
	@$(HAPROXY) KVTIDE_MODEL=$(abspath $(SMOLLM2)) build/venv-ray/bin/python -B -m pytest -q -x tests/cluster/test_entrance.py </dev/null

test-serve-run: wheel  ## the two commands of docs/cluster.md in a venv that has nothing else (5 minutes)
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@tools/test_serve_run.sh build/serve-run $(SMOLLM2) build/wheel/*.whl

CHAOS ?= --nodes 4 --sessions 200 --turns 10 --every 20
cluster-chaos: venv-ray  ## sessions while replicas, nodes, the store and the network fail: nothing lost, no bit wrong (an hour)
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@build/venv-ray/bin/python -B tests/cluster/chaos.py --model $(SMOLLM2) $(CHAOS) --reference build/chaos-reference --faults kill --json build/chaos-kill.json
	@build/venv-ray/bin/python -B tests/cluster/chaos.py --model $(SMOLLM2) $(CHAOS) --reference build/chaos-reference --faults network --json build/chaos-network.json
	@build/venv-ray/bin/python -B tests/cluster/price.py --model $(SMOLLM2)

cluster-placement: venv-ray  ## where 100,000 sessions should go on 500 nodes, simulated from measured costs; draws it (5 minutes)
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@build/venv-ray/bin/python tools/simulate_placement.py measure -m $(SMOLLM2) --json build/costs.json
	@$(PYTHON) tools/simulate_placement.py run --costs build/costs.json --json build/placement.json --markdown build/placement.md --svg build/placement.svg

test-schemathesis: build  ## requests that schemathesis makes of /openapi.json, against kvtide serve: none may be answered with a 5xx
	@tools/install.sh references demo
	@tools/make_venv.sh build/venv-schemathesis tools/requirements-schemathesis.txt
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@KVTIDE=build/kvtide KVTIDE_MODEL=$(SMOLLM2) build/venv-schemathesis/bin/python -B tests/clients/schemathesis_test.py

soak: build  ## kvtide serve under 16 clients that come and go, killed and started again every minute (SECONDS=600)
	@tools/install.sh demo
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@KVTIDE=build/kvtide KVTIDE_MODEL=$(SMOLLM2) $(PYTHON) -B tests/clients/soak.py

bench-server: build  ## kvtide serve beside llama-server: throughput, first tokens and memory with 1, 4 and 8 clients (10 minutes)
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@tools/make_llama_server.sh build/llama-server
	@$(PYTHON) tools/measure_server.py -m $(SMOLLM2) --json build/server.json --peer \
	  "llama-server=build/llama-server/bin/llama-server -m {model} --port {port} -np 8 -c 16384 -t $$(nproc)"

test-page: build  ## the page of kvtide serve in headless Chromium; screenshots in build/screenshots
	@tools/install.sh page demo
	@tools/make_venv.sh build/venv-clients tools/requirements-clients.txt
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@KVTIDE=build/kvtide KVTIDE_MODEL=$(SMOLLM2) SCREENSHOTS=build/screenshots build/venv-clients/bin/python -B tests/clients/page_test.py

test-emulated:  ## the tests of kernels with every table of x86, on a processor that has AVX2 only (five minutes)
	@tools/install.sh build test
	@tools/configure.sh release -DKVTIDE_TESTS=ON
	@cmake --build build/cmake --target emulated_tests
	@build/cmake/tests/emulated_tests --gtest_brief=1

test-aarch64:  ## built for aarch64, the tests of kernels, of what lies below them and of tiny models under qemu
	@tools/install.sh build aarch64
	@tools/aarch64_libraries.sh build/aarch64-libraries
	@tools/configure.sh aarch64
	@cmake --build build/aarch64 --target base_tests tensor_tests kernels_tests engine_tests
	@tools/check_isa.sh build/aarch64
	@tools/test_aarch64.sh build/aarch64

# --no-compile: Python then compiles only what is imported, a small part of torch.
test-references: build  ## compare with the Python references, on both real models
	@tools/install.sh references demo
	@tools/make_venv.sh build/venv-references tools/requirements-references.txt --no-compile
	@tools/make_venv.sh build/venv-coreml tools/requirements-coreml.txt --no-compile
	@$(PYTHON) tools/fetch_model.py all $(MODELS) >/dev/null
	@tools/fetch_text.sh ezekiel $(LONG_TEXT)
	@$(PYTHON) tools/fetch_novel.py persuasion $(NOVEL)
	@cmake --build build/cmake --target stateful_answers session_answers safetensors_verdicts coreml_answers chat_template_answers
	@tools/real_models.sh build/cmake $(SMOLLM2) $(GEMMA3)
	@MAKE="$(MAKE)" tools/side_by_side.sh references-models references-formats docs-commands

# The demo, and what the documentation tells to type.
docs-commands:
	@$(PYTHON) tools/demo.py build/kvtide $(GEMMA3) $(NOVEL)
	@$(PYTHON) tools/check_docs_commands.py --kvtide build/kvtide --run --models $(MODELS) --novel $(NOVEL) \
	  $(addprefix --python ,$(wildcard build/venv-python/bin/python))

# Two parts of test-references that take about as long. Each uses one core, and the third what they leave.
REFERENCES := OMP_NUM_THREADS=1 build/venv-references/bin/python
references-models:
	$(REFERENCES) tools/references/compare.py --kvtide build/kvtide --models $(MODELS) --text $(LONG_TEXT) --threads 1
	$(REFERENCES) tools/make_tokenizer_goldens.py --check
	$(REFERENCES) tools/make_tokenizer_goldens.py --kvtide build/kvtide
	$(REFERENCES) tools/compare_text.py --kvtide build/kvtide -m $(SMOLLM2)
	$(REFERENCES) tools/compare_text.py --kvtide build/kvtide -m $(GEMMA3)

references-formats:
	$(REFERENCES) tools/make_procedural_goldens.py --check
	$(REFERENCES) tools/make_four_bit_goldens.py --check
	$(REFERENCES) tools/references/compare_folders.py --kvtide build/kvtide
	$(REFERENCES) tools/references/compare_validation.py --kvtide build/kvtide --models $(MODELS)
	$(REFERENCES) tools/references/compare_gpt2.py --answers build/cmake/tests/stateful_answers --threads 1
	$(REFERENCES) tools/references/compare_zaya.py --answers build/cmake/tests/session_answers
	$(REFERENCES) tools/references/compare_architectures.py --answers build/cmake/tests/session_answers
	OMP_NUM_THREADS=1 build/venv-coreml/bin/python tools/references/compare_coreml.py --answers build/cmake/tests/coreml_answers --kvtide build/kvtide
	$(REFERENCES) tools/references/compare_chat_templates.py --answers build/cmake/tests/chat_template_answers \
	  --goldens tests/goldens/chat_templates/jinja2.json $(if $(TEMPLATES),--templates $(TEMPLATES))
	$(REFERENCES) tools/compare_safetensors.py --verdicts build/cmake/tests/safetensors_verdicts

bench-state: build  ## measure resizing, forking, saving and loading a KV state (4 GiB of memory, 3 GiB of disk)
	@cmake --build build/cmake --target bench_state_resizing bench_state_snapshot bench_state_transition
	@mkdir -p build/bench
	@build/cmake/bench_state_resizing build/bench/resizing.json
	@build/cmake/bench_state_transition 256 15 build/bench/transition.json
	@build/cmake/bench_state_snapshot build/bench build/bench/snapshot.json

# KERNELS=avx_vnni or avx2: both programs as on a processor that has nothing newer. As clang 14 compiles llama.cpp for the
# processor that it finds, it read 0.6 times as fast on one with AVX2 only (AMD Zen 3) as with the options below.
KERNELS ?= $(shell grep -qw avx2 /proc/cpuinfo && ! grep -qE "avx512|avx_vnni" /proc/cpuinfo && echo avx2)
PEERS = build/venv-peers$(KERNELS:%=-%)
PEERS_avx2 = -DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
PEERS_avx_vnni = $(PEERS_avx2) -DGGML_AVX_VNNI=ON
# llama.cpp asks for the use of tiles by g++'s names of what the processor has. clang 14 has other names.
PEERS_BUILD = flags="$(if $(KERNELS),,$$(grep -qm1 amx_int8 /proc/cpuinfo && echo -D__AMX_TILE__=1 -D__AMX_INT8__=1 || true))" ; \
  CC=clang-14 CXX=clang++-14 CFLAGS="$$flags" CXXFLAGS="$$flags" CMAKE_ARGS="$(PEERS_$(KERNELS))" \
  tools/make_venv.sh $(PEERS) tools/requirements-peers.txt --no-cache-dir
COMPARE = $(PEERS)/bin/python bench/compare.py --kvtide build/kvtide --kernels "$(KERNELS)" --rounds $(ROUNDS)
# Deep rounds take minutes each: llama.cpp reads 8,192 tokens of SmolLM2 in more than a minute.
DEPTHS ?= 0,4096,8192
ROUNDS ?= 3
bench-peers: build  ## kvtide and llama.cpp in turn at several depths, on both real models (compiles llama.cpp: minutes)
	@tools/install.sh references demo peers
	@$(PEERS_BUILD)
	@$(PYTHON) tools/fetch_model.py all $(MODELS) >/dev/null
	$(COMPARE) --depths $(DEPTHS) --json build/peers.json --markdown build/peers.md --plot build/peers.svg $(SMOLLM2) $(GEMMA3)

# Eight of Mistral's 32 layers do as well: every layer is alike.
SHAPES ?= llama1b:q4_k_m:16 llama1b:q8_0:16 llama1b:q4_0:16 mistral7b:q4_k_m:8
bench-shapes: build  ## the same on random weights in the shapes of models of 1B and 7B (4 GiB of disk, half an hour)
	@tools/install.sh references demo peers
	@$(PEERS_BUILD)
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@mkdir -p build/shapes
	@for shape in $(SHAPES); do \
	  IFS=: read -r name types layers <<<"$$shape" ; out=build/shapes/$$name-$$types.gguf ; \
	  test -f $$out || $(PEERS)/bin/python tools/random_model.py $(SMOLLM2) $$out --shape $$name --types $$types --layers $$layers ; \
	done
	$(COMPARE) --depths 0 -p 256 --json build/shapes.json --markdown build/shapes.md \
	  $$(for shape in $(SHAPES); do IFS=: read -r name types layers <<<"$$shape"; echo build/shapes/$$name-$$types.gguf; done)

bench-tokenizer: build $(BOOK)  ## bytes of prose per second that become tokens, on one thread
	@$(PYTHON) tools/fetch_model.py all $(MODELS) >/dev/null
	@cmake --build build/cmake --target bench_tokenizer
	build/cmake/bench_tokenizer $(SMOLLM2) $(BOOK) 9
	build/cmake/bench_tokenizer $(GEMMA3) $(BOOK) 9

bench-matmul: build  ## what share of the processor's 8-bit dot products each type of weights reaches (seconds)
	@cmake --build build/cmake --target bench_matmul
	@build/cmake/bench_matmul

bench-coreml: build  ## Core ML packages of 100M parameters beside torch and NumPy (minutes; 450 MiB of disk)
	@tools/make_venv.sh build/venv-coreml tools/requirements-coreml.txt
	build/venv-coreml/bin/python -B tools/measure_coreml.py --kvtide build/kvtide --folder build/coreml-bench

bench-attend: build  ## what share of the processor's bf16 products attention reaches while it reads (seconds)
	@cmake --build build/cmake --target bench_attend
	@build/cmake/bench_attend

bench-attention: build $(BOOK)  ## what attention sizes cost and save, on both real models (half an hour)
	@$(PYTHON) tools/fetch_model.py all $(MODELS) >/dev/null
	$(PYTHON) tools/measure_attention.py --kvtide build/kvtide -m $(SMOLLM2) -m $(GEMMA3) -f $(BOOK) --json build/attention.json \
	  --markdown build/attention.md

bench-rolling: build $(BOOK)  ## 100,000 tokens through a rolling memory: constant RSS, no drift; draws the curve (15 minutes)
	@$(PYTHON) tools/fetch_model.py all $(MODELS) >/dev/null
	@tools/make_venv.sh build/venv-plots tools/requirements-plots.txt
	$(PYTHON) tools/measure_rolling.py --kvtide build/kvtide -m $(SMOLLM2) -m $(GEMMA3) -f $(BOOK) --json build/rolling.json \
	  --markdown build/rolling.md
	build/venv-plots/bin/python tools/plot_rolling.py build/rolling.json build/rolling.svg

# BOOK in lengths that a small model reads in minutes; more: make bench-table CONTEXTS=8192,32768,100000 BUDGETS=48M,128M PRESETS=minimal,balanced
CONTEXTS ?= 8192
BUDGETS ?= 48M
PRESETS ?= balanced
bench-table: build $(BOOK)  ## what memories hold, lose and recall, cell by cell; draws it (half an hour; goes on where it stopped)
	@$(PYTHON) tools/fetch_model.py all $(MODELS) >/dev/null
	@tools/make_venv.sh build/venv-plots tools/requirements-plots.txt
	build/kvtide table -m $(SMOLLM2) -m $(GEMMA3) -f $(BOOK) --ctx $(CONTEXTS) --presets $(PRESETS) --budgets $(BUDGETS) --out build/table
	build/venv-plots/bin/python tools/plot_table.py build/table/table.json build/table.svg

bench-strategy: build $(BOOK)  ## resizing on the way (prefill, compact, attend, expand) against none, on both real models
	@$(PYTHON) tools/fetch_model.py all $(MODELS) >/dev/null
	@cmake --build build/cmake --target bench_strategy
	for model in $(SMOLLM2) $(GEMMA3); do \
	  build/cmake/bench_strategy $$model $(BOOK) 200 250 512 256 128 512 5 ; \
	  build/cmake/bench_strategy $$model $(BOOK) 4000 250 8192 4096 512 8192 3 ; \
	done

# 9 GB of disk and of memory; for a machine with less: make bench-zaya ZAYA_BLOCKS=8
ZAYA_BLOCKS ?= 40
bench-zaya: build  ## memory and speed of a random checkpoint of the size of ZAYA1-8B, 8-bit integers (10 minutes)
	$(PYTHON) tools/measure_zaya.py --kvtide build/kvtide --folder build/zaya1-8b-random --blocks $(ZAYA_BLOCKS) --json build/zaya.json

# SET=bytes: counted in bytes instead of rows; SET=parts: every part of the memory alone and together
SET ?= rows
bench-compression: build $(BOOK)  ## what compression loses at 4,096 tokens against the full cache and windows (half an hour)
	@$(PYTHON) tools/fetch_model.py all $(MODELS) >/dev/null
	$(PYTHON) tools/measure_compression.py --kvtide build/kvtide -m $(SMOLLM2) -f $(BOOK):12,24,36,48,60,78 --set $(SET) \
	  --json build/compression-$(SET).json --markdown build/compression-$(SET).md

# In batches that are kept: the same command goes on, and a larger SAMPLES adds to what is there. MODEL: a file, of the llama family.
SAMPLES ?= 12
TASKS ?= single-1,single-2,single-3,multikey-1,multivalue,multiquery
RATIOS ?= 2,4,8
MODEL ?= $(SMOLLM2)
bench-kvpress: CONTEXTS = 2048
bench-kvpress: build $(BOOK)  ## procedural memory beside the presses of kvpress, in the tasks of RULER (an hour; goes on where it stopped)
	@tools/install.sh references demo
	@$(PYTHON) tools/fetch_model.py smollm2 $(MODELS) >/dev/null
	@tools/make_venv.sh build/venv-kvpress tools/requirements-kvpress.txt
	build/venv-kvpress/bin/python -B tools/measure_kvpress.py --kvtide build/kvtide -m $(MODEL) -f $(BOOK) --out build/kvpress \
	  --tasks $(TASKS) --ctx $(CONTEXTS) --ratios $(RATIOS) --samples $(SAMPLES) --markdown build/kvpress.md

bench-long: build $(BOOK)  ## 100,000 tokens inside KV budgets: bytes, flat memory, speed that stays; draws it
	@$(PYTHON) tools/fetch_model.py all $(MODELS) >/dev/null
	@tools/make_venv.sh build/venv-plots tools/requirements-plots.txt
	$(PYTHON) tools/measure_long.py --kvtide build/kvtide -m $(SMOLLM2) -f $(BOOK) --budget 128M --budget 48M \
	  --json build/long-smollm2.json --markdown build/long-smollm2.md
	$(PYTHON) tools/measure_long.py --kvtide build/kvtide -m $(GEMMA3) -f $(BOOK) --budget 128M --budget 32M \
	  --json build/long-gemma3.json --markdown build/long-gemma3.md
	build/venv-plots/bin/python tools/plot_long.py build/long-smollm2.json build/long-smollm2.svg
	build/venv-plots/bin/python tools/plot_long.py build/long-gemma3.json build/long-gemma3.svg

# BOOK: of a million tokens, for instance a novel followed by an encyclopedia.
bench-million: build $(BOOK)  ## 1,000,000 tokens in one run inside 32 MiB: rows, memory, speed; draws it (half an hour)
	@$(PYTHON) tools/fetch_model.py all $(MODELS) >/dev/null
	@tools/make_venv.sh build/venv-plots tools/requirements-plots.txt
	$(PYTHON) tools/measure_long.py --kvtide build/kvtide -m $(GEMMA3) -f $(BOOK) --budget 32M --tokens 1000000 \
	  --json build/million.json --markdown build/million.md
	build/venv-plots/bin/python tools/plot_long.py build/million.json build/million.svg

build/text/prophets.txt:
	@tools/fetch_text.sh prophets $@

check: check-clang  ## the rules of the house: floors, symbols, format, both compilers
	@tools/install.sh build test check
	@$(PYTHON) tools/check_floors.py --self-test
	@tools/configure.sh release
	@cmake --build build/cmake
	@$(PYTHON) tools/check_floors.py --commands build/cmake/compile_commands.json --graph build/floors.svg
	@tools/check_isa.sh build/cmake
	@$(PYTHON) tools/check_prose.py
	@git ls-files '*.cpp' '*.h' | xargs -r clang-format-14 --dry-run --Werror
	@echo "format: every C++ file is as clang-format leaves it"
	@! git ls-files '*.py' | xargs -r pyflakes3 2>&1 | grep -v "imported but unused\|redefinition of unused\|never used"
	@echo "names: every Python file compiles, and knows the names that it uses"

# In the folder of make test-sanitized, where clang++ has already compiled the lower floors and their tests.
check-clang:
	@tools/install.sh build test fuzz check
	@tools/configure.sh fuzz
	@$(PYTHON) tools/check_clang.py build/fuzz

format:  ## rewrite the C++ files as clang-format wants them
	@tools/install.sh check
	@git ls-files '*.cpp' '*.h' | xargs -r clang-format-14 -i

clean:  ## remove what was built; fetched models, texts and venvs stay
	@rm -rf build/cmake build/dev build/asan build/tsan build/clang build/fuzz build/kvtide build/*.log
