"""python single.py MODEL THREADS BUDGET PORT: kvtide.serve in one process, for comparison."""

import sys

import uvicorn

import kvtide
import kvtide.serve

model, threads, budget, port = sys.argv[1:]
app = kvtide.serve.app(kvtide.Model.load(model), kv_budget=budget, threads=int(threads), hosts=None, chat_template="chatml" if "llama" in model else None)
uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error")
