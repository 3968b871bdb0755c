# SPDX-License-Identifier: BSD-2-Clause
# A tool: one line in bin_PROGRAMS, its _SOURCES, and its _LDADD (tools_libs, or spr_static_libs when it looks inside).

# The installed library plus the hidden helpers of base/.
tools_libs = libsparring.la base/libspr-base.la $(spr_system_libs)

dist_noinst_SCRIPTS = tools/setup tools/check tools/demo tools/acceptance

# A virtual machine with RDMA. The script finds vm/ and the programs in C beside itself, also through a link.
dist_pkglibexec_SCRIPTS = tools/sparring-vm
vmdir = $(pkglibexecdir)/vm
dist_vm_DATA = \
	tools/vm/__init__.py \
	tools/vm/accelerator.py \
	tools/vm/actions.py \
	tools/vm/boot.py \
	tools/vm/caller.py \
	tools/vm/door.py \
	tools/vm/guest.py \
	tools/vm/image.py \
	tools/vm/init \
	tools/vm/kernel.py \
	tools/vm/main.py \
	tools/vm/network.py \
	tools/vm/options.py \
	tools/vm/port.py \
	tools/vm/program.py \
	tools/vm/pulse.py \
	tools/vm/run.py \
	tools/vm/say.py \
	tools/vm/script.py \
	tools/vm/signals.py \
	tools/vm/sink.py \
	tools/vm/terminal.py
pkglibexec_PROGRAMS += tools/sparring-vm-agent tools/sparring-vm-switch
tools_sparring_vm_agent_LDADD =
tools_sparring_vm_agent_SOURCES = \
	tools/vm/agent.c \
	tools/vm/buffer.c \
	tools/vm/buffer.h \
	tools/vm/session.c \
	tools/vm/session.h \
	tools/vm/wire.h
tools_sparring_vm_switch_LDADD =
tools_sparring_vm_switch_SOURCES = tools/vm/switch.c

# In a build folder apart from the sources, a link to the script; and one in bindir, relative to it.
all-local:
	$(AM_V_at)[ -f tools/sparring-vm ] && [ ! -L tools/sparring-vm ] || ln -sfn '$(abs_top_srcdir)/tools/sparring-vm' tools/sparring-vm
distclean-vm:
	-[ ! -L tools/sparring-vm ] || rm -f tools/sparring-vm
install-exec-local:
	$(AM_V_at)$(MKDIR_P) '$(DESTDIR)$(bindir)'
	$(AM_V_at)ln -sfr '$(DESTDIR)$(pkglibexecdir)/sparring-vm' '$(DESTDIR)$(bindir)/sparring-vm'
uninstall-local:
	$(AM_V_at)rm -f '$(DESTDIR)$(bindir)/sparring-vm'
.PHONY: distclean-vm

# Readers of the flight recorder; they need base/ and nothing else of the library.
noinst_LTLIBRARIES += tools/libspr-trace.la
tools_libspr_trace_la_SOURCES = \
	tools/trace/align.c \
	tools/trace/dump.c \
	tools/trace/json.c \
	tools/trace/links.c \
	tools/trace/operations.c \
	tools/trace/places.c \
	tools/trace/places.h \
	tools/trace/read.c \
	tools/trace/set.c \
	tools/trace/state.c \
	tools/trace/trace.h \
	tools/trace/verdict.c

bin_PROGRAMS += tools/sparring-trace
tools_sparring_trace_LDADD = tools/libspr-trace.la base/libspr-base.la $(spr_system_libs)
tools_sparring_trace_SOURCES = \
	tools/command_line.c \
	tools/command_line.h \
	tools/option_rows.c \
	tools/option_rows.h \
	tools/streams.c \
	tools/streams.h \
	tools/trace/main.c

# sparring-run names the culprit of a failed job as sparring-trace does; it needs nothing else of the library.
bin_PROGRAMS += tools/sparring-run
tools_sparring_run_LDADD = tools/libspr-trace.la base/libspr-base.la $(spr_system_libs)
tools_sparring_run_SOURCES = \
	tools/option_rows.c \
	tools/option_rows.h \
	tools/streams.c \
	tools/streams.h \
	tools/run/emulate.c \
	tools/run/emulate.h \
	tools/run/end.c \
	tools/run/front.c \
	tools/run/front.h \
	tools/run/identity.c \
	tools/run/job.c \
	tools/run/job.h \
	tools/run/main.c \
	tools/run/options.c \
	tools/run/options.h \
	tools/run/output.c \
	tools/run/output.h \
	tools/run/parse.c \
	tools/run/parse.h \
	tools/run/privilege.c \
	tools/run/privilege.h \
	tools/run/rank.c \
	tools/run/recorder.c \
	tools/run/recorder.h \
	tools/run/remote.c \
	tools/run/restart.c \
	tools/run/tree.c \
	tools/run/tree.h

# Started by the library, so it is no command of its own.
pkglibexec_PROGRAMS += tools/sparring-guardian
tools_sparring_guardian_LDADD =
tools_sparring_guardian_SOURCES = tools/guardian/main.c

# Of tools with a command line and JSON; and of those that run collectives.
command_sources = \
	tools/command_line.c \
	tools/command_line.h \
	tools/json.c \
	tools/json.h \
	tools/option_rows.c \
	tools/option_rows.h \
	tools/matrix_layout.h \
	tools/streams.c \
	tools/streams.h
collective_sources = \
	tools/codec_spec.c \
	tools/codec_spec.h \
	tools/collective_options.c \
	tools/collective_options.h

