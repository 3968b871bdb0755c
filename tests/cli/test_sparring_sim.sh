#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# sparring-sim as its users see it: what it predicts, writes and refuses.
# shellcheck source=tests/cli/tool.sh
. "$(dirname "$0")/tool.sh"
tool=("$top_builddir/tools/sparring-sim")

# predict NAME OPTIONS...: the JSON of a run that finds nothing wrong is kept under that name.
predict() {
    local name=$1
    shift
    run "$@" --json "$folder/$name"
    expect_code 0
}
# true_of CODE: Python, with the rows and all else of what was kept under a name in the variable of that name.
true_of() { python3 -c "import json, os
for name in os.listdir('$folder'):
    if name not in ('out', 'err'):
        data = json.load(open('$folder/' + name))
        assert data['schema'] == 1 and data['command'][0].endswith('sparring-sim')
        globals()[name + '_all'], globals()[name] = data, data['rows']
        assert all(row['wrong'] in (0, None) for row in data['rows'])
        assert all(row['same'] is (None if row['by_model'] else True) for row in data['rows'])
$1" || fail "$1"; }

run --help
expect_code 0
expect out '^Usage: sparring-sim'
run --version
expect_code 0
expect out '^sparring-sim \(Sparring\) [0-9]'

refused 2 'unknown option --frob' --frob
refused 2 "unknown collective 'frob'; there is: allreduce, sparse_allreduce, compressed_allreduce" frob
refused 2 '--ranks wants a list' --ranks 8,1
refused 2 '--ranks wants a list' --ranks 65537
refused 2 '4096 ranks: above 512, or 4096 where .* there is a model alone' --ranks 4096 --pattern zipf
refused 2 '513 ranks: above 512, or 4096 where .* there is a model alone' compressed_allreduce --ranks 8,513
refused 2 '4097 ranks: .* there is a model alone' --ranks 4097 --pattern zipf --algo doubling
refused 2 '--link wants a list' --link 10parsec
refused 2 '--density wants a list' --density 0
refused 2 '--oversubscription wants a factor' --oversubscription 0.5
refused 2 'want --hosts-per-rack' --oversubscription 4
refused 2 'want --ranks-per-host' --local 1gbit
refused 2 'want --ranks-per-host' --local-latency 2us
refused 2 '--slow wants a factor' --slow 0.5
refused 2 '--seed wants a whole number below 2.63' --seed 9223372036854775808
refused 2 'hosts in no racks' --slow 2 --hosts-per-rack 4
refused 2 'knows no codecs, racks, slow ports' --slow 2 --ranks 1024
refused 2 "sparse_allreduce has no algorithm 'frob'; there is: auto, all, .*direct" --algo frob
refused 2 'not of allreduce' allreduce --density 1%
refused 2 '--codec is of compressed_allreduce' --codec int8
refused 2 '--codec: ' compressed_allreduce --codec frob
refused 2 'exclude each other' compressed_allreduce --codec int8 --density 1%
run --json /nowhere/file
expect_code 1
expect err '^sparring-sim: --json /nowhere/file: '

# What a communicator lacks memory for has no text of its own; with sanitizers nothing starts in so little.
if (ulimit -v 100000 && exec "${tool[@]}" --version >"$folder/out" 2>&1); then
    limit=$(ulimit -Sv)
    ulimit -Sv 100000
    run -n 64
    ulimit -Sv "$limit"
    expect_code 1
    expect err '^sparring-sim: allreduce on 64 ranks: .*memory'
fi

# Of a dense allreduce much is known: 2(P-1)/P of the vector from each rank, at the rate of the link.
predict dense allreduce -n 2,8 --link 1gbit,10gbit --algo direct
true_of "
assert [(r['link_bps'], r['ranks']) for r in dense] == [(1e9, 2), (1e9, 8), (1e10, 2), (1e10, 8)]
for r in dense:
    least = 2 * (r['ranks'] - 1) / r['ranks'] * 262144 * 4
    assert least < r['busiest_bytes'] < 1.01 * least, r
    assert 0.999 < r['balance'] < 1.01 and r['density'] is None and r['gain'] is None, r
    assert least * 8e6 / r['link_bps'] < r['time_us'] < 1.1 * least * 8e6 / r['link_bps'] + 60, r
    assert r['host_bytes'] * r['hosts'] == r['sent_bytes'], r"

# Independent supports: a union of 1 - (1 - d)^P. What is sent is that and the lists, a few bytes for each entry.
predict sparse -n 8 --density 0.1%,1%,10%,100% --link 1gbit
true_of "
dense_row, rows = sparse[0], sparse[1:]
assert dense_row['collective'] == 'allreduce' and [r['density'] for r in rows] == [0.001, 0.01, 0.1, 1]
for r in rows:
    union = 1 - (1 - r['density']) ** 8
    assert abs(r['union'] / union - 1) < 0.05, r
    entries = 7 / 8 * 262144 * (r['density'] + union)
    assert 4 * entries < r['busiest_bytes'] < 6 * entries + 8192, r
    assert r['dense_us'] == dense_row['time_us'] and abs(r['gain'] - r['dense_us'] / r['time_us']) < 1e-6"
expect out '^# 1gbit, 8 ranks, auto: faster than dense up to 100 %'

# With sanitizers that is enough: what is left makes other networks for the same code.
case ${SPARRING_TEST_SCALE-1} in
    0.*) exit "$failed" ;;
