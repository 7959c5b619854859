"""python single.py MODEL THREADS BUDGET PORT PARALLEL: kvtide.serve in one process, for comparison."""

import sys

import uvicorn

import kvtide
import kvtide.serve

model, threads, budget, port, parallel = sys.argv[1:]
options = {"chat_template": "chatml"} if "llama" in model else {}
app = kvtide.serve.app(kvtide.Model.load(model), kv_budget=budget, threads=int(threads), parallel=int(parallel), hosts=None, **options)
uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error")
