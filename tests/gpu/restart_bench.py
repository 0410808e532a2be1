"""Kills a rank of a training job with SIGKILL, again and again, and prints how long it takes until the
next step is done, and what the time is spent on. Run by hand, with a Python that has torch:

    cd tests/gpu; python -B restart_bench.py [--model 1.5B] [--task full|lora] [--ranks 2]

The model has random weights in the shape of Qwen2.5. `--program trainer` does the same to transformers'
Trainer under mgpu-run, and `--program torchrun` under torchrun; these need transformers, and peft for
`--task lora`. MGPU_BIN is the folder of mgpu-run and mgpu-train [build/bin].
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from random_model import SHAPES, write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MGPU_BIN", ROOT / "build" / "bin"))
SAVE_EVERY = 20
LORA = {"r": 16, "alpha": 32}


def lines_of(path):
    """The JSON lines of a file that is being written."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1] if line.startswith("{")]


def shares_gpus(args):
    import torch
    return 0 < torch.cuda.device_count() < args.ranks


def options(args):
    return ["--replace-ranks"] * args.replace + ["--oversubscribe"] * shares_gpus(args)


class NativeJob:
    """mgpu-train under mgpu-run. Rank 0's metrics have the times of steps and the parts of starts."""

    def __init__(self, args, folder):
        self.output = folder / "output"
        data = folder / "rows.jsonl"
        random.seed(1)
        data.write_text("".join(
            json.dumps({"input_ids": [random.randrange(1000) for _ in range(args.length)]}) + "\n"
            for _ in range(512)))
        keys = {"model_name_or_path": str(folder / "model"), "dataset_name": str(data),
                "dataset_prepared_path": str(folder / "tokens"), "output_dir": str(self.output),
                "max_length": args.length, "per_device_train_batch_size": args.batch,
                "learning_rate": 1e-5, "max_steps": 100_000, "logging_steps": 1,
                "save_steps": SAVE_EVERY, "save_total_limit": 1, "gradient_checkpointing": False}
        if args.task == "lora":
            keys |= {"use_peft": True, "lora_r": LORA["r"], "lora_alpha": LORA["alpha"],
                     "lora_target_modules": ["all-linear"]}
        for setting in args.set:
            key, _, value = setting.partition("=")
            keys[key] = json.loads(value)
        recipe = folder / "recipe.yaml"
        recipe.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
        self.command = [BIN / "mgpu-run", "--nproc", str(args.ranks), "--max-restarts",
                        str(args.kills), *options(args), recipe]
        self.env = {"NCCL_SOCKET_IFNAME": "lo"} if shares_gpus(args) else {}

    def pids(self):
        return [rank["pid"] for rank in
                json.loads((self.output / "training_status.json").read_text())["ranks"]]

    def records(self):
        return lines_of(self.output / "metrics.jsonl")

    def steps(self):
        return [(r["step"], r["time"]) for r in self.records() if r["event"] == "train"]

    def saved(self):
        return [r["time"] for r in self.records()
                if r["event"] == "note" and r["text"].startswith("saved ")]

    def report(self, killed):
        starts = [r for r in self.records() if r["event"] == "start" and r["time"] > killed]
        if not starts:  # in place: no start is recorded
            done = next(time for _, time in self.steps() if time > killed)
            print(f"  next step is done {done - killed:.2f} s after the kill", flush=True)
            return done - killed
        start = starts[0]
        began = start["time"] - start["seconds"] - killed
        print(f"  {'restart':24} {0.0:6.2f} to {began:6.2f} s")
        for part in start["parts"]:
            print(f"  {part['name']:24} {began + part['begin']:6.2f} to {began + part['end']:6.2f} s")
        print(f"  {'next step is done':24} {began + start['seconds']:16.2f} s, "
              f"{start['seconds']:.2f} s after the start of rank 0", flush=True)
        return began + start["seconds"]


class TrainerJob:
    """transformers' Trainer. A callback of rank 0 writes the times."""

    def __init__(self, args, folder):
        self.output, self.events = folder / "output", folder / "events.jsonl"
        launcher = [BIN / "mgpu-run", "--nproc"]
        if args.program == "torchrun":
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                        "--nproc-per-node"]
        self.command = [*launcher, str(args.ranks), "--max-restarts", str(args.kills),
                        *(options(args) if args.program == "trainer" else []), os.path.abspath(__file__), *sys.argv[1:]]
        self.env = {"RESTART_BENCH_WORKER": str(folder)}

    def pids(self):
        return [r["pids"] for r in lines_of(self.events) if r["event"] == "begin"][-1]

    def steps(self):
        return [(r["step"], r["time"]) for r in lines_of(self.events) if r["event"] == "step"]

    def saved(self):
        return [r["time"] for r in lines_of(self.events) if r["event"] == "saved"]

    def report(self, killed):
        done = next(time for _, time in self.steps() if time > killed)
        begun = next(r["time"] for r in lines_of(self.events)
                     if r["event"] == "main" and r["time"] > killed)
        print(f"  main program of rank 0 {begun - killed:.2f} s, next step is done "
              f"{done - killed:.2f} s", flush=True)
        return done - killed


