#!/usr/bin/env python3
"""Writes tests/goldens/procedural/seal.golden: blocks of rows, and what sealing and merging make of them.

    python tools/make_procedural_goldens.py            # write
    python tools/make_procedural_goldens.py --check    # make again in memory; fail if the stored file differs

An implementation of its own, in double precision and with plain matrices, of how one (layer, KV head) keeps a block:
written from the description of the algorithm, not from the program. Needs NumPy only.

Keys, values and queries are multiples of 1/16, so that the file holds them as single bytes and single precision loses
nothing. A case is only taken when small disturbances, larger than the rounding of single precision, change no choice:
`disturbed` tries that, and that the gate decides the same way however one reads it.

The file is text up to the line "end", then raw little-endian data, one array after the other as listed:
    case NAME [key=value ...]      begins a case; the keys are rows, dim, references, exact, summaries, scale
    array NAME TYPE COUNT          of that case: i1, i4 or f4

Arrays of a case
    keys, values [rows][dim] and queries [references][dim], in sixteenths; bias, counts [rows]; log_mass [references]
    rank_mixed, rank_novelty, rank_value_norm, rank_attention: the first rows of the orders, as many as are certain
    most_attended: ascending, as many as exact + summaries;  losses [rows]
    kept, kept_bias, kept_count, kept_value (row of `fitted` or -1): ascending by row;  fitted [summaries][dim]
    kept_score: of the exact rows, 0 for summaries;  log_mass_error, rejected [1]
    plain_bias [summaries], plain_values [summaries][dim]: ln n and means of the same pivots, ascending by row
"""

import argparse
import pathlib
import sys
from dataclasses import dataclass, field

import numpy as np

SEED = 20260214
PATH = pathlib.Path(__file__).resolve().parent.parent / "tests/goldens/procedural/seal.golden"
WEIGHT = 0.75  # of the head, in the scores of rows
SWEEPS, SHRINK, RIDGE = 25, 1e-2, 1e-2
LEAST_BIAS, MOST_BIAS = -3.0, 7.0
DISTURBANCE = 4e-6  # of scores, and relative of lengths; single precision is a few times better


@dataclass
class Case:
    name: str
    rows: int
    dim: int
    references: int
    exact: int
    summaries: int
    group: int = 1
    kind: str = "clusters"
    wants_rejected: bool = False
    wants: list[str] = field(default_factory=list)


CASES = [
    Case("small", 64, 32, 32, 4, 4),
    Case("three heads", 128, 64, 96, 12, 4, group=3),
    Case("large", 256, 64, 96, 28, 4),
    Case("one summary", 64, 32, 40, 0, 1),
    Case("many summaries", 96, 32, 96, 16, 8, group=3),
    Case("exact rows only", 64, 32, 32, 8, 0),
    Case("rows with biases", 96, 32, 96, 8, 4, group=3, kind="biased"),
    Case("heavy rows", 64, 32, 48, 4, 3, kind="heavy", wants=["most"]),
    Case("a pivot nobody needs", 64, 32, 48, 4, 6, kind="clusters", wants=["least"]),
    Case("references that contradict", 64, 32, 15, 4, 4, kind="contradiction", wants_rejected=True),
]


@dataclass
class Inputs:
    keys: np.ndarray  # [rows][dim]
    values: np.ndarray
    bias: np.ndarray  # [rows]
    counts: np.ndarray
    queries: np.ndarray  # [references][dim]
    log_mass: np.ndarray  # [references]
    scale: float


def sixteenths(x: np.ndarray) -> np.ndarray:
    return np.clip(np.round(x * 16), -127, 127) / 16


def log_sum_exp(x: np.ndarray) -> np.ndarray:
    top = x.max(axis=-1, keepdims=True)
    return (top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True)))[..., 0]


