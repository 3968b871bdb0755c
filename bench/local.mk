# SPDX-License-Identifier: BSD-2-Clause
# The comparison with other libraries (docs/benchmarks.md). Their packages: tools/setup --bench.

dist_noinst_SCRIPTS += bench/compare bench/mpi-shell bench/peer_gloo.py bench/verbs
EXTRA_DIST += \
	bench/cells.py \
	bench/change.py \
	bench/draw.py \
	bench/findings.py \
	bench/goals.py \
	bench/hosts.py \
	bench/page.py \
	bench/peer_mpi.c \
	bench/peers.py \
	bench/plan.py \
	bench/report.py \
	bench/sweep.py \
	bench/sweep_tables.py
CLEANFILES += bench/peer_mpi

# How fast a death is noticed (docs/failures.md).
dist_noinst_SCRIPTS += bench/deaths
noinst_PROGRAMS += bench/death_time
bench_death_time_LDADD = libsparring.la

# Latency and bandwidth of one link, beside ib_write_lat and ib_write_bw.
noinst_PROGRAMS += bench/link_speed
bench_link_speed_LDADD = $(spr_static_libs)

# What the priority of an operation is worth (docs/tuning.md).
noinst_PROGRAMS += bench/priority
bench_priority_LDADD = libsparring.la

# PowerSGD beside the same step made of OpenBLAS's routines (docs/codecs.md).
if HAVE_OPENBLAS
noinst_PROGRAMS += bench/lowrank
bench_lowrank_CPPFLAGS = $(AM_CPPFLAGS) $(OPENBLAS_CFLAGS)
bench_lowrank_LDADD = $(spr_static_libs) $(OPENBLAS_LIBS) -lm
endif

# Tables and pictures of docs/scaling.md.
dist_noinst_SCRIPTS += bench/scaling

# Codecs beside PyTorch, NumPy and plain C++ (docs/codecs.md).
dist_noinst_SCRIPTS += bench/codec bench/peer_torch.py
EXTRA_DIST += bench/peer_select.cpp
CLEANFILES += bench/peer_select
bench/peer_select: bench/peer_select.cpp
	$(AM_V_at)$(MKDIR_P) bench
	$(AM_V_GEN)$(INSTALLCHECK_CXX) -std=c++17 -O3 -Wall -Wextra -Wconversion -Wshadow -o $@ \
		$(srcdir)/bench/peer_select.cpp

# CODEC_FLAGS: options of bench/codec.
bench-codec: tools/sparring-codec
	$(AM_V_at)[ '$(INSTALLCHECK_CXX)' = no ] || $(MAKE) bench/peer_select
	$(AM_V_at)$(srcdir)/bench/codec --build '$(abs_top_builddir)' $(CODEC_FLAGS)
.PHONY: bench-codec

MPICC = mpicc
bench/peer_mpi: bench/peer_mpi.c
	$(AM_V_at)$(MKDIR_P) bench
	$(AM_V_CC)$(MPICC) -std=gnu11 -O2 $(SPR_WARN_CFLAGS) -o $@ $(srcdir)/bench/peer_mpi.c

# BENCH_FLAGS: options of bench/compare. A peer that is missing becomes a row that says so.
bench: tools/sparring-perf tools/sparring-run
	$(AM_V_at)! command -v $(MPICC) >/dev/null || $(MAKE) bench/peer_mpi
	$(AM_V_at)$(srcdir)/bench/compare --build '$(abs_top_builddir)' $(BENCH_FLAGS)
.PHONY: bench