def train_with_transformers(args, folder):
    """A rank of a TrainerJob."""
    events = open(folder / "events.jsonl", "a", encoding="utf-8")
    rank = int(os.environ["RANK"])

    def write(event, **values):
        if rank == 0:
            events.write(json.dumps({"event": event, "time": time.time(), **values}) + "\n")
            events.flush()

    write("main")
    import torch
    import transformers
    from transformers.trainer_utils import get_last_checkpoint

    class Times(transformers.TrainerCallback):
        def on_train_begin(self, *_, **__):
            pids = [None] * args.ranks
            torch.distributed.all_gather_object(pids, os.getpid())
            write("begin", pids=pids)

        def on_step_end(self, _, state, *__, **___):
            write("step", step=state.global_step)

        def on_save(self, *_, **__):
            write("saved")

    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.bfloat16)
    model.config.use_cache = False
    if args.task == "lora":
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=LORA["r"], lora_alpha=LORA["alpha"], target_modules="all-linear"))
    rows = []
    random.seed(1)
    for _ in range(512):
        ids = [random.randrange(1000) for _ in range(args.length)]
        rows.append({"input_ids": ids, "labels": ids})
    output = str(folder / "output")
    trainer = transformers.Trainer(
        model, transformers.TrainingArguments(
            output_dir=output, max_steps=100_000, per_device_train_batch_size=args.batch,
            save_steps=SAVE_EVERY, save_total_limit=1, logging_steps=50, report_to=[],
            bf16=torch.cuda.is_available(), disable_tqdm=True, learning_rate=1e-5),
        train_dataset=rows, callbacks=[Times()])
    last = get_last_checkpoint(output) if os.path.isdir(output) else None
    trainer.train(resume_from_checkpoint=last)


def wait_for(job, what, ready):
    deadline = time.monotonic() + 1200
    while not (value := ready()):
        if job.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the job ended, or 20 minutes are over, while waiting for {what}")
        time.sleep(0.02)
    return value


def measure(args, folder):
    write_model(folder / "model", SHAPES[args.model])
    job = NativeJob(args, folder) if args.program == "mgpu-train" else TrainerJob(args, folder)
    process = subprocess.Popen(job.command, env={**os.environ, **job.env}, stdout=sys.stderr)
    times, after = [], 0.0
    try:
        for number in range(args.kills):
            saved = wait_for(process, "a checkpoint",
                             lambda: [at for at in job.saved() if at > after])[0]
            wait_for(process, "steps", lambda: sum(at > saved for _, at in job.steps()) >= 3)
            victim = job.pids()[-1 - number % args.ranks]
            killed = time.time()
            os.kill(victim, signal.SIGKILL)
            wait_for(process, "a step", lambda: any(at > killed for _, at in job.steps()))
            print(f"kill {number + 1} of {args.kills}: process {victim}")
            times.append(job.report(killed))
            after = killed
    finally:
        process.terminate()
        process.wait(timeout=120)
    place = ", in place" if args.replace else ""
    print(f"{args.program}, {args.model} {args.task}, {args.ranks} ranks{place}: from the kill to the next "
          f"step {statistics.median(times):.2f} s (median), {max(times):.2f} s (longest)")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=SHAPES, default="1.5B")
    parser.add_argument("--task", choices=("full", "lora"), default="full")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--program", choices=("mgpu-train", "trainer", "torchrun"),
                        default="mgpu-train")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a rank in a step")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="another key of mgpu-train's recipe, with a value in JSON")
    parser.add_argument("--folder", help="where models and checkpoints are written")
    parser.add_argument("--replace", action="store_true",
                        help="mgpu-run --replace-ranks: the other ranks go on")
    return parser


def main():
    args = arguments().parse_args()
    if "RESTART_BENCH_WORKER" in os.environ:
        train_with_transformers(args, pathlib.Path(os.environ["RESTART_BENCH_WORKER"]))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        measure(args, pathlib.Path(folder))


if __name__ == "__main__":
    main()
