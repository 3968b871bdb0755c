# SPDX-License-Identifier: BSD-2-Clause
# A page: one line here.

dist_man_MANS += \
	man/sparring-codec.1 \
	man/sparring-info.1 \
	man/sparring-perf.1 \
	man/sparring-run.1 \
	man/sparring-sim.1 \
	man/sparring-trace.1 \
	man/sparring-tune.1 \
	man/sparring-vm.1 \
	man/sparring.7 \
	man/sparring.conf.5 \
	$(man_functions)

# Each function that the NAME section of such a page lists becomes a link to it.
man_functions = \
	man/spr_allreduce.3 \
	man/spr_codec_choose.3 \
	man/spr_codec_measured.3 \
	man/spr_comm_create.3 \
	man/spr_comm_grow.3 \
	man/spr_comm_shrink.3 \
	man/spr_comm_split.3 \
	man/spr_comm_stats.3 \
	man/spr_comm_tune.3 \
	man/spr_compressed_allreduce.3 \
	man/spr_mem_alloc.3 \
	man/spr_sparse_allreduce.3 \
	man/spr_status_string.3 \
	man/spr_wait.3

# Prints lines "page link", both file names.
man_links = for page in $(man_functions); do \
	for name in `sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z_]*\).*/\1/p' "$(srcdir)/$$page"`; do \
	echo "$$page $$name.3"; done; done | sed -n 's,^man/,,; /^\(.*\) \1$$/!p'

install-data-hook:
	$(AM_V_at)$(man_links) | (cd "$(DESTDIR)$(man3dir)" && \
	while read -r page link; do ln -sf "$$page" "$$link" || exit 1; done)
uninstall-hook:
	$(AM_V_at)$(man_links) | while read -r page link; do \
	rm -f "$(DESTDIR)$(man3dir)/$$link"; done

# Pages that are read as text; the links of README.md to docs/ hold where they are installed too.
readmedir = $(docdir)
dist_readme_DATA = README.md
docsdir = $(docdir)/docs
dist_docs_DATA = \
	docs/benchmarks.md \
	docs/claims.md \
	docs/codecs.md \
	docs/convergence.md \
	docs/failures.md \
	docs/how-a-gradient-travels.md \
	docs/scaling.md \
	docs/testing.md \
	docs/soft-roce.md \
	docs/tuning.md \
	docs/verbs-protocol.md \
	docs/wire-format.md
scalingdir = $(docdir)/docs/scaling
dist_scaling_DATA = \
	docs/scaling/density.svg \
	docs/scaling/hosts.svg \
	docs/scaling/link.svg \
	docs/scaling/racks.svg \
	docs/scaling/ranks.svg \
	docs/scaling/size.svg \
	docs/scaling/slow.svg