def make_inputs(case: Case, rng: np.random.Generator) -> Inputs:
    """Keys in clusters of unequal size with a common mean; queries that lean to a cluster or to none."""
    clusters = 6
    centres = rng.normal(0, 1.0, (clusters, case.dim)) + rng.normal(0, 0.5, case.dim)
    share = rng.dirichlet(np.full(clusters, 2.0))
    of_row = rng.choice(clusters, case.rows, p=share)
    keys = centres[of_row] + rng.normal(0, 0.45, (case.rows, case.dim))
    strays = rng.choice(case.rows, max(2, case.rows // 20), replace=False)
    keys[strays] = rng.normal(0, 1.4, (len(strays), case.dim))
    meanings = rng.normal(0, 1.0, (clusters, case.dim))
    values = meanings[of_row] + rng.normal(0, 0.5, (case.rows, case.dim))
    values[strays] *= 1.7

    tokens = case.references // case.group
    leaning = np.concatenate([rng.choice(clusters, tokens, p=np.roll(share, g)) for g in range(case.group)])
    strength = rng.uniform(0.2, 1.3, case.references)
    queries = centres[leaning] * strength[:, None] + rng.normal(0, 0.6, (case.references, case.dim))
    if case.kind == "contradiction":
        queries = rng.normal(0, 1.6, (case.references, case.dim))

    bias, counts = np.zeros(case.rows), np.ones(case.rows)
    if case.kind in ("biased", "heavy"):
        some = rng.choice(case.rows, case.rows // 4, replace=False)
        high = 3.0 if case.kind == "biased" else 6.75
        bias[some] = np.round(rng.uniform(-1.0 if case.kind == "biased" else 5.0, high, len(some)) * 16) / 16
        counts[some] = np.round(np.exp(np.maximum(bias[some], 0.0)))
    keys, values, queries = sixteenths(keys), sixteenths(values), sixteenths(queries)
    scale = float(np.float32(1.0 / np.sqrt(case.dim)))
    of_block = log_sum_exp(queries @ keys.T * scale + bias)
    log_mass = np.float32(of_block + rng.uniform(-0.5, 3.0, case.references)).astype(np.float64)
    return Inputs(keys, values, bias, counts, queries, log_mass, scale)


# ---- one block, one head ----------------------------------------------------------------------------------------


def ranks_of(x: np.ndarray) -> np.ndarray:
    """Rank 0 is the largest; of equals the lower index comes first."""
    order = np.argsort(-x, kind="stable")
    ranks = np.empty(len(x), dtype=np.int64)
    ranks[order] = np.arange(len(x))
    return ranks


class Attention:
    """What the references make of a block; `noise` disturbs the numbers that choices are made from."""

    def __init__(self, inputs: Inputs, noise: np.random.Generator | None = None):
        self.inputs = inputs
        shake = (lambda shape: noise.normal(0, DISTURBANCE, shape)) if noise else (lambda shape: 0.0)
        plain = inputs.queries @ inputs.keys.T * inputs.scale
        self.plain = plain + shake(plain.shape)
        self.scores = self.plain + inputs.bias
        self.log_mass = log_sum_exp(self.scores)
        self.shares = np.exp(self.scores - self.log_mass[:, None])
        self.outputs = self.shares @ inputs.values
        self.weight = 1.0 / (1.0 + np.exp(-(self.log_mass - inputs.log_mass)))
        self.attended = np.sqrt(np.mean((self.weight[:, None] * self.shares) ** 2, axis=0))
        unit = inputs.keys / np.linalg.norm(inputs.keys, axis=1, keepdims=True)
        mean = unit.mean(axis=0)
        self.novelty = 1.0 - unit @ mean / np.linalg.norm(mean) + shake(len(unit))
        self.length = np.linalg.norm(inputs.values, axis=1) * (1.0 + shake(len(unit)))

    def orders(self) -> dict[str, np.ndarray]:
        a, b, c = ranks_of(self.novelty), ranks_of(self.attended), ranks_of(self.length)
        mixed = np.minimum(np.minimum(3 * a, 3 * b + 1), 3 * c + 2)
        by = {"mixed": mixed, "novelty": a, "value_norm": c, "attention": b}
        return {name: np.argsort(rank, kind="stable") for name, rank in by.items()}

    def losses(self) -> np.ndarray:
        """b_j |v_j - o| with the outputs of the references one by one."""
        values = self.inputs.values
        apart = ((values[None, :, :] - self.outputs[:, None, :]) ** 2).sum(axis=2)
        return np.sqrt(np.mean((self.weight[:, None] * self.shares) ** 2 * apart, axis=0))

    def most_attended(self, count: int) -> np.ndarray:
        return np.sort(np.argsort(-self.attended, kind="stable")[:count])


@dataclass
class Chosen:
    exact: np.ndarray  # ascending
    pivots: np.ndarray  # ascending
    members: list[np.ndarray]  # rows of each pivot


def choose(of: Attention, exact: int, summaries: int) -> Chosen:
    order = of.orders()["mixed"]
    kept = np.sort(order[:exact])
    rest = np.setdiff1d(np.arange(len(order)), kept)
    pivots = np.sort(rest[np.argsort(-of.attended[rest], kind="stable")[:summaries]])
    if summaries == 0:
        return Chosen(kept, pivots, [])
    apart = (of.scores[:, rest, None] - of.scores[:, None, pivots]) ** 2
    nearest = np.argmin(np.einsum("i,ijp->jp", of.weight, apart), axis=1)
    return Chosen(kept, pivots, [rest[nearest == p] for p in range(len(pivots))])


def least_squares_from_one(
    columns: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray, sweeps: int
) -> np.ndarray:
    """u in [low, high] of least |columns u - target|^2 + mu |u - 1|^2: one coordinate after the other, from 1 on."""
    gram = columns.T @ columns
    mu = SHRINK * np.mean(np.diag(gram))
    right = columns.T @ target + mu
    gram = gram + mu * np.eye(len(gram))
    u = np.ones(len(gram))
    for _ in range(sweeps):
        for p in range(len(u)):
            others = gram[p] @ u - gram[p, p] * u[p]
            u[p] = min(max(low[p], (right[p] - others) / gram[p, p]), high[p])
    return u


def plain(of: Attention, chosen: Chosen) -> tuple[np.ndarray, np.ndarray]:
    """ln n and the mean values of the clusters, rows counted with their masses."""
    mass = np.exp(of.inputs.bias)
    n = np.array([mass[rows].sum() for rows in chosen.members])
    mean = np.array([mass[rows] @ of.inputs.values[rows] / mass[rows].sum() for rows in chosen.members])
    return np.log(n), mean


def compact(of: Attention, chosen: Chosen, bias: np.ndarray, values: np.ndarray, asked: np.ndarray):
    """Log mass and softmax over what is kept: exact rows first."""
    scores = np.concatenate([of.scores[asked][:, chosen.exact], of.plain[asked][:, chosen.pivots] + bias], axis=1)
    log_mass = log_sum_exp(scores)
    shares = np.exp(scores - log_mass[:, None])
    all_values = np.concatenate([of.inputs.values[chosen.exact], values])
    return log_mass, shares, shares @ all_values


def fit(of: Attention, chosen: Chosen, asked: np.ndarray, sweeps: int = SWEEPS) -> tuple[np.ndarray, np.ndarray]:
    log_n, mean = plain(of, chosen)
    weight = of.weight[asked]
    columns = weight[:, None] * np.exp(of.plain[asked][:, chosen.pivots] + log_n - of.log_mass[asked][:, None])
    rest = np.concatenate(chosen.members)
    target = weight * of.shares[asked][:, rest].sum(axis=1)
    low, high = np.exp(np.minimum(0.0, LEAST_BIAS - log_n)), np.exp(np.maximum(0.0, MOST_BIAS - log_n))
    bias = log_n + np.log(least_squares_from_one(columns, target, low, high, sweeps))
    _, shares, out = compact(of, chosen, bias, mean, asked)
    x = weight[:, None] * shares[:, len(chosen.exact) :]
    residual = weight[:, None] * (of.outputs[asked] - out)
    gram = x.T @ x
    gram += RIDGE * np.mean(np.diag(gram)) * np.eye(len(gram))
    return bias, mean + np.linalg.solve(gram, x.T @ residual)


def held_out_errors(of: Attention, chosen: Chosen, phase: int) -> list[tuple[float, float]]:
    """Errors of the fit and of ln n on every fifth reference: of what the block adds to the output, where what stands
    beside the block adds nothing, and of the block's output alone."""
    everyone = np.arange(len(of.weight))
    held = everyone % 5 == phase
    both = [fit(of, chosen, everyone[~held]), plain(of, chosen)]
    beside, alone = [], []
    for bias, values in both:
        log_mass, _, out = compact(of, chosen, bias, values, everyone[held])
        share = 1.0 / (1.0 + np.exp(-(log_mass - of.inputs.log_mass[held])))
        wanted = of.weight[held][:, None] * of.outputs[held]
        beside.append(((share[:, None] * out - wanted) ** 2).sum())
        alone.append((of.weight[held][:, None] ** 2 * (out - of.outputs[held]) ** 2).sum())
    return [(beside[0], beside[1]), (alone[0], alone[1])]


@dataclass
class Sealed:
    chosen: Chosen
    bias: np.ndarray
    values: np.ndarray
    plain_bias: np.ndarray
    plain_values: np.ndarray
    rejected: bool
    clear: float  # by which factor the closest reading of the gate decides
    log_mass_error: float


def seal(of: Attention, exact: int, summaries: int) -> Sealed:
    chosen = choose(of, exact, summaries)
    everyone = np.arange(len(of.weight))
    none = np.zeros(0), np.zeros((0, of.inputs.values.shape[1]))
    bias, values = simple = plain(of, chosen) if summaries else none
    rejected, clear = False, np.inf
    if summaries:
        ratios = [f / n for phase in (4, 0) for f, n in held_out_errors(of, chosen, phase)]
        rejected = ratios[0] >= 1.0
        clear = min(ratios) if rejected else 1.0 / max(ratios)
        if not rejected:  # what the held-out references judged: they take no part in the fit that is kept
            bias, values = fit(of, chosen, everyone[everyone % 5 != 4])
    log_mass, _, _ = compact(of, chosen, bias, values, everyone)
    error = of.weight @ np.abs(log_mass - of.log_mass) / of.weight.sum()
    return Sealed(chosen, bias, values, *simple, rejected, clear, float(error))


# ---- cases ------------------------------------------------------------------------------------------------------


def certain(inputs: Inputs, case: Case) -> dict[str, int] | None:
    """How many first rows of every order are the same under disturbances; None: something that is chosen differs."""
    still, noise = Attention(inputs), np.random.default_rng(SEED)
    orders, wanted = still.orders(), seal(still, case.exact, case.summaries)
    kept = case.exact + case.summaries
    if case.summaries and (wanted.rejected != case.wants_rejected or wanted.clear < 1.05):
        return None
    # Where the sweeps stop early, what comes out depends on the order of the coordinates, which nobody promises.
    if case.summaries and not wanted.rejected:
        settled, _ = fit(still, wanted.chosen, np.flatnonzero(np.arange(case.references) % 5 != 4), 40 * SWEEPS)
        if not np.allclose(settled, wanted.bias, atol=2e-5):
            return None
    if ("least" in case.wants) != bool((wanted.bias <= LEAST_BIAS + 1e-9).any()):
        return None
    if ("most" in case.wants) != bool((wanted.bias >= MOST_BIAS - 1e-9).any()):
        return None
    same = {name: case.rows for name in orders}
    for _ in range(8):
        shaken = Attention(inputs, noise)
        for name, order in shaken.orders().items():
            differ = np.flatnonzero(order != orders[name])
            same[name] = min(same[name], int(differ[0]) if len(differ) else case.rows)
        if not np.array_equal(shaken.most_attended(kept), still.most_attended(kept)):
            return None
        other = seal(shaken, case.exact, case.summaries)
        if not np.array_equal(other.chosen.exact, wanted.chosen.exact):
            return None
        if not np.array_equal(other.chosen.pivots, wanted.chosen.pivots):
            return None
        if any(not np.array_equal(a, b) for a, b in zip(other.chosen.members, wanted.chosen.members)):
            return None
        if not np.allclose(other.bias, wanted.bias, atol=5e-5):
            return None
        if not np.allclose(other.values, wanted.values, atol=5e-5):
            return None
    return same if min(same.values()) >= kept else None


def arrays_of(case: Case, inputs: Inputs, same: dict[str, int]) -> list[tuple[str, str, np.ndarray]]:
    of = Attention(inputs)
    sealed, orders, losses = seal(of, case.exact, case.summaries), of.orders(), of.losses()
    chosen = sealed.chosen
    kept = [(int(j), float(inputs.bias[j]), float(inputs.counts[j]), -1, WEIGHT * losses[j]) for j in chosen.exact]
    for p, j in enumerate(chosen.pivots):
        kept.append((int(j), sealed.bias[p], inputs.counts[chosen.members[p]].sum(), p, 0.0))
    kept.sort()
    column = lambda i: np.array([row[i] for row in kept])
    return [
        ("keys", "i1", inputs.keys * 16),
        ("values", "i1", inputs.values * 16),
        ("bias", "f4", inputs.bias),
        ("counts", "f4", inputs.counts),
        ("queries", "i1", inputs.queries * 16),
        ("log_mass", "f4", inputs.log_mass),
        *[(f"rank_{name}", "i4", order[: same[name]]) for name, order in orders.items()],
        ("most_attended", "i4", of.most_attended(case.exact + case.summaries)),
        ("losses", "f4", losses),
        ("kept", "i4", column(0)),
        ("kept_bias", "f4", column(1)),
        ("kept_count", "f4", column(2)),
        ("kept_value", "i4", column(3)),
        ("kept_score", "f4", column(4)),
        ("fitted", "f4", sealed.values),
        ("log_mass_error", "f4", np.array([sealed.log_mass_error])),
        ("rejected", "i4", np.array([int(sealed.rejected)])),
        ("plain_bias", "f4", sealed.plain_bias),
        ("plain_values", "f4", sealed.plain_values),
    ]


def build(verbose: bool) -> bytes:
    header = ["kvtide procedural goldens", f"made by numpy {np.__version__} seed {SEED}"]
    body = []
    for number, case in enumerate(CASES):
        for attempt in range(2000):
            inputs = make_inputs(case, np.random.default_rng([SEED, number, attempt]))
            same = certain(inputs, case)
            if same is not None:
                break
        else:
            raise SystemExit(f"case {case.name!r}: no inputs with margins were found")
        if verbose:
            sealed = seal(Attention(inputs), case.exact, case.summaries)
            print(f"{case.name}: attempt {attempt}, certain {same}, gate by a factor of {sealed.clear:.2f}, "
                  f"log mass error {sealed.log_mass_error:.3f}, biases {np.round(sealed.bias, 2)}")
        header.append(
            f"case {case.name.replace(' ', '-')} rows={case.rows} dim={case.dim} references={case.references} "
            f"exact={case.exact} summaries={case.summaries} scale={inputs.scale!r}"
        )
        for name, kind, data in arrays_of(case, inputs, same):
            flat = np.ascontiguousarray(data).ravel().astype("<" + kind if kind != "i1" else kind)
            header.append(f"array {name} {kind} {flat.size}")
            body.append(flat.tobytes())
    return ("\n".join(header) + "\nend\n").encode() + b"".join(body)


def difference(stored: bytes, made: bytes) -> str | None:
    """What differs but for the rounding of sums, which other versions and machines may do in another order."""
    (stored_head, stored_body), (made_head, made_body) = (data.split(b"\nend\n", 1) for data in (stored, made))
    stored_lines, made_lines = (head.decode().split("\n") for head in (stored_head, made_head))
    del stored_lines[1], made_lines[1]  # the version of NumPy
    if stored_lines != made_lines:
        return "other cases or arrays"
    at, case = 0, ""
    for line in made_lines[1:]:
        if line.startswith("case "):
            case = line.split()[1]
            continue
        _, name, kind, count = line.split()
        dtype = np.dtype("<" + kind if kind != "i1" else kind)
        old, new = (np.frombuffer(body, dtype, int(count), at) for body in (stored_body, made_body))
        at += int(count) * dtype.itemsize
        if not (np.allclose(old, new, rtol=1e-6, atol=1e-6) if kind == "f4" else np.array_equal(old, new)):
            return f"{name} of {case} differs"
    return None if at == len(stored_body) else "the stored file has another length"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored file instead of writing it")
    check = parser.parse_args().check
    made = build(verbose=not check)
    if not check:
        PATH.parent.mkdir(parents=True, exist_ok=True)
        PATH.write_bytes(made)
        print(f"{PATH}: {len(made)} bytes")
        return 0
    if complaint := difference(PATH.read_bytes(), made):
        print(f"{PATH}: {complaint}", file=sys.stderr)
        return 1
    print(f"{PATH}: the program makes the stored numbers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
