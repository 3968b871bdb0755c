#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# sparring-codec as its users see it: what it lists, measures, writes, reads and refuses.
# shellcheck source=tests/cli/tool.sh
. "$(dirname "$0")/tool.sh"
tool=("$top_builddir/tools/sparring-codec")

json() { python3 -c "import json, math, sys
data = json.load(open('$folder/json'))
assert data['schema'] == 1 and data['command'][0].endswith('sparring-codec')
$1" || fail "the JSON: $1"; }

run --help
expect_code 0
expect out 'bench.*options'
run --version
expect_code 0
expect out '^sparring-codec \(Sparring\) [0-9]'

# ---- list: every codec that codec strings know, with its options.
run list --json "$folder/json"
expect_code 0
json "assert {'value_coders', 'index_coders'} <= set(data['list'])
assert all(data['list'].values())
assert {'randomk', 'bytegrad'} == {e['name'] for e in data['list']['names']}
assert [e['paper'] for e in data['list']['index_coders'] if e['name'] == 'golomb'][0]
names = {entry['name'] for shelf in data['list'].values() for entry in shelf}
assert {'topk', 'dgc', 'random', 'none', 'fp16', 'bf16'} <= names
known = [line.split()[0] for line in open('$folder/out') if line.startswith('  ') and line[2] != ' ']
assert set(known) == names, (known, names)
topk = [e for shelf in data['list'].values() for e in shelf if e['name'] == 'topk'][0]
assert {o['name'] for o in topk['options']} >= {'ratio'}"
"$top_builddir/tools/sparring-perf" --codec help | sed -nE 's/^  ([a-z0-9]+) .*/\1/p' | sort >"$folder/perf"
sed -nE 's/^  ([a-z0-9]+) .*/\1/p' "$folder/out" | sort >"$folder/list"
[ -s "$folder/perf" ] && [ -z "$(comm -23 "$folder/perf" "$folder/list")" ] || fail "list lacks codecs"

# ---- bench: all three files, and every row right.
small=(bench --quick --triples 2 --time 50ms --elements 100000 -t 1)
run "${small[@]}" --json "$folder/json" --csv "$folder/csv" --svg "$folder/svg"
expect_code 0
expect out '^# [0-9]+ rows, 0 failed'
json "rows = data['rows']
assert len(rows) >= 10 and all(row['failure'] is None and row['time_us'] > 0 for row in rows)
assert all(row['reference'] in ('R1', 'E') and row['ratio'] > 0 for row in rows)
import csv
table = list(csv.DictReader(open('$folder/csv')))
assert len(table) == len(rows)
for a, b in zip(table, rows):
    assert a['operation'] == b['operation'] and math.isclose(float(a['ratio']), b['ratio'], rel_tol=1e-6)
import xml.dom.minidom
plot = xml.dom.minidom.parse('$folder/svg/ratio-100000-normal.svg')
assert len(plot.getElementsByTagName('rect')) == 1 + len(rows)"
# Data that codecs should better not see, and vectors of few elements.
run bench --quick --triples 1 --time 1ms --elements 1,2,1000,70000 --distribution all --density 0.1%,100% -t 1
expect_code 0
run "${small[@]}" --json -
expect_code 0
python3 -c 'import json, sys; json.load(sys.stdin)' <"$folder/out" || fail "standard output is not JSON only"
# No goals are stated for vectors that a cache holds.
run "${small[@]}" --goals
expect_code 0
expect out '^# 0 rows'
# Where there are many CPUs, with many threads.
cpus=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
run bench --quick --triples 1 --time 1ms --elements 100000 -f image -t $((cpus < 16 ? cpus : 16))
expect_code 0
# The same seed, the same data: nothing but times differs.
for i in 1 2; do
    run "${small[@]}" --seed 7 --csv "$folder/csv.$i"
    cut -d, -f1,2,3,4,18,19 "$folder/csv.$i" >"$folder/figures.$i"
done
cmp -s "$folder/figures.1" "$folder/figures.2" || fail "bits and errors differ between runs"

# A line, a run.
printf '1%% select topk\n0.1 select topk\n0.1 select topk\nsave %s\n' "$folder/vector" |
    "${tool[@]}" bench --lines -n 1000 >"$folder/out"
[ "$(grep -cE '^[0-9.]+$' "$folder/out")" -eq 4 ] || fail "four lines, four times"
[ "$(wc -c <"$folder/vector")" -eq 4000 ] || fail "the vector is not saved"

# ---- compare
run compare topk:ratio=1% topk:ratio=1%+fp16 -n 10000 --json "$folder/json"
expect_code 0
json "a, b = data['rows'][:2]
assert a['codec'].startswith('topk') and b['codec'].endswith('fp16') and b['bytes'] < a['bytes']
assert 0 < a['error'] < 1 and math.isclose(a['error'], b['error'], rel_tol=1e-3)
assert len(data['rows']) == 6"
# Coders of values, by themselves.
run compare int8:group=256 int8:group=256,rounding=stochastic -n 10000 --json "$folder/json"
expect_code 0
json "a, b = data['rows'][:2]
assert a['codec'] == 'int8:group=256,rounding=nearest' and a['bytes'] == b['bytes']
assert 0 < a['error'] < b['error'] < 0.1"

# Nothing over nothing is no ratio.
run compare none none -n 1000 --distribution normal
expect_code 0
expect out '^#   A/B: bytes 1.000, error -, encode [0-9]'

# ---- try: what is in the files is known, so the figures are.
python3 - "$folder" <<'END'
import struct, sys
folder = sys.argv[1] + "/"

def npy(name, descr, shape, data, order="False", version=1, length=None):
    text = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    size = len(text) if length is None else length
    head = b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", size)
    open(folder + name, "wb").write(head + text.encode() + data)

values = [3.0, 0.0, -4.0] + [0.0] * 97
npy("fp32.npy", "<f4", "(100,)", struct.pack("<100f", *values))
npy("fp16.npy", "<f2", "(10, 10)", struct.pack("<100e", *values))
npy("fp64.npy", "<f8", "(100,)", struct.pack("<100d", *values), version=2)
open(folder + "raw.f32", "wb").write(struct.pack("<100f", *values))
open(folder + "trace.f32", "wb").write(b"SPRTRACE" + struct.pack("<IIIIQ", 1, 0, 0, 1, 100) +
                                       struct.pack("<100f", *values))
npy("nan.npy", "<f4", "(3,)", struct.pack("<3f", 1, float("nan"), float("inf")))
npy("zero.npy", "<f4", "(3,)", bytes(12))
npy("sparse.npy", "<f4", "(100000,)", struct.pack("<100000f", *[1.0] * 12345, *[0.0] * 87655))
npy("few.npy", "<f4", "(5,)", struct.pack("<5f", 1, 2, 3, 4, 5))
npy("ten.npy", "<f4", "(10,)", struct.pack("<10f", 100, *[1] * 9))
npy("spread.npy", "<f4", "(1000,)", struct.pack("<1000f", *[1 + i / 1000 for i in range(1000)]))

npy("short.npy", "<f4", "(101,)", struct.pack("<100f", *values))
npy("long.npy", "<f4", "(99,)", struct.pack("<100f", *values))
npy("lies.npy", "<f4", "(1000000000, 1000000000)", bytes(400))
npy("fortran.npy", "<f4", "(10, 10)", struct.pack("<100f", *values), order="True")
npy("big-endian.npy", ">f4", "(100,)", bytes(400))
npy("integers.npy", "<i8", "(50,)", bytes(400))
npy("object.npy", "|O", "(1,)", bytes(400))
npy("none.npy", "<f4", "(0,)", b"")
npy("header.npy", "<f4", "(100,)", bytes(400), length=60000)
npy("version.npy", "<f4", "(100,)", bytes(400), version=9)
npy("shape.npy", "<f4", "(10,,)", bytes(400))
open(folder + "keys.npy", "wb").write(b"\x93NUMPY\x01\x00\x0a\x00{'a': 'b'}" + bytes(400))
open(folder + "magic.npy", "wb").write(b"\x93NUMPY")
open(folder + "empty", "wb").close()
open(folder + "odd", "wb").write(b"12345")
open(folder + "trace-short", "wb").write(b"SPRTRACE" + struct.pack("<IIIIQ", 1, 0, 0, 1, 1 << 60) + bytes(8))
open(folder + "trace-2", "wb").write(b"SPRTRACE" + struct.pack("<IIIIQ", 2, 0, 0, 1, 2) + bytes(8))
open(folder + "huge", "wb").truncate(1 << 42)
END
for file in fp32.npy fp16.npy fp64.npy raw.f32 trace.f32; do
    run try topk:ratio=1% "$folder/$file" --json "$folder/json"
    expect_code 0
    json "r = data['result']
assert r['elements'] == 100 and r['largest'] == 4 and r['zeros'] == 98
assert math.isclose(r['error'], 0.6) and math.isclose(r['cosine'], 0.8)
assert r['recommendation']['codec'].startswith('topk:ratio=0.02')"
done
"${tool[@]}" try topk:ratio=1% - <"$folder/fp32.npy" >"$folder/out" || fail "standard input is not read"
expect out '^recommendation: topk:ratio=0.02'
run try none "$folder/nan.npy"
expect_code 0
expect out 'not finite 2$'
expect out '^recommendation: none: 2 elements are NaN'
run try fp16 "$folder/zero.npy"
expect_code 0
expect out '^recommendation: none: all elements are zero'
run try fp16 "$folder/spread.npy"
expect_code 0
expect out '^recommendation: fp16: the energy is spread'
# What is advised leaves nothing out, and its reason is true of vectors of few elements, too.
run try topk "$folder/sparse.npy"
expect out '^recommendation: topk:ratio=0.124: '
run try topk "$folder/few.npy"
expect out '^recommendation: none: '
run try topk "$folder/ten.npy"
expect out '^recommendation: topk:ratio=10%.fp16: 10 % of the elements have 99.9 % of the energy'

# ---- choose: what is slow on the wire loses on slow links, and what costs time on fast ones.
job=(choose -n 200000 --ranks 8 --latency 0)
run "${job[@]}" --link 1mbit --json "$folder/json"
expect_code 0
expect out '^take topk:ratio=0.1%: predicted [0-9.]+ ms, dense \(none\) [0-9.]+ ms, [0-9.]+ times as fast$'
expect out '^topk:ratio=0.1% is faster than dense on links (below [0-9.e+]+ Gbit/s|of any speed)$'
expect out '^# .*of one step \(error feedback sends the rest later\)'
expect out '^time alone was compared'
json "r = data['result']
assert r['choice'] == r['codecs'][0]['codec'] == 'topk:ratio=0.001,count=0'
assert r['ranks'] == 8 and r['link_bps'] == 1e6 and r['elements'] == 200000 and r['file'] is None
times = [c['total_us'] for c in r['codecs']]
assert times == sorted(times) and len(times) == 12
for c in r['codecs']:
    assert c['excluded'] is None
    assert math.isclose(c['total_us'], c['encode_us'] + c['wire_us'] + c['decode_us'], rel_tol=1e-6)
    assert math.isclose(c['wire_us'], c['sent_bytes'] * 8, rel_tol=1e-6)
codecs = {c['codec'].split(':')[0]: c for c in r['codecs']}
assert codecs['none']['sent_bytes'] == 2 * 7 / 8 * 800000 and codecs['none']['speed'] == 1
assert codecs['fp16']['sent_bytes'] == 7 / 8 * 800000
assert codecs['random']['sent_bytes'] == 2 * 7 / 8 * 8000
# Coded values take a byte each, there and back.
assert math.isclose(codecs['int8']['sent_bytes'], 7 / 8 * 400000, rel_tol=0.01)"
# Exact sums come back as fp32; of a bounded union there are no more than of a list.
run "${job[@]}" --link 1mbit --json "$folder/json" \
    --codecs 'none:sums=exact+int8;topk:ratio=1%;topk:ratio=1%,union=bounded'
expect_code 0
json "codecs = {c['codec']: c for c in data['result']['codecs']}
sent = [c['sent_bytes'] for name, c in codecs.items() if 'int8' in name]
assert math.isclose(sent[0], 7 / 8 * 1000000, rel_tol=0.01)
sent = sorted(c['sent_bytes'] for name, c in codecs.items() if 'topk' in name)
assert sent[0] < 0.3 * sent[1]"
# Where the wire takes no time, work is left, and dense has the least.
run "${job[@]}" --link 1000tbit --codecs 'onebit;int8;topk:ratio=10%'
expect_code 0
expect out '^take none \(dense\): no codec is faster on a link of this speed$'
expect out ' is faster than dense on links below '
run "${job[@]}" --link 1mbit --error 1% --json "$folder/json"
expect_code 0
expect out '^ +onebit .*  excluded: error above 1 %$'
expect out '^take int8: '
json "for c in data['result']['codecs']:
    assert (c['excluded'] is not None) == (c['error'] > 0.01)"
run "${job[@]}" --link 1mbit --bytes 60% --codecs 'fp16; topk:ratio=50%'
expect_code 0
expect out '^ +none .*  excluded: bytes above 60 %$'
expect out '^take fp16: '
run "${job[@]}" --link 1mbit --error 1% --bytes 10%
expect_code 1
expect out '^take none of these: no codec keeps to the bounds'
# A file, and fewer elements than ranks.
run choose "$folder/fp16.npy" --ranks 64 --link 1mbit --share 4 --json -
expect_code 0
python3 -c "import json
r = json.load(open('$folder/out'))['result']
assert r['file'].endswith('fp16.npy') and r['form'] == 'npy fp16' and r['elements'] == 100 and r['share'] == 4
" || fail "the JSON of a file"
run choose -n 1 --distribution zero --ranks 8 --link 1gbit
expect_code 0

# ---- One line each.
refused 2 'a command is missing'
refused 2 "unknown command 'frobnicate'" frobnicate
refused 2 'unknown option --frobnicate' bench --frobnicate
refused 2 '--density wants' bench --density 0
refused 2 '--threads wants .*from 1 to' bench --threads 100000
refused 2 '--distribution wants .*laplace' bench --distribution nonsense
refused 2 'not both standard output' bench --csv - --json -
refused 2 '--lines takes no --json' bench --lines --json -
refused 2 '--elements wants' bench --elements 1M,,2M
refused 2 "no operation has 'nonsense' in its name" bench --filter nonsense
refused 2 'compare takes two codecs, not 1 word' compare topk
refused 2 '--csv is not an option of list' list --csv "$folder/csv"
refused 2 'unknown codec "nonsense"' compare topk nonsense
refused 2 'unknown codec "nonsense"' try nonsense "$folder/fp32.npy"
refused 2 'unknown option "levels"; int8 has group, rounding' try int8:levels=3 "$folder/fp32.npy"
refused 2 'group' compare int8:group=0 fp16
refused 2 'choose needs --ranks N' choose --link 1gbit
refused 2 'choose needs --link RATE' choose --ranks 8
refused 2 '--ranks wants .*from 2' choose --ranks 1 --link 1gbit
refused 2 '--link wants a rate' choose --ranks 8 --link fast
refused 2 '--latency wants' "${job[@]}" --latency -1us
refused 2 '--share wants' "${job[@]}" --share 0
refused 2 '--error wants' "${job[@]}" --error 0
refused 2 '--bytes wants' "${job[@]}" --bytes 10x
refused 2 'one is empty' "${job[@]}" --link 1gbit --codecs 'int8;;fp16'
refused 2 'unknown codec "nonsense"' "${job[@]}" --link 1gbit --codecs 'int8;nonsense'
refused 2 'choose takes one number of elements' choose --ranks 8 --link 1gbit -n 5,6
refused 2 'choose takes one distribution' choose --ranks 8 --link 1gbit --distribution normal,laplace
refused 2 'choose takes --seed, or a file' choose "$folder/fp32.npy" --ranks 8 --link 1gbit --seed 3
refused 2 'choose takes one file, or none, not 2 words' choose a b --ranks 8 --link 1gbit
refused 2 '--density is not an option of choose' "${job[@]}" --link 1gbit --density 1%
refused 2 '--ranks is not an option of bench' bench --ranks 8
refused 1 'cannot be opened: No such file' choose "$folder/missing" --ranks 8 --link 1gbit
refused 1 'cannot be opened: No such file' try topk "$folder/missing"
refused 1 'cannot be read: Is a directory' try topk "$folder"
refused 1 'header says 101 elements, 404 bytes, and there are 400' try topk "$folder/short.npy"
refused 1 'header says 99 elements' try topk "$folder/long.npy"
refused 1 'more than 2\^32 elements' try topk "$folder/lies.npy"
refused 1 'Fortran order' try topk "$folder/fortran.npy"
refused 1 "elements are '>f4'" try topk "$folder/big-endian.npy"
refused 1 "elements are '<i8'" try topk "$folder/integers.npy"
refused 1 "elements are '.O'" try topk "$folder/object.npy"
refused 1 'no elements' try topk "$folder/none.npy"
refused 1 'ends beyond the file' try topk "$folder/header.npy"
refused 1 'unknown version' try topk "$folder/version.npy"
refused 1 'its shape' try topk "$folder/shape.npy"
refused 1 'lacks descr' try topk "$folder/keys.npy"
refused 1 'without a whole header' try topk "$folder/magic.npy"
refused 1 'no elements' try topk "$folder/empty"
refused 1 'no multiple of 4' try topk "$folder/odd"
refused 1 'elements are more than' try topk "$folder/trace-short"
refused 1 'a trace of version 2' try topk "$folder/trace-2"
refused 1 'elements are more than|of memory' try topk "$folder/huge"
chmod 000 "$folder/raw.f32"
if [ ! -r "$folder/raw.f32" ]; then
    refused 1 'Permission denied' try topk "$folder/raw.f32"
fi
refused 1 'cannot write to .*No such file' "${small[@]}" --json "$folder/missing/json"
run "${small[@]}" --filter read --csv /dev/full
expect_code 1
expect err '^sparring-codec: cannot write to /dev/full: No space left'
run "${small[@]}" --filter read --svg "$folder/csv"
expect_code 1
expect err '^sparring-codec: cannot write to .*Not a directory'
"${tool[@]}" list >/dev/full 2>"$folder/err"
[ $? -eq 1 ] && [ "$(wc -l <"$folder/err")" -eq 1 ] || fail "a full standard output"

# ---- bench/codec: a peer that is missing is a row that says what to do, and the run goes on.
"$top_srcdir/bench/codec" --build "$top_builddir" --elements 20000 --triples 1 --python /nonexistent/python3 \
    --json "$folder/json" >"$folder/out" 2>"$folder/err"
code=$?
expect_code 0
expect out '^  torch.topk of magnitudes .*/nonexistent/python3: No such file.*tools/setup --bench$'
python3 -c "import json
rows = json.load(open('$folder/json'))['rows']
assert len(rows) == 18 and all(row['error'] or row['ratio'] > 0 for row in rows)" || fail "the JSON of bench/codec"
# The page is not filled from a short run, nor from one that broke off.
mkdir -p "$folder/build/tools"
cat >"$folder/build/tools/sparring-codec" <<END
#!/bin/sh
case "\$*" in *--json*) echo '{"rows": [' && exit 1 ;; esac
exec "$(realpath "$top_builddir")/tools/sparring-codec" "\$@"
END
chmod +x "$folder/build/tools/sparring-codec"
"$top_srcdir/bench/codec" --build "$top_builddir" --docs --quick >"$folder/out" 2>"$folder/err"
code=$?
expect_code 2
expect err '^codec: --docs '
"$top_srcdir/bench/codec" --build "$folder/build" --docs --elements 20000 --triples 1 --python /nonexistent/python3 \
    >"$folder/out" 2>"$folder/err"
code=$?
expect_code 1
expect err '^codec: sparring-codec bench: exit code 1$'
# One that ends, and one that lies.
printf '#!/bin/sh\necho the reason >&2\nexit 3\n' >"$folder/python"
chmod +x "$folder/python"
"$top_srcdir/bench/codec" --build "$top_builddir" --elements 20000 --triples 1 --python "$folder/python" \
    >"$folder/out" 2>"$folder/err"
code=$?
expect_code 0
expect out '^  torch.topk of magnitudes .*the reason$'
if [ -x "$top_builddir/bench/peer_select" ]; then
    printf '#!/bin/sh\nwhile read -r line; do echo 1; done\n' >"$folder/python"
    "$top_srcdir/bench/codec" --build "$top_builddir" --elements 20000 --triples 1 --python "$folder/python" \
        >"$folder/out" 2>"$folder/err"
    code=$?
    expect_code 1
    expect err '^codec: the peers select different elements$'
fi
exit "$failed"