# It prints the codecs' own list, which is hidden in the shared library.
bin_PROGRAMS += tools/sparring-perf
tools_sparring_perf_LDADD = $(spr_static_libs) $(JANSSON_LIBS)
tools_sparring_perf_SOURCES = \
	tools/first_rank.c \
	tools/first_rank.h \
	$(collective_sources) \
	$(command_sources) \
	tools/perf/buckets.c \
	tools/perf/buckets.h \
	tools/perf/compressed.c \
	tools/perf/data.c \
	tools/perf/data.h \
	tools/perf/dense.c \
	tools/perf/dense_check.c \
	tools/perf/dense_check.h \
	tools/perf/elastic.c \
	tools/perf/elastic.h \
	tools/perf/explain.c \
	tools/perf/explain.h \
	tools/perf/input.c \
	tools/perf/input.h \
	tools/perf/job.c \
	tools/perf/job.h \
	tools/perf/json.c \
	tools/perf/links.c \
	tools/perf/links.h \
	tools/perf/main.c \
	tools/perf/measure.c \
	tools/perf/options.c \
	tools/perf/options.h \
	tools/perf/options_check.c \
	tools/perf/options_check.h \
	tools/perf/report.h \
	tools/perf/sample.h \
	tools/perf/sparse.c \
	tools/perf/support.c \
	tools/perf/support.h \
	tools/perf/sweep.c \
	tools/perf/sweep.h \
	tools/perf/table.c \
	tools/perf/trace.c \
	tools/perf/trace.h \
	tools/perf/trial.h \
	tools/perf/wire.c \
	tools/perf/wire.h

bin_PROGRAMS += tools/sparring-tune
tools_sparring_tune_LDADD = $(tools_libs)
tools_sparring_tune_SOURCES = \
	tools/command_line.c \
	tools/command_line.h \
	tools/first_rank.c \
	tools/first_rank.h \
	tools/option_rows.c \
	tools/option_rows.h \
	tools/streams.c \
	tools/streams.h \
	tools/tune/main.c

# It asks the library's own functions what they would choose, which are hidden in the shared library.
bin_PROGRAMS += tools/sparring-info
AM_CPPFLAGS += $(HWLOC_CFLAGS)
tools_sparring_info_LDADD = $(spr_static_libs) $(JANSSON_LIBS) $(HWLOC_LIBS)
tools_sparring_info_SOURCES = \
	$(command_sources) \
	tools/first_rank.c \
	tools/first_rank.h \
	tools/info/choice.c \
	tools/info/doctor.c \
	tools/info/doctor.h \
	tools/info/doctor_rdma.c \
	tools/info/files.c \
	tools/info/firewall.c \
	tools/info/firewall.h \
	tools/info/json.c \
	tools/info/main.c \
	tools/info/network.c \
	tools/info/place.c \
	tools/info/rdma.c \
	tools/info/rdma.h \
	tools/info/rdma_memory.c \
	tools/info/rdma_memory.h \
	tools/info/report.h \
	tools/info/system.c \
	tools/info/text.c

# It measures what is hidden in the shared library.
bin_PROGRAMS += tools/sparring-codec
tools_sparring_codec_LDADD = $(spr_static_libs) $(JANSSON_LIBS)
tools_sparring_codec_SOURCES = \
	$(command_sources) \
	tools/codec/advice.c \
	tools/codec/advice.h \
	tools/codec/bench.c \
	tools/codec/choose.c \
	tools/codec/commands.h \
	tools/codec/compare.c \
	tools/codec/data.h \
	tools/codec/file.c \
	tools/codec/file.h \
	tools/codec/goals.c \
	tools/codec/goals.h \
	tools/codec/json.c \
	tools/codec/json.h \
	tools/codec/list.c \
	tools/codec/main.c \
	tools/codec/measure.c \
	tools/codec/measure.h \
	tools/codec/op_codec.c \
	tools/codec/op_hybrid.c \
	tools/codec/op_index.c \
	tools/codec/op_merge.c \
	tools/codec/op_reference.c \
	tools/codec/op_select.c \
	tools/codec/op_value.c \
	tools/codec/operations.c \
	tools/codec/operations.h \
	tools/codec/options.c \
	tools/codec/options.h \
	tools/codec/pool.c \
	tools/codec/pool.h \
	tools/codec/predict.c \
	tools/codec/predict.h \
	tools/codec/quality.c \
	tools/codec/quality.h \
	tools/codec/report.c \
	tools/codec/report.h \
	tools/codec/subject.c \
	tools/codec/subject.h \
	tools/codec/svg.c \
	tools/codec/try.c \
	tools/codec/wire.c \
	tools/codec/wire.h

# It holds the simulated transport, which the library does not.
bin_PROGRAMS += tools/sparring-sim
tools_sparring_sim_LDADD = $(spr_static_libs) $(JANSSON_LIBS)
tools_sparring_sim_SOURCES = \
	$(collective_sources) \
	$(command_sources) \
	tools/perf/data.c \
	tools/perf/data.h \
	tools/perf/sample.h \
	tools/perf/support.c \
	tools/perf/support.h \
	tools/sim/check.c \
	tools/sim/input.c \
	tools/sim/input.h \
	tools/sim/json.c \
	tools/sim/main.c \
	tools/sim/options.c \
	tools/sim/options.h \
	tools/sim/predict.c \
	tools/sim/predict.h \
	tools/sim/report.c \
	tools/sim/report.h \
	tools/sim/run.c \
	tools/sim/run.h \
	tools/sim/sweep.c \
	tools/sim/sweep.h \
	tools/sim/world.c \
	tools/sim/world.h
