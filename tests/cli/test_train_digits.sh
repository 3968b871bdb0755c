#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# examples/train_digits as its users see it: options, the gradients that it writes, JSON, and what choosing costs.
# shellcheck source=tests/cli/tool.sh
. "$(dirname "$0")/tool.sh"
tool=("$top_builddir/examples/train_digits")
if [ ! -x "${tool[0]}" ]; then
    echo "skipped: no examples/train_digits, which needs OpenBLAS"
    exit 77
fi
# Two images of noise, for training and for the test alike.
python3 - "$folder" <<'END'
import struct, sys
for name in "train", "t10k":
    with open(f"{sys.argv[1]}/{name}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4I", 2051, 2, 28, 28) + bytes(i * i % 251 for i in range(2 * 28 * 28)))
    with open(f"{sys.argv[1]}/{name}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">2I", 2049, 2) + bytes([3, 7]))
END
small=(--mnist "$folder" --batch 2 --epochs 2 --steps-per-epoch 4)

refused 2 '--dump-steps needs --dump-gradients' "${small[@]}" --dump-steps 0
refused 2 '--dump-steps: no step 8, the last one is 7' "${small[@]}" --dump-gradients "$folder" --dump-steps 0,8

# Without --dump-steps the last step of each epoch is written. A loss that is no number is none in JSON, either.
run "${small[@]}" --method dense --lr 900000 --dump-gradients "$folder/trace" --json "$folder/json"
expect_code 0
expect out '^ +dense +2 +-?nan '
[ "$(cd "$folder/trace" && echo *)" = "step3.rank0.f32 step7.rank0.f32" ] || fail "which steps were written"
python3 -c 'import json, sys
with open(sys.argv[1]) as file:
    row, = json.load(file, parse_constant=sys.exit)["rows"]
assert row["loss"] is None, row' "$folder/json" || fail "the JSON of a training that diverged"

# Trials of codecs are in the times, and told.
run "${small[@]}" --method 'dense,topk:ratio=1%;int8' --json "$folder/json"
expect_code 0
expect out '^# topk:ratio=1%;int8: [0-9.]+ ms of a step, and their bytes, are trials that choose, once per epoch\.$'
python3 -c 'import json, sys
with open(sys.argv[1]) as file:
    dense, chosen = json.load(file)["rows"]
assert dense["choose_ms"] < 1 < chosen["choose_ms"], (dense, chosen)
assert chosen["choose_ms"] <= chosen["compress_ms"] + chosen["communicate_ms"], chosen' "$folder/json" ||
    fail "the time of trials"

exit "$failed"
