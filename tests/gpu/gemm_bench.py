#!/usr/bin/env python3
"""Times the matrix products of a training step with torch: bf16, fp8, and LoRA's low-rank part.

usage: python3 tests/gpu/gemm_bench.py, on a machine with a GPU that has fp8 (compute capability
89 or higher). It needs nothing of this project: it shows what a change could gain before it is
made. 8,192 tokens, shapes of Qwen2.5.
"""

import torch

TOKENS = 8192
SHAPES = {  # input and output features of the linear layers
    "7B": {"qkv": (3584, 4608), "o": (3584, 3584), "gate, up": (3584, 37888), "down": (18944, 3584)},
    "1.5B": {"qkv": (1536, 2048), "o": (1536, 1536), "gate, up": (1536, 17920), "down": (8960, 1536),
             "head": (1536, 151936)},
}
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def milliseconds(work, calls=30, rounds=3):
    """The median over rounds of the mean time of a call."""
    for _ in range(5):
        work()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return sorted(times)[rounds // 2]


def random(*size):
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16)


def fp8_product(a, b, scale_a, scale_b):
    return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b,  # pylint: disable=protected-access
                            out_dtype=torch.bfloat16, use_fast_accum=True)


def forward(model, layer, features, outputs):
    x, w = random(TOKENS, features), random(outputs, features)
    x8, w8, one = x.to(E4M3), w.to(E4M3), torch.ones((), device="cuda")
    rows, columns = torch.ones(TOKENS, 1, device="cuda"), torch.ones(1, outputs, device="cuda")
    cast = torch.compile(lambda v: ((s := 448 / v.abs().amax(1, keepdim=True).float()),
                                    (v * s).to(E4M3)))
    times = [milliseconds(lambda: x @ w.t()), milliseconds(lambda: fp8_product(x8, w8.t(), one, one)),
             milliseconds(lambda: fp8_product(x8, w8.t(), rows, columns))]
    work = 2 * TOKENS * features * outputs / 1e9
    print(f"| {model} {layer} |", " | ".join(f"{t:.3f} ms, {work / t:.0f}" for t in times),
          f"| {milliseconds(lambda: cast(x)):.3f} ms |", flush=True)


def input_gradient(layer, features, outputs):
    g, w = random(TOKENS, outputs), random(outputs, features)
    g8, w8, one = g.to(E5M2), w.t().contiguous().to(E4M3), torch.ones((), device="cuda")
    times = [milliseconds(lambda: g @ w), milliseconds(lambda: fp8_product(g8, w8.t(), one, one))]
    work = 2 * TOKENS * features * outputs / 1e9
    print(f"| 7B {layer} |", " | ".join(f"{t:.3f} ms, {work / t:.0f}" for t in times), "|", flush=True)


def low_rank(features, outputs, rank=16):
    x, w, low, b = random(TOKENS, features), random(outputs, features), random(TOKENS, rank), \
        random(outputs, rank)
    y = random(TOKENS, outputs)
    wide_x, wide_w = torch.cat([x, low], 1), torch.cat([w, b], 1)
    for name, work in {
            "the base alone": lambda: torch.mm(x, w.t(), out=y),
            "the base, then `y += low B^T`":
                lambda: (torch.mm(x, w.t(), out=y), y.addmm_(low, b.t())),
            "`low B^T`, then the base with beta 1":
                lambda: (torch.mm(low, b.t(), out=y), y.addmm_(x, w.t())),
            "one product, `low` and `B` as 16 more columns":
                lambda: torch.mm(wide_x, wide_w.t(), out=y)}.items():
        print(f"| {name} | {milliseconds(work):.3f} ms |", flush=True)


def main():
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; TFLOP/s after each time\n")
    print("| layer | bf16 | fp8, one scale | fp8, a scale per row | conversion of the input |")
    print("| --- | --- | --- | --- | --- |")
    for model, layers in SHAPES.items():
        for layer, shape in layers.items():
            forward(model, layer, *shape)
    print("\n| gradient of the input | bf16 | fp8 (E5M2 by E4M3) |\n| --- | --- | --- |")
    for layer, shape in SHAPES["7B"].items():
        input_gradient(layer, *shape)
    print("\n| 7B gate, up with LoRA r 16 | time |\n| --- | --- |")
    low_rank(*SHAPES["7B"]["gate, up"])


main()