esac

# Where 8 ranks share a port, each of them sends through it, so dense wins at high densities. Rows come in any order.
predict ported -n 16 --ranks-per-host 8 --density 100%,1%,20%,5% --algo direct
true_of "
crossover, = ported_all['crossovers']
below = [r['density'] for r in ported[1:] if r['gain'] > 1]
above = [r['density'] for r in ported[1:] if r['gain'] <= 1]
assert below and above, ported
assert max(below) < crossover['density'] < min(above), crossover"
expect out '^# 10gbit, 16 ranks, direct: faster than dense below a density of [0-9.]+ %'
run -n 16 --ranks-per-host 8 --density 90%,100% --algo direct
expect out 'dense is as fast at 90 % already'

# Ranks of one host send nothing to others; those of two hosts share their ports.
predict one -n 8 --ranks-per-host 8 --algo direct
predict two -n 8 --ranks-per-host 4 --algo direct
predict whole -n 8 --ranks-per-host 65536 --hosts-per-rack 65536 --algo direct
predict levels -n 8 --ranks-per-host 4 --algo hierarchical
predict sums -n 8 --ranks-per-host 4 --algo hosts
predict eight -n 8
true_of "
assert all(r['host_bytes'] == 0 and r['hosts'] == 1 for r in one + whole)
a, b, c = one[1], two[1], eight[1]
assert a['sent_bytes'] == b['sent_bytes'] == c['sent_bytes']
assert b['hosts'] == 2 and 0.5 < b['host_bytes'] / (b['sent_bytes'] / 2) < 0.65
assert a['time_us'] < c['time_us'] < b['time_us']
# Ranks know who shares their host: what they tell all enters each host once.
assert levels[1]['host_bytes'] < 0.6 * b['host_bytes'] and levels[1]['time_us'] < b['time_us']
# ... and of their lists the sum leaves it.
assert sums[1]['host_bytes'] < levels[1]['host_bytes'] and sums[1]['wrong'] == 0"

# What ranks, hosts and racks send, and who sends and receives most: with a server that is always the same one.
predict server -n 8 --ranks-per-host 2 --hosts-per-rack 2 --algo server --levels
expect out '^#   8 ranks: sent [0-9]+ B on average, at most [0-9]+ \(rank 0, [0-9.]+ times that\), received at most'
expect out '^#   2 racks: sent [0-9]+ B on average'
true_of "
ranks, hosts, racks = server[1]['levels']
assert [l['count'] for l in (ranks, hosts, racks)] == [8, 4, 2]
assert ranks['busiest'] == hosts['busiest'] == racks['busiest'] == 0 < ranks['most_received']
assert ranks['sent_bytes'] > hosts['sent_bytes'] > racks['sent_bytes'] > 0
assert ranks['balance'] > 5 and abs(ranks['balance'] - server[1]['balance']) < 1e-9
assert ranks['messages'] > hosts['messages'] > racks['messages']"

# An uplink that is shared slows down, the more the narrower it is, but less where ranks know of it; latency counts once
# per step and grant.
predict wide -n 8 --hosts-per-rack 4 --algo direct
predict narrow -n 8 --hosts-per-rack 4 --oversubscription 4 --algo direct
predict far -n 8 --hosts-per-rack 4 --rack-latency 1ms --algo direct
predict known -n 8 --hosts-per-rack 4 --oversubscription 4
true_of "
for a, b, c, d in zip(eight, wide, narrow, far):
    assert abs(b['time_us'] / a['time_us'] - 1) < 0.05 and b['time_us'] < c['time_us']
    assert d['time_us'] > b['time_us'] + 2000
assert narrow[1]['time_us'] > 1.5 * wide[1]['time_us']
assert known[1]['algorithm'] == 'hierarchical' and known[1]['time_us'] < 0.8 * narrow[1]['time_us'], known"

# A host with a slower port owns nothing of a dense sum: its vector leaves it once, and the sum enters it. A ring has
# each port carry as much.
predict slow allreduce -n 8 --elements 4M --slow 4
predict slowring allreduce -n 8 --elements 4M --slow 4 --algo ring
predict slowhosts allreduce -n 16 --ranks-per-host 2 --elements 4M --slow 4
true_of "
least = 4194304 * 32 / 2.5e9 * 1e6
assert least < slow[0]['time_us'] < 1.1 * least and slow[0]['algorithm'] == 'direct', slow
assert least < slowhosts[0]['time_us'] < 1.1 * least, slowhosts
assert slowhosts[0]['algorithm'] == 'hierarchical', slowhosts
assert slowring[0]['time_us'] > 1.7 * least, slowring"

