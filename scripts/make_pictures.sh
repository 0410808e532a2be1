#!/usr/bin/env bash
# Makes the pictures of docs/pictures from real runs of the programs in build/bin (or $MGPU_BUILD/bin).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
export PATH="${MGPU_BUILD:-$root/build}/bin:$PATH" CUDA_VISIBLE_DEVICES=
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p docs/pictures
picture() { (cd "$folder" && "$root/scripts/terminal_picture.py" "$root/docs/pictures/$@"); }

cat >"$folder/train.py" <<'END'
import os, time
rank = int(os.environ["RANK"])
print(f"rank {rank} loads its data", flush=True)
if rank == 2:
    time.sleep(0.3)
    raise FileNotFoundError("data/part-2.jsonl")
time.sleep(30)
END
picture failure.svg -- mgpu-run --nproc 4 train.py
picture plan.svg --columns 130 --first 28 -- mgpu-train plan --model-size 7B --gpus 4 --gpu-memory 80GB
printf 'model_name_or_path: Qwen/Qwen2.5-7B-Instruct\ndataset_name: train.jsonl\nlora_rank: 16\nlearning_rte: 2e-4\n' >"$folder/train.yaml"
printf '{"prompt": "1+1=", "completion": "2"}\n' >"$folder/train.jsonl"
picture mistake.svg -- mgpu-train check train.yaml

# Rows of a chat made of paragraphs of the pages in docs, one without an answer and a broken one.
python3 - docs/*.md >"$folder/chats.jsonl" <<'PYTHON'
import json, pathlib, random, sys
rng = random.Random(1)
text = "\n\n".join(pathlib.Path(name).read_text() for name in sys.argv[1:])
paragraphs = [part for part in text.split("\n\n") if 40 < len(part) < 2000 and not set("|<#`") & set(part)]
chat = lambda *texts: {"messages": [{"role": "assistant" if i % 2 else "user", "content": said}
                                    for i, said in enumerate(texts)]}
rows = [chat("Who wrote Faust?", "Johann Wolfgang von Goethe.", "And Hamlet?", "William Shakespeare."),
        chat("How does an interrupted run resume?",
             "Run the same command again.\nIt reads the newest complete checkpoint.")]
for _ in range(500):
    parts = min(12, int(rng.paretovariate(1.2)))
    rows.append(chat(rng.choice(paragraphs)[:200], "\n\n".join(rng.choices(paragraphs, k=parts))))
rows[7]["messages"].pop()
lines = [json.dumps(row) for row in rows]
lines[40] = lines[40][:60]
print(*lines, sep="\n")
PYTHON
(cd "$folder" && mgpu-train train-tokenizer "$root"/docs/*.md --output tokenizer --vocab-size 8192 >/dev/null
 printf '%s\n' 'model_size: tiny' 'tokenizer_path: tokenizer' 'dataset_name: chats.jsonl' \
   'assistant_only_loss: true' 'max_length: 800' 'on_bad_row: skip' >train.yaml
 mgpu-train data train.yaml >/dev/null)  # so that the picture has no lines about the work
picture data.svg --columns 120 -- mgpu-train data train.yaml --rows 2