# What stays of the sums of a host is rounded.
predict hosts compressed_allreduce -n 4 --ranks-per-host 2 --elements 3000001 --codec topk:union=hosts
true_of "assert hosts[1]['wrong'] == 0"
# Other patterns, codecs, and all algorithms; the same seed gives the same figures.
predict cluster -n 4 --pattern cluster --overlap 100%
true_of "assert abs(cluster[1]['union'] / 0.01 - 1) < 0.2, cluster[1]"
for codec in topk:ratio=1%+fp16 topk:bytes=2%+int8 topk:ratio=1%+int8 int8 fp16 bf16 powersgd:rank=2 \
    random:ratio=1% random:ratio=1%+bf16; do
    predict codec compressed_allreduce -n 4 --elements 64K --codec "$codec"
    true_of "assert codec[1]['codec'] == '$codec' and codec[1]['sent_bytes'] < codec[0]['sent_bytes']"
done
predict every allreduce -n 4 --elements 1K --algo all
true_of "assert {'flat', 'direct', 'ring'} <= {r['algorithm'] for r in every}"
predict seed -n 2 --elements 64 --seed 9223372036854775807
true_of "assert seed_all['seed'] == 2**63 - 1"
predict first -n 16 --ranks-per-host 2 --hosts-per-rack 4 --oversubscription 2
predict second -n 16 --ranks-per-host 2 --hosts-per-rack 4 --oversubscription 2
true_of "
for a, b in zip(first, second):
    assert a.pop('wall_s') > 0 and b.pop('wall_s') > 0
    assert a == b"
predict far -n 8,65536 --elements 64K --density 0.1%,10% --algo all
expect out '^# model: [0-9]+ of [0-9]+ rows that were simulated too are within 20 %'
true_of "
near = [r for r in far if not r['by_model']]
assert all(abs(r['predicted_us'] / r['time_us'] - 1) < 0.3 for r in near if r['predicted_us'])
model = far_all['model']
both = [r['predicted_us'] / r['time_us'] for r in near if r['predicted_us']]
assert model['rows'] == len(both) and abs(model['worst_factor'] - max(max(x, 1 / x) for x in both)) < 1e-6
assert model['within_20_percent'] == sum(abs(x - 1) < 0.2 for x in both)
beyond = [r for r in far if r['by_model']]
assert all(r['levels'] == [] for r in beyond)
assert len(beyond) > 8 and all(r['ranks'] == 65536 and r['time_us'] > 0 and r['sent_bytes'] is None for r in beyond)"
# The model alone speaks of what "auto" takes in a job, by the same rules and settings.
predict rings allreduce -n 513 --elements 9M
predict shorter allreduce -n 513 --elements 8M
predict onehost allreduce -n 600 --ranks-per-host 600
export SPARRING_EAGER=64
predict eager allreduce -n 600 --elements 100
unset SPARRING_EAGER
true_of "
assert rings[0]['algorithm'] == 'ring' and shorter[0]['algorithm'] == 'direct', (rings, shorter)
assert onehost[0]['algorithm'] == eager[0]['algorithm'] == 'direct', (onehost, eager)"
SPARRING_EAGER=frob run -n 600 --algo all
expect_code 1
expect err "^sparring-sim: allreduce on 600 ranks: SPARRING_EAGER: "
# Also where no machine has memory for all vectors, in the comparison with dense, too.
predict vast -n 4096 --elements 1G
true_of "
assert len(vast) == 2 and all(r['by_model'] and r['time_us'] > 0 for r in vast), vast"
refused 1 'their vectors alone take .* give fewer --elements' -n 4096 --algo doubling --elements 1G --pattern zipf \
    --json -
# A ring with few hops between hosts is not held up by them at every step; one chunk has one grant.
predict apart -n 64 --elements 16K --algo ring
predict beside -n 64 --ranks-per-host 8 --elements 16K --algo ring
predict owners -n 8 --elements 64K --algo direct
true_of "
assert beside[1]['time_us'] < 0.4 * apart[1]['time_us'], (apart, beside)
assert owners[1]['messages'] == 8 * 7 * 4, owners"

# More than 512, where each talks to few.
predict many -n 1024 --elements 512 --algo doubling --pattern zipf
predict hosts allreduce -n 1024 --ranks-per-host 16 --elements 16K --algo hierarchical
true_of "
for r in many[1], hosts[0]:
    assert r['ranks'] == 1024 and not r['by_model'] and r['wrong'] == 0, r
assert many[1]['algorithm'] == 'doubling' and many[1]['busiest_messages'] < 40, many"
[ "$failed" -eq 0 ] && echo "all is well"
exit "$failed"
